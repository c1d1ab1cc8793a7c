"""Reads a user's table of items: finds what its columns are, splits paths in cells into levels, and
joins ids of taxa with a taxonomy.
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
    """Read a table of items from a file. `chosen`: what the user said about its columns;
    `as_it_is`: leave paths that end early unchanged, since policies will mend them. Raises
    DataError if the file is not a table, or if its columns cannot be told.
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
    """Find what the columns of a table are: what the user chose, and otherwise by how they look.
    Lists and several labels in a cell are taken apart first: how the names of columns nest tells
    the levels and their order, and only single names can nest.

    Args:
        source: how messages call the table.
        table: the table.
        chosen: what the user said about its columns.
        facts: sentences about how the table was read so far.
        as_it_is: leave paths that end early unchanged, since policies will mend them.

    Returns:
        The table with a row per item, or per path if `chosen.several` is true.

    Raises:
        DataError: the columns cannot be told, or an item has several labels.
    """
    if chosen.taxonomy is not None:
        return _with_lineages(source, table, chosen, facts)
    if chosen.taxon is not None:
        raise UsageError(
            "a column of ids needs the taxonomy that has them",
            expected="--taxonomy FILE with --taxon",
            found=f"--taxon {chosen.taxon}",
        )

    # texts such as "['a', 'b']" become lists, and lists that are paths become texts of paths; the
    # second results are sentences that say so
    table, of_lists = with_lists(table, [n for n in table.column_names if n != chosen.item])
    table, of_paths = with_paths(table, several=chosen.several)
    facts = (*facts, *(of_paths or of_lists))  # lists that are paths are mentioned only once
    # with several paths, an item has a row for each: first those of lists, and, once the columns of
    # levels are known, those of texts with a mark between labels
    if chosen.several:
        table = several.without_lists(table, chosen.levels)
    # first the columns that the user chose; below, also those that were found
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
        _refuse_for_paths(own, chosen)  # options about paths, which would do nothing

    if not chosen.several:  # an item has one label; remarks mention --several if it may be meant
        _refuse_several_labels(own)
        return replace(own, facts=(*own.facts, *_maybe_several(own)))
    if len({*own.items}) == len(own.table):
        unchanged = "--several changes nothing: every item has one path"
        return replace(own, facts=(*own.facts, unchanged))
    return own


def _refuse_for_paths(own: OwnTable, chosen: Chosen) -> None:
    """Raise UsageError for choices about paths in one column. This is called if there are no such
    paths, since the choices would be ignored silently."""
    given = {"--separator": chosen.separator, "--level-names": chosen.level_names}
    if options := [option for option, value in given.items() if value]:
        raise UsageError(
            "a separator splits, and names of levels name, the paths of one column",
            expected=f"--levels COLUMN with {' and '.join(options)}",
            found=f"no paths in {', '.join(own.columns.levels)}",
        )


def _maybe_several(own: OwnTable) -> list[str]:
    """Make remarks on levels in which some cells seem to hold several labels: a mark, | or ;, is
    between names of which at least one is the whole of another cell."""
    facts = []
    for level in own.columns.levels:
        cells = {text for text in pc.unique(own.text(level)).to_pylist() if text}
        for mark in ("|", ";"):
            joined = [text for text in cells if mark in text]
            # a mark in every cell is part of the names, or of paths
            if 0 < len(joined) < len(cells) and several.have_labels(joined, mark, cells):
                facts.append(
                    f"{len(joined):,} names of {level} hold {mark} between names: --several takes "
                    "them for several labels of an item"
                )
    return facts


def _with_a_row_per_path(
    table: pa.Table, columns: TableColumns, chosen: Chosen
) -> tuple[pa.Table, TableColumns]:
    """Unfold a table to a row per path, for items with several paths. Return the new table, and the
    roles of its columns. The levels are found anew, since how names nest can only be seen if each
    cell holds one label.

    `columns`: the roles of the columns before, with the unused ones in `left_out`, {column: why}.
    `chosen`: the columns that the user named, empty or None for those to be found, and the
    separator of the names in a path.
    """
    # the columns of labels: those chosen, or the levels and unused columns that hold labels, too
    labels = chosen.levels or [*columns.levels, *_columns_with_several_labels(table, columns)]
    # unused columns, such as a title, stay unused: in repeated rows a title would look like classes
    others = {name: why for name, why in columns.left_out.items() if name not in labels}
    # `without_marks` repeats a row for each of the several labels in a cell
    table = several.without_marks(table, labels, chosen.separator)
    # the column of ids is not looked for anew: it is the one found before rows were repeated
    found = columns_of(table.drop_columns([*others]), replace(chosen, item=columns.item))
    return table, replace(found, left_out={**found.left_out, **others})


def _columns_with_several_labels(table: pa.Table, columns: TableColumns) -> list[str]:
    """Return the columns that were left out, but in which some cell holds several labels, such as
    `dog|cat`, each of which fills another cell alone."""
    texts_left = [
        name for name in columns.left_out if pa.types.is_string(table.schema.field(name).type)
    ]
    return [
        name
        for name in texts_left
        if several_labels(pc.unique(table[name].fill_null("")).to_pylist())
    ]


def _with_paths(own: OwnTable, chosen: Chosen, *, as_it_is: bool) -> OwnTable:
    """Split the only column of names into levels, if it holds paths. A path that ends early becomes
    a partial label: it is filled up with a mark of the unknown. With `as_it_is` it is filled up
    with "", since policies that the user chose will mend it.
    """
    column = own.columns.levels[0]
    separator = chosen.separator or separator_of(pc.unique(own.text(column)).to_pylist())
    if separator is None:
        # a separator or names of levels that the user gave would be ignored
        _refuse_for_paths(own, chosen)
        return own
    values = [row[0] for row in own.rows]
    # the names of the levels: those by the user, or ranks or level1, level2, …
    levels = _named(levels_of(values, separator), chosen.level_names)
    # one name below two parents becomes two names
    paths = with_unique_names([split_path(value, separator) for value in values])
    # a distractor has no names: its path is empty, not partial
    ended = [path if as_it_is or not path else ended_early(path, levels) for path in paths]
    rows = [path + ("",) * (len(levels) - len(path)) for path in ended]
    fact = f"{column} holds paths, separated by {separator}"
    if chosen.separator is None:
        fact += " (--separator names another)"
    return replace(own.with_levels(levels, rows), facts=(*own.facts, fact))


def _named(levels: tuple[str, ...], names: tuple[str, ...]) -> tuple[str, ...]:
    """Return the `names` that the user gave the levels of paths; if there are none, the names that
    were found, `levels`. Raises UsageError if there are more or fewer names than levels."""
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
    """Join a table of items with a taxonomy, whose ids a column of the table has. A row's names are
    those of the taxon with its id and of the taxa above, at the ranks that are levels.

    The column of ids is the one that the user named, as `taxon` or as the only level. Otherwise it
    is the column in which most cells are ids of the taxonomy. Chosen levels that are not the column
    of ids are ranks of the taxonomy.
    """
    assert chosen.taxonomy is not None
    taxa = taxonomy.read(chosen.taxonomy)
    ranks = chosen.levels  # the ranks to take as levels; (): the main ranks
    other = ""  # a text about the second-best column, if the column of ids has to be found
    if chosen.taxon:
        check_columns(table, [chosen.taxon])
        column = chosen.taxon
    elif len(chosen.levels) == 1 and chosen.levels[0] in table.column_names:
        column = chosen.levels[0]
        ranks = ()
    else:
        column, other = _column_of_taxa(table, taxa, chosen.item)
    columns = columns_of(table, Chosen(item=chosen.item, levels=(column,)))
    ids = [plain_id(text) for text in texts(table, column)]
    levels, rows = taxonomy.rows_of(taxa, ids, ranks)
    own = OwnTable(source, table, columns, (*facts, f"{column} joined with {taxa.source}{other}"))
    return own.with_levels(levels, rows)


def _column_of_taxa(table: pa.Table, taxa: taxonomy.Taxonomy, item: str | None) -> tuple[str, str]:
    """Find the column in which most cells are ids of the taxonomy. Of equal columns, one that is
    called like ids of taxa is taken.

    Returns the column, and a text for the user about the second-best column; "" if no other column
    has ids. `item`: the column of items that the user named, None if none.
    """
    found: dict[str, int] = {}  # {column: how many cells are ids of the taxonomy}
    sample: dict[str, list[str]] = {}  # {column: its first id, if any}, for advice
    for name in table.column_names:
        # neither the column of items nor a column of lists can have the ids
        if name in (item, "item") or pa.types.is_nested(table.schema.field(name).type):
            continue
        values = [plain_id(text) for text in texts(table, name) if text]
        sample[name] = values[:1]
        found[name] = sum(value in taxa for value in values)

    def known_first(name: str) -> tuple[int, bool]:
        """Sort key: the number of ids found, then whether the name is one for ids of taxa."""
        return found[name], words.folded(name) in words.TAXA

    order = sorted(found, key=known_first, reverse=True)
    if not order or found[order[0]] == 0:
        # a hint may explain why ids are not found, such as those of another release
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
    """Raise DataError for cells with several labels, and for an item that is in several rows with
    different labels. Rows that give an item the same label again are not refused here."""
    for level in own.columns.levels:
        refuse_several(level, pc.unique(own.text(level)).to_pylist())
    if pc.count_distinct(own.table[own.item]).as_py() == len(own.table):
        return  # each item has one row
    # the names in the last row of each item; an item with other names in another row has several
    labels = dict(zip(own.items, own.rows, strict=True))
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
    """Raise UnknownName for the first of `names` that is not a column of the table, DataError for
    one that holds images or lists."""
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
