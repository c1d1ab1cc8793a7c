"""The options of hbench embed: for loading a model, for embedding images, and for embedding names
instead. `NET` is also an option of hbench search and hbench export."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from hbench.cli.names import FILE
from hbench.cli.option_blocks import block

if TYPE_CHECKING:
    from hbench.train.embedding.embed_dataset import Embedder, EmbedOptions


def _scales(_context: click.Context, _option: click.Parameter, text: str) -> tuple[float, ...]:
    """Parse the factors of --scales, by which images are resized, from a text such as "1,0.7071"; a
    callback of the click option. Raises BadParameter for other texts."""
    try:
        scales = tuple(float(part) for part in text.split(","))
    except ValueError:
        scales = ()
    if not scales or not all(0 < scale < math.inf for scale in scales):
        raise click.BadParameter(f"{text!r}: expected numbers above 0, such as 1,0.7071,0.5")
    return scales


@dataclass(frozen=True)
class ModelOptions:
    """The options of how to load a model."""

    size: int | None
    weights: str
    key_map: Path | None
    net: str | None

    def load(self, name: str) -> Embedder:
        """Load the model; raises as `embedder` does."""
        from hbench.train.embedding.embed_dataset import embedder

        return embedder(
            name, size=self.size, weights=self.weights, key_map=self.key_map, net=self.net
        )


NET = click.option(
    "--net",
    metavar="FILE.py:NAME",
    help="The program of the net, if MODEL is a run whose net is a program of yours.",
)
MODEL = block(
    "loading",
    ModelOptions,
    [
        click.option(
            "--size", type=click.IntRange(min=1), help="Side of the images.  [default: the model's]"
        ),
        click.option(
            "--weights",
            default="pretrained",
            show_default=True,
            help="pretrained, random, or a file of weights.",
        ),
        click.option(
            "--key-map", type=FILE, help="TOML that renames keys of a file of weights: old = new."
        ),
        NET,
    ],
)


@dataclass(frozen=True)
class ImageOptions:
    """The options of how to decode and embed images."""

    scales: tuple[float, ...]
    flip: bool
    batch: int
    workers: int | None
    precision: str
    skip_unreadable: bool

    @property
    def options(self) -> EmbedOptions:
        """Convert the options to EmbedOptions, which the embedding functions take."""
        from hbench.train.embedding.embed_dataset import EmbedOptions

        return EmbedOptions(
            batch=self.batch,
            workers=self.workers,
            scales=self.scales,
            flip=self.flip,
            precision=self.precision,
            skip_unreadable=self.skip_unreadable,
        )


IMAGES = block(
    "images",
    ImageOptions,
    [
        click.option(
            "--scales",
            default="1",
            show_default=True,
            callback=_scales,
            help="Embed at several scales and take the mean: 1,0.7071,0.5.",
        ),
        click.option(
            "--flip", is_flag=True, help="Embed the mirrored image too, and take the mean."
        ),
        click.option(
            "--batch",
            type=click.IntRange(min=1),
            default=64,
            show_default=True,
            help="Images at a time.",
        ),
        click.option(
            "--workers",
            type=click.IntRange(min=0),
            help="Processes that decode.  [default: one per processor, to 10]",
        ),
        click.option(
            "--precision",
            type=click.Choice(["float32", "bfloat16", "float16"]),
            default="float32",
            show_default=True,
        ),
        click.option(
            "--skip-unreadable",
            is_flag=True,
            help="Leave out images that cannot be read, and name them.",
        ),
    ],
)


@dataclass(frozen=True)
class NameOptions:
    """The options for embedding names of nodes instead of images: whether to, and in which
    sentences."""

    names: bool
    templates: tuple[str, ...]
    other_names: Path | None
    language: str | None

    def refuse_for_images(self) -> None:
        """Raise click's UsageError if an option for names was given for images."""
        if self.templates or self.other_names or self.language:
            raise click.UsageError(
                "--template, --other-names and --language are of --names: images have no sentences."
            )


NAMES = block(
    "naming",
    NameOptions,
    [
        click.option(
            "--names",
            is_flag=True,
            help="Embed the names of the tree's nodes instead, for --nodes.",
        ),
        click.option(
            "--template",
            "templates",
            multiple=True,
            metavar="TEXT",
            help="With --names: a sentence with {} for the name, or {path}; of several, the mean.  "
            "[default: a photo of {}]",
        ),
        click.option(
            "--other-names",
            type=FILE,
            help="With --names: a table of further names: node, name and, perhaps, language.",
        ),
        click.option(
            "--language", help="Of --other-names, only these, in place of a node's own name."
        ),
    ],
)
