"""Positives that a benchmark lists pair by pair, such as those of revisited Oxford and ILIAS."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hbench.core.errors import DataError

Positions = NDArray[np.int64]


class QueryLists(NamedTuple):
    """What is listed for every query, in input order: gallery `rows` with their `levels`, −1 for
    what is left out; those of query q are from bounds[q] to bounds[q + 1]."""

    bounds: Positions
    rows: Positions
    levels: NDArray[np.int8]


class PairLists:
    """The listed pairs of the queries in their canonical order, by column.

    `columns`, `levels` (n,): the item and the level of each pair, −1 for what is left out; those of
    query q are from bounds[q] to bounds[q + 1], the finest level first. `counts` (Q, L + 1): the
    items of each list by level. Raises DataError for a pair that is listed twice at one level, and
    for a level above the tree's.
    """

    def __init__(
        self, lists: QueryLists, *, queries: Positions, columns: Positions, depth: int
    ) -> None:
        """Put the pairs of all lists into the order of ranking.

        `lists`: in input order, the gallery rows of each query with their levels, −1 for what is
        left out of its list; `queries` (Q,), `columns` (G,): the canonical order, in which they are
        ranked, as permutations of the positions 0 … Q − 1 of queries and 0 … G − 1 of gallery rows
        in the input; `depth`: the highest level of a pair.
        """
        # their inverse: from a position in the input to the place where it is ranked
        column_of = np.empty_like(columns)
        column_of[columns] = np.arange(len(columns))
        number = np.diff(lists.bounds)  # (Q,): how many pairs each query has
        place = np.empty_like(queries)
        place[queries] = np.arange(len(queries))

        # by query; within one by level, the finest first; within a level by column (lexsort takes
        # its last key first)
        of_query = place[np.repeat(np.arange(len(queries)), number)]
        order = np.lexsort((column_of[lists.rows], -lists.levels, of_query))
        self.columns = column_of[lists.rows][order]
        self.levels = lists.levels[order]
        self.bounds = np.concatenate([[0], np.cumsum(number[queries])])

        # copies of a pair of one level are neighbours
        is_again = (np.diff(self.columns) == 0) & (np.diff(of_query[order]) == 0)
        if is_again.any() or self.levels.max(initial=0) > depth:
            raise DataError(
                "the lists of positives cannot be used",
                expected=f"each pair once, of level −1 … {depth}",
                found=f"{int(is_again.sum())} pairs twice, levels up to "
                f"{self.levels.max(initial=0)}",
            )

        # items that nobody judged share no level; what is left out (−1) is counted nowhere
        self.counts = np.zeros((len(queries), depth + 1), np.int64)
        is_level = self.levels >= 0
        # .at: a query has several pairs of one level
        np.add.at(self.counts, (of_query[order][is_level], self.levels[is_level]), 1)
        self.counts[:, 0] += len(columns) - number[queries]

    @property
    def arrays(self) -> tuple[NDArray[np.generic], ...]:
        """All that the lists say, as arrays, of which the ranker's digest is made."""
        return self.bounds, self.columns, self.levels

    def positives(self, query: int) -> Positions:
        """The columns of the positives of a query, given by its canonical number; the finest level
        first. 0 in a list: judged, but no positive."""
        start, end = self.bounds[query : query + 2]
        return self.columns[start:end][self.levels[start:end] > 0]

    def left_out(self, query: int) -> Positions:
        """The columns of the items that are left out of a query's list: their level is −1."""
        start, end = self.bounds[query : query + 2]
        return self.columns[start:end][self.levels[start:end] < 0]
