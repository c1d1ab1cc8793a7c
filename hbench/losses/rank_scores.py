"""Computes the scores of queries from the ranks of their positives: H-AP (and AP), NDCG, and recall
at k. The best score is 1.

A score is a function RankEstimates -> (Q,). It is a sum over positives, so a query without
positives has the score 0; the caller leaves such queries out.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from hbench.core.errors import ConfigError
from hbench.losses.rank_sums import Lists, sum_by_query
from hbench.losses.rank_sums.step_sums import Positives


class RankEstimates(NamedTuple):
    """Q lists, their P positives, and the positives' ranks and H-ranks.

    `rank`, `h_rank` float (P,): estimated with steps, differentiable; ranks count from 1. `h_rank`
    is None for scores that do not need it.
    """

    lists: Lists
    positives: Positives
    rank: Tensor
    h_rank: Tensor | None


Score = Callable[[RankEstimates], Tensor]


def h_ap(ranked: RankEstimates) -> Tensor:
    """H-AP = Σ_k H-rank(k)/rank(k) / Σ_k rel(k) of each list, (Q,) (HAPPIER, Eq. 3); 0 without
    positives. If all relevances are 0 or 1, this is AP (Eq. 1)."""
    assert ranked.h_rank is not None
    sums = sum_by_query(ranked.h_rank / ranked.rank, ranked.positives, ranked.lists)
    total = (ranked.lists.counts * ranked.positives.table).sum(1)
    return sums / torch.where(total > 0, total, 1)  # 0/1 without positives


def ideal_gain(lists: Lists, table: Tensor) -> Tensor:
    """Σ_r rel/log2(1 + r) of each list, if it were sorted by relevance, best first: (Q,). Computed
    from the level counts. `table` (Q, L+1): the relevance of each level."""
    place = torch.arange(1, lists.scores.shape[1] + 1, device=table.device)
    # discount[n]: the sum of the discounts of the first n places, for n = 0 … N
    discount = torch.cat(
        [table.new_zeros(1), torch.log2(1 + place.to(table)).reciprocal().cumsum(0)]
    )
    gains, best_first = table.sort(dim=1, descending=True)  # (Q, L+1): relevances, and their levels
    # in the ideal list, the items of each level take neighbouring places
    until = lists.counts.gather(1, best_first).cumsum(1).long()  # (Q, L+1): where each level ends
    reached = discount[until]  # the discounts of all places up to the end of each level
    before = torch.cat([torch.zeros_like(reached[:, :1]), reached[:, :-1]], dim=1)
    return (gains * (reached - before)).sum(1)


def ndcg(ideal: Callable[[Lists, Tensor], Tensor] = ideal_gain) -> Score:
    """Make the score NDCG: Σ_k rel(k)/log2(1 + rank(k)), divided by its `ideal` value, that of the
    list sorted by relevance (rank losses, Eq. 23).

    `ideal(lists, table)` returns the ideal value of each list, (Q,); `table` (Q, L + 1) is the
    relevance of each level.
    """

    def score(ranked: RankEstimates) -> Tensor:
        """The score (Q,) of each query, from the estimated ranks of its positives."""
        gains = ranked.positives.relevance / torch.log2(1 + ranked.rank)
        best = ideal(ranked.lists, ranked.positives.table)  # 0 for a query without positives
        return sum_by_query(gains, ranked.positives, ranked.lists) / torch.where(best > 0, best, 1)

    return score


def recall(at: Sequence[int], temperature: float, clip: bool) -> Score:
    """Make the score recall: the mean over k in `at` of Σ_{p ∈ Ω+} σ((k − rank(p))/temperature) /
    min(k, |Ω+|) (rank losses, Eq. 15–17).

    `clip`: whether each sum is at most k (Patel et al.). Raises ConfigError for a k below 1, and
    for no k.
    """
    if not at or min(at) < 1:
        raise ConfigError(
            "at has no numbers of items at which recall could be taken",
            expected="whole numbers ≥ 1, such as (1, 2, 4, 8, 16)",
            found=repr(at),
        )

    def score(ranked: RankEstimates) -> Tensor:
        """The score (Q,) of each query, from the estimated ranks of its positives."""
        # (Q,): how many positives, items of relevance above 0, each query has. `table` (Q, L+1) has
        # the relevance of each level
        number = (ranked.lists.counts * (ranked.positives.table > 0)).sum(1)
        total = torch.zeros_like(number)
        for k in at:
            # the number of positives among the first k, each counted by a sigmoid of its rank; this
            # estimate may exceed k, and `clip` limits it to k
            reached = sum_by_query(
                torch.sigmoid((k - ranked.rank) / temperature), ranked.positives, ranked.lists
            )
            # number.clamp(1, k): min(k, number), or 1 for a query without positives: its sum is 0
            total = total + (reached.clamp(max=k) if clip else reached) / number.clamp(1, k)
        return total / len(at)

    return score
