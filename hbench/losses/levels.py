"""A per-level loss is the sum of one fine-level loss at every level of the label tree (Σ in [E] Table 1)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from hbench.errors import ConfigError


class PerLevel(nn.Module):
    """Σ_l loss_l(embeddings, labels[:, :l], …): the l-th loss sees the first l columns, of which the last is its finest.

    One loss alone, which then has no proxies of its own, serves every level of any tree.
    """

    def __init__(self, losses: nn.Module | Sequence[nn.Module]) -> None:
        super().__init__()
        self.every = losses if isinstance(losses, nn.Module) else None
        self.losses = nn.ModuleList([] if isinstance(losses, nn.Module) else losses)

    def forward(
        self,
        embeddings: Tensor,
        labels: Tensor,
        ref_embeddings: Tensor | None = None,
        ref_labels: Tensor | None = None,
        self_index: Tensor | None = None,
    ) -> Tensor:
        losses = list(self.losses) if self.every is None else [self.every] * labels.shape[1]
        if labels.shape[1] != len(losses):
            raise ConfigError(
                "the levels of the labels and of the loss differ",
                expected=f"labels of {len(losses)} levels",
                found=f"{labels.shape[1]} levels",
            )
        terms = [
            loss(
                embeddings,
                labels[:, :level],
                ref_embeddings,
                None if ref_labels is None else ref_labels[:, :level],
                self_index,
            )
            for level, loss in enumerate(losses, start=1)
        ]
        return torch.stack(terms).sum()


def per_level(losses: nn.Module | Sequence[nn.Module]) -> nn.Module:
    """The sum over levels of a loss, or of one loss for every level, coarse to fine."""
    return PerLevel(losses)
