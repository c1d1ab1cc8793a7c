"""Defines a Spec, which describes a published dataset: levels, counts, licence, its files and their
addresses, its paper, and how to build it.

The functions below it are used by builds: they make splits and manifests of labelled items.
"""

import hashlib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Annotated, Literal, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from PIL import Image
from pydantic import AfterValidator, Field, NonNegativeInt

from hbench.core.errors import DataError
from hbench.core.registry import Registry
from hbench.core.schema import Strict
from hbench.datasets.dataset import Protocol as Protocol  # benchmarks take it from here
from hbench.datasets.manifest import Manifest, from_names
from hbench.datasets.pictures import open_picture
from hbench.sheets.rows import Row, stripped
from hbench.sheets.words import MAIN_RANKS
from hbench.tree.names import NameTable
from hbench.tree.policies import mend

Picture = Callable[
    [Path, str], Image.Image
]  # opens the image of an item, given the folder that items are relative to
Names = dict[str, dict[str, str]]  # {level: {name in the tree: name in the released evaluators}}
Labelled = Iterable[tuple[str, Row]]  # items with their names, coarse to fine
Key = TypeVar("Key")
Splits = Mapping[
    str, Labelled | Manifest
]  # {"train", "test", or the name of a test if there are several: its items}

RANKS = MAIN_RANKS  # benchmarks take it from here
PARTIAL = (
    "fill-from-parent",
    "unknown",
    "by-path",
)  # policies: a path that ends early is unknown below its end


UNPRINTABLE = re.compile(r"[\\\x00-\x1f\x7f]")


def _inside(path: str) -> str:
    """Return a path unchanged if it stays below the raw folder. Raises ValueError, as a validator
    of pydantic must, if the path leads out of that folder, has characters that no file should have,
    or is one of hbench's own records (.hbench…)."""
    parts = PurePosixPath(path).parts
    outside = path.startswith("/") or ".." in parts or UNPRINTABLE.search(path)
    if outside or any(part.startswith(".hbench") for part in parts):
        raise ValueError(
            "it must stay inside the raw folder, and is not one of hbench's own records"
        )
    return path


Inside = Annotated[str, AfterValidator(_inside)]


@dataclass(frozen=True)
class RemoteFile:
    """One file to fetch, or several that are numbered.

    Args:
        file: its path in the raw folder.
        urls: its addresses, tried in order; `gdrive:ID` is a file on Google Drive.
        size: in bytes.
        md5: of the file, as published.
        sha256: of the file, as published.
        md5_url: the address of a file that starts with the md5.
        part: "metadata" or "images".
        unpack: the folder, in the raw folder, into which an archive is unpacked ("." for most);
            None for a plain file.
        count: the number of files. In each one's texts, `{i}` becomes its number, 000, 001 …
        most: the largest size that is accepted, in bytes.
    """

    file: Annotated[Inside, Field(min_length=1)]
    urls: tuple[str, ...]
    size: NonNegativeInt | None = None
    md5: str | None = None
    sha256: str | None = None
    md5_url: str | None = None
    part: Literal["metadata", "images"] = "images"
    unpack: Inside | None = None
    count: Annotated[int, Field(ge=0, le=100_000)] = 1
    most: int | None = None


class Publication(Strict):
    """A paper.

    Args:
        key: of its BibTeX entry.
        kind: of its BibTeX entry.
        title: in title case.
        authors: "Last, First", or the name of a group.
        cited: words that identify this paper in a citation. If a citation has words of several
            papers, the longest words decide.
        year: of the venue.
        venue: the full name of the proceedings or the journal.
        note: further words.
        volume: of a journal.
        number: of a journal.
        pages: with "--" between them.
        arxiv: its number there.
    """

    key: str
    kind: Literal["article", "inproceedings", "techreport", "misc"]
    title: str
    authors: tuple[str, ...]
    cited: tuple[str, ...]
    year: int | None = None
    venue: str = ""
    note: str = ""
    volume: str = ""
    number: str = ""
    pages: str = ""
    arxiv: str = ""


@dataclass(frozen=True)
class Spec:
    """A published dataset: what it is, where its files are, and how to build it from them.

    Args:
        name: as users type it, such as "cub200".
        title: as the authors call it.
        levels: coarse to fine.
        build: makes the splits from the raw folder: "train", "test" or the names of several tests.
        version: is increased when the same files are split or labelled differently.
        protocol: the metrics that its papers report.
        files: the files to download, with sizes and checksums as far as they are published.
        raw_name: the name of the folder of its raw files, if another dataset uses the same files.
            Default: its own name.
        markers: paths, any of which identifies the raw folder; empty if the dataset needs no files.
        images: folders, relative to the raw folder, that may hold the items.
        licence: of the images.
        official_names: reads from the raw folder {level: {name: the name that the released
            evaluators use}}, for the names that differ.
        citation: the papers in words, separated by "; ".
        papers: the papers that the citation names, except those in `metadata/publications.toml`.
        homepage: where a reader learns more.
        size: of the download, in words.
        counts: the published {split: {"images" or a level: n}}, which every build checks.
        disputed: {split: the counts of each publication}, if publications disagree. A build that
            matches none of them gets a version that says so.
        defects: what is known to be wrong with it, one sentence each.
        manual: what must be fetched by hand.
        layout: the raw folder drawn as a tree.
        digests: {split: digest}, if the raw files exist in only one version.
        picture: opens the image of an item, given the folder that items are relative to.
        lists: reads the list of pairs of each test from the raw folder
            (`hbench.datasets.dataset.list_of`).
        on_disk: whether each item is a file of that name.
    """

    name: str
    title: str
    levels: tuple[str, ...]
    build: Callable[[Path], Splits] = field(repr=False)
    version: str = "1"
    protocol: Protocol = field(default_factory=Protocol)
    files: tuple[RemoteFile, ...] = ()
    raw_name: str = ""
    markers: tuple[str, ...] = ()
    images: tuple[str, ...] = (".",)
    licence: str = "not stated"
    official_names: Callable[[Path], Names] = lambda raw: {}
    citation: str = ""
    papers: tuple[Publication, ...] = ()
    homepage: str = ""
    size: str = ""
    counts: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    disputed: Mapping[str, Sequence[Mapping[str, int]]] = field(default_factory=dict)
    defects: tuple[str, ...] = ()
    manual: str = ""
    layout: str = ""
    digests: Mapping[str, str] = field(default_factory=dict)
    picture: Picture = open_picture
    lists: Callable[[Path], dict[str, pa.Table]] = lambda raw: {}
    on_disk: bool = True

    @property
    def is_compared(self) -> bool:
        """Whether a build compares its tests with published counts or digests. Those of the
        training set alone say nothing about what is scored."""
        return not {*self.counts, *self.disputed, *self.digests} <= {"train"}

    @property
    def advice(self) -> str:
        """The commands for a dataset whose files are not on this disk: the download, if addresses
        are known, and the build."""
        held = f"hbench build {self.name} --root DIR, with the folder that holds its files"
        if not (self.files or self.manual):
            return held
        return f"hbench download {self.name}, then hbench build {self.name}; or {held}"

    @property
    def source(self) -> str:
        """The name of the folder of the raw files, and of their tables in the user's sources.toml.
        Datasets that share raw files have the same."""
        return self.raw_name or self.name

    def manifests(self, raw: Path) -> dict[str, Manifest]:
        """Build the manifest of each split from the folder of the raw files.

        `build` returns a split as a manifest, or as labelled items, which are then all queries and
        all in the gallery. Raises DataError if it returns something else, as the `build` of another
        package may.
        """
        splits = self.build(raw)
        if not isinstance(splits, Mapping):
            package = specs.package_of(self.name)
            of_package = f" of {package}" if package else ""
            raise DataError(
                f"`build` of the dataset {self.name!r}{of_package} returned no splits",
                expected='{"train": [(item, names), …], "test": […]}',
                found=type(splits).__name__,
                fix="mend the dataset: docs/plugins.md",
            )
        return {
            split: part if isinstance(part, Manifest) else manifest_of(part, self.levels)
            for split, part in splits.items()
        }


specs: Registry[Spec] = Registry("dataset", group="hbench.datasets", type=Spec)


def manifest_of(
    labelled: Labelled,
    levels: Sequence[str],
    *,
    query: NDArray[np.bool_] | None = None,
    gallery: NDArray[np.bool_] | None = None,
) -> Manifest:
    """Make the manifest of N labelled items, each a pair (item, names in the order of `levels`,
    coarse to fine). `query`, `gallery`: masks (N,); None means all items."""
    pairs = list(labelled)
    items = [item for item, _ in pairs]
    rows = [names for _, names in pairs]
    return from_names(items, rows, levels=levels, query=query, gallery=gallery)


def split_by(
    labelled: Labelled, *, trains: Callable[[Row], bool]
) -> dict[str, list[tuple[str, Row]]]:
    """Split labelled items in two: "train" if `trains(names)` is true, "test" otherwise."""
    parts: dict[str, list[tuple[str, Row]]] = {"train": [], "test": []}
    for item, names in labelled:
        parts["train" if trains(names) else "test"].append((item, names))
    return parts


def queries_against(queries: Labelled, gallery: Labelled, levels: Sequence[str]) -> Manifest:
    """Make the manifest of a test whose queries are not in the gallery. `queries` and `gallery` are
    labelled items, whose names are in the order of `levels`, coarse to fine."""
    queries = list(queries)
    pairs = [*queries, *gallery]
    query = np.arange(len(pairs)) < len(queries)
    return manifest_of(pairs, levels, query=query, gallery=~query)


def mended(rows: Mapping[Key, Row], levels: Sequence[str], *policies: str) -> dict[Key, Row]:
    """Mend rows of names by policies (hbench.tree.policies), so that together they form a tree.

    `rows`: names, coarse to fine, under any keys. The result has the same keys; () stands for a row
    that the policies leave out.
    """
    final = mend(NameTable.of(levels, rows.values()), policies).final
    return {key: final[stripped(row)] or () for key, row in rows.items()}


def held_out(names: Iterable[str], *, fraction: float, seed: int) -> set[str]:
    """Choose round(fraction·n) of the n distinct names: those with the smallest sha256 of
    "seed:name".

    The choice is the same on every machine and in every version, and an additional name changes it
    only a little.
    """
    ordered = sorted(
        set(names), key=lambda name: hashlib.sha256(f"{seed}:{name}".encode()).digest()
    )
    return set(ordered[: round(fraction * len(ordered))])
