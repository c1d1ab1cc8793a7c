"""Defines a dataset (name, version, protocol, manifests for training and testing) and the format of
its folder on disk.

The folder holds `dataset.json` (name, version, levels, protocol, digests, card), `train.parquet`
and `test.parquet`, or one `test-NAME.parquet` per test where there are several.

Benchmarks that list their positives pair by pair, instead of by labels, have a list per test:
`test.list.parquet`, a table with the columns `query`, `item` and `level`. The level -1 leaves an
item out of the ranking of the query; a pair that is not listed has level 0.
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
    """How a dataset's papers score it; the command line can override every value. In all protocols
    a query is left out of its own ranking.

    Attributes:
        similarity: a name of `hbench.engine.similarity`, such as "cosine".
        metrics: metric names, in the order of the papers' tables.
        recalls: the k of R@k.
        official: the protocol (`hbench.metrics.protocols`) that reproduces the released evaluator.
        averaged: whether the papers report the mean score over the tests.
    """

    similarity: str = "cosine"
    metrics: tuple[str, ...] = ("H-AP", "ASI", "NDCG", "AP")
    recalls: tuple[PositiveInt, ...] = (1, 10)
    official: str = "official"
    averaged: bool = False

    __pydantic_config__ = ConfigDict(extra="forbid")  # when it is read from a dataset.json

    @property
    def all_metrics(self) -> tuple[str, ...]:
        """`metrics`, then R@k for each of `recalls`."""
        return (*self.metrics, *(f"R@{k}" for k in self.recalls))


FileName = Annotated[
    str, Field(pattern=r"^\w[\w .+-]*$")
]  # the name of a file in the folder, without its suffix


class TestSize(BaseModel):
    """The number of queries of a test, and its effective number of classes.

    That is 1/Σ s², where s is the share of a class in the queries: so many equally large classes
    would make means as precise.
    """

    __test__ = False  # pytest must not collect this class as a test
    queries: int
    effective_classes: float

    @classmethod
    def of(cls, test: Manifest) -> TestSize:
        """Compute the size of a test: its number of queries, and the effective number of their
        finest classes, 1/Σ s², where s is the share of a class in the queries. Means over this many
        classes of equal size would be as precise as those of the test."""
        counts = np.bincount(test.labels[test.query, -1]).astype(np.float64)
        # 1/Σ s² = (Σ count)²/Σ count² with s = count/Σ count; 0 for a test without queries
        squares = float((counts**2).sum())
        return cls(
            queries=int(counts.sum()),
            effective_classes=float(counts.sum()) ** 2 / squares if squares else 0.0,
        )


class Description(BaseModel):
    """The content of a dataset.json; unknown keys, such as those of other versions, are ignored."""

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
    sizes: dict[str, TestSize] = {}  # by test; empty in files of older builds


@checked_class
@dataclass(frozen=True, repr=False)
class Dataset:
    """A benchmark or a dataset of your own: its name, version and protocol, and a manifest for
    training and for each test.

    Attributes:
        name: such as "cub200".
        version: "1", or with a suffix if its content differs from the published one.
        protocol: the metrics that its papers report.
        train: a manifest, or None.
        tests: {"test": manifest}, or one per granularity or split.
        root: the folder of the images, or None.
        official_names: {level: {name: the name that the released evaluators use}}, for the names
            that differ.
        lists: {test: its list of pairs, as `list_of` makes it}, for tests that have one.
        card: facts for people (title, source, licence, citation, defects …), as plain JSON values.
        read: how hbench understood a table of your own; None for other datasets.

    Raises:
        DataError: the tests have different levels.
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
        """Show the dataset in one line: its levels, and how many items each split has."""
        splits = ({TRAIN: self.train} if self.train else {}) | self.tests
        sizes = ", ".join(f"{split} {len(manifest):,}" for split, manifest in splits.items())
        return f"<Dataset {self.name}@{self.version}: {' › '.join(self.levels)}; {sizes} items>"

    def __post_init__(self) -> None:
        """Raise DataError if the tests have different levels."""
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
        """The label tree of the classes of all splits, as a networkx graph from "root" down. A node
        is (depth, id) and has a `name` and a `level`.

        If the tests have fewer levels than the training set (DyML), only the classes of the
        training set are in it. Raises TreeError if a class has two parents in two splits.
        """
        deepest = max((each.levels for each in self.manifests.values()), key=len)
        rows = {
            row
            for each in self.manifests.values()
            if each.levels == deepest
            for row in class_rows(each.tree)
        }
        tree, _ = LabelTree.from_names(sorted(rows), levels=deepest)
        return tree.graph()

    @property
    def manifests(self) -> dict[str, Manifest]:
        """The manifests by the names of their files without suffix: "train", "test" or "test-fine"
        and so on."""
        named = {
            TEST if name == TEST else f"{TEST}-{name}": test for name, test in self.tests.items()
        }
        return named if self.train is None else {TRAIN: self.train, **named}

    @property
    def known_items(self) -> set[str]:
        """The ids of the items of all splits, and of those that were dropped."""
        ids = {item for manifest in self.manifests.values() for item in manifest.items}
        return ids | {*self.dropped}

    @property
    def dropped(self) -> list[str]:
        """The items of the user's table that are in no split, such as those that policies left out.
        Embedding files may still hold them."""
        return list(self.card.get(DROPPED, ()))

    @checked
    def labels_by_name(self, manifest: Manifest) -> Labels | None:
        """Return the labels (N, L) of a manifest, numbered by the names that the released
        evaluators use: nodes that share such a name get the same number.

        None if the released evaluators tell the same classes apart as the tree does.
        """
        if not self.official_names:
            return None
        columns = []
        for level, names, ids in zip(
            manifest.levels, manifest.tree.names, manifest.labels.T, strict=True
        ):
            same = self.official_names.get(level, {})
            # official names are numbered as they occur, so nodes with the same one share its number
            known: dict[str, int] = {}
            of_node = [known.setdefault(same.get(name, name), len(known)) for name in names]
            columns.append(np.asarray(of_node, np.int32)[ids])
        labels = np.stack(columns, axis=1)
        # if no name is ambiguous, that is stands for several nodes of a level, the numbers tell the
        # same classes apart as the labels of the manifest
        return labels if have_ambiguous_names(labels, manifest.labels).any() else None

    @checked
    def rooted(
        self, root: Path | None, picture_in: Callable[[Path, str], Image.Image] | None = None
    ) -> Dataset:
        """Return the same dataset with its images in the folder `root`.

        Args:
            root: the folder of the images; None if they are not on this disk.
            picture_in: opens the image of an item, given `root` and the item. Default:
                `open_upright`, which shows it as a person sees it, with the card's background.
        """
        if picture_in is None:
            picture_in = partial(open_upright, background=self.card.get("background", "white"))
        # `opened` raises DataError if the function returns no image or fails
        picture = None if root is None else partial(opened, picture_in, root)
        moved = {
            name: dataclasses.replace(test, picture=picture) for name, test in self.tests.items()
        }
        train = None if self.train is None else dataclasses.replace(self.train, picture=picture)
        return dataclasses.replace(self, root=root, train=train, tests=moved)


def save(dataset: Dataset, folder: str | Path) -> None:
    """Write `dataset` into `folder`. Raises DataError for items whose paths would leave the folder
    of the images.

    Each file is written whole or not at all, and `dataset.json` last: a folder that has it is
    complete.
    """
    for part in [*dataset.tests.values(), *([dataset.train] if dataset.train else [])]:
        part.refuse_outside()
    folder = Path(folder)
    root = dataset.root
    # a relative path for images below the folder, so that the folder can be moved
    if root is not None and root.resolve().is_relative_to(folder.resolve()):
        root = root.resolve().relative_to(folder.resolve())
    for name, manifest in dataset.manifests.items():
        manifest.write(folder / f"{name}.parquet")
    for test, table in dataset.lists.items():
        write_parquet(table, folder / f"{test}.list.parquet")
    # with `sizes`, a list of datasets need not read their manifests
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
    """Read the sizes of the tests of the dataset in a folder, by name. Empty if there is no
    dataset, or if its dataset.json has no sizes."""
    try:
        values = read_json(folder / "dataset.json", most=MAX_LIST_BYTES)
        return Description.model_validate(values).sizes
    except (OSError, ValueError):  # pydantic's ValidationError is a ValueError
        return {}


def _read_description(path: Path) -> Description:
    """Read a dataset.json. Raises DataError if it is missing, not JSON, or does not have the fields
    of this version."""
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

    Raises DataError if the folder holds no dataset, IntegrityError if a manifest or a list does not
    have the digest, or the levels, that dataset.json states.
    """
    path = folder / "dataset.json"
    description = _read_description(path)
    # {name of the file without suffix: manifest}
    splits = {
        name: manifests.read(folder / f"{name}.parquet", digest=digest)
        for name, digest in description.digests.items()
    }
    # people read dataset.json, too: its levels must be those of the manifests
    levels = {name: manifest.levels for name, manifest in splits.items()}
    if levels != description.levels:
        raise IntegrityError(
            f"{path} names other levels than the manifests have",
            expected=str(levels),
            found=str(description.levels),
            fix="build the dataset again",
        )

    # all splits but "train" are tests, called "test" or "test-NAME"
    dataset = Dataset(
        name=description.name,
        version=description.version,
        protocol=description.protocol,
        train=splits.pop(TRAIN, None),
        tests={name.removeprefix(f"{TEST}-"): manifest for name, manifest in splits.items()},
        official_names=description.official_names,
        # {test: its pairs of a query and an item, with their levels}, of tests without labels
        lists={
            test: read_list(folder / f"{test}.list.parquet", digest)
            for test, digest in description.lists.items()
        },
        card=description.card,
    )
    # a relative path starts at the folder of the dataset
    images = description.images
    return dataset.rooted(None if images is None else (folder / images).resolve())


def list_of(pairs: Iterable[tuple[str, str, int]]) -> pa.Table:
    """Make the table of a test's pairs (query, item, level), sorted. It says which items are right
    for a query if labels do not. Raises DataError for a pair of query and item that occurs twice.

    Level 0 is that of pairs that are not listed; LEFT_OUT leaves the item out of the ranking.
    """
    rows = sorted(pairs)
    if len({row[:2] for row in rows}) != len(rows):
        raise DataError("a pair of query and item is listed twice", expected="each pair once")
    return pa.Table.from_pylist(
        [dict(zip(SCHEMA.names, row, strict=True)) for row in rows], schema=SCHEMA
    )


def digest_of(table: pa.Table) -> str:
    """Return the sha256, as hex digits, of a list of pairs. The order of its rows has no effect."""
    rows = sorted(text_rows(table, SCHEMA.names))
    return hashlib.sha256("\n".join(map("\t".join, rows)).encode()).hexdigest()


def read_list(path: Path, digest: str) -> pa.Table:
    """Read a list of pairs from a parquet file. Raises DataError if it is missing or cannot be
    read, IntegrityError if its digest is not `digest`."""
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
