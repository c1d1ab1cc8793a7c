"""Keeps each query's first k results during ranking, for report pages and strips.

A row of scores is read twice: for the best of each of its stripes, which bound the k-th best score
from below, and for what reaches that bound; only those few are sorted. That costs a fraction of the
product, and no ranking of whole rows.

>>> rows = np.array(
...     [[0.1, 0.9, 0.5, 0.9, -np.inf], [0.3, -np.inf, 0.2, -np.inf, -np.inf]], np.float32
... )
>>> keys = np.array([[0, 1, 0, 0, 0], [0, 0, 0, 0, 0]])
>>> best_columns(
...     rows, 3, lambda row, column: keys[row, column]
... ).tolist()  # among equals the lower key first
[[3, 1, 2], [0, 2, -1]]
"""

from collections.abc import Callable
from functools import partial

import numpy as np
from numpy.typing import NDArray

from hbench.engine.ranker import Ranker

# per row: the maxima of this many stripes are quick to take, and few items besides the best reach
# their bound
STRIPES = 512
# read twice while they lie in the cache; many rows, as each call of numpy has its price
SCORES_AT_ONCE = 1 << 20
NO_ITEM = -1
Places = NDArray[np.int64]
TieKeys = Callable[[Places, Places], NDArray[np.integer]]


class TopResults:
    """The first k results of the queries of a ranker, by input positions of queries and of gallery
    items.

    `items` (Q, k): NO_ITEM where a list is shorter, or was not ranked. `scores` (Q, k) float32: as
    they were ranked by. `levels` (Q, k) uint8.
    """

    def __init__(self, queries: int, k: int) -> None:
        self.k = k
        self.items = np.full((queries, k), NO_ITEM, np.int32)
        self.scores = np.full((queries, k), np.nan, np.float64)
        self.levels = np.zeros((queries, k), np.uint8)
        self.kept = np.zeros(queries, bool)

    def keep(self, ranker: Ranker, scores: NDArray[np.floating], first: int) -> None:
        """Keep those of the canonical queries from `first` on, from their masked rows of scores (n,
        G).
        """
        step = max(1, SCORES_AT_ONCE // scores.shape[1])
        for start in range(0, len(scores), step):
            rows = scores[start : start + step]
            query = first + start
            best = best_columns(rows, self.k, partial(_tie_keys, ranker, query))
            row, place = np.nonzero(best != NO_ITEM)
            columns = best[row, place]
            at = ranker.queries[query + row]
            self.items[at, place] = ranker.columns_of(query + row, columns)
            self.scores[at, place] = rows[row, columns]
            self.levels[at, place] = _levels(ranker, query, row, columns)
            self.kept[ranker.queries[query : query + len(rows)]] = True

    def similarities(self, ranker: Ranker, name: str) -> NDArray[np.float64]:
        """The similarities that the scores stand for, which rank alike but leave out what all items
        share, (Q, k).

        Cosine: the score over the lengths of both rows that were multiplied. l2: q·g − |g|²/2
        becomes −|q − g|, where a row of queries has one more dimension, a 1. Others are as they
        are.
        """
        if name not in {"cosine", "l2"}:
            return self.scores
        asked = ranker.scores.query_rows.squared_norms()[:, None]
        if name == "l2":
            return -np.sqrt(np.maximum(asked - 1 - 2 * self.scores, 0))
        # of NO_ITEM the score is none
        shown, place = np.unique(np.maximum(self.items, 0), return_inverse=True)
        ranked = ranker.scores.gallery_rows.squared_norms(shown)[place.reshape(self.items.shape)]
        cosines: NDArray[np.float64] = self.scores / np.sqrt(asked * ranked)
        return cosines


def best_columns(rows: NDArray[np.floating], k: int, tie_keys: TieKeys) -> Places:
    """The columns (n, k) of the k highest scores of every row (n, G), best first; equal scores by
    their tie key, then by column.

    −inf is left out of the list, and NO_ITEM stands behind the end of a list. `tie_keys`: of pairs
    of a row and a column.
    """
    # flat places: np.nonzero of two axes takes ten times as long
    places = np.flatnonzero((rows >= _bounds(rows, k)[:, None]) & (rows > -np.inf))
    row, column = np.divmod(places, rows.shape[1])
    # stable: by column in the end
    order = np.lexsort((tie_keys(row, column), -rows[row, column], row))
    row = row[order]
    column = column[order]
    rank = np.arange(len(row)) - np.searchsorted(row, np.arange(len(rows)))[row]
    best = np.full((len(rows), k), NO_ITEM)
    listed = rank < k
    best[row[listed], rank[listed]] = column[listed]
    return best


def _bounds(rows: NDArray[np.floating], k: int) -> NDArray[np.floating]:
    """Return a bound (n,) that at least k scores of each row (n, G) reach: the k-th largest of the
    maxima of stripes.
    """
    n, items = rows.shape
    stripes = items // STRIPES
    if stripes > 1 and k <= STRIPES:
        rows = rows[:, : stripes * STRIPES].reshape(n, stripes, STRIPES).max(axis=1)
    if rows.shape[1] <= k:
        return np.full(n, -np.inf, rows.dtype)
    bounds: NDArray[np.floating] = np.partition(rows, rows.shape[1] - k, axis=1)[
        :, rows.shape[1] - k
    ]
    return bounds


def _levels(ranker: Ranker, first: int, rows: Places, columns: Places) -> NDArray[np.uint8]:
    """The levels of pairs of a row, counted from the canonical query `first` on, and a column,
    (n,).
    """
    starts = ranker.starts[first + rows]
    ends = ranker.ends[first + rows]
    levels: NDArray[np.uint8] = (
        ((starts <= columns[:, None]) & (columns[:, None] < ends)).sum(axis=1).astype(np.uint8)
    )
    return levels


def _tie_keys(ranker: Ranker, first: int, rows: Places, columns: Places) -> NDArray[np.uint8]:
    keys: NDArray[np.uint8] = ranker.tie_key[_levels(ranker, first, rows, columns)]
    return keys
