"""Reads the cells of a table of text. The text is UTF-8, UTF-16 or in Windows' code page; the file
may be compressed by gzip, or be the only one in a zip. An encoding other than UTF-8 is reported.
"""

from __future__ import annotations

import codecs
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv

from hbench.core.untrusted import open_zip, read_gzip
from hbench.sheets.dialect import (
    HEAD_BYTES,
    Dialect,
    Head,
    dialect_of,
    head_in,
    head_of,
    is_compressed,
    is_zip,
    line_of_open_quote,
    suffix_of,
    without_quotes,
)

UTF16_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
OPEN_QUOTE = 'the quote " that opens a cell in line {} is not closed where the cell ends'
WINDOWS = "cp1252"  # the default of Excel in western Europe and America


class TextTable:
    """A table of text in the file `path`. Its properties read the file on first use."""

    def __init__(self, path: Path) -> None:
        """Only store the path; nothing is read yet."""
        self.path = path
        self.encoding = ""  # in words; "" for UTF-8, and before the content was read

    @cached_property
    def content(self) -> bytes | None:
        """The whole text in UTF-8, if the file is compressed or, by its first bytes, in another
        encoding. None for a file of plain UTF-8, which readers read directly from the disk."""
        if is_compressed(self.path):
            return self._in_utf8(read_gzip(self.path))
        if is_zip(self.path):
            return self._in_utf8(_alone_in_zip(self.path))
        with self.path.open("rb") as file:
            first = file.read(HEAD_BYTES)
        if first[:2] in UTF16_MARKS or _is_of_windows(first):
            return self._in_utf8(self.path.read_bytes())
        return None

    @cached_property
    def head(self) -> Head | None:
        """The first lines that are not blank; None if the file is not text."""
        # head_of reads only the beginning, so it also works for a truncated gzip file
        if is_compressed(self.path) or self.content is None:
            return head_of(self.path)
        part = self.content[:HEAD_BYTES]
        return head_in(part, is_whole=len(part) == len(self.content))

    @cached_property
    def dialect(self) -> Dialect:
        """How the table is written, by its first lines."""
        return dialect_of(self.head or Head([]), suffix_of(self.path))

    def recoded(self) -> TextTable:
        """Convert the content to UTF-8 and return self, after a byte beyond the first ones showed
        that the file has another encoding."""
        self.content = self._in_utf8(self.path.read_bytes())
        return self

    def _in_utf8(self, content: bytes) -> bytes:
        """Convert the bytes of a text to UTF-8, and store their encoding in `encoding`."""
        if content[:2] in UTF16_MARKS:
            self.encoding = "UTF-16"
            return content.decode("utf-16").encode()
        try:
            content.decode()  # a test: UTF-8 is returned unchanged
        except UnicodeDecodeError:
            self.encoding = f"Windows' code page {WINDOWS}"
            return content.decode(WINDOWS).encode()
        return content

    @property
    def words(self) -> str:
        """How the file is written, in words: its delimiter if it is not usual for the suffix, and
        its encoding if it is not UTF-8; "" if there is nothing to say."""
        said = [self.dialect.words] if self.dialect.words else []
        if self.encoding:
            said.append(f"in {self.encoding}")
        return ", ".join(said)

    @property
    def size(self) -> int:
        """The number of bytes of the text."""
        return self.path.stat().st_size if self.content is None else len(self.content)

    def cells(
        self,
        names: Sequence[str],
        types: Mapping[str, pa.DataType],
        *,
        header: bool = True,
        decimal: str = ".",
        block_bytes: int = 8 << 20,
    ) -> pa.Table:
        """Read some columns.

        Args:
            names: the names of all columns, from left to right.
            types: {column to read: its Arrow type}, in the order of the result.
            header: whether the first row of the file has the names, and is skipped.
            decimal: the decimal mark.
            block_bytes: the number of bytes that are parsed at a time.
        """
        return pa_csv.read_csv(
            self.path if self.content is None else pa.BufferReader(self.content),
            read_options=pa_csv.ReadOptions(
                column_names=list(names),
                skip_rows=self.dialect.skipped + header,  # a header is one more row to skip
                block_size=block_bytes,
            ),
            parse_options=pa_csv.ParseOptions(delimiter=self.dialect.delimiter),
            convert_options=pa_csv.ConvertOptions(
                column_types=dict(types),
                include_columns=list(types),
                null_values=[""],
                decimal_point=decimal,
            ),
        )

    def lines(self) -> pa.Array:
        """Return all lines, with the empty ones, so that lines keep their numbers. They are large
        strings, of which one array may hold more than 2 GiB."""
        whole = pa_csv.read_csv(
            self.path if self.content is None else pa.BufferReader(self.content),
            read_options=pa_csv.ReadOptions(column_names=["line"]),
            # a delimiter that no text has: the whole line is one cell
            parse_options=pa_csv.ParseOptions(
                delimiter="\x1f", quote_char=False, ignore_empty_lines=False
            ),
            convert_options=pa_csv.ConvertOptions(column_types={"line": pa.large_string()}),
        )
        return whole["line"].combine_chunks()

    def refuse_open_quote(self) -> None:
        """Raise ValueError, with the line, if a quote is not closed."""
        content = self.path.read_bytes() if self.content is None else self.content
        if line := line_of_open_quote(content, self.dialect.delimiter):
            raise ValueError(OPEN_QUOTE.format(line))

    def texts(self, names: Sequence[str], *, header: bool = True) -> pa.Table:
        """Read all cells as large strings, in one chunk. "NA" is a name, not a missing value.
        `names`: of the columns; `header`: whether the first row of the file has the names."""
        types = dict.fromkeys(names, pa.large_string())
        # the file as one block: at least 64 kB, and at most what Arrow's int32 sizes can hold
        whole = min(max(self.size, 1 << 16), 2**31 - 1)
        return self.cells(names, types, header=header, block_bytes=whole).combine_chunks()


def read_text_table(path: Path, columns: Sequence[str] | None) -> tuple[pa.Table, str]:
    """Read a table of text, all cells as strings. Return it, and how it is written, in words, "" if
    that is usual. `columns`: the columns to read, None for all.

    Raises ValueError, with the line, if a quote is not closed at the end of its cell.
    """
    file = TextTable(path)
    try:
        return _read_with_closed_quotes(file, columns)
    except pa.ArrowInvalid as error:
        # Arrow found bytes that are not UTF-8, perhaps far after the first bytes: convert the file
        # and read it again, unless it was converted already (`content`)
        if "UTF8" not in str(error) or file.content is not None:
            raise
        return _read_with_closed_quotes(file.recoded(), columns)


def _is_of_windows(first: bytes) -> bool:
    """Whether the first bytes of a file are text in Windows' code page, and not UTF-8."""
    if b"\0" in first:  # binary: the count below would show that, too, but only after decoding
        return False
    try:
        # the incremental decoder accepts bytes that end within a character
        codecs.getincrementaldecoder("utf-8")().decode(first)
    except UnicodeDecodeError:
        pass
    else:
        return False
    # text of the code page has no control characters but white space; five bytes are undefined in
    # it, for which decoding raises
    controls = sum(byte < 32 and byte not in b"\t\n\r\f" for byte in first)
    try:
        first.decode(WINDOWS)
    except UnicodeDecodeError:
        return False
    return controls == 0


def _alone_in_zip(path: Path) -> bytes:
    """Read the only file in a zip. Raises ValueError if it holds several files, or none."""
    with open_zip(path) as archive:
        members = [name for name in archive.namelist() if not name.endswith("/")]
        if len(members) != 1:
            raise ValueError(f"it holds {len(members)} files, not one table")
        return archive.read(members[0])


def _read_with_closed_quotes(
    file: TextTable, columns: Sequence[str] | None
) -> tuple[pa.Table, str]:
    """Read the table in a text, and return also how it is written, in words. `columns`: the columns
    to read, None for all.

    Raises ValueError, with the line, if a quote is not closed, since all lines up to the next quote
    would be one cell. In a table with tabs such a quote is a plain character instead.
    """
    content = file.path.read_bytes() if file.content is None else file.content
    dialect = file.dialect
    quotes = content.count(b'"')
    table = None
    try:
        table = _parse_text(content, dialect, columns)
        # an odd number of quotes, or a cell of several lines: one may not be closed
        is_suspect = quotes % 2 == 1 or (quotes > 0 and _holds_line_ends(table))
    except pa.ArrowInvalid as error:
        if not quotes or "UTF8" in str(error):  # quotes do not explain this error
            raise
        is_suspect = True

    line = line_of_open_quote(content, dialect.delimiter) if is_suspect else 0
    if line and dialect.delimiter != "\t":
        raise ValueError(OPEN_QUOTE.format(line))
    # tables with tabs need not quote cells, and Darwin Core does not: a lone quote is a character
    if line:
        file.dialect = dialect = without_quotes(dialect)
        table = None
    # `table` is None in two cases. After a change of the dialect, the content is parsed by the new
    # one. After an ArrowInvalid that no open quote explains, parsing again raises the same error.
    return _parse_text(content, dialect, columns) if table is None else table, file.words


def _parse_text(content: bytes, dialect: Dialect, columns: Sequence[str] | None) -> pa.Table:
    """Parse a text as a table, with all cells as texts. `columns`: the columns to read, None for
    all.

    The names in the header are read first, to ask for texts in each column by its name: Arrow would
    guess the types of others.
    """
    parse = pa_csv.ParseOptions(
        delimiter=dialect.delimiter,
        quote_char='"' if dialect.quotes else False,
        newlines_in_values=dialect.quotes,  # only cells in quotes may hold line ends
    )
    read = pa_csv.ReadOptions(skip_rows=dialect.skipped)
    with pa_csv.open_csv(
        pa.BufferReader(content), read_options=read, parse_options=parse
    ) as reader:
        names = reader.schema.names
    convert = pa_csv.ConvertOptions(
        column_types=dict.fromkeys(names, pa.string()),
        strings_can_be_null=False,  # an empty cell is "", and "NA" a name
        include_columns=columns,
    )
    return pa_csv.read_csv(
        pa.BufferReader(content), read_options=read, parse_options=parse, convert_options=convert
    )


def _holds_line_ends(table: pa.Table) -> bool:
    """Whether a cell contains a line end, as it does if its quote is not closed."""
    return any(pc.any(pc.match_substring(column, "\n")).as_py() for column in table.columns)
