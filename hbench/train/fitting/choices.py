"""Refuses names in a recipe that do not exist, and settings that its dataset does not allow, before
anything is loaded or written."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hbench.core.errors import ConfigError, UnknownName, closest
from hbench.losses import loss_entry
from hbench.losses.entry import REQUIRED
from hbench.metrics.names import MetricName
from hbench.train.images.batches import HELD, NONE, SHIFTED
from hbench.train.images.sampler import samplers
from hbench.train.images.transforms import augmentations
from hbench.train.models.backbone import PRETRAINED, RANDOM
from hbench.train.models.backbones import refuse_unknown_net
from hbench.train.models.model import poolings
from hbench.train.recipes.own_code import OwnCode, is_own_code
from hbench.train.recipes.recipe import Recipe
from hbench.train.steps.optimizers import optimizer_names

# parameters of losses that follow from the dataset and the net
FACTS = ("classes", "level_classes", "paths", "dim")


def refuse_choices(recipe: Recipe) -> None:
    """Raise UnknownName for a name that does not exist, ConfigError for an augmentation that images
    in memory do not support, and for an average of weights that keeps the first ones."""
    for loss, spec in recipe.losses.items():
        _refuse_parameters(loss, spec.params)
        if recipe.precision == "float16" and loss.startswith("rambo"):
            raise ConfigError(
                f"{loss} does not learn in float16, whose scaler multiplies the gradient of the "
                "ranks, by which the loss moves the scores",
                expected="another precision",
                fix="--set precision=bfloat16, or float32",
            )
    # a look-up raises for an unknown name
    _ = samplers[recipe.sampler.name], poolings[recipe.model.pooling]
    for optimizer in (recipe.optimizer, recipe.proxies):
        if optimizer is not None and optimizer.name not in (names := optimizer_names()):
            raise UnknownName("optimizer.name", optimizer.name, names)

    MetricName.parse(recipe.select_by)  # raises for a name that no metric has
    weights = recipe.model.weights
    if weights not in {PRETRAINED, RANDOM} and not Path(weights).is_file():
        close = closest(weights, (PRETRAINED, RANDOM))
        fix = "the path of a file is taken from the folder that the command runs in"
        if close:
            fix = f"did you mean {close[0]}?"
        raise ConfigError(
            "model.weights is neither a word nor a file",
            expected=f"{PRETRAINED}, {RANDOM}, or a file of weights",
            found=weights,
            fix=fix,
        )
    # loading raises if the file or the name in it does not exist
    if is_own_code(recipe.model.backbone):
        OwnCode.parse(recipe.model.backbone).load()
    else:
        refuse_unknown_net(recipe.model.backbone)
    _refuse_variation(recipe)
    if recipe.ema == 1:
        raise ConfigError(
            "ema=1 keeps the weights of the beginning, so that nothing is learned",
            expected="ema from 0 to below 1",
            found=f"{recipe.ema:g}",
            fix="--set ema=.999, or 0 for the weights themselves",
        )


def _refuse_parameters(loss: str, params: Mapping[str, Any]) -> None:
    """Raise UnknownName for a loss that does not exist, ConfigError for a parameter that it does
    not have, or that follows from the dataset or the net, such as the number of classes.

    `xbm` keeps embeddings of former batches for another loss. The name and the parameters of that
    loss are among its own parameters, and are checked as well.
    """
    entry = loss_entry(loss)
    entry.refuse_unknown(loss, params)
    # training fills in those of FACTS that have no default in the loss
    of_data = [name for name in FACTS if name in params and entry.parameters[name] is REQUIRED]
    if of_data:
        raise ConfigError(
            f"{of_data[0]} of loss {loss!r} is not a recipe's to say",
            expected="the number that the dataset and the net have, which training fills in",
            found=f"{params[of_data[0]]!r}",
            fix="leave it out; model.dim is the dimension of the embeddings",
        )
    if loss == "xbm" and "loss" in params:
        _refuse_parameters(params["loss"], params.get("params", {}))


def _refuse_variation(recipe: Recipe) -> None:
    """Refuse an augmentation that the recipe's images do not support.

    Images of the datasets in HELD, {(dataset, side in pixels): …}, and of any dataset with the
    augmentation `shifted`, are kept in memory. These can only be shifted.

    Raises UnknownName for an augmentation that does not exist, ConfigError for one that is not for
    images in memory, for a share of the area above 1, and for colours or erased parts of images in
    memory.
    """
    images = recipe.images
    if is_own_code(images.augment):
        OwnCode.parse(images.augment).load()
    elif images.augment not in (known := sorted([*augmentations, SHIFTED])):
        raise UnknownName(
            "augmentation",
            images.augment,
            known,
            otherwise="one of your own is a function in a file, ./FILE.py:NAME",
        )

    if images.augment == "resized_crop" and images.scale[1] > 1:
        raise ConfigError(
            "images.scale says which share of the area resized_crop keeps",
            expected="two shares up to 1",
            found=f"{images.scale[0]:g} and {images.scale[1]:g}",
            fix=f"--set images.scale=[{min(images.scale[0], 1):g},1]",
        )

    is_held = (recipe.dataset, images.size) in HELD
    if is_held and images.augment not in (NONE, SHIFTED):
        raise ConfigError(
            f"the images of {recipe.dataset} are made in memory, where they can only be shifted",
            expected=f"images.augment {NONE} or {SHIFTED}",
            found=images.augment,
            fix=f"--set images.augment={SHIFTED}, or a dataset of files",
        )
    if (is_held or images.augment == SHIFTED) and (images.jitter or images.erase):
        raise ConfigError(
            "images.jitter and images.erase are for images that are decoded anew each time",
            expected="0 for both, of images in memory",
            found=f"jitter {images.jitter:g}, erase {images.erase:g}, augment {images.augment}",
            fix="--set images.augment=crop, of a dataset of files",
        )
