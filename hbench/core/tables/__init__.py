"""Reads and writes tables of texts with a header: CSV, TSV (also .gz) and parquet.

"NA" and "None" in it are names, not gaps; only an empty cell and a parquet null are "".
"""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
from numpy.typing import NDArray

from hbench.core.errors import DataError
from hbench.core.files import replacing, write_text
from hbench.core.tables.dialect import USUAL as DELIMITERS
from hbench.core.tables.dialect import Dialect, dialect_of, line_of_open_quote, without_quotes
from hbench.core.text import first_line
from hbench.core.untrusted import parquet_table, read_gzip

SUFFIXES = (*DELIMITERS, ".parquet")


def kind_of(path: Path) -> str:
    """The suffix that tells a file's format, without .gz.

    >>> kind_of(Path("classes.CSV.gz"))
    '.csv'
    """
    return Path(path.name.lower().removesuffix(".gz")).suffix


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


def read_sheet(path: Path, *, columns: Sequence[str] | None = None) -> pa.Table:
    """The columns of a file, or only those that are named; the values of CSV and TSV are texts.

    Raises DataError for a file that is not a table, or lacks one of `columns`.
    """
    return read_with_dialect(path, columns=columns)[0]


def read_with_dialect(path: Path, *, columns: Sequence[str] | None = None) -> tuple[pa.Table, str]:
    """`read_sheet`, and in words how the file is written where its suffix says otherwise."""
    if not path.exists():
        raise DataError(f"{path} does not exist", expected="a table")
    if kind_of(path) not in SUFFIXES:
        raise DataError(
            f"the format of {path} is not known", expected=f"a table in {', '.join(SUFFIXES)}"
        )

    try:
        words = ""
        if kind_of(path) == ".parquet":
            table = parquet_table(path)
        else:
            table, dialect = _read_text(path, columns)
            words = dialect.words
        table = table if columns is None else table.select(list(columns))
    except (pa.ArrowException, KeyError, ValueError, OSError) as error:
        expected = f"a table with the columns {', '.join(columns)}" if columns else "a table"
        fix = "save it as UTF-8" if "UTF8" in str(error) or r"\x00" in ascii(str(error)) else None
        raise DataError(
            f"{path} cannot be read", expected=expected, found=first_line(error), fix=fix
        ) from None

    doubled = sorted(name for name, count in Counter(table.column_names).items() if count > 1)
    if doubled or not len(table):
        raise DataError(
            f"{path} is not a table of names",
            expected="a header of different column names, and rows",
            found=f"{', '.join(doubled)} several times" if doubled else "no rows",
        )

    return table, words


def _read_text(path: Path, columns: Sequence[str] | None) -> tuple[pa.Table, Dialect]:
    """Read a text file of cells. Raises ValueError, with the line, for a quote that is not closed
    where its cell ends.
    """
    content = read_gzip(path) if path.suffix.lower() == ".gz" else path.read_bytes()
    dialect = dialect_of(content, kind_of(path))
    quotes = content.count(b'"')
    try:
        table = _parsed(content, dialect, columns)
        is_suspect = quotes % 2 == 1 or (quotes > 0 and _holds_line_ends(table))
    except pa.ArrowInvalid:
        if not quotes:
            raise
        is_suspect = True
        table = None

    line = line_of_open_quote(content[dialect.begins :], dialect.delimiter) if is_suspect else 0
    if line and dialect.delimiter != "\t":
        raise ValueError(
            f'the quote " that opens a cell in line {line} is not closed where the cell ends'
        )
    # whoever separates by tabs need not quote, and Darwin Core does not: there a lone quote is a
    # letter
    if line:
        dialect = without_quotes(dialect)
        table = None
    return _parsed(content, dialect, columns) if table is None else table, dialect


def _parsed(content: bytes, dialect: Dialect, columns: Sequence[str] | None) -> pa.Table:
    parse = pa_csv.ParseOptions(
        delimiter=dialect.delimiter,
        quote_char='"' if dialect.quotes else False,
        newlines_in_values=dialect.quotes,
    )
    body = pa.py_buffer(content).slice(dialect.begins)
    with pa_csv.open_csv(pa.BufferReader(body), parse_options=parse) as reader:
        names = reader.schema.names
    convert = pa_csv.ConvertOptions(
        column_types=dict.fromkeys(names, pa.string()),
        strings_can_be_null=False,
        include_columns=columns,
    )
    return pa_csv.read_csv(pa.BufferReader(body), parse_options=parse, convert_options=convert)


def _holds_line_ends(table: pa.Table) -> bool:
    """Whether a cell goes over several lines, as one does that a lone quote opened."""
    return any(pc.any(pc.match_substring(column, "\n")).as_py() for column in table.columns)


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
    if kind_of(path) == ".parquet":
        write_parquet(table, path)
    else:
        rows = text_rows(table, table.column_names)
        write_text(path, lines(table.column_names, rows, delimiter=DELIMITERS[kind_of(path)]))


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
