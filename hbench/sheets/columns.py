"""Tells what the columns of a table of items are: the items, the levels from coarse to fine, the
split, and those that are not used.

Columns that the user names are accepted unchanged. The others are guessed, from the whole table,
and users are told of each guess.

>>> names = {"species": ["w", "x", "y", "z"], "order": ["o", "o", "p", "p"]}
>>> table = pa.table({"": ["0", "1", "2", "3"], "file": ["a", "b", "c", "d"], **names})
>>> found = columns_of(table, Chosen())
>>> found.item, found.levels, found.left_out
('file', ('order', 'species'), {'': 'an index'})
"""

from __future__ import annotations

import itertools
import re
import shlex
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hbench.core.errors import DataError, UnknownName, examples
from hbench.sheets import words
from hbench.sheets.column_values import (
    SAMPLE,
    ColumnValues,
    names_at_both,
    sharing_a_name,
)
from hbench.sheets.dialect import NUMBER
from hbench.sheets.rows import MAX_SMALL_TABLE

DATE = re.compile(r"\d{4}-\d{2}-\d{2}([T ].*)?")


@dataclass(frozen=True)
class Chosen:
    """What a user said about a file. A field is None or empty if the user said nothing."""

    item: str | None = None  # the column of the items' ids
    levels: tuple[str, ...] = ()  # the columns of names, coarse to fine
    separator: str | None = None  # the text between the names of a path in a cell
    edges: tuple[str, ...] = ()  # the columns of a list of edges, parent and child
    taxonomy: Path | None = None  # the file of a taxonomy
    several: bool = False  # whether items may have several paths
    level_names: tuple[str, ...] = ()  # of the levels, if one column holds paths
    taxon: str | None = None  # the column that has ids of the taxonomy
    split: str | None = None  # the column of splits, whatever its words


NOTHING = Chosen()


@dataclass(frozen=True)
class TableColumns:
    """The columns of a table, by their role. A role is None or missing if no column has it."""

    item: str | None  # the column of the items' ids
    levels: tuple[str, ...]  # the columns of names, coarse to fine
    split: str | None = None  # the column of splits
    masks: dict[str, str] = field(default_factory=dict)  # the columns of "query" and "gallery"
    left_out: dict[str, str] = field(default_factory=dict)  # {column that is not used: why}
    notes: tuple[str, ...] = ()  # remarks on what users might not expect


def columns_of(table: pa.Table, chosen: Chosen, *, of_items: bool = True) -> TableColumns:
    """Return the role of each column of a table. `chosen`: what the user said, None or empty for
    nothing: the columns of roles, such as `item`, and whether an item may have `several` rows.
    `of_items`: whether a row is an item. If not, it is a class, and no column of items is needed.

    Raises UnknownName for a chosen column that the table lacks; DataError if no column, or more
    than one, could be that of the items.
    """
    names = table.column_names
    _refuse_absent(chosen, names)
    named = frozenset(_columns_named_by_user(chosen))
    # {column: why it is not used}: so far those of other types, such as vectors and dates
    left_out = _columns_without_names(table, named)
    values = {name: ColumnValues(name, table[name]) for name in names if name not in left_out}

    # columns that a program wrote, such as 0, 1, 2 …, unless the user named them
    index = {name: "an index" for name in values if name not in named and _is_index(values[name])}
    levels = frozenset(chosen.levels)
    free = [each for name, each in values.items() if name not in levels]
    # the column of items is first looked for among columns that are not an index
    fitting = [each for each in free if each.name not in index]
    item = chosen.item or _item_of(fitting, of_items=of_items, may_repeat=chosen.several)
    if item is None and of_items:  # only now may an index 0, 1, 2 … be the column of items
        item = _item_of(free, of_items=True, may_repeat=chosen.several)
        index.pop(item or "", None)  # the column that was found is used
    left_out |= index
    rest = {name: each for name, each in values.items() if name != item and name not in left_out}

    # columns of truth values: which items are queries, and which are in the gallery
    masks = {
        words.MASKS[words.folded(name)]: name
        for name in rest
        if words.folded(name) in words.MASKS and of_items
    }
    split = chosen.split or next(
        (name for name in rest if of_items and _is_split(rest[name])), None
    )
    rest = {name: each for name, each in rest.items() if name not in {*masks.values(), split}}
    if item is None and of_items:
        _refuse_item(names, {name: each for name, each in rest.items() if name not in levels})
    if chosen.levels:
        others = {name: "not named as a level" for name in rest if name not in levels}
        return TableColumns(item, chosen.levels, split, masks, left_out | others)
    return _with_levels(TableColumns(item, (), split, masks, left_out), rest, of_items=of_items)


def has_items(table: pa.Table) -> bool:
    """Whether a table has a row per item, not per class: it has a column called item, or a column
    called like ids with another picture in each row."""
    titles = table.column_names
    if "item" in map(str.lower, titles):
        return True
    ids = [ColumnValues(name, table[name]) for name in titles if words.is_id(name)]
    return any(each.is_unique and each.names_pictures for each in ids)


def _refuse_absent(chosen: Chosen, names: Sequence[str]) -> None:
    """Raise UnknownName if a chosen column is not among `names`, those of the table."""
    there = frozenset(names)
    for name in [*chosen.levels, *([chosen.item] if chosen.item else [])]:
        if name not in there:
            raise UnknownName("column", name, names)


def _columns_named_by_user(chosen: Chosen) -> tuple[str, ...]:
    """Return the columns that the user named for some role, about which nothing is guessed."""
    return (*chosen.levels, *([chosen.item] if chosen.item else []), *chosen.edges)


def _columns_without_names(table: pa.Table, named: Collection[str]) -> dict[str, str]:
    """Find the columns that hold no names by their Arrow types, such as bytes, vectors and dates:
    {column: what it holds}. Columns in `named`, which the user named, are not looked at. Raises
    DataError for a column of lists of labels."""
    left_out = {}
    for field_ in table.schema:
        kind = field_.type
        name = field_.name
        if name in named:
            continue
        if pa.types.is_list(kind) and pa.types.is_string(kind.value_type):
            raise DataError(
                f"the column {name} gives an item several labels",
                expected="one class of an item at each level",
                found=f"lists, such as {table[name][0].as_py()}",
                fix="--several takes them all; --levels chooses other columns",
            )

        if pa.types.is_nested(kind) or pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
            left_out[name] = "images or numbers"
        elif pa.types.is_temporal(kind):
            left_out[name] = "dates"
    return left_out


def _is_index(values: ColumnValues) -> bool:
    """Whether a program wrote this column to number the rows: its name is one that only programs
    give, or it has a name such as "index" and its values number the rows."""
    if words.is_index(values.name, counts_rows=False):
        return (values.is_unique and values.is_whole) or not values.name
    return values.counts_rows and words.is_index(values.name, counts_rows=True)


def _item_of(
    values: Sequence[ColumnValues], *, of_items: bool, may_repeat: bool = False
) -> str | None:
    """Find the column of items: the one called `item`, or the only one that is called like ids and
    has another value in each row. None if there is none. If there are several, DataError for items,
    but the first of them for classes.

    `of_items`: whether a row is an item, not a class; `may_repeat`: whether an item may have
    several rows, so that values may repeat.
    """
    by_title = {each.name.lower(): each.name for each in values}
    if "item" in by_title:
        return by_title["item"]

    fitting = [each for each in values if words.is_id(each.name) and (each.is_unique or may_repeat)]
    if not of_items:  # ids of classes are whole numbers, next to at least one other column
        fitting = [each for each in fitting if each.is_whole and len(values) > 1]
    if len(fitting) > 1:  # next to ids such as file names, a running number only numbers the rows
        texts = [each for each in fitting if not each.counts_rows]
        fitting = texts or fitting

    if len(fitting) > 1 and of_items:
        raise DataError(
            "several columns could name the items",
            expected="one that holds the ids of the embeddings",
            found=", ".join(each.name for each in fitting),
            fix=f"say which one: --item-column {shlex.quote(fitting[0].name)}",
        )

    return fitting[0].name if fitting else None


def _refuse_item(names: Sequence[str], rest: Mapping[str, ColumnValues]) -> None:
    """Raise DataError for a table of items without a column of ids, with advice. `names`: all
    columns; `rest`: the columns without another role."""
    # columns that could have the ids, if only they were called so; running numbers could not
    unique = [name for name, each in rest.items() if each.is_unique and not each.counts_rows]
    if _are_values(names):
        raise DataError(
            "the table has no header line: its first line holds values",
            expected="the names of the columns in the first line: item, and the levels, coarse to "
            "fine",
            found=", ".join(names),
            fix=f"write a line above it that names its {len(names)} columns, such as item,species",
        )

    fix = "name it: --item-column COLUMN, or call it item"
    if unique:
        fix = f"name it: --item-column {shlex.quote(unique[0])}, or call it item"
    elif called_like_ids := [name for name in names if words.is_id(name)]:
        fix = (
            f"{called_like_ids[0]} has values several times: --several takes the rows of an item "
            "for its paths"
        )
    raise DataError(
        "the table has no column of ids",
        expected="a column item, and next to it the levels, coarse to fine",
        found=", ".join(name or "a column without a title" for name in names),
        fix=fix,
    )


def _are_values(names: Sequence[str]) -> bool:
    """Whether the first line has values, not names: numbers, and no known name for ids."""
    numbers = [name for name in names if NUMBER.fullmatch(name.strip())]
    # 0, 1, 2 … are the names that pandas gives to columns without a name
    is_counted = [*map(str, range(len(numbers)))] == numbers
    return bool(numbers) and not is_counted and not any(map(words.is_id, names))


def _is_split(values: ColumnValues) -> bool:
    """Whether a column has the splits. It is called "split" or like a flag, such as is_valid with
    truth values, or all its values, at least two, are words for splits such as train and test."""
    if words.folded(values.name) == words.SPLIT:
        return True
    if words.split_flags(values.name, set(values.filled)) is not None:
        return True
    if not 1 < values.size <= len(words.SPLIT_WORDS):  # `size` counts different values
        return False
    named = set(values.filled)
    return len(words.split_words(named)) == len(named)


def _with_levels(
    columns: TableColumns, rest: dict[str, ColumnValues], *, of_items: bool
) -> TableColumns:
    """Add the levels to the columns whose roles are known: the columns that hold classes, in an
    order in which their names nest.

    `rest`: the columns without a role so far; `of_items`: whether a row is an item. In a table with
    a row per class, all columns are assumed to be there on purpose.
    """
    notes: list[str] = []  # `columns` has none so far
    left_out = dict(columns.left_out)
    # if any column shows that this is a table of taxa, only columns called like ranks are levels
    if by_rank := _rank_columns_of_taxa([*rest, *left_out, columns.item or ""], rest):
        left_out |= {name: "not a rank" for name in rest if name not in by_rank}
        rest = {name: rest[name] for name in by_rank}
    # measurements, dates, running numbers and the like, each with the reason
    for name, why in _no_classes(rest, of_items=of_items).items():
        left_out[name] = why
        rest = {other: each for other, each in rest.items() if other != name}

    order = _in_nesting_order(list(rest.values()))
    # numbers that do not nest are left out, and the order of the other columns is found again
    if of_items:  # in a table with a row per class, such numbers are there on purpose
        for each in _numbers_that_do_not_nest(order):
            left_out[each.name] = "numbers that are no classes of the other columns"
            order = _in_nesting_order([other for other in order if other is not each])
    # not remarked if numbers were left out of the order: `left_out` tells that already
    if [each.name for each in order] != list(rest) and {each.name for each in order} == set(rest):
        notes.append("its columns stand otherwise: they are ordered by how their names nest")
    same: dict[str, str] = {}
    if of_items:  # in a table with a row per class, equal columns are there on purpose
        order, same, more = _without_same_classes(order)
        notes += more
    notes += _remarks_on_header(order)
    names = tuple(each.name for each in order)
    return TableColumns(
        columns.item, names, columns.split, columns.masks, left_out | same, tuple(notes)
    )


def _rank_columns_of_taxa(names: Sequence[str], rest: dict[str, ColumnValues]) -> list[str]:
    """Find the columns that are ranks (kingdom … species) in a table of taxa, coarse to fine. Empty
    if the table has none of the columns that only tables of taxa have. `names`: all columns of the
    table; `rest`: those that may be levels."""
    by_rank = {words.rank_of(name): name for name in rest}
    there = [by_rank[rank] for rank in words.RANKS if rank in by_rank]
    ranks = [name for name in there if rest[name].size]  # without empty columns
    # only tables of taxa have columns such as scientificName or gbifID
    is_of_taxa = bool(words.OF_TAXA & set(map(words.folded, names)))
    return ranks if is_of_taxa and len(ranks) > 1 else []


def _no_classes(rest: dict[str, ColumnValues], *, of_items: bool) -> dict[str, str]:
    """Find the columns of `rest` that hold no classes, such as measurements and dates: {column:
    why}. If rows are items (`of_items`), running numbers and columns with another value in each row
    are no classes, either; a small table, though, may have one item per class. If no column would
    be left, the result is empty."""
    reasons: dict[str, str] = {}
    for name, values in rest.items():
        # SAMPLE values, and one more, since one may be ""
        sample = [value for value in values.dictionary[: SAMPLE + 1].to_pylist() if value]
        if values.is_numeric and not values.is_whole:
            reasons[name] = "numbers"
        elif sample and all(map(DATE.fullmatch, sample)):
            reasons[name] = "dates"
        elif of_items and values.counts_rows and len(values.codes) > 1:
            reasons[name] = "a running number"
        elif (
            of_items and len(rest) > 1 and len(values.codes) > MAX_SMALL_TABLE and values.is_unique
        ):
            reasons[name] = "differs in every row"
    some_left = len(reasons) < len(rest)
    return reasons if some_left else {}


def _in_nesting_order(columns: list[ColumnValues]) -> list[ColumnValues]:
    """Return the columns in an order in which each is nested in the one before.

    Columns that nest in the table's order keep it. Others are sorted by their numbers of classes if
    they nest then, all numbers differ, and most classes of some column contradict the table's order
    (few classes that contradict it are taken for mistakes). Else the table's order stays.
    """
    if _nests(columns):
        return columns
    by_size = sorted(columns, key=lambda each: each.size)
    # compared with 1 first: the order is not clear if a column has a single class, or none
    sizes = [1, *(each.size for each in by_size)]
    all_differ = all(fewer < more for fewer, more in itertools.pairwise(sizes))
    is_clear = all_differ and _is_mostly_turned(columns) and _nests(by_size)
    return by_size if is_clear else columns


def _is_mostly_turned(columns: Sequence[ColumnValues]) -> bool:
    """Whether in some column most classes occur with several classes of the column before it. Then
    the columns may be in the order fine to coarse."""
    for coarse, fine in itertools.pairwise(columns):
        both = (coarse.codes >= 0) & (fine.codes >= 0)
        # the different pairs (fine class, coarse class); a fine class is in one for each parent
        pairs = np.unique(np.stack([fine.codes[both], coarse.codes[both]]), axis=1)
        parents = np.unique(pairs[0], return_counts=True)[1]
        if 2 * int((parents > 1).sum()) > len(parents):
            return True
    return False


def _nests(columns: Sequence[ColumnValues]) -> bool:
    """Whether each column is nested in the one before."""
    return all(fine.is_within(coarse) for coarse, fine in itertools.pairwise(columns))


def _numbers_that_do_not_nest(order: list[ColumnValues]) -> list[ColumnValues]:
    """Find the columns of whole numbers that are no classes: the levels nest without them, but not
    with them. Empty if the levels nest with them, or do not nest in either case."""
    if _nests(order):
        return []
    numbers = [each for each in order if each.is_whole]
    texts = [each for each in order if not each.is_whole]
    return numbers if numbers and texts and _nests(_in_nesting_order(texts)) else []


def _without_same_classes(
    order: list[ColumnValues],
) -> tuple[list[ColumnValues], dict[str, str], list[str]]:
    """Leave out levels of numbers with the same classes as a neighbouring level. Of a column of
    names and one of numbers, the names are kept, since numbers tell people nothing.

    Returns the levels that are kept, the columns that are left out with the reason, and remarks on
    columns of names with the same classes, which are kept. `order`: the levels, coarse to fine.
    """
    kept: list[ColumnValues] = []
    same: dict[str, str] = {}
    notes: list[str] = []
    for each in order:
        before = kept[-1] if kept else None
        if before is None or not _names_same_classes(before, each):
            kept.append(each)
        elif each.is_whole:
            same[each.name] = f"the same classes as {before.name}"
        elif before.is_whole:
            kept[-1] = each
            same[before.name] = f"the same classes as {each.name}"
        else:
            kept.append(each)
            notes.append(
                f"{each.name} has the same classes as {before.name}: both count, --levels leaves "
                "one out"
            )

    return kept, same, notes


def _names_same_classes(one: ColumnValues, other: ColumnValues) -> bool:
    """Whether two columns divide the rows into the same classes, two or more, by other names."""
    return one.size == other.size > 1 and one.is_within(other) and other.is_within(one)


def _remarks_on_header(levels: Sequence[ColumnValues]) -> list[str]:
    """Make remarks on likely mistakes: the header line may be missing if a level is called like one
    of its classes; columns may be swapped in some rows if names occur at two levels."""
    # pc.index returns −1 for a value that is not there
    like_rows = [each.name for each in levels if pc.index(each.dictionary, each.name).as_py() >= 0]
    notes = [
        f"the level {name} is called like one of its classes: does the header line miss?"
        for name in like_rows
    ]
    for one, other in sharing_a_name(levels):
        coarse, fine = levels[one], levels[other]
        if both := names_at_both(coarse, fine):
            notes.append(
                f"names stand at two levels, {coarse.name} and {fine.name} ({examples(both)}): are "
                "the columns swapped in some rows?"
            )
    return notes


def remark_on_single_classes(levels: Sequence[str], sizes: Sequence[int]) -> list[str]:
    """Make a remark on levels with one class, if other levels have more. `sizes`: the number of
    classes of each level."""
    alone = [level for level, size in zip(levels, sizes, strict=True) if size == 1]
    if not alone or len(alone) == len(levels):
        return []
    return [
        f"{', '.join(alone)}: one class each, which adds nothing but counts in H-AP; --levels "
        "leaves it out"
    ]


def levels_in_words(columns: TableColumns, sizes: Sequence[int]) -> str:
    """Write the levels with their numbers of classes (`sizes`) in words.

    >>> levels_in_words(TableColumns("item", ("order", "species")), [2, 5])
    'levels order (2) › species (5)'
    """
    named = [f"{name} ({size:,})" for name, size in zip(columns.levels, sizes, strict=True)]
    return f"level{'s' if len(named) > 1 else ''} {' › '.join(named)}"
