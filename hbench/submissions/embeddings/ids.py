"""Reads the ids of vectors, one id per vector in the order of the file.

If a file of vectors has no ids, they are stored in a small file beside it. For `emb.npy` this file
is called `emb.ids.txt`, `emb_ids.txt` or `ids.txt`. Instead of .txt (one id per line) it may be
.csv (a column id, or a single column without header), .json (a list), .npy (strings) or .parquet (a
column id).
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from hbench.core.errors import SubmissionError, UsageError, examples, shorten
from hbench.core.text import counted, first_line
from hbench.core.untrusted import MAX_LIST_BYTES, parquet_table, read_json, read_text
from hbench.sheets import words
from hbench.sheets.text import TextTable
from hbench.submissions.embeddings.arrow_types import texts_of
from hbench.submissions.embeddings.numpy_files import mapped_npy
from hbench.submissions.problems import listed

COLUMNS_SHOWN = 12
Ids = NDArray[np.object_]


def read(path: Path) -> Ids:
    """Read a file of ids, str (N,). Raises UsageError for an unknown suffix, SubmissionError for a
    file that is missing or cannot be read.
    """
    if path.suffix.lower() not in READERS:
        raise UsageError(
            f"{path} is not a file of ids",
            expected=f"one of {', '.join(READERS)}",
            found=path.suffix or "no suffix",
        )
    if not path.is_file():
        raise SubmissionError(f"{path} does not exist", expected="a file with one id per vector")

    try:
        return READERS[path.suffix.lower()](path)
    except UnicodeDecodeError as error:
        raise SubmissionError(
            f"{path} is not UTF-8", found=f"byte {error.start}: {error.reason}"
        ) from None
    except (pa.ArrowException, OSError, EOFError, ValueError) as error:
        raise SubmissionError(
            f"{path} cannot be read as ids", found=shorten(first_line(error), 300)
        ) from None


def the_one_named(names: Sequence[str], known: Sequence[str], what: str, source: object) -> str:
    """The only one of `names` that is among the `known` names. Raises SubmissionError if none or
    several are. `what` is the role of the name, and `source` the file, for the error.
    """
    there = [name for name in names if name in known]
    if len(there) != 1:
        raise SubmissionError(
            f"{source} has {'more than one' if there else 'no'} {what}",
            expected=f"exactly one named {' or '.join(known[:2])}",
            found=listed(there or names, COLUMNS_SHOWN) or "nothing",
        )
    return there[0]


def the_only_one(names: Sequence[str], what: str, source: object) -> str:
    """The only one of `names`, any of which would do. Raises as `the_one_named` does if there are
    none or several."""
    return the_one_named(names, names, what, source)


def beside(path: Path) -> Path | None:
    """The file of ids that is stored beside a file of vectors, found by its name; None if there is
    none.

    The three usual names are tried first, from the surest on, then other common ones. Raises
    UsageError if several files of one name exist, since it is not clear which one is meant. The
    file of vectors itself does not count, nor does a file emb.json beside emb.npy that holds a
    JSON object: it may be the report.
    """
    stems = (f"{path.stem}.ids", f"{path.stem}_ids", "ids")
    of_stems = ([f"{stem}{suffix}" for suffix in READERS] for stem in stems)
    for names in (*of_stems, _other_names(path)):
        candidates = [path.with_name(name) for name in names]
        there = [
            each
            for each in candidates
            if each.is_file() and each != path and not _is_object(each, path)
        ]
        if len(there) > 1:
            listed = examples(candidate.name for candidate in there)
            raise UsageError(
                f"several files of ids lie beside {path}",
                found=listed,
                fix="choose one with --ids FILE",
            )
        if there:
            return there[0]

    return None


def _other_names(path: Path) -> list[str]:
    """Less usual names of a file of ids, which are tried last: the name of the vectors' file, or a
    word for what the ids are, or both."""
    kinds = ("names", "filenames", "file_names", "paths", "image_ids", "keys")
    stems = [*(f"{path.stem}_{kind}" for kind in kinds), *kinds]
    return [
        f"{path.stem}.json",
        f"{path.stem}.txt",
        *(f"{stem}{suffix}" for stem in stems for suffix in READERS),
    ]


def _is_object(candidate: Path, path: Path) -> bool:
    """Whether a JSON file with the name of the vectors holds no list and so no ids; it may be their
    report."""
    if candidate.name != f"{path.stem}.json":
        return False
    # a list begins with a bracket, perhaps after a byte order mark and blanks
    with candidate.open("rb") as file:
        return file.read(64).removeprefix(b"\xef\xbb\xbf").lstrip()[:1] != b"["


def as_ids(values: Iterable[object] | NDArray[Any], source: str) -> Ids:
    """Strings or integers as an object array of str (N,). Raises SubmissionError, which names the
    file `source`, for values of another type, and for text that is not valid Unicode.
    """
    # a text is iterable, by its letters, and a mapping by its keys, but neither is a list of ids
    if isinstance(values, str | bytes | Mapping) or not isinstance(values, Iterable):
        raise SubmissionError(
            f"the ids in {source} are not a list",
            expected="one id per vector",
            found=type(values).__name__,
        )

    array = values if isinstance(values, np.ndarray) else np.fromiter(values, dtype=object)
    if array.ndim != 1:
        raise SubmissionError(
            f"the ids in {source} are not a list",
            expected="one id per vector",
            found=f"shape {array.shape}",
        )
    if not len(array):
        return np.zeros(0, dtype=object)  # the type of an empty array says nothing
    if array.dtype.kind not in TEXTS_OF_KIND:
        raise SubmissionError(
            f"the ids in {source} are {array.dtype}", expected="strings or integers"
        )

    try:
        texts = TEXTS_OF_KIND[array.dtype.kind](array, source)
        return from_texts(pa.array(texts, pa.string()), source)
    except UnicodeEncodeError as error:
        raise SubmissionError(
            f"an id in {source} is not valid Unicode", found=ascii(shorten(error.object))
        ) from None


def from_texts(texts: pa.Array, source: str) -> Ids:
    """Arrow strings (N,) as an object array of str. Raises SubmissionError for an id with a NUL
    character, which some formats would cut off.
    """
    zeroed = texts.filter(pc.match_substring(texts, "\0"))
    if len(zeroed):
        # five are shown; the sixth tells that there are more
        zeros = examples(map(repr, zeroed.slice(0, 6).to_pylist()))
        raise SubmissionError(
            f"{source} has {counted(len(zeroed), 'id')} with a NUL character", found=zeros
        )
    return np.array(texts.to_pylist(), dtype=object)  # to_numpy of texts would load pandas


def rows_in(
    names: pa.ChunkedArray | Ids | Sequence[str], among: Ids | Sequence[str]
) -> NDArray[np.int64]:
    """The index of each name in `among`, (n,); −1 if it is missing there."""
    column = names if isinstance(names, pa.ChunkedArray) else pa.array(names, pa.string())
    return np.asarray(
        pc.index_in(column, value_set=pa.array(among, pa.string())).fill_null(-1), dtype=np.int64
    )


def _plain(array: NDArray[Any], source: str) -> NDArray[Any]:
    """The ids in an array of texts or integers, as texts (N,)."""
    try:
        return array.astype(str).astype(object)
    except SystemError:  # raised for code points beyond Unicode, which a damaged file may hold
        raise SubmissionError(
            f"an id in {source} holds a letter that Unicode does not have"
        ) from None


def _decoded(array: NDArray[Any], source: str) -> list[str]:
    """The ids in an array of bytes, decoded as UTF-8."""
    return [name.decode("utf-8") for name in array.tolist()]


def _texts_of_objects(array: NDArray[Any], source: str) -> list[str]:
    """The ids in an array of Python objects, strings or integers, as texts."""
    # bool is a subclass of int, but True is no id
    foreign = [name for name in array if not isinstance(name, str | int) or isinstance(name, bool)]
    if foreign:
        raise SubmissionError(
            f"{source} has {counted(len(foreign), 'id')} of another type",
            expected="strings or integers",
            found=examples(map(repr, foreign)),
        )
    return [str(name) for name in array]


# how the values of an array become texts, by the letter of NumPy's `dtype.kind`
TEXTS_OF_KIND: dict[str, Callable[[NDArray[Any], str], NDArray[Any] | list[str]]] = {
    "U": _plain,
    "i": _plain,
    "u": _plain,
    "S": _decoded,
    "O": _texts_of_objects,
}


def _ids_in_lines(path: Path) -> Ids:
    """The ids of a text file, one in each line. The last line may end with a newline or not."""
    text = read_text(path, most=MAX_LIST_BYTES)
    lines = [line.removesuffix("\r") for line in text.split("\n")]
    if lines[-1] == "":
        del lines[-1]
    return as_ids(lines, path.name)


def _ids_in_csv(path: Path) -> Ids:
    """The ids of a text table: its column of ids, or its only column, which needs no header."""
    text = TextTable(path)
    header = text.dialect.rows[0] if text.dialect.rows else []
    named = words.ids_in(header)  # the columns with a name for ids
    if not header:  # an empty file; its number of ids is compared with the vectors later
        return as_ids([], path.name)
    if len(named) != 1 and len(header) > 1:
        raise SubmissionError(
            f"{path} has no single column of ids", expected="a column id", found=listed(header)
        )

    text.refuse_open_quote()  # all lines behind an open quote would become one id
    # columns are called by their position, since a file without a header has no names
    names = [f"c{place}" for place in range(len(header))]
    column = names[header.index(named[0]) if named else 0]
    table = text.texts(names, header=bool(named))
    return from_texts(table[column].combine_chunks(), path.name)


def _ids_in_json(path: Path) -> Ids:
    """The ids of a JSON file, in any form that `_list_in` recognises."""
    content = read_json(path, most=MAX_LIST_BYTES)
    values = _list_in(content)
    if values is None:
        raise SubmissionError(
            f"{path} is not a list of ids",
            expected="a JSON list of strings",
            found=type(content).__name__,
        )
    return as_ids(values, path.name)


def _list_in(value: Any) -> list[Any] | None:
    """Find the list of ids in a JSON value; None if it is not clear where the ids are.

    A list may hold the ids themselves, objects with one key for ids each, or rows of equal length
    with one column that can be the ids. See `_list_in_object` for objects.

    >>> (
    ...     _list_in([["a"], ["b"]]),
    ...     _list_in({"b": 1, "a": 0}),
    ...     _list_in([{"id": "a", "label": "x"}]),
    ...     _list_in({"a": 7}),
    ... )
    (['a', 'b'], ['a', 'b'], ['a'], None)
    """
    if isinstance(value, dict):
        return _list_in_object(value)
    if not isinstance(value, list):
        return None
    if not value:  # no ids, which is compared with the number of vectors later
        return value
    if all(isinstance(held, dict) for held in value):
        known = words.ids_in(value[0])  # the keys of the first object that are names for ids
        # an object without this key gives None, which is refused later as no id
        return [held.get(known[0]) for held in value] if len(known) == 1 else None
    # rows of equal length: take the only column, or the only one of different texts
    if all(isinstance(held, list) and len(held) == len(value[0]) > 0 for held in value):
        columns = [list(column) for column in zip(*value, strict=True)]
        texts = list(filter(_are_different_texts, columns))
        fitting = columns if len(columns) == 1 else texts
        return fitting[0] if len(fitting) == 1 else None

    return value


def _are_different_texts(column: Sequence[Any]) -> bool:
    """Whether the values of a column are texts that are all different."""
    return len({held for held in column if isinstance(held, str)}) == len(column)


def _list_in_object(value: dict[str, Any]) -> list[Any] | None:
    """Find the list of ids in a JSON object: it maps ids to row numbers from 0, or row numbers to
    ids, or has one list under a usual name for ids. None for any other object."""
    rows = list(range(len(value)))
    # `type` rather than `isinstance`, since True and False are ints, but no row numbers
    are_whole_numbers = all(type(held) is int for held in value.values())
    if value and are_whole_numbers and sorted(value.values()) == rows:
        return sorted(value, key=value.__getitem__)
    if value and set(value) == set(map(str, rows)):
        return [value[str(row)] for row in rows]

    lists = [held for name, held in value.items() if words.is_id(name) and isinstance(held, list)]
    return lists[0] if len(lists) == 1 else None


def _ids_in_npy(path: Path) -> Ids:
    """The ids of a NumPy array of texts or integers."""
    return as_ids(mapped_npy(path, 0, path.stat().st_size), path.name)


def _ids_in_parquet(path: Path) -> Ids:
    """The ids of a parquet file, from its only column with a usual name for ids."""
    table = parquet_table(path)
    named = words.ids_in(table.column_names)
    if len(named) != 1:
        raise SubmissionError(
            f"{path} has no single column of ids",
            expected="a column id",
            found=listed(table.column_names),
        )
    return from_texts(texts_of(table[named[0]], str(path)), path.name)


READERS: dict[str, Callable[[Path], Ids]] = {
    ".txt": _ids_in_lines,
    ".csv": _ids_in_csv,
    ".json": _ids_in_json,
    ".npy": _ids_in_npy,
    ".parquet": _ids_in_parquet,
}
