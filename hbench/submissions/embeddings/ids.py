"""Reads the ids of vectors, from their own file or beside them.

There is one id per vector, in file order; beside vectors that carry none they lie in a small file
of their own. `emb.npy` is joined by `emb.ids.txt`, `emb_ids.txt` or `ids.txt` beside it; instead of
.txt (one id per line) also .csv (a column id, or a single column without header), .json (a list),
.npy (strings) and .parquet (a column id).
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from hbench.core.errors import SubmissionError, UsageError, examples, shorten
from hbench.core.text import first_line
from hbench.core.untrusted import MAX_LIST_BYTES, parquet_table, read_json, read_text
from hbench.sheets import words
from hbench.sheets.text import TextTable
from hbench.submissions.embeddings.arrow_types import texts_of
from hbench.submissions.embeddings.numpy_files import mapped_npy
from hbench.submissions.problems import listed

COLUMNS_SHOWN = 12
Ids = NDArray[np.object_]


def read(path: Path) -> Ids:
    """The ids in a file of them, (N,) str; raises UsageError for an unknown suffix, else
    SubmissionError.
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
    """The one of `names` that is a known name for `what`; raises SubmissionError, which names the
    file `source` and the first of the `known`, if none or several are.
    """
    there = [name for name in names if name in known]
    if len(there) != 1:
        raise SubmissionError(
            f"{source} has {'several' if there else 'no'} {what}",
            expected=f"exactly one named {' or '.join(known[:2])}",
            found=listed(there or names, COLUMNS_SHOWN) or "nothing",
        )
    return there[0]


def beside(path: Path) -> Path | None:
    """The sidecar of a vectors file, looked for under the three usual names; None when there is
    none.

    Raises UsageError when several exist, since nothing says which one is meant.
    """
    # the surest first; whoever has one of these means it, and several of one kind contradict
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
    """The names that files of ids have elsewhere: that of the vectors, or what the ids are."""
    kinds = ("names", "filenames", "file_names", "paths", "image_ids", "keys")
    stems = [*(f"{path.stem}_{kind}" for kind in kinds), *kinds]
    return [
        f"{path.stem}.json",
        f"{path.stem}.txt",
        *(f"{stem}{suffix}" for stem in stems for suffix in READERS),
    ]


def _is_object(candidate: Path, path: Path) -> bool:
    """Whether a JSON file of the vectors' own name is no list, but, say, their report."""
    if candidate.name != f"{path.stem}.json":
        return False
    with candidate.open("rb") as file:
        return file.read(64).removeprefix(b"\xef\xbb\xbf").lstrip()[:1] != b"["


def as_ids(values: Iterable[object] | NDArray[Any], source: str) -> Ids:
    """Strings or integers as an object array of str (N,); raises SubmissionError, which names the
    file `source`, for anything else, or broken text.
    """
    # a text would be a list of its letters, a mapping one of its keys
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
        return np.zeros(0, dtype=object)  # an empty array has any type
    if array.dtype.kind not in TEXTS_OF_KIND:
        raise SubmissionError(
            f"the ids in {source} are {array.dtype}", expected="strings or integers"
        )

    try:  # by the kind of array, a function that makes texts of it
        texts = TEXTS_OF_KIND[array.dtype.kind](array, source)
        return from_texts(pa.array(texts, pa.string()), source)
    except UnicodeEncodeError as error:
        raise SubmissionError(
            f"an id in {source} is not valid Unicode", found=ascii(shorten(error.object))
        ) from None


def from_texts(texts: pa.Array, source: str) -> Ids:
    """Arrow strings (N,) as an object array of str; raises SubmissionError for a NUL, which some
    formats cut off.
    """
    zeroed = texts.filter(pc.match_substring(texts, "\0"))
    if len(zeroed):
        zeros = examples(map(repr, zeroed.slice(0, 6).to_pylist()))
        raise SubmissionError(f"{len(zeroed):,} ids in {source} hold a NUL", found=zeros)
    return np.array(texts.to_pylist(), dtype=object)  # to_numpy of texts would load pandas


def rows_in(
    names: pa.ChunkedArray | Ids | Sequence[str], among: Ids | Sequence[str]
) -> NDArray[np.int64]:
    """Return the position (n,) of each name among others, −1 where it is missing."""
    column = names if isinstance(names, pa.ChunkedArray) else pa.array(names, pa.string())
    return np.asarray(
        pc.index_in(column, value_set=pa.array(among, pa.string())).fill_null(-1), dtype=np.int64
    )


def _plain(array: NDArray[Any], source: str) -> NDArray[Any]:
    """The ids in an array of texts or whole numbers, numbers by their digits, as texts (N,)."""
    try:
        return array.astype(str).astype(object)
    except SystemError:  # numpy does not look at the letters of a damaged file
        raise SubmissionError(
            f"an id in {source} holds a letter that Unicode does not have"
        ) from None


def _decoded(array: NDArray[Any], source: str) -> list[str]:
    """The ids in an array of bytes, which are taken for UTF-8, as texts."""
    return [name.decode("utf-8") for name in array.tolist()]


def _texts_of_objects(array: NDArray[Any], source: str) -> list[str]:
    """The ids in an array of Python objects, strings or integers, as texts."""
    # True is an int of Python, but no id
    foreign = [name for name in array if not isinstance(name, str | int) or isinstance(name, bool)]
    if foreign:
        raise SubmissionError(
            f"{len(foreign):,} ids in {source} are neither strings nor integers",
            found=examples(map(repr, foreign)),
        )
    return [str(name) for name in array]


# by numpy's letter of a type's kind: how its values become texts
TEXTS_OF_KIND: dict[str, Callable[[NDArray[Any], str], NDArray[Any] | list[str]]] = {
    "U": _plain,
    "i": _plain,
    "u": _plain,
    "S": _decoded,
    "O": _texts_of_objects,
}


def _ids_in_lines(path: Path) -> Ids:
    """The ids of a text, one in each line; the last line may have an end or not."""
    text = read_text(path, most=MAX_LIST_BYTES)
    lines = [line.removesuffix("\r") for line in text.split("\n")]
    if lines[-1] == "":
        del lines[-1]
    return as_ids(lines, path.name)


def _ids_in_csv(path: Path) -> Ids:
    """The ids of a text table: of its column of ids, of its only column, or of a list without a
    header."""
    text = TextTable(path)
    header = text.dialect.rows[0] if text.dialect.rows else []
    named = words.ids_in(header)
    if not header:  # an empty file, whose number of ids is refused beside the vectors
        return as_ids([], path.name)
    if len(named) != 1 and len(header) > 1:
        raise SubmissionError(
            f"{path} has no single column of ids", expected="a column id", found=listed(header)
        )

    text.refuse_open_quote()
    # columns are read by place, for a file without a header has no names
    places = [f"c{place}" for place in range(len(header))]
    column = places[header.index(named[0]) if named else 0]
    table = text.texts(places, header=bool(named))
    return from_texts(table[column].combine_chunks(), path.name)


def _ids_in_json(path: Path) -> Ids:
    """The ids of a JSON file, in any of the forms of `_list_in`."""
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
    """The ids in a JSON value: a list of them, also each in a list or object of its own; in an
    object, the list under a usual name, the keys of row numbers, or the values under them. None
    where it is not sure.

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
    if not isinstance(value, list) or not value:
        return value if isinstance(value, list) else None
    if all(isinstance(held, dict) for held in value):
        known = words.ids_in(value[0])  # all have the keys of the first, or a missing id is refused
        return [held.get(known[0]) for held in value] if len(known) == 1 else None
    # rows of equal length: their only column, or the only one of different texts
    if all(isinstance(held, list) and len(held) == len(value[0]) > 0 for held in value):
        columns = [list(column) for column in zip(*value, strict=True)]
        texts = list(filter(_are_different_texts, columns))
        fitting = columns if len(columns) == 1 else texts
        return fitting[0] if len(fitting) == 1 else None

    return value


def _are_different_texts(column: Sequence[Any]) -> bool:
    """Whether each value of a column is a text of its own."""
    return len({held for held in column if isinstance(held, str)}) == len(column)


def _list_in_object(value: dict[str, Any]) -> list[Any] | None:
    """The list that a JSON object means: from id to row, from row to id, or under a key for ids.
    None if it means none, or several."""
    rows = list(range(len(value)))
    # True and False are ints of Python, but no rows
    are_whole_numbers = all(type(held) is int for held in value.values())
    if value and are_whole_numbers and sorted(value.values()) == rows:
        return sorted(value, key=value.__getitem__)
    if value and set(value) == set(map(str, rows)):
        return [value[str(row)] for row in rows]

    lists = [held for name, held in value.items() if words.is_id(name) and isinstance(held, list)]
    return lists[0] if len(lists) == 1 else None


def _ids_in_npy(path: Path) -> Ids:
    """The ids of a NumPy array of texts or whole numbers."""
    return as_ids(mapped_npy(path, 0, path.stat().st_size), path.name)


def _ids_in_parquet(path: Path) -> Ids:
    """The ids of a parquet file, of its only column of a usual name."""
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
