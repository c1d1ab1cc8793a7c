"""Defines a Spec, which describes a published dataset: levels, counts, licence, paper, and how to
build it from raw files.

Below it is what builds are written with: splits and manifests of labelled items, and readers of raw
annotation files, which refuse those of another form, naming file and line.
"""

import csv
import hashlib
import io
import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from PIL import Image

from hbench.core.errors import DataError
from hbench.core.registry import Registry
from hbench.core.tables import read_sheet, text_rows
from hbench.core.untrusted import ANNOTATIONS, read_json, read_text
from hbench.datasets.dataset import Protocol as Protocol  # benchmarks take it from here
from hbench.datasets.manifest import Manifest, from_names
from hbench.datasets.pictures import images_below, open_picture
from hbench.tree.names import NameTable, Row, stripped
from hbench.tree.policies import mend

Picture = Callable[
    [Path, str], Image.Image
]  # opens the image of an item, given the folder that items are relative to
Names = dict[str, dict[str, str]]
Labelled = Iterable[tuple[str, Row]]  # items with their names, coarse to fine
Key = TypeVar("Key")
Splits = Mapping[
    str, Labelled | Manifest
]  # by "train", "test" or, where there are several tests, their names

RANKS = ("kingdom", "phylum", "class", "order", "family", "genus", "species")
PARTIAL = (
    "fill-from-parent",
    "unknown",
    "by-path",
)  # policies: a path that ends early is unknown below its end


@dataclass(frozen=True)
class Spec:
    """A published dataset: `levels` are coarse to fine; `build` turns the raw folder into the
    splits.

    `files`: its name in sources.toml, where that is another dataset's, whose files it shares.
    `markers`: paths in the raw folder, one of which identifies it; empty where no files are needed.
    `images`: folders, relative to the raw folder, that may hold the items. `counts`: the published
    {split: {"images" or a level: n}}, which every build checks. `official_names`: reads {level:
    {name: the name that the released evaluators use}}, where they differ, from the raw folder.
    `manual`: what must be fetched by hand. `layout`: the raw folder drawn as a tree. `digests`:
    {split: digest}, where the raw files have one exact form. `picture`: opens the image of an item.
    `on_disk`: whether each item is a file of that name. `lists`: reads the list of pairs of each
    test from the raw folder (hbench.datasets.dataset.list_of).
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
    counts: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
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
        """Build the manifest of every split; where `build` gives labelled items, all are queries
        and in the gallery.
        """
        return {
            split: part if isinstance(part, Manifest) else manifest_of(part, self.levels)
            for split, part in self.build(raw).items()
        }


specs: Registry[Spec] = Registry("dataset", group="hbench.datasets", type=Spec)


def manifest_of(
    labelled: Labelled,
    levels: Sequence[str],
    *,
    query: NDArray[np.bool_] | None = None,
    gallery: NDArray[np.bool_] | None = None,
) -> Manifest:
    """Make the manifest of items; without the masks `query` and `gallery` all are queries and all
    in the gallery.
    """
    pairs = list(labelled)
    items = [item for item, _ in pairs]
    rows = [names for _, names in pairs]
    return from_names(items, rows, levels=levels, query=query, gallery=gallery)


def split_by(
    labelled: Labelled, *, trains: Callable[[Row], bool]
) -> dict[str, list[tuple[str, Row]]]:
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
    """Replace each row of names by what the policies (hbench.tree.policies) make of it, in a tree
    of all rows.
    """
    final = mend(NameTable.of(levels, rows.values()), policies).final
    return {key: final[stripped(row)] or () for key, row in rows.items()}


def held_out(names: Iterable[str], *, fraction: float, seed: int) -> set[str]:
    """Choose round(fraction·n) of the n distinct names: those with the smallest sha256 of
    "seed:name".

    The choice is the same on every machine and in every version, and a name added later changes
    little of it.
    """
    ordered = sorted(
        set(names), key=lambda name: hashlib.sha256(f"{seed}:{name}".encode()).digest()
    )
    return set(ordered[: round(fraction * len(ordered))])


def shipped(name: str) -> str:
    """Read a text file in the folder `benchmarks`."""
    return resources.files("hbench.datasets.benchmarks").joinpath(name).read_text(encoding="utf-8")


def shipped_rows(name: str) -> list[dict[str, str]]:
    """Read a CSV in the folder `benchmarks`: a dictionary per row, by the names of its columns."""
    return list(csv.DictReader(shipped(name).splitlines()))


def images_in(raw: Path, folder: str) -> list[str]:
    """List the images below a folder of the raw folder, sorted; raises DataError where there are
    none.
    """
    items = [f"{folder}/{item}" for item in sorted(images_below(raw / folder))]
    if not items:
        raise DataError(
            f"{raw / folder} holds no images", fix="hbench datasets NAME shows the layout"
        )
    return items


def text_of(path: Path) -> str:
    """Read a text file; raises DataError where it is missing or not text."""
    return str(_content(path, read_text, "a text file"))


def lines_of(path: Path) -> list[str]:
    """Read the lines of a text file that are not empty; raises DataError where it is missing or not
    text.
    """
    return [line for line in text_of(path).splitlines() if line.strip()]


def rows_of(
    path: Path, *, header: str = "", columns: int = 0, separator: str | None = None
) -> list[list[str]]:
    """Read the words of each line, between white space or the `separator`: as many as the `header`
    has, or `columns`.

    The header is required; with a `separator` it may lack its line end. The last word may contain
    spaces. Raises DataError for another header or number of words.
    """
    text = text_of(path)
    number = columns or len(header.split(separator))
    first, _, rest = text.partition("\n")
    if separator is not None and text.startswith(header):
        rest = text.removeprefix(header)
    elif header and first.split() != header.split():
        raise DataError(
            f"{path} has another header", expected=header, found=first[:80] or "no lines"
        )

    lines = (rest if header else text).splitlines()
    rows = [_words(line, separator, number) for line in lines if line.strip()]
    for place, row in enumerate(rows, start=1 + bool(header)):
        if len(row) != number:
            raise DataError(
                f"{path}, line {place}, cannot be understood",
                expected=f"{number} words",
                found=" ".join(row)[:80],
            )

    return rows


def _words(line: str, separator: str | None, most: int) -> list[str]:
    return [word.strip() for word in line.split(separator, most - 1)]


@contextmanager
def json_of(path: Path, kind: str, *, expected: str | None = None) -> Iterator[Any]:
    """Yield the value in a JSON file to code that takes it apart; raises DataError where the file
    is missing or not `kind`.
    """
    with refuse_unless(path, kind, expected=expected):
        yield _content(path, read_json, "JSON")


def _content(path: Path, reader: Callable[..., Any], kind: str) -> Any:
    try:
        return reader(path, most=ANNOTATIONS)
    except FileNotFoundError:
        raise DataError(
            f"{path} does not exist", fix="hbench download NAME --part metadata"
        ) from None
    except ValueError as error:
        raise DataError(f"{path} is not {kind}", found=str(error)) from None


@contextmanager
def refuse_unless(path: Path, kind: str, *, expected: str | None = None) -> Iterator[None]:
    """Turn the errors of code that takes a file's content apart into a DataError: the file at
    `path` is not `kind`.
    """
    try:
        yield
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        reason = f"no {error}" if isinstance(error, KeyError) else str(error)
        raise DataError(f"{path} is not {kind}", expected=expected, found=reason) from None


def cells_of(path: Path, *names: str) -> list[tuple[str, ...]]:
    """Read the rows of a table with a header (.csv, .tsv, also .gz), of the named columns, every
    value as text.
    """
    return text_rows(read_sheet(path, columns=names), names)


HARMLESS = {
    (f"{package}.{module}", name)
    for package in ("numpy.core", "numpy._core")
    for module, name in (
        ("multiarray", "_reconstruct"),
        ("multiarray", "scalar"),
        ("numeric", "_frombuffer"),
    )
} | {("numpy", "ndarray"), ("numpy", "dtype"), ("_codecs", "encode")}


class Restricted(pickle.Unpickler):
    """Unpickles lists, dictionaries, numbers, texts and numpy arrays, and refuses everything that
    could run code.
    """

    def find_class(self, module: str, name: str) -> Any:
        if name == "bytes" and module in {"__builtin__", "builtins"}:
            # Python 3 calls `bytes()` for an empty array; with a number it would fill the memory
            return lambda: b""
        if (module, name) not in HARMLESS:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}")
        return super().find_class(module, name)


@contextmanager
def plain_pickle(
    path: Path, kind: str, *, keys: Sequence[str], expected: str | None = None
) -> Iterator[dict[str, Any]]:
    """Yield a pickled dictionary of plain values with these keys; raises DataError for any other,
    without running it.
    """
    with refuse_unless(path, kind, expected=expected):
        try:
            value = Restricted(io.BytesIO(path.read_bytes()), encoding="latin1").load()
        except (pickle.UnpicklingError, EOFError, LookupError, OSError) as error:
            raise ValueError(str(error)) from None
        if not isinstance(value, dict) or not set(keys) <= set(value):
            raise ValueError(f"it is not a dictionary with the keys {', '.join(keys)}")
        yield value
