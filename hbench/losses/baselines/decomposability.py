"""Measures the decomposability gap, how far the mean AP inside batches lies above the AP of the whole set, and narrows it by
calibrating scores across batches ([N] §3.2, [T] §III-C).

>>> gap_bound([1, 1], [2, 2])  # 1 − (1/1 + 2/4) / 2
0.25
>>> calibrated_gap_bound([(2, 0), (2, 0)], [(3, 0), (3, 0)])  # every score on its side of the thresholds
0.0
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from hbench.core.errors import ConfigError
from hbench.losses.baselines.pairs import contrastive
from hbench.losses.batch_loss import BatchLoss, LossBatch, full_precision, sum_over_blocks
from hbench.losses.entry import LossEntry


class Calibration(BatchLoss):
    """Mean over queries of 1/|P| Σ_P [α − s]₊ + 1/|N| Σ_N [s − β]₊, cosines, fine labels ([N] Eq. 7); α = .9, β = .6.

    A query without positives (negatives) has no first (second) term.
    """

    takes_partial = True

    def __init__(self, positive_margin: float = 0.9, negative_margin: float = 0.6) -> None:
        super().__init__()
        self.alpha, self.beta = positive_margin, negative_margin

    def compute(self, batch: LossBatch) -> Tensor:
        def excess(scores: Tensor, block: slice) -> Tensor:
            positive, negative = batch.split_pairs(block)
            below, above = (self.alpha - scores).clamp(min=0), (scores - self.beta).clamp(min=0)
            return (_mean_where(positive, below) + _mean_where(negative, above)).sum()

        normal = map(functional.normalize, full_precision(batch.embeddings, batch.ref_embeddings))
        return sum_over_blocks(excess, *normal) / max(1, len(batch.labels))


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


class WeightedSum(BatchLoss):
    """Σ w_i · loss_i(…), each with the same arguments."""

    takes_partial = True

    def __init__(self, losses: Sequence[nn.Module], weights: Sequence[float]) -> None:
        super().__init__()
        if not losses or len(losses) != len(weights):
            raise ConfigError(
                "a sum needs losses with one weight each", expected="one weight per loss", found=f"{len(weights)}"
            )
        self.losses, self.weights = nn.ModuleList(losses), tuple(weights)

    def compute(self, batch: LossBatch) -> Tensor:
        arguments = batch.arguments()
        terms = [weight * loss(*arguments) for weight, loss in zip(self.weights, self.losses, strict=True)]
        return torch.stack(terms).sum()


class Combination(NamedTuple):
    """The names of the rank loss and the decomposability loss, λ, defaults that differ from the rank loss's own, the paper."""

    rank: str
    decomposability: str
    lam: float
    defaults: Mapping[str, Any]
    paper: str


COMBINATIONS: dict[str, Combination] = {
    "happier": Combination("sup_hap", "cluster", 0.1, {}, "HAPPIER (ECCV 2022) §3.2"),
    "happier_f": Combination(
        "sup_hap", "cluster", 0.1, {"alpha": 5.0}, "HAPPIER (ECCV 2022) §4: α = 5 on SOP, 3 on iNat"
    ),
    "roadmap": Combination("sup_ap", "calibration", 0.5, {}, "ROADMAP (NeurIPS 2021) Eq. 2"),
    "rod_ndcg": Combination("sup_ndcg", "cluster", 0.1, {}, "Rank losses (TPAMI 2024) Eq. 25"),
    "rod_recall": Combination("sup_recall", "calibration", 0.5, {}, "Rank losses (TPAMI 2024) Eq. 17"),
}


def combination_entry(row: Combination, entries: Mapping[str, LossEntry]) -> LossEntry:
    """The entry of a row: its parameters are λ (`lam`) and those of its two losses."""
    first, second = entries[row.rank], entries[row.decomposability]
    own = {"lam": row.lam}

    def build(given: Mapping[str, Any]) -> nn.Module:
        lam = given["lam"]
        if not 0 <= lam <= 1:
            raise ConfigError(
                "the weight of the decomposability loss is no share", expected="lam in 0 … 1", found=f"{lam:g}"
            )
        parts = [entry.build({name: given[name] for name in entry.parameters}) for entry in (first, second)]
        return WeightedSum(parts, [1 - lam, lam])

    formula = f"(1 − λ)·{row.rank} + λ·{row.decomposability}"
    return LossEntry(build, formula, row.paper, own | {**first.parameters, **row.defaults} | dict(second.parameters))
