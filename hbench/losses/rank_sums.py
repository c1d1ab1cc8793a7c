"""Computes the ranks of the positives of a block of lists, with the exact step or a surrogate in
each of their parts.

    rank(k)   = 1 + Σ_{j less relevant} step_less(s_j − s_k) + Σ_{other j} step_others(s_j − s_k)
    H-rank(k) = rel(k) + Σ_{j more relevant} min(rel(k), rel(j)) step_above(…)
                       + Σ_{other j} min(rel(k), rel(j)) step_within(…)

(rank losses, Eq. 5; HAPPIER, Eq. 2 and 5.) Both are sums of table[level of k, level of j] ·
step(s_j − s_k). Tables with the same step are added, so that each step needs one such sum:
Lists.exact_sums or step_sums. This module computes them on every device and in every dtype. It goes
through tiles of pairs, once forward and once backward, so that memory holds a tile instead of all
pairs × items. cpu_lists.py is its faster counterpart for float32 on a CPU.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from hbench.losses.steps import Step
from hbench.metrics.relevance import Relevance


class Positives(NamedTuple):
    """The items of positive relevance, query by query: query, item, level int64 (P,); relevance
    float (P,).

    `table` float (Q, L+1) holds the relevance of every level in every list; that of the distractors
    is 0.
    """

    query: Tensor
    item: Tensor
    level: Tensor
    relevance: Tensor
    table: Tensor


class Lists:
    """The ranked lists of Q queries: `scores` float (Q, N); `levels` int64 (Q, N), 0 … L, or L+1
    outside of the list, such as the query itself; `depth`: L.

    `counts` float (Q, L+1) are the items of each level. `by_rank` int64 (Q, N) are the columns of
    every list by score down, level up, column up, which is pessimistic at ties.
    """

    def __init__(self, scores: Tensor, levels: Tensor, depth: int) -> None:
        """Sorts the lists at once, into `counts` and `by_rank`, by which ranks are computed."""
        self.scores = scores
        self.levels = levels.long()
        self.depth = depth
        self.counts, self.by_rank = self.arrange()

    def arrange(self) -> tuple[Tensor, Tensor]:
        """Compute `counts` (Q, L+1) and `by_rank` (Q, N).

        Columns are put in order of level first, and then sorted by score stably: so of equal scores
        the lower level comes first, which is pessimistic, as the metrics are.
        """
        # level by level, since bincount would make the host wait for a GPU; items of level L + 1,
        # which are outside of the list, are not counted
        counts = torch.stack(
            [(self.levels == level).sum(1) for level in range(self.depth + 1)], dim=1
        ).to(self.scores)
        by_level = sort_levels(self.levels, self.depth)
        by_score = (
            self.scores.detach().gather(1, by_level).argsort(dim=1, descending=True, stable=True)
        )
        return counts, by_level.gather(1, by_score)

    def find_positives(self, table: Tensor) -> Positives:
        """Find the items of positive relevance, list by list; table (Q, L+1): the relevance of
        every level in every list, 0 of the distractors."""
        # items outside of a list have level L+1, which is no positive
        is_positive = torch.cat(
            [table > 0, torch.zeros_like(table[:, :1], dtype=torch.bool)], dim=1
        )
        query, item = is_positive.gather(1, self.levels).nonzero(as_tuple=True)
        level = self.levels[query, item]
        return Positives(query, item, level, table[query, level], table)

    def exact_sums(self, positives: Positives, table: Tensor) -> Tensor:
        """Compute Σ_{j before k} table[q, level of k, level of j] for every positive k of query q:
        (P,), without a gradient. `table` (Q, L+1, L+1): what an item j weighs for a positive k.
        """
        column = torch.arange(self.by_rank.shape[1], device=table.device).expand_as(self.by_rank)
        # (P,): the place of every positive in its list, from 0
        place = torch.empty_like(column).scatter(1, self.by_rank, column)[
            positives.query, positives.item
        ]
        sorted_levels = self.levels.gather(1, self.by_rank)  # (Q, N), by rank
        weights = with_outside(table)  # (Q, L+1, L+2): 0 for what is outside of a list
        # Apple's GPUs lack float64
        exact = torch.float32 if table.device.type == "mps" else torch.float64
        result = torch.zeros_like(positives.relevance)

        for level in range(1, table.shape[1]):  # of the positives; level 0 has none
            # (Q, N): the sum of what all items up to each place weigh for a positive of this level
            so_far = weights[:, level].gather(1, sorted_levels).cumsum(1, dtype=exact)
            # (P,): a positive's own weight, which is in the running sum at its place
            itself = table[positives.query, level, level]
            result = torch.where(
                positives.level == level, so_far[positives.query, place].to(itself) - itself, result
            )

        return result

    def step_sums(self, positives: Positives, table: Tensor, step: Step) -> Tensor:
        """Compute Σ_{j ≠ k} table[q, level of k, level of j] · step(s_j − s_k) of every positive k,
        float (P,).

        table (Q, L+1, L+1). The sums are differentiable in the scores, by the slope of the step.
        """
        # columns by level, so that the items that weigh something for a positive lie side by side
        by_level = sort_levels(self.levels, self.depth)
        pairs = _Pairs(self.levels, by_level, positives, with_outside(table), step)
        result: Tensor = _StepSums.apply(self.scores, pairs)
        return result


def shared_levels(labels: Tensor, ref_labels: Tensor) -> Tensor:
    """Count the leading columns that labels (Q, L) and ref_labels (N, L), coarse to fine, share:
    uint8 (Q, N).
    """
    level = torch.zeros(
        labels.shape[0], ref_labels.shape[0], dtype=torch.uint8, device=labels.device
    )
    shared = torch.ones_like(level, dtype=torch.bool)
    for column in range(labels.shape[1]):
        shared = shared & (labels[:, column, None] == ref_labels[None, :, column])
        level += shared
    return level


def relevance_table(counts: Tensor, relevance: Relevance) -> Tensor:
    """Compute the relevance of every level in every list from its level counts, 0 for the
    distractors: float (Q, L+1).
    """
    table: Tensor = relevance(counts).to(counts)
    return torch.cat([torch.zeros_like(table[:, :1]), table[:, 1:]], dim=1)


def sum_by_query(values: Tensor, positives: Positives, lists: Lists) -> Tensor:
    """Sum values (P,) over each query's positives, (Q,), in the order of items, so that all runs
    give the same bits.
    """
    spread = values.new_zeros(lists.scores.shape).index_put(
        (positives.query, positives.item), values
    )
    return spread.sum(1)


class RelevanceSplit(NamedTuple):
    """Whether j is less, and whether it is more relevant than k: bool (Q, L+1, L+1), [query, level
    of k, level of j].
    """

    less: Tensor
    above: Tensor


def split_by_relevance(table: Tensor) -> RelevanceSplit:
    """Compare items by relevance (HAPPIER, Eq. 5), the same as by level if relevance increases with
    the level. `table` (Q, L+1): the relevance of every level in every list.
    """
    of_k = table[:, :, None]
    of_j = table[:, None, :]
    return RelevanceSplit(of_j < of_k, of_j > of_k)


def split_by_level(table: Tensor) -> RelevanceSplit:
    """Compare items by level, like the released code, even where a finer level has the smaller
    relevance. `table` (Q, L+1): relevances, of which only the shape is used."""
    level = torch.arange(table.shape[1], device=table.device)
    shape = (table.shape[0], -1, -1)
    return RelevanceSplit(
        (level[None, :] < level[:, None]).expand(shape),
        (level[None, :] > level[:, None]).expand(shape),
    )


# pairs (k, j) in a tile: a few float32 temporaries of them fit into a core's caches
CPU_TILE = 1 << 19
GPU_TILE = 1 << 24  # enough pairs to fill an accelerator, 64 MB per temporary


class RankSteps(NamedTuple):
    """The steps of rank (less relevant items, others) and of H-rank (more relevant items, others);
    None is exact.
    """

    less: Step | None
    others: Step | None
    above: Step | None
    within: Step | None


def ranks(lists: Lists, positives: Positives, split: RelevanceSplit, steps: RankSteps) -> Tensor:
    """Compute rank(k) of every positive: float (P,), differentiable in the scores."""
    less = split.less.to(positives.table)
    one = torch.ones_like(positives.relevance)
    return _sum_terms(one, lists, positives, [(steps.less, less), (steps.others, 1 - less)])


def h_ranks(lists: Lists, positives: Positives, split: RelevanceSplit, steps: RankSteps) -> Tensor:
    """Compute H-rank(k) of every positive: float (P,), differentiable in the scores. It is the
    relevance of k itself and sums over the items more relevant than k, and over the others."""
    # (Q, L+1, L+1): min(rel(k), rel(j)) by level of k and of j
    shared = torch.minimum(positives.table[:, :, None], positives.table[:, None, :])
    above = shared * split.above
    return _sum_terms(
        positives.relevance,
        lists,
        positives,
        [(steps.above, above), (steps.within, shared - above)],
    )


def _sum_terms(
    start: Tensor, lists: Lists, positives: Positives, terms: list[tuple[Step | None, Tensor]]
) -> Tensor:
    """Add to `start` (P,), for each term, the sum of its step over items, weighted by its table.

    Tables of the same step are added first, so that the sum, which takes the time, is made once.
    `terms`: (step, table) of each; None is the exact step; a table is (Q, L+1, L+1).
    """
    by_step: dict[Step | None, Tensor] = {}
    for step, table in terms:
        by_step[step] = by_step[step] + table if step in by_step else table
    total = start
    for step, table in by_step.items():
        sums = (
            lists.exact_sums(positives, table)
            if step is None
            else lists.step_sums(positives, table, step)
        )
        total = total + sums
    return total


def with_outside(table: Tensor) -> Tensor:
    """Add a column of 0 to a table (Q, L+1, L+1) of weights, by level of k and of j, for the items
    outside of the list, whose level is L + 1: (Q, L+1, L+2)."""
    return torch.cat([table, torch.zeros_like(table[:, :, :1])], dim=2)


def sort_levels(levels: Tensor, depth: int) -> Tensor:
    """The columns of every list in order of level, int64 (Q, N), equal levels in order of column.
    They are counted, which for a few levels is quicker than sorting. `levels` (Q, N): of the items,
    0 … L + 1, where L + 1 is of what is not in the query's list; `depth`: L."""
    # (Q, N): the place of each column: behind all columns of lower levels, and behind the columns
    # of its own level that are before it
    place = torch.zeros_like(levels)
    before = torch.zeros_like(levels[:, :1])  # (Q, 1): the items of lower levels
    for level in range(depth + 2):
        at_level = levels == level
        place = torch.where(at_level, at_level.cumsum(1) - 1 + before, place)
        before = before + at_level.sum(1, keepdim=True)
    column = torch.arange(place.shape[1], device=place.device).expand_as(place)
    return torch.empty_like(place).scatter(1, place, column)


class _Pairs(NamedTuple):
    """The input of step sums: `levels` (Q, N), in the order of the columns; `by_level` (Q, N), the
    columns by level; the `positives`; the `table` (Q, L+1, L+2) of weights, by level of the
    positive and of the item; the `step`.
    """

    levels: Tensor
    by_level: Tensor
    positives: Positives
    table: Tensor
    step: Step


class _StepSums(torch.autograd.Function):
    """`Lists.step_sums` of all positives, tile by tile: the differences of all pairs (Q, P, N)
    would not fit in memory, and are computed anew for the gradient."""

    @staticmethod
    def forward(ctx: Any, scores: Tensor, pairs: _Pairs) -> Tensor:
        """The sums (P,), one for each positive k, over all items of its list; the term of k itself,
        which the tiles hold, is taken off again."""
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
        """The gradient to the scores (Q, N), from that of the sums, `grads[0]` (P,): a sum rises
        with the scores of the items that its positive is compared with, and falls as the score of
        the positive itself rises."""
        (scores,) = ctx.saved_tensors
        # padding points behind the last positive, where the gradient is 0
        upstream = torch.cat([grads[0], grads[0].new_zeros(1)])
        result = torch.zeros_like(scores)
        for tile in _tiles(scores, ctx.pairs, ctx.layout):
            # (q, k, n), by query, positive and item
            slope = ctx.pairs.step.slope(tile.scores[:, None, :] - tile.own[:, :, None])
            of_tile = upstream[tile.place]
            to_items = torch.einsum("qkj,qk->qj", slope, of_tile) * tile.weight
            to_positives = torch.einsum("qkj,qj->qk", slope, tile.weight) * -of_tile
            rows = scores.new_zeros(len(tile.query), scores.shape[1]).scatter(
                1, tile.column, to_items
            )
            result[tile.query] += rows.scatter_add(1, tile.item, to_positives)
        return result, None


class Tile(NamedTuple):
    """Some queries, their positives of one level, padded to equal numbers, and the items that weigh
    something for these positives.

    `query` (q,): row of each query; of its positives (q, k): column `item`, `place` among all
    positives, and `own` score; of the n items (q, n): `column`, `scores` and `weight`.
    """

    query: Tensor
    item: Tensor
    place: Tensor
    own: Tensor
    column: Tensor
    scores: Tensor
    weight: Tensor


class _Layout(NamedTuple):
    """The sizes of the tiles. `reach` (L,): how many items, in order of level, end with the last
    one that weighs something for positives of each level 1 … L; `sizes` (L, Q): how many positives
    of each level every query has, as numbers on the host, and as the tensor `number` on the device;
    `places` (P,): the positives in order of level."""

    reach: list[int]
    sizes: list[list[int]]
    number: Tensor
    places: Tensor


def _layout(pairs: _Pairs) -> _Layout:
    """Compute the sizes of all tiles, for forward and backward, with one wait for the GPU."""
    # levels (Q, N), by column; by_level (Q, N): the columns in order of level; table (Q, L+1, L+2):
    # what an item weighs for a positive, by level of the positive and of the item
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
    # For positives of a level, how many columns, in order of level, have to be read: up to the
    # last one that weighs something in any list
    weighs = [
        (table[:, level].gather(1, sorted_levels) != 0).any(dim=0) for level in range(1, depth + 1)
    ]
    reach = torch.stack([torch.where(has_weight, column, 0).amax() for has_weight in weighs])
    known = torch.cat([reach, number]).tolist()  # in one list: here the host waits
    sizes = [known[depth + level * queries :][:queries] for level in range(depth)]

    return _Layout(
        reach=known[:depth],
        sizes=sizes,
        number=number.view(depth, queries),
        places=positives.level.argsort(stable=True),
    )


def _tiles(scores: Tensor, pairs: _Pairs, layout: _Layout) -> Iterator[Tile]:
    """Yield tiles that together hold every pair of a positive and an item with a weight other than
    0. `scores` (Q, N), by column; items are in order of level, the least relevant first.
    """
    positives = pairs.positives
    sorted_levels = pairs.levels.gather(1, pairs.by_level)
    sorted_scores = scores.gather(1, pairs.by_level)
    most = CPU_TILE if scores.device.type == "cpu" else GPU_TILE

    first = 0  # of the places of this level's positives
    for level, (reach, sizes) in enumerate(zip(layout.reach, layout.sizes, strict=True), start=1):
        places = layout.places[first : first + sum(sizes)]
        first += len(places)
        if reach == 0:  # no item weighs anything for them: their sums stay 0
            continue
        # (Q, N): what each item weighs for positives of this level
        weight = pairs.table[:, level].gather(1, sorted_levels)
        for query, place in _padded(
            places, layout.number[level - 1], sizes, len(positives.query), max(1, most // reach)
        ):
            # a place behind the last positive is padding: it stands for item 0 here, and what is
            # summed for it is thrown away
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
    """Yield queries (q,) with the places of their positives (q, k), filled up with `absent`; q·k is
    at most `most`.

    Queries with similar numbers of positives share a tile, so that there is little padding.
    `places` (P',): of the positives of one level, query by query; `number` (Q,): how many each
    query has; `sizes`: the same numbers on the host.
    """
    # (Q,) each: where the places of each query begin; the queries, most positives first
    first = number.cumsum(0) - number
    larger = number.argsort(descending=True, stable=True)
    padded = torch.nn.functional.pad(places, (0, 1), value=absent)
    # how many positives each query has that has any, in the order of `larger`
    wide = sorted((size for size in sizes if size), reverse=True)

    start = 0
    while start < len(wide):
        # the first query of a tile has most positives: the tile takes as many queries as would fit
        # if all had so many
        end = start + max(1, most // wide[start])
        query = larger[start : min(end, len(wide))]
        # more than one round only for a single query with more positives than a tile holds
        for begin in range(0, wide[start], most):
            # (k,): which of its positives are taken from each query
            k = torch.arange(begin, min(begin + most, wide[start]), device=places.device)
            yield (
                query,
                padded[torch.where(k < number[query, None], first[query, None] + k, len(places))],
            )
        start = end
