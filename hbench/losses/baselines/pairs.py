"""A pair loss compares scores of pairs or triplets of items at the fine level; most are pytorch-metric-learning's, on our pairs.

A query is never paired with itself, neither in its batch nor among references that contain it.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

from hbench.losses.baselines.proxies import require_positive
from hbench.losses.blocks import full_precision, resolve_references, sum_over_blocks

Indices = tuple[Tensor, ...]  # (query, positive, query, negative) or triplets (query, positive, negative)
Choose = Callable[[Tensor, Tensor, Tensor], Indices]  # cosines (B, N), positive and negative pairs bool (B, N)


class ChosenPairs(nn.Module):
    """A pytorch-metric-learning loss of pairs or triplets, given those that `choose` picks; fine labels."""

    def __init__(self, loss: nn.Module, choose: Choose) -> None:
        super().__init__()
        self.loss, self.choose = loss, choose

    def forward(
        self,
        embeddings: Tensor,
        labels: Tensor,
        ref_embeddings: Tensor | None = None,
        ref_labels: Tensor | None = None,
        self_index: Tensor | None = None,
    ) -> Tensor:
        refs = resolve_references(embeddings, labels, ref_embeddings, ref_labels, self_index)
        if len(labels) == 0 or len(refs.labels) == 0:
            return embeddings.sum() * 0
        query, others = full_precision(embeddings, refs.embeddings)
        same = labels[:, -1, None] == refs.labels[None, :, -1]
        positive = same & (torch.arange(same.shape[1], device=same.device) != refs.self_index[:, None])
        with torch.autocast(embeddings.device.type, enabled=False):
            cosines = (functional.normalize(query) @ functional.normalize(others).T).detach()
            chosen = self.choose(cosines, positive, ~same)
            result: Tensor = self.loss(query, labels[:, -1], chosen, ref_emb=others, ref_labels=refs.labels[:, -1])
        return result


def all_pairs(cosines: Tensor, positive: Tensor, negative: Tensor) -> Indices:
    """Every positive and every negative pair."""
    return (*positive.nonzero(as_tuple=True), *negative.nonzero(as_tuple=True))


def semi_hard(cosines: Tensor, positive: Tensor, negative: Tensor) -> Indices:
    """One triplet per query: its nearest positive, and its nearest negative that is farther than that positive.

    A query that has no such negative, or no positive, gives no triplet.
    """
    nearest, which = cosines.masked_fill(~positive, -torch.inf).max(dim=1)
    farther = negative & (cosines < nearest[:, None])
    query = (positive.any(1) & farther.any(1)).nonzero().squeeze(1)
    hardest = cosines.masked_fill(~farther, -torch.inf).argmax(dim=1)
    return query, which[query], hardest[query]


def triplet(margin: float = 0.05, semi_hard_only: bool = True) -> nn.Module:
    """[m − cos(q, p) + cos(q, n)]₊, mean over the triplets where it is positive; TL_SH with semi-hard mining, m = .05."""
    from pytorch_metric_learning import distances, losses

    loss = losses.TripletMarginLoss(margin=margin, distance=distances.DotProductSimilarity())
    return ChosenPairs(loss, semi_hard if semi_hard_only else all_pairs)


def contrastive(positive_margin: float = 1.0, negative_margin: float = 0.5) -> nn.Module:
    """[m⁺ − cos(q, p)]₊ and [cos(q, n) − m⁻]₊, each averaged over the pairs where it is positive, and added."""
    from pytorch_metric_learning import distances, losses, reducers

    loss = losses.ContrastiveLoss(
        positive_margin,
        negative_margin,
        distance=distances.DotProductSimilarity(),
        reducer=reducers.AvgNonZeroReducer(),
    )
    return ChosenPairs(loss, all_pairs)


def multi_similarity(alpha: float = 2.0, beta: float = 50.0, base: float = 0.5) -> nn.Module:
    """Mean of 1/α log(1 + Σ_P e^{−α(s−b)}) + 1/β log(1 + Σ_N e^{β(s−b)}), cosines (Wang et al. 2019)."""
    from pytorch_metric_learning import losses

    require_positive(alpha=alpha, beta=beta)
    return ChosenPairs(losses.MultiSimilarityLoss(alpha=alpha, beta=beta, base=base), all_pairs)


class MemoryPairs(nn.Module):
    """1/B Σ_q [Σ_{p, s < 1} (1 − s) + Σ_{n, s > m} s], scores as given, fine labels: the pair loss of the memory paper; m = .5.

    (Wang et al. 2020, XBM, as released with it: pairs with s ≥ 1 − 10⁻⁵ are taken for copies of the query.)
    """

    def __init__(self, margin: float = 0.5) -> None:
        super().__init__()
        self.margin = margin

    def forward(
        self,
        embeddings: Tensor,
        labels: Tensor,
        ref_embeddings: Tensor | None = None,
        ref_labels: Tensor | None = None,
        self_index: Tensor | None = None,
    ) -> Tensor:
        refs = resolve_references(embeddings, labels, ref_embeddings, ref_labels, self_index)
        column = torch.arange(len(refs.labels), device=labels.device)

        def pull_and_push(scores: Tensor, block: slice) -> Tensor:
            same = labels[block, -1, None] == refs.labels[None, :, -1]
            pulled = same & (scores < 1 - 1e-5) & (column != refs.self_index[block, None])
            return (
                torch.where(pulled, 1 - scores, 0).sum() + torch.where(~same & (scores > self.margin), scores, 0).sum()
            )

        return sum_over_blocks(pull_and_push, embeddings, refs.embeddings) / max(1, len(labels))
