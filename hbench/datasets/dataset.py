"""Defines a dataset (name, version, protocol, manifests for training and testing) and its folder on
disk.

The folder holds `dataset.json` (name, version, levels, protocol, digests, card), `train.parquet`
and `test.parquet`, or one `test-NAME.parquet` per test where there are several.

Benchmarks that name positives pair by pair, instead of by labels, have a list per test:
`test.list.parquet`, a table with the columns `query`, `item` and `level`. The level -1 leaves an
item out of the query's list; a pair that is not listed has level 0.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
import pyarrow as pa
from PIL import Image
from pydantic import BaseModel, ConfigDict, Field, PositiveInt, ValidationError

from hbench.core.arguments import checked, checked_class
from hbench.core.errors import DataError, IntegrityError
from hbench.core.files import write_text
from hbench.core.tables import text_rows, write_parquet
from hbench.core.text import first_line, first_problem
from hbench.core.untrusted import MAX_LIST_BYTES, parquet_table, read_json
from hbench.datasets import manifest as manifests
from hbench.datasets.manifest import Manifest
from hbench.datasets.pictures import open_upright, opened
from hbench.sheets.understood import Understood
from hbench.tree import Labels, LabelTree
from hbench.tree.names import class_rows, have_ambiguous_names

if TYPE_CHECKING:
    import networkx as nx

    from hbench.tree import Node

FORMAT = "hbench.dataset/1"
TRAIN = "train"
TEST = "test"
DROPPED = "dropped"
LEFT_OUT = -1
SCHEMA = pa.schema([("query", pa.string()), ("item", pa.string()), ("level", pa.int8())])


@dataclass(frozen=True)
class Protocol:
    """The way a dataset's papers score it; the command line can override every value. Every query
    is left out of its own list.

    Attributes:
        similarity: a name of `hbench.engine.similarity`, such as "cosine".
        metrics: metric names, in the order of the papers' tables.
        recalls: the k of R@k.
        official: the protocol (`hbench.metrics.protocols`) that reproduces the released evaluator.
        averaged: whether a score is the mean over the tests.
    """

    similarity: str = "cosine"
    metrics: tuple[str, ...] = ("H-AP", "ASI", "NDCG", "AP")
    recalls: tuple[PositiveInt, ...] = (1, 10)
    official: str = "official"
    averaged: bool = False

    __pydantic_config__ = ConfigDict(extra="forbid")  # in a dataset.json

    @property
    def all_metrics(self) -> tuple[str, ...]:
        """`metrics`, then R@k for each of `recalls`."""
        return (*self.metrics, *(f"R@{k}" for k in self.recalls))


FileName = Annotated[
    str, Field(pattern=r"^\w[\w .+-]*$")
]  # the name of a file in the folder, without its suffix


class TestSize(BaseModel):
    """The queries of a test, and how many equally large classes would make means as precise as its
    classes do: 1/Σ s², of every class's share s of the queries."""

    __test__ = False  # no test of pytest's
    queries: int
    effective_classes: float

    @classmethod
    def of(cls, test: Manifest) -> TestSize:
        """The size of a test, by its finest classes."""
        counts = np.bincount(test.labels[test.query, -1]).astype(np.float64)
        # 1/Σ s² with the shares s = count/Σ count; 0 of a test without queries
        squares = float((counts**2).sum())
        return cls(
            queries=int(counts.sum()),
            effective_classes=float(counts.sum()) ** 2 / squares if squares else 0.0,
        )


class Description(BaseModel):
    """The content of a dataset.json; keys of other versions are ignored."""

    model_config = ConfigDict(defer_build=True)
    format: Literal["hbench.dataset/1"]
    name: str
    version: str
    levels: dict[str, tuple[str, ...]]
    protocol: Protocol
    digests: dict[FileName, str]
    lists: dict[FileName, str]
    official_names: dict[str, dict[str, str]]
    images: Annotated[str, Field(pattern=r"^[^\x00]*$")] | None
    card: dict[str, Any]
    sizes: dict[str, TestSize] = {}  # by test; of older builds unknown


@checked_class
@dataclass(frozen=True, repr=False)
class Dataset:
    """A benchmark or a dataset of your own: its name, version and protocol, and a manifest for
    training and for each test.

    Attributes:
        name: such as "cub200".
        version: "1", or with a suffix where its content is not the published one.
        protocol: the metrics that its papers report.
        train: a manifest, or None.
        tests: {"test": manifest}, or one per granularity or split.
        root: the folder of the images, or None.
        official_names: {level: {name: the name that the released evaluators use}}, where they
            differ.
        lists: the lists of positive pairs, for tests that have one.
        card: what a person wants to know (title, source, licence, citation, defects …), as plain
            JSON values.
        read: what a table of your own was taken for.

    Raises:
        DataError: tests of different levels.
    """

    name: str
    version: str
    protocol: Protocol
    train: Manifest | None
    tests: dict[str, Manifest]
    root: Path | None = None
    official_names: dict[str, dict[str, str]] = field(default_factory=dict)
    lists: dict[str, pa.Table] = field(default_factory=dict)
    card: dict[str, Any] = field(default_factory=dict)
    read: Understood | None = field(default=None, compare=False)

    def __repr__(self) -> str:
        """The dataset in one line: its levels, and how many items each split has."""
        splits = ({TRAIN: self.train} if self.train else {}) | self.tests
        sizes = ", ".join(f"{split} {len(manifest):,}" for split, manifest in splits.items())
        return f"<Dataset {self.name}@{self.version}: {' › '.join(self.levels)}; {sizes} items>"

    def __post_init__(self) -> None:
        """Raise DataError for tests of different levels."""
        if len({test.levels for test in self.tests.values()}) != 1:
            raise DataError(
                f"the tests of {self.name} differ in their levels",
                expected="one set of levels for all tests",
            )

    @property
    def levels(self) -> tuple[str, ...]:
        """The level names of the tests, coarse to fine; `train` may have others."""
        return next(iter(self.tests.values())).levels

    @property
    def tree(self) -> nx.DiGraph[Node]:
        """The label tree of all classes, those that train and those that are tested, as a networkx
        graph, from "root" down; a node is (depth, id) and has a `name` and a `level`.

        Where tests have fewer levels than the training set (DyML), it is that of the training set.
        Raises TreeError where a class lies under two parents in two splits.
        """
        deepest = max((each.levels for each in self.manifests.values()), key=len)
        rows = {
            row
            for each in self.manifests.values()
            if each.levels == deepest
            for row in class_rows(each.tree)
        }
        return LabelTree.from_names(sorted(rows), levels=deepest)[0].graph()

    @property
    def manifests(self) -> dict[str, Manifest]:
        """The manifests by file name without suffix: "train", "test" or "test-fine" …."""
        named = {
            TEST if name == TEST else f"{TEST}-{name}": test for name, test in self.tests.items()
        }
        return named if self.train is None else {TRAIN: self.train, **named}

    @property
    def known_items(self) -> set[str]:
        """The ids of all its items, in whatever split or test, and of those that were dropped."""
        ids = {item for manifest in self.manifests.values() for item in manifest.items}
        return ids | {*self.dropped}

    @property
    def dropped(self) -> list[str]:
        """Items of its table that policies or the choice of copies left out; embedding files may
        hold them.
        """
        return list(self.card.get(DROPPED, ()))

    @checked
    def labels_by_name(self, manifest: Manifest) -> Labels | None:
        """The labels (N, L) of a manifest numbered by the names that the released evaluators use,
        so that two are equal where these names are: such names may stand for several nodes.

        None where they say the same as those of its tree.
        """
        if not self.official_names:
            return None
        columns = []
        for level, names, ids in zip(
            manifest.levels, manifest.tree.names, manifest.labels.T, strict=True
        ):
            same = self.official_names.get(level, {})
            # nodes of one official name get one number, that of the first of them
            known: dict[str, int] = {}
            of_node = [known.setdefault(same.get(name, name), len(known)) for name in names]
            columns.append(np.asarray(of_node, np.int32)[ids])
        labels = np.stack(columns, axis=1)
        return labels if have_ambiguous_names(labels, manifest.labels).any() else None

    @checked
    def rooted(
        self, root: Path | None, picture_in: Callable[[Path, str], Image.Image] | None = None
    ) -> Dataset:
        """Return the same dataset with its images in the folder `root`, where `picture_in(root,
        item)` opens them.

        By default images are opened as a person sees them, on the background that the card names.
        `root` None: the images are not here, and nothing opens them."""
        if picture_in is None:
            picture_in = partial(open_upright, background=self.card.get("background", "white"))
        picture = None if root is None else partial(opened, picture_in, root)
        moved = {
            name: dataclasses.replace(test, picture=picture) for name, test in self.tests.items()
        }
        train = None if self.train is None else dataclasses.replace(self.train, picture=picture)
        return dataclasses.replace(self, root=root, train=train, tests=moved)


def save(dataset: Dataset, folder: str | Path) -> None:
    """Write `dataset` into `folder`: the manifests first, `dataset.json` last, so that a folder
    that has it is complete; each file whole or not at all. Raises DataError for items that would
    lie outside of a folder of images.
    """
    for part in [*dataset.tests.values(), *([dataset.train] if dataset.train else [])]:
        part.refuse_outside()
    folder = Path(folder)
    root = dataset.root
    # images below the folder are named relative to it, so that the folder can be moved
    if root is not None and root.resolve().is_relative_to(folder.resolve()):
        root = root.resolve().relative_to(folder.resolve())
    for name, manifest in dataset.manifests.items():
        manifest.write(folder / f"{name}.parquet")
    for test, table in dataset.lists.items():
        write_parquet(table, folder / f"{test}.list.parquet")
    # `sizes` are for lists of datasets, which then need not read the manifests
    description = {
        "format": FORMAT,
        "name": dataset.name,
        "version": dataset.version,
        "levels": {name: list(manifest.levels) for name, manifest in dataset.manifests.items()},
        "protocol": dataclasses.asdict(dataset.protocol),
        "digests": {name: manifest.digest for name, manifest in dataset.manifests.items()},
        "lists": {test: digest_of(table) for test, table in dataset.lists.items()},
        "official_names": dataset.official_names,
        "images": None if root is None else root.as_posix(),
        "card": dataset.card,
        "sizes": {name: TestSize.of(test).model_dump() for name, test in dataset.tests.items()},
    }
    write_text(
        folder / "dataset.json", json.dumps(description, indent=2, ensure_ascii=False) + "\n"
    )


def sizes_in(folder: Path) -> dict[str, TestSize]:
    """The sizes of the tests of the dataset in a folder, by name; nothing where none is there, or
    it does not say.
    """
    try:
        values = read_json(folder / "dataset.json", most=MAX_LIST_BYTES)
        return Description.model_validate(values).sizes
    except (OSError, ValueError):  # pydantic's ValidationError is a ValueError
        return {}


def _read_description(path: Path) -> Description:
    """The content of a dataset.json. Raises DataError where it is missing, no JSON, or not one of
    this version."""
    try:
        return Description.model_validate(read_json(path, most=MAX_LIST_BYTES))
    except FileNotFoundError:
        raise DataError(
            f"{path.parent} is not a dataset",
            expected="a dataset.json in it",
            fix="hbench build --out makes one",
        ) from None
    except ValidationError as error:
        raise DataError(
            f"{path} does not describe a dataset of this version of hbench",
            expected=f"format {FORMAT} with {', '.join(sorted(Description.model_fields))}",
            found=first_problem(error),
            fix="build the dataset again",
        ) from None
    except ValueError as error:
        raise DataError(f"{path} cannot be read", expected="JSON", found=str(error)) from None


def read(folder: Path) -> Dataset:
    """Read the dataset in `folder`.

    Raises DataError where it holds no dataset, IntegrityError when a manifest's digest is not the
    one in dataset.json.
    """
    path = folder / "dataset.json"
    description = _read_description(path)
    # a manifest by split, each checked against the digest that dataset.json states
    splits = {
        name: manifests.read(folder / f"{name}.parquet", digest=digest)
        for name, digest in description.digests.items()
    }
    # dataset.json is read by people, too: it must not say other levels than are there
    levels = {name: manifest.levels for name, manifest in splits.items()}
    if levels != description.levels:
        raise IntegrityError(
            f"{path} names other levels than the manifests have",
            expected=str(levels),
            found=str(description.levels),
            fix="build the dataset again",
        )

    # what is not the training split is a test, "test-NAME"
    dataset = Dataset(
        name=description.name,
        version=description.version,
        protocol=description.protocol,
        train=splits.pop(TRAIN, None),
        tests={name.removeprefix(f"{TEST}-"): manifest for name, manifest in splits.items()},
        official_names=description.official_names,
        lists={
            test: read_list(folder / f"{test}.list.parquet", digest)
            for test, digest in description.lists.items()
        },
        card=description.card,
    )
    # a path from the folder of the dataset, so that both can be moved together
    images = description.images
    return dataset.rooted(None if images is None else (folder / images).resolve())


def list_of(pairs: Iterable[tuple[str, str, int]]) -> pa.Table:
    """Make the sorted table of pairs (query, item, level), which says what is right where no label
    does; raises DataError for a pair that occurs twice."""
    rows = sorted(pairs)
    if len({row[:2] for row in rows}) != len(rows):
        raise DataError("a pair of query and item is listed twice", expected="each pair once")
    return pa.Table.from_pylist(
        [dict(zip(SCHEMA.names, row, strict=True)) for row in rows], schema=SCHEMA
    )


def digest_of(table: pa.Table) -> str:
    """The sha256, as hex digits, of a list of pairs, whose rows may be in any order."""
    rows = sorted(text_rows(table, SCHEMA.names))
    return hashlib.sha256("\n".join(map("\t".join, rows)).encode()).hexdigest()


def read_list(path: Path, digest: str) -> pa.Table:
    """Read a list from a parquet file; raises DataError where it is missing, IntegrityError where
    it lacks `digest`.
    """
    try:
        table = parquet_table(path).select(SCHEMA.names).cast(SCHEMA)
    except (OSError, ValueError, KeyError, pa.ArrowException) as error:
        raise DataError(
            f"{path} cannot be read", found=first_line(error), fix="build the dataset again"
        ) from None
    if digest_of(table) != digest:
        raise IntegrityError(
            f"{path} has other content than recorded", fix="build the dataset again"
        )
    return table
