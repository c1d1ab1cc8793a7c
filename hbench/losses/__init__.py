"""Builds losses by name: each is an nn.Module of embeddings and hierarchical labels.

    loss = build_loss("happier", classes=11318, dim=512)
    value = loss(embeddings, labels)    # (B, D), int64 (B, L) coarse to fine -> scalar
    value = loss(embeddings, labels, ref_embeddings, ref_labels)  # ranked in a separate set

>>> import torch
>>> x = torch.nn.functional.normalize(torch.tensor([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0]]))
>>> build_loss("sup_ap")(x, torch.tensor([[0, 0], [0, 0], [0, 1]])).item() < 1e-6  # already ranked, with a margin
True

Plugins add names through the entry-point group "hbench.losses", as a LossEntry or as a class or function.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import nn

from hbench.core.registry import Registry
from hbench.losses.baselines.blackbox import blackbox_rank
from hbench.losses.baselines.decomposability import decomposability_gap
from hbench.losses.catalogue import catalogue
from hbench.losses.entry import LossEntry, entry_of
from hbench.losses.wrappers import CrossBatchMemory, per_level

__all__ = [
    "CrossBatchMemory",
    "LossEntry",
    "blackbox_rank",
    "build_loss",
    "decomposability_gap",
    "loss_entry",
    "losses",
    "per_level",
]

losses: Registry[LossEntry | Callable[..., nn.Module]] = Registry("loss", group="hbench.losses")
for _name, _entry in catalogue().items():
    losses.register(_name)(_entry)


def build_loss(name: str, **params: Any) -> nn.Module:
    """The loss of that name: forward(embeddings (B, D), labels int64 (B, L), ref_embeddings=None, ref_labels=None) -> scalar.

    Raises UnknownName for a name and ConfigError for a parameter that does not exist or cannot be.
    """
    return loss_entry(name)(name, params)


def loss_entry(name: str) -> LossEntry:
    """The entry of that name; a plugin that is a class or function gets one, with the first line of its docstring."""
    entry = losses[name]
    if isinstance(entry, LossEntry):
        return entry
    return entry_of(entry, (entry.__doc__ or "").strip().split("\n")[0], "plugin")


def cross_batch_memory(
    loss: str,
    size: int,
    params: Mapping[str, Any] | None = None,
    *,
    warm_up: int = 0,
    batch_weight: float = 1.0,
    memory_weight: float = 1.0,
) -> nn.Module:
    """The named loss, with its parameters, on the batch and on a memory of the last `size` embeddings."""
    inner = build_loss(loss, **(params or {}))
    return CrossBatchMemory(inner, size, warm_up=warm_up, batch_weight=batch_weight, memory_weight=memory_weight)


losses.register("xbm")(entry_of(cross_batch_memory, "½ (loss(batch) + loss(batch, memory))", "Wang et al., CVPR 2020"))


def per_level_of(
    loss: str, params: Mapping[str, Any] | None = None, level_classes: Sequence[int] | None = None
) -> nn.Module:
    """The named loss at every level: one for all, or, with the classes of each level, one with proxies of its own."""
    given = params or {}
    if level_classes is None:
        return per_level(build_loss(loss, **given))
    return per_level([build_loss(loss, classes=number, **given) for number in level_classes])


losses.register("per_level")(entry_of(per_level_of, "Σ_l loss", "HAPPIER (ECCV 2022) Table 1"))
