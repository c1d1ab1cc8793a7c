"""Makes the gradient of a step: of the whole batch's loss, directly or in two passes over parts of it.

Two passes ([24] in [T]): embed without a graph; take ∂L/∂embeddings; embed each part again and push its rows of that
gradient through. The gradient is the same, and only one part's graph is held at a time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from hbench.losses import build_loss, loss_entry
from hbench.losses.entry import REQUIRED
from hbench.losses.partial import leave_unknown_out
from hbench.train.processes import Processes, gather
from hbench.train.recipes.recipe import LossSpec
from hbench.tree import Labels

Scale = Callable[[Tensor], Tensor]  # the gradient scaler of float16
LossAndTerms = tuple[Tensor, dict[str, Tensor]]  # detached; none of them is waited for


class StepValues(NamedTuple):
    """What a step gave: the loss, its terms, the length of the gradient before it was clipped; `finite`: whether the run may
    continue from it, as it may where float16's scaler left a step out."""

    loss: float
    terms: dict[str, float]
    gradient_norm: float
    finite: bool


class StepTensors(NamedTuple):
    """What a step gave, still on its device: `values` are the loss, the gradient's length and the terms of `names`; `scaled`:
    whether the gradient was scaled for float16."""

    values: Tensor
    names: tuple[str, ...]
    scaled: bool

    def read(self) -> StepValues:
        """The values as numbers, for which the host waits for the device."""
        return read_all([self])[0]


def read_all(steps: Sequence[StepTensors]) -> list[StepValues]:
    """The values of several steps as numbers, in one transfer."""
    found = []
    for step, row in zip(steps, torch.stack([step.values for step in steps]).tolist(), strict=True):
        loss, length, *terms = row
        # A gradient that overflows float16 is everyday: its scaler leaves the step out and scales less from there on.
        finite = math.isfinite(loss) and (step.scaled or math.isfinite(length))
        found.append(StepValues(loss, dict(zip(step.names, terms, strict=True)), length, finite))
    return found


# Leaves the gradients of a batch's loss in the weights: the signature of `direct`, whose process has images and labels (B/W, …).
TrainStep = Callable[..., LossAndTerms]


def direct(
    embed: nn.Module, objective: nn.Module, images: Tensor, labels: Tensor, *, processes: Processes, scale: Scale
) -> LossAndTerms:
    """The gradient by one graph of the whole batch."""
    embeddings = gather(embed(images), processes)
    total, terms = objective(embeddings, gather(labels, processes))
    scale(total).backward()  # type: ignore[no-untyped-call]
    return _detached(total, terms)


def in_two_passes(part: int) -> TrainStep:
    """`direct` with the graph of only `part` images at a time."""

    def step(
        embed: nn.Module, objective: nn.Module, images: Tensor, labels: Tensor, *, processes: Processes, scale: Scale
    ) -> LossAndTerms:
        pieces = torch.split(images, part)
        states = []
        with torch.no_grad():
            vectors = []
            for piece in pieces:
                states.append(_random_state(images.device))
                vectors.append(embed(piece))
        leaf = torch.cat(vectors).requires_grad_()
        total, terms = objective(gather(leaf, processes), gather(labels, processes))
        scale(total).backward()  # type: ignore[no-untyped-call]
        assert leaf.grad is not None
        after = _random_state(images.device)
        for piece, gradient, state in zip(pieces, torch.split(leaf.grad, part), states, strict=True):
            _set_random_state(state)
            with nullcontext() if piece is pieces[-1] else _unsynchronised(embed):
                embed(piece).backward(gradient)
        _set_random_state(after)
        return _detached(total, terms)

    return step


def _unsynchronised(embed: nn.Module) -> AbstractContextManager[None]:
    """Gradients stay in this process until the last part."""
    if isinstance(embed, nn.parallel.DistributedDataParallel):
        synced: AbstractContextManager[None] = embed.no_sync()
        return synced
    return nullcontext()


def _random_state(device: torch.device) -> list[Tensor]:
    """The generators a net may draw from, so that both passes drop the same units."""
    return [torch.get_rng_state(), *([torch.cuda.get_rng_state(device)] if device.type == "cuda" else [])]


def _set_random_state(state: list[Tensor]) -> None:
    torch.set_rng_state(state[0])
    if len(state) > 1:
        torch.cuda.set_rng_state(state[1])


def _detached(total: Tensor, terms: dict[str, Tensor]) -> LossAndTerms:
    return total.detach(), {name: term.detach() for name, term in terms.items()}


class Objective(nn.Module):
    """forward(embeddings, labels) -> the total and every loss by name, unweighted."""

    def __init__(self, losses: Mapping[str, nn.Module], weights: Mapping[str, float]) -> None:
        super().__init__()
        self.losses, self.weights = nn.ModuleDict(losses), dict(weights)

    def forward(self, embeddings: Tensor, labels: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        terms = {name: loss(embeddings, labels) for name, loss in self.losses.items()}
        return torch.stack([self.weights[name] * term for name, term in terms.items()]).sum(), terms


def build_objective(specs: Mapping[str, LossSpec], labels: Labels, dim: int) -> Objective:
    """The losses of a recipe for training labels (N, L), −1 where nothing is known. Raises UnknownName and ConfigError as
    build_loss does, and ConfigError for a loss that needs every label."""
    facts = facts_of(labels, dim)
    losses = {name: build_loss(name, **completed(name, spec.params, facts)) for name, spec in specs.items()}
    if (labels < 0).any():
        losses = {name: leave_unknown_out(loss) for name, loss in losses.items()}
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
    path_lists: list[list[int]] = paths.tolist()
    return path_lists
