"""Declares the recipe, a record of all settings of a training run: dataset, images, net, batches,
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

from pydantic import BaseModel, ConfigDict, Field, model_validator

from hbench.core.errors import closest
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
MOST_RATE = 1e30  # float32 holds 3e38, and `head` multiplies a rate
Share = Annotated[float, Field(ge=0, le=1)]

DESCRIBED = ConfigDict(**STRICT, use_attribute_docstrings=True)

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)


class Images(BaseModel):
    """The settings of images: how they are brought to one size, varied and normalised."""

    model_config = DESCRIBED
    size: Natural = 224
    """The side, in pixels, of the square that the net sees; 0: the net's own."""
    resize: Natural = 256
    """To which side an image is brought before it is cut; 0: 8/7 of `size`."""
    fit: Literal["none", "shorter", "square"] = "none"
    """How training images are brought there: not, by their shorter side, or both sides."""
    test_fit: Literal["shorter", "square"] = "shorter"
    """The same of test images."""
    augment: str = "resized_crop"
    """How training images are varied; `shifted`, too, for small ones, which it holds in memory, and
    ./FILE.py:NAME, a transform of your own."""
    scale: tuple[NonNegative, NonNegative] = (0.16, 1.0)
    """The least and the largest share of the area that `resized_crop` keeps, or the factors of
    `shifted`."""
    flip: Share = 0.5
    """The share of training images that are mirrored."""
    jitter: NonNegative = 0.0
    """Brightness, contrast and saturation of training images change by up to this share; 0: not."""
    erase: Share = 0.0
    """The share of training images in which a rectangle is erased (Zhong et al. 2020)."""
    mean: tuple[float, ...] = IMAGENET_MEAN
    """Of every colour, in 0 … 1; empty: the net's own."""
    std: tuple[float, ...] = IMAGENET_STD
    """Of every colour, in 0 … 1; empty: the net's own."""
    interpolation: Literal["", "nearest", "bilinear", "bicubic", "lanczos"] = "bilinear"
    """How images are resized; empty: as the net's own are."""
    workers: Natural | None = None
    """Processes that decode images; unset: one per processor, at most 10."""


class Model(BaseModel):
    """The net: a backbone, its pooling, a LayerNorm without weights, a projection to `dim`.

    The ResNet's weights are torchvision's first (V1), with which the published rows were trained;
    without the last part of the name they are the current ones.
    """

    model_config = DESCRIBED
    backbone: str = "torchvision:resnet50/IMAGENET1K_V1"
    """SOURCE:NAME, such as torchvision:resnet50, timm:NAME, open_clip:ARCH/TAG, or ./FILE.py:NAME,
    your own net."""
    weights: str = "pretrained"
    """pretrained, random, or a file."""
    key_map: str = ""
    """A TOML file that renames the keys of a file of weights."""
    pooling: str = "avg"
    """How a map of features becomes a vector; `own`: as the net does it."""
    layer_norm: bool = True
    """Whether a LayerNorm without weights follows the pooling."""
    l2_norm: bool = False
    """Whether the pooled features are brought to length 1 before it."""
    dim: Natural = 512
    """The dimension of the embeddings; 0: no projection, that of the features."""
    projection: Literal["random", "pca"] = "random"
    """The initial weights of the projection: random, or the whitening PCA of the features."""
    freeze_batch_norm: bool = True
    """Whether batch norms keep the means and variances of the weights they began with."""
    recompute: bool = False
    """Whether a step keeps no activations of the backbone, but computes them again for the
    gradient: a third slower, in a fraction of the memory."""
    compile: bool = False
    """Whether torch.compile compiles the backbone."""
    channels_last: bool | None = None
    """The layout of images in memory that is fastest on GPUs; unset: there alone."""


class Sampler(BaseModel):
    """The settings of batches: `batch` items, `per_class` of each fine class."""

    model_config = DESCRIBED
    name: str = "m_per_class"
    """How batches are made; `hierarchical`: their classes come from two coarse classes."""
    batch: Natural = 256
    """Items in a batch; 0: from the number of classes."""
    per_class: Natural = 4
    """Items of each class in a batch; 0: the median number of a class, 2 to 4."""
    batches_per_group: Positive = 5
    """Batches that `hierarchical` makes of each pair of coarse classes."""
    smallest: Positive = 1
    """`m_per_class` leaves out classes of fewer items."""
    per_epoch: Natural = 0
    """Items that `m_per_class` takes of a class in an epoch; 0: all."""


class Optimizer(BaseModel):
    """The settings of an optimiser."""

    model_config = DESCRIBED
    name: str = "adam"
    """A name of torch.optim or of timm.optim, such as adam, adamw, sgd, nadam, lion, lamb."""
    lr: Annotated[float, Field(ge=0, le=MOST_RATE)] = 1e-5
    """The highest learning rate of the backbone; of `proxies`, that of the losses' weights."""
    weight_decay: NonNegative = 0.0
    """The weight decay of all weights."""
    momentum: Share = 0.0
    """Of optimisers that have one, such as sgd."""
    nesterov: bool = False
    """Whether sgd takes Nesterov's momentum."""
    head: NonNegative = 1.0
    """The learning rate of pooling and projection (and of proxies without an optimiser of their
    own), in multiples of `lr`."""
    layer_decay: Share = 1.0
    """The learning rate of each block of the backbone, in multiples of that of the next one: .75 is
    usual for vision transformers; 1: all alike."""
    lr_min: NonNegative = 0.0
    """The lowest rate of the cosine schedule."""
    clip: NonNegative = 0.0
    """Longer gradients are scaled down to this length; 0: never."""


class Schedule(BaseModel):
    """The schedule of the learning rate."""

    model_config = DESCRIBED
    name: Literal["cosine", "constant", "steps"] = "cosine"
    """How the rate falls: along a cosine, not, or at every milestone."""
    warm_up: Natural | Share = 0
    """In the first epochs, or this share of all steps, only projection and proxies learn, at their
    full rates; the schedule starts after these."""
    milestones: tuple[Positive, ...] = ()
    """The epochs at which `steps` multiplies the rate by `gamma`."""
    gamma: Share = 0.1
    """By which `steps` multiplies the rate."""

    def warm_up_epochs(self, epochs: int) -> float:
        """Return the number of warm-up epochs in a run of `epochs`. `warm_up` is that number if it
        is an integer, and a share of the epochs if it is a float."""
        return self.warm_up if isinstance(self.warm_up, int) else self.warm_up * epochs

    def is_frozen(self, step: int, in_epoch: int, epochs: int) -> bool:
        """Whether the backbone is frozen in a step because of the warm-up: the step has to end
        within it. `step`: counted from 0 over the whole run. `in_epoch`: steps per epoch."""
        return step + 1 <= self.warm_up_epochs(epochs) * in_epoch


class LossSpec(BaseModel):
    """The weight of a loss in the sum, and its parameters; classes, dim and paths are taken from
    dataset and net.
    """

    model_config = DESCRIBED
    weight: NonNegative = 1.0
    """Of the loss in the sum."""
    params: dict[str, Any] = {}
    """Its parameters: `hbench losses NAME` lists them."""

    @model_validator(mode="before")
    @classmethod
    def _has_parameters_apart(cls, values: object) -> object:
        """Raise ValueError for a key beside `weight` that most likely is a parameter of the loss;
        return the values unchanged. A key similar to `weight` or `params` passes: it is misspelt,
        and pydantic's own check has a better message for this."""
        keys = values if isinstance(values, dict) else {}  # pydantic refuses values of other types
        for key in keys:
            # `closest` has the names of fields that are spelt alike
            if key not in cls.model_fields and not closest(key, cls.model_fields):
                raise ValueError(
                    f"a loss has weight and params, and not {key!r}; if that is a parameter of the "
                    f"loss, its key is params.{key}"
                )
        return values


class Aim(BaseModel):
    """The published row that a recipe should reproduce."""

    model_config = DESCRIBED
    method: str
    """Its method in the dataset's leaderboard."""
    table: str | None = None
    """The table that has it."""


class Recipe(BaseModel):
    """The recipe of a training run. Values of 0 for epochs and batches follow from the dataset, for
    images from the net (sizes.py).
    """

    model_config = DESCRIBED
    dataset: str
    """The name of what is trained on."""
    epochs: Natural = 100
    """Passes over the training images; 0: about 2,000 steps, 5 to 100."""
    steps_per_epoch: Positive | None = None
    """An epoch ends after this many batches; unset: after all images."""
    seed: int = Field(0, ge=0, lt=2**63)
    """Of random weights, batches, variations and held-out classes."""
    images: Images = Images()
    """How images are brought to one size, varied and normalised."""
    model: Model = Model()
    """The net."""
    sampler: Sampler = Sampler()
    """The batches."""
    losses: dict[str, LossSpec] = Field(min_length=1)
    """By name (`hbench losses` lists them): their weights in the sum, and their parameters."""
    optimizer: Optimizer = Optimizer()
    """That of the net."""
    proxies: Optimizer | None = None
    """That of the losses' own weights; unset: that of the net."""
    schedule: Schedule = Schedule()
    """The learning rate over the epochs."""
    precision: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    """What the net computes in; auto: bfloat16 on a GPU, else float32."""
    two_pass: Natural = 0
    """Images whose graph is in memory at once; 0: those of the whole batch."""
    ema: Share = 0.0
    """The embeddings are those of a moving average of the weights, which keeps this share of itself
    at each step, such as .999; 0: of the weights themselves."""
    validation: Share = 0.0
    """The share of training classes that is held out, to choose the best checkpoint by."""
    validation_level: str = ""
    """The level of these classes; empty: the finest."""
    evaluate_every: Natural = 0
    """Epochs between validations; 0: about ten in a run."""
    select_by: str = "H-AP"
    """The metric by which the best checkpoint is chosen."""
    patience: Natural = 0
    """The run stops after this many validations without a better one; 0: never."""
    tested: bool = True
    """Whether the tests are used at the end; false, which needs `validation`, while settings are
    being chosen."""
    log_every: Positive = 10
    """Steps between lines of the log, and of what is printed without a terminal."""
    checkpoint_every: Natural = 200
    """Steps between checkpoints; 0: only at the end."""
    checkpoint_minutes: NonNegative = 5.0
    """A checkpoint is written after this long, too, unless only at the end; 0: never."""
    aim: Aim | None = None
    """The published row that the recipe should reproduce."""
    source: str = ""
    """Where the values are from."""

    @model_validator(mode="after")
    def _minimises_something(self) -> Recipe:
        """Raise ValueError if all losses have the weight 0; return the recipe itself."""
        if self.losses and not any(spec.weight for spec in self.losses.values()):
            zeros = " and ".join(f"losses.{name}.weight" for name in self.losses)
            raise ValueError(f"{zeros} = 0: no loss is left to be minimised")
        return self

    @model_validator(mode="after")
    def _fits(self) -> Recipe:
        """Raise ValueError, as pydantic requires, for settings that contradict each other; return
        the recipe itself."""
        batch = self.sampler.batch
        per_class = self.sampler.per_class
        # a value of 0, which passes, is chosen later, from the dataset
        if per_class and batch % per_class:
            fitting = (batch // per_class + 1) * per_class  # the next multiple, for the message
            raise ValueError(
                f"sampler.batch = {batch} is no multiple of sampler.per_class = {per_class}; the "
                f"next is {fitting}"
            )
        if per_class and per_class == batch:
            raise ValueError(
                f"sampler.batch = {batch} has one class of sampler.per_class = {per_class} items, "
                "and no item of another class to be told from"
            )
        if len(self.images.mean) != len(self.images.std):
            raise ValueError(
                f"images.mean has {len(self.images.mean)} numbers and images.std "
                f"{len(self.images.std)}; both have one for each colour"
            )
        if list(self.images.scale) != sorted(self.images.scale):
            smallest, largest = self.images.scale
            raise ValueError(
                f"images.scale = [{smallest:g}, {largest:g}] is not the smallest and the largest "
                "share"
            )
        if (self.evaluate_every or self.patience) and not self.validation:
            raise ValueError(
                "evaluate_every and patience need validation > 0: the tests are used only at the "
                "end"
            )
        if not (self.tested or self.validation):
            raise ValueError(
                "tested = false needs validation > 0: a run that uses no tests is scored on it"
            )
        if self.optimizer.nesterov and not self.optimizer.momentum:
            raise ValueError("optimizer.nesterov needs optimizer.momentum > 0")
        if self.model.projection == "pca" and not self.model.dim:
            raise ValueError("model.projection = pca needs model.dim > 0")

        return self
