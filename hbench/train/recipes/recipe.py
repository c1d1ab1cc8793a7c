"""Declares a recipe, which holds all settings of a training run: dataset, images, net, batches,
losses, optimisers.

>>> recipe = build(
...     Recipe, {"dataset": "glyphs", "epochs": 2, "losses": {"smooth_ap": {}}}, source="example"
... )
>>> recipe.sampler.batch, recipe.losses["smooth_ap"].weight
(256, 1.0)

Every default is the value in most of the papers' experiments (HAPPIER, §4.1; rank losses, §VII-A).
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, model_validator

from hbench.core.schema import STRICT, build

__all__ = [
    "Aim",
    "Images",
    "LossSpec",
    "Model",
    "Optimizer",
    "Recipe",
    "Sampler",
    "Schedule",
    "build",
]

Positive = Annotated[int, Field(gt=0)]
Natural = Annotated[int, Field(ge=0)]
NonNegative = Annotated[float, Field(ge=0)]
Share = Annotated[float, Field(ge=0, le=1)]

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)


class Images(BaseModel):
    """The settings of images: they are resized to `resize`, then cropped to `size`; `augment` names
    the training variation.

    `fit`, `test_fit`: how training and test images are resized: "none" (not), "shorter" (the
    shorter side becomes `resize`, the aspect is kept) or "square" (both sides do). `scale`: the
    share of the area that a resized crop keeps, or the range of factors of `shifted`. An empty
    `interpolation`, `mean` or `std` is that of the net. `workers`: processes that decode (default:
    one per processor, at most 10).
    """

    model_config = STRICT
    size: Natural = 224
    resize: Natural = 256
    fit: Literal["none", "shorter", "square"] = "none"
    test_fit: Literal["shorter", "square"] = "shorter"
    augment: str = "resized_crop"
    scale: tuple[NonNegative, NonNegative] = (0.16, 1.0)
    flip: Share = 0.5
    mean: tuple[float, ...] = IMAGENET_MEAN
    std: tuple[float, ...] = IMAGENET_STD
    interpolation: Literal["", "nearest", "bilinear", "bicubic", "lanczos"] = "bilinear"
    workers: Natural | None = None


class Model(BaseModel):
    """The net: `backbone` as SOURCE:NAME, its `pooling`, a LayerNorm without weights, a projection
    to `dim`.

    The ResNet's weights are torchvision's first (V1), with which the published rows were trained;
    without the last part of the name they are the current ones. `l2_norm`: normalise the pooled
    features. `weights`: "pretrained", "random", or a file, whose keys the TOML file `key_map`
    renames. `dim` 0: no projection. `projection`: its initial weights, "random" or from "pca" of
    the training images' features. `channels_last`: the memory layout that is fastest for
    convolutions on GPUs (default: on GPUs).
    """

    model_config = STRICT
    backbone: str = "torchvision:resnet50/IMAGENET1K_V1"
    weights: str = "pretrained"
    key_map: str = ""
    pooling: str = "avg"
    layer_norm: bool = True
    l2_norm: bool = False
    dim: Natural = 512
    projection: Literal["random", "pca"] = "random"
    freeze_batch_norm: bool = True
    compile: bool = False
    channels_last: bool | None = None


class Sampler(BaseModel):
    """The settings of batches: `batch` items, `per_class` of each fine class.

    The sampler `hierarchical` takes classes from two coarse classes, and makes `batches_per_group`
    batches of each such pair. `m_per_class` leaves out classes of fewer than `smallest` items, and
    takes `per_epoch` items of a class per epoch (0: all).
    """

    model_config = STRICT
    name: str = "m_per_class"
    batch: Natural = 256
    per_class: Natural = 4
    batches_per_group: Positive = 5
    smallest: Positive = 1
    per_epoch: Natural = 0


class Optimizer(BaseModel):
    """The settings of an optimiser; `head` multiplies the learning rate of the projection, `lr_min`
    ends the cosine schedule.

    `clip`: longer gradients of its weights are scaled down to this length (0: never).
    """

    model_config = STRICT
    name: Literal["adam", "adamw", "sgd"] = "adam"
    lr: NonNegative = 1e-5
    weight_decay: NonNegative = 0.0
    momentum: Share = 0.0
    nesterov: bool = False
    head: NonNegative = 1.0
    lr_min: NonNegative = 0.0
    clip: NonNegative = 0.0


class Schedule(BaseModel):
    """The schedule of the learning rate. In the first `warm_up` epochs only projection and proxies
    learn, at their full rates; the schedule starts after these. A fractional `warm_up` is a share
    of the run's steps."""

    model_config = STRICT
    name: Literal["cosine", "constant", "steps"] = "cosine"
    warm_up: Natural | Share = 0
    milestones: tuple[Positive, ...] = ()
    gamma: Share = 0.1

    def warm_up_epochs(self, epochs: int) -> float:
        """Return the epochs of warm-up in a run of this many epochs."""
        return self.warm_up if isinstance(self.warm_up, int) else self.warm_up * epochs

    def is_frozen(self, step: int, in_epoch: int, epochs: int) -> bool:
        """Whether the backbone is frozen in a step, counted from 0."""
        return step + 1 <= self.warm_up_epochs(epochs) * in_epoch


class LossSpec(BaseModel):
    """The weight of a loss in the sum, and its parameters; classes, dim and paths are taken from
    dataset and net.
    """

    model_config = STRICT
    weight: NonNegative = 1.0
    params: dict[str, Any] = {}


class Aim(BaseModel):
    """The published row that a recipe should reproduce: its method in the dataset's leaderboard,
    and its table there.
    """

    model_config = STRICT
    method: str
    table: str | None = None


class Recipe(BaseModel):
    """The recipe of a training run. Values of 0 for epochs and batches follow from the dataset, for
    images from the net (sizes.py).

    `steps_per_epoch`: end an epoch after this many batches. `precision` auto: bfloat16 on a GPU.
    `two_pass`: images whose graph is in memory at once (0: the whole batch). `proxies`: the
    optimiser of the losses' weights (default: that of the net). `log_every`, `checkpoint_every`: in
    steps (0: only at the end).

    `validation`: the share of training classes, of `validation_level` or the finest level, that is
    held out and evaluated every `evaluate_every` epochs. The best checkpoint by `select_by` is
    tested; the run stops after `patience` evaluations without a better one (0: never). `tested`
    false: do not use the tests, such as while settings are being chosen; the run ends with the
    scores of the held-out classes. `source`: where the values are from.
    """

    model_config = STRICT
    dataset: str
    epochs: Natural = 100
    steps_per_epoch: Positive | None = None
    seed: int = Field(0, ge=0, lt=2**63)
    images: Images = Images()
    model: Model = Model()
    sampler: Sampler = Sampler()
    losses: dict[str, LossSpec] = Field(min_length=1)
    optimizer: Optimizer = Optimizer()
    proxies: Optimizer | None = None
    schedule: Schedule = Schedule()
    precision: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    two_pass: Natural = 0
    validation: Share = 0.0
    validation_level: str = ""
    evaluate_every: Natural = 0
    select_by: str = "H-AP"
    patience: Natural = 0
    tested: bool = True
    log_every: Positive = 10
    checkpoint_every: Natural = 200
    aim: Aim | None = None
    source: str = ""

    @model_validator(mode="after")
    def _fits(self) -> Recipe:
        if self.sampler.per_class and self.sampler.batch % self.sampler.per_class:
            raise ValueError("expected sampler.batch to be a multiple of sampler.per_class")
        if len(self.images.mean) != len(self.images.std):
            raise ValueError(
                "expected images.mean and images.std of one length, that of the colours"
            )
        if list(self.images.scale) != sorted(self.images.scale):
            raise ValueError("expected images.scale as the smallest and the largest share")
        if (self.evaluate_every or self.patience) and not self.validation:
            raise ValueError(
                "expected validation > 0 with evaluate_every or patience: the tests are used only "
                "at the end"
            )
        if not (self.tested or self.validation):
            raise ValueError(
                "expected validation > 0 with tested = false, where the tests are not used"
            )
        if self.optimizer.nesterov and not self.optimizer.momentum:
            raise ValueError("expected optimizer.momentum > 0 with nesterov")
        if self.model.projection == "pca" and not self.model.dim:
            raise ValueError("expected model.dim > 0 for a projection that starts from PCA")

        return self
