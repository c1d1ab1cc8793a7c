"""Embeddings as text: CSV with an id and a number in each further column, with a header or without
one, and JSON line by line.
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from hbench.core.errors import SubmissionError, shorten
from hbench.core.untrusted import MAX_LIST_BYTES, parse_json, read_text
from hbench.sheets import words
from hbench.sheets.dialect import Dialect
from hbench.sheets.text import TextTable
from hbench.submissions.embeddings.arrow_files import TableRead
from hbench.submissions.embeddings.ids import as_ids, from_texts, the_one_named
from hbench.submissions.embeddings.parts import (
    ArrayPart,
    as_words,
    dimension_columns,
    ids_among,
    list_part,
    vectors_among,
)
from hbench.submissions.problems import listed

POINT, COMMA = (
    re.compile(rf"[+-]?(\d+{mark}?\d*|{mark}\d+)([eE][+-]?\d+)?|[+-]?(nan|inf|infinity)", re.I)
    for mark in (r"\.", ",")
)
NOT_WHOLE = re.compile(r"[.,eEnN]")  # in a number
SCALAR = r"(?:np\.float\d+\()?[-+.\deE]+\)?"  # NumPy 2 prints a list of its own numbers so
# JSON, NumPy's print, pgvector, and an array of Postgres
LIST_OF_NUMBERS = re.compile(rf"[\[({{]\s*{SCALAR}(?:[\s,;]+{SCALAR})+[\s,]*[\])}}]")
WRAPPED = re.compile(r"np\.float\d+\(([^)]*)\)")
EXPECTED = (
    "an id and a number in each further column, or a column embedding with the numbers of a vector"
)


class VectorSheet(NamedTuple):
    """What a table of text holds: the place of the ids, those of the numbers, and whether the first
    row names the columns.
    """

    ids: int  # places of columns count from 0
    vectors: tuple[int, ...]  # of each dimension, or of one column with a list in each cell
    header: bool
    decimal: str  # the decimal mark, "." or ","
    said: str  # what was taken for vectors and ids, in words


def read_csv(path: Path) -> TableRead:
    """The ids (N,) and vectors (N, D) of a table of text, which may be compressed, with cells
    between commas, semicolons, tabs or bars: a number in each of D columns, or one column with a
    list of D numbers in each cell.

    Raises SubmissionError for a table without vectors, and for empty cells inside of them.
    """
    text = TextTable(path)
    if not text.dialect.rows:
        raise SubmissionError(
            f"{path} holds no vectors",
            expected=EXPECTED,
            found="no text in UTF-8" if text.head is None else "no line",
        )

    sheet = _sheet_of(text.dialect, path)
    # the ids stand in the first column of what is read, whatever their place in the file
    table = _read_cells(text, sheet)
    ids = from_texts(table.column(0).combine_chunks(), path.name)
    columns = table.columns[1:]
    if pa.types.is_large_string(columns[0].type):  # lists, which are still texts
        vectors = _parse_lists(columns[0].to_pylist(), path)
        return TableRead(ids, vectors, [path], sheet.said)
    if nulls := sum(column.null_count for column in columns):
        raise SubmissionError(
            f"{path} has {nulls:,} empty cells inside its vectors", expected="numbers"
        )

    vectors = np.empty((len(ids), len(columns)))
    for place, column in enumerate(columns):
        vectors[:, place] = column.to_numpy()
    return TableRead(ids, vectors, [path], sheet.said)


def _decimal_of(dialect: Dialect) -> str:
    """The decimal mark: a comma, where numbers have one and it separates no cells."""
    if dialect.delimiter == ",":
        return "."
    # the first row may be a header
    cells = (cell for row in dialect.rows[1:] for cell in row)
    return "," if any(COMMA.fullmatch(cell) and "," in cell for cell in cells) else "."


def _sheet_of(dialect: Dialect, path: Path) -> VectorSheet:
    """Which columns of a table hold the ids and the vectors, told from its first rows: by their
    names, else by what their cells look like. Raises SubmissionError where that is not sure."""
    first, *rest = dialect.rows
    decimal = _decimal_of(dialect)
    number = COMMA if decimal == "," else POINT
    header = _is_header(first, rest, number)
    # the cells of each column that are not empty
    filled = _filled_columns(rest if header else dialect.rows, len(first))
    numeric = _places_of(number, filled)  # the columns of numbers
    names = [cell.casefold() for cell in first] if header else [""] * len(first)
    # those of numbers not all of which are whole: whole ones may as well be labels
    fractions = [place for place in numeric if any(map(NOT_WHOLE.search, filled[place]))]
    lists = [place for place, name in enumerate(names) if name in words.VECTORS]
    lists = lists or _places_of(LIST_OF_NUMBERS, filled)
    # place of the column of ids, None where none is sure
    ids = _place_of_ids(names, [*numeric, *lists], fractions, header=header)

    if lists:
        called = [first[place] for place in lists]
        the_one_named(called, called, "column of vectors", path)  # refuses several
        vectors = tuple(lists)
    else:
        vectors = _places_of_vectors(names, numeric, fractions, ids)

    # neither a list of numbers that is called like ids, nor a single number, is a vector
    if ids is None or not vectors or ids in vectors or (len(vectors) == 1 and not lists):
        raise SubmissionError(
            f"{path} is no table of vectors",
            expected=EXPECTED,
            found=f"the columns {listed(first)}",
        )

    return VectorSheet(
        ids, vectors, header, decimal, _said_of_columns(first, ids, vectors, header=header)
    )


def _filled_columns(rows: Sequence[Sequence[str]], width: int) -> list[list[str]]:
    """The cells of each column that are not empty, of the rows of this width."""
    whole = [row for row in rows if len(row) == width]
    columns = []
    for place in range(width):
        columns.append([row[place] for row in whole if row[place]])
    return columns


def _places_of(pattern: re.Pattern[str], columns: Sequence[Sequence[str]]) -> list[int]:
    """The columns that have cells, all of which match a pattern."""
    return [
        place for place, cells in enumerate(columns) if cells and all(map(pattern.fullmatch, cells))
    ]


def _is_header(
    first: Sequence[str], rows: Sequence[Sequence[str]], number: re.Pattern[str]
) -> bool:
    """Whether a `first` row names the columns: by a known name, by texts above numbers, or by the
    numbers 0, 1, 2 … of pandas. `rows`: the next ones; `number`: what a number looks like here.
    """
    names = [cell.casefold() for cell in first]
    if any(words.is_id(name) or name in words.VECTORS for name in names):
        return True
    # pandas writes "", 0, 1, 2 … above an index and the columns of an array
    are_numbered = names[1:] == [str(place) for place in range(len(names) - 1)]
    # one number alone, as in a row "a,0", may as well be a vector
    if are_numbered and (not names[0] or not number.fullmatch(names[0])):
        return len(names) > 2

    def is_above_numbers(place: int) -> bool:
        """Whether all cells of a column below the first row are numbers."""
        return all(number.fullmatch(row[place]) for row in rows if len(row) > place)

    texts = [place for place, cell in enumerate(first) if not number.fullmatch(cell)]
    return bool(rows) and any(map(is_above_numbers, texts))


def _place_of_ids(
    names: Sequence[str], numeric: Sequence[int], fractions: Sequence[int], *, header: bool
) -> int | None:
    """The place of the column of ids, from 0: by a known name, else the only column of texts, else
    the first column, if it may number the rows. None where none of these is sure.

    `names`: of all columns, in small letters, "" without a `header`; `numeric`: the places of
    columns that hold numbers, or vectors, and so no ids; `fractions`: of those whose numbers are
    not all whole.
    """
    for known in (words.SURE_IDS, words.OTHER_IDS):
        there = [place for place, name in enumerate(names) if name in known]
        if len(there) == 1:
            return there[0]
    # the name of a class, such as label, may stand above texts, too
    texts = [
        place
        for place, name in enumerate(names)
        if place not in numeric and name not in words.CLASS_NUMBERS
    ]
    if len(texts) == 1:
        return texts[0]
    # whole numbers in the first column count the rows, without a name or under that of an index
    may_be_index = not header or words.is_index(names[0], counts_rows=True)
    return 0 if not texts and 0 not in fractions and may_be_index else None


def _places_of_vectors(
    names: Sequence[str], numeric: Sequence[int], fractions: Sequence[int], ids: int | None
) -> tuple[int, ...]:
    """The places of the columns of numbers that are a vector: those whose names count dimensions
    (f0, f1 …); else all but the ids, an index and labels, where these are fractions, and no further
    texts stand beside them, as in a table of labels. Empty where none are.

    `names`: of all columns, "" without a header; `numeric`, `fractions`: the places of columns of
    numbers, and of numbers not all of which are whole; `ids`: the place of the ids.
    """
    free = [place for place in numeric if place != ids]
    family = dimension_columns([names[place] for place in free])
    if family:
        return tuple(names.index(name) for name in family)

    has_header = any(names)
    vectors = tuple(place for place in free if not has_header or _may_be_dimension(names[place]))
    further_texts = [
        place
        for place, name in enumerate(names)
        if place not in numeric and place != ids and name not in words.CLASS_NUMBERS
    ]
    # a column of whole numbers under a name may be anything; without names the first one tells
    telling = vectors if has_header else vectors[:1]
    if further_texts or not all(place in fractions for place in telling):
        return ()
    return vectors


def _may_be_dimension(name: str) -> bool:
    """Whether a column of numbers of this name may be a dimension of vectors: an index and a class
    are none."""
    is_index = name == "index" or words.is_index(name, counts_rows=False)
    return not is_index and name not in words.CLASS_NUMBERS


def _said_of_columns(
    first: Sequence[str], ids: int, vectors: Sequence[int], *, header: bool
) -> str:
    """In words which columns were taken for vectors and ids, by their names, or, without a header,
    by their numbers from 1; "" where their names say it. `first`: the first row of the table."""
    if not header:
        return (
            f"vectors, of the columns {vectors[0] + 1} … {vectors[-1] + 1}, with the ids of "
            f"column {ids + 1} (without a header)"
        )
    if len(vectors) == 1:
        return as_words(first[vectors[0]], first[ids])
    return as_words(
        f"the columns {shorten(first[vectors[0]], 40)} … {shorten(first[vectors[-1]], 40)}",
        first[ids] or "the index",
    )


def _read_cells(text: TextTable, sheet: VectorSheet) -> pa.Table:
    """The ids and the numbers as an Arrow table: the ids in its first column, as texts, then the
    numbers of the vectors, as float64; a list in a cell stays a text."""
    # titles may repeat: columns are called by their places
    names = [f"c{place}" for place in range(len(text.dialect.rows[0]))]
    is_list = len(sheet.vectors) == 1
    kind = pa.large_string() if is_list else pa.float64()
    types = {names[sheet.ids]: pa.large_string()}
    types |= {names[place]: kind for place in sheet.vectors}
    return text.cells(names, types, header=sheet.header, decimal=sheet.decimal)


def _parse_lists(cells: Sequence[str], path: Path) -> NDArray[np.float64]:
    """The vectors (N, D) in cells such as "[0.1, 0.2]" or "0.1 0.2", one a cell."""
    rows = [np.array(_numbers_in(cell), np.float64) for cell in cells]
    return _stack_rows(rows, path)


def _numbers_in(cell: str) -> list[str]:
    """The numbers of a vector that stands in a cell, as they are written there: "[np.float64(0.1),
    0.2]" is ["0.1", "0.2"]."""
    inner = WRAPPED.sub(r"\1", cell).strip().strip("[](){}")
    return [part for part in re.split(r"[\s,;]+", inner) if part]


def _stack_rows(rows: Sequence[NDArray[np.float64]], path: Path) -> NDArray[np.float64]:
    """Vectors (D,) as one array (N, D). Raises SubmissionError where they differ in length."""
    widths = {len(row) for row in rows}
    if len(widths) > 1:
        raise SubmissionError(
            f"the vectors in {path} differ in dimension",
            expected=f"{len(rows[0])} as in the first of them",
            found=f"{min(widths - {len(rows[0])})}",
        )
    return np.stack(rows) if rows else np.zeros((0, 0))


def read_jsonl(path: Path) -> TableRead:
    """Ids and vectors of JSON objects, one a line: {"id": "a.png", "embedding": [0.1, 0.2]}."""
    # the bytes of a packed file; None of one that is read as it is
    unpacked = TextTable(path).content
    if unpacked is None:
        # larger than a list with a record per item: each has the digits of a whole vector
        text = read_text(path, most=8 * MAX_LIST_BYTES)
    else:
        text = unpacked.decode("utf-8-sig")
    records = [
        _record(line, number, path)
        for number, line in enumerate(text.split("\n"), 1)
        if line.strip()
    ]
    if not records:
        raise SubmissionError(
            f"{path} holds no vectors", expected="a JSON object in each line", found="no line"
        )

    def values_of(key: str) -> list[Any]:
        """The values of a key in all lines."""
        return [record.get(key) for record in records]

    # the records, and in words which of several vectors was taken, "" where there was no choice
    records, said = _of_named_vectors(records, path)
    # the keys of the first object are those of all
    parts = [_part_of_key(key, values_of(key)) for key in records[0]]
    name = vectors_among(parts, path, "list of numbers")
    of_ids = ids_among(parts, len(records), path, "id in each line")
    if of_ids is None:
        raise SubmissionError(
            f"{path} has no id in each line",
            expected='"id": "…" in each object',
            found=listed(records[0]),
        )

    ids = as_ids(values_of(of_ids), path.name)
    rows = [np.asarray(vector, np.float64).reshape(-1) for vector in values_of(name)]
    return TableRead(ids, _stack_rows(rows, path), [path], said or as_words(name, of_ids))


def _of_named_vectors(
    records: list[dict[str, Any]], path: Path
) -> tuple[list[dict[str, Any]], str]:
    """The records with a vector in place of an object that holds it by name, as Qdrant's points
    have; and in words which. Raises SubmissionError where several have names, or none has.
    """
    usual = [key for key in records[0] if words.folded(key) in words.VECTORS]
    if len(usual) != 1 or not all(isinstance(record.get(usual[0]), dict) for record in records):
        return records, ""  # vectors without names, or nothing that is called like vectors
    key = usual[0]
    names = sorted({name for record in records for name in record[key]})
    if not names:
        raise SubmissionError(
            f"{path} holds no vectors",
            expected="one list of numbers for each item",
            found=f"{key} with nothing in it",
        )
    if len(names) > 1:
        raise SubmissionError(
            f"{path} has several vectors of each item",
            expected="one list of numbers",
            found=f"{key} with the names {listed(names)}",
            fix="write the one that is to be scored: "
            f'{{"id": …, "embedding": point["{key}"]["{names[0]}"]}}',
        )
    taken = [{**record, key: record[key].get(names[0])} for record in records]
    return taken, f"vectors, of {key}, by the name {names[0]}"


def _record(line: str, number: int, path: Path) -> dict[str, Any]:
    """The JSON object in a line. Raises SubmissionError, with its number, for another line."""
    record = parse_json(line)
    if not isinstance(record, dict):
        raise SubmissionError(
            f"line {number:,} of {path} is no JSON object",
            expected='{"id": "…", "embedding": [0.1, 0.2, …]}',
            found=shorten(line),
        )
    return record


def _part_of_key(key: str, values: Sequence[Any]) -> ArrayPart:
    """The values of a key in all lines as a part of the file; its shape and kind tell whether it
    holds vectors or ids. Lists of numbers are taken to have the length of the first."""
    first = values[0]
    if (
        isinstance(first, list)
        and first
        and all(isinstance(number, int | float) for number in first)
    ):
        return ArrayPart(key, (len(values), len(first)), "f")
    return list_part(key, values)
