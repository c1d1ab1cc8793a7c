"""Composes the `hbench embed` command that reproduces embeddings. It is stored in their file, and
repeated in reports and rows of leaderboards.

Files are named without their folders: `hbench leaderboard rerun` is run in the folder that has
them, and the folders of the original user should not be published.
"""

import shlex
from collections.abc import Sequence
from pathlib import Path

from hbench.datasets import Dataset
from hbench.datasets.spec import specs
from hbench.train.models.backbone import PRETRAINED
from hbench.train.recipes.own_code import is_own_code


def words_to_load(
    source: str, *, size: int | None, weights: str, key_map: Path | None
) -> tuple[str, ...]:
    """Return the arguments of `hbench embed` that load a model: its name and options that are not
    the default. Files are named without their folders, which should not be published.

    >>> words_to_load("timm:resnet18", size=160, weights="nets/r18.pth", key_map=None)
    ('timm:resnet18', '--size', '160', '--weights', 'r18.pth')
    """
    words = [_without_folder(source)]
    if size is not None:
        words += ["--size", str(size)]
    if weights != PRETRAINED:
        words += ["--weights", Path(weights).name]
    if key_map is not None:
        words += ["--key-map", key_map.name]
    return tuple(words)


def _without_folder(source: str) -> str:
    """Return the name of a model, with FILE.py:NAME and transformers:FOLDER shortened to the last
    part of their path."""
    if is_own_code(source):
        return Path(source).name
    library, _, name = source.partition(":")
    return f"{library}:{Path(name).name}" if Path(name).exists() else source


def command(
    loading: Sequence[str], data: Dataset, split: str, options: Sequence[str]
) -> str | None:
    """Return the command that embeds a split of a dataset, without --out. None if nobody else could
    run it: for a model that no command loads, or a user's own dataset.

    Args:
        loading: the arguments that load the model, as `words_to_load` returns them.
        data: the dataset.
        split: "test", "train", or the name of a test.
        options: the other options, as `EmbedOptions.words` returns them.
    """
    if not loading or data.name not in specs:
        return None

    words = ["hbench", "embed", *loading, "-d", data.name]
    if split != "test":
        words += ["--split", split]
    return shlex.join([*words, *options])
