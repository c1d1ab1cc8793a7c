"""Fills in the sizes and steps of a recipe that are 0 or empty, from its dataset and its net.

per_class   the median number of images of a class, 2 to 4
batch       all classes, per_class of each, up to 128 images
epochs      about 2,000 steps, 5 to 100 epochs
size        that of the net, like mean, std and interpolation; resize: 8/7 of it (256 for 224)
evaluate_every, if the run validates: ten times
"""

from math import ceil

import numpy as np

from hbench.core.errors import ConfigError, UsageError
from hbench.core.schema import build
from hbench.datasets.manifest import Manifest
from hbench.train.images.transforms import side_before_crop
from hbench.train.models.backbone import RANDOM
from hbench.train.models.backbones import build_backbone
from hbench.train.recipes.recipe import Images, Recipe

BATCH = 128  # images
PER_CLASS = (2, 4)  # images, from – to
STEPS = 2000  # of the whole training
EPOCHS = (5, 100)  # from – to
VALIDATIONS = 10  # of the whole training


def is_open(recipe: Recipe) -> bool:
    """Whether the recipe takes a size from its dataset or its net. 0 stands for that; so
    it does in the interval of validations, where there are any."""
    sizes = (recipe.epochs, recipe.sampler.batch, recipe.sampler.per_class)
    if not all(sizes) or _are_open(recipe.images):
        return True
    return bool(recipe.validation and not recipe.evaluate_every)


def require_dataset(recipe: Recipe) -> str:
    """Return the name of the recipe's dataset; raises UsageError where it has none."""
    if not recipe.dataset:
        raise UsageError(
            "the recipe names no dataset",
            expected="--set dataset=NAME",
            fix="hbench datasets lists the names; hbench build NAME --from FOLDER makes a dataset "
            "of your pictures",
        )
    return recipe.dataset


def fitted_to(recipe: Recipe, manifest: Manifest, world: int = 1) -> Recipe:
    """Fill in every size that the recipe leaves open (0 or empty), for these training images and
    `world` processes. An epoch shows about every image once, and the training takes about 2,000
    steps.

    Raises ConfigError for too few classes.
    """
    if not is_open(recipe):
        return recipe
    per_class = recipe.sampler.per_class or _per_class(recipe, manifest)
    batch = recipe.sampler.batch or _batch(manifest, per_class, world)
    steps_per_epoch = ceil(len(manifest) / batch)
    # STEPS steps in all, but no fewer and no more epochs than EPOCHS says
    epochs = recipe.epochs or int(np.clip(round(STEPS / steps_per_epoch), *EPOCHS))
    every = recipe.evaluate_every
    if recipe.validation and not every:
        every = max(1, epochs // VALIDATIONS)
    values = recipe.model_dump()
    values["sampler"] |= {"batch": batch, "per_class": per_class}
    if _are_open(recipe.images):
        values["images"] |= _of_the_net(recipe)
    values |= {"epochs": epochs, "evaluate_every": every}
    try:
        return build(Recipe, values, source=f"the recipe, fitted to {recipe.dataset},")
    except ConfigError as error:
        # the sizes that were filled in are checked here for the first time: a batch too small
        raise ConfigError(
            error.problem,
            found=error.found,
            fix=f"--set sampler.batch={2 * per_class} or more, or 0, which follows from the images",
        ) from None


def _per_class(recipe: Recipe, manifest: Manifest) -> int:
    """Choose how many images of a class a batch has: the median number of images of a class, within
    2 to 4, or the next lower number that divides the recipe's batch. A batch that is open, 0, is
    divided by all.
    """
    _, counts = np.unique(manifest.labels[:, -1], return_counts=True)  # (C,): images of each class
    per_class = int(np.clip(np.median(counts), *PER_CLASS))
    return next(number for number in range(per_class, 0, -1) if recipe.sampler.batch % number == 0)


def _batch(manifest: Manifest, per_class: int, world: int) -> int:
    """Choose how many images a batch has: `per_class` of each of as many classes as make up to 128
    images, at least a class for each of the `world` processes, which have equally many. Raises
    ConfigError where that is less than 2 classes, which have nothing to be told apart."""
    classes = len(np.unique(manifest.labels[:, -1]))
    width = min(max(BATCH // per_class, world), classes)  # classes in a batch
    width -= width % world  # each process gets as many of them
    if width < 2:
        raise ConfigError(
            "there are too few classes to learn from",
            expected=f"{max(2, world)} or more in the training images",
            found=f"{classes}",
            fix="hbench build NAME --from … --split-by LEVEL deals whole classes to train and test",
        )
    return width * per_class


def _are_open(images: Images) -> bool:
    """Whether the settings of images leave something to the net: a 0 or an empty one. `std` is not
    asked: a recipe has as many numbers there as in `mean`."""
    return not all((images.size, images.resize, images.mean, images.interpolation))


def _of_the_net(recipe: Recipe) -> dict[str, object]:
    """Return the settings of images that the net's weights expect, for those that the recipe leaves
    open; fetch no weights.
    """
    images = recipe.images
    net = build_backbone(recipe.model.backbone, weights=RANDOM, pools=recipe.model.pooling == "own")
    size = images.size or net.size  # 0, and empty below, leave it to the net
    return {
        "size": size,
        "resize": images.resize or side_before_crop(size),
        "mean": images.mean or net.mean,
        "std": images.std or net.std,
        "interpolation": images.interpolation or net.interpolation,
    }
