"""Holds what training changes, model, losses and optimisers: begun from a recipe, saved to and restored from checkpoints."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn

from hbench.core.errors import ConfigError, DataError, UsageError
from hbench.datasets import Dataset
from hbench.datasets.manifest import Manifest
from hbench.train.images.batches import images_of, in_order, workers_for
from hbench.train.models.model import EmbeddingModel, begin_projection_by_pca, build_model
from hbench.train.processes import ALONE, Processes, distributed
from hbench.train.recipes.recipe import Optimizer, Recipe, Schedule
from hbench.train.records import checkpoints
from hbench.train.step import Objective, build_objective

Factor = Callable[[int, int, Schedule], float]  # epochs since the warm-up, epochs in all -> share of the learning rate

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
    schedule = recipe.schedule
    factor = FACTORS[schedule.name](max(0, epoch - schedule.warm_up), recipe.epochs, schedule)
    rates = {}
    for group in (group for optimizer in optimizers for group in optimizer.param_groups):
        lowest = min(group["lr_min"], group["lr_max"]) if schedule.name == "cosine" else 0.0
        resting = group["name"] == BODY and epoch < schedule.warm_up
        group["lr"] = 0.0 if resting else lowest + (group["lr_max"] - lowest) * factor
        rates[group["name"]] = group["lr"]
    return rates


def let_body_rest(run: TrainingRun, processes: Processes, *, resting: bool) -> None:
    """Differentiate the pretrained weights, or do not: during warm-up they rest, and most of a step is spared."""
    groups = [group for optimizer in run.optimizers for group in optimizer.param_groups if group["name"] == BODY]
    body = [weight for group in groups for weight in group["params"]]
    if any(weight.requires_grad == resting for weight in body):
        for weight in body:
            weight.requires_grad_(not resting)
        run.embed = distributed(
            run.model, processes
        )  # DistributedDataParallel waits for the weights that it saw at first


def _group(name: str, weights: Iterable[nn.Parameter], settings: Optimizer, rate: float) -> dict[str, Any]:
    kept = [weight for weight in weights if weight.requires_grad]
    return {"params": kept, "name": name, "lr": rate, "lr_max": rate, "lr_min": settings.lr_min, "clip": settings.clip}


def _optimizer(settings: Optimizer, groups: list[dict[str, Any]]) -> torch.optim.Optimizer:
    if settings.name == "sgd":
        return torch.optim.SGD(
            groups, momentum=settings.momentum, nesterov=settings.nesterov, weight_decay=settings.weight_decay
        )
    kind = torch.optim.Adam if settings.name == "adam" else torch.optim.AdamW
    return kind(groups, weight_decay=settings.weight_decay)


PCA_IMAGES = 8192
PRECISIONS = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


class BestStep(NamedTuple):
    """The step whose checkpoint validated best, its score, and how many validations since then were no better."""

    step: int
    score: float
    missed: int = 0


@dataclass
class TrainingRun:
    """The model (`embed`: as the processes share it), the losses, the optimisers, float16's scaler, the steps taken, and the
    best of them where the run validates."""

    model: EmbeddingModel
    embed: nn.Module
    objective: Objective
    optimizers: list[torch.optim.Optimizer]
    scaler: torch.amp.GradScaler
    layout: torch.memory_format = torch.contiguous_format
    step: int = 0
    best: BestStep | None = None

    def save(self, folder: Path) -> None:
        """Write a checkpoint into the run's folder."""
        state = {
            "objective": self.objective.state_dict(),
            "optimizers": [optimizer.state_dict() for optimizer in self.optimizers],
            "scaler": self.scaler.state_dict(),
            "random": checkpoints.random_state(),
            "best": self.best and self.best._asdict(),
        }
        checkpoints.save(folder, self.step, model=self.model, state=state)

    def restore(self, folder: Path) -> None:
        """Go on from a checkpoint. Raises DataError where it cannot be read or is of another model."""
        state = checkpoints.load_state(folder)
        checkpoints.load_model(folder, self.model)
        self.objective.load_state_dict(state["objective"])
        for optimizer, saved in zip(self.optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(saved)
        self.scaler.load_state_dict(state["scaler"])
        checkpoints.set_random_state(state["random"])
        self.step = state["step"]
        self.best = BestStep(**state["best"]) if state["best"] else None


def begin(recipe: Recipe, data: Dataset, processes: Processes = ALONE) -> TrainingRun:
    """A run before its first step; everything that begins at random begins from the recipe's seed."""
    manifest, device = training_manifest(data), processes.device
    torch.manual_seed(recipe.seed)
    model = build_model(recipe.model, recipe.images).to(device)
    _refuse_two_passes(model, recipe)
    precision = precision_on(device) if recipe.precision == "auto" else recipe.precision
    model.precision = PRECISIONS[precision]
    if recipe.model.projection == "pca":
        _begin_projection(model, recipe, data, device)
    layout = torch.channels_last if recipe.model.channels_last else torch.contiguous_format
    model = model.to(memory_format=layout)
    if recipe.model.compile:
        model.backbone.compile()
    objective = build_objective(recipe.losses, manifest.labels, model.dim).to(device)
    scaler = torch.amp.GradScaler(device.type, enabled=precision == "float16")
    embed, optimizers = distributed(model.train(), processes), build_optimizers(recipe, model, objective)
    if recipe.schedule.warm_up and not any(g["name"] != BODY for each in optimizers for g in each.param_groups):
        raise ConfigError(
            "nothing would learn during the warm-up: the net has no projection, and the losses have no weights",
            expected="schedule.warm_up = 0", found=f"{recipe.schedule.warm_up}",
        )  # fmt: skip
    return TrainingRun(model, embed, objective, optimizers, scaler, layout)


def precision_on(device: torch.device) -> str:
    """What a net computes in unless it is said: bfloat16 on a GPU that has it, else float32."""
    return "bfloat16" if device.type == "cuda" and torch.cuda.is_bf16_supported() else "float32"


def training_manifest(data: Dataset) -> Manifest:
    """The dataset's training manifest; DataError where it has none."""
    if data.train is None:
        raise DataError(f"{data.name} has no training images", fix="hbench datasets lists those that have")
    return data.train


def _refuse_two_passes(model: EmbeddingModel, recipe: Recipe) -> None:
    norms = [part for part in model.modules() if isinstance(part, nn.modules.batchnorm._BatchNorm)]
    if recipe.two_pass and norms and not model.freeze_batch_norm:
        raise UsageError(
            "two passes would give the batch norms other batches",
            fix="--set model.freeze_batch_norm=true or two_pass=0",
        )


def _begin_projection(model: EmbeddingModel, recipe: Recipe, data: Dataset, device: torch.device) -> None:
    manifest = training_manifest(data)
    images = images_of(data.name, manifest, recipe.images, vary=False)
    some = np.random.default_rng(recipe.seed).permutation(len(manifest))[:PCA_IMAGES]
    workers = workers_for(images, recipe.images)
    batches = in_order(images, some, batch=recipe.sampler.batch, workers=workers, device=device)
    begin_projection_by_pca(model.eval(), (pixels for pixels, _ in batches))
