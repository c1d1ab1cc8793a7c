"""Names the row and the cell that keep a text table from being read as vectors.

A table of a million rows may have a single cell that is no number: the errors here say which, by
the row, counted from 1 without a header, and the id of its item.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hbench.core.errors import SubmissionError, shorten
from hbench.core.text import counted
from hbench.sheets.text import TextTable
from hbench.submissions.problems import MEND_ROWS, in_a_line, rows_in_words

# what Arrow says of a row with too few or too many cells, with the beginning of its line
WRONG_WIDTH = re.compile(r"Expected (\d+) columns, got (\d+): (.*)", re.S)


def odd_cell(
    names: Sequence[str],
    rows: Sequence[Sequence[str]],
    number: re.Pattern[str],
    *,
    ids: int | None,
    family: Collection[str],
) -> str | None:
    """The first cell that is no number although its column should hold numbers, in words; None if
    there is none. A column should if half of its cells are numbers, or if its name numbers a
    dimension.

    Args:
        names: the names of the columns, or "" for each if there is no header.
        rows: the first rows, without the header.
        number: the pattern of a number in this table.
        ids: the index of the column of ids; None if it is not clear.
        family: the names that number dimensions.
    """
    for place, name in enumerate(names):
        # (number of the row, its cells) of all rows of full length with a cell in this column
        filled = [
            (at, row)
            for at, row in enumerate(rows, start=1)
            if len(row) == len(names) and row[place]
        ]
        odd = [(at, row) for at, row in filled if not number.fullmatch(row[place])]
        if place != ids and odd and (name in family or 2 * len(odd) <= len(filled)):
            at, row = odd[0]
            return in_words(row[place], name or str(place + 1), at, "" if ids is None else row[ids])
    return None


def in_words(cell: str, column: str, row: int, item: str = "") -> str:
    """Say where a cell is: by its column, its row, counted from 1, and the id of its item."""
    of_item = f" ({in_a_line(item)})" if item else ""
    return f"{shorten(cell)!r} in the column {in_a_line(column)} of row {row:,}{of_item}"


def without_number(path: Path, columns: Sequence[pa.ChunkedArray], ids: Sequence[str]) -> None:
    """Raise SubmissionError if there are empty cells in the `columns` of vectors, (N,) each, of the
    items `ids` (N,)."""
    cells = sum(column.null_count for column in columns)
    if cells:
        empty = np.any([column.is_null().to_numpy() for column in columns], axis=0)
        raise SubmissionError(
            f"{path} has {counted(cells, 'empty cell')} inside its vectors",
            expected="numbers",
            found=rows_in_words(np.flatnonzero(empty).tolist(), ids),
            fix=MEND_ROWS,
        )


def refuse_rows(
    text: TextTable, table: pa.Table | None, number: re.Pattern[str], error: pa.ArrowInvalid
) -> None:
    """Raise SubmissionError that names the row for which Arrow raised an error; return if it is not
    found.

    `table` has the ids and then the columns of vectors, all cells as texts, under the names in the
    file; None if the cells cannot be read as texts either.
    """
    if width := WRONG_WIDTH.search(str(error)):
        expected, got, beginning = width.groups()
        raise SubmissionError(
            f"{text.path} has a row with {counted(int(got), 'cell')}",
            expected=f"{expected} cells in each row",
            found=_line_of(text, beginning),
            fix="mend this line, or leave it out",
        )
    if table is None:
        return
    for name, column in zip(table.column_names[1:], table.columns[1:], strict=True):
        cells = column.combine_chunks()
        is_odd = pc.invert(pc.match_substring_regex(cells, f"^(?i:{number.pattern})$|^$"))
        odd = np.flatnonzero(is_odd.fill_null(False).to_numpy(zero_copy_only=False))
        if len(odd):
            row = int(odd[0])
            raise SubmissionError(
                f"{text.path} has {counted(len(odd), 'cell')} that cannot be read as numbers",
                expected="numbers",
                found=in_words(cells[row].as_py(), name, row + 1, table.column(0)[row].as_py()),
                fix=MEND_ROWS,
            )


def _line_of(text: TextTable, beginning: str) -> str:
    """The number and the beginning of the line that Arrow quotes; without the number if no line
    begins so."""
    quoted = beginning.removesuffix("...").rstrip()
    lines = text.lines()
    at = pc.index(pc.starts_with(lines, quoted), True).as_py()
    return f"line {at + 1:,}: {shorten(quoted)}" if at >= 0 else shorten(quoted)
