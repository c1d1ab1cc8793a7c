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
    """Whether a recipe leaves a size open, by 0, for its dataset or its net; or, if it validates,
    the interval of validations."""
    sizes = (recipe.epochs, recipe.sampler.batch, recipe.sampler.per_class)
    if not all(sizes) or _are_open(recipe.images):
        return True
    return bool(recipe.validation and not recipe.evaluate_every)


def require_dataset(recipe: Recipe) -> str:
    """Return the name of the recipe's dataset. Raises UsageError if it has none."""
    if not recipe.dataset:
        raise UsageError(
            "the recipe names no dataset",
            expected="--set dataset=NAME",
            fix="hbench datasets lists the names; hbench build NAME --from FOLDER makes a dataset "
            "of your pictures",
        )
    return recipe.dataset


def fitted_to(recipe: Recipe, manifest: Manifest, world: int = 1) -> Recipe:
    """Fill in all sizes that a recipe leaves open (0 or empty), for these training images and
    `world` processes. An epoch uses every image about once, and the training takes about 2,000
    steps.

    Raises ConfigError for too few classes, and if the recipe with these sizes is not valid.
    """
    if not is_open(recipe):  # the recipe has all its sizes
        return recipe
    per_class = recipe.sampler.per_class or _per_class(recipe, manifest)
    batch = recipe.sampler.batch or _batch(manifest, per_class, world)
    steps_per_epoch = ceil(len(manifest) / batch)
    # about STEPS steps in all, with a number of epochs within EPOCHS
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
        # building the recipe again checks the sizes that were filled in, such as a batch too small:
        # it needs `per_class` images of 2 classes
        raise ConfigError(
            error.problem,
            found=error.found,
            fix=f"--set sampler.batch={2 * per_class} or more, or 0, which follows from the images",
        ) from None


def _per_class(recipe: Recipe, manifest: Manifest) -> int:
    """Choose the number of images of each class in a batch: the median number of images of a class,
    within 2 to 4, or the next lower number that divides the recipe's batch. (0, an open batch, is
    divisible by all.)"""
    _, counts = np.unique(manifest.labels[:, -1], return_counts=True)  # (C,): images of each class
    per_class = int(np.clip(np.median(counts), *PER_CLASS))
    return next(number for number in range(per_class, 0, -1) if recipe.sampler.batch % number == 0)


def _batch(manifest: Manifest, per_class: int, world: int) -> int:
    """Choose the size of a batch in images: `per_class` images of as many classes as fit into 128
    images, but at least one class for each of the `world` processes. All processes get the same
    number of classes. Raises ConfigError for fewer than 2 classes."""
    classes = len(np.unique(manifest.labels[:, -1]))
    width = min(max(BATCH // per_class, world), classes)  # classes in a batch
    width -= width % world  # so that it is divisible among the processes
    if width < 2:
        raise ConfigError(
            "there are too few classes to learn from",
            expected=f"{max(2, world)} or more in the training images",
            found=f"{classes}",
            fix="hbench build NAME --from … --split-by LEVEL deals whole classes to train and test",
        )
    return width * per_class


def _are_open(images: Images) -> bool:
    """Whether the settings of images leave something open for the net. `std` is not checked: a
    recipe has as many numbers there as in `mean`."""
    return not all((images.size, images.resize, images.mean, images.interpolation))


def _of_the_net(recipe: Recipe) -> dict[str, object]:
    """Return the settings of images that the net's weights expect, for those that the recipe leaves
    open. No weights are fetched."""
    images = recipe.images
    # `pools` is as in the model, since `build_backbone` refuses a net that does not fit to it, such
    # as one of transformers, which always pools
    net = build_backbone(recipe.model.backbone, weights=RANDOM, pools=recipe.model.pooling == "own")
    # a setting of the recipe that is 0 (sizes) or empty (the others) is left to the net
    size = images.size or net.size
    return {
        "size": size,
        "resize": images.resize or side_before_crop(size),
        "mean": images.mean or net.mean,
        "std": images.std or net.std,
        "interpolation": images.interpolation or net.interpolation,
    }
