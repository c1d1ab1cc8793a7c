"""The state of a training run (model, losses, optimisers): begins it from a recipe, saves it and
restores it.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from hbench.core.errors import ConfigError, DataError, UsageError
from hbench.datasets import Dataset
from hbench.datasets.manifest import Manifest
from hbench.losses.partial import unknown_as_minus_one
from hbench.train.images.batches import images_of, in_order, workers_for
from hbench.train.models.blocks import recompute
from hbench.train.models.model import EmbeddingModel, begin_projection_by_pca, build_model
from hbench.train.processes import SINGLE_PROCESS, Processes, distributed
from hbench.train.recipes.recipe import Recipe
from hbench.train.records import checkpoints
from hbench.train.steps.gradients import Objective, build_objective
from hbench.train.steps.optimizers import BODY, build_optimizers, skips_on_the_device

PCA_IMAGES = 8192  # the most images whose features a projection by PCA is fitted to
PRECISIONS = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


class BestStep(NamedTuple):
    """The best validation so far: its step, its score, and the number of later validations, none
    of which was better (`missed`).
    """

    step: int
    score: float
    missed: int = 0


@dataclass
class TrainingRun:
    """The state of a run.

    Attributes:
        model: the model that learns.
        embed: the model, wrapped if several processes train it.
        objective: the losses.
        optimizers: of model and losses.
        scaler: the gradient scaler of float16; disabled for other precisions.
        layout: the memory format of images.
        step: the number of launched steps.
        best: the best validation; None without any.
        halted: on a GPU a bool () on the device: whether a step was not finite, so that no later
            step changes anything. None if the host decides that.
        data: the digest of the training data.
        average: the moving average of the weights; None if the recipe has none.
    """

    model: EmbeddingModel
    embed: nn.Module
    objective: Objective
    optimizers: list[torch.optim.Optimizer]
    scaler: torch.amp.GradScaler
    layout: torch.memory_format = torch.contiguous_format
    step: int = 0
    best: BestStep | None = None
    halted: Tensor | None = None
    data: str = ""
    average: AveragedModel | None = None

    @property
    def tested(self) -> EmbeddingModel:
        """The model that is validated, saved and tested: with averaged weights if there are any."""
        return self.model if self.average is None else cast("EmbeddingModel", self.average.module)

    @property
    def runs_ahead(self) -> bool:
        """Whether steps are launched before the host knows the values of earlier ones. This is so
        on GPUs, except with the scaler of float16.
        """
        return self.halted is not None

    def save(self, folder: Path) -> None:
        """Write a checkpoint to the run's folder: the tested model, and the state from which a run
        can be resumed. If weights are averaged, the tested model has the average, and the state
        also has the weights themselves. `self.data`: the digest of the training data."""
        state: dict[str, Any] = {
            "objective": self.objective.state_dict(),
            "optimizers": [optimizer.state_dict() for optimizer in self.optimizers],
            "scaler": self.scaler.state_dict(),
            "random": checkpoints.random_state(),
            "best": None if self.best is None else self.best._asdict(),
            "data": self.data,
        }
        if self.average is not None:
            state["weights"] = self.model.state_dict()
            state["averaged"] = self.average.n_averaged
        checkpoints.save(folder, self.step, model=self.tested, state=state)

    def restore(self, folder: Path) -> None:
        """Continue from the checkpoint in `folder`. Raises DataError if it cannot be read, or
        belongs to another model or to other training data (by the digest in `data`).
        """
        state = checkpoints.load_state(folder)
        # checkpoints of older versions lack the digest, and pass
        if state.get("data", self.data) != self.data:
            raise DataError(
                "the training data have changed since this run began",
                expected=f"digest {state['data']!s:.12}…",
                found=f"digest {self.data[:12]}…",
                fix="train in another folder, or build the former dataset again",
            )

        checkpoints.load_model(folder, self.tested)
        with checkpoints.usable(folder / checkpoints.STATE):
            # if there is an average, `self.tested` above is the averaged model; `self.model`, which
            # learns, has other weights
            if self.average is not None:
                self.model.load_state_dict(state["weights"])
                self.average.n_averaged.copy_(state["averaged"])
            self.objective.load_state_dict(state["objective"])
            for optimizer, saved in zip(self.optimizers, state["optimizers"], strict=True):
                for group, kept in zip(optimizer.param_groups, saved["param_groups"], strict=True):
                    if "fused" in group:  # depends on this device, not on the one that saved
                        kept["fused"] = group["fused"]
                optimizer.load_state_dict(saved)
            self.scaler.load_state_dict(state["scaler"])
            checkpoints.set_random_state(state["random"])
            self.step = int(state["step"])
            self.best = BestStep(**state["best"]) if state["best"] else None


def begin(recipe: Recipe, data: Dataset, processes: Processes = SINGLE_PROCESS) -> TrainingRun:
    """Make a run, ready for its first step. The recipe's seed determines all random weights.

    The order of the steps below matters: PCA is fitted to features of the initial net, and the
    average copies the model before recomputing and compiling wrap its layers.
    """
    manifest = training_manifest(data)
    device = processes.device
    torch.manual_seed(recipe.seed)
    model = build_model(recipe.model, recipe.images).to(device)
    # batch norms that would see only parts of a batch, or the same batch twice
    _refuse_partial_norms(recipe, model)
    precision = _precision(recipe, device)
    model.precision = PRECISIONS[precision]
    if recipe.model.projection == "pca":
        _begin_projection(model, recipe, data, device)
    on_gpu = device.type == "cuda"
    layout = _layout(recipe, on_gpu=on_gpu)
    model = model.to(memory_format=layout)
    average = _averaged(recipe, model)
    if recipe.model.recompute:
        recompute(model.backbone)
    if recipe.model.compile:
        model.compile_backbone()
    # from labels (N, L) of the training items, −1 for unknown
    objective = build_objective(
        recipe.losses, unknown_as_minus_one(manifest.labels, manifest.tree), model.dim
    ).to(device)
    scaler = torch.amp.GradScaler(device.type, enabled=precision == "float16")
    # computes the embeddings of a batch; a wrapped model for several processes
    embed = distributed(model.train(), processes)
    optimizers = build_optimizers(recipe, model, objective, fused=on_gpu)
    # the names of the groups of weights that are trained
    learning = {group["name"] for optimizer in optimizers for group in optimizer.param_groups}
    _refuse_idle_warm_up(recipe, learning)
    # The host launches steps on a GPU before it knows whether earlier ones were finite. A flag on
    # the device therefore stops all steps after a bad one. That needs optimisers that can skip a
    # step on the device.
    halted = None
    if on_gpu and not scaler.is_enabled() and all(map(skips_on_the_device, optimizers)):
        halted = torch.zeros((), dtype=torch.bool, device=device)
    return TrainingRun(
        model,
        embed,
        objective,
        optimizers,
        scaler,
        layout,
        halted=halted,
        data=manifest.digest,
        average=average,
    )


def _averaged(recipe: Recipe, model: EmbeddingModel) -> AveragedModel | None:
    """Make the exponential moving average of the model's weights and buffers, which keeps the share
    `ema` of itself at each step. None for a recipe without it."""
    if not recipe.ema:
        return None
    follow = get_ema_multi_avg_fn(recipe.ema)
    return AveragedModel(model, multi_avg_fn=follow, use_buffers=True)


def _precision(recipe: Recipe, device: torch.device) -> str:
    """Return the precision of a recipe, a key of PRECISIONS. "auto" is bfloat16 on GPUs that
    support it, where it is much faster, else float32."""
    if recipe.precision != "auto":
        return recipe.precision
    has_bfloat16 = device.type == "cuda" and torch.cuda.is_bf16_supported()
    return "bfloat16" if has_bfloat16 else "float32"


def _layout(recipe: Recipe, *, on_gpu: bool) -> torch.memory_format:
    """Return the memory format of images: channels last, or contiguous (channels first). By
    default it is channels last on GPUs, where convolutions are faster with it."""
    channels_last = recipe.model.channels_last
    if channels_last is None:
        channels_last = on_gpu
    return torch.channels_last if channels_last else torch.contiguous_format


def _refuse_partial_norms(recipe: Recipe, model: EmbeddingModel) -> None:
    """Raise UsageError if batch norms that learn would see parts of a batch instead of the whole,
    or the same batch twice."""
    norms = [part for part in model.modules() if isinstance(part, nn.modules.batchnorm._BatchNorm)]
    if not norms or model.freeze_batch_norm:
        return
    if recipe.two_pass:
        raise UsageError(
            "in two passes the batch norms would see parts of the batch only",
            fix="--set model.freeze_batch_norm=true, or --set two_pass=0",
        )
    if recipe.model.recompute:
        raise UsageError(
            "the batch norms would see every batch twice, since activations are computed again",
            fix="--set model.freeze_batch_norm=true, or --set model.recompute=false",
        )


def freeze_body(run: TrainingRun, processes: Processes, *, frozen: bool) -> None:
    """Freeze or unfreeze the pretrained weights (the body), unless they already are as `frozen`
    says. While they are frozen, in the warm-up, no gradients are computed for them, and a step
    takes much less time.
    """
    groups = [
        group
        for optimizer in run.optimizers
        for group in optimizer.param_groups
        if group["name"] == BODY
    ]
    body = [weight for group in groups for weight in group["params"]]
    if any(weight.requires_grad == frozen for weight in body):
        for weight in body:
            weight.requires_grad_(not frozen)
        # DistributedDataParallel expects gradients for exactly those weights that required them
        # when it was made, so wrap the model again
        run.embed = distributed(run.model, processes)


def _refuse_idle_warm_up(recipe: Recipe, learning: set[str]) -> None:
    """Raise ConfigError for a warm-up, during which the backbone (the body) is frozen, if nothing
    else would learn. `learning`: the names of the groups of weights that are trained."""
    if recipe.schedule.warm_up and learning <= {BODY}:
        raise ConfigError(
            "nothing would learn during the warm-up: the net has no projection, and the losses "
            "have no weights",
            expected="schedule.warm_up = 0",
            found=f"{recipe.schedule.warm_up}",
        )


def training_manifest(data: Dataset) -> Manifest:
    """Return the dataset's training manifest. Raises DataError if there is none."""
    if data.train is None:
        raise DataError(
            f"{data.name} has no training images",
            fix="hbench build NAME --from … --split-by LEVEL deals classes to training and test",
        )
    return data.train


def _begin_projection(
    model: EmbeddingModel, recipe: Recipe, data: Dataset, device: torch.device
) -> None:
    """Initialise the model's projection by a PCA of the features of at most PCA_IMAGES training
    images, which the recipe's seed chooses."""
    manifest = training_manifest(data)
    images = images_of(data.name, manifest, recipe.images, vary=False)
    some = np.random.default_rng(recipe.seed).permutation(len(manifest))[:PCA_IMAGES]
    workers = workers_for(images, recipe.images)
    # pairs of images (B, C, H, W), without augmentation, and their rows in the manifest
    batches = in_order(images, some, batch=recipe.sampler.batch, workers=workers, device=device)
    begin_projection_by_pca(model.eval(), (pixels for pixels, _ in batches))
