"""Computes the score of queries from the ranks of their positives: H-AP (and AP), NDCG, recall at
k; the best score is 1.

A score is a function RankEstimates -> (Q,). It is a sum over positives, so that a query without
positives scores 0; the caller leaves it out.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from hbench.losses.rank_sums import Lists, Positives, sum_by_query


class RankEstimates(NamedTuple):
    """Q lists, their P positives, and each positive's `rank`, from 1, and `h_rank`, float (P,),
    estimated by steps and differentiable; H-rank is None for scores without it.
    """

    lists: Lists
    positives: Positives
    rank: Tensor
    h_rank: Tensor | None


Score = Callable[[RankEstimates], Tensor]


def h_ap(ranked: RankEstimates) -> Tensor:
    """Compute H-AP = Σ_k H-rank(k)/rank(k) / Σ_k rel(k) (HAPPIER, Eq. 3), which is AP where all
    relevances are 0 or 1 (Eq. 1): one value for each list, (Q,); 0 without a relevant item.
    `ranked`: the estimated ranks (P,) of the positives of all lists, list by list."""
    assert ranked.h_rank is not None
    sums = sum_by_query(ranked.h_rank / ranked.rank, ranked.positives, ranked.lists)
    total = (ranked.lists.counts * ranked.positives.table).sum(1)
    return sums / torch.where(total > 0, total, 1)


def ideal_gain(lists: Lists, table: Tensor) -> Tensor:
    """Compute Σ_r rel/log2(1 + r) of every list in order of relevance, from its level counts: (Q,).
    `table` (Q, L+1): the relevance of each level."""
    place = torch.arange(1, lists.scores.shape[1] + 1, device=table.device)
    # the sum of the discounts of the first n places, for n = 0 …
    discount = torch.cat(
        [table.new_zeros(1), torch.log2(1 + place.to(table)).reciprocal().cumsum(0)]
    )
    gains, best_first = table.sort(dim=1, descending=True)  # (Q, L+1): relevances, and their levels
    # the ideal list has the items of highest relevance first: each level takes a stretch of places
    until = lists.counts.gather(1, best_first).cumsum(1).long()  # (Q, L+1): where each one ends
    reached = discount[until]
    before = torch.cat([torch.zeros_like(reached[:, :1]), reached[:, :-1]], dim=1)
    return (gains * (reached - before)).sum(1)


def ndcg(ideal: Callable[[Lists, Tensor], Tensor] = ideal_gain) -> Score:
    """Make NDCG = Σ_k rel(k)/log2(1 + rank(k)), over its `ideal` value for the list in order of
    relevance (rank losses, Eq. 23).
    """

    def score(ranked: RankEstimates) -> Tensor:
        """The score (Q,) of every query, by the estimated ranks of its positives (P,)."""
        gains = ranked.positives.relevance / torch.log2(1 + ranked.rank)
        best = ideal(ranked.lists, ranked.positives.table)  # 0 of a query without positives
        return sum_by_query(gains, ranked.positives, ranked.lists) / torch.where(best > 0, best, 1)

    return score


def recall(at: Sequence[int], temperature: float, clip: bool) -> Score:
    """Make the mean over k in `at` of Σ_{p ∈ Ω+} σ((k − rank(p))/temperature) / min(k, |Ω+|) (rank
    losses, Eq. 15–17).

    `clip` bounds each sum by k (Patel et al.).
    """

    def score(ranked: RankEstimates) -> Tensor:
        """The score (Q,) of every query; `number` (Q,): its positives, of relevance above 0."""
        number = (ranked.lists.counts * (ranked.positives.table > 0)).sum(1)
        total = torch.zeros_like(number)
        for k in at:
            # how many positives are among the first k, each counted by a sigmoid of its rank
            reached = sum_by_query(
                torch.sigmoid((k - ranked.rank) / temperature), ranked.positives, ranked.lists
            )
            # divided by min(k, number); by 1 where a query has no positives, and its sum is 0
            total = total + (reached.clamp(max=k) if clip else reached) / number.clamp(1, k)
        return total / len(at)

    return score
