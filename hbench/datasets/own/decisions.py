"""Applies a person's decisions about labels, the decisions.csv of an audit, to a table.

A row has an item, a decision, a label and a path. The decisions are `keep`, `drop`, `relabel`,
which gives the path to the item, and `merge`, which gives the path to all items with this label.
`label` is the item's label at the time of the decision: if the item has another label by now,
DataError is raised.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from hbench.core.errors import DataError, examples
from hbench.core.tables import text_rows
from hbench.datasets.own.table import OwnTable
from hbench.sheets.paths import JOINED
from hbench.sheets.rows import Row
from hbench.sheets.sheet import read_table
from hbench.tree.partial import ended_early, known_part

COLUMNS = ("item", "decision", "label", "path")
KEEP, DROP, RELABEL, MERGE = DECISIONS = ("keep", "drop", "relabel", "merge")


class LabelDecision(NamedTuple):
    """A decision about an item. `label` (at the time of the decision) and `path` (the new one) are
    names, coarse to fine, without empty ones; () if the cell is empty."""

    item: str
    decision: str
    label: Row
    path: Row


def apply_decisions(own: OwnTable, file: Path, root: Path) -> tuple[OwnTable, dict[str, int]]:
    """Apply the decisions in a file to a table. Return the table, and how many of each decision
    there were, {"decided to keep": 3, …}.

    `root`: the folder of the images; absolute paths of items below it are made relative. Raises
    DataError for decisions that cannot be read, that are about absent items or labels, or that
    contradict each other.
    """
    decisions = read_decisions(file, len(own.columns.levels))
    # the table may have absolute paths where the decisions have paths relative to the root
    start = f"{root.absolute().as_posix().rstrip('/')}/"
    items = [item.removeprefix(start) for item in own.items]
    # an audit writes labels without marks of unknown names, so the marks are cut off here, too
    rows = [known_part(row) for row in own.rows]
    _refuse_absent(file, decisions, dict(zip(items, rows, strict=True)))

    levels = own.columns.levels
    paths = _paths_after_decisions(decisions, items, rows)
    # the names at all levels again: a path that ends early is filled up with marks of the unknown
    named = [_filled(path, row, levels) for path, row in zip(paths, own.rows, strict=True)]
    dropped = {each.item for each in decisions if each.decision == DROP}
    kept = np.array([item not in dropped for item in items])
    counts = Counter(each.decision for each in decisions)
    return own.with_levels(levels, named).of_rows(kept), {
        f"decided to {word}": counts[word] for word in DECISIONS if counts[word]
    }


def _paths_after_decisions(
    decisions: Sequence[LabelDecision], items: Sequence[str], rows: Sequence[Row]
) -> list[Row]:
    """Return the path of each item after the decisions. A decision to relabel the item goes first,
    then one to merge its label into another path; without either, the item keeps its path.

    `rows`: the path of each item before the decisions, its label.
    """
    merged = {each.label: each.path for each in decisions if each.decision == MERGE}
    relabelled = {each.item: each.path for each in decisions if each.decision == RELABEL}
    return [
        relabelled.get(item, merged.get(row, row)) for item, row in zip(items, rows, strict=True)
    ]


def in_words(counts: Mapping[str, int]) -> str:
    """Say how many decisions were applied; `counts`: as `apply_decisions` returns them."""
    return "; ".join(f"{number:,} {words}" for words, number in counts.items()) or "no decisions"


def read_decisions(file: Path, depth: int) -> list[LabelDecision]:
    """Read a table of decisions, with the columns item, decision, label and path. Raises DataError
    for rows that are not decisions, and for contradictions. `depth`: the number of levels, so the
    most names that a path may have."""
    table = read_table(file)
    if missing := [name for name in COLUMNS if name not in table.column_names]:
        raise DataError(
            f"{file} lacks the column {missing[0]}",
            expected=", ".join(COLUMNS),
            found=", ".join(table.column_names),
        )

    decisions = []
    # lines of the file are counted from 1, and the first is the header
    for number, (item, decision, label, path) in enumerate(text_rows(table, COLUMNS), start=2):
        # label and path are paths in a cell, such as "Birds > Owls"; () if empty
        each = LabelDecision(item=item, decision=decision, label=_names(label), path=_names(path))
        needs_path = decision in {RELABEL, MERGE}
        is_sound = decision in DECISIONS and (bool(each.path) == needs_path)
        # a merge is about a label, so it must have one; decisions about an item need none
        if not is_sound or len(each.path) > depth or (decision == MERGE and not each.label):
            raise DataError(
                f"{file}, line {number}, is no decision",
                expected=f"one of {', '.join(DECISIONS)}; a path of at most {depth} names to "
                "relabel or merge, and none otherwise",
                found=", ".join((item, decision, label, path)),
            )
        decisions.append(each)

    _refuse_contradictions(file, decisions)
    return decisions


def _refuse_contradictions(file: Path, decisions: list[LabelDecision]) -> None:
    """Raise DataError if an item has several decisions, or if a label is merged into several paths.
    A merge is about the label of its item, so it contradicts no decision about the item itself."""
    about = Counter(each.item for each in decisions if each.decision != MERGE)
    if twice := [item for item, number in about.items() if number > 1]:
        raise DataError(f"{file} decides about items twice", found=examples(twice))

    merges = {(each.label, each.path) for each in decisions if each.decision == MERGE}
    paths = Counter(label for label, _ in merges)
    if several := [JOINED.join(label) for label, number in paths.items() if number > 1]:
        raise DataError(
            f"{file} merges labels into several others",
            expected="one path for each label that is merged",
            found=examples(several),
        )


def _refuse_absent(file: Path, decisions: list[LabelDecision], labels: dict[str, Row]) -> None:
    """Raise DataError for decisions about items or labels that the table does not have. The label
    of a decision is the path that the item had when it was made; without a label, a decision holds
    for any path. `labels`: {item: its path in the table, without unknown names}."""
    of_items = [each for each in decisions if each.decision != MERGE]
    if absent := [each.item for each in of_items if each.item not in labels]:
        raise DataError(
            f"{file} decides about items that are not in the table",
            expected="items of the table that was audited",
            found=examples(absent),
        )
    changed = [each.item for each in of_items if each.label and labels[each.item] != each.label]
    if changed:
        raise DataError(
            f"{file} decides about labels that are others by now",
            expected="the table that was audited",
            found=examples(changed),
            fix="audit again, or take these decisions out",
        )
    known = set(labels.values())
    merged = [each.label for each in decisions if each.decision == MERGE]
    if gone := [JOINED.join(label) for label in merged if label not in known]:
        raise DataError(
            f"{file} merges labels that no item has",
            expected="labels of the table that was audited",
            found=examples(gone),
        )


def _names(text: str) -> Row:
    """Split a path in a cell, "Birds > Owls", into its names, coarse to fine."""
    return tuple(name.strip() for name in text.split(JOINED) if name.strip())


def _filled(path: Row, before: Row, levels: Sequence[str]) -> Row:
    """Fill up the path of an item after the decisions to a row of all levels. A path that ends
    early is marked as unknown below its end. If the path did not change, the row `before` the
    decisions is returned, which may be filled up in another way."""
    if path == known_part(before):
        return before
    return path if len(path) == len(levels) else ended_early(path, levels)
