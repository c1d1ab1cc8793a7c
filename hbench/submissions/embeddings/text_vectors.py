"""Reads embeddings in text files: CSV with an id and a number in each further column, with or
without a header, and JSON lines.
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from hbench.core.errors import SubmissionError, shorten
from hbench.core.untrusted import MAX_LIST_BYTES, parse_json_lines, read_text
from hbench.sheets import words
from hbench.sheets.dialect import Dialect
from hbench.sheets.text import TextTable
from hbench.submissions import cell_faults
from hbench.submissions.embeddings.arrow_files import TableRead
from hbench.submissions.embeddings.ids import Ids, as_ids, from_texts, the_only_one
from hbench.submissions.embeddings.parts import (
    ArrayPart,
    as_words,
    dimension_columns,
    ids_among,
    list_part,
    vectors_among,
)
from hbench.submissions.problems import MEND_ROWS, listed, rows_in_words

POINT, COMMA = (
    re.compile(rf"[+-]?(\d+{mark}?\d*|{mark}\d+)([eE][+-]?\d+)?|[+-]?(nan|inf|infinity)", re.I)
    for mark in (r"\.", ",")
)
NOT_WHOLE = re.compile(r"[.,eEnN]")  # found in a number, it shows that this is no integer
SCALAR = r"(?:np\.float\d+\()?[-+.\deE]+\)?"  # NumPy 2 prints np.float32(0.1) in a list
# lists as in JSON, NumPy's print, pgvector, and arrays of Postgres
LIST_OF_NUMBERS = re.compile(rf"[\[({{]\s*{SCALAR}(?:[\s,;]+{SCALAR})+[\s,]*[\])}}]")
WRAPPED = re.compile(r"np\.float\d+\(([^)]*)\)")
EXPECTED = (
    "an id and a number in each further column, or a column embedding with the numbers of a vector"
)


class VectorSheet(NamedTuple):
    """How a text table of vectors is to be read. Columns are given by their index from 0."""

    ids: int
    vectors: tuple[int, ...]  # one column for each dimension, or one with a list in each cell
    header: bool  # whether the first row names the columns
    decimal: str  # the decimal mark, "." or ","
    said: str  # which columns were taken for vectors and ids, in words


def read_csv(path: Path) -> TableRead:
    """The ids (N,) and vectors (N, D) of a text table, which may be compressed.

    Its cells are separated by commas, semicolons, tabs or bars. The vectors are D columns of
    numbers, or one column with a list of D numbers in each cell. Raises SubmissionError for a table
    without vectors, and for empty cells in the vectors.
    """
    text = TextTable(path)
    if not text.dialect.rows:  # `head`, the first lines, is None if the file is not text
        raise SubmissionError(
            f"{path} holds no vectors",
            expected=EXPECTED,
            found="no text in UTF-8" if text.head is None else "no line",
        )

    sheet = _sheet_of(text.dialect, path)
    # `_read_cells` puts the ids first, wherever their column is in the file
    table = _read_cells(text, sheet)
    ids = from_texts(table.column(0).combine_chunks(), path.name)
    columns = table.columns[1:]
    if pa.types.is_large_string(columns[0].type):  # texts that hold lists of numbers
        vectors = _parse_lists(columns[0].to_pylist(), path, ids)
        return TableRead(ids=ids, vectors=vectors, files=[path], read_as=sheet.said)
    cell_faults.without_number(path, columns, ids.tolist())
    vectors = np.empty((len(ids), len(columns)))
    for place, column in enumerate(columns):
        vectors[:, place] = column.to_numpy()
    return TableRead(ids=ids, vectors=vectors, files=[path], read_as=sheet.said)


def _decimal_of(dialect: Dialect) -> str:
    """The decimal mark: a comma if some number has one and commas do not separate the cells, else a
    point."""
    if dialect.delimiter == ",":
        return "."
    # without the first row, which may be a header
    cells = (cell for row in dialect.rows[1:] for cell in row)
    return "," if any(COMMA.fullmatch(cell) and "," in cell for cell in cells) else "."


def _sheet_of(dialect: Dialect, path: Path) -> VectorSheet:
    """Find the columns of ids and vectors from the first rows of a table: by their names, else by
    the content of their cells. Raises SubmissionError if they are not clear."""
    first, *rest = dialect.rows
    decimal = _decimal_of(dialect)  # the decimal mark, "." or ","
    number = COMMA if decimal == "," else POINT
    header = _is_header(first, rest, number)
    # the cells of each column that are not empty
    filled = _filled_columns(rest if header else dialect.rows, len(first))
    numeric = _places_of(number, filled)  # the columns of numbers
    names = [cell.casefold() for cell in first] if header else [""] * len(first)
    # columns with some number that is no integer; columns of integers may as well be labels
    fractions = [place for place in numeric if any(map(NOT_WHOLE.search, filled[place]))]
    lists = [place for place, name in enumerate(names) if name in words.VECTORS]
    lists = lists or _places_of(LIST_OF_NUMBERS, filled)
    # Columns of numbers or lists hold no texts, so they hold ids only if their names say so; or the
    # first column does, if it numbers the rows, for which it must have no fractions.
    ids = _place_of_ids(names, [*numeric, *lists], fractions, header=header)

    if lists:
        # raises if there are several
        the_only_one([first[place] for place in lists], "column of vectors", path)
        vectors = tuple(lists)
    else:
        vectors = _places_of_vectors(names, numeric, fractions, ids)

    # a cell that is no number, in a column of numbers: with it, the last of the numbered dimensions
    # might be left out
    rows = rest if header else dialect.rows
    family = dimension_columns(names)
    odd = None if lists else cell_faults.odd_cell(names, rows, number, ids=ids, family=family)
    least = max(1 if lists else 2, len(family) if odd else 0)
    # a column of ids cannot be a vector as well, and a single number is no vector
    if ids is None or ids in vectors or len(vectors) < least:
        raise _no_vectors(path, first, has_rows=bool(rows), odd=odd)
    return VectorSheet(
        ids, vectors, header, decimal, _said_of_columns(first, ids, vectors, header=header)
    )


def _no_vectors(
    path: Path, first: Sequence[str], *, has_rows: bool, odd: str | None
) -> SubmissionError:
    """The error for a table whose columns of ids and vectors are not clear. `first` is its first
    row, and `odd` the cell that is no number, in words; None if there is none."""
    columns = f"the columns {listed(first)}"
    return SubmissionError(
        f"{path} is no table of vectors",
        expected=EXPECTED,
        found=odd or (columns if has_rows else f"{columns}, and no row below them"),
        fix=MEND_ROWS if odd else None,
    )


def _filled_columns(rows: Sequence[Sequence[str]], width: int) -> list[list[str]]:
    """The cells of each column that are not empty. Rows that do not have `width` cells are
    skipped."""
    whole = [row for row in rows if len(row) == width]
    columns = []
    for place in range(width):
        columns.append([row[place] for row in whole if row[place]])
    return columns


def _places_of(pattern: re.Pattern[str], columns: Sequence[Sequence[str]]) -> list[int]:
    """The indices of the columns whose cells all match a pattern; columns without cells do not
    count."""
    return [
        place for place, cells in enumerate(columns) if cells and all(map(pattern.fullmatch, cells))
    ]


def _is_header(
    first: Sequence[str], rows: Sequence[Sequence[str]], number: re.Pattern[str]
) -> bool:
    """Whether the first row is a header: it has a known name, or texts above numbers, or the
    numbers 0, 1, 2 … that pandas writes. `rows` are the next rows, and `number` is the pattern of a
    number in this table."""
    names = [cell.casefold() for cell in first]
    if any(words.is_id(name) or name in words.VECTORS for name in names):
        return True
    # pandas writes 0, 1, 2 … above the columns of an array, and "" or a name above the index
    are_numbered = names[1:] == [str(place) for place in range(len(names) - 1)]
    # with only two columns, a row such as "a,0" is no header, but an id and a number
    if are_numbered and (not names[0] or not number.fullmatch(names[0])):
        return len(names) > 2

    def is_above_numbers(place: int) -> bool:
        """Whether all cells below the first row of this column are numbers."""
        return all(number.fullmatch(row[place]) for row in rows if len(row) > place)

    texts = [place for place, cell in enumerate(first) if not number.fullmatch(cell)]
    return bool(rows) and any(map(is_above_numbers, texts))


def _place_of_ids(
    names: Sequence[str], numeric: Sequence[int], fractions: Sequence[int], *, header: bool
) -> int | None:
    """The index of the column of ids: the only one with a known name, else the only one of texts,
    else the first, if it may number the rows. None if the ids are not clear.

    Args:
        names: of all columns, in lower case; "" for each if there is no header.
        numeric: the columns of numbers or vectors, whose cells are no texts.
        fractions: the columns with some number that is no integer.
        header: whether the table has a header.
    """
    for known in (words.SURE_IDS, words.OTHER_IDS):
        there = [place for place, name in enumerate(names) if name in known]
        if len(there) == 1:
            return there[0]
    # a column of classes, called, say, label, may hold texts in place of numbers, but no ids
    texts = [
        place
        for place, name in enumerate(names)
        if place not in numeric and name not in words.CLASS_NUMBERS
    ]
    if len(texts) == 1:
        return texts[0]
    # Integers in the first column may number the rows (`counts_rows`) if it has no name, or that of
    # an index, such as "no."
    may_be_index = not header or words.is_index(names[0], counts_rows=True)
    if texts or 0 in fractions or not may_be_index:
        return None
    return 0


def _places_of_vectors(
    names: Sequence[str], numeric: Sequence[int], fractions: Sequence[int], ids: int | None
) -> tuple[int, ...]:
    """The indices of the columns of numbers that form the vectors; empty if there are none.

    These are the columns whose names number dimensions (f0, f1 …). If there are none, they are all
    columns of numbers except ids and, by their names, an index and labels. In this case each column
    must hold fractions (without a header, only the first column must). A further column of texts,
    besides the ids, means that the table is one of labels, without vectors. Columns with a name in
    CLASS_NUMBERS, such as label, do not mean that: they are usual beside vectors.

    Args:
        names: of all columns; "" for each if there is no header.
        numeric: the columns of numbers.
        fractions: the columns with some number that is no integer.
        ids: the column of ids; None if it is not clear.
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
    # With a header, every column must hold fractions, since integers under a name may be years or
    # counts. Without one, only the first column must: an index or labels would be there, and a
    # later dimension may hold only integers, such as zeros, by chance.
    deciding = vectors if has_header else vectors[:1]
    if further_texts or not all(place in fractions for place in deciding):
        return ()
    return vectors


def _may_be_dimension(name: str) -> bool:
    """Whether a column of numbers with this name may be a dimension of vectors, since it is neither
    an index nor a class."""
    is_index = name == "index" or words.is_index(name, counts_rows=False)
    return not is_index and name not in words.CLASS_NUMBERS


def _said_of_columns(
    first: Sequence[str], ids: int, vectors: Sequence[int], *, header: bool
) -> str:
    """Which columns were taken for vectors and ids, in words: by their names in the first row, or
    without a header by their numbers from 1. "" for a column of whole vectors and a column of ids
    with usual names, for which `as_words` has no words. `first[ids]` is "" in a table of pandas
    with the ids in its index."""
    if not header:
        return (
            f"vectors, of the columns {vectors[0] + 1} … {vectors[-1] + 1}, with the ids of "
            f"column {ids + 1} (without a header)"
        )
    if len(vectors) == 1:  # a column with a whole vector in each cell
        return as_words(first[vectors[0]], first[ids])
    return as_words(
        f"the columns {shorten(first[vectors[0]], 40)} … {shorten(first[vectors[-1]], 40)}",
        first[ids] or "the index",
    )


def _read_cells(text: TextTable, sheet: VectorSheet) -> pa.Table:
    """The ids and vectors as an Arrow table: first the column of ids, as texts, then those of the
    vectors, as float64. A column with a list in each cell stays a column of texts."""
    # columns are called by their position, since the names in the file may repeat
    names = [f"c{place}" for place in range(len(text.dialect.rows[0]))]
    is_list = len(sheet.vectors) == 1
    kind = pa.large_string() if is_list else pa.float64()
    types = {names[sheet.ids]: pa.large_string()}
    types |= {names[place]: kind for place in sheet.vectors}
    try:
        # the result has the columns of `types`, in this order
        return text.cells(names, types, header=sheet.header, decimal=sheet.decimal)
    except pa.ArrowInvalid as error:
        number = COMMA if sheet.decimal == "," else POINT
        cell_faults.refuse_rows(text, _texts_of(text, sheet, names), number, error)
        raise


def _texts_of(text: TextTable, sheet: VectorSheet, names: Sequence[str]) -> pa.Table | None:
    """The cells of ids and vectors as texts, in columns with the names of the file's; None if the
    cells cannot be read as texts. `names` are those by which the columns are called here."""
    places = [sheet.ids, *sheet.vectors]
    first = text.dialect.rows[0]
    try:
        table = text.cells(
            names, {names[place]: pa.large_string() for place in places}, header=sheet.header
        )
    except pa.ArrowInvalid:
        return None
    return table.rename_columns(
        [first[place] if sheet.header else f"{place + 1}" for place in places]
    )


def _parse_lists(cells: Sequence[str], path: Path, ids: Ids) -> NDArray[np.float64]:
    """The vectors (N, D) in N cells such as "[0.1, 0.2]" or "0.1 0.2" of the items `ids` (N,)."""
    rows = [np.array(_numbers_in(cell), np.float64) for cell in cells]
    return _stack_rows(rows, path, ids)


def _numbers_in(cell: str) -> list[str]:
    """The numbers of the vector in a cell, as texts: "[np.float64(0.1), 0.2]" becomes ["0.1",
    "0.2"]."""
    inner = WRAPPED.sub(r"\1", cell).strip().strip("[](){}")
    return [part for part in re.split(r"[\s,;]+", inner) if part]


def _stack_rows(rows: Sequence[NDArray[np.float64]], path: Path, ids: Ids) -> NDArray[np.float64]:
    """Stack the vectors (D,) of the items `ids` (N,) into one array (N, D). Raises SubmissionError
    if their lengths differ."""
    other = [at for at, row in enumerate(rows) if len(row) != len(rows[0])]
    if other:
        raise SubmissionError(
            f"the vectors in {path} differ in dimension",
            expected=f"{len(rows[0])} as in the first of them",
            found=f"{len(rows[other[0]])} in {rows_in_words(other, ids.tolist())}",
            fix=MEND_ROWS,
        )
    return np.stack(rows) if rows else np.zeros((0, 0))


def read_jsonl(path: Path) -> TableRead:
    """The ids and vectors of a file with a JSON object in each line, such as {"id": "a.png",
    "embedding": [0.1, 0.2]}."""
    unpacked = TextTable(path).content  # None for a plain file in UTF-8
    if unpacked is None:
        # a larger limit than for other lists, since each line has the digits of a whole vector
        text = read_text(path, most=8 * MAX_LIST_BYTES)
    else:
        text = unpacked.decode("utf-8-sig")
    records = [_record(value, number, path) for number, value in parse_json_lines(text)]
    if not records:
        raise SubmissionError(
            f"{path} holds no vectors", expected="a JSON object in each line", found="no line"
        )

    def values_of(key: str) -> list[Any]:
        """The value of a key in each line; None where a line lacks it."""
        return [record.get(key) for record in records]

    # {"vector": {"clip": [0.1, 0.2]}}, as Qdrant writes it, becomes {"vector": [0.1, 0.2]}.
    # `said` says in words that the name "clip" was used; "" for vectors without names
    records, said = _of_named_vectors(records, path)
    # only keys of the first object are looked at, since every object must have them
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
    # a nested vector, [[0.1, 0.2]], is flattened; a null becomes a row of one NaN
    rows = [np.asarray(vector, np.float64).reshape(-1) for vector in values_of(name)]
    return TableRead(
        ids=ids,
        vectors=_stack_rows(rows, path, ids),
        files=[path],
        read_as=said or as_words(name, of_ids),
    )


def _of_named_vectors(
    records: list[dict[str, Any]], path: Path
) -> tuple[list[dict[str, Any]], str]:
    """Replace objects that hold a vector under a name, as in Qdrant's points, by the vector.

    Returns the records, and the name that was used, in words; "" if the vectors have no names.
    Raises SubmissionError if there are several names, or such an object is always empty.
    """
    usual = [key for key in records[0] if words.folded(key) in words.VECTORS]
    if len(usual) != 1 or not all(isinstance(record.get(usual[0]), dict) for record in records):
        return records, ""  # vectors without names, or no key with a usual name for vectors
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


def _record(value: Any, number: int, path: Path) -> dict[str, Any]:
    """The JSON object of a line. Raises SubmissionError, which states the `number` of the line, for
    any other value."""
    if not isinstance(value, dict):
        raise SubmissionError(
            f"line {number:,} of {path} is no JSON object",
            expected='{"id": "…", "embedding": [0.1, 0.2, …]}',
            found=shorten(str(value)),
        )
    return value


def _part_of_key(key: str, values: Sequence[Any]) -> ArrayPart:
    """Describe the values of a key in all lines, so that vectors and ids can be found. Lists of
    numbers are assumed to have the length of the first; `_stack_rows` checks it later."""
    first = values[0]
    if (
        isinstance(first, list)
        and first
        and all(isinstance(number, int | float) for number in first)
    ):
        return ArrayPart(name=key, shape=(len(values), len(first)), kind="f")
    return list_part(key, values)
