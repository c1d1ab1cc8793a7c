"""Reads cells that hold several labels or names: lists, also as text, as pandas, JSON and
annotation programs write them, and labels joined by a separator.

>>> as_list("['Owls', 'Night']"), as_list('[["Birds", "Owls"]]'), as_list("Owls")
(['Owls', 'Night'], [['Birds', 'Owls']], None)
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from hbench.core.errors import DataError, examples
from hbench.core.untrusted import parse_json
from hbench.sheets.paths import JOINED, are_nested

LISTS = pa.list_(pa.string())
PATH_LISTS = pa.list_(LISTS)
BRACKETS = re.compile(r"\s*[\[(].*[\])]\s*", re.DOTALL)
SAMPLE = 1000  # the rows at which the first cell that is not empty is looked for
MOST_LETTERS = 100_000  # of a cell that is parsed as a list


def as_list(text: str) -> list[Any] | None:
    """Parse a text as a list in JSON, or as Python prints a list or a tuple. Return None for any
    other text, and for a text that is too long to be parsed quickly (MOST_LETTERS)."""
    if not BRACKETS.fullmatch(text) or len(text) > MOST_LETTERS:
        return None
    try:
        value = parse_json(text)
    except ValueError:  # Python's lists may have single quotes, its tuples parentheses
        try:
            value = ast.literal_eval(text.strip())
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            return None
    return list(value) if isinstance(value, list | tuple) else None


def _type_of_lists(lists: Iterable[Sequence[Any]]) -> pa.DataType | None:
    """Return the Arrow type of some lists: LISTS if they hold texts, PATH_LISTS if they hold lists
    of texts. None if they hold anything else, or if all are empty."""
    parts = [part for each in lists for part in each]
    if parts and all(isinstance(part, str) for part in parts):
        return LISTS
    if parts and all(isinstance(part, list | tuple) for part in parts):
        return PATH_LISTS if all(isinstance(name, str) for part in parts for name in part) else None
    return None


def with_lists(table: pa.Table, columns: Sequence[str]) -> tuple[pa.Table, list[str]]:
    """Parse each of the `columns` whose cells are all lists written as text, such as "['a', 'b']".
    Return the table with lists in these columns, and a sentence for each of them."""
    facts = []
    for name in columns:
        column = table[name]
        if not pa.types.is_string(column.type) or not _begins_with_bracket(column):
            continue
        # dictionary-encoded, so that each different text is parsed only once
        encoded = column.combine_chunks().dictionary_encode()
        whole = encoded if isinstance(encoded, pa.Array) else encoded.combine_chunks()
        # a list for each text, None for an empty text or list; None if the column holds no lists
        parsed = _parse_cells(whole.dictionary.to_pylist())
        kind = (
            None if parsed is None else _type_of_lists(held for held in parsed if held is not None)
        )
        if parsed is None or kind is None:
            continue
        # the indices put a list into each row again
        cells = pa.array(parsed, kind).take(whole.indices)
        table = table.set_column(table.column_names.index(name), name, cells)
        facts.append(f"{name} holds lists as text")
    return table, facts


def _begins_with_bracket(column: pa.ChunkedArray) -> bool:
    """Whether the first cell that is not empty begins like a list."""
    first = next((text for text in column[:SAMPLE].to_pylist() if text), "")
    return first.lstrip()[:1] in ("[", "(")


def _parse_cells(values: Sequence[str | None]) -> list[list[Any] | None] | None:
    """Parse the different cells of a column as lists; an empty cell or list becomes None. Return
    None for the whole column if a cell is not a list, or if all lists are empty."""
    parsed: list[list[Any] | None] = []
    for value in values:
        elements = as_list(value) if value else []
        if elements is None:  # not a list
            return None
        parsed.append(elements or None)
    return parsed if any(parsed) else None


def are_paths(column: pa.ChunkedArray) -> bool:
    """Whether the lists of texts in a column are paths, not several labels of an item. Lists of
    labels would not nest, or some would have a single label."""
    paths = {tuple(held) for held in column.to_pylist() if held}
    return all(len(path) > 1 for path in paths) and are_nested(paths)


def with_paths(table: pa.Table, *, several: bool) -> tuple[pa.Table, list[str]]:
    """Replace columns of lists that are paths by columns of texts such as "Birds > Owls". An item
    with several paths gets a row for each. Return the table, and a sentence for each replaced
    column.

    A list of lists is read as the paths of an item. A simple list is read as a path only if
    `several` is false, no other column has lists, and the lists of the column form a tree;
    otherwise its column is unchanged. `several`: whether an item may have several paths; the names
    of a simple list may then be several labels of the item. If it is false, DataError is
    raised for an item with several paths.
    """
    facts: list[str] = []
    listed = [field.name for field in table.schema if field.type in (LISTS, PATH_LISTS)]
    for name in listed:
        column = table[name]
        if column.type == PATH_LISTS:
            table = _with_row_per_path(table, name, several=several)
            facts.append(f"{name} holds lists of names")
        elif not several and len(listed) == 1 and are_paths(column):
            table = _with_texts(table, name, pc.binary_join(column, JOINED))
            facts.append(f"{name} holds paths in lists")
    return table, facts


def _with_row_per_path(table: pa.Table, name: str, *, several: bool) -> pa.Table:
    """Unfold a table to a row per path. In the column `name`, whose cells are lists of paths, which
    are lists of names, each path becomes a text. Raises DataError for an item with several paths,
    unless `several` is true."""
    column = table[name].combine_chunks()
    numbers = pc.list_value_length(column).fill_null(0)  # of paths in each row
    most = pc.max(numbers).as_py()
    if most > 1 and not several:
        raise DataError(
            f"the column {name} gives some items several paths",
            expected="one path of each item",
            found=f"up to {most:,}",
            fix="--several takes them all, or keep one path of each of these items",
        )
    # the text of each path, and the number of the row in `table` that it comes from; an item with
    # an empty list has no labels: it keeps its row, with an empty text
    texts: list[str] = []
    rows: list[int] = []
    for row, paths in enumerate(column.to_pylist()):
        of_row = [JOINED.join(path) for path in paths or [()]]
        texts += of_row
        rows += [row] * len(of_row)
    return _with_texts(table.take(pa.array(rows, pa.int64())), name, pa.array(texts))


def _with_texts(table: pa.Table, name: str, texts: pa.Array | pa.ChunkedArray) -> pa.Table:
    """Return the table with these texts in the column `name`; missing texts become ""."""
    return table.set_column(table.column_names.index(name), name, pc.fill_null(texts, ""))


def several_labels(
    values: Sequence[str], separators: Sequence[str] = ("|", ";")
) -> tuple[str, str] | None:
    """Find a value of a column that holds several labels, such as `dog|cat`: each of its parts is
    another value of the column. Return (value, separator) for the first one; None if there is none.
    """
    different = {*values}
    for separator in separators:
        joined = [value for value in different if separator in value]
        # a separator that is in all values is part of the names, or of paths
        if not joined or len(joined) == len(different):
            continue
        for value in joined:
            parts = [part.strip() for part in value.split(separator)]
            if all(part in different for part in parts):
                return value, separator
    return None


def refuse_several(name: str, values: Sequence[str]) -> None:
    """Raise DataError if one of the `values` of the column `name` holds several labels."""
    found = several_labels(values)  # the first such value, and its separator
    if found is not None:
        raise DataError(
            f"the column {name} gives some items several labels",
            expected="one class of an item at each level",
            found=f"{examples([found[0]])}, whose parts are labels of other items",
            fix="--several takes them all, or keep one label of each of these items",
        )
