"""Reads raw annotation files, and refuses those of another form, naming file and line."""

import csv
import io
import pickle
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import resources
from pathlib import Path
from typing import Any

from hbench.core.errors import DataError
from hbench.core.tables import text_rows
from hbench.core.untrusted import MAX_ANNOTATION_BYTES, read_json, read_text
from hbench.datasets.pictures import images_below
from hbench.sheets.sheet import read_table


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
    """Read the words of each line that is not blank, between white space or the `separator` (None:
    white space): as many as the `header` has, or `columns`, of a file without a header.

    A `header` is required to be there; with a `separator` it may lack its line end. The last word
    may contain spaces. Raises DataError for another header or number of words.
    """
    text = text_of(path)
    number = columns or len(header.split(separator))
    first, _, rest = text.partition("\n")
    begin = 2 if header else 1  # the line in which the rows begin, counted from 1
    after = text.removeprefix(header)
    # the first row may follow the header in its own line; a separator there continues the header
    if separator and text.startswith(header) and not after.startswith(separator):
        rest = after
        begin = 1
    elif header and first.split() != header.split():
        raise DataError(
            f"{path} has another header", expected=header, found=first[:80] or "no lines"
        )

    rows = []
    for place, line in enumerate((rest if header else text).splitlines(), begin):
        row = _words(line, separator, number)
        if line.strip() and len(row) != number:
            raise DataError(
                f"{path}, line {place}, cannot be understood",
                expected=f"{number} words",
                found=" ".join(row)[:80],
            )
        if line.strip():
            rows.append(row)

    return rows


def _words(line: str, separator: str | None, most: int) -> list[str]:
    """The words of a line, `most` at most, so that the last one may hold the separator, too; None
    as separator is white space."""
    return [word.strip() for word in line.split(separator, most - 1)]


@contextmanager
def json_of(path: Path, kind: str, *, expected: str | None = None) -> Iterator[Any]:
    """Yield the value in a JSON file to code that takes it apart; raises DataError where the file
    is missing or not `kind`.
    """
    with refuse_unless(path, kind, expected=expected):
        yield _content(path, read_json, "JSON")


def _content(path: Path, reader: Callable[..., Any], kind: str) -> Any:
    """What a function (`reader`, of a path and the most bytes that are read) reads in a raw file;
    DataError for a file that is missing or not of its `kind`, such as "JSON"."""
    try:
        return reader(path, most=MAX_ANNOTATION_BYTES)
    except FileNotFoundError:
        raise DataError(
            f"{path} does not exist", fix="hbench download NAME --part metadata"
        ) from None
    except ValueError as error:
        raise DataError(f"{path} is not {kind}", found=str(error)) from None


@contextmanager
def refuse_unless(path: Path, kind: str, *, expected: str | None = None) -> Iterator[None]:
    """Turn the errors of code that takes a file's content apart into a DataError: the file at
    `path` is not `kind`; `expected`: what should stand in it. These errors are those of content of
    another form: a part that is missing, or of another type.
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
    return text_rows(read_table(path, columns=names), names)


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
        """The function or class that the pickle asks for by `module` and `name`, if it is harmless:
        numpy's own ones to make arrays. Raises UnpicklingError for any other."""
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
    without running it, and for what goes wrong while the values are taken out of it.

    `kind`: what the file is, for the message; `expected`: what it should hold.
    """
    with refuse_unless(path, kind, expected=expected):
        try:
            value = Restricted(io.BytesIO(path.read_bytes()), encoding="latin1").load()
        except (pickle.UnpicklingError, EOFError, LookupError, OSError) as error:
            raise ValueError(str(error)) from None
        if not isinstance(value, dict) or not set(keys) <= set(value):
            raise ValueError(f"it is not a dictionary with the keys {', '.join(keys)}")
        yield value
