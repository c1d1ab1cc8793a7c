"""A run is what training changes: model, losses, optimisers; it begins from a recipe and goes on from a checkpoint."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import nn

from hbench.datasets import Dataset
from hbench.errors import DataError, UsageError
from hbench.manifest import Manifest
from hbench.train import checkpoint
from hbench.train.data import images_of, in_order
from hbench.train.model import EmbeddingModel, begin_projection_by_pca, build_model
from hbench.train.objective import Objective, build_objective
from hbench.train.optimise import build_optimizers
from hbench.train.processes import ALONE, Processes, distributed
from hbench.train.recipe import Recipe

PCA_IMAGES = 8192
PRECISIONS = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


@dataclass
class Run:
    """The model (`embed`: as the processes share it), the losses, the optimisers, float16's scaler, the steps taken."""

    model: EmbeddingModel
    embed: nn.Module
    objective: Objective
    optimizers: list[torch.optim.Optimizer]
    scaler: torch.amp.GradScaler
    layout: torch.memory_format = torch.contiguous_format
    step: int = 0

    def save(self, folder: Path) -> None:
        """Write a checkpoint into the run's folder."""
        state = {
            "objective": self.objective.state_dict(),
            "optimizers": [optimizer.state_dict() for optimizer in self.optimizers],
            "scaler": self.scaler.state_dict(),
            "random": checkpoint.random_state(),
        }
        checkpoint.save(folder, self.step, model=self.model, state=state)

    def restore(self, folder: Path) -> None:
        """Go on from a checkpoint. Raises DataError where it cannot be read or is of another model."""
        state = checkpoint.load_state(folder)
        checkpoint.load_model(folder, self.model)
        self.objective.load_state_dict(state["objective"])
        for optimizer, saved in zip(self.optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(saved)
        self.scaler.load_state_dict(state["scaler"])
        checkpoint.set_random_state(state["random"])
        self.step = state["step"]


def begin(recipe: Recipe, data: Dataset, processes: Processes = ALONE) -> Run:
    """A run before its first step; everything that begins at random begins from the recipe's seed."""
    manifest, device = training_manifest(data), processes.device
    torch.manual_seed(recipe.seed)
    model = build_model(recipe.model).to(device)
    _refuse_two_passes(model, recipe)
    model.precision = PRECISIONS[recipe.precision]
    if recipe.model.projection == "pca":
        _begin_projection(model, recipe, data, device)
    layout = torch.channels_last if recipe.model.channels_last else torch.contiguous_format
    model = model.to(memory_format=layout)
    if recipe.model.compile:
        model.backbone.compile()
    objective = build_objective(recipe.losses, manifest.labels, model.dim).to(device)
    scaler = torch.amp.GradScaler(device.type, enabled=recipe.precision == "float16")
    embed = distributed(model.train(), processes)
    return Run(model, embed, objective, build_optimizers(recipe, model, objective), scaler, layout)


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
    batches = in_order(images, some, batch=recipe.sampler.batch, workers=recipe.images.workers)
    begin_projection_by_pca(model.eval(), (pixels.to(device) for pixels, _ in batches))
