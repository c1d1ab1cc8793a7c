"""Reads raw annotation files, and raises DataError, naming file and line, if they have another
format than expected."""

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
    """Read a text file that hbench ships in the folder `benchmarks`."""
    return resources.files("hbench.datasets.benchmarks").joinpath(name).read_text(encoding="utf-8")


def shipped_rows(name: str) -> list[dict[str, str]]:
    """Read a CSV that hbench ships in the folder `benchmarks`: a row is {column: cell}."""
    return list(csv.DictReader(shipped(name).splitlines()))


def images_in(raw: Path, folder: str) -> list[str]:
    """List the images below the subfolder `folder` of the raw folder, sorted, as paths relative to
    the raw folder. Raises DataError if there are none."""
    items = [f"{folder}/{item}" for item in sorted(images_below(raw / folder))]
    if not items:
        raise DataError(
            f"{raw / folder} holds no images", fix="hbench datasets NAME shows the layout"
        )
    return items


def text_of(path: Path) -> str:
    """Read a text file. Raises DataError if it is missing or not text."""
    return str(_content(path, read_text, "a text file"))


def lines_of(path: Path) -> list[str]:
    """Read the lines of a text file that are not blank. Raises DataError if it is missing or not
    text."""
    return [line for line in text_of(path).splitlines() if line.strip()]


def rows_of(
    path: Path, *, header: str = "", columns: int = 0, separator: str | None = None
) -> list[list[str]]:
    """Split each line that is not blank into words, all of the same number. The last word may
    contain the separator.

    Args:
        path: the text file.
        header: the first line, which must be there; its number of words is that of each line. With
            a `separator`, the line end after the header may be missing.
        columns: the number of words of each line, for a file without a header.
        separator: the text between words; None for white space.

    Raises:
        DataError: the header differs, or a line has another number of words.
    """
    text = text_of(path)
    number = columns or len(header.split(separator))
    first, _, rest = text.partition("\n")
    begin = 2 if header else 1  # the number of the line in which the rows begin, from 1
    after = text.removeprefix(header)
    # With a `separator`, the first row may follow the header in the same line. So what is left of
    # that line, usually nothing, is read as line 1. But if a separator follows the header, the file
    # has further columns, and so another header.
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
    """Split a line into `most` words at most; the last one may contain the separator. None as
    separator means white space."""
    return [word.strip() for word in line.split(separator, most - 1)]


@contextmanager
def json_of(path: Path, kind: str, *, expected: str | None = None) -> Iterator[Any]:
    """Yield the value in a JSON file to the code in the `with` block, which takes it apart. Raises
    DataError if the file is missing, or if reading it or the block fails (`refuse_unless`).

    `kind`: what the file should be, for the message; `expected`: what it should hold.
    """
    with refuse_unless(path, kind, expected=expected):
        yield _content(path, read_json, "JSON")


def _content(path: Path, reader: Callable[..., Any], kind: str) -> Any:
    """Read a raw file by `reader(path, most=number of bytes)`, which raises ValueError for a larger
    file. Raises DataError if the file is missing, too large, or not of its `kind`, such as
    "JSON"."""
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
    """Turn errors of the `with` block, which takes a file's content apart, into a DataError: the
    file at `path` is not `kind`. Only such errors are turned as occur where a part of the content
    is missing or of another type. `expected`: what the file should hold.
    """
    try:
        yield
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        reason = f"no {error}" if isinstance(error, KeyError) else str(error)
        raise DataError(f"{path} is not {kind}", expected=expected, found=reason) from None


def cells_of(path: Path, *names: str) -> list[tuple[str, ...]]:
    """Read the columns `names` of a table with a header (.csv, .tsv, also .gz): a tuple of texts
    for each row."""
    return text_rows(read_table(path, columns=names), names)


# the functions and classes that an unpickled numpy array needs, by module and name
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
    """Unpickles lists, dictionaries, numbers, texts and numpy arrays. Anything that could run code
    raises UnpicklingError."""

    def find_class(self, module: str, name: str) -> Any:
        """Return the function or class that the pickle requests, if it is in HARMLESS; raise
        UnpicklingError for any other."""
        if name == "bytes" and module in {"__builtin__", "builtins"}:
            # for an empty array Python 3 calls `bytes()`; a call `bytes(10**12)` would fill the
            # memory, but fails here, since the function takes no argument
            return lambda: b""
        if (module, name) not in HARMLESS:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}")
        return super().find_class(module, name)


@contextmanager
def plain_pickle(
    path: Path, kind: str, *, keys: Sequence[str], expected: str | None = None
) -> Iterator[dict[str, Any]]:
    """Yield the pickled dictionary in a file to the code in the `with` block, which takes it apart.
    No code in the pickle is run.

    Raises DataError if the file is not a dictionary of plain values with these `keys`, or if the
    block raises an error, as where a part is missing: `refuse_unless` makes a DataError of the
    block's error, and of the ValueErrors below. `kind`: what the file should be, for the message;
    `expected`: what it should hold.
    """
    with refuse_unless(path, kind, expected=expected):
        try:
            # a pickle of Python 2 holds texts and arrays as bytes; latin1 makes one character of
            # each byte, so that none is lost
            value = Restricted(io.BytesIO(path.read_bytes()), encoding="latin1").load()
        except (pickle.UnpicklingError, EOFError, LookupError, OSError) as error:
            raise ValueError(str(error)) from None
        if not isinstance(value, dict) or not set(keys) <= set(value):
            raise ValueError(f"it is not a dictionary with the keys {', '.join(keys)}")
        yield value
