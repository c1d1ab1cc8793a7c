"""Reads items with several paths from a table. The paths of an item are in lists in a cell, in
texts such as `dog;cat`, or in several rows.

The table is unfolded to a row per path, so that the code that reads or mends names sees plain rows.
Later it is folded again: an item has one row with its first path, and a column of further paths.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from itertools import chain, compress

import numpy as np
import pyarrow as pa

from hbench.core.errors import DataError, examples
from hbench.core.tables import text_rows, texts
from hbench.sheets.rows import Row
from hbench.tree import MORE_PATHS

MARKS = ("|", ";", ",")  # between the labels in a cell
MOST_PATHS = 1_000  # per item, since all pairs of its paths are compared
PATH_LISTS = pa.list_(pa.list_(pa.string()))


def without_lists(table: pa.Table, levels: Sequence[str]) -> pa.Table:
    """Unfold a table to a row per path, if columns hold lists of labels: a row is repeated for each
    label in its lists. `levels`: the columns of labels; if empty, all columns with lists of texts.

    Raises DataError if the lists of one row differ in length.
    """
    listed = [
        field.name
        for field in table.schema
        if pa.types.is_list(field.type)
        and (field.name in levels if levels else pa.types.is_string(field.type.value_type))
    ]
    cells = {}  # {column: the labels of each row}; a row without any has one empty label
    for name in listed:
        cells[name] = [_as_texts(value) for value in table[name].to_pylist()]
    return _with_row_per_label(table, cells) if listed else table


def without_marks(table: pa.Table, levels: Sequence[str], separator: str | None) -> pa.Table:
    """Unfold a table to a row per path, if texts in the columns `levels` hold several labels, with
    a mark (| ; or ,) between them. A row is repeated for each of its labels.

    `separator`: the text between the names of a path, which is no mark between labels. Raises
    DataError if the cells of one row hold different numbers of labels.
    """
    values = {level: texts(table, level) for level in levels}
    mark = _mark_in(list(chain.from_iterable(values.values())), separator)
    if mark is None:
        return table
    cells = {}
    for level, column in values.items():
        cells[level] = [_labels_in(text, mark) for text in column]
    return _with_row_per_label(table, cells)


def _mark_in(cells: Sequence[str], separator: str | None) -> str | None:
    """Return the first of MARKS (| ; or ,) that is between labels in any of the cells; None if
    there is none. The `separator` of the names of a path is not such a mark."""
    different = {*cells}
    for mark in MARKS:
        if mark == separator:
            continue
        joined = [text for text in different if mark in text]
        # Names may contain a comma. So it only counts if, in each cell that has commas, some part
        # between commas is the whole of another cell.
        if joined and (mark != "," or have_labels(joined, mark, different)):
            return mark
    return None


def have_labels(joined: Sequence[str], mark: str, cells: Set[str]) -> bool:
    """Whether each of the cells `joined`, which contain the mark (such as "dog;cat"), holds a label
    that is the whole of another cell. Then the mark is between labels. `cells`: all cells."""
    return all(_has_label(text, mark, cells) for text in joined)


def _has_label(text: str, mark: str, cells: Set[str]) -> bool:
    """Whether a label in the cell `text` is the whole of another cell."""
    return any(label in cells for label in _labels_in(text, mark))


def _labels_in(text: str, mark: str) -> list[str]:
    """Split a cell, such as "dog; cat", into its labels at the mark."""
    return [label.strip() for label in text.split(mark)]


def _as_texts(value: Sequence[object] | None) -> list[str]:
    """Return the labels in a cell that holds a list, as texts, without missing ones. If there are
    none, return one empty label, so that the item keeps its row."""
    return [str(label) for label in value or () if label is not None] or [""]


def _with_row_per_label(table: pa.Table, cells: dict[str, list[list[str]]]) -> pa.Table:
    """Repeat each row of a table for each of its labels.

    `cells`: {column: the labels in the cell of each row}. If a row has several labels in several
    columns, their numbers must be equal; a single label is repeated. Raises DataError if the
    numbers differ, or if an item has more than MOST_PATHS paths.
    """
    # for each row, its labels in each of the columns
    by_row = list(zip(*cells.values(), strict=True))
    numbers = [max(map(len, of_row)) for of_row in by_row]
    if max(numbers, default=0) > MOST_PATHS:
        raise DataError(
            f"an item has {max(numbers):,} paths",
            expected=f"at most {MOST_PATHS:,} for an item",
            found=f"row {numbers.index(max(numbers)) + 1:,} of the table",
        )
    unequal = []
    for of_row, number in zip(by_row, numbers, strict=True):
        lengths = [len(labels) for labels in of_row]
        if not {*lengths} <= {1, number}:
            unequal.append(" and ".join(map(str, lengths)))
    if unequal:
        raise DataError(
            "some rows have different numbers of labels at their levels",
            expected="one label at each level for each path, or one label for all of them",
            found=f"{len(unequal):,} rows, such as {examples(dict.fromkeys(unequal))} labels",
        )

    # a row with n labels in some column is repeated n times
    table = table.take(pa.array(np.repeat(np.arange(len(table)), numbers)))
    for name, column in cells.items():
        repeated = [
            label
            for labels, number in zip(column, numbers, strict=True)
            for label in (labels if len(labels) == number else labels * number)
        ]
        table = table.set_column(
            table.column_names.index(name), name, pa.array(repeated, pa.string())
        )

    return table


def with_row_per_item(table: pa.Table, item: str, levels: Sequence[str]) -> pa.Table:
    """Fold a table to one row per item, with the first path in the columns `levels` and the further
    ones in the column MORE_PATHS. `item`: the column of the items' ids.

    Raises DataError if the rows of an item differ in their split, or in whether it is a query or in
    the gallery.
    """
    items = texts(table, item)
    rows = text_rows(table, levels)
    paths: dict[str, list[Row]] = {}  # {item: its different paths}
    for name, row in zip(items, rows, strict=True):
        of_item = paths.setdefault(name, [])
        if row not in of_item:
            of_item.append(row)
    # {item: its paths}; an empty path only counts if the item has no other
    named = {name: _with_names(of_item) for name, of_item in paths.items()}

    # (rows,): whether a row is the first of its item; `unique` gives the first row of each
    is_first = np.zeros(len(items), bool)
    is_first[np.unique(np.array(items, dtype=object), return_index=True)[1]] = True
    _refuse_different(table, items, is_first, levels)
    one = table.filter(pa.array(is_first.tolist()))
    order = list(compress(items, is_first))
    for place, level in enumerate(levels):
        names = pa.array([named[name][0][place] for name in order], pa.string())
        one = one.set_column(one.column_names.index(level), level, names)
    more = [[*map(list, named[name][1:])] for name in order]
    return one.append_column(MORE_PATHS, pa.array(more, PATH_LISTS))


def _with_names(paths: list[Row]) -> list[Row]:
    """Return the paths that have a name at some level, or all paths if none has."""
    return [path for path in paths if any(path)] or paths


def _refuse_different(
    table: pa.Table, items: Sequence[str], is_first: np.ndarray, levels: Sequence[str]
) -> None:
    """Raise DataError if the rows of one item differ in a column that an item has only once: its
    split, and whether it is a query and in the gallery.

    `items`: the item of each row; `is_first` (rows,): whether a row is the first of its item;
    `levels`: the columns of names, in which rows of one item may differ.
    """
    once = [
        name
        for name in table.column_names
        if name.lower() in {"split", "query", "gallery", "is_query", "is_gallery"}
    ]
    once = [name for name in once if name not in levels]
    if not once:
        return

    rows = text_rows(table, once)
    first = dict(zip(compress(items, is_first), compress(rows, is_first), strict=True))
    other = [name for name, row in zip(items, rows, strict=True) if first[name] != row]
    if other:
        raise DataError(
            f"{len(set(other)):,} items have several rows that differ in {' or '.join(once)}",
            expected="rows of an item that differ in its labels alone",
            found=examples(dict.fromkeys(other)),
        )


def more_paths(table: pa.Table) -> list[tuple[int, Row]]:
    """Return the further paths of items, each with the row of its item in the table: (row, names).
    Empty if the table has no column for them."""
    if MORE_PATHS not in table.column_names:
        return []
    return [
        (place, tuple(row))
        for place, rows in enumerate(table[MORE_PATHS].to_pylist())
        for row in rows
    ]
