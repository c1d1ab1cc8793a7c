"""Builds losses by name. Each loss is an nn.Module of embeddings and hierarchical labels.

    loss = build_loss("happier", classes=11318, dim=512)
    value = loss(embeddings, labels)    # (B, D), int64 (B, L) coarse to fine -> scalar
    value = loss(embeddings, labels, ref_embeddings, ref_labels)  # the queries rank the references

>>> import torch
>>> x = torch.nn.functional.normalize(torch.tensor([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0]]))
>>> build_loss("sup_ap")(
...     x, torch.tensor([[0, 0], [0, 0], [0, 1]])
... ).item() < 1e-6  # already ranked, with a margin
True

Plugins add names through the entry-point group "hbench.losses", as a LossEntry or as a class or
function.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import nn

from hbench.core.arguments import checked
from hbench.core.errors import ConfigError
from hbench.core.registry import Registry
from hbench.losses.baselines.blackbox import blackbox_rank
from hbench.losses.baselines.decomposability import decomposability_gap
from hbench.losses.catalogue import catalogue
from hbench.losses.entry import REQUIRED, LossEntry, entry_of
from hbench.losses.wrappers import CrossBatchMemory, per_level

__all__ = [
    "CrossBatchMemory", "LossEntry", "blackbox_rank", "build_loss", "decomposability_gap",
    "loss_entry", "losses",
    "per_level",
]  # fmt: skip

losses: Registry[LossEntry | Callable[..., nn.Module]] = Registry("loss", group="hbench.losses")
for _name, _entry in catalogue().items():
    losses.register(_name)(_entry)


@checked
def build_loss(name: str, **params: Any) -> nn.Module:
    """Build a loss by name, such as "happier".

    For a dataset, use `hbench.build_loss_for`: it fills in classes, paths and dim, and returns the
    labels, too.

    Args:
        name: one of `hbench.list_losses()`; `hbench losses NAME` shows its formula and paper.
        **params: replace the defaults of the loss's parameters, which `hbench losses NAME` lists.

    Returns:
        An nn.Module with forward(embeddings (B, D), labels int64 (B, L), ref_embeddings=None,
        ref_labels=None) -> scalar. Labels are coarse to fine. Without references (N, D), the
        queries rank the batch itself.

    Raises:
        UnknownName: a loss that does not exist.
        ConfigError: a parameter that the loss does not have or cannot use.
    """
    entry = loss_entry(name)
    return entry(name, params)  # the name is for the loss's repr and for errors


@checked
def loss_entry(name: str) -> LossEntry:
    """Look up the entry of a loss. A plugin may register a class or function instead of an entry:
    the entry is then made here, with the first line of the docstring as formula.

    Args:
        name: of `hbench.list_losses()`.

    Returns:
        The entry: how to build it, its formula, paper and parameters.

    Raises:
        UnknownName: no loss of this name.
    """
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
    """Build a loss by name and apply it to the batch and to a memory of the last `size` embeddings.

    `params`: of the inner loss. `warm_up`: how many batches come before the memory is used.
    `batch_weight`, `memory_weight`: the weights of the two losses in their mean.
    """
    inner = build_loss(loss, **(params or {}))
    return CrossBatchMemory(
        inner, size, warm_up=warm_up, batch_weight=batch_weight, memory_weight=memory_weight
    )


losses.register("xbm")(
    entry_of(cross_batch_memory, "½ (loss(batch) + loss(batch, memory))", "Wang et al., CVPR 2020")
)


def per_level_of(
    loss: str, params: Mapping[str, Any] | None = None, level_classes: Sequence[int] | None = None
) -> nn.Module:
    """Build a loss by name, and sum it over all levels.

    `params`: of the loss. `level_classes`: for a loss with proxies, the number of classes of each
    level, coarse to fine. A loss is then built for each level, since the number of proxies is that
    of the classes; without proxies, one loss serves all levels.
    """
    _refuse_for_levels(loss, params or {}, level_classes)
    if level_classes is None:
        return per_level(build_loss(loss, **(params or {})))
    return per_level(
        [build_loss(loss, classes=number, **(params or {})) for number in level_classes]
    )


def _refuse_for_levels(
    loss: str, params: Mapping[str, Any], level_classes: Sequence[int] | None
) -> None:
    """Raise ConfigError for a loss that is of all levels itself, or one with proxies without
    `level_classes`: each level has classes of its own. `params`: of the loss."""
    known = loss_entry(loss).parameters
    needed = {name for name, default in known.items() if default is REQUIRED} - params.keys()
    if "paths" in needed:
        raise ConfigError(
            f"{loss} is a loss of all levels itself",
            expected="a loss of the finest level",
            found=f"per_level of {loss!r}",
            fix=f"take {loss} by itself",
        )
    if "classes" in needed and level_classes is None:
        raise ConfigError(
            f"per_level needs the number of classes of each level for {loss}, which has proxies",
            expected="level_classes, coarse to fine",
            found="no level_classes",
            fix=f"build_loss('per_level', loss={loss!r}, level_classes=[…], params={{'dim': …}}), "
            "or hbench.build_loss_for, which fills them in",
        )


losses.register("per_level")(entry_of(per_level_of, "Σ_l loss", "HAPPIER (ECCV 2022) Table 1"))
