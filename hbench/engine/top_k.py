"""Keeps each query's first k results during ranking, for report pages and strips.

A row of scores is read twice: for the best of each of its stripes, which bound the k-th best score
from below, and for what reaches that bound; only those few are sorted. That costs a fraction of the
product, and no ranking of whole rows.

>>> rows = np.array(
...     [[0.1, 0.9, 0.5, 0.9, -np.inf], [0.3, -np.inf, 0.2, -np.inf, -np.inf]], np.float32
... )
>>> keys = np.array([[0, 1, 0, 0, 0], [0, 0, 0, 0, 0]])
>>> row, place, column, score = candidates(rows, 3).best(3, lambda row, column: keys[row, column])
>>> row.tolist(), column.tolist()  # among equals the lower key first
([0, 0, 0, 1, 1], [3, 1, 2, 0, 2])
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

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
    """The first k results of the Q queries of a ranker; row q is that of input position q.

    `items` (Q, k) int32: input positions in the gallery, NO_ITEM where a list is shorter, or was
    not ranked. `scores` (Q, k): as they were ranked by, float64, which holds those of float32
    exactly; NaN for NO_ITEM. `levels` (Q, k) uint8. `kept` (Q,): whose results are here.
    """

    def __init__(self, queries: int, k: int) -> None:
        """Room for the first `k` results of this many queries; `kept` (Q,) tells which are here."""
        self.k = k
        self.items = np.full((queries, k), NO_ITEM, np.int32)
        # float64 holds scores of float32 exactly, too
        self.scores = np.full((queries, k), np.nan, np.float64)
        self.levels = np.zeros((queries, k), np.uint8)
        self.kept = np.zeros(queries, bool)

    def keep(self, ranker: Ranker, scores: NDArray[np.floating], first: int) -> None:
        """Keep the first k results of n queries, those from `first` on in canonical order, from
        their finished rows of scores (n, G), −inf where an item is left out. Few rows at a time:
        they are read twice, the second time from the cache.
        """
        step = max(1, SCORES_AT_ONCE // scores.shape[1])
        for start in range(0, len(scores), step):
            rows = scores[start : start + step]
            self.keep_found(ranker, candidates(rows, self.k), first + start, len(rows))

    def keep_found(self, ranker: Ranker, found: Contenders, first: int, queries: int) -> None:
        """Keep the first k results of a number of `queries`, from `first` on in canonical order;
        they are among the items that were `found`, whose rows count from `first`.
        """
        # (n,) each: the row, counted from `first`, the place among the k, the column and the score
        row, place, column, score = found.best(self.k, partial(_tie_keys, ranker, first))
        # results are kept in the order of the input
        at = ranker.queries[first + row]
        self.items[at, place] = ranker.columns_of(first + row, column)
        self.scores[at, place] = score
        self.levels[at, place] = _levels(ranker, first, row, column)
        self.kept[ranker.queries[first : first + queries]] = True

    def similarities(self, ranker: Ranker, name: str) -> NDArray[np.float64]:
        """The similarities (Q, k) of the kept results. Scores rank as similarities do, but leave
        out what is the same for all items of a query.

        Cosine: the score over the lengths of both rows that were multiplied. l2: q·g − |g|²/2
        becomes −|q − g|, where a row of queries has one more dimension, a 1. Others are as they
        are. `name`: of the similarity. `self.scores` (Q, k) are NaN where a list is shorter than k,
        and so is what is made of them here.
        """
        if name not in {"cosine", "l2"}:
            return self.scores
        # |v|² of the rows as they were multiplied
        query_squares = ranker.scores.query_rows.squared_norms()[:, None]  # (Q, 1)
        if name == "l2":
            # |q − g|² = |q|² − 2s, and |q|² is that of the row less its additional 1; rounding may
            # leave a difference below 0, which has no root
            return -np.sqrt(np.maximum(query_squares - 1 - 2 * self.scores, 0))
        # each item that is shown is read once: `place` leads from (Q, k) to its row there. Item
        # 0 stands in for NO_ITEM, −1, whose score is no number anyway
        shown, place = np.unique(np.maximum(self.items, 0), return_inverse=True)
        item_squares = ranker.scores.gallery_rows.squared_norms(shown)
        lengths = np.sqrt(query_squares * item_squares[place.reshape(self.items.shape)])
        cosines: NDArray[np.float64] = self.scores / lengths
        return cosines


class Contenders(NamedTuple):
    """Items (n,) that may be among the first of their rows: rows, columns and scores, by row and
    then by column."""

    rows: Places
    columns: Places
    scores: NDArray[np.floating]

    def best(
        self, k: int, tie_keys: TieKeys
    ) -> tuple[Places, Places, Places, NDArray[np.floating]]:
        """The k highest scores of every row, best first; equal scores by their tie key, then by
        column: rows, places among the k from 0, columns and scores, (m,) each. `tie_keys`: a
        function of rows (n,) and columns (n,) to keys (n,), the lower of which comes first."""
        # lexsort is stable, and contenders lie by column: so equal ones stay by column
        order = np.lexsort((tie_keys(self.rows, self.columns), -self.scores, self.rows))
        rows, columns, scores = self.rows[order], self.columns[order], self.scores[order]
        # rows are sorted, so the first of each is found by halving: a place counts from there
        place = np.arange(len(rows)) - np.searchsorted(rows, rows)
        listed = place < k
        return rows[listed], place[listed], columns[listed], scores[listed]


def candidates(rows: NDArray[np.floating], k: int) -> Contenders:
    """The items of rows of scores (n, G) that reach a bound of the k-th best score: the k best are
    among them, for at least k scores reach it. An item with −inf is left out of the list, and is no
    candidate even where the bound is −inf, too."""
    # flat places: np.nonzero of two axes takes ten times as long
    places = np.flatnonzero((rows >= _bounds(rows, k)[:, None]) & (rows > -np.inf))
    row, column = np.divmod(places, rows.shape[1])
    return Contenders(row, column, rows[row, column])


def _bounds(rows: NDArray[np.floating], k: int) -> NDArray[np.floating]:
    """Return a bound (n,) that at least k scores of each of the rows (n, G) reach: the k-th largest
    of the maxima of STRIPES stripes of the row, each of them every STRIPES-th item; for short rows
    the k-th best score itself.

    It is near the k-th best score, and found among a fraction of the numbers. −inf where a row has
    no more than k items, which all are wanted then.
    """
    n, items = rows.shape
    of_stripe = items // STRIPES  # items of each stripe
    tops = rows
    # fewer stripes than k have too few maxima, and stripes of one item are the row itself
    if of_stripe > 1 and k <= STRIPES:
        # k stripes have a maximum that reaches the k-th largest of all maxima: so do k scores. The
        # items behind the last whole stripe are not needed for a bound from below
        tops = rows[:, : of_stripe * STRIPES].reshape(n, of_stripe, STRIPES).max(axis=1)
    if tops.shape[1] <= k:
        return np.full(n, -np.inf, tops.dtype)
    kth_largest = tops.shape[1] - k  # its place in ascending order
    bounds: NDArray[np.floating] = np.partition(tops, kth_largest, axis=1)[:, kth_largest]
    return bounds


def _levels(ranker: Ranker, first: int, rows: Places, columns: Places) -> NDArray[np.uint8]:
    """The levels of pairs of a row, counted from the canonical query `first` on, and a column of a
    finished row, (n,); `rows`, `columns` (n,).
    """
    starts = ranker.starts[first + rows]
    ends = ranker.ends[first + rows]
    # ranges are nested: an item of level l lies in the first l of them
    levels: NDArray[np.uint8] = (
        ((starts <= columns[:, None]) & (columns[:, None] < ends)).sum(axis=1).astype(np.uint8)
    )
    return levels


def _tie_keys(ranker: Ranker, first: int, rows: Places, columns: Places) -> NDArray[np.uint8]:
    """The keys (n,) by which equal scores are ordered, lower first, of pairs of a row, counted from
    the canonical query `first` on, and a column: they follow from the items' levels."""
    keys: NDArray[np.uint8] = ranker.tie_key[_levels(ranker, first, rows, columns)]
    return keys
