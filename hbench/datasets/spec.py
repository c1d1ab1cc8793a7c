"""A spec: what hbench knows of a published dataset before any of its files is on this disk."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hbench.datasets.dataset import Protocol
from hbench.manifest import Manifest
from hbench.registry import Registry

Splits = dict[str, Manifest]  # "train", "test" or, where there are several tests, their names
Counts = Mapping[str, Mapping[str, int]]


@dataclass(frozen=True)
class Spec:
    """`levels` are coarse to fine; `build` turns the raw folder into the manifests of the splits.

    `marker`: the raw file that tells the raw folder, relative to it. `images`: the folder, relative to the raw
    folder, that items are relative to. `counts`: {split: {"images": n, level: n}} as published, checked by every
    build. `manual`: what must be fetched by hand. `digests`: {split: digest}, where the raw files have one exact
    form.
    """

    name: str
    title: str
    levels: tuple[str, ...]
    build: Callable[[Path], Splits] = field(repr=False)
    version: str = "1"
    protocol: Protocol = field(default_factory=Protocol)
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
    picture: Callable[[str], Any] | None = None


specs: Registry[Spec] = Registry("dataset", group="hbench.datasets")
