"""Keeps the first k results of every query while its scores are at hand: what pages and strips show.

A row of scores is read twice: for the best of each of its stripes, which bound the k-th best score from below, and for what
reaches that bound; only those few are sorted. That costs a fraction of the product, and no ranking of whole rows.

>>> row = np.array([0.1, 0.9, 0.5, 0.9, -np.inf], np.float32)
>>> best_columns(row, 3, lambda columns: np.array([0, 1, 0, 0, 0])[columns]).tolist()  # among equals the lower key first
[3, 1, 2]
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
from numpy.typing import NDArray

from hbench.engine.ranker import Ranker
from hbench.engine.similarity import Rows

STRIPES = (
    512  # per row: the maxima of so many stripes are quick to take, and few items beside the best reach their bound
)
ROWS_AT_ONCE = 4096
NO_ITEM = -1
TieKeys = Callable[[NDArray[np.int64]], NDArray[np.integer]]


class TopResults:
    """The first k results of the queries of a ranker, by input positions of queries and of gallery items.

    `items` (Q, k): NO_ITEM where a list is shorter, or was not ranked. `scores` (Q, k) float32: as they were ranked by.
    `levels` (Q, k) uint8.
    """

    def __init__(self, queries: int, k: int) -> None:
        self.k = k
        self.items = np.full((queries, k), NO_ITEM, np.int32)
        self.scores = np.full((queries, k), np.nan, np.float64)
        self.levels = np.zeros((queries, k), np.uint8)
        self.kept = np.zeros(queries, bool)

    def keep(self, ranker: Ranker, scores: NDArray[np.floating], first: int) -> None:
        """Keep those of the canonical queries from `first` on, from their masked rows of scores (n, G)."""
        for query, row in enumerate(scores, first):
            best = best_columns(row, self.k, partial(_tie_keys, ranker, query))
            at = ranker.queries[query]
            self.items[at, : len(best)] = ranker.columns[best]
            self.scores[at, : len(best)] = row[best]
            self.levels[at, : len(best)] = _levels(ranker, query, best)
            self.kept[at] = True

    def similarities(self, ranker: Ranker, name: str) -> NDArray[np.float64]:
        """The similarities that the scores stand for, which rank alike but leave out what all items share, (Q, k).

        Cosine: the score over the lengths of both rows that were multiplied. l2: q·g − |g|²/2 becomes −|q − g|, where a row
        of queries has one more dimension, a 1. Others are as they are.
        """
        if name not in {"cosine", "l2"}:
            return self.scores
        asked = _lengths(ranker.scores.query_rows, np.arange(len(self.items)))[:, None]
        if name == "l2":
            return -np.sqrt(np.maximum(asked**2 - 1 - 2 * self.scores, 0))
        shown, place = np.unique(np.maximum(self.items, 0), return_inverse=True)  # of NO_ITEM the score is none
        ranked = _lengths(ranker.scores.gallery_rows, shown)
        cosines: NDArray[np.float64] = self.scores / asked / ranked[place.reshape(self.items.shape)]
        return cosines


def best_columns(row: NDArray[np.floating], k: int, tie_keys: TieKeys) -> NDArray[np.int64]:
    """The columns of the k highest scores of a row (G,), best first; equal scores by their tie key, then by column.

    −inf is left out of the list.
    """
    stripes = len(row) // STRIPES
    if stripes > 1 and k <= STRIPES:
        most = row[: stripes * STRIPES].reshape(stripes, STRIPES).max(axis=0)
        bound = np.partition(most, STRIPES - k)[STRIPES - k]  # k items at least are as high as the k-th highest maximum
    else:
        bound = np.partition(row, len(row) - k)[len(row) - k] if len(row) > k else row.dtype.type(-np.inf)
    found = np.flatnonzero(row >= bound)
    found = found[row[found] > -np.inf]
    return found[np.lexsort((tie_keys(found), -row[found]))][:k]


def _levels(ranker: Ranker, query: int, columns: NDArray[np.int64]) -> NDArray[np.uint8]:
    """The levels of some columns for a canonical query."""
    inside = (ranker.starts[query][:, None] <= columns) & (columns < ranker.ends[query][:, None])
    levels: NDArray[np.uint8] = inside.sum(axis=0).astype(np.uint8)
    return levels


def _tie_keys(ranker: Ranker, query: int, columns: NDArray[np.int64]) -> NDArray[np.uint8]:
    keys: NDArray[np.uint8] = ranker.tie_key[_levels(ranker, query, columns)]
    return keys


def _lengths(rows: Rows, positions: NDArray[np.int64]) -> NDArray[np.float64]:
    parts = [positions[start : start + ROWS_AT_ONCE] for start in range(0, len(positions), ROWS_AT_ONCE)]
    return np.concatenate([np.linalg.norm(rows.read(part).astype(np.float64), axis=1) for part in parts])
