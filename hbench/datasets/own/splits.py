"""Splits the items of a table into training and test by the nodes of a level: all items of a node
are in the same split.
"""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Sequence
from itertools import compress

import pyarrow as pa

from hbench.core.errors import UnknownName, UsageError, examples
from hbench.datasets.dataset import TEST, TRAIN
from hbench.datasets.own.data import OnRemark
from hbench.datasets.own.folder import SPLIT
from hbench.datasets.own.table import OwnTable
from hbench.datasets.spec import held_out
from hbench.tree.partial import is_unknown

# why a column that looks like a split is left out: `build` only uses a split that the user names
UNNAMED_SPLIT = "a split; --split-column uses it"
UNKNOWN_SPLIT = "a split, whose words name none"
UNUSED_SPLITS = (UNNAMED_SPLIT, UNKNOWN_SPLIT)


def split(
    own: OwnTable, by: str | None, fraction: float, *, seed: int, on_remark: OnRemark
) -> OwnTable:
    """Return the table with a column of splits. Without `by`, it is returned unchanged.

    Args:
        own: the table.
        by: the level whose nodes are split; all items of a node go to the same split. None: no
            split is made.
        fraction: the share of the nodes that are for testing. Items whose node is unknown are for
            training.
        seed: decides which nodes are for testing.
        on_remark: is called with every remark.
    """
    levels = own.columns.levels
    if by is None:
        if own.columns.split is None:
            on_remark(_no_split(own))
        return own

    _refuse(own, by, fraction)
    depth = levels.index(by) + 1
    # a node is identified by its path, since a name may occur under several parents
    nodes = ["/".join(names[:depth]) for names in own.rows]
    # the node is not known for distractors, which have no name, and for items whose name at this
    # level marks an unknown class
    is_known = [any(names) and not is_unknown(names[depth - 1]) for names in own.rows]
    classes = list(compress(nodes, is_known))  # the node of each item for which it is known
    tested = held_out(classes, fraction=fraction, seed=seed)  # the set of nodes for testing
    # both sides need a node
    if not 0 < len(tested) < len(set(classes)):
        raise UsageError(
            f"too few nodes to split by {by}",
            expected="some for train and some for test",
            found=examples(set(nodes)),
        )

    # the items with some name, less those whose node is known: distractors do not count here
    if unknown := sum(map(any, own.rows)) - len(classes):
        on_remark(
            f"note: {unknown:,} items whose {by} is unknown are for training; they may show what "
            "is tested"
        )

    # distractors belong to the test's gallery, since they are no use for training
    in_test = zip(nodes, own.distractors, strict=True)
    return _with_splits(
        own,
        [TEST if node in tested or is_distractor else TRAIN for node, is_distractor in in_test],
    )


def _no_split(own: OwnTable) -> str:
    """Make the remark that nothing is for training, with advice. If a column looks like a split,
    the remark first says how to use it, or that its words name no splits, since --split-by would
    make another split."""
    left_out = own.columns.left_out  # {column that is not used: why}
    column = next((name for name in left_out if left_out[name] in UNUSED_SPLITS), None)
    nothing = "every item is tested, none is for training"
    dealt = "--split-by LEVEL deals whole classes to both"
    if column is None:
        return f"note: {nothing}; {dealt}"
    if left_out[column] == UNKNOWN_SPLIT:
        return (
            f"note: the column {column} is not used, since its words are not train, test, query or "
            f"gallery: {nothing}; {dealt}"
        )
    return (
        f"note: the column {column} is not used: {nothing}; --split-column {shlex.quote(column)} "
        f"uses it, {dealt}"
    )


def _with_splits(own: OwnTable, splits: Sequence[str]) -> OwnTable:
    """Return the table with these splits of its rows, in place of any column SPLIT."""
    others = own.table.drop_columns([SPLIT] if SPLIT in own.table.column_names else [])
    return dataclasses.replace(
        own,
        table=others.append_column(SPLIT, pa.array(splits)),
        columns=dataclasses.replace(own.columns, split=SPLIT),
    )


def _refuse(own: OwnTable, by: str, fraction: float) -> None:
    """Raise UsageError or UnknownName if the table cannot be split by the level `by`, or the
    `fraction` for testing is out of range."""
    if own.columns.split is not None:
        raise UsageError(
            "there are two splits",
            expected="either --split-by, or --split-column or --split-folders",
        )
    if SPLIT in own.columns.levels:
        raise UsageError(
            f"a level is called {SPLIT}, as the column that --split-by makes",
            fix="rename that column",
        )
    if by not in own.columns.levels:
        raise UnknownName("level to split by", by, own.columns.levels)
    if not 0 < fraction < 1:
        raise UsageError(
            "the test fraction is out of range",
            expected="more than 0, less than 1",
            found=f"{fraction}",
        )
