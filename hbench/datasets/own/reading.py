"""Reads a user's table of items: which columns are what, paths that stand in a cell, taxa joined by
id.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from hbench.core.errors import DataError, UnknownName, UsageError, examples
from hbench.core.tables import texts
from hbench.datasets.own import several
from hbench.datasets.own.boxes import box_columns_among
from hbench.datasets.own.table import OwnTable
from hbench.sheets import sheet, words
from hbench.sheets.cells import refuse_several, several_labels, with_lists, with_paths
from hbench.sheets.column_values import plain_id
from hbench.sheets.columns import (
    Chosen,
    TableColumns,
    columns_of,
)
from hbench.sheets.paths import levels_of, separator_of, split_path, with_unique_names
from hbench.tree import taxonomy
from hbench.tree.partial import ended_early


def read_own_table(path: Path, chosen: Chosen, *, as_it_is: bool = False) -> OwnTable:
    """Read a table of items from a file; `chosen`: what a user said about its columns; `as_it_is`:
    policies will mend paths that end early. Raises DataError for a file that is no table, or whose
    columns cannot be told.
    """
    found = sheet.read(path)
    facts = (found.written,) if found.written else ()
    return own_table_of(found.name, found.table, chosen, facts, as_it_is=as_it_is)


def own_table_of(
    source: str,
    table: pa.Table,
    chosen: Chosen,
    facts: tuple[str, ...] = (),
    *,
    as_it_is: bool = False,
) -> OwnTable:
    """A table with what its columns are taken for, as the user chose, else as they look. Lists and
    several labels in a cell are taken apart first, since names nest only one in each cell.

    `source`: how messages call the table; `facts`: what is known of it, in words; `as_it_is`:
    policies will mend paths that end early. Raises DataError where its columns cannot be told, or
    an item has several labels.
    """
    if chosen.taxonomy is not None:
        return _with_lineages(source, table, chosen, facts)
    if chosen.taxon is not None:
        raise UsageError(
            "a column of ids needs the taxonomy that has them",
            expected="--taxonomy FILE with --taxon",
            found=f"--taxon {chosen.taxon}",
        )

    # texts such as "['a', 'b']" become lists, and lists that are paths become columns; in words,
    # which
    table, of_lists = with_lists(table, [n for n in table.column_names if n != chosen.item])
    table, of_paths = with_paths(table, several=chosen.several)
    facts = (*facts, *(of_paths or of_lists))  # lists that are paths are said once, as paths
    if chosen.several:
        table = several.without_lists(table, chosen.levels)
    check_columns(table, [*([chosen.item] if chosen.item else []), *chosen.levels])
    columns = columns_of(table, chosen)
    if chosen.several:
        table, columns = _with_a_row_per_path(table, columns, chosen)

    own = OwnTable(source, table, columns, facts)
    if not own.columns.levels:
        raise DataError(
            "the table has no levels",
            expected="columns next to item, coarse to fine",
            found=", ".join(table.column_names),
        )

    check_columns(table, [own.item, *own.columns.levels])
    if len(own.columns.levels) == 1:
        own = _with_paths(own, chosen, as_it_is=as_it_is)
    else:
        _refuse_for_paths(own, chosen)

    if not chosen.several:  # an item has one label, and who meant several is told of the option
        _refuse_several_labels(own)
        return replace(own, facts=(*own.facts, *_maybe_several(own)))
    if len({*own.items}) == len(own.table):
        unchanged = "--several changes nothing: every item has one path"
        return replace(own, facts=(*own.facts, unchanged))
    return own


def _refuse_for_paths(own: OwnTable, chosen: Chosen) -> None:
    """Raise UsageError for choices about the paths of one column, where there are none: such a
    choice would be passed over in silence."""
    given = {"--separator": chosen.separator, "--level-names": chosen.level_names}
    if options := [option for option, value in given.items() if value]:
        raise UsageError(
            "a separator splits, and names of levels name, the paths of one column",
            expected=f"--levels COLUMN with {' and '.join(options)}",
            found=f"no paths in {', '.join(own.columns.levels)}",
        )


def _maybe_several(own: OwnTable) -> list[str]:
    """Remarks on levels some of whose cells seem to hold several labels: they have a mark, | or ;,
    between names, one of which stands alone in other cells.
    """
    facts = []
    for level in own.columns.levels:
        cells = {text for text in pc.unique(own.text(level)).to_pylist() if text}
        for mark in ("|", ";"):
            joined = [text for text in cells if mark in text]
            if 0 < len(joined) < len(cells) and several.have_labels(joined, mark, cells):
                facts.append(
                    f"{len(joined):,} names of {level} hold {mark} between names: --several takes "
                    "them for several labels of an item"
                )
    return facts


def _with_a_row_per_path(
    table: pa.Table, columns: TableColumns, chosen: Chosen
) -> tuple[pa.Table, TableColumns]:
    """The table with a row per path, for items of several, and what its columns are then taken for:
    how names nest shows only when each cell holds one label.
    """
    labels = chosen.levels or [*columns.levels, *_columns_with_several_labels(table, columns)]
    # what was no level before is none now that rows are repeated, such as a title
    others = {name: why for name, why in columns.left_out.items() if name not in labels}
    table = several.without_marks(table, labels, chosen.separator)
    found = columns_of(table.drop_columns([*others]), replace(chosen, item=columns.item))
    return table, replace(found, left_out={**found.left_out, **others})


def _columns_with_several_labels(table: pa.Table, columns: TableColumns) -> list[str]:
    """The columns that were taken for no level, some cells of which hold several labels of other
    cells.
    """
    texts_left = [
        name for name in columns.left_out if pa.types.is_string(table.schema.field(name).type)
    ]
    return [
        name
        for name in texts_left
        if several_labels(pc.unique(table[name].fill_null("")).to_pylist())
    ]


def _with_paths(own: OwnTable, chosen: Chosen, *, as_it_is: bool) -> OwnTable:
    """Split the paths in the one column of names into levels, if it holds paths; one that ends
    early is a partial label, unless policies are to mend it (`as_it_is`).
    """
    column = own.columns.levels[0]
    mark = chosen.separator or separator_of(pc.unique(own.text(column)).to_pylist())
    if mark is None:
        _refuse_for_paths(own, chosen)
        return own
    values = [row[0] for row in own.rows]
    levels = _named(levels_of(values, mark), chosen.level_names)
    # one name below two parents becomes two names
    paths = with_unique_names([split_path(value, mark) for value in values])
    # a distractor, without any name, has an empty path and is not partial
    ended = [path if as_it_is or not path else ended_early(path, levels) for path in paths]
    rows = [path + ("",) * (len(levels) - len(path)) for path in ended]
    fact = f"{column} holds paths, separated by {mark}"
    if chosen.separator is None:
        fact += " (--separator names another)"
    return replace(own.with_levels(levels, rows), facts=(*own.facts, fact))


def _named(levels: tuple[str, ...], names: tuple[str, ...]) -> tuple[str, ...]:
    """The levels of paths by the names that the user gave them. Raises UsageError where these are
    not as many.
    """
    if names and len(names) != len(levels):
        raise UsageError(
            f"the paths have {len(levels)} levels",
            expected=f"--level-names with {len(levels)} names",
            found=", ".join(names),
        )
    return names or levels


def _with_lineages(
    source: str, table: pa.Table, chosen: Chosen, facts: tuple[str, ...]
) -> OwnTable:
    """A table of items that hold ids of a taxonomy, with the names of their lineages as levels. The
    column of ids is the one that the user named, as `taxon` or as the only level, else the one in
    which most ids are found."""
    assert chosen.taxonomy is not None
    taxa = taxonomy.read(chosen.taxonomy)
    # a single level that is a column of the table is that of ids; else levels are ranks
    named = [level for level in chosen.levels if level in table.column_names]
    of_ids = named if len(chosen.levels) == 1 else []
    if chosen.taxon:  # which says the column, so that every level that was named is a rank
        check_columns(table, [chosen.taxon])
        of_ids = []
    named_column = chosen.taxon or next(iter(of_ids), None)
    column, other = (named_column or "", "")
    if named_column is None:
        column, other = _column_of_taxa(table, taxa, chosen.item)
    columns = columns_of(table, Chosen(item=chosen.item, levels=(column,)))
    levels, rows = taxonomy.rows_of(
        taxa, [plain_id(text) for text in texts(table, column)], () if of_ids else chosen.levels
    )
    own = OwnTable(source, table, columns, (*facts, f"{column} joined with {taxa.source}{other}"))
    return own.with_levels(levels, rows)


def _column_of_taxa(table: pa.Table, taxa: taxonomy.Taxonomy, item: str | None) -> tuple[str, str]:
    """The column of which most rows find their taxon, a word for ids of taxa before another; and in
    words the runner-up, "" for none.
    """
    found: dict[str, int] = {}  # by column, how many cells are ids of the taxonomy
    sample: dict[str, list[str]] = {}  # by column, its first id, for advice
    for name in table.column_names:
        # a column of items, and one of lists, cannot be ids of taxa
        if name in (item, "item") or pa.types.is_nested(table.schema.field(name).type):
            continue
        values = [plain_id(text) for text in texts(table, name) if text]
        sample[name] = values[:1]
        found[name] = sum(value in taxa for value in values)

    def known_first(name: str) -> tuple[int, bool]:
        """By how many ids are found, then a column that is called like ids of taxa."""
        return found[name], words.folded(name) in words.TAXA

    order = sorted(found, key=known_first, reverse=True)
    if not order or found[order[0]] == 0:
        # why the ids of a column may not be found, such as those of another release
        hints = [taxonomy.hint(taxa, values) for values in sample.values()]
        raise DataError(
            f"no column of the table holds ids of {taxa.source}",
            expected="a column of taxon ids",
            found=", ".join(table.column_names),
            fix=next(filter(None, hints), "name it: --taxon COLUMN"),
        )

    best = order[0]
    other = ""
    if len(order) > 1 and found[order[1]]:
        second = order[1]
        other = (
            f": {found[best]:,} of {len(table):,} rows find their taxon ({second}: "
            f"{found[second]:,}; --taxon {shlex.quote(second)} takes it)"
        )
    return best, other


def _refuse_several_labels(own: OwnTable) -> None:
    """Raise DataError for cells with several labels, and for an item that stands in several rows
    with different ones.
    """
    for level in own.columns.levels:
        refuse_several(level, pc.unique(own.text(level)).to_pylist())
    if pc.count_distinct(own.table[own.item]).as_py() == len(own.table):
        return  # each item has one row
    labels = dict(zip(own.items, own.rows, strict=True))  # the last row of each item
    other = [item for item, row in zip(own.items, own.rows, strict=True) if labels[item] != row]
    if other:
        fix = "--several takes them all, or keep one of the rows of each"
        if boxes := box_columns_among(own.table.column_names):
            fix = (
                f"if each row is a box of its picture: --box-columns {','.join(boxes)}; else {fix}"
            )
        raise DataError(
            f"{len(set(other)):,} items have several labels, in several rows",
            expected="one row, and one class at each level, of each item",
            found=examples(dict.fromkeys(other)),
            fix=fix,
        )


def check_columns(table: pa.Table, names: Sequence[str]) -> None:
    """Raise UnknownName for the first of `names` that is not a column, DataError for one of images
    or lists.
    """
    columns = table.column_names
    there = frozenset(columns)
    for name in names:
        if name not in there:
            raise UnknownName(
                "column", name, columns, otherwise="name one of these, or leave the option out"
            )
        kind = table.schema.field(name).type
        if pa.types.is_nested(kind) or pa.types.is_binary(kind):
            raise DataError(
                f"the column {name} holds no names",
                expected="texts or numbers",
                found=str(kind),
                fix=f"hbench build NAME --from FILE --levels … --image-column {name} takes images "
                "out of a table",
            )
