"""Positives that a benchmark lists pair by pair, such as those of revisited Oxford and ILIAS."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hbench.core.errors import DataError

Positions = NDArray[np.int64]


class QueryLists(NamedTuple):
    """The gallery items that a benchmark lists for each query, in input order.

    `rows`, `levels` (n,): the gallery row and the level of each listed pair; level −1 means that
    the query leaves the item out of its list. The pairs of query q are those from bounds[q] to
    bounds[q + 1]; `bounds` (Q + 1,).
    """

    bounds: Positions
    rows: Positions
    levels: NDArray[np.int8]


class PairLists:
    """The listed pairs, with queries by their number in canonical order and items by column.

    `columns`, `levels` (n,): the item and the level of each pair; level −1 means left out. The
    pairs of query q are those from bounds[q] to bounds[q + 1], the finest level first. `counts`
    (Q, L + 1): how many items of each level a query's list has. Raises DataError for a pair that is
    listed twice, and for a level above the depth.
    """

    def __init__(
        self, lists: QueryLists, *, queries: Positions, columns: Positions, depth: int
    ) -> None:
        """Put the pairs of all lists into canonical order.

        Args:
            lists: the listed pairs, in input order. The pairs of query q are those from
                `bounds[q]` to `bounds[q + 1]`; each has a gallery row (`rows`) and a level, −1 if
                the query leaves the item out (`levels`).
            queries: (Q,), the input positions of the queries in canonical order.
            columns: (G,), the input positions of the gallery items in canonical order.
            depth: the highest level that a pair may have.
        """
        # inverse permutations: `column_of` leads from the input position of an item to its column,
        # `place` from that of a query to its place in canonical order
        column_of = np.empty_like(columns)
        column_of[columns] = np.arange(len(columns))
        sizes = np.diff(lists.bounds)  # (Q,): how many pairs each query has
        place = np.empty_like(queries)
        place[queries] = np.arange(len(queries))

        # pairs sorted by query, within a query by level, the finest first, and within a level by
        # column: lexsort sorts by its last key first
        of_query = place[np.repeat(np.arange(len(queries)), sizes)]
        order = np.lexsort((column_of[lists.rows], -lists.levels, of_query))
        self.columns = column_of[lists.rows][order]
        self.levels = lists.levels[order]
        self.bounds = np.concatenate([[0], np.cumsum(sizes[queries])])

        # one number for each pair, whatever its level
        pairs = of_query[order] * len(columns) + self.columns
        again = len(pairs) - len(np.unique(pairs))
        if again or self.levels.max(initial=0) > depth:
            raise DataError(
                "the lists of positives cannot be used",
                expected=f"each pair once, of level −1 … {depth}",
                found=f"{again} pairs twice, levels up to {self.levels.max(initial=0)}",
            )

        # Left-out items (−1) are not counted. Items that are not listed are distractors, so level 0
        # gets all items but the listed ones, in addition to those that are listed at level 0.
        self.counts = np.zeros((len(queries), depth + 1), np.int64)
        is_level = self.levels >= 0
        # .at counts each pair, also where a query has several pairs of one level
        np.add.at(self.counts, (of_query[order][is_level], self.levels[is_level]), 1)
        self.counts[:, 0] += len(columns) - sizes[queries]

    @property
    def arrays(self) -> tuple[NDArray[np.generic], ...]:
        """The content of all lists, as arrays, which enter the ranker's digest."""
        return self.bounds, self.columns, self.levels

    def positives(self, query: int) -> Positions:
        """The columns of a query's positives, the finest level first. `query`: its number in
        canonical order. Pairs that are listed at level 0 are no positives."""
        start, end = self.bounds[query : query + 2]
        return self.columns[start:end][self.levels[start:end] > 0]

    def left_out(self, query: int) -> Positions:
        """The columns of the items that are left out of a query's list: their level is −1."""
        start, end = self.bounds[query : query + 2]
        return self.columns[start:end][self.levels[start:end] < 0]
