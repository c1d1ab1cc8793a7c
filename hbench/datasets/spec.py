"""A spec: what hbench knows of a published dataset before any of its files is on this disk."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from PIL import Image

from hbench.datasets.dataset import Protocol
from hbench.manifest import Manifest, open_picture
from hbench.registry import Registry

Picture = Callable[[Path, str], Image.Image]  # the image of an item, given the folder that items are relative to
Splits = dict[str, Manifest]  # "train", "test" or, where there are several tests, their names
Counts = Mapping[str, Mapping[str, int]]


@dataclass(frozen=True)
class Spec:
    """`levels` are coarse to fine; `build` turns the raw folder into the manifests of the splits.

    `files`: its name in sources.toml, where it shares its files with another dataset. `marker`: the raw file that
    tells the raw folder, relative to it. `images`: the folder, relative to the raw folder, that items are relative
    to. `counts`: {split: {"images": n, level: n}} as published, checked by every build. `manual`: what must be
    fetched by hand. `digests`: {split: digest}, where the raw files have one exact form.
    """

    name: str
    title: str
    levels: tuple[str, ...]
    build: Callable[[Path], Splits] = field(repr=False)
    version: str = "1"
    protocol: Protocol = field(default_factory=Protocol)
    files: str = ""
    marker: str = ""
    images: str | None = "."
    licence: str = "not stated"
    citation: str = ""
    homepage: str = ""
    size: str = ""
    counts: Counts = field(default_factory=dict)
    defects: tuple[str, ...] = ()
    manual: str = ""
    digests: Mapping[str, str] = field(default_factory=dict)
    picture: Picture = open_picture

    @property
    def source(self) -> str:
        """Its name in sources.toml, and of the folder of its raw files."""
        return self.files or self.name


specs: Registry[Spec] = Registry("dataset", group="hbench.datasets")
