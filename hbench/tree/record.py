"""Writes a table that policies have mended, and a record of every change next to it."""

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from hbench.core import tables
from hbench.core.errors import UsageError
from hbench.core.files import write_text
from hbench.core.version import __version__
from hbench.sheets.columns import Chosen
from hbench.sheets.rows import Row, stripped
from hbench.sheets.sheet import is_table, read_table
from hbench.tree.advice import mend_to_tree
from hbench.tree.files import LEVELS_KEY, level_columns
from hbench.tree.graphs.edge_lists import edge_columns
from hbench.tree.names import NameTable
from hbench.tree.policies import Mended

WRITABLE = (*tables.DELIMITERS, ".parquet")


def write_mended(
    out: Path, source: Path, mended: Mended, *, levels: Sequence[str], policies: Sequence[str]
) -> Path:
    """Write the mended table to `out` and a record of the changes next to it. Return the path of
    the record. `mended` has the table and the changes.

    A table of items keeps its other columns and loses the rows that the policies left out; any
    other source is written as a table with a row per leaf. Raises UsageError if `out` is no table.

    Args:
        source: the file or folder from which the names were read.
        levels: the columns that the user named as levels; empty if they were found.
        policies: the names of the policies, for the record.
    """
    if out.suffix.lower() not in WRITABLE:
        raise UsageError(
            f"{out} is not a table", expected=f"a name that ends in {', '.join(WRITABLE)}"
        )

    about = {
        "source": source.name,
        # None for a dataset or a folder, which are no single file
        "sha256": hashlib.sha256(source.read_bytes()).hexdigest() if source.is_file() else None,
        "policies": list(policies),
        "levels": mended.table.levels,
        "changes": [change._asdict() for change in mended.changes],
        "hbench": __version__,
    }
    record = out.with_name(f"{out.name}.changes.json")
    tables.write_sheet(_table_after_policies(source, mended, levels), out)
    write_text(record, json.dumps(about, indent=1, ensure_ascii=False) + "\n")
    return record


def mended_sheet(table: pa.Table, columns: Sequence[str], mended: Mended) -> pa.Table:
    """A table of items whose names are replaced by the mended ones, without the rows that the
    policies left out. Its other columns are unchanged.

    `columns` are the columns of names, coarse to fine, from which `mended` was made. Policies may
    add and remove levels: the column of a remaining level keeps its position, and new columns come
    last.
    """
    before = zip(*(tables.texts(table, column) for column in columns), strict=True)
    # The mended names of each row; None for a row that is left out. The keys of `final` are the
    # original rows without empty names at the fine end.
    after = [mended.final[stripped(row)] for row in before]
    names = _table_of_rows(mended.table.levels, [row for row in after if row is not None])
    kept = table.filter(pa.array([row is not None for row in after]))

    by_name = {name: kept[name] for name in kept.column_names if name not in columns}
    by_name |= {name: names[name] for name in names.column_names}
    # the positions of the columns; levels that the policies removed are not in by_name
    order = dict.fromkeys([*kept.column_names, *names.column_names])
    return pa.table({name: by_name[name] for name in order if name in by_name})


def mend_sheet(
    table: pa.Table, levels: Sequence[str], policies: Sequence[str]
) -> tuple[pa.Table, Mended]:
    """Mend the columns `levels` of a table by policies. Return the table, and the mended names with
    the changes.

    Raises UnknownName for an unknown column or policy, TreeError if problems remain.
    """
    columns = level_columns(table, Chosen(levels=tuple(levels))).levels
    rows = zip(*(tables.texts(table, column) for column in columns), strict=True)  # of names
    mended = mend_to_tree(NameTable.of(columns, rows), policies, "the table")
    return mended_sheet(table, columns, mended), mended


def _table_after_policies(source: Path, mended: Mended, levels: Sequence[str]) -> pa.Table:
    """The table to write. If the source is a table of items with columns of names, these are
    replaced by the mended names; any other source becomes a table with a row for each leaf.
    `levels` are the columns that the user named; empty if they were found."""
    if source.is_file() and is_table(source):
        table = read_table(source)
        is_edges = not levels and edge_columns(table, ()) is not None
        # a tree that hbench wrote (LEVELS_KEY is in its metadata), or a list of edges, has no rows
        # of items
        if LEVELS_KEY not in (table.schema.metadata or {}) and not is_edges:
            columns = level_columns(table, Chosen(levels=tuple(levels))).levels
            rows = {stripped(row) for row in tables.text_rows(table, columns)}
            # The keys of `final` are rows of names, into which cells with whole paths were split.
            # `rows` has the cells as they are, so cells with whole paths are not among the keys.
            if rows <= mended.final.keys():
                return mended_sheet(table, columns, mended)
    return _table_of_rows(mended.table.levels, list(mended.table.rows))


def _table_of_rows(levels: Row, rows: Sequence[Row]) -> pa.Table:
    """A table with a column for each level. In rows that end early, the finer cells are empty."""
    columns = zip(*(row + ("",) * (len(levels) - len(row)) for row in rows), strict=True)
    return pa.table(
        {
            level: pa.array(column, pa.string())
            for level, column in zip(levels, columns, strict=True)
        }
    )
