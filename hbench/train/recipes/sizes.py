"""Fills in the sizes and steps that a recipe leaves to its dataset and its net, where they are 0 or empty.

per_class   the images of a class in the middle, 2 to 4
batch       all classes, per_class of each, up to 128 images
epochs      about 2,000 steps, 5 to 100 epochs
size        the net's own, as are mean, std and interpolation; resize: 8/7 of it
evaluate_every, where the run validates: ten times
"""

from __future__ import annotations

from math import ceil

import numpy as np

from hbench.core.errors import ConfigError, UsageError
from hbench.core.schema import build
from hbench.datasets.manifest import Manifest
from hbench.train.models.backbones import RANDOM, build_backbone
from hbench.train.recipes.recipe import Images, Recipe

BATCH, PER_CLASS = 128, (2, 4)
STEPS, EPOCHS = 2000, (5, 100)
VALIDATIONS = 10


def is_open(recipe: Recipe) -> bool:
    """Whether the recipe leaves a size to its dataset or its net."""
    sizes = (recipe.epochs, recipe.sampler.batch, recipe.sampler.per_class)
    return not all(sizes) or _is_open(recipe.images) or bool(recipe.validation and not recipe.evaluate_every)


def require_dataset(recipe: Recipe) -> str:
    """The name of the recipe's dataset. Raises UsageError where it has none yet."""
    if not recipe.dataset:
        raise UsageError(
            "train on which dataset?", expected="--set dataset=NAME",
            fix="hbench datasets lists them; hbench build NAME --from FOLDER makes one of your pictures",
        )  # fmt: skip
    return recipe.dataset


def fitted_to(recipe: Recipe, manifest: Manifest, world: int = 1) -> Recipe:
    """The recipe with every size that it leaves open, for the images that are trained on by `world` processes.

    Raises ConfigError where there are too few classes to learn from.
    """
    if not is_open(recipe):
        return recipe
    per_class = recipe.sampler.per_class or _per_class(recipe, manifest)
    batch = recipe.sampler.batch or _batch(manifest, per_class, world)
    epochs = recipe.epochs or int(np.clip(round(STEPS / ceil(len(manifest) / batch)), *EPOCHS))
    every = recipe.evaluate_every or (max(1, epochs // VALIDATIONS) if recipe.validation else 0)
    values = recipe.model_dump()
    values["sampler"] |= {"batch": batch, "per_class": per_class}
    values["images"] |= _of_the_net(recipe) if _is_open(recipe.images) else {}
    return build(Recipe, {**values, "epochs": epochs, "evaluate_every": every}, source=recipe.dataset)


def _per_class(recipe: Recipe, manifest: Manifest) -> int:
    """The median number of images of a class, within bounds, that divides a batch which is given."""
    counts = np.unique(manifest.labels[:, -1], return_counts=True)[1]
    per_class = int(np.clip(np.median(counts), *PER_CLASS))
    return next(number for number in range(per_class, 0, -1) if recipe.sampler.batch % number == 0)


def _batch(manifest: Manifest, per_class: int, world: int) -> int:
    """The largest batch within bounds of different classes, which the processes can share."""
    classes = len(np.unique(manifest.labels[:, -1]))
    width = min(max(BATCH // per_class, world), classes)
    width -= width % world
    if width < 2:
        raise ConfigError(
            "there are too few classes to learn from", expected=f"{max(2, world)} or more in the training images",
            found=f"{classes}", fix="hbench build NAME --from … --split-by LEVEL deals whole classes to train and test",
        )  # fmt: skip
    return width * per_class


def _is_open(images: Images) -> bool:
    return not all((images.size, images.resize, images.mean, images.interpolation))


def _of_the_net(recipe: Recipe) -> dict[str, object]:
    """The settings of images that the recipe leaves open, as the net's weights want them; no weights are fetched."""
    images = recipe.images
    net = build_backbone(recipe.model.backbone, weights=RANDOM, pools=recipe.model.pooling == "own")
    size = images.size or net.size
    return {
        "size": size,
        "resize": images.resize or round(size * 8 / 7),
        "mean": images.mean or net.mean,
        "std": images.std or net.std,
        "interpolation": images.interpolation or net.interpolation,
    }
