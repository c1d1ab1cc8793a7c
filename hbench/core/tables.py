"""Handles tables of texts in memory, and writes them as CSV, TSV and parquet. hbench.sheets reads
them.

The texts "NA" and "None" are names and not missing values. Only an empty cell and a parquet null
are missing; both become "".
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

NUMBER = re.compile(r"[+-]?\d+(\.\d*)?(e[+-]?\d+)?", re.ASCII)
DELIMITERS = {".csv": ",", ".tsv": "\t"}  # by the suffix of a text file that is written


def without_formula(value: Any) -> Any:
    """Return the value of a cell, with an apostrophe in front of a text that a spreadsheet would
    execute as a formula. A number, also as text, is none.

    >>> without_formula("=HYPERLINK(1)"), without_formula("-1+2"), without_formula("-1.5")
    ("'=HYPERLINK(1)", "'-1+2", '-1.5')
    """
    if not isinstance(value, str) or NUMBER.fullmatch(value):
        return value
    return f"'{value}" if value.startswith(("=", "+", "-", "@", "\t", "\r")) else value


def texts(table: pa.Table, column: str) -> list[str]:
    """Return the values of a column as texts, "" for missing values."""
    return ["" if value is None else str(value) for value in table[column].to_pylist()]


def text_rows(table: pa.Table, columns: Sequence[str]) -> list[tuple[str, ...]]:
    """Return the values of some columns as texts, a tuple for each row; "" for missing values."""
    return list(zip(*(texts(table, column) for column in columns), strict=True))


def write_parquet(table: pa.Table, path: Path) -> None:
    """Write a table as a parquet file at `path`, whole or not at all."""
    with replacing(path) as temporary:
        pq.write_table(table, temporary, compression="zstd")


def write_sheet(table: pa.Table, path: Path) -> None:
    """Write a table at `path`, whole or not at all. The suffix of `path` chooses the format: .csv,
    .tsv or .parquet."""
    if path.suffix.lower() == ".parquet":
        write_parquet(table, path)
    else:
        rows = text_rows(table, table.column_names)
        write_text(path, lines(table.column_names, rows, delimiter=DELIMITERS[path.suffix.lower()]))


def lines(header: Sequence[str], rows: Iterable[Sequence[str]], *, delimiter: str = ",") -> str:
    """Return a header and rows as CSV text, with `delimiter` between cells. Only cells that a
    reader could misunderstand are quoted.

    >>> lines(["a", "b"], [["1", 'x "y"']])
    'a,b\\n1,"x ""y"\""\\n'
    """
    # cells to quote: with quotes, line ends, delimiters, semicolons, which readers may take for the
    # delimiter, blanks at an end, and empty ones
    doubtful = re.compile(rf'["\r\n;{delimiter}]|^\s|\s$|^$')

    def cell(text: str) -> str:
        """Return a text as a cell: in quotes if it is doubtful, with the quotes within doubled."""
        return '"' + text.replace('"', '""') + '"' if doubtful.search(text) else text

    return "".join(delimiter.join(map(cell, row)) + "\n" for row in (header, *rows))


def numbers(array: pa.Array, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return the numbers (N,) of an arrow array without nulls, as a view and not a copy. `dtype`
    must be the type of the array."""
    if len(array) == 0:
        return np.zeros(0, dtype)
    _validity, values = array.buffers()
    # a slice shares the buffer of the whole array, from its offset on
    return np.frombuffer(values, dtype)[array.offset : array.offset + len(array)]


def index_array(positions: NDArray[np.integer]) -> pa.Array:
    """Make an arrow array of positions (n,). It is built from buffers since `pa.array` would load
    pandas, which takes longer than scoring a small test.
    """
    no_nulls = None
    values = pa.py_buffer(np.ascontiguousarray(positions, np.int64))
    return pa.Array.from_buffers(pa.int64(), len(positions), [no_nulls, values])


def text_array(texts: Iterable[str]) -> pa.Array:
    """Make an arrow array of N texts from two buffers: all bytes, and N + 1 offsets. The bytes of
    text n are those from offsets[n] to offsets[n + 1]. `pa.array` would load pandas, which takes
    long."""
    encoded = [text.encode() for text in texts]
    offsets = np.zeros(len(encoded) + 1, np.int32)
    np.cumsum([len(each) for each in encoded], out=offsets[1:])
    return pa.StringArray.from_buffers(
        len(encoded), pa.py_buffer(offsets), pa.py_buffer(b"".join(encoded))
    )


def bytes_of_texts(strings: pa.Array) -> tuple[NDArray[np.int32], NDArray[np.uint8]]:
    """Return the offsets, int32 (N + 1,), and the bytes, uint8, of an array of N strings: the n-th
    string is bytes[offsets[n] : offsets[n + 1]]."""
    if len(strings) == 0:
        return np.zeros(1, np.int32), np.zeros(0, np.uint8)
    _validity, offsets, text = strings.buffers()
    # a slice shares the buffers of the whole array, so its first string need not start at byte 0
    bounds = np.frombuffer(offsets, np.int32)[strings.offset : strings.offset + len(strings) + 1]
    # Arrow may omit the buffer of strings that are all empty
    used = np.frombuffer(text or b"", np.uint8)[bounds[0] : bounds[-1]]
    return bounds - bounds[0], used
