"""Optimisers and learning rates: a rate is a pure function of the epoch, so that nothing but the optimiser has a state.

>>> cosine(0, 100, Schedule()), cosine(50, 100, Schedule())
(1.0, 0.5)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn

from hbench.train.model import EmbeddingModel
from hbench.train.recipe import Optimizer, Recipe, Schedule

Factor = Callable[[int, int, Schedule], float]  # epoch from 0, epochs -> share of the learning rate

BODY, HEAD, PROXIES = "body", "head", "proxies"


def cosine(epoch: int, epochs: int, _schedule: Schedule) -> float:
    """½ (1 + cos(π epoch / epochs))."""
    return (1 + math.cos(math.pi * epoch / epochs)) / 2


def constant(_epoch: int, _epochs: int, _schedule: Schedule) -> float:
    """1."""
    return 1.0


def steps(epoch: int, _epochs: int, schedule: Schedule) -> float:
    """γ to the number of milestones passed."""
    return float(schedule.gamma ** sum(epoch >= milestone for milestone in schedule.milestones))


FACTORS: dict[str, Factor] = {"cosine": cosine, "constant": constant, "steps": steps}


def build_optimizers(recipe: Recipe, model: EmbeddingModel, objective: nn.Module) -> list[torch.optim.Optimizer]:
    """The net's optimiser, with groups body and head, and that of the proxies where they have one of their own."""
    settings, proxies = recipe.optimizer, list(objective.parameters())
    groups = [
        _group(BODY, model.body(), settings, settings.lr),
        _group(HEAD, model.head(), settings, settings.lr * settings.head),
    ]
    own = recipe.proxies
    if proxies and own is None:
        groups.append(_group(PROXIES, proxies, settings, settings.lr * settings.head))
    optimizers = [_optimizer(settings, [group for group in groups if group["params"]])]
    if proxies and own is not None:
        optimizers.append(_optimizer(own, [_group(PROXIES, proxies, own, own.lr)]))
    return optimizers


def set_rates(optimizers: Iterable[torch.optim.Optimizer], recipe: Recipe, epoch: int) -> dict[str, float]:
    """Set every group's learning rate for an epoch, and return them by name; during warm-up the body's is 0."""
    factor = FACTORS[recipe.schedule.name](epoch, recipe.epochs, recipe.schedule)
    rates = {}
    for group in (group for optimizer in optimizers for group in optimizer.param_groups):
        lowest = min(group["lr_min"], group["lr_max"])
        resting = group["name"] == BODY and epoch < recipe.schedule.warm_up
        group["lr"] = 0.0 if resting else lowest + (group["lr_max"] - lowest) * factor
        rates[group["name"]] = group["lr"]
    return rates


def _group(name: str, weights: Iterable[nn.Parameter], settings: Optimizer, rate: float) -> dict[str, Any]:
    kept = [weight for weight in weights if weight.requires_grad]
    return {"params": kept, "name": name, "lr": rate, "lr_max": rate, "lr_min": settings.lr_min}


def _optimizer(settings: Optimizer, groups: list[dict[str, Any]]) -> torch.optim.Optimizer:
    if settings.name == "sgd":
        return torch.optim.SGD(
            groups, momentum=settings.momentum, nesterov=settings.nesterov, weight_decay=settings.weight_decay
        )
    kind = torch.optim.Adam if settings.name == "adam" else torch.optim.AdamW
    return kind(groups, weight_decay=settings.weight_decay)
