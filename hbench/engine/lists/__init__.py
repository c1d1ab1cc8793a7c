"""Positives that are no range of the gallery but listed for each query, such as positives that a
benchmark lists pair by pair.

A row of scores is *arranged* for them: the positives are moved behind the gallery, the finest level
first, and their old places get −inf. The items of level ≥ l are then a range of the row, as in a
row of a label tree, so the same kernels can rank them.

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
    """Lists of positives and of left-out items, one of each per query. Queries are given by their
    number in canonical order, items by their column in a row of scores.

    `counts` (Q, K): how many items of each code a query's list has, without left-out items. A code
    is a level, except under partial labels (hbench.metrics.readings); code 0 is a distractor.
    """

    counts: Positions

    def positives(self, query: int) -> Positions:
        """The columns of a query's positives, the highest code first."""

    def left_out(self, query: int) -> Positions:
        """The columns of the items that are left out of a query's list."""

    @property
    def arrays(self) -> tuple[NDArray[np.generic], ...]:
        """The content of all lists, as arrays, which enter the ranker's digest."""


class RowArrangement(NamedTuple):
    """How n rows of scores are rearranged, as index arrays.

    `width`: the number of places behind the gallery. `rows`, `places`, `columns` (pairs,): the row
    of each positive, its new place, counted from the end of the gallery, and its old column.
    `all_rows`, `all_columns`: the rows and columns that get −inf: the positives, then the left-out
    items.
    """

    width: int
    rows: Positions
    places: Positions
    columns: Positions
    all_rows: Positions
    all_columns: Positions


class ListedItems:
    """Arranges rows of scores by `lists` of positives. An arranged row has the `size` gallery items
    in its first columns. The scores of the query's positives follow from column `size` on, those
    with the highest code first.

    `numbers` (Q,) is the number of positives of each query. `starts` and `ends` (Q, K − 1) are the
    range of each code in an arranged row; an item has the last code whose range contains it. There
    are K codes. Code c is in column c − 1, since code 0, of distractors, has no range.
    """

    def __init__(self, lists: PositiveLists, size: int, *, is_partial: bool = False) -> None:
        """Find the range of each code among the positives. Their columns follow the gallery's, from
        the highest code down. `lists.counts` (Q, K): how many items of each code a query's list
        has. `size`: the number of gallery items. `is_partial`: whether labels are partial. A level
        then has two codes: an odd one for its items, and an even one for items that may be finer.
        """
        self.lists = lists
        self.size = size
        positive = lists.counts[:, 1:]  # without code 0, of distractors
        # (Q, K − 1): the number of positives with this code or a higher one, a sum from the highest
        # code down. They are the first positives behind the gallery.
        at_least = np.ascontiguousarray(positive[:, ::-1].cumsum(axis=1)[:, ::-1])
        self.numbers = at_least[:, 0]  # code 1 or higher: all positives
        self.starts = np.full_like(at_least, size)  # positives begin where the gallery ends
        self.ends = size + at_least
        # The range of a level also holds all finer items, but that of an even code ("may be finer")
        # only its own. Column c is code c + 1, so columns 1::2 are the even codes.
        if is_partial:
            self.starts[:, 1::2] += (at_least - positive)[:, 1::2]

    @property
    def width(self) -> int:
        """The largest number of positives of a query."""
        return int(self.numbers.max(initial=0))

    def arranged(self, scores: NDArray[np.floating], first: int) -> NDArray[np.floating]:
        """Move each query's positives behind the gallery, the highest code first, and put −inf in
        their old places. `scores` (n, G): the rows of the queries from `first` on in canonical
        order. Returns new rows (n, G + P), where P is the most positives of one of these queries.
        """
        width = int(self.numbers[first : first + len(scores)].max(initial=0))  # P
        rows = np.empty((len(scores), self.size + width), scores.dtype)
        rows[:, : self.size] = scores
        for query, (row, of_query) in enumerate(zip(rows, scores, strict=True), start=first):
            positives = self.lists.positives(query)
            row[positives] = -np.inf
            row[self.lists.left_out(query)] = -np.inf
            # from `of_query`, as `row` has −inf in these columns by now
            row[self.size : self.size + len(positives)] = of_query[positives]
            # a query with fewer than P positives does not fill all places
            row[self.size + len(positives) :] = -np.inf
        return rows

    def placed(self, first: int, last: int) -> RowArrangement:
        """How `arranged` moves the scores of the queries `first` … `last` − 1 in canonical order,
        by labels, as index arrays that a card can apply to all rows at once. Rows count from
        `first`. Positives are moved behind the gallery, since only there can those of each level be
        side by side, as the kernels expect."""
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
            # what gets −inf: `rows` and `columns`, from which the positives are moved away, and the
            # left-out items
            all_rows=np.concatenate([rows, np.repeat(np.arange(last - first), numbers_left_out)]),
            all_columns=np.concatenate([columns, *left_out]),
        )

    def columns(self, queries: Positions, places: Positions) -> Positions:
        """The gallery columns (n,) of the items at these `places` (n,) of arranged rows. `queries`
        (n,): the query of each place, by its number in canonical order.
        """
        # The first `size` places of an arranged row are the gallery's columns. The places behind
        # them hold the query's positives, in the order of its list.
        columns = places.copy()
        for pair in np.flatnonzero(places >= self.size).tolist():
            columns[pair] = self.lists.positives(int(queries[pair]))[places[pair] - self.size]
        return columns
