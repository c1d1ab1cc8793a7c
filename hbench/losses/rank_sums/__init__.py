"""Computes the ranks of the positives of a block of lists. Each sum in a rank uses the exact step
or a surrogate.

    rank(k)   = 1 + Σ_{j less relevant} step_less(s_j − s_k) + Σ_{other j} step_others(s_j − s_k)
    H-rank(k) = rel(k) + Σ_{j more relevant} min(rel(k), rel(j)) step_above(…)
                       + Σ_{other j} min(rel(k), rel(j)) step_within(…)

(rank losses, Eq. 5; HAPPIER, Eq. 2 and 5.) Both are sums of table[level of k, level of j] ·
step(s_j − s_k). Tables with the same step are added, so that each step needs only one such sum:
Lists.exact_sums or step_sums. These work on every device and in every dtype; cpu_lists.py is a
faster counterpart for float32 on a CPU.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from hbench.losses.rank_sums.step_sums import (
    Positives,
    StepPairs,
    StepSums,
    sort_levels,
    with_outside,
)
from hbench.losses.steps import Step
from hbench.metrics.relevance import Relevance


class Lists:
    """The ranked lists of Q queries. `scores` float (Q, N); `levels` int64 (Q, N), 0 … L, or L+1
    for items outside of the list, such as the query itself; `depth`: L.

    `counts` float (Q, L+1): how many items of each level a list has. `by_rank` int64 (Q, N): the
    columns of each list by descending score, then ascending level (pessimistic), then column.
    """

    def __init__(self, scores: Tensor, levels: Tensor, depth: int) -> None:
        """Sort the lists, which sets `counts` and `by_rank`."""
        self.scores = scores
        self.levels = levels.long()
        self.depth = depth
        self.counts, self.by_rank = self.arrange()

    def arrange(self) -> tuple[Tensor, Tensor]:
        """Compute `counts` (Q, L+1), the items of each level, and `by_rank` (Q, N), the columns by
        descending score. Items outside of the list, of level L + 1, have their ranks among the
        others; whoever reads `by_rank` skips them by their level.

        Columns are sorted by level, and then by score with a stable sort. So among equal scores the
        lower level comes first, which is pessimistic, as in the metrics.
        """
        # level by level, since bincount would make the host wait for a GPU; items of level L + 1,
        # outside of the list, are not counted
        counts = torch.stack(
            [(self.levels == level).sum(1) for level in range(self.depth + 1)], dim=1
        ).to(self.scores)
        by_level = sort_levels(self.levels, self.depth)  # (Q, N): columns, lowest level first
        by_score = (
            self.scores.detach().gather(1, by_level).argsort(dim=1, descending=True, stable=True)
        )
        return counts, by_level.gather(1, by_score)

    def find_positives(self, table: Tensor) -> Positives:
        """Find the items of positive relevance, list by list. `table` (Q, L+1): the relevance of
        each level in each list, 0 for distractors."""
        # items outside of a list have level L+1, which is no positive
        is_positive = torch.cat(
            [table > 0, torch.zeros_like(table[:, :1], dtype=torch.bool)], dim=1
        )
        query, item = is_positive.gather(1, self.levels).nonzero(as_tuple=True)
        level = self.levels[query, item]
        return Positives(query, item, level, table[query, level], table)

    def exact_sums(self, positives: Positives, table: Tensor) -> Tensor:
        """Compute Σ_{j before k} table[q, level of k, level of j] for each positive k of query q:
        (P,), without a gradient. `table` (Q, L+1, L+1): the weight of an item j for a positive k.
        """
        column = torch.arange(self.by_rank.shape[1], device=table.device).expand_as(self.by_rank)
        # (P,): the place of each positive in its list, from 0; scatter inverts `by_rank`
        place = torch.empty_like(column).scatter(1, self.by_rank, column)[
            positives.query, positives.item
        ]
        sorted_levels = self.levels.gather(1, self.by_rank)  # (Q, N), by rank
        weights = with_outside(table)  # (Q, L+1, L+2): 0 for items outside of a list
        # Apple's GPUs lack float64
        exact = torch.float32 if table.device.type == "mps" else torch.float64
        result = torch.zeros_like(positives.relevance)

        for level in range(1, table.shape[1]):  # of the positives; level 0 has none
            # (Q, N): the weights of all items up to each place, for a positive of this level
            so_far = weights[:, level].gather(1, sorted_levels).cumsum(1, dtype=exact)
            # (P,): a positive's own weight, which the running sum at its place includes
            itself = table[positives.query, level, level]
            result = torch.where(
                positives.level == level, so_far[positives.query, place].to(itself) - itself, result
            )

        return result

    def step_sums(self, positives: Positives, table: Tensor, step: Step) -> Tensor:
        """Compute Σ_{j ≠ k} table[q, level of k, level of j] · step(s_j − s_k) for each positive k
        of query q: float (P,), differentiable in the scores by the slope of the step.

        `table` (Q, L+1, L+1): the weight of an item j for a positive k.
        """
        # columns by level, so that the items with a weight for a positive are neighbours
        by_level = sort_levels(self.levels, self.depth)
        pairs = StepPairs(self.levels, by_level, positives, with_outside(table), step)
        result: Tensor = StepSums.apply(self.scores, pairs)
        return result


def shared_levels(labels: Tensor, ref_labels: Tensor) -> Tensor:
    """The level of each pair of `labels` (Q, L) and `ref_labels` (N, L), coarse to fine: uint8
    (Q, N). The level is the number of leading columns that are equal.
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
    """The relevance of each level in each list, from its level counts (Q, L+1), and 0 for
    distractors: float (Q, L+1).
    """
    table: Tensor = relevance(counts).to(counts)
    return torch.cat([torch.zeros_like(table[:, :1]), table[:, 1:]], dim=1)


def sum_by_query(values: Tensor, positives: Positives, lists: Lists) -> Tensor:
    """Sum values (P,) over each query's positives: (Q,). They are summed in the order of columns,
    so that all runs give the same bits.
    """
    spread = values.new_zeros(lists.scores.shape).index_put(
        (positives.query, positives.item), values
    )
    return spread.sum(1)


class RelevanceSplit(NamedTuple):
    """Whether an item j is less relevant than k, and whether it is more relevant (`above`): bool
    (Q, L+1, L+1) each, by query, level of k and level of j.
    """

    less: Tensor
    above: Tensor


def split_by_relevance(table: Tensor) -> RelevanceSplit:
    """Compare items by relevance (HAPPIER, Eq. 5), which is the same as by level if relevance
    increases with the level. `table` (Q, L+1): the relevance of each level in each list.
    """
    of_k = table[:, :, None]
    of_j = table[:, None, :]
    return RelevanceSplit(of_j < of_k, of_j > of_k)


def split_by_level(table: Tensor) -> RelevanceSplit:
    """Compare items j with positives k by level, as the papers' code does, even if a finer level
    has a smaller relevance. Returns whether j has a lower level than k, and whether a higher one:
    bool (Q, L+1, L+1) each, by query, level of k and of j. `table`: for its shape and device."""
    level = torch.arange(table.shape[1], device=table.device)
    shape = (table.shape[0], -1, -1)
    return RelevanceSplit(
        (level[None, :] < level[:, None]).expand(shape),
        (level[None, :] > level[:, None]).expand(shape),
    )


class RankSteps(NamedTuple):
    """The steps in the sums of rank (for `less` relevant items, and `others`) and of H-rank (for
    more relevant items, `above`, and the others, `within`). None is the exact step.
    """

    less: Step | None
    others: Step | None
    above: Step | None
    within: Step | None


def ranks(lists: Lists, positives: Positives, split: RelevanceSplit, steps: RankSteps) -> Tensor:
    """Compute rank(k) of each positive: float (P,), differentiable in the scores."""
    less = split.less.to(positives.table)
    one = torch.ones_like(positives.relevance)
    return _sum_terms(one, lists, positives, [(steps.less, less), (steps.others, 1 - less)])


def h_ranks(lists: Lists, positives: Positives, split: RelevanceSplit, steps: RankSteps) -> Tensor:
    """Compute H-rank(k) of each positive: float (P,), differentiable in the scores. It is the
    relevance of k, plus Σ_j min(rel(k), rel(j))·step(s_j − s_k) over the other items j, with the
    step `steps.above` for items more relevant than k and `steps.within` for the rest.
    `split.above`, bool (Q, L+1, L+1): whether the level of j is more relevant than that of k."""
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

    `terms`: pairs of a step, None for the exact one, and a table (query, positive's level, item's
    level). Tables of equal steps are added first, so that the slow sum over items is computed once.
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
