"""Defines a Spec, which describes a published dataset: levels, counts, licence, paper, and how to build it from raw files."""

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from PIL import Image

from hbench.core.registry import Registry
from hbench.datasets.dataset import Protocol as Protocol  # benchmarks take it from here
from hbench.datasets.manifest import Manifest, from_names, open_picture
from hbench.tree.names import NameTable, Row, stripped
from hbench.tree.policies import mend

Picture = Callable[[Path, str], Image.Image]  # opens the image of an item, given the folder that items are relative to
Names = dict[str, dict[str, str]]
Counts = Mapping[str, Mapping[str, int]]
Labelled = Iterable[tuple[str, Row]]  # items with their names, coarse to fine
Key = TypeVar("Key")
Splits = Mapping[str, Labelled | Manifest]  # by "train", "test" or, where there are several tests, their names

RANKS = ("kingdom", "phylum", "class", "order", "family", "genus", "species")
PARTIAL = ("fill-from-parent", "unknown", "by-path")  # policies: a path that ends early is unknown below its end


@dataclass(frozen=True)
class Spec:
    """A published dataset: `levels` are coarse to fine; `build` turns the raw folder into the splits.

    `files`: its name in sources.toml, where that is another dataset's, whose files it shares. `markers`: paths in the raw
    folder, one of which identifies it; empty where no files are needed. `images`: folders, relative to the raw folder, that
    may hold the items. `counts`: the published {split: {"images" or a level: n}}, which every build checks.
    `official_names`: reads {level: {name: the name that the released evaluators use}}, where they differ, from the raw
    folder. `manual`: what must be fetched by hand. `layout`: the raw folder drawn as a tree. `digests`: {split: digest},
    where the raw files have one exact form. `picture`: opens the image of an item. `on_disk`: whether each item is a file
    of that name. `lists`: reads the list of pairs of each test from the raw folder (hbench.datasets.pair_labels).
    """

    name: str
    title: str
    levels: tuple[str, ...]
    build: Callable[[Path], Splits] = field(repr=False)
    version: str = "1"
    protocol: Protocol = field(default_factory=Protocol)
    files: str = ""
    markers: tuple[str, ...] = ()
    images: tuple[str, ...] = (".",)
    licence: str = "not stated"
    official_names: Callable[[Path], Names] = lambda raw: {}
    citation: str = ""
    homepage: str = ""
    size: str = ""
    counts: Counts = field(default_factory=dict)
    defects: tuple[str, ...] = ()
    manual: str = ""
    layout: str = ""
    digests: Mapping[str, str] = field(default_factory=dict)
    picture: Picture = open_picture
    lists: Callable[[Path], dict[str, pa.Table]] = lambda raw: {}
    on_disk: bool = True

    @property
    def source(self) -> str:
        """The name in sources.toml, which is also the name of the folder of the raw files."""
        return self.files or self.name

    def manifests(self, raw: Path) -> dict[str, Manifest]:
        """Build the manifest of every split; where `build` gives labelled items, all are queries and in the gallery."""
        return {
            split: part if isinstance(part, Manifest) else manifest_of(part, self.levels)
            for split, part in self.build(raw).items()
        }


specs: Registry[Spec] = Registry("dataset", group="hbench.datasets", type=Spec)


def manifest_of(labelled: Labelled, levels: Sequence[str], **masks: NDArray[np.bool_]) -> Manifest:
    """Make the manifest of items; without the masks `query` and `gallery` all are queries and all in the gallery."""
    pairs = list(labelled)
    return from_names([item for item, _ in pairs], [names for _, names in pairs], levels=levels, **masks)


def split_by(labelled: Labelled, *, trains: Callable[[Row], bool]) -> dict[str, list[tuple[str, Row]]]:
    """Split items into "train", whose names `trains` accepts, and "test"."""
    parts: dict[str, list[tuple[str, Row]]] = {"train": [], "test": []}
    for item, names in labelled:
        parts["train" if trains(names) else "test"].append((item, names))
    return parts


def queries_against(queries: Labelled, gallery: Labelled, levels: Sequence[str]) -> Manifest:
    """Make the manifest of a test whose queries are not in the gallery."""
    queries = list(queries)
    pairs = [*queries, *gallery]
    query = np.arange(len(pairs)) < len(queries)
    return manifest_of(pairs, levels, query=query, gallery=~query)


def mended(rows: Mapping[Key, Row], levels: Sequence[str], *policies: str) -> dict[Key, Row]:
    """Replace each row of names by what the policies (hbench.tree.policies) make of it, in a tree of all rows."""
    final = mend(NameTable.of(levels, rows.values()), policies).final
    return {key: final[stripped(row)] or () for key, row in rows.items()}


def held_out(names: Iterable[str], *, fraction: float, seed: int) -> set[str]:
    """Choose round(fraction·n) of the n distinct names: those with the smallest sha256 of "seed:name".

    The choice is the same on every machine and in every version, and a name added later changes little of it.
    """
    ordered = sorted(set(names), key=lambda name: hashlib.sha256(f"{seed}:{name}".encode()).digest())
    return set(ordered[: round(fraction * len(ordered))])
