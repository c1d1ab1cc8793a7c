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
    return (
        f"'{value}"
        if isinstance(value, str) and value.startswith(("=", "+", "-", "@", "\t", "\r"))
        else value
    )


def texts(table: pa.Table, column: str) -> list[str]:
    """The values of a column as texts."""
    return ["" if value is None else str(value) for value in table[column].to_pylist()]


def text_rows(table: pa.Table, columns: Sequence[str]) -> list[tuple[str, ...]]:
    """The values of some columns as texts, row by row."""
    return list(zip(*(texts(table, column) for column in columns), strict=True))


def write_parquet(table: pa.Table, path: Path) -> None:
    """Write a parquet file at `path`, whole or not at all."""
    with replacing(path) as temporary:
        pq.write_table(table, temporary, compression="zstd")


def write_sheet(table: pa.Table, path: Path) -> None:
    """Write a table in the format that `path` names, whole or not at all."""
    if path.suffix.lower() == ".parquet":
        write_parquet(table, path)
    else:
        rows = text_rows(table, table.column_names)
        write_text(path, lines(table.column_names, rows, delimiter=DELIMITERS[path.suffix.lower()]))


def lines(header: Sequence[str], rows: Iterable[Sequence[str]], *, delimiter: str = ",") -> str:
    """A header and rows as CSV; a cell is quoted where a reader could take it for something else.

    >>> lines(["a", "b"], [["1", 'x "y"']])
    'a,b\\n1,"x ""y"\""\\n'
    """
    doubtful = re.compile(rf'["\r\n;{delimiter}]|^\s|\s$|^$')

    def cell(text: str) -> str:
        return '"' + text.replace('"', '""') + '"' if doubtful.search(text) else text

    return "".join(delimiter.join(map(cell, row)) + "\n" for row in (header, *rows))


def numbers(array: pa.Array, dtype: np.dtype[Any]) -> NDArray[Any]:
    """The numbers in an arrow array without nulls, of the type that it holds; (N,)."""
    if len(array) == 0:
        return np.zeros(0, dtype)
    return np.frombuffer(array.buffers()[1], dtype)[array.offset : array.offset + len(array)]


def index_array(positions: NDArray[np.integer]) -> pa.Array:
    """An arrow array of positions (n,); `pa.array` would load pandas, which takes longer than
    scoring a small test.
    """
    values = pa.py_buffer(np.ascontiguousarray(positions, np.int64))
    return pa.Array.from_buffers(pa.int64(), len(positions), [None, values])


def text_array(texts: Iterable[str]) -> pa.Array:
    """An arrow array of texts."""
    encoded = [text.encode() for text in texts]
    offsets = np.zeros(len(encoded) + 1, np.int32)
    np.cumsum([len(each) for each in encoded], out=offsets[1:])
    return pa.StringArray.from_buffers(
        len(encoded), pa.py_buffer(offsets), pa.py_buffer(b"".join(encoded))
    )


def bytes_of_texts(strings: pa.Array) -> tuple[NDArray[np.int32], NDArray[np.uint8]]:
    """Return the offsets int32 (N + 1,) of the strings of an array (N,), and all their bytes."""
    if len(strings) == 0:
        return np.zeros(1, np.int32), np.zeros(0, np.uint8)
    _, offsets, text = strings.buffers()
    ends = np.frombuffer(offsets, np.int32)[strings.offset : strings.offset + len(strings) + 1]
    return ends - ends[0], np.frombuffer(text or b"", np.uint8)[ends[0] : ends[-1]]
