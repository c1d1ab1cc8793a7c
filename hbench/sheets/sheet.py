"""Reads any table that users bring, by its suffix: text with one of four delimiters, parquet,
Arrow, and JSON records.

"NA" and "None" are names, not missing values; only an empty cell and a null are missing ("").
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from hbench.core.errors import DataError, UsageError, shorten
from hbench.core.text import first_line
from hbench.core.untrusted import (
    MAX_LIST_BYTES,
    arrow_batches,
    arrow_schema,
    parquet_table,
    parse_json,
    parse_json_lines,
)
from hbench.core.untrusted import read_text as text_of
from hbench.sheets.dialect import USUAL, Head, dialect_of, head_of, suffix_of
from hbench.sheets.text import TextTable, read_text_table

if TYPE_CHECKING:
    import pandas as pd

TEXTS = (*USUAL, ".txt")
ARROW = (".feather", ".arrow", ".ipc")
LINES = (".jsonl", ".ndjson")
SUFFIXES = (*USUAL, ".parquet", *ARROW, *LINES)
MAYBE = (".txt", ".json")  # suffixes of tables and of other files: the content decides
VECTORS = (".npz", ".npy", ".pt", ".pth", ".safetensors")
FRAME = "the DataFrame"  # how messages call a DataFrame, which has no file name
TREES = (".nwk", ".newick", ".graphml")
# {suffix of a known format that is not read: advice}
FOREIGN = {
    ".xlsx": "save the sheet as CSV: File › Save as › CSV UTF-8",
    ".xls": "save the sheet as CSV: File › Save as › CSV UTF-8",
    ".ods": "save the sheet as CSV: File › Save as › Text CSV",
    ".pkl": "in the program that wrote it: table.to_parquet('table.parquet')",
    ".pickle": "in the program that wrote it: table.to_parquet('table.parquet')",
    **dict.fromkeys(VECTORS, "vectors are what is scored: hbench evaluate FILE -d TABLE"),
    **dict.fromkeys(TREES, "a tree is shown by hbench tree show FILE, and scored by --trees FILE"),
    ".h5ad": 'python -c "import sys, anndata; anndata.read_h5ad(sys.argv[1]).obs.to_csv'
    "(sys.argv[2], index_label='id')\" FILE.h5ad labels.csv",
}


class Sheet(NamedTuple):
    """A table that was read."""

    name: str  # of the file
    table: pa.Table
    written: str = ""  # how it is written, if that is unusual for its suffix; else ""


def is_table(path: Path) -> bool:
    """Whether a file holds a table: by its suffix, or, if the suffix does not tell, by its first
    lines."""
    kind = suffix_of(path)
    if kind in SUFFIXES:
        return True
    if kind == ".json" and path.is_file():
        return _begins_with_record(path)
    return kind == ".txt" and path.is_file() and has_columns(head_of(path))


def has_columns(head: Head | None) -> bool:
    """Whether the first lines of a text are rows of a table: at least two, all with the same number
    of cells, and with more than one cell."""
    rows = dialect_of(head, ".txt").rows if head is not None else []
    widths = {len(row) for row in rows}
    return len(rows) > 1 and len(widths) == 1 and widths != {1}


def read(path: Path, *, columns: Sequence[str] | None = None) -> Sheet:
    """Read a table from a file. Cells of text formats stay texts. `columns`: the columns to read,
    None for all.

    Raises DataError if the file is not a table, or lacks one of `columns`.
    """
    if not path.exists():
        raise DataError(f"{path} does not exist", expected="a table")
    if suffix_of(path) not in (*SUFFIXES, *MAYBE):
        raise unknown_format(path)

    try:
        # `written`: how the table is written, "" if as usual for the suffix
        table, written = _read_by_suffix(path, columns)
        table = table if columns is None else table.select(list(columns))
    except (pa.ArrowException, KeyError, ValueError, OSError) as error:
        expected = f"a table with the columns {', '.join(columns)}" if columns else "a table"
        is_text = suffix_of(path) in TEXTS
        # if the error quotes a cell with zero bytes, the text is probably UTF-16
        fix = "save it as UTF-8" if is_text and r"\x00" in ascii(str(error)) else None
        raise DataError(
            f"{path} cannot be read", expected=expected, found=first_line(error), fix=fix
        ) from None

    _refuse_nameless(table, str(path))
    return Sheet(path.name, table, written)


def of_frame(frame: pd.DataFrame) -> Sheet:
    """Convert a DataFrame as pandas converts it for a parquet file: the index becomes a column,
    unless it only numbers the rows. Raises DataError like `read`."""
    try:
        table = pa.Table.from_pandas(frame).replace_schema_metadata()
    except (pa.ArrowException, ValueError) as error:
        raise DataError(
            f"{FRAME} cannot be read",
            expected="columns of one kind each",
            found=first_line(error),
        ) from None
    _refuse_nameless(table, FRAME)
    return Sheet(FRAME, table)


def _refuse_nameless(table: pa.Table, named: str) -> None:
    """Raise DataError for a table without rows, or with several columns of the same name, so that
    the name would not say which column is meant. `named` is the name of the table in messages."""
    doubled = sorted(name for name, count in Counter(table.column_names).items() if count > 1)
    if doubled or not len(table):
        raise DataError(
            f"{named} is not a table of names",
            expected="a header of different column names, and rows",
            found=f"{', '.join(doubled)} several times" if doubled else "no rows",
        )


def unknown_format(path: Path) -> UsageError | DataError:
    """Make the error for a file in a format that is not read as a table, with advice on how to make
    a table of it if the format is known."""
    kind = suffix_of(path)
    expected = f"a table in {', '.join(SUFFIXES)}"
    if kind in FOREIGN:
        return UsageError(
            f"{path}: {kind} is not read as a table", expected=expected, fix=FOREIGN[kind]
        )
    return DataError(
        f"the format of {path} is not known", expected=expected, found=kind or "no suffix"
    )


def read_document(path: Path) -> str:
    """Read the text of a file that is a document, not a table, such as that of a tree. Raises
    DataError if it is not UTF-8."""
    try:
        return text_of(path, most=MAX_LIST_BYTES)
    except ValueError as error:
        raise DataError(f"{path} is not UTF-8 text", found=str(error)) from None


def read_table(path: Path, *, columns: Sequence[str] | None = None) -> pa.Table:
    """Read a table as `read` does, and return it without the file's name and remarks. `columns`:
    the columns to read, None for all."""
    return read(path, columns=columns).table


def _read_by_suffix(path: Path, columns: Sequence[str] | None) -> tuple[pa.Table, str]:
    """Read the table in a file. Return also how it is written, in words, "" if that is usual for
    its suffix. `columns`: the columns of a text table to read, None for all."""
    kind = suffix_of(path)
    if kind == ".parquet":
        return parquet_table(path), ""
    if kind in ARROW:
        return pa.Table.from_batches(arrow_batches(path), schema=arrow_schema(path)), ""
    if kind in LINES:
        return _table_of_records(_records_in_lines(path)), ""
    if kind == ".json":
        return _table_of_records(
            _records_in(parse_json(text_of(path, most=MAX_LIST_BYTES)))
        ), "records of JSON"
    return read_text_table(path, columns)


def _begins_with_record(path: Path) -> bool:
    """Whether a JSON file is a list of objects that are rows of a table, not nodes of a tree, which
    have children. The first 4 kB decide."""
    with path.open("rb") as file:
        words = file.read(1 << 12).removeprefix(b"\xef\xbb\xbf").split()
    start = b"".join(words)  # without white space
    return start.startswith(b"[{") and b'"children"' not in start


def _records_in_lines(path: Path) -> list[dict[str, Any]]:
    """Read the rows of a file with a JSON object in each line. The file may be compressed; blank
    lines are skipped."""
    content = TextTable(path).content
    text = text_of(path, most=8 * MAX_LIST_BYTES) if content is None else content.decode()
    return _records_in([value for _, value in parse_json_lines(text)])


def _records_in(value: Any) -> list[dict[str, Any]]:
    """Return a JSON value that is a list of objects. Raises ValueError for any other value."""
    if isinstance(value, list) and value and all(isinstance(row, dict) for row in value):
        return value
    found = ", ".join(map(str, value)) if isinstance(value, dict) else type(value).__name__
    raise ValueError(
        f"it is no list of records, but has {shorten(found)}: make a table of it, .csv or .parquet"
    )


def _table_of_records(records: Sequence[dict[str, Any]]) -> pa.Table:
    """Make a table of records. Numbers and texts become texts, lists of texts stay lists."""
    # the keys of all records, in the order of their first occurrence; a record may lack some
    names = dict.fromkeys(key for record in records for key in record)
    columns = {}
    for name in names:
        values = [record.get(name) for record in records]
        is_listed = any(isinstance(value, list) for value in values)
        columns[name] = _lists(values) if is_listed else pa.array(map(_as_text, values))
    return pa.table(columns)


def _lists(values: Sequence[Any]) -> pa.Array:
    """Make a column of cells of which some are lists. If all hold texts, it is a column of lists,
    where a single text becomes a list of one. Otherwise the cells are written as JSON."""
    listed = [value if isinstance(value, list) else [value] for value in values]
    if all(isinstance(part, str) for value in listed for part in value):
        return pa.array(listed, pa.list_(pa.string()))
    return pa.array([json.dumps(value, ensure_ascii=False) for value in listed])


def _as_text(value: Any) -> str:
    """Write a JSON value as a cell of text: null is "", a text is unchanged, anything else is
    JSON."""
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
