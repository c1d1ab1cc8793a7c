"""Keeps each query's first k results during ranking, for report pages and strips.

A row of scores is read twice. The first pass takes the maximum of each of its stripes, which give
a lower bound of the k-th best score. The second pass collects the items that reach this bound, and
only these few are sorted. That costs a fraction of the matrix product, and whole rows need not be
sorted.

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

# per row; the maxima of this many stripes are quick to take, and few items besides the best reach
# their bound
STRIPES = 512
# few enough to be still in the cache when they are read again, and many rows, as each call of numpy
# takes some time
SCORES_AT_ONCE = 1 << 20
NO_ITEM = -1
Places = NDArray[np.int64]
TieKeys = Callable[[Places, Places], NDArray[np.integer]]


class TopResults:
    """The first k results of the Q queries of a ranker. Row q belongs to the query at input
    position q.

    `items` (Q, k) int32: input positions in the gallery, NO_ITEM where a list is shorter than k or
    was not ranked. `scores` (Q, k) float64: the scores by which the items were ranked, NaN for
    NO_ITEM. `levels` (Q, k) uint8: the levels of the items. `kept` (Q,): whether a query's results
    have been kept.
    """

    def __init__(self, queries: int, k: int) -> None:
        """Allocate the arrays for the first `k` results of this many queries, none kept so far."""
        self.k = k
        self.items = np.full((queries, k), NO_ITEM, np.int32)
        # float64, because it holds float32 scores exactly, too
        self.scores = np.full((queries, k), np.nan, np.float64)
        self.levels = np.zeros((queries, k), np.uint8)
        self.kept = np.zeros(queries, bool)

    def keep(self, ranker: Ranker, scores: NDArray[np.floating], first: int) -> None:
        """Keep the first k results of n queries, which begin with query `first` in canonical order.

        `ranker`: orders equal scores, and knows the input positions. `scores` (n, G): the queries'
        finished rows of scores, −inf where an item is left out of the list.
        """
        # few rows at a time: they are read twice, the second time from the cache
        step = max(1, SCORES_AT_ONCE // scores.shape[1])
        for start in range(0, len(scores), step):
            rows = scores[start : start + step]
            # the candidates: the items of each row that may be among its first k
            self.keep_found(ranker, candidates(rows, self.k), first + start, len(rows))

    def keep_found(self, ranker: Ranker, found: Contenders, first: int, queries: int) -> None:
        """Keep the first k results of consecutive queries in canonical order: `first` is the first
        of them, and `queries` their number. The results are chosen from the items that were
        `found`, whose rows count from `first`.
        """
        # (n,) each: the row, counted from `first`, the place among the k, the column and the score;
        # equal scores are ordered by the keys that `_tie_keys` gives for rows and columns
        row, place, column, score = found.best(self.k, partial(_tie_keys, ranker, first))
        # results are stored by the input positions of the queries
        at = ranker.queries[first + row]
        # `columns_of` turns columns of the finished rows of these queries into items
        self.items[at, place] = ranker.columns_of(first + row, column)
        self.scores[at, place] = score
        self.levels[at, place] = _levels(ranker, first, row, column)
        self.kept[ranker.queries[first : first + queries]] = True

    def similarities(self, ranker: Ranker, name: str) -> NDArray[np.float64]:
        """The similarities (Q, k) of the kept results, NaN where a list is shorter than k.

        `name`: of the similarity. Scores rank the items of a query as similarities do, but leave
        out what is the same for all items of one query, such as |q|² in l2. So the similarity is
        computed from the score: the cosine is the score divided by the lengths of the two rows that
        were multiplied. For l2, the score q·g − |g|²/2 becomes −|q − g|. Scores of other
        similarities are returned as they are.
        """
        if name not in {"cosine", "l2"}:
            return self.scores
        # |v|² of the rows as they were multiplied
        query_squares = ranker.scores.query_rows.squared_norms()[:, None]  # (Q, 1)
        if name == "l2":
            # |q − g|² = |q|² − 2s. A query's row has one more dimension, which is 1, so |q|² is the
            # squared length of the row minus 1. Rounding may leave a difference below 0, of which
            # there is no root: hence the maximum with 0.
            return -np.sqrt(np.maximum(query_squares - 1 - 2 * self.scores, 0))
        # Each item among the results is read once, and `place` leads from a result to its item in
        # `shown`. NO_ITEM is −1: item 0 is read in its place, and the NaN score gives NaN anyway.
        shown, place = np.unique(np.maximum(self.items, 0), return_inverse=True)
        item_squares = ranker.scores.gallery_rows.squared_norms(shown)
        lengths = np.sqrt(query_squares * item_squares[place.reshape(self.items.shape)])
        cosines: NDArray[np.float64] = self.scores / lengths
        return cosines


class Contenders(NamedTuple):
    """Items (n,) that may be among the first k of their rows of scores. They are sorted by row, and
    within a row by column."""

    rows: Places
    columns: Places
    scores: NDArray[np.floating]

    def best(
        self, k: int, tie_keys: TieKeys
    ) -> tuple[Places, Places, Places, NDArray[np.floating]]:
        """The items of the k highest scores of every row, best first. Equal scores are ordered by
        their tie key, and then by column.

        `tie_keys`: a function of rows (n,) and columns (n,) that returns keys (n,); the lower key
        comes first. Returns four arrays (m,): rows, places among the k (from 0), columns, scores.
        """
        # lexsort is stable, and the items are sorted by column: so equal ones stay in that order
        order = np.lexsort((tie_keys(self.rows, self.columns), -self.scores, self.rows))
        rows, columns, scores = self.rows[order], self.columns[order], self.scores[order]
        # an item's place counts from the first item of its row, which searchsorted finds
        place = np.arange(len(rows)) - np.searchsorted(rows, rows)
        listed = place < k
        return rows[listed], place[listed], columns[listed], scores[listed]


def candidates(rows: NDArray[np.floating], k: int) -> Contenders:
    """The items of rows of scores (n, G) that reach a lower bound of the row's k-th best score, so
    that the k best are among them. An item with score −inf is left out of the list: it is no
    candidate, even if the bound itself is −inf."""
    # on flattened rows, because np.nonzero on two axes takes ten times as long
    places = np.flatnonzero((rows >= _bounds(rows, k)[:, None]) & (rows > -np.inf))
    row, column = np.divmod(places, rows.shape[1])
    return Contenders(rows=row, columns=column, scores=rows[row, column])


def _bounds(rows: NDArray[np.floating], k: int) -> NDArray[np.floating]:
    """Return a lower bound (n,) of the k-th best score of each row of `rows` (n, G).

    A row is divided into STRIPES stripes, each of which has every STRIPES-th item. The bound is the
    k-th largest of the stripes' maxima: it is near the k-th best score, and found among a fraction
    of the numbers.

    A row is not divided if it has fewer than two items for each stripe, or if k is STRIPES or more.
    The bound is then the k-th best score itself, or −inf if the row has at most k items, which are
    all wanted.
    """
    n, items = rows.shape
    of_stripe = items // STRIPES  # items of each stripe
    tops = rows
    # stripes of one item are the row itself; with only k stripes the k-th largest maximum would be
    # the smallest one, far below the k-th best score
    if of_stripe > 1 and k < STRIPES:
        # the k largest maxima are k scores of the row, so the k-th best score is not below the
        # smallest of them; this is true without the items that fill no whole stripe, too
        tops = rows[:, : of_stripe * STRIPES].reshape(n, of_stripe, STRIPES).max(axis=1)
    if tops.shape[1] <= k:
        return np.full(n, -np.inf, tops.dtype)
    kth_largest = tops.shape[1] - k  # its place in ascending order
    bounds: NDArray[np.floating] = np.partition(tops, kth_largest, axis=1)[:, kth_largest]
    return bounds


def _levels(ranker: Ranker, first: int, rows: Places, columns: Places) -> NDArray[np.uint8]:
    """The levels (n,) of n pairs of a query and an item. `rows` (n,): the queries, counted from
    query `first` in canonical order. `columns` (n,): the items, as columns of the finished rows of
    scores.
    """
    starts = ranker.starts[first + rows]
    ends = ranker.ends[first + rows]
    # the ranges of the levels are nested: an item of level l is in the ranges of levels 1 … l
    levels: NDArray[np.uint8] = (
        ((starts <= columns[:, None]) & (columns[:, None] < ends)).sum(axis=1).astype(np.uint8)
    )
    return levels


def _tie_keys(ranker: Ranker, first: int, rows: Places, columns: Places) -> NDArray[np.uint8]:
    """The keys (n,) by which equal scores are ordered, lower first, for n pairs of a query and an
    item. They follow from the levels of the pairs. `rows` (n,): the queries, counted from query
    `first` in canonical order. `columns` (n,): the items, as columns of the rows of scores."""
    keys: NDArray[np.uint8] = ranker.tie_key[_levels(ranker, first, rows, columns)]
    return keys
