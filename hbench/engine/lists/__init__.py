"""Positives that are not one range of the gallery: each query's own items by level, such as those
that are listed pair by pair.

A row of scores is *arranged* for them: the positives are moved behind the gallery, the finest level
first, and leave their places empty. The items of level ≥ l are then a range, as those of a tree
are, and the same kernels rank them.

>>> from hbench.engine.lists.pairs import PairLists, QueryLists
>>> pairs = QueryLists(
...     np.array([0, 2]), np.array([3, 1]), np.array([1, -1], np.int8)
... )  # item 3 is a positive, item 1 left out
>>> listed = ListedItems(PairLists(pairs, queries=np.array([0]), columns=np.arange(4), depth=1), 4)
>>> listed.arranged(np.array([[0.9, 0.8, 0.7, 0.6]]), 0).tolist()
[[0.9, -inf, 0.7, -inf, 0.6]]
"""

from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

Positions = NDArray[np.int64]


class PositiveLists(Protocol):
    """What an item means to a query, query by query, in their canonical order and by column of a
    row of scores.

    `counts` (Q, K): the items by code, those of no level first, without what is left out; a code is
    a level, but under partial labels (hbench.metrics.readings).
    """

    counts: Positions

    def positives(self, query: int) -> Positions:
        """The columns of a query's positives, the highest code first."""

    def left_out(self, query: int) -> Positions:
        """The columns of the items that are left out of a query's list."""

    @property
    def arrays(self) -> tuple[NDArray[np.generic], ...]:
        """All that the lists say, as arrays, of which the ranker's digest is made."""


class RowArrangement(NamedTuple):
    """Where n rows of scores are rearranged: `width` places behind the gallery; the positives by
    row, place among these and column; all that leaves its place empty by row and column."""

    width: int
    rows: Positions
    places: Positions
    columns: Positions
    all_rows: Positions
    all_columns: Positions


class ListedItems:
    """Arranges the rows of scores of `size` gallery items by `lists` of positives.

    `numbers` (Q,): how many positives each query has, which an arranged row has behind the gallery.
    `starts`, `ends` (Q, K − 1): the range of the items of every code in an arranged row, each
    written over those before it; code c stands in column c − 1, since code 0, of distractors, has
    no range.
    """

    def __init__(self, lists: PositiveLists, size: int, *, is_partial: bool = False) -> None:
        """`size`: the items of the gallery; `is_partial`: whether a code is not a level, but one of
        two for each: odd, items of this level, and even, items that may be of a finer one."""
        self.lists = lists
        self.size = size
        positive = lists.counts[:, 1:]  # without code 0, of distractors
        # (Q, K − 1): items of this code or a higher one, which come first in an arranged row
        at_least = np.ascontiguousarray(positive[:, ::-1].cumsum(axis=1)[:, ::-1])
        self.numbers = at_least[:, 0]  # code 1 or higher: all positives
        self.starts = np.full_like(at_least, size)  # positives begin where the gallery ends
        self.ends = size + at_least
        # a level's range holds all finer items, too; "may be finer" (even) holds its own alone.
        # Column c is code c + 1, so 1::2 are the even codes
        if is_partial:
            self.starts[:, 1::2] += (at_least - positive)[:, 1::2]

    @property
    def width(self) -> int:
        """The positives of the query that has most."""
        return int(self.numbers.max(initial=0))

    def arranged(self, scores: NDArray[np.floating], first: int) -> NDArray[np.floating]:
        """Rows of scores (n, G + P) with each query's positives moved behind the G gallery items
        (`size`), the highest code first, and −inf in their place; P: the most positives of these
        queries. `numbers` (Q,): how many each query has.

        `scores` (n, G): of the queries from `first` on in canonical order.
        """
        width = int(self.numbers[first : first + len(scores)].max(initial=0))  # P
        rows = np.empty((len(scores), self.size + width), scores.dtype)
        rows[:, : self.size] = scores
        for query, (row, of_query) in enumerate(zip(rows, scores, strict=True), start=first):
            positives = self.lists.positives(query)
            row[positives] = -np.inf
            row[self.lists.left_out(query)] = -np.inf
            # the ranges of the codes lie in these places behind the gallery
            row[self.size : self.size + len(positives)] = of_query[positives]
            # what is left of the P places of a query that has fewer positives
            row[self.size + len(positives) :] = -np.inf
        return rows

    def placed(self, first: int, last: int) -> RowArrangement:
        """How `arranged` moves the scores of the queries from `first` to `last`, in canonical
        order: as index arrays, which a card can apply to all rows at once. Rows count from
        `first`, and places from the end of the gallery."""
        # the columns of each query, in the order in which they are placed behind the gallery
        positives = [self.lists.positives(query) for query in range(first, last)]
        left_out = [self.lists.left_out(query) for query in range(first, last)]
        numbers = list(map(len, positives))
        numbers_left_out = list(map(len, left_out))
        rows = np.repeat(np.arange(last - first), numbers)
        columns = np.concatenate(positives)
        return RowArrangement(
            width=max(numbers),
            rows=rows,
            places=np.concatenate([np.arange(number) for number in numbers]),
            columns=columns,
            all_rows=np.concatenate([rows, np.repeat(np.arange(last - first), numbers_left_out)]),
            all_columns=np.concatenate([columns, *left_out]),
        )

    def columns(self, queries: Positions, places: Positions) -> Positions:
        """The gallery columns (n,) of the items that stand at these `places` (n,) of arranged rows,
        in which each query's positives were moved behind the gallery; `queries` (n,): the query of
        each place, by its number in canonical order. `size`: the items of the gallery, and so the
        first place behind it.
        """
        # places behind the gallery hold the positives, in their order; others have not moved
        columns = places.copy()
        for pair in np.flatnonzero(places >= self.size).tolist():
            columns[pair] = self.lists.positives(int(queries[pair]))[places[pair] - self.size]
        return columns
