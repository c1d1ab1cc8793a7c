"""The objective: the weighted sum of a recipe's losses, each told apart so that it can be watched.

total = Σ weight · loss(embeddings (B, D), labels (B, L))
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from hbench.losses import build_loss, loss_entry
from hbench.losses.entries import REQUIRED
from hbench.train.recipe import LossSpec
from hbench.tree import Labels


class Objective(nn.Module):
    """forward(embeddings, labels) -> the total and every loss by name, unweighted."""

    def __init__(self, losses: Mapping[str, nn.Module], weights: Mapping[str, float]) -> None:
        super().__init__()
        self.losses, self.weights = nn.ModuleDict(losses), dict(weights)

    def forward(self, embeddings: Tensor, labels: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        terms = {name: loss(embeddings, labels) for name, loss in self.losses.items()}
        return torch.stack([self.weights[name] * term for name, term in terms.items()]).sum(), terms


def build_objective(specs: Mapping[str, LossSpec], labels: Labels, dim: int) -> Objective:
    """The losses of a recipe for training labels (N, L). Raises UnknownName and ConfigError as build_loss does."""
    facts = facts_of(labels, dim)
    losses = {name: build_loss(name, **completed(name, spec.params, facts)) for name, spec in specs.items()}
    return Objective(losses, {name: spec.weight for name, spec in specs.items()})


def facts_of(labels: Labels, dim: int) -> dict[str, Any]:
    """What losses need to know of the data: the numbers of classes, fine and at every level; paths; dimension."""
    paths = _paths(labels)
    counts = [int(labels[:, level].max()) + 1 for level in range(labels.shape[1])]
    return {"classes": counts[-1], "level_classes": counts, "paths": paths, "dim": dim}


def completed(name: str, params: Mapping[str, Any], facts: Mapping[str, Any]) -> dict[str, Any]:
    """`params`, and those the loss requires and they lack, from the facts; likewise for the loss inside a memory."""
    entry = loss_entry(name)
    missing = [key for key, default in entry.parameters.items() if default is REQUIRED and key not in params]
    given = {**{key: facts[key] for key in missing if key in facts}, **params}
    if name == "xbm" and "loss" in given:
        given["params"] = completed(given["loss"], given.get("params", {}), facts)
    return given


def _paths(labels: Labels) -> list[list[int]]:
    """The path of every fine class 0 … C−1, coarse to fine; a class without items shares the first's."""
    paths = labels[:1].repeat(int(labels[:, -1].max()) + 1, axis=0)
    paths[labels[:, -1]] = labels
    found: list[list[int]] = paths.tolist()
    return found
