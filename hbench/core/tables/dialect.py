"""Tells from a whole file how its table is written: what stands between its cells, and whether
quotes are marks or letters.

The suffix is only a hint: GBIF's .csv has tabs, a European spreadsheet's has semicolons, and Darwin
Core knows no quotes.

>>> dialect_of(b'"item";"species"\\n"a";"Owl, barn"\\n', ".csv").words
'semicolons between its cells'
>>> dialect_of(b"item,species\\na,Owl\\n", ".csv").words
''
"""

from __future__ import annotations

import csv
import io
import re
from dataclasses import dataclass, replace

USUAL = {".csv": ",", ".tsv": "\t"}
NAMES = {",": "commas", "\t": "tabs", ";": "semicolons", "|": "vertical bars"}
SAMPLE = (
    1 << 18
    # bytes from which the delimiter is guessed; the reader of the whole file finds rows of another
    # width
)
MOST_ROWS = 1000
MOSTLY = 0.5  # of the rows that a delimiter has to fit
# what Excel writes, and reads, before the header
SEPARATOR_LINE = re.compile(rb'^"?sep=(.)"?\r?\n')
BYTE_ORDER_MARK = b"\xef\xbb\xbf"


@dataclass(frozen=True)
class Dialect:
    """The `delimiter` between cells; whether `quotes` enclose cells; how many bytes stand before
    the header (`begins`).

    `words`: what differs from the suffix's usual dialect, "" where nothing does.
    """

    delimiter: str
    quotes: bool
    begins: int
    words: str


def dialect_of(content: bytes, suffix: str) -> Dialect:
    """Return the dialect of a file's content; `suffix` (.csv, .tsv) decides between delimiters that
    fit equally well.
    """
    begins = len(BYTE_ORDER_MARK) if content.startswith(BYTE_ORDER_MARK) else 0
    stated = SEPARATOR_LINE.match(content[begins : begins + 16])
    begins += len(stated[0]) if stated else 0
    usual = USUAL[suffix]
    delimiter = (
        stated[1].decode("latin-1")
        if stated
        else _best_delimiter(content[begins : begins + SAMPLE], usual)
    )
    other = (
        "" if delimiter == usual else f"{NAMES.get(delimiter, repr(delimiter))} between its cells"
    )
    return Dialect(delimiter, quotes=True, begins=begins, words=other)


def without_quotes(dialect: Dialect) -> Dialect:
    """The dialect in which a quote is a letter."""
    words = [dialect.words] if dialect.words else []
    return replace(dialect, quotes=False, words=", ".join([*words, "quotes are letters"]))


def _best_delimiter(sample: bytes, usual: str) -> str:
    """The delimiter by which the rows of a sample have the header's width; of several, the usual
    one, then the one that makes most cells."""
    text = sample.decode("utf-8", errors="replace")
    complete = text[: text.rfind("\n") + 1] if len(sample) == SAMPLE else text
    fits = {}
    for delimiter in NAMES:
        header, *rows = _rows(complete, delimiter) or [[]]
        width = len(header)
        if width < 2:
            continue
        share = sum(len(row) == width for row in rows) / max(len(rows), 1)
        if share >= MOSTLY or delimiter == usual:
            fits[delimiter] = (share, delimiter == usual, width)
    return max(fits, key=fits.__getitem__, default=usual)


def _rows(text: str, delimiter: str) -> list[list[str]]:
    """The first rows of a text that are not blank."""
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
    rows: list[list[str]] = []
    try:
        for row in reader:
            if row:
                rows.append(row)
            if len(rows) == MOST_ROWS:
                break
    except (
        csv.Error
    ):  # a field of more than 128 kB: an open quote, most likely, which is looked for elsewhere
        pass
    return rows


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
        follows = content[close + 1 : close + 2]
        if close < 0 or follows not in (mark, b"\n", b"\r", b""):
            return content.count(b"\n", 0, first) + 1
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
