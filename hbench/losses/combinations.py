"""A combination is a weighted sum of losses; the named ones are (1 − λ)·rank loss + λ·decomposability loss ([T] Eq. 2)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from hbench.errors import ConfigError
from hbench.losses.entries import LossEntry


class WeightedSum(nn.Module):
    """Σ w_i · loss_i(…), each with the same arguments."""

    def __init__(self, losses: Sequence[nn.Module], weights: Sequence[float]) -> None:
        super().__init__()
        if not losses or len(losses) != len(weights):
            raise ConfigError(
                "a sum needs losses with one weight each", expected="one weight per loss", found=f"{len(weights)}"
            )
        self.losses, self.weights = nn.ModuleList(losses), tuple(weights)

    def forward(
        self,
        embeddings: Tensor,
        labels: Tensor,
        ref_embeddings: Tensor | None = None,
        ref_labels: Tensor | None = None,
        self_index: Tensor | None = None,
    ) -> Tensor:
        terms = [
            weight * loss(embeddings, labels, ref_embeddings, ref_labels, self_index)
            for weight, loss in zip(self.weights, self.losses, strict=True)
        ]
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
