"""Declares the recipe of a detector. A recipe is read from a TOML file next to this module, or from
the user's own file."""

import tomllib
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Literal

import tomli_w
from pydantic import BaseModel, Field

from hbench.core.errors import ConfigError, DataError, UnknownName
from hbench.core.schema import STRICT, build
from hbench.core.untrusted import parse_toml, read_text
from hbench.train.recipes.files import parse_change

CLASSES = (
    "aeroplane", "bicycle", "bird", "boat", "bottle", "bus", "car", "cat", "chair", "cow",
    "diningtable", "dog", "horse",
    "motorbike", "person", "pottedplant", "sheep", "sofa", "train", "tvmonitor",
)  # fmt: skip
Positive = Annotated[int, Field(gt=0)]
Above = Annotated[float, Field(gt=0)]


OF_RAMBO = ("lam", "margin", "memory", "joint")  # of the fields below


class Classification(BaseModel):
    """The loss of the classifier: cross-entropy, or RaMBO's (1 − joint) L_mAP + joint L_APC with
    the parameters λ (`lam`), `margin` and `memory`."""

    model_config = STRICT
    loss: Literal["cross-entropy", "rambo"] = "cross-entropy"
    lam: Above = 0.5
    margin: Annotated[float, Field(ge=0)] = 0.15
    memory: Annotated[int, Field(ge=0)] = 7
    joint: Annotated[float, Field(ge=0, le=1)] = 1 / 3


class DetectionRecipe(BaseModel):
    """The recipe of a detector.

    Attributes:
        train, test: lists of VOC, each YEAR/PART.
        shorter, longer: images are scaled so that the shorter side has `shorter` pixels, unless the
            longer side would then exceed `longer` pixels.
        drops: the learning rate is divided by ten after each of these epochs.
        warmup: the number of steps in which the learning rate rises to `lr`.
        least_score: detections with lower scores are left out.
        source: where the values come from.
    """

    model_config = STRICT
    method: str
    backbone: Literal["resnet50", "resnet101", "resnext101_32x4d", "small"] = "resnet50"
    weights: Literal["imagenet", "random"] = "imagenet"
    train: tuple[str, ...] = ("2007/trainval",)
    test: tuple[str, ...] = ("2007/test",)
    classes: tuple[str, ...] = CLASSES
    classification: Classification = Classification()
    epochs: Positive = 12
    batch: Positive = 8
    lr: Above = 0.01
    drops: tuple[int, ...] = (9,)
    warmup: Annotated[int, Field(ge=0)] = 500
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.9
    weight_decay: Annotated[float, Field(ge=0)] = 1e-4
    shorter: Positive = 600
    longer: Positive = 1000
    flip: Annotated[float, Field(ge=0, le=1)] = 0.5
    least_score: Annotated[float, Field(ge=0, lt=1)] = 0.05
    seed: Annotated[int, Field(ge=0)] = 0
    source: str = ""


def names() -> list[str]:
    """List the recipes that hbench ships."""
    return sorted(
        file.name.removesuffix(".toml")
        for file in _folder().iterdir()
        if file.name.endswith(".toml")
    )


def resolve(name_or_file: str, changes: Sequence[str] = ()) -> DetectionRecipe:
    """Read a recipe by name or from a TOML file, and apply `changes` such as "batch=4". Raises
    UnknownName, DataError or ConfigError."""
    if name_or_file.endswith(".toml"):
        try:
            text = read_text(Path(name_or_file))
        except (OSError, ValueError) as error:
            raise DataError(
                f"{name_or_file} cannot be read", expected="a TOML recipe", found=str(error)
            ) from None
    elif name_or_file in names():
        text = _folder().joinpath(f"{name_or_file}.toml").read_text(encoding="utf-8")
    else:
        raise UnknownName("detection recipe", name_or_file, names())

    values = _parsed(text, name_or_file)
    for change in changes:
        values = _merged(values, parse_change(change))  # "a.b=1" is {"a": {"b": 1}}
    recipe = build(DetectionRecipe, values, source=name_or_file)
    _refuse_idle(recipe, changes)  # refuses changes that the recipe's loss would ignore
    return recipe


def _refuse_idle(recipe: DetectionRecipe, changes: Sequence[str]) -> None:
    """Raise ConfigError where a parameter of RaMBO is changed in a recipe with cross-entropy, which
    ignores it."""
    keys = {change.partition("=")[0].strip() for change in changes}
    idle = sorted(keys & {f"classification.{name}" for name in OF_RAMBO})
    if idle and recipe.classification.loss != "rambo":
        raise ConfigError(
            f"{' and '.join(idle)} would change nothing",
            expected="classification.loss = rambo, whose parameter it is",
            found=f"classification.loss = {recipe.classification.loss}",
            fix="--set classification.loss=rambo, or leave it out",
        )


def listed(recipe: DetectionRecipe) -> list[str]:
    """Describe a recipe for `hbench recipes`: its loss, its backbone, and the published row that it
    reproduces."""
    return [recipe.classification.loss, recipe.backbone, f"{recipe.method}: voc07 (hbench detect)"]


def as_toml(recipe: DetectionRecipe) -> str:
    """Return a whole recipe, including all defaults, as TOML that `resolve` can read."""
    return tomli_w.dumps(recipe.model_dump(mode="json"))


def _parsed(text: str, source: str) -> dict[str, Any]:
    """Parse TOML. Raises ConfigError that names the `source` of the text."""
    try:
        return parse_toml(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(
            f"{source} is not TOML", expected='KEY = VALUE, texts in "quotes"', found=str(error)
        ) from None


def _merged(values: dict[str, Any], change: dict[str, Any]) -> dict[str, Any]:
    """Return the values of a recipe with a change. In a table, only the keys that the change has
    are replaced."""
    merged_tables = {
        key: _merged(values[key], own)
        for key, own in change.items()
        if isinstance(own, dict) and key in values
    }
    return values | change | merged_tables


def _folder() -> Any:
    return resources.files("hbench_detection")
