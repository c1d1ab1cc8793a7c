"""Sums of a step over pairs of a positive and an item, for lists on any device and in any dtype.

The sum of a positive k is Σ_j table[level of k, level of j] · step(s_j − s_k). Pairs are processed
in tiles, once forward and once backward, so that memory holds only one tile of pairs. A tile has
some queries, their positives of one level, and the items that have a weight for these.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from hbench.losses.steps import Step

# pairs (k, j) in a tile: a few float32 temporaries of this size fit into a core's caches
CPU_TILE = 1 << 19
GPU_TILE = 1 << 24  # enough pairs to fill an accelerator, 64 MB per temporary


class Positives(NamedTuple):
    """The P items of positive relevance, sorted by query. `query`, `item`, `level` int64 (P,): the
    row, the column and the level of each; `relevance` float (P,).

    `table` float (Q, L+1): the relevance of each level in each list; that of distractors is 0.
    """

    query: Tensor
    item: Tensor
    level: Tensor
    relevance: Tensor
    table: Tensor


def with_outside(table: Tensor) -> Tensor:
    """Add a column of zeros to a table (Q, L+1, L+1) of weights, by level of k and of j, for items
    outside of the list, whose level is L+1: (Q, L+1, L+2)."""
    return torch.cat([table, torch.zeros_like(table[:, :, :1])], dim=2)


def sort_levels(levels: Tensor, depth: int) -> Tensor:
    """The columns of each list sorted by level, int64 (Q, N); equal levels are in order of column.
    Columns are counted, which is quicker than sorting for a few levels. `levels` (Q, N): 0 … L+1,
    where L+1 is outside of the query's list; `depth`: L."""
    # (Q, N): the new place of each column: the number of all columns of lower levels, and of the
    # columns of the same level before it
    place = torch.zeros_like(levels)
    before = torch.zeros_like(levels[:, :1])  # (Q, 1): the items of lower levels
    for level in range(depth + 2):
        at_level = levels == level
        place = torch.where(at_level, at_level.cumsum(1) - 1 + before, place)
        before = before + at_level.sum(1, keepdim=True)
    column = torch.arange(place.shape[1], device=place.device).expand_as(place)
    return torch.empty_like(place).scatter(1, place, column)  # the inverse of `place`


class StepPairs(NamedTuple):
    """The input of step sums. `levels` (Q, N): in the order of the columns. `by_level` (Q, N): the
    columns sorted by level. `table` (Q, L+1, L+2): the weights, by level of the positive and of the
    item.
    """

    levels: Tensor
    by_level: Tensor
    positives: Positives
    table: Tensor
    step: Step


class StepSums(torch.autograd.Function):
    """`Lists.step_sums` of all positives, tile by tile, since the differences of all pairs would
    not fit in memory. They are computed again for the gradient."""

    @staticmethod
    def forward(ctx: Any, scores: Tensor, pairs: StepPairs) -> Tensor:
        """The sums of weight · step(s_j − s_k) over all other items j of the list of each positive
        k, (P,). The tiles include the term of the positive itself, which is subtracted at the end.

        A tile has q queries, with k positives each (`own`: scores, `place`: numbers among all P)
        and n items each (`weight` (q, n): of `pairs.table`, by query and the levels of positive and
        item; the positives of a tile are of one level).
        """
        ctx.save_for_backward(scores)
        ctx.pairs, ctx.layout = pairs, _layout(pairs)
        positives = pairs.positives
        # the last place receives the sums of the padding
        sums = scores.new_zeros(len(positives.query) + 1)
        for tile in _tiles(scores, pairs, ctx.layout):
            value = pairs.step.value(tile.scores[:, None, :] - tile.own[:, :, None])  # (q, k, n)
            sums[tile.place] = torch.einsum("qkj,qj->qk", value, tile.weight)
        itself = pairs.table[positives.query, positives.level, positives.level]
        return sums[:-1] - itself * pairs.step.value(scores.new_zeros(1))

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        """The gradient of the scores (Q, N), from that of the sums, `grads[0]` (P,). A sum
        increases with the scores of the items with which its positive is compared, and decreases
        with the score of the positive itself."""
        (scores,) = ctx.saved_tensors
        # padding has the place behind the last positive, where the gradient is 0
        upstream = torch.cat([grads[0], grads[0].new_zeros(1)])
        result = torch.zeros_like(scores)
        for tile in _tiles(scores, ctx.pairs, ctx.layout):
            # (q, k, j), by query, positive (padded to k) and item. A tile's positives have one
            # level, so all have the same weights of items, `tile.weight` (q, j).
            slope = ctx.pairs.step.slope(tile.scores[:, None, :] - tile.own[:, :, None])
            of_tile = upstream[tile.place]
            to_items = torch.einsum("qkj,qk->qj", slope, of_tile) * tile.weight
            to_positives = torch.einsum("qkj,qj->qk", slope, tile.weight) * -of_tile
            # `tile.column` (q, j) has no item twice, so `scatter` need not add. A positive may be
            # among the items, and padding adds 0 to item 0, hence scatter_add for the positives.
            rows = scores.new_zeros(len(tile.query), scores.shape[1]).scatter(
                1, tile.column, to_items
            )
            result[tile.query] += rows.scatter_add(1, tile.item, to_positives)
        return result, None


class Tile(NamedTuple):
    """Some queries, their positives of one level, padded to equal numbers, and the items that have
    a weight for these positives.

    `query` (q,): the row of each query. Of its positives, (q, k) each: the column (`item`), the
    `place` among all positives, and the score (`own`). Of the n items, (q, n) each: `column`,
    `scores` and `weight`.
    """

    query: Tensor
    item: Tensor
    place: Tensor
    own: Tensor
    column: Tensor
    scores: Tensor
    weight: Tensor


class _Layout(NamedTuple):
    """The sizes of the tiles. `reach` (L,): how many items, sorted by level, have to be read for
    positives of each level 1 … L, up to the last item that has a weight. `sizes` (L, Q): how many
    positives of each level a query has, as numbers on the host; `number`: the same as a tensor.
    `places` (P,): the positives sorted by level."""

    reach: list[int]
    sizes: list[list[int]]
    number: Tensor
    places: Tensor


def _layout(pairs: StepPairs) -> _Layout:
    """Compute the sizes of all tiles, for forward and backward. A tile has some queries, their
    positives of one level, and the items with a weight for these. The host waits for a GPU once.

    `pairs.table` (Q, L + 1, L + 2): the weight of an item for a positive, by level of the positive
    and of the item; items of level L + 1 are outside of the list. `by_level` (Q, N): the columns
    sorted by level.
    """
    levels, by_level, positives, table, _ = pairs
    queries, items = levels.shape
    depth = table.shape[1] - 1
    # (L·Q,): how many positives each query has of each level from 1 on, level by level
    number = levels.new_zeros(depth * queries)
    number.index_add_(
        0, (positives.level - 1) * queries + positives.query, torch.ones_like(positives.level)
    )
    sorted_levels = levels.gather(1, by_level)
    column = torch.arange(1, items + 1, device=levels.device)
    # for positives of each level, which columns have a weight in any list; the reach of a level
    # ends behind the last such column
    weighs = [
        (table[:, level].gather(1, sorted_levels) != 0).any(dim=0) for level in range(1, depth + 1)
    ]
    reach = torch.stack([torch.where(has_weight, column, 0).amax() for has_weight in weighs])
    # L reaches, then Q numbers of each level; joined, so that the host waits only once
    known = torch.cat([reach, number]).tolist()
    sizes = [known[depth + level * queries :][:queries] for level in range(depth)]

    return _Layout(
        reach=known[:depth],
        sizes=sizes,
        number=number.view(depth, queries),
        places=positives.level.argsort(stable=True),
    )


def _tiles(scores: Tensor, pairs: StepPairs, layout: _Layout) -> Iterator[Tile]:
    """Yield tiles that together have all pairs of a positive and an item with a weight other than
    0. `scores` (Q, N): by column. In a tile, items are sorted by level, the lowest first.

    Of the layout, `reach` (L,) tells, for positives of each level, how many of the sorted items are
    read; `places` (P,) are the positives, sorted by level; `number` (L, Q) is how many positives of
    each level a query has, and `sizes` the same numbers on the host.
    """
    positives = pairs.positives
    sorted_levels = pairs.levels.gather(1, pairs.by_level)
    sorted_scores = scores.gather(1, pairs.by_level)
    most = CPU_TILE if scores.device.type == "cpu" else GPU_TILE

    first = 0  # where the places of this level's positives begin
    for level, (reach, sizes) in enumerate(zip(layout.reach, layout.sizes, strict=True), start=1):
        places = layout.places[first : first + sum(sizes)]
        first += len(places)
        if reach == 0:  # no item has a weight for these positives: their sums stay 0
            continue
        # (Q, N): the weight of each item for positives of this level
        weight = pairs.table[:, level].gather(1, sorted_levels)
        # (q,) queries, and the places (q, k) of their positives of this level, padded to k
        for query, place in _padded(
            places, layout.number[level - 1], sizes, len(positives.query), max(1, most // reach)
        ):
            # the place behind the last positive is padding, for which item 0 is used; its sums are
            # discarded
            item = torch.cat([positives.item, positives.item.new_zeros(1)])[place]
            own = scores[query].gather(1, item)
            yield Tile(
                query,
                item,
                place,
                own,
                column=pairs.by_level[query, :reach],
                scores=sorted_scores[query, :reach],
                weight=weight[query, :reach],
            )


def _padded(
    places: Tensor, number: Tensor, sizes: list[int], absent: int, most: int
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield tiles: some queries (q,), with the places of their positives (q, k), filled up with
    `absent`; q·k is at most `most`.

    Queries with similar numbers of positives share a tile, so that there is little padding.
    `places` (P',): of the positives of one level, sorted by query. `number` (Q,): how many each
    query has; `sizes`: the same numbers on the host.
    """
    # (Q,) each: where the places of each query begin; the queries sorted by number of positives
    first = number.cumsum(0) - number
    larger = number.argsort(descending=True, stable=True)
    padded = torch.nn.functional.pad(places, (0, 1), value=absent)
    # the numbers of positives, without zeros, in the order of `larger`
    wide = sorted((size for size in sizes if size), reverse=True)

    start = 0
    while start < len(wide):
        # the first query has the most positives, so as many queries fit as if all had this number
        end = start + max(1, most // wide[start])
        query = larger[start : min(end, len(wide))]
        # more than one round only for a single query with more positives than a tile holds
        for begin in range(0, wide[start], most):
            # (k,): numbers of positives within a query; `absent` stands at len(places) in `padded`
            k = torch.arange(begin, min(begin + most, wide[start]), device=places.device)
            yield (
                query,
                padded[torch.where(k < number[query, None], first[query, None] + k, len(places))],
            )
        start = end
