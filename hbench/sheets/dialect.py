"""Tells from the first lines of a file how its table is written: what stands between its cells, and
whether quotes are marks or letters.

The suffix is only a hint: GBIF's .csv has tabs, a European spreadsheet's has semicolons, and Darwin
Core knows no quotes.

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
MOST_CELLS = 200_000  # of the first rows; a row of a vector may have thousands
MOSTLY = 0.5  # of the rows that a delimiter has to fit
# what Excel writes, and reads, before the header
SEPARATOR_LINE = re.compile(r'"?sep=(.)"?', re.IGNORECASE)
NUMBER = re.compile(r"[+-]?(\d+[.,]?\d*|[.,]\d+)([eE][+-]?\d+)?")


@dataclass(frozen=True)
class Head:
    """The first whole lines of a text that are not blank, and how many lines stand before the first
    of them.
    """

    lines: list[str]
    blank: int = 0


@dataclass(frozen=True)
class Dialect:
    """The `delimiter` between cells; whether `quotes` enclose cells; how many lines stand before
    the first row (`skipped`), whose cells are among the first `rows`.

    `words`: what differs from the suffix's usual dialect, "" where nothing does.
    """

    delimiter: str
    quotes: bool = True
    skipped: int = 0
    rows: list[list[str]] = field(default_factory=list, repr=False)
    words: str = ""


def is_compressed(path: Path) -> bool:
    """Whether a file's name says that it is compressed by gzip."""
    return path.suffix.lower() == ".gz"


def is_zip(path: Path) -> bool:
    """Whether a file's name says that it is a table in a zip, as pandas writes `labels.csv.zip`."""
    return path.suffix.lower() == ".zip"


def suffix_of(path: Path) -> str:
    """The suffix that tells a file's format, in small letters and without .gz or .zip.

    >>> suffix_of(Path("classes.CSV.gz")), suffix_of(Path("labels.tsv.zip"))
    ('.csv', '.tsv')
    """
    return Path(path.name.lower().removesuffix(".gz").removesuffix(".zip")).suffix


def head_of(path: Path) -> Head | None:
    """The first lines of a file of UTF-8 text, also of a compressed one, up to a byte that is none;
    None for a file whose first line is no text."""
    with path.open("rb") as file:
        first = file.read(HEAD_BYTES)
    is_whole = len(first) < HEAD_BYTES
    try:
        if is_compressed(path):
            unpacking = zlib.decompressobj(wbits=31)  # gzip's form, and any size of its window
            first = unpacking.decompress(first, HEAD_BYTES)
            is_whole = unpacking.eof
    except zlib.error:
        return None
    return head_in(first, is_whole=is_whole)


def head_in(content: bytes, *, is_whole: bool) -> Head | None:
    """The first lines in bytes that are all of a file (`is_whole`), or its beginning, whose last
    line may be cut off; None where the bytes are no text."""
    try:
        text = codecs.getincrementaldecoder("utf-8-sig")().decode(content, final=is_whole)
    except UnicodeDecodeError as error:  # the reader of the whole file names it
        text = content[: content.rfind(b"\n", 0, error.start) + 1].decode("utf-8-sig")

    if "\0" in text or not text:  # a zero byte is in no text; an empty file is a text
        return Head([]) if is_whole and not content else None

    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    # the last line may be cut off; if it is the only one, a part of it is better than nothing
    lines = lines if is_whole or len(lines) == 1 else lines[:-1]
    blank = next((place for place, line in enumerate(lines) if line.strip()), len(lines))
    filled = [line for line in lines[blank : blank + MOST_ROWS] if line.strip()]
    return Head(filled, blank)


def dialect_of(head: Head, suffix: str) -> Dialect:
    """Return the dialect of a file by its first lines; `suffix` (.csv, .tsv) decides between
    delimiters that fit equally well.
    """
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
    """The dialect in which a quote is a letter."""
    words = [dialect.words] if dialect.words else []
    return replace(dialect, quotes=False, words=", ".join([*words, "quotes are letters"]))


def _best_delimiter(lines: Sequence[str], usual: str) -> str:
    """The delimiter by which the rows, the first lines of a table, have the header's width; of
    several, the one that makes most numbers, the usual one, then the one that makes most cells; the
    usual one where none does.
    """
    fits = {}  # by delimiter, what speaks for it, the strongest reason first
    for delimiter in DELIMITERS:
        header, *rows = list(_rows(lines, delimiter)) or [[]]
        width = len(header)
        if width < 2:
            continue
        fitting = [len(row) == width and all(map(_are_closed, row)) for row in rows]
        share = sum(fitting) / max(len(rows), 1)
        if share >= MOSTLY or delimiter == usual:
            numbers = _numbers_in([header, *rows], delimiter)
            fits[delimiter] = (share, numbers, delimiter == usual, width)
    # tuples are compared part by part: the order of the reasons
    return max(fits, key=fits.__getitem__, default=usual)


def _are_closed(cell: str) -> bool:
    """Whether the brackets that a cell opens are closed in it: a vector, [1,2], is one cell."""
    return cell.count("[") == cell.count("]") and cell.count("{") == cell.count("}")


def _numbers_in(rows: Sequence[Sequence[str]], delimiter: str) -> int:
    """How many cells are numbers, split by this delimiter. By commas only those without a comma:
    a quoted "0,5" was not split, and does not speak for them."""
    return sum(
        bool(NUMBER.fullmatch(cell)) and (delimiter != "," or "," not in cell)
        for row in rows
        for cell in row
    )


def _rows(lines: Sequence[str], delimiter: str) -> Iterator[list[str]]:
    """Yield the cells of the first rows, split by this delimiter, without the blanks around them,
    until MOST_CELLS were seen."""
    left = MOST_CELLS
    try:
        for row in csv.reader([f"{line}\n" for line in lines], delimiter=delimiter):
            if row:
                yield [cell.strip() for cell in row]
            left -= len(row)
            if left < 0:
                return
    except csv.Error:
        # a field of more than 128 kB: an open quote, most likely, which is looked for elsewhere
        return


def line_of_open_quote(content: bytes, delimiter: str) -> int:
    """The line in which a quote opens a cell that ends otherwise than by a quote; 0 where there is
    none.

    Within quotes, two of them are one letter. A quote inside of a cell that has none at its head is
    a letter, too.
    """
    mark = delimiter.encode()
    opening = re.compile(rb"(?:^|[\n\r]|" + re.escape(mark) + rb')"')
    place = 0
    while found := opening.search(content, place):
        first = found.end()
        close = _closing_quote(content, first)
        # behind a closing quote stands the delimiter, the end of the line, or that of the file
        follows = content[close + 1 : close + 2]
        if close < 0 or follows not in (mark, b"\n", b"\r", b""):
            return len(re.findall(rb"\r\n|\r|\n", content[:first])) + 1
        place = close + 1
    return 0


def _closing_quote(content: bytes, first: int) -> int:
    """The place of the quote that closes a cell whose text begins at `first`, the first that is not
    one of two; −1 for none.
    """
    close = content.find(b'"', first)
    while close >= 0 and content[close + 1 : close + 2] == b'"':
        close = content.find(b'"', close + 2)
    return close
