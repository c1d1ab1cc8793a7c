"""Tells from the first lines of a file how its table is written: the delimiter between cells, and
whether quotes enclose cells or are plain characters.

The suffix is only a hint: GBIF's .csv files have tabs, those of European spreadsheets have
semicolons, and Darwin Core does not quote cells.

>>> dialect_of(Head(['"item";"species"', '"a";"Owl, barn"']), ".csv").words
'semicolons between its cells'
>>> dialect_of(Head(["id;score", "a;0,5", "b;0,25"]), "").delimiter
';'
"""

from __future__ import annotations

import codecs
import csv
import re
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

USUAL = {".csv": ",", ".tsv": "\t", ".tab": "\t"}
CALLED = {",": "commas", "\t": "tabs", ";": "semicolons", "|": "vertical bars", " ": "blanks"}
DELIMITERS = (",", "\t", ";", "|")
HEAD_BYTES = 1 << 20
MOST_ROWS = 1000
MOST_CELLS = 200_000  # in the first rows; a row with a vector may have thousands
MOSTLY = 0.5  # the share of rows that a delimiter must fit
# a line that Excel writes, and reads, before the header
SEPARATOR_LINE = re.compile(r'"?sep=(.)"?', re.IGNORECASE)
NUMBER = re.compile(r"[+-]?(\d+[.,]?\d*|[.,]\d+)([eE][+-]?\d+)?")


@dataclass(frozen=True)
class Head:
    """The first lines of a text."""

    lines: list[str]  # those that are not blank
    blank: int = 0  # the number of blank lines before the first of `lines`


@dataclass(frozen=True)
class Dialect:
    """How a table of text is written."""

    delimiter: str  # between cells
    quotes: bool = True  # whether quotes enclose cells
    skipped: int = 0  # the number of lines before the first row
    rows: list[list[str]] = field(default_factory=list, repr=False)  # the cells of the first rows
    words: str = ""  # how it differs from the usual dialect of the suffix; "" if it does not


def is_compressed(path: Path) -> bool:
    """Whether a file is compressed by gzip, by its name."""
    return path.suffix.lower() == ".gz"


def is_zip(path: Path) -> bool:
    """Whether a file is a table in a zip, by its name. Pandas writes such a `labels.csv.zip`."""
    return path.suffix.lower() == ".zip"


def suffix_of(path: Path) -> str:
    """Return the suffix that tells a file's format, in lower case and without .gz or .zip.

    >>> suffix_of(Path("classes.CSV.gz")), suffix_of(Path("labels.tsv.zip"))
    ('.csv', '.tsv')
    """
    return Path(path.name.lower().removesuffix(".gz").removesuffix(".zip")).suffix


def head_of(path: Path) -> Head | None:
    """Read the first lines of a file of UTF-8 text, which may be compressed by gzip, up to the line
    of the first byte that is not UTF-8. None if the file does not begin with text. HEAD_BYTES are
    read at most, and unpacked at most."""
    with path.open("rb") as file:
        first = file.read(HEAD_BYTES)
    is_whole = len(first) < HEAD_BYTES
    try:
        if is_compressed(path):
            unpacking = zlib.decompressobj(wbits=31)  # gzip's format, with the largest window
            first = unpacking.decompress(first, HEAD_BYTES)
            is_whole = unpacking.eof  # the end of the packed data was reached
    except zlib.error:
        return None
    return head_in(first, is_whole=is_whole)


def head_in(content: bytes, *, is_whole: bool) -> Head | None:
    """Return the first lines in the bytes of a file, without blank lines, and the number of blank
    lines before them (`Head`). None if the bytes are not text. `is_whole`: whether they are the
    whole file. If they are only its beginning, the last line is left out, since it may be cut off.
    """
    try:
        text = codecs.getincrementaldecoder("utf-8-sig")().decode(content, final=is_whole)
    except UnicodeDecodeError as error:  # whole lines before the bad byte; readers report it
        text = content[: content.rfind(b"\n", 0, error.start) + 1].decode("utf-8-sig")

    if "\0" in text or not text:  # text has no zero bytes; an empty file counts as text
        return Head([]) if is_whole and not content else None

    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    # the last line may be cut off; if there is no other, a part of it is better than nothing
    lines = lines if is_whole or len(lines) == 1 else lines[:-1]
    # the number of blank lines before the first one that is not
    blank = next((place for place, line in enumerate(lines) if line.strip()), len(lines))
    filled = [line for line in lines[blank : blank + MOST_ROWS] if line.strip()]
    return Head(filled, blank)


def dialect_of(head: Head, suffix: str) -> Dialect:
    """Return the dialect of a file by its first lines: the delimiter, the number of lines before
    the table, its first rows, and words if the delimiter is not that of the `suffix` (.csv, .tsv).
    The suffix decides between delimiters that fit equally well."""
    # a first line such as "sep=;", as spreadsheets write it
    stated = SEPARATOR_LINE.fullmatch(head.lines[0].strip(" \r")) if head.lines else None
    lines = head.lines[1:] if stated else head.lines
    usual = USUAL.get(suffix, ",")
    delimiter = stated[1] if stated else _best_delimiter(lines, usual)
    words = ""
    if delimiter != usual:
        words = f"{CALLED.get(delimiter, repr(delimiter))} between its cells"
    rows = list(_rows(lines, delimiter))
    return Dialect(delimiter, skipped=head.blank + bool(stated), rows=rows, words=words)


def without_quotes(dialect: Dialect) -> Dialect:
    """Return the same dialect with quotes as plain characters."""
    words = [dialect.words] if dialect.words else []
    return replace(dialect, quotes=False, words=", ".join([*words, "quotes are letters"]))


def _best_delimiter(lines: Sequence[str], usual: str) -> str:
    """Return the delimiter that fits the first lines of a table best; the `usual` one if none fits.

    A row fits a delimiter if it has as many cells as the header, and no cell has an open bracket,
    as of a vector that was cut at commas. Delimiters that fit at least the share MOSTLY of the rows
    are compared, and the usual one. The best one fits the largest share of rows; then it gives the
    most cells that are numbers; then it is the usual one; then it gives the most cells.
    """
    fits = {}  # {delimiter: the criteria, the strongest first}
    for delimiter in DELIMITERS:
        header, *rows = list(_rows(lines, delimiter)) or [[]]  # an empty header without any row
        width = len(header)
        if width < 2:
            continue
        fitting = [len(row) == width and all(map(_are_closed, row)) for row in rows]
        share = sum(fitting) / max(len(rows), 1)
        if share >= MOSTLY or delimiter == usual:
            numbers = _numbers_in([header, *rows], delimiter)
            fits[delimiter] = (share, numbers, delimiter == usual, width)
    # tuples are compared part by part, so in the order of the criteria
    return max(fits, key=fits.__getitem__, default=usual)


def _are_closed(cell: str) -> bool:
    """Whether a cell closes all brackets that it opens. If not, a vector such as [1,2] was cut."""
    return cell.count("[") == cell.count("]") and cell.count("{") == cell.count("}")


def _numbers_in(rows: Sequence[Sequence[str]], delimiter: str) -> int:
    """Count the cells that are numbers, in rows that were split by this delimiter. If that is a
    comma, numbers with a comma do not count: a quoted "0,5" is no evidence for commas between
    cells."""
    return sum(
        bool(NUMBER.fullmatch(cell)) and (delimiter != "," or "," not in cell)
        for row in rows
        for cell in row
    )


def _rows(lines: Sequence[str], delimiter: str) -> Iterator[list[str]]:
    """Yield the cells of each row, split by this delimiter and stripped, until MOST_CELLS were
    read."""
    left = MOST_CELLS
    try:
        for row in csv.reader([f"{line}\n" for line in lines], delimiter=delimiter):
            if row:
                yield [cell.strip() for cell in row]
            left -= len(row)
            if left < 0:
                return
    except csv.Error:
        # a cell of more than 128 kB: most likely a quote is not closed, which readers report
        return


def line_of_open_quote(content: bytes, delimiter: str) -> int:
    """Return the number of the first line in which a quote opens a cell and no quote closes it; 0
    if there is none.

    In a quoted cell, two quotes stand for one. In a cell that does not begin with a quote, quotes
    are plain characters.
    """
    mark = delimiter.encode()
    opening = re.compile(rb"(?:^|[\n\r]|" + re.escape(mark) + rb')"')
    place = 0
    while found := opening.search(content, place):
        first = found.end()
        close = _closing_quote(content, first)  # its place; −1 if no quote closes the cell
        # after a closing quote comes the delimiter, a line end, or the end of the file
        follows = content[close + 1 : close + 2]
        if close < 0 or follows not in (mark, b"\n", b"\r", b""):
            return len(re.findall(rb"\r\n|\r|\n", content[:first])) + 1
        place = close + 1
    return 0


def _closing_quote(content: bytes, first: int) -> int:
    """Return the place of the quote that closes a cell whose text begins at `first`: the first
    quote that is not one of a pair. −1 if there is none."""
    close = content.find(b'"', first)
    while close >= 0 and content[close + 1 : close + 2] == b'"':
        close = content.find(b'"', close + 2)
    return close
