"""Ranks of the positives of a block of lists, with the exact step or a surrogate in each of their parts.

    rank(k)   = 1      + Σ_{j less relevant} step_less(s_j − s_k)             + Σ_{other j} step_others(s_j − s_k)
    H-rank(k) = rel(k) + Σ_{j more relevant} min(rel(k), rel(j)) step_above(…) + Σ_{other j} min(rel(k), rel(j)) step_within(…)

([T] Eq. 5, [E] Eq. 2 and 5.) Both are sums of `table[level of k, level of j] · step(s_j − s_k)`: tables with the same step are
added, the exact step is counted from the sorted list, a surrogate is summed over chunks of pairs, forward and again backward,
so that memory is a chunk, never pairs × items. This is the path of every device and dtype; kernel.py computes the same on a CPU.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from hbench.losses.lists import Lists, Positives
from hbench.losses.surrogates import Step

CPU_CHUNK = 1 << 17  # pairs (k, j) at a time: a handful of float32 temporaries stay in a core's second-level cache
GPU_CHUNK = 1 << 24  # enough pairs to fill an accelerator, 64 MB a temporary


class Steps(NamedTuple):
    """The steps of rank (less relevant items, others) and of H-rank (more relevant items, others); None is exact."""

    less: Step | None
    others: Step | None
    above: Step | None
    within: Step | None


class Split(NamedTuple):
    """Which items are less and which more relevant than k: bool (Q, L+1, L+1), [query, level of k, level of j]."""

    less: Tensor
    above: Tensor


class Primitives(NamedTuple):
    """The two heavy sums: how many items of each level come before each positive, and Σ_j table · step(s_j − s_k)."""

    before: Callable[[Lists, Positives], Tensor]
    step_sums: Callable[[Lists, Positives, Tensor, Step], Tensor]


def split_by_relevance(positives: Positives) -> Split:
    """Items compared by relevance, as [E] Eq. 5 has it; the same as by level wherever relevance rises with the level."""
    of_k, of_j = positives.table[:, :, None], positives.table[:, None, :]
    return Split(of_j < of_k, of_j > of_k)


def split_by_level(positives: Positives) -> Split:
    """Items compared by level, as the released code does even where relevances are inverted."""
    level = torch.arange(positives.table.shape[1], device=positives.table.device)
    shape = (positives.table.shape[0], -1, -1)
    return Split((level[None, :] < level[:, None]).expand(shape), (level[None, :] > level[:, None]).expand(shape))


def ranks(lists: Lists, positives: Positives, steps: Steps, split: Split, heavy: Primitives) -> Tensor:
    """rank(k) of every positive: float (P,), differentiable in the scores."""
    one = torch.ones_like(positives.relevance)
    less = split.less.to(one)
    return _sum_terms(one, lists, positives, [(steps.less, less), (steps.others, 1 - less)], heavy)


def h_ranks(lists: Lists, positives: Positives, steps: Steps, split: Split, heavy: Primitives) -> Tensor:
    """H-rank(k) of every positive: float (P,), differentiable in the scores."""
    shared = torch.minimum(positives.table[:, :, None], positives.table[:, None, :])
    above = shared * split.above
    return _sum_terms(
        positives.relevance, lists, positives, [(steps.above, above), (steps.within, shared - above)], heavy
    )


def _sum_terms(
    start: Tensor, lists: Lists, positives: Positives, terms: list[tuple[Step | None, Tensor]], heavy: Primitives
) -> Tensor:
    by_step: dict[Step | None, Tensor] = {}
    for step, table in terms:
        by_step[step] = by_step[step] + table if step in by_step else table
    for step, table in by_step.items():
        if step is None:
            weights = table[positives.query, positives.level]
            start = start + (heavy.before(lists, positives) * weights).sum(1)
        else:
            start = start + heavy.step_sums(lists, positives, table, step)
    return start


def before(lists: Lists, positives: Positives) -> Tensor:
    """How many items of each level come before each positive: float (P, L+1).

    Among equal scores the lower level comes first (the pessimistic rule of the metrics), then the lower column.
    """
    by_level = lists.levels.argsort(dim=1, stable=True)
    by_score = lists.scores.detach().gather(1, by_level).argsort(dim=1, descending=True, stable=True)
    order = by_level.gather(1, by_score)
    position = torch.empty_like(order).scatter(1, order, torch.arange(order.shape[1], device=order.device).expand_as(order))
    place = position[positives.query, positives.item]
    sorted_levels = lists.levels.gather(1, order)
    counts = []
    for level in range(lists.depth + 1):
        so_far = (sorted_levels == level).cumsum(1, dtype=torch.int32)
        counts.append(so_far[positives.query, place] - (positives.level == level).int())
    return torch.stack(counts, dim=1).to(lists.scores)


def step_sums(lists: Lists, positives: Positives, table: Tensor, step: Step) -> Tensor:
    """Σ_{j ≠ k} table[q, level of k, level of j] · step(s_j − s_k) of every positive k of query q: float (P,).

    `table` (Q, L+1, L+1). Differentiable in lists.scores, with the step's own slope.
    """
    padded = torch.cat([table, torch.zeros_like(table[:, :, :1])], dim=2)
    result: Tensor = _StepSums.apply(lists.scores, lists.levels, positives, padded, step)
    return result


class _StepSums(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, scores: Tensor, levels: Tensor, positives: Positives, table: Tensor, step: Step) -> Tensor:
        ctx.save_for_backward(scores, levels)
        ctx.positives, ctx.table, ctx.step = positives, table, step
        sums = scores.new_zeros(positives.query.shape)
        for chosen, weight in _chunks(levels, positives, table):
            query, item = positives.query[chosen], positives.item[chosen]
            value, _ = step(scores[query] - scores[query, item][:, None])
            sums[chosen] = torch.linalg.vecdot(value, weight[query])
        own = table[positives.query, positives.level, positives.level]
        return sums - own * step(scores.new_zeros(()))[0]

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        scores, levels = ctx.saved_tensors
        positives, upstream = ctx.positives, grads[0]
        result = torch.zeros_like(scores)
        for chosen, weight in _chunks(levels, positives, ctx.table):
            query, item = positives.query[chosen], positives.item[chosen]
            _, slope = ctx.step(scores[query] - scores[query, item][:, None])
            rows = slope * weight[query] * upstream[chosen, None]
            first, last = int(query[0]), int(query[-1]) + 1
            own = torch.arange(first, last, device=query.device)[:, None] == query
            result[first:last] += own.to(rows) @ rows
            result[query, item] -= rows.sum(1)
        return result, None, None, None, None


def _chunks(levels: Tensor, positives: Positives, table: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """Positives of one level, a chunk of pairs at a time, with weight[q, j] = table[q, that level, level of j]."""
    size = max(1, (CPU_CHUNK if levels.device.type == "cpu" else GPU_CHUNK) // levels.shape[1])
    for level in range(1, table.shape[1]):
        at_level = (positives.level == level).nonzero().squeeze(1)
        if len(at_level):
            weight = table[:, level].gather(1, levels)
            for chosen in at_level.split(size):
                yield chosen, weight
