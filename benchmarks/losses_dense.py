"""The losses in their plain form, to compare with: every pair of every query at once, as B × B × B
tensors and boolean masks.

This is how the released research code is laid out; it is ours, and serves no other purpose than
benchmarks/losses.py.
"""

from __future__ import annotations

import torch
from torch import Tensor

TAU, RHO, DELTA = 0.01, 100.0, 0.05


def levels_of(labels: Tensor) -> Tensor:
    """How many leading columns of the labels (B, L) each pair of items shares: (B, B)."""
    return (labels[:, None] == labels[None, :]).cumprod(dim=2).sum(dim=2)


def dense_steps(scores: Tensor, levels: Tensor, smooth: bool) -> tuple[Tensor, Tensor]:
    """step(s_j − s_k) of rank and of H-rank, each (B, B, B): [query, k, j], 0 for j = k and for the
    query.

    Each piece of SupRank is read from a copy of the differences and written to it in place through
    its own boolean mask, the exact piece like the others; so backward, too, passes the whole tensor
    once per piece.
    """
    size = len(scores)
    difference = scores[:, None, :] - scores[:, :, None]
    less = levels[:, None, :] < levels[:, :, None]
    kept = ~(torch.eye(size, dtype=torch.bool)[None] | torch.eye(size, dtype=torch.bool)[:, None])
    if smooth:
        step = torch.sigmoid(difference / TAU) * kept
        return step, step
    step, above, beyond = difference.clone(), difference >= 0, difference > DELTA
    middle, high, low = less & above & ~beyond, less & above & beyond, less & ~above
    step[middle] = torch.sigmoid(step[middle] / TAU) + 0.5
    step[high] = RHO * (step[high] - DELTA) + torch.sigmoid(torch.tensor(DELTA / TAU)) + 0.5
    step[low] = torch.sigmoid(step[low] / TAU)
    step[~less] = exact(step[~less])
    return step * kept, exact(difference.clone()) * kept


def exact(difference: Tensor) -> Tensor:
    """The exact step: 1 where a difference of scores is 0 or more, else 0; without a gradient."""
    with torch.no_grad():
        return torch.heaviside(difference, torch.ones(()))


def dense_loss(name: str, embeddings: Tensor, labels: Tensor) -> Tensor:
    """The loss `name` of a batch that ranks itself, the query left out of its list: smooth_ or sup_
    with ap, hap (α = 1), ndcg or recall. Embeddings (B, D), labels (B, L).
    """
    family, score = name.split("_")
    scores, levels, depth = embeddings @ embeddings.T, levels_of(labels), labels.shape[1]
    own = torch.eye(len(scores), dtype=torch.bool)
    step, h_step = dense_steps(scores, levels, family == "smooth")
    rank = 1 + step.sum(dim=2)
    counts = torch.stack(
        [((levels == level) & ~own).sum(dim=1) for level in range(depth + 1)], dim=1
    )
    weight = torch.arange(depth + 1) / depth / counts.clamp(min=1)
    relevance = {
        "ap": (levels == depth).float(),
        "hap": weight.gather(1, levels),
        "ndcg": 2.0**levels - 1,
        "recall": (levels == depth).float(),
    }[score] * ~own
    total = relevance.sum(dim=1).clamp(min=1e-12)
    if score in {"ap", "hap"}:
        shared = torch.minimum(relevance[:, :, None], relevance[:, None, :])
        h_rank = relevance + (shared * h_step).sum(dim=2)
        return 1 - ((h_rank / rank * (relevance > 0)).sum(dim=1) / total).mean()
    if score == "ndcg":
        place = torch.log2(torch.arange(len(scores)) + 2.0)
        ideal = (relevance.sort(dim=1, descending=True)[0] / place).sum(dim=1)
        return 1 - ((relevance / torch.log2(1 + rank)).sum(dim=1) / ideal).mean()
    found = [
        (torch.sigmoid(k - rank) * relevance).sum(dim=1) / total.clamp(max=k)
        for k in (1, 2, 4, 8, 16)
    ]
    return 1 - torch.stack(found).mean()


class DenseRank(torch.autograd.Function):
    """Algorithm 1 of RaMBO as it stands: argsort of argsort, forward and backward."""

    @staticmethod
    def forward(ctx, scores: Tensor, lam: float) -> Tensor:
        """The ranks (n,) of scores (n,), from 1; λ is the strength of their gradient."""
        ctx.rank = scores.argsort(descending=True).argsort() + 1
        ctx.scores, ctx.lam = scores, lam
        return ctx.rank.to(scores)

    @staticmethod
    def backward(ctx, upstream: Tensor) -> tuple[Tensor, None]:
        """How the ranks change when the scores move by λ times the gradient that arrives."""
        moved = (ctx.scores + ctx.lam * upstream).argsort(descending=True).argsort() + 1
        return (moved - ctx.rank).to(upstream) / ctx.lam, None


def dense_ap_sequence(scores: Tensor, positive: Tensor, lam: float) -> Tensor:
    """1 − AP of one sequence, scores and positives (n,): six argsorts in all, two of them for the
    ranks among the positives."""
    rank = DenseRank.apply(scores, lam)
    # 2n more puts all positives before the others, in the order of their ranks
    within = (-rank.detach() + len(scores) * 2 * positive).argsort(descending=True).argsort() + 1
    return 1 - (within / rank * positive).sum() / positive.sum()
