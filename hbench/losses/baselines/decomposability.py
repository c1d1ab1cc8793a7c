"""Measures the decomposability gap, by which the mean AP within batches exceeds the AP of the whole
set, and defines losses that reduce it by calibrating scores across batches (ROADMAP, §3.2; rank
losses, §III-C).
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from hbench.core.arguments import as_array, checked
from hbench.core.errors import ConfigError
from hbench.losses.baselines.pairs import contrastive
from hbench.losses.batch_loss import BatchLoss, LossBatch, full_precision
from hbench.losses.batch_loss.block_sums import sum_over_blocks
from hbench.losses.entry import LossEntry


class Calibration(BatchLoss):
    """The mean over queries of 1/|P| Σ_P [α − s]₊ + 1/|N| Σ_N [s − β]₊, where s are cosines, and P
    and N the positives and negatives by the finest class (ROADMAP, Eq. 7).

    The first term is 0 for a query without positives, the second for a query without negatives.
    """

    takes_partial = True

    def __init__(self, positive_margin: float = 0.9, negative_margin: float = 0.6) -> None:
        """`positive_margin`, `negative_margin`: α and β, cosines."""
        super().__init__()
        self.alpha = positive_margin
        self.beta = negative_margin

    def compute(self, batch: LossBatch) -> Tensor:
        """The mean over the queries of two terms: how far the cosines of positives are below α
        (`alpha`), and how far the cosines of negatives are above β (`beta`), each a mean over the
        items. 0 for an empty batch."""

        def excess(scores: Tensor, block: slice) -> Tensor:
            """The sum of both terms over the queries of a block. `scores` (b, N): the cosines of
            the queries to all references."""
            positive, negative = batch.split_pairs(block)  # bool (b, N)
            below = (self.alpha - scores).clamp(min=0)
            above = (scores - self.beta).clamp(min=0)
            return (_mean_where(positive, below) + _mean_where(negative, above)).sum()

        normal = map(functional.normalize, full_precision(batch.embeddings, batch.ref_embeddings))
        return sum_over_blocks(excess, *normal) / max(1, len(batch.labels))


def calibration(
    positive_margin: float = 0.9, negative_margin: float = 0.6, released: bool = False
) -> nn.Module:
    """Make the calibration loss. `released`: whether to follow the released code, where each term
    is a mean over all pairs of the batch for which it is not 0.
    """
    return (contrastive if released else Calibration)(positive_margin, negative_margin)


def _mean_where(chosen: Tensor, values: Tensor) -> Tensor:
    """The mean of the `chosen` values, bool (b, N), in each row of `values` (b, N); 0 for none."""
    return torch.where(chosen, values, 0).sum(1) / chosen.sum(1).clamp(min=1)


@checked
def decomposability_gap(
    metric: Callable[[np.ndarray, np.ndarray], float],
    scores: np.ndarray,
    levels: np.ndarray,
    batches: Sequence[np.ndarray],
) -> float:
    """Compute the mean of a metric over batches minus its value on all items, for one query.

    Args:
        metric: the metric of one query, such as its AP, from scores (n,) and levels (n,).
        scores: (N,), of all items.
        levels: (N,), of all items.
        batches: for each batch, an array (n,) of the positions of its items.

    Returns:
        mean of metric(scores[batch], levels[batch]) over batches − metric(scores, levels).

    Raises:
        ConfigError: no batches, or scores and levels of unlike shapes.

    Source:
        ROADMAP (NeurIPS 2021) and rank losses, Eq. 6.
    """
    # an array (batches, n) is allowed, too
    if not isinstance(batches, Sequence | np.ndarray) or not len(batches):
        raise ConfigError(
            "the gap needs at least one batch",
            expected="index arrays",
            # an empty sequence or None; anything else, such as a number, is quoted
            found="none"
            if batches is None or isinstance(batches, Sequence)
            else f"{batches!r:.60}",
        )
    if np.ndim(scores) != 1 or np.shape(scores) != np.shape(levels):
        raise ConfigError(
            "the gap is of one query's items",
            expected="a score and a level for each item",
            found=f"shapes {np.shape(scores)} and {np.shape(levels)}",
        )
    chosen = [_indices(batch, len(scores)) for batch in batches]
    inside = [metric(scores[batch], levels[batch]) for batch in chosen]
    return sum(inside) / len(inside) - metric(scores, levels)


def _indices(batch: Any, items: int) -> NDArray[np.int64]:
    """Check that a batch is an array of positions of items, 0 … `items` − 1, and return it. Raises
    ConfigError for anything else."""
    places = as_array(batch, "batches")
    if (
        places.ndim != 1
        or places.dtype.kind not in "iu"
        or not len(places)
        or places.min() < 0
        or places.max() >= items
    ):
        raise ConfigError(
            "a batch is no array of indices",
            expected=f"whole numbers 0 … {items - 1}",
            found=f"{places.dtype} of shape {places.shape}",
        )
    return places


class WeightedSum(BatchLoss):
    """Σ w_i · loss_i(…), a weighted sum of losses that are called with the same arguments."""

    takes_partial = True

    def __init__(self, losses: Sequence[nn.Module], weights: Sequence[float]) -> None:
        """`weights`: one for each loss. Raises ConfigError if there are no losses, or more or fewer
        weights than losses."""
        super().__init__()
        if not losses or len(losses) != len(weights):
            raise ConfigError(
                "a sum needs losses with one weight each",
                expected="one weight per loss",
                found=f"{len(weights)}",
            )
        self.losses = nn.ModuleList(losses)
        self.weights = tuple(map(float, weights))

    def compute(self, batch: LossBatch) -> Tensor:
        """The weighted sum of the losses, each called on the same batch."""
        arguments = batch.arguments()
        terms = [
            weight * loss(*arguments)
            for weight, loss in zip(self.weights, self.losses, strict=True)
        ]
        return torch.stack(terms).sum()


class Combination(NamedTuple):
    """A combination of two losses: the names of the rank loss and of the decomposability loss, λ,
    defaults that replace those of the rank loss, and the paper.
    """

    rank: str
    decomposability: str
    lam: float
    defaults: Mapping[str, Any]
    paper: str


COMBINATIONS = {
    "happier": Combination("sup_hap", "cluster", 0.1, {}, "HAPPIER (ECCV 2022) §3.2"),
    "happier_f": Combination(
        "sup_hap", "cluster", 0.1, {"alpha": 5.0}, "HAPPIER (ECCV 2022) §4: α = 5 on SOP, 3 on iNat"
    ),
    "roadmap": Combination("sup_ap", "calibration", 0.5, {}, "ROADMAP (NeurIPS 2021) Eq. 2"),
    "rod_ndcg": Combination("sup_ndcg", "cluster", 0.1, {}, "Rank losses (TPAMI 2025) Eq. 25"),
    "rod_recall": Combination(
        "sup_recall", "calibration", 0.5, {}, "Rank losses (TPAMI 2025) Eq. 17"
    ),
}


def combination_entry(row: Combination, entries: Mapping[str, LossEntry]) -> LossEntry:
    """Make the entry of a combination: (1 − λ) times a rank loss plus λ times a decomposability
    loss. The parameters of the combination are λ (`lam`) and those of the two losses.

    `row`: the names of the two losses, the default of λ, and defaults that replace those of the
    rank loss. `entries`: the entries of all losses, by name."""
    rank = entries[row.rank]
    decomposability = entries[row.decomposability]

    def build(params: Mapping[str, Any]) -> nn.Module:
        """Build the weighted sum of both losses; each loss gets those of `params` that it has."""
        lam = params["lam"]
        if not 0 <= lam <= 1:
            reason = "the weight of the decomposability loss is out of range"
            raise ConfigError(reason, expected="lam in 0 … 1", found=f"{lam:g}")
        parts = []
        for entry in (rank, decomposability):
            own = {name: params[name] for name in entry.parameters}
            parts.append(entry.build(own))
        return WeightedSum(parts, [1 - lam, lam])

    # a later value replaces an earlier one: the row's defaults replace those of the rank loss
    parameters = {"lam": row.lam, **rank.parameters, **row.defaults, **decomposability.parameters}
    return LossEntry(build, f"(1 − λ)·{row.rank} + λ·{row.decomposability}", row.paper, parameters)
