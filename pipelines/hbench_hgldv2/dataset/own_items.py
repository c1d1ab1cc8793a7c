"""Makes a dataset of a curator's own items from a table that gives every item one of the labels,
and from the groups and kinds decided for these labels.

The levels are kind, group and label, coarse to fine. The level of kinds is left out if all groups
share one kind.
"""

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from hbench.core import tables
from hbench.core.errors import DataError, examples
from hbench.datasets import Dataset
from hbench.datasets.build import build
from hbench.datasets.own.data import OnRemark
from hbench.datasets.own.source import OwnSource
from hbench.sheets import sheet
from hbench.sheets.column_values import plain_id
from hbench_hgldv2.curation.replay import Placed

LEVELS = ("kind", "group", "label")


class LabelColumn(NamedTuple):
    """The column of a table that holds labels: its name, the text of every row, and the label that
    each text stands for, None where it stands for none."""

    name: str
    texts: list[str]
    placed: list[Placed | None]


class OwnItems(NamedTuple):
    """A table of items with the label of each, the folder of their pictures, and the names of the
    columns that hold the ids and the splits."""

    table: Path
    pictures: Path | None
    item_column: str | None
    split_column: str | None


def build_own(work: Path, own: OwnItems, mapping: Sequence[Placed], say: OnRemark) -> Dataset:
    """Build the dataset of a table of items in `work`/dataset. Before that, the table with its
    groups and kinds is written to `work`/items.csv. Items whose label has no group are left out and
    counted.

    `mapping` is where each label was placed. `say` receives the remarks on what was read and left
    out. Raises DataError for a table without a column of labels, or without any item in a group.
    """
    table = sheet.read(own.table).table
    # the label column: its name, and for each row the place of its label, None without one
    column = label_column(own.table, table, mapping)
    in_group = [placed is not None and placed.status == "group" for placed in column.placed]
    _say_left_out(column, say)
    if not any(in_group):
        raise DataError(
            f"no item of {own.table} has a label with a group",
            expected="labels that decisions.yaml puts into groups",
            found=f"{len(table):,} items without",
            fix="decide on more labels in review.html, then run replay and assemble again",
        )

    kept = table.filter(pa.array(in_group))
    rows = [placed for placed in column.placed if placed is not None and placed.status == "group"]
    # {level: its name for each row}: the kind (the curator's word for what a group is), the group
    # and the label
    levels = _levels(rows)
    tables.write_sheet(_with_levels(kept, column.name, levels), work / "items.csv")
    pictures = own.pictures or own.table.parent
    if own.pictures is None:
        say(f"pictures below {pictures}, the folder of the table (--pictures names another)")
    source = OwnSource(
        path=work / "items.csv",
        levels=[*levels],
        root=pictures,
        image_column=own.item_column,
        split_column=own.split_column,
    )
    # this replaces an earlier dataset of the same curation
    dataset = build(own.table.stem, source=source, out=work / "dataset", force=True, on_remark=say)
    # The remarks of the build name options that only hbench build has, so its command is shown with
    # such an option. If a column has the splits, the remarks are about copies in both splits;
    # otherwise they are about classes that should be held out.
    more = "--copies" if source.split_column else "--split-by"
    say(f"with options of hbench build, such as {more}: {_command(work, own.table, source)} …")
    return dataset


def _command(work: Path, labels: Path, source: OwnSource) -> str:
    """The command with which the user can build this dataset again from `work`. The file name of
    `labels` becomes the name of the dataset."""
    words = ["hbench", "build", labels.stem, "--from", str(source.path), "--root", str(source.root)]
    words += ["--levels", ",".join(source.levels)]
    if source.image_column is not None:
        words += ["--item", source.image_column]
    if source.split_column is not None:
        words += ["--split-column", source.split_column]
    return shlex.join([*words, "--out", str(work / "dataset"), "--force"])


def label_column(labels: Path, table: pa.Table, mapping: Sequence[Placed]) -> LabelColumn:
    """Return the column of the table that has an id or name of a label in the most rows, with the
    place of each row's label.

    `mapping` is where each label was placed. A name that several labels in different places share
    counts as no label. Raises DataError where no column contains labels.
    """
    known = {placed.class_id: placed for placed in mapping}
    by_name = _by_name(mapping)
    found = []
    for name in table.column_names:
        # without surrounding blanks and the ".0" that pandas adds to whole numbers
        texts = [plain_id(text) for text in tables.texts(table, name)]
        # the label with this id, otherwise the one with this name, in which runs of blanks count as
        # one; None where there is neither
        placed = [known.get(text) or by_name.get(" ".join(text.split())) for text in texts]
        found.append(LabelColumn(name, texts, placed))

    best = max(found, key=lambda column: sum(each is not None for each in column.placed))
    if not any(best.placed):
        raise DataError(
            f"{labels} has no column of labels",
            expected="a row of every item with the id or the name of its label, such as "
            + examples((each.label for each in mapping), most=2),
            found=f"the columns {examples(table.column_names, most=8)}",
        )
    return best


def _by_name(mapping: Sequence[Placed]) -> dict[str, Placed]:
    """Return the labels by name, for the names whose labels all have the same place. Other names
    are left out, because the label that an item means would be unknown."""
    places: dict[str, set[tuple[str, str]]] = {}
    for each in mapping:
        places.setdefault(each.label, set()).add((each.status, each.group))
    return {each.label: each for each in mapping if len(places[each.label]) == 1}


def _say_left_out(column: LabelColumn, say: OnRemark) -> None:
    """Report how many items have a group and, by reason, how many do not: no group was decided for
    their label, or their text is no label of the mapping."""
    left_out: dict[str, list[str]] = {}  # reason -> the texts of the items
    for text, placed in zip(column.texts, column.placed, strict=True):
        if placed is None or placed.status != "group":
            reason = "no such label" if placed is None else placed.reason
            left_out.setdefault(reason, []).append(text)
    kept = len(column.placed) - sum(map(len, left_out.values()))
    say(f"labels by {column.name}: {kept:,} of {len(column.placed):,} items have a group")
    for reason, texts in sorted(left_out.items(), key=lambda pair: -len(pair[1])):
        named = examples(sorted(map(repr, set(texts))), most=3)
        say(f"left out: {len(texts):,} items ({reason}: {named})")


def _levels(rows: Sequence[Placed]) -> Mapping[str, list[str]]:
    """Return {level: its name for every item}, for the levels kind, group and label (coarse →
    fine). `rows` holds the place of every item's label.

    Labels in several groups that share a name are told apart by their ids, since a class has only
    one parent.
    """
    groups: dict[str, set[str]] = {}
    for row in rows:
        groups.setdefault(row.label, set()).add(row.group)
    names = [
        row.label if len(groups[row.label]) == 1 else f"{row.label} ({row.class_id})"
        for row in rows
    ]
    values = [[row.kind for row in rows], [row.group for row in rows], names]
    levels = dict(zip(LEVELS, values, strict=True))
    if len(set(levels["kind"])) == 1:  # a level with a single node distinguishes nothing
        del levels["kind"]
    return levels


def _with_levels(table: pa.Table, column: str, levels: Mapping[str, list[str]]) -> pa.Table:
    """Return the table with the columns of the levels in place of the label column. `levels` maps
    the name of a level to the names of the rows (N,). An existing column with the name of a level
    is replaced, too."""
    replaced = [name for name in table.column_names if name == column or name in levels]
    table = table.drop_columns(replaced)
    for name, values in levels.items():
        table = table.append_column(name, pa.array(values))
    return table
