"""The decomposability gap: how far the mean AP inside batches lies above the AP of the whole set; its bounds, and the loss
that narrows it by calibrating scores across batches ([N] §3.2, [T] §III-C).

>>> gap_bound([2, 2], [3, 3])  # 1 − (1/1 + 2/2 + 3/6 + 4/7) / 4
0.23214285714285715
>>> calibrated_gap_bound([(2, 0), (2, 0)], [(3, 0), (3, 0)])  # every score on its side of the thresholds
0.0
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from hbench.errors import ConfigError
from hbench.losses.blocks import full_precision, sum_over_blocks
from hbench.losses.pairs import contrastive
from hbench.losses.references import resolve_references


class Calibration(nn.Module):
    """Mean over queries of 1/|P| Σ_P [α − s]₊ + 1/|N| Σ_N [s − β]₊, cosines, fine labels ([N] Eq. 7); α = .9, β = .6.

    A query without positives (negatives) has no first (second) term.
    """

    def __init__(self, positive_margin: float = 0.9, negative_margin: float = 0.6) -> None:
        super().__init__()
        self.alpha, self.beta = positive_margin, negative_margin

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

        def excess(scores: Tensor, block: slice) -> Tensor:
            same = labels[block, -1, None] == refs.labels[None, :, -1]
            positive = same & (column != refs.self_index[block, None])
            below, above = (self.alpha - scores).clamp(min=0), (scores - self.beta).clamp(min=0)
            return (_mean_where(positive, below) + _mean_where(~same, above)).sum()

        normal = map(functional.normalize, full_precision(embeddings, refs.embeddings))
        return sum_over_blocks(excess, *normal) / max(1, len(labels))


def calibration(positive_margin: float = 0.9, negative_margin: float = 0.6, released: bool = False) -> nn.Module:
    """Calibration; released: each term a mean over the pairs of the batch where it is not 0, instead of [N] Eq. 7."""
    return (contrastive if released else Calibration)(positive_margin, negative_margin)


def _mean_where(chosen: Tensor, values: Tensor) -> Tensor:
    return torch.where(chosen, values, 0).sum(1) / chosen.sum(1).clamp(min=1)


def decomposability_gap(
    metric: Callable[[np.ndarray, np.ndarray], float],
    scores: np.ndarray,
    levels: np.ndarray,
    batches: Sequence[np.ndarray],
) -> float:
    """Mean over batches of metric(scores[batch], levels[batch]) − metric(scores, levels), for one query ([N] Eq. 6, [T] Eq. 6).

    scores, levels (N,); each batch is an index array (n,).
    """
    if not batches:
        raise ConfigError("the gap needs at least one batch", expected="index arrays", found="none")
    inside = [metric(scores[batch], levels[batch]) for batch in batches]
    return sum(inside) / len(inside) - metric(scores, levels)


def gap_bound(positives: Sequence[int], negatives: Sequence[int]) -> float:
    """1 − 1/Σ|P_b| Σ_b Σ_{j ≤ |P_b|} (j + P_<b)/(j + P_<b + N_<b): the largest gap when the AP of each batch is 1 ([N] Eq. 8).

    P_<b and N_<b are the positives and negatives of the batches before b; the worst ranking joins the batches end to end.
    The inner sum runs over the batch's positives; the paper prints the batch size.
    """
    before_p, before_n = _before(positives), _before(negatives)
    terms = [
        (j + p) / (j + p + n)
        for own, p, n in zip(positives, before_p, before_n, strict=True)
        for j in range(1, own + 1)
    ]
    return _one_minus_mean(terms)


def calibrated_gap_bound(positives: Sequence[tuple[int, int]], negatives: Sequence[tuple[int, int]]) -> float:
    """The bound for calibrated scores ([N] Eq. 9), from (good, bad) counts of each batch.

    1 − 1/Σ|P_b| Σ_b [Σ_{j ≤ G⁺_b} (j + G⁺_<b)/(j + G⁺_<b + E⁻_<b) + Σ_{j ≤ E⁺_b} (j + G⁺_b + P_<b)/(j + G⁺_b + P_<b + N_<b)]

    Good positives score above α and good negatives at most β; G counts the good ones, E the others. The numerator of the
    second sum has no N_<b: with it, as printed, every such term would be 1.
    """
    good_p, bad_n = [good for good, _ in positives], [bad for _, bad in negatives]
    before_good, before_bad = _before(good_p), _before(bad_n)
    before_p, before_n = _before([sum(pair) for pair in positives]), _before([sum(pair) for pair in negatives])
    terms = []
    for batch, (good, bad) in enumerate(positives):
        above = [j + before_good[batch] for j in range(1, good + 1)]
        below = [j + good + before_p[batch] for j in range(1, bad + 1)]
        terms += [rank / (rank + before_bad[batch]) for rank in above]
        terms += [rank / (rank + before_n[batch]) for rank in below]
    return _one_minus_mean(terms)


def _before(counts: Sequence[int]) -> list[int]:
    return list(accumulate(counts, initial=0))[:-1]


def _one_minus_mean(terms: Sequence[float]) -> float:
    if not terms:
        raise ConfigError("the bound needs a batch with positives", expected="at least one positive", found="none")
    return 1 - sum(terms) / len(terms)
