"""Reads the cells of a table of text: UTF-8, also by gzip or alone in a zip, else UTF-16 or
Windows' code page, which is said.
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
WINDOWS = "cp1252"  # what Excel writes in western Europe and America where nothing else is asked


class TextTable:
    """A table of text at `path`: its `head`, its `dialect`, and its cells, read when they are asked
    for.
    """

    def __init__(self, path: Path) -> None:
        """Nothing is read here, but when a property is asked for first."""
        self.path = path
        self.encoding = ""  # where it is not UTF-8, in words

    @cached_property
    def content(self) -> bytes | None:
        """The text of a compressed file, or of one in another encoding by its first bytes, in
        UTF-8; None for a file that is read as it lies there.
        """
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
        """The first lines that are not blank; None for a file that is no text."""
        # of a file that gzip cut off, the first lines still tell what it was meant as
        if is_compressed(self.path) or self.content is None:
            return head_of(self.path)
        part = self.content[:HEAD_BYTES]
        return head_in(part, is_whole=len(part) == len(self.content))

    @cached_property
    def dialect(self) -> Dialect:
        """What stands between the cells, and whether quotes enclose them, by the first lines."""
        return dialect_of(self.head or Head([]), suffix_of(self.path))

    def recoded(self) -> TextTable:
        """The same table, where a byte behind the first ones showed that it is not UTF-8."""
        self.content = self._in_utf8(self.path.read_bytes())
        return self

    def _in_utf8(self, content: bytes) -> bytes:
        """The bytes of a text in UTF-8; what they were in is kept as `encoding`."""
        if content[:2] in UTF16_MARKS:
            self.encoding = "UTF-16"
            return content.decode("utf-16").encode()
        try:
            # what is UTF-8 already stays as it is
            content.decode()
        except UnicodeDecodeError:
            self.encoding = f"Windows' code page {WINDOWS}"
            return content.decode(WINDOWS).encode()
        return content

    @property
    def words(self) -> str:
        """In words how the file is written, its delimiter and its encoding, where these are not
        what the suffix and UTF-8 would have; "" where they are."""
        said = [self.dialect.words] if self.dialect.words else []
        if self.encoding:
            said.append(f"in {self.encoding}")
        return ", ".join(said)

    @property
    def size(self) -> int:
        """The bytes of the text."""
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
        """The columns that `types` names, in its order, with these Arrow types, streamed from the
        file. `names`: of all columns from left to right; `header`: whether the file's first row
        names them, too, and is no row; `decimal`: the decimal mark; `block_bytes`: read at once.
        """
        return pa_csv.read_csv(
            self.path if self.content is None else pa.BufferReader(self.content),
            read_options=pa_csv.ReadOptions(
                column_names=list(names),
                skip_rows=self.dialect.skipped + header,
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
        """Every line as a large string, also the empty ones, so that lines keep their numbers."""
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
        """Raise ValueError, with its line, for a quote that no other one closes."""
        content = self.path.read_bytes() if self.content is None else self.content
        if line := line_of_open_quote(content, self.dialect.delimiter):
            raise ValueError(OPEN_QUOTE.format(line))

    def texts(self, names: Sequence[str], *, header: bool = True) -> pa.Table:
        """All cells as large strings, in one chunk; nothing in them is missing ("NA" is a name).
        `names`: of the columns; `header`: whether the file's first row is one of names."""
        types = dict.fromkeys(names, pa.large_string())
        # the file as one block: 64 kB at least, and no more than Arrow can count
        whole = min(max(self.size, 1 << 16), 2**31 - 1)
        return self.cells(names, types, header=header, block_bytes=whole).combine_chunks()


def read_text_table(path: Path, columns: Sequence[str] | None) -> tuple[pa.Table, str]:
    """All columns of a table of text, or some, as strings, and how it is written.

    Raises ValueError, with the line, for a quote that is not closed where its cell ends.
    """
    file = TextTable(path)
    try:
        return _read_with_closed_quotes(file, columns)
    except pa.ArrowInvalid as error:
        # letters of another encoding may stand only far behind the first bytes: once more, recoded;
        # a `content` was recoded already
        if "UTF8" not in str(error) or file.content is not None:
            raise
        return _read_with_closed_quotes(file.recoded(), columns)


def _is_of_windows(first: bytes) -> bool:
    """Whether the first bytes of a file are letters, some of them of Windows' code page."""
    if b"\0" in first:
        return False
    try:
        codecs.getincrementaldecoder("utf-8")().decode(first)  # may end within a letter
    except UnicodeDecodeError:
        pass
    else:
        return False
    # five of its bytes stand for nothing, and control characters for no text
    controls = sum(byte < 32 and byte not in b"\t\n\r\f" for byte in first)
    try:
        first.decode(WINDOWS)
    except UnicodeDecodeError:
        return False
    return controls == 0


def _alone_in_zip(path: Path) -> bytes:
    """The content of the only file in a zip. Raises ValueError for several, or none."""
    with open_zip(path) as archive:
        members = [name for name in archive.namelist() if not name.endswith("/")]
        if len(members) != 1:
            raise ValueError(f"it holds {len(members)} files, not one table")
        return archive.read(members[0])


def _read_with_closed_quotes(
    file: TextTable, columns: Sequence[str] | None
) -> tuple[pa.Table, str]:
    """The table in a text, and how it is written; `columns`: those that are read, None for all.
    Raises ValueError, with the line, where a quote is not closed: all lines up to the next quote
    would be one cell."""
    content = file.path.read_bytes() if file.content is None else file.content
    dialect = file.dialect
    quotes = content.count(b'"')
    table = None
    try:
        table = _parse_text(content, dialect, columns)
        # an odd number of quotes, or a cell of several lines: one may not be closed
        is_suspect = quotes % 2 == 1 or (quotes > 0 and _holds_line_ends(table))
    except pa.ArrowInvalid as error:
        if not quotes or "UTF8" in str(error):  # an error that no quote explains
            raise
        is_suspect = True

    line = line_of_open_quote(content, dialect.delimiter) if is_suspect else 0
    if line and dialect.delimiter != "\t":
        raise ValueError(OPEN_QUOTE.format(line))
    # whoever separates by tabs need not quote, and Darwin Core does not: there a lone quote is a
    # letter
    if line:
        file.dialect = dialect = without_quotes(dialect)
        table = None
    # without a table yet: where the dialect changed; or where the text was refused and no open
    # quote explains it, then the same error is raised once more
    return _parse_text(content, dialect, columns) if table is None else table, file.words


def _parse_text(content: bytes, dialect: Dialect, columns: Sequence[str] | None) -> pa.Table:
    """Read a text as a table, all of its cells as texts; `columns`: those that are read, None for
    all. The text is opened once before for its header, since arrow, which guesses types, must be
    told by name that each column stays text."""
    parse = pa_csv.ParseOptions(
        delimiter=dialect.delimiter,
        quote_char='"' if dialect.quotes else False,
        newlines_in_values=dialect.quotes,
    )
    read = pa_csv.ReadOptions(skip_rows=dialect.skipped)
    with pa_csv.open_csv(
        pa.BufferReader(content), read_options=read, parse_options=parse
    ) as reader:
        names = reader.schema.names
    convert = pa_csv.ConvertOptions(
        column_types=dict.fromkeys(names, pa.string()),
        strings_can_be_null=False,
        include_columns=columns,
    )
    return pa_csv.read_csv(
        pa.BufferReader(content), read_options=read, parse_options=parse, convert_options=convert
    )


def _holds_line_ends(table: pa.Table) -> bool:
    """Whether a cell goes over several lines, as one does that a lone quote opened."""
    return any(pc.any(pc.match_substring(column, "\n")).as_py() for column in table.columns)
