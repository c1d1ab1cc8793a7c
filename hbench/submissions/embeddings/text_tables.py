"""Reads tables of text, of vectors or of rankings, as texts: .gz, a byte order mark, blank first
lines, a line `sep=;` and the four usual delimiters are understood from the first lines of a file.

>>> delimiter_of(["id;score", "a;0,5", "b;0,25"])
';'
"""

import codecs
import csv
import re
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.csv

from hbench.core.untrusted import read_gzip

# bytes and lines that tell what a file is
HEAD = 1 << 20
LINES = 50
DELIMITERS = (",", "\t", ";", "|")
CALLED = {",": "commas", "\t": "tabs", ";": "semicolons", "|": "bars", " ": "blanks"}
NUMBER = re.compile(r"[+-]?(\d+[.,]?\d*|[.,]\d+)([eE][+-]?\d+)?")
SEPARATOR = re.compile(r'^"?sep=(.)"?$', re.IGNORECASE)


class Head(NamedTuple):
    """The first whole lines of a text file that are not blank, and how many lines stand before the
    first of them.
    """

    lines: list[str]
    blank: int = 0


class Layout(NamedTuple):
    """What stands between the cells of a file, and the cells of its first rows. `skipped`: lines
    before the first row.
    """

    delimiter: str
    rows: list[list[str]]
    skipped: int


def is_compressed(path: Path) -> bool:
    return path.suffix.lower() == ".gz"


def suffix_of(path: Path) -> str:
    """The suffix that tells a file's format, in small letters and without .gz."""
    return Path(path.name.lower().removesuffix(".gz")).suffix


def head_of(path: Path) -> Head | None:
    """The first lines of a file of UTF-8 text, also of a compressed one, up to a byte that is none;
    None for a file whose first line is no text."""
    with path.open("rb") as file:
        first = file.read(HEAD)
    whole = len(first) < HEAD
    try:
        if is_compressed(path):
            unpacking = zlib.decompressobj(wbits=31)
            first = unpacking.decompress(first, HEAD)
            whole = unpacking.eof
    except zlib.error:
        return None

    try:
        text = codecs.getincrementaldecoder("utf-8-sig")().decode(first, final=whole)
    except UnicodeDecodeError as error:  # the reader of the whole file names it
        text = first[: first.rfind(b"\n", 0, error.start) + 1].decode("utf-8-sig")

    if "\0" in text or not text:
        return Head([]) if whole and not first else None

    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    lines = lines if whole or len(lines) == 1 else lines[:-1]
    blank = next((place for place, line in enumerate(lines) if line.strip()), len(lines))
    return Head([line for line in lines[blank : blank + LINES] if line.strip()], blank)


def layout_of(head: Head) -> Layout:
    """The delimiter of a table, by its first lines, and their cells."""
    told = SEPARATOR.match(head.lines[0].strip()) if head.lines else None
    lines = head.lines[1:] if told else head.lines
    delimiter = told[1] if told else delimiter_of(lines)
    return Layout(delimiter, rows_of(lines, delimiter), head.blank + bool(told))


def delimiter_of(lines: Sequence[str]) -> str:
    """The delimiter that gives all lines the width of the first, which is more than 1; of several,
    the one that makes most numbers, then most cells; else the one that the first line has most of.
    """
    fits = {}
    for delimiter in DELIMITERS:
        rows = rows_of(lines, delimiter)
        if len({len(row) for row in rows}) == 1 and len(rows[0]) > 1:
            numbers = sum(
                bool(NUMBER.fullmatch(cell)) and (delimiter != "," or "," not in cell)
                for row in rows
                for cell in row
            )
            fits[delimiter] = (numbers, len(rows[0]))
    if fits:
        return max(fits, key=fits.__getitem__)
    return max(DELIMITERS, key=lines[0].count) if lines else ","


def rows_of(lines: Sequence[str], delimiter: str) -> list[list[str]]:
    """The cells of some lines, without the blanks around them."""
    try:
        rows = list(csv.reader([f"{line}\n" for line in lines], delimiter=delimiter))
    except csv.Error:
        rows = [line.split(delimiter) for line in lines]
    return [list(map(str.strip, row)) for row in rows if row]


def read_texts(
    path: Path, layout: Layout, names: Sequence[str], *, header: bool = True
) -> pa.Table:
    """All cells of a table as large strings, in one chunk; nothing in them is missing ("NA" is a
    name).
    """
    content = read_gzip(path) if is_compressed(path) else None
    size = path.stat().st_size if content is None else len(content)
    table = pyarrow.csv.read_csv(
        path if content is None else pa.BufferReader(content),
        read_options=pyarrow.csv.ReadOptions(
            column_names=list(names),
            skip_rows=layout.skipped + header,
            block_size=min(max(size, 1 << 16), 2**31 - 1),
        ),
        parse_options=pyarrow.csv.ParseOptions(delimiter=layout.delimiter),
        convert_options=pyarrow.csv.ConvertOptions(
            column_types=dict.fromkeys(names, pa.large_string())
        ),
    )

    return table.combine_chunks()
