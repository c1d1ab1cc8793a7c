"""References are what a loss ranks for its queries: the batch itself, or a set of their own such as a memory of past batches."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from hbench.errors import ConfigError


class References(NamedTuple):
    """embeddings (N, D), labels (N, L), and self_index (B,): which reference each query is, −1 for none."""

    embeddings: Tensor
    labels: Tensor
    self_index: Tensor


def resolve_references(
    embeddings: Tensor,
    labels: Tensor,
    ref_embeddings: Tensor | None,
    ref_labels: Tensor | None,
    self_index: Tensor | None,
) -> References:
    """The references a loss was given, or the batch itself, where every query is its own reference."""
    if labels.ndim != 2 or labels.shape[0] != embeddings.shape[0]:
        raise ConfigError(
            "the labels do not fit the embeddings",
            expected=f"labels ({embeddings.shape[0]}, L), coarse to fine",
            found=f"labels {tuple(labels.shape)}",
        )
    if ref_embeddings is None or ref_labels is None:
        return References(embeddings, labels, torch.arange(len(labels), device=labels.device))
    none = torch.full((len(labels),), -1, device=labels.device)
    return References(ref_embeddings, ref_labels, none if self_index is None else self_index)
