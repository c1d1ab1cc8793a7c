"""Fills in the sizes and steps that a recipe leaves to its dataset, where they are 0.

per_class   the images of a class in the middle, 2 to 4
batch       all classes, per_class of each, up to 128 images
epochs      about 2,000 steps, 5 to 100 epochs
size        224 pixels, or what the pictures have if they are smaller; resize: 8/7 of it
evaluate_every, where the run validates: ten times
"""

from __future__ import annotations

from math import ceil

import numpy as np

from hbench.core.errors import ConfigError, UsageError
from hbench.core.schema import build
from hbench.datasets.manifest import Manifest
from hbench.train.recipes.recipe import Recipe

BATCH, PER_CLASS = 128, (2, 4)
STEPS, EPOCHS = 2000, (5, 100)
SIZE, SMALLEST, LOOKED_AT = 224, 64, 64  # pixels, pixels, pictures
VALIDATIONS = 10


def is_open(recipe: Recipe) -> bool:
    """Whether the recipe leaves a size to its dataset."""
    sizes = (recipe.epochs, recipe.sampler.batch, recipe.sampler.per_class, recipe.images.size, recipe.images.resize)
    return not all(sizes) or bool(recipe.validation and not recipe.evaluate_every)


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
    size = recipe.images.size or _size(manifest)
    epochs = recipe.epochs or int(np.clip(round(STEPS / ceil(len(manifest) / batch)), *EPOCHS))
    every = recipe.evaluate_every or (max(1, epochs // VALIDATIONS) if recipe.validation else 0)
    values = recipe.model_dump()
    values["sampler"] |= {"batch": batch, "per_class": per_class}
    values["images"] |= {"size": size, "resize": recipe.images.resize or round(size * 8 / 7)}
    return build(Recipe, {**values, "epochs": epochs, "evaluate_every": every}, source=recipe.dataset)


def _per_class(recipe: Recipe, manifest: Manifest) -> int:
    """The median number of images of a class, within bounds, that divides a batch which is given."""
    counts = np.unique(manifest.labels[:, -1], return_counts=True)[1]
    wanted = int(np.clip(np.median(counts), *PER_CLASS))
    return next(number for number in range(wanted, 0, -1) if recipe.sampler.batch % number == 0)


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


def _size(manifest: Manifest) -> int:
    """The side that nets are made for, or the multiple of 32 that holds smaller pictures' middle side."""
    if manifest.picture is None:
        return SIZE
    some = manifest.items[np.unique(np.linspace(0, len(manifest) - 1, LOOKED_AT).astype(int))]
    side = float(np.median([min(manifest.picture(item).size) for item in some]))
    return int(np.clip(32 * ceil(side / 32), SMALLEST, SIZE))
