"""Defines the losses of pairs and triplets at the finest level. Most are losses of
pytorch-metric-learning, applied to pairs that are chosen here.

A query is never paired with itself, neither in its batch nor among references that contain it.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

from hbench.losses.batch_loss import BatchLoss, Indices, LossBatch, full_precision, require_positive
from hbench.losses.batch_loss.block_sums import sum_over_blocks

# cosines (B, N), positive and negative pairs bool (B, N) -> chosen pairs or triplets
Choose = Callable[[Tensor, Tensor, Tensor], Indices]


class ChosenPairs(BatchLoss):
    """A pytorch-metric-learning loss of pairs or triplets at the finest level. It uses mined pairs,
    or else those that `choose` selects.
    """

    takes_partial = True

    def __init__(self, loss: nn.Module, choose: Choose) -> None:
        """`loss`: a loss of pytorch-metric-learning; `choose`: selects the pairs if no mined pairs
        are given."""
        super().__init__()
        self.loss = loss
        self.choose = choose

    def compute(self, batch: LossBatch) -> Tensor:
        """The loss at the finest level, over the batch's mined pairs, or else over those that
        `choose` selects; 0 for an empty batch."""
        if len(batch.labels) == 0 or len(batch.ref_labels) == 0:
            return batch.embeddings.sum() * 0  # a 0 with a gradient, so that backward works
        query, others = full_precision(batch.embeddings, batch.ref_embeddings)
        fine = batch.labels[:, -1]
        ref_fine = batch.ref_labels[:, -1]
        # autocast would return to half precision
        with torch.autocast(query.device.type, enabled=False):
            chosen = batch.pairs  # tensors of indices: 4 for pairs, 3 for triplets
            if chosen is None:  # no mined pairs; selecting pairs needs no gradient
                cosines = (functional.normalize(query) @ functional.normalize(others).T).detach()
                positive, negative = batch.split_pairs()  # bool (Q, N)
                chosen = self.choose(cosines, positive, negative)
            result: Tensor = self.loss(query, fine, chosen, ref_emb=others, ref_labels=ref_fine)
        return result


def all_pairs(cosines: Tensor, positive: Tensor, negative: Tensor) -> Indices:
    """Choose every positive and every negative pair."""
    return (*positive.nonzero(as_tuple=True), *negative.nonzero(as_tuple=True))


def semi_hard(cosines: Tensor, positive: Tensor, negative: Tensor) -> Indices:
    """Choose one triplet per query: the query, its nearest positive, and the nearest negative among
    those that are farther away than this positive.

    A query without positives, or without a negative farther away, has no triplet. `cosines` (Q, N);
    `positive`, `negative` bool (Q, N): which items are positives and negatives of each query.
    Returns the queries, positives and negatives of T triplets, (T,) each.
    """
    # (Q,): the cosine and the column of each query's nearest positive
    nearest, which = cosines.masked_fill(~positive, -torch.inf).max(dim=1)
    farther = negative & (cosines < nearest[:, None])
    query = (positive.any(1) & farther.any(1)).nonzero().squeeze(1)
    # (Q,): the column of the nearest negative among the farther ones
    hardest = cosines.masked_fill(~farther, -torch.inf).argmax(dim=1)
    return query, which[query], hardest[query]


def triplet(margin: float = 0.05, semi_hard_only: bool = True) -> nn.Module:
    """Make the mean of [m − cos(q, p) + cos(q, n)]₊ over the triplets for which it is above 0; m is
    the `margin`. The triplets are one semi-hard triplet per query (TL_SH), or all triplets.
    """
    from pytorch_metric_learning import distances, losses

    # DotProductSimilarity normalises the vectors, so these are cosines
    loss = losses.TripletMarginLoss(margin=margin, distance=distances.DotProductSimilarity())
    return ChosenPairs(loss, semi_hard if semi_hard_only else all_pairs)


def contrastive(positive_margin: float = 1.0, negative_margin: float = 0.5) -> nn.Module:
    """Make the sum of two means: of [m⁺ − cos(q, p)]₊ and of [cos(q, n) − m⁻]₊, each over the pairs
    for which it is above 0. `positive_margin`, `negative_margin`: m⁺ and m⁻, cosines."""
    from pytorch_metric_learning import distances, losses, reducers

    distance = distances.DotProductSimilarity()  # normalises the vectors, so these are cosines
    reducer = reducers.AvgNonZeroReducer()
    return ChosenPairs(
        losses.ContrastiveLoss(
            positive_margin, negative_margin, distance=distance, reducer=reducer
        ),
        all_pairs,
    )


def multi_similarity(alpha: float = 2.0, beta: float = 50.0, base: float = 0.5) -> nn.Module:
    """Make the mean of 1/α log(1 + Σ_P e^{−α(s−b)}) + 1/β log(1 + Σ_N e^{β(s−b)}) for cosines s
    (Wang et al. 2019). `alpha`, `beta`, `base`: α, β and b.
    """
    from pytorch_metric_learning import losses

    require_positive(alpha=alpha, beta=beta)
    return ChosenPairs(losses.MultiSimilarityLoss(alpha=alpha, beta=beta, base=base), all_pairs)


class MemoryPairs(BatchLoss):
    """1/B Σ_q [Σ_{p, s < 1} (1 − s) + Σ_{n, s > m} s], at the finest level: the pair loss of the
    paper on cross-batch memory (XBM, Wang et al. 2020).

    As in the released code, a positive with s ≥ 1 − 10⁻⁵ is regarded as a copy of the query, and is
    left out.
    """

    takes_partial = True

    def __init__(self, margin: float = 0.5) -> None:
        super().__init__()
        self.margin = margin

    def compute(self, batch: LossBatch) -> Tensor:
        """The sum over all pairs, divided by the number of queries: 1 − s of each positive, and s
        of each negative above the `margin`. s is the inner product; embeddings are expected to be
        normalised already."""

        def pull_and_push(scores: Tensor, block: slice) -> Tensor:
            """The sum over the pairs of a block of queries, from their scores (b, N)."""
            positive, negative = batch.split_pairs(block)
            # a positive with nearly the same vector is regarded as a copy of the query
            pulled = positive & (scores < 1 - 1e-5)
            pushed = negative & (scores > self.margin)
            return torch.where(pulled, 1 - scores, 0).sum() + torch.where(pushed, scores, 0).sum()

        return sum_over_blocks(pull_and_push, batch.embeddings, batch.ref_embeddings) / max(
            1, len(batch.labels)
        )
