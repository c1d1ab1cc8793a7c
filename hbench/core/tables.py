"""Tables of texts in memory, and how they are written: CSV, TSV and parquet; hbench.sheets reads
them.

"NA" and "None" in it are names, not gaps; only an empty cell and a parquet null are "".
"""

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from hbench.core.files import replacing, write_text

DELIMITERS = {".csv": ",", ".tsv": "\t"}  # of the formats of text that are written


def without_formula(value: Any) -> Any:
    """The value of a cell; a text that a spreadsheet would take for a formula begins with an
    apostrophe.

    >>> without_formula("=HYPERLINK(1)"), without_formula(-1)
    ("'=HYPERLINK(1)", -1)
    """
    if isinstance(value, str) and value.startswith(("=", "+", "-", "@", "\t", "\r")):
        return f"'{value}"
    return value


def texts(table: pa.Table, column: str) -> list[str]:
    """The values of a column as texts, "" for missing ones."""
    return ["" if value is None else str(value) for value in table[column].to_pylist()]


def text_rows(table: pa.Table, columns: Sequence[str]) -> list[tuple[str, ...]]:
    """The values of some columns as texts, row by row; "" for missing ones."""
    return list(zip(*(texts(table, column) for column in columns), strict=True))


def write_parquet(table: pa.Table, path: Path) -> None:
    """Write a parquet file at `path`, whole or not at all."""
    with replacing(path) as temporary:
        pq.write_table(table, temporary, compression="zstd")


def write_sheet(table: pa.Table, path: Path) -> None:
    """Write a table in the format that the suffix of `path` names, .csv, .tsv or .parquet, whole or
    not at all."""
    if path.suffix.lower() == ".parquet":
        write_parquet(table, path)
    else:
        rows = text_rows(table, table.column_names)
        write_text(path, lines(table.column_names, rows, delimiter=DELIMITERS[path.suffix.lower()]))


def lines(header: Sequence[str], rows: Iterable[Sequence[str]], *, delimiter: str = ",") -> str:
    """A header and rows as CSV, with a `delimiter` between cells; a cell is quoted where a reader
    could take it for something else.

    >>> lines(["a", "b"], [["1", 'x "y"']])
    'a,b\\n1,"x ""y"\""\\n'
    """
    # quotes, ends of lines, what may be a delimiter, blanks at an end, and an empty cell
    doubtful = re.compile(rf'["\r\n;{delimiter}]|^\s|\s$|^$')

    def cell(text: str) -> str:
        """A text as a cell: in quotes where it is doubtful, with those inside of it doubled."""
        return '"' + text.replace('"', '""') + '"' if doubtful.search(text) else text

    return "".join(delimiter.join(map(cell, row)) + "\n" for row in (header, *rows))


def numbers(array: pa.Array, dtype: np.dtype[Any]) -> NDArray[Any]:
    """The numbers (N,) of an arrow array without nulls, of the type that it holds; a view, without
    a copy: `dtype` must be that of the array."""
    if len(array) == 0:
        return np.zeros(0, dtype)
    _validity, values = array.buffers()
    # a slice shares the buffer of the whole array and says by its offset where it begins
    return np.frombuffer(values, dtype)[array.offset : array.offset + len(array)]


def index_array(positions: NDArray[np.integer]) -> pa.Array:
    """An arrow array of positions (n,); `pa.array` would load pandas, which takes longer than
    scoring a small test.
    """
    no_nulls = None
    values = pa.py_buffer(np.ascontiguousarray(positions, np.int64))
    return pa.Array.from_buffers(pa.int64(), len(positions), [no_nulls, values])


def text_array(texts: Iterable[str]) -> pa.Array:
    """An arrow array of texts: all their bytes, and where each begins and ends. As `index_array`,
    without pandas."""
    encoded = [text.encode() for text in texts]
    offsets = np.zeros(len(encoded) + 1, np.int32)
    np.cumsum([len(each) for each in encoded], out=offsets[1:])
    return pa.StringArray.from_buffers(
        len(encoded), pa.py_buffer(offsets), pa.py_buffer(b"".join(encoded))
    )


def bytes_of_texts(strings: pa.Array) -> tuple[NDArray[np.int32], NDArray[np.uint8]]:
    """The bytes of all strings of an array (N,), and int32 (N + 1,) where each begins in them: the
    n-th is bytes[offsets[n] : offsets[n + 1]]."""
    if len(strings) == 0:
        return np.zeros(1, np.int32), np.zeros(0, np.uint8)
    _validity, offsets, text = strings.buffers()
    # a slice shares the buffers of the whole array: its first string need not begin at 0
    bounds = np.frombuffer(offsets, np.int32)[strings.offset : strings.offset + len(strings) + 1]
    used = np.frombuffer(text or b"", np.uint8)[bounds[0] : bounds[-1]]
    return bounds - bounds[0], used
