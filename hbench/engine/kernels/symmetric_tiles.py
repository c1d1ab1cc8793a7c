"""Tiles: pieces of the scores of all pairs of items. Each is counted in the lists of the queries in
its rows and of the queries in its columns.

Since s(i, j) = s(j, i), only the score in row i is used for two queries i < j, for both of them.
Compiled by numba.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hbench.core.compiled import Scalar, compiled, compiled_part
from hbench.engine.kernels.best_items import level_of_best, raise_best
from hbench.engine.kernels.rank_positives import (
    BUCKETS,
    RankedPositives,
    RankingRule,
    add_up,
    are_tied,
    count_above,
)
from hbench.engine.kernels.sort_keys import Parts

# columns turned into rows at once; for all rows of a block they stay in the second-level cache
TURNED = 64
LINE = 16  # rows turned at once, whose scores fill a line of the cache


class SortedPositives(NamedTuple):
    """The sorted positives of n queries, in flat arrays.

    `ordered`: the scores of each query's positives, best first, then −inf for the query itself, and
    −inf once more. `levels` uint8: the level or code of each item. `parts`: where the list of each
    query begins in the flat arrays, and the columns of its items.
    """

    ordered: NDArray[np.floating]
    levels: NDArray[np.uint8]
    parts: Parts

    def of(self, queries: slice) -> SortedPositives:
        """The lists of some neighbouring queries, as views."""
        flat = flat_range(self.parts, queries)
        return SortedPositives(self.ordered[flat], self.levels[flat], self.parts.of(queries))


class Counts(NamedTuple):
    """What has been counted for n queries.

    `above`: the number of distractors between each positive and the one before, in a flat array
    like the `ordered` of their lists. `best` (n, L + 1): the highest score of each level from 0;
    `top` (n,): the highest score of all. `tied` (n,): whether a distractor has the score of a
    positive.
    """

    above: NDArray[np.int32]
    best: NDArray[np.floating]
    top: NDArray[np.floating]
    tied: NDArray[np.bool_]

    @classmethod
    def zeros(cls, lists: SortedPositives) -> Counts:
        """Counts for the queries of these lists before any score is counted: zeros, and −inf as the
        highest scores."""
        queries, levels = lists.parts.starts.shape  # without level 0, which has a best score, too
        best = np.full((queries, levels + 1), -np.inf, lists.ordered.dtype)
        return cls(
            np.zeros(len(lists.ordered), np.int32), best, best.max(axis=1), np.zeros(queries, bool)
        )

    def of(self, queries: slice, flat: slice) -> Counts:
        """The counts of some of the queries, as views. `flat`: the range of their lists in flat
        arrays (`flat_range`)."""
        return Counts(self.above[flat], self.best[queries], self.top[queries], self.tied[queries])

    def add(self, other: Counts) -> None:
        """Add, in place, what was counted for the same queries from other items."""
        np.add(self.above, other.above, out=self.above)
        np.maximum(self.best, other.best, out=self.best)
        np.maximum(self.top, other.top, out=self.top)
        np.logical_or(self.tied, other.tied, out=self.tied)


class TileSide(NamedTuple):
    """The queries of a tile's rows, or of its columns: the number of the `first` query in canonical
    order, the lists of all, and their counts, which are written to.
    """

    first: int
    lists: SortedPositives
    counts: Counts


def flat_range(parts: Parts, queries: slice) -> slice:
    """The range in flat arrays of the lists of some neighbouring queries. Each list is followed by
    one more place, for −inf."""
    last = queries.stop - 1
    return slice(
        int(parts.offsets[queries.start]), int(parts.offsets[last] + parts.sizes[last] + 1)
    )


@compiled
def count_tile(
    tile: NDArray[np.floating], rows: TileSide, columns: TileSide, rule: RankingRule, most: int
) -> None:
    """Count the scores of a tile (R, C) for the queries of its rows and for those of its columns.

    For the query of a row, the items behind the query in canonical order are counted; for the query
    of a column, the items before it. So each pair is counted once for each of its two queries.

    The first round of the loop counts the tile as it is; each later round counts a strip of its
    columns, turned into rows. One loop does both, since numba compiles a copy of a function for
    each place that calls it.

    Each query is an item of the gallery, too, whose column is the query's place in canonical order.
    So each side's `first` is the place of its first query and the column of that item.

    A side's `counts`, which are added to, are, in this order: the distractors `above` each
    positive, in a flat array like the lists; the `best` score of each level, from 0, and the `top`
    score of all, by query; and by query whether a distractor is `tied` with a positive. In
    `lists.parts`, by query, `begins` and `sizes` are the columns of its positives, `offsets` their
    place in flat arrays, and `starts`, `ends` (Q, L) the columns of the items of level ≥ l.
    `lists.ordered` has the scores of each query's positives, best first, and then −inf for the
    query itself. `rule`: the order of equal scores. `most`: the largest number of positives of a
    query.
    """
    # scratch of `count_above`: it needs up to BUCKETS counts per positive, and one more
    before = np.empty(BUCKETS * most + 1, np.uint16)
    turned = np.empty((TURNED, len(tile)), tile.dtype)
    # A round counts the rows of `scores` for the queries of `side`. `begun`: the place of the first
    # row's query within the side. `item`: the item of the first column. `beyond`: whether the items
    # behind each query are counted, else those before it.
    scores = tile
    side = rows
    begun = 0
    item = columns.first
    beyond = True
    for start in range(0, tile.shape[1] + TURNED, TURNED):
        parts = side.lists.parts
        above, best, top, tied = side.counts
        for row in range(len(scores)):
            place = begun + row
            # `itself`: the query's own column, counted from `item`, −1 if it is before these
            # scores. `near`: the scores that count for the query. `first`: the item of the first of
            # these.
            itself = max(side.first + place - item, -1)
            near = scores[row, itself + 1 :] if beyond else scores[row, : max(itself, 0)]
            first = item + itself + 1 if beyond else item
            # where the query's positives begin in `near`, counted from column `first`; all other
            # items are distractors
            begin = parts.begins[place] - first
            size = parts.sizes[place]
            offset = parts.offsets[place]
            if size > 1:  # a list of one item has only the query itself
                distractors = (near[: max(begin, 0)], near[max(begin + size, 0) :])
                ordered = side.lists.ordered[offset : offset + size]
                counts = above[offset : offset + size]
                tied[place] |= count_above(distractors, ordered, rule, before, counts)
            # rarely True: only a score that reaches the best so far can become the first result
            if some_reach(near, top[place]):
                raise_best(near, first, (parts.starts[place], parts.ends[place]), best[place])
                for level in range(best.shape[1]):
                    top[place] = max(top[place], best[place, level])
        # the next strip of columns, for the next round; empty after the last one
        size = min(TURNED, max(tile.shape[1] - start, 0))
        turn(tile[:, start : start + size], turned)
        scores = turned[:size]
        side = columns
        begun = start
        item = rows.first
        beyond = False


@compiled_part
def turn(tile: NDArray[np.floating], turned: NDArray[np.floating]) -> None:
    """Write the transpose of the tile (R, C) to the front of `turned` (≥ C, R), LINE rows at a
    time, so that whole lines of the cache are written."""
    for first in range(0, len(tile), LINE):
        rows = min(LINE, len(tile) - first)
        for column in range(np.uint64(tile.shape[1])):
            for row in range(np.uint64(first), np.uint64(first + rows)):
                turned[column, row] = tile[row, column]


@compiled_part
def some_reach(scores: NDArray[np.floating], best: Scalar) -> bool:
    """Whether any score reaches the best score so far. There is no early return, and the numbers
    are int32, so that the loop becomes vector instructions."""
    reaching = np.int32(0)
    for item in range(len(scores)):
        reaching = np.int32(reaching | np.int32(scores[item] >= best))
    return bool(reaching)


@compiled
def rank_counted(
    lists: SortedPositives,
    counts: Counts,
    pessimistic: bool,
    out: RankedPositives,
    first_levels: NDArray[np.uint8],
) -> None:
    """Write the ranks (from 1) and levels of the positives of n queries to `out`, and the levels of
    the items ranked first to `first_levels` (n,).

    `lists` are the sorted positives. `counts` must have counted all items. `pessimistic` says
    whether, among equal scores, the lower level comes first. In the flat arrays of `out`, the
    positives of query q are those from `out.starts[q]` to `out.ends[q]`.
    """
    for query in range(len(first_levels)):
        first = out.starts[query]
        end = out.ends[query]
        offset = lists.parts.offsets[query]
        ranks = out.ranks[first:end]
        levels = out.levels[first:end]
        # an assignment of slices takes seconds to compile; unsigned indices need no check for
        # negative ones
        for slot in range(np.uint64(len(levels))):
            levels[slot] = lists.levels[np.uint64(offset) + slot]
        # `above` has one place more than the list has positives: the distractors between each
        # positive and the one before, and last those behind all positives. `add_up` also counts the
        # positives of the list; 0: no other positives come before these.
        add_up(counts.above[offset : offset + len(ranks) + 1], 0, ranks)
        # `are_tied` reads only as many scores as there are levels, so the slice needs no end
        out.tied[query] = counts.tied[query] | are_tied(lists.ordered[offset:], levels)
        first_levels[query] = level_of_best(counts.best[query], pessimistic)
