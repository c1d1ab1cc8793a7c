"""QueryLists of positives that no tree gives: each query's own items by level, and the items that are left out of its list.

A row of scores is *arranged* for them: the listed positives come first, the finest level first, and leave their places empty. The
items of level ≥ l are then a range, as those of a tree are, and the same kernels rank them.

>>> lists = QueryLists(np.array([0, 2]), np.array([3, 1]), np.array([1, -1], np.int8))  # item 3 is a positive, item 1 is left out
>>> listed = ListedItems(lists, queries=np.array([0]), columns=np.arange(4), depth=1)
>>> listed.arranged(np.array([[0.9, 0.8, 0.7, 0.6]]), 0).tolist()
[[0.6, 0.9, -inf, 0.7, -inf]]
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hbench.core.errors import DataError

Positions = NDArray[np.int64]


class QueryLists(NamedTuple):
    """What is listed for every query, in input order: gallery `rows` with their `levels`, −1 for what is left out; those of query
    q are from bounds[q] to bounds[q + 1]."""

    bounds: Positions
    rows: Positions
    levels: NDArray[np.int8]


class RowArrangement(NamedTuple):
    """Where n rows of scores are rearranged: `width` places in front; the positives by row, place in front and column; all that
    is listed by row and column."""

    width: int
    rows: Positions
    places: Positions
    columns: Positions
    all_rows: Positions
    all_columns: Positions


class ListedItems:
    """The listed items of the queries in their canonical order, by their column in a row of scores.

    `starts`, `ends` (Q, L): the range of the items of level ≥ l in an arranged row. `sizes` (Q,): the items that are not left out.
    Raises DataError for a pair that is listed twice at one level, and for a level above the tree's.
    """

    def __init__(self, lists: QueryLists, *, queries: Positions, columns: Positions, depth: int) -> None:
        column_of = np.empty_like(columns)
        column_of[columns] = np.arange(len(columns))
        number = np.diff(lists.bounds)
        place = np.empty_like(queries)
        place[queries] = np.arange(len(queries))

        of_query = place[np.repeat(np.arange(len(queries)), number)]
        order = np.lexsort((column_of[lists.rows], -lists.levels, of_query))
        self.columns, self.levels = column_of[lists.rows][order], lists.levels[order]
        self.bounds = np.concatenate([[0], np.cumsum(number[queries])])

        is_again = (np.diff(self.columns) == 0) & (
            np.diff(of_query[order]) == 0
        )  # copies of a pair of one level are neighbours
        if is_again.any() or self.levels.max(initial=0) > depth:
            raise DataError(
                "the lists of positives cannot be used", expected=f"each pair once, of level −1 … {depth}",
                found=f"{int(is_again.sum())} pairs twice, levels up to {self.levels.max(initial=0)}",
            )  # fmt: skip

        levels = np.arange(1, depth + 1)
        at_least = np.zeros((len(queries), depth + 2), np.int64)
        np.add.at(at_least, (of_query[order], np.maximum(self.levels, 0)), 1)
        left_out = np.bincount(of_query[order][self.levels < 0], minlength=len(queries))
        self.ends = np.ascontiguousarray(at_least[:, ::-1].cumsum(axis=1)[:, ::-1][:, levels])
        self.starts = np.zeros_like(self.ends)
        self.sizes = len(columns) - left_out

    @property
    def arrays(self) -> tuple[NDArray[np.generic], ...]:
        """All that the lists say, for a digest."""
        return self.bounds, self.columns, self.levels

    @property
    def width(self) -> int:
        """The positives of the query that has most."""
        return int(self.ends[:, 0].max(initial=0))

    def placed(self, first: int, last: int) -> RowArrangement:
        """How the rows of the canonical queries from `first` to `last` are rearranged."""
        flat = slice(self.bounds[first], self.bounds[last])
        number = np.diff(self.bounds[first : last + 1])
        all_rows = np.repeat(np.arange(last - first), number)
        within = np.arange(len(all_rows)) - np.repeat(self.bounds[first:last] - flat.start, number)
        is_positive = self.levels[flat] > 0
        return RowArrangement(
            width=int(self.ends[first:last, 0].max(initial=0)),
            rows=all_rows[is_positive],
            places=within[is_positive],
            columns=self.columns[flat][is_positive],
            all_rows=all_rows,
            all_columns=self.columns[flat],
        )

    def arranged(self, scores: NDArray[np.floating], first: int) -> NDArray[np.floating]:
        """Rearrange rows of scores (n, G) of the canonical queries from `first` on; (n, P + G), P the most positives of these."""
        placed = self.placed(first, first + len(scores))
        rows = np.empty((len(scores), placed.width + scores.shape[1]), scores.dtype)
        rows[:, : placed.width] = -np.inf
        rows[:, placed.width :] = scores
        rows[placed.all_rows, placed.width + placed.all_columns] = -np.inf
        rows[placed.rows, placed.places] = scores[placed.rows, placed.columns]
        return rows
