"""Tells what the columns of a table of items are: the items, the levels from coarse to fine, the
split, and what is none of these.

Whatever a caller names is taken as it is. The rest is guessed once, from the whole table, and every
guess is said.

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
    """What a user said about a file: the column of `item`, the `levels`, coarse to fine, the
    `separator` in a cell that holds a path, the two columns of `edges` (parent, child); None or
    empty where nothing was said. `several`: items may have several paths. `level_names`: what the
    levels of paths in one column are called; `taxon`: the column of ids of the `taxonomy`; `split`:
    the column of splits, whatever its words."""

    item: str | None = None
    levels: tuple[str, ...] = ()
    separator: str | None = None
    edges: tuple[str, ...] = ()
    taxonomy: Path | None = None
    several: bool = False
    level_names: tuple[str, ...] = ()
    taxon: str | None = None
    split: str | None = None


NOTHING = Chosen()


@dataclass(frozen=True)
class TableColumns:
    """The columns of a table by their part; `item` None: there is none. `masks`: the column of
    `query` and that of `gallery`, where there are such. `left_out`: the others, and why; `notes`:
    what users might not expect."""

    item: str | None
    levels: tuple[str, ...]
    split: str | None = None
    masks: dict[str, str] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def columns_of(table: pa.Table, chosen: Chosen, *, of_items: bool = True) -> TableColumns:
    """Return what the columns of a table are. A table that is not `of_items` has a row per class,
    and needs no item.

    Raises UnknownName for a chosen column that is not there, DataError where no column, or more
    than one, could be the item's.
    """
    names = table.column_names
    _refuse_absent(chosen, names)
    named = frozenset(_columns_named_by_user(chosen))
    left_out = _columns_without_names(table, named)
    values = {name: ColumnValues(name, table[name]) for name in names if name not in left_out}

    # a column that a program wrote, such as 0, 1, 2 …, unless the user named it
    index = {name: "an index" for name in values if name not in named and _is_index(values[name])}
    levels = frozenset(chosen.levels)
    free = [each for name, each in values.items() if name not in levels]
    # in which the column of items is looked for first
    fitting = [each for each in free if each.name not in index]
    item = chosen.item or _item_of(fitting, of_items=of_items, may_repeat=chosen.several)
    if item is None and of_items:  # a column 0, 1, 2 … is that of ids only if no other can be
        item = _item_of(free, of_items=True, may_repeat=chosen.several)
        index.pop(item or "", None)
    left_out |= index
    rest = {name: each for name, each in values.items() if name != item and name not in left_out}

    # what is asked and what is ranked, a column of truth values each
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
    """Whether a table that may have a row per class has one per item: a column called item, or one
    called like ids that names a picture in every row."""
    titles = table.column_names
    if "item" in map(str.lower, titles):
        return True
    ids = [ColumnValues(name, table[name]) for name in titles if words.is_id(name)]
    return any(each.is_unique and each.names_pictures for each in ids)


def _refuse_absent(chosen: Chosen, names: Sequence[str]) -> None:
    """Raise UnknownName for a chosen column that is not among the table's (`names`)."""
    there = frozenset(names)
    for name in [*chosen.levels, *([chosen.item] if chosen.item else [])]:
        if name not in there:
            raise UnknownName("column", name, names)


def _columns_named_by_user(chosen: Chosen) -> tuple[str, ...]:
    """The columns that a user named for some part: about these nothing is guessed."""
    return (*chosen.levels, *([chosen.item] if chosen.item else []), *chosen.edges)


def _columns_without_names(table: pa.Table, named: Collection[str]) -> dict[str, str]:
    """The columns that hold no names, such as images and vectors, each with what it holds; those
    that were `named` by a user are not looked at. Raises DataError for a list of labels.
    """
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
    """Whether a column is what a program wrote to number its rows: by a name that only programs
    give, or by one such as "index" above values that count the rows."""
    if words.is_index(values.name, counts_rows=False):
        return (values.is_unique and values.is_whole) or not values.name
    return values.counts_rows and words.is_index(values.name, counts_rows=True)


def _item_of(
    values: Sequence[ColumnValues], *, of_items: bool, may_repeat: bool = False
) -> str | None:
    """The column of items, by its name: the one called `item`, or the only one called like ids
    whose values differ in every row (if an item `may_repeat`, they need not); None where there is
    none. A table that is not `of_items` has a row per class. Raises DataError for several.
    """
    by_title = {each.name.lower(): each.name for each in values}
    if "item" in by_title:
        return by_title["item"]

    fitting = [each for each in values if words.is_id(each.name) and (each.is_unique or may_repeat)]
    if not of_items:  # of a table with a row per class, only a number that stands for it
        fitting = [each for each in fitting if each.is_whole and len(values) > 1]
    if len(fitting) > 1:  # a number beside a file's name only counts the rows
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
    """Raise DataError for a table of items without a column of ids, with advice on how to name one;
    `names`: of all its columns; `rest`: those that have no other part."""
    # columns that could be ids, but for their names; numbers of rows are none
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
    elif titled := [name for name in names if words.is_id(name)]:
        fix = (
            f"{titled[0]} has values several times: --several takes the rows of an item for its "
            "paths"
        )
    raise DataError(
        "the table has no column of ids",
        expected="a column item, and next to it the levels, coarse to fine",
        found=", ".join(name or "a column without a title" for name in names),
        fix=fix,
    )


def _are_values(names: Sequence[str]) -> bool:
    """Whether the cells of a first line are no names of columns: some are numbers, and none is a
    word that people call a column.
    """
    numbers = [name for name in names if NUMBER.fullmatch(name.strip())]
    is_counted = [*map(str, range(len(numbers)))] == numbers  # pandas' names of columns without any
    return bool(numbers) and not is_counted and not any(map(words.is_id, names))


def _is_split(values: ColumnValues) -> bool:
    """Whether a column tells of which split each item is: by its name, or since its values are
    several of train, test, query and gallery, and no others."""
    if words.folded(values.name) == words.SPLIT:
        return True
    if words.split_flags(values.name, set(values.filled)) is not None:
        return True
    if not 1 < values.size <= len(words.SPLIT_WORDS):
        return False
    named = set(values.filled)
    return len(words.split_words(named)) == len(named)


def _with_levels(
    columns: TableColumns, rest: dict[str, ColumnValues], *, of_items: bool
) -> TableColumns:
    """Add the levels to the columns that were told apart so far: those of the `rest`, the other
    columns by name, that hold classes, in an order in which the names nest.

    `of_items`: a row is an item; the columns of a table with a row per class are all meant.
    """
    notes: list[str] = []
    left_out = dict(columns.left_out)
    # columns that are called by ranks beside an id of a taxon: what else is there is no level
    if by_rank := _rank_columns_of_taxa([*rest, *left_out, columns.item or ""], rest):
        left_out |= {name: "not a rank" for name in rest if name not in by_rank}
        rest = {name: rest[name] for name in by_rank}
    # measurements, dates, running numbers and the like, each with the reason
    for name, why in _no_classes(rest, of_items=of_items).items():
        left_out[name] = why
        rest = {other: each for other, each in rest.items() if other != name}

    order = _in_nesting_order(list(rest.values()))
    if of_items:  # a table with a row per class has no such numbers but on purpose
        for each in _numbers_that_do_not_nest(order):
            left_out[each.name] = "numbers that are no classes of the other columns"
            order = _in_nesting_order([other for other in order if other is not each])
    if [each.name for each in order] != list(rest) and {each.name for each in order} == set(rest):
        notes.append("its columns stand otherwise: they are ordered by how their names nest")
    same: dict[str, str] = {}
    if of_items:  # a table with a row per class says what it means
        order, same, more = _without_same_classes(order)
        notes += more
    notes += _remarks_on_header(order)
    names = tuple(each.name for each in order)
    return TableColumns(
        columns.item, names, columns.split, columns.masks, left_out | same, tuple(notes)
    )


def _rank_columns_of_taxa(names: Sequence[str], rest: dict[str, ColumnValues]) -> list[str]:
    """The columns of a table of taxa that are ranks (kingdom … species), coarse to fine; none of a
    table without a column that such tables alone have, of all its `names`. `rest`: the columns that
    may be levels.
    """
    by_rank = {words.rank_of(name): name for name in rest}
    there = [by_rank[rank] for rank in words.RANKS if rank in by_rank]
    ranks = [name for name in there if rest[name].size]
    # such columns as scientificName or gbifID, among all columns of the table
    is_of_taxa = bool(words.OF_TAXA & set(map(words.folded, names)))
    return ranks if is_of_taxa and len(ranks) > 1 else []


def _no_classes(rest: dict[str, ColumnValues], *, of_items: bool) -> dict[str, str]:
    """The columns of the `rest`, by name, that hold no classes, and why: measurements, dates, and,
    where rows are items (`of_items`), running numbers and what differs in every row, unless the
    table is small, where classes of one item may be meant.
    """
    reasons: dict[str, str] = {}
    for name, values in rest.items():
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
    # where this would leave no level at all, it is wrong: then all columns stay
    some_left = len(reasons) < len(rest)
    return reasons if some_left else {}


def _in_nesting_order(columns: list[ColumnValues]) -> list[ColumnValues]:
    """The columns in an order in which each lies within the one before: their own, if it does, else
    by their numbers of classes, if that does, each has more than the one before, and most classes
    contradict their own: a few names under two parents are no other order."""
    if _nests(columns):
        return columns
    by_size = sorted(columns, key=lambda each: each.size)
    sizes = [1, *(each.size for each in by_size)]
    is_clear = all(fewer < more for fewer, more in itertools.pairwise(sizes)) and _is_mostly_turned(
        columns
    )
    return by_size if is_clear and _nests(by_size) else columns


def _is_mostly_turned(columns: Sequence[ColumnValues]) -> bool:
    """Whether most classes of some column lie in several classes of the one before it: the columns
    may stand in the order fine to coarse."""
    for coarse, fine in itertools.pairwise(columns):
        both = (coarse.codes >= 0) & (fine.codes >= 0)
        # each different pair of a class and the class before it; then how many of the latter
        pairs = np.unique(np.stack([fine.codes[both], coarse.codes[both]]), axis=1)
        parents = np.unique(pairs[0], return_counts=True)[1]
        if 2 * int((parents > 1).sum()) > len(parents):
            return True
    return False


def _nests(columns: Sequence[ColumnValues]) -> bool:
    """Whether each class of a column lies in one class of the column before it."""
    return all(fine.is_within(coarse) for coarse, fine in itertools.pairwise(columns))


def _numbers_that_do_not_nest(order: list[ColumnValues]) -> list[ColumnValues]:
    """The columns of whole numbers, where the levels nest without them but not with them: they are
    then no classes. None of them where the levels nest anyway, or do so in neither case."""
    if _nests(order):
        return []
    numbers = [each for each in order if each.is_whole]
    texts = [each for each in order if not each.is_whole]
    return numbers if numbers and texts and _nests(_in_nesting_order(texts)) else []


def _without_same_classes(
    order: list[ColumnValues],
) -> tuple[list[ColumnValues], dict[str, str], list[str]]:
    """Return the levels without numbers or codes that name the classes of a neighbour once more;
    what is left out so, with the reason; and remarks on names that do the same, which stay. Names
    are kept rather than numbers, which tell people nothing. `order`: coarse to fine."""
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
    """Whether two columns part the rows into the same classes, two at least, by other names."""
    return one.size == other.size > 1 and one.is_within(other) and other.is_within(one)


def _remarks_on_header(levels: Sequence[ColumnValues]) -> list[str]:
    """Remarks where the header seems to miss, since a level is called like one of its classes, or
    columns to be swapped in some rows, since names stand at two levels."""
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
    """A remark on levels of one class, beside others of more; `sizes`: each level's classes."""
    alone = [level for level, size in zip(levels, sizes, strict=True) if size == 1]
    if not alone or len(alone) == len(levels):
        return []
    return [
        f"{', '.join(alone)}: one class each, which adds nothing but counts in H-AP; --levels "
        "leaves it out"
    ]


def levels_in_words(columns: TableColumns, sizes: Sequence[int]) -> str:
    """The levels with their numbers of classes, the `sizes`, in words.

    >>> levels_in_words(TableColumns("item", ("order", "species")), [2, 5])
    'levels order (2) › species (5)'
    """
    named = [f"{name} ({size:,})" for name, size in zip(columns.levels, sizes, strict=True)]
    return f"level{'s' if len(named) > 1 else ''} {' › '.join(named)}"
