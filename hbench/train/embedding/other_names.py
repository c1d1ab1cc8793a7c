"""Reads further names of nodes, such as common names, from a table with the columns node, name and,
optionally, language.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from hbench.core.errors import DataError, UnknownName
from hbench.core.tables import text_rows
from hbench.evaluation.by_name.nodes import placed_in
from hbench.sheets.rows import Row
from hbench.sheets.sheet import read_table
from hbench.tree import LabelTree
from hbench.tree.names import names_along

LANGUAGE = "language"
OtherNames = dict[Row, list[str]]  # {path of a node: further names}


def read_names(path: Path, tree: LabelTree, language: str | None) -> OtherNames:
    """Read a table of further names: {path of a node: names}.

    Its column `node` has a name that only one node has, or the path to the node; `name` has the
    further name, and `language` its language. `language`: read only names in this one; None: all.
    Rows of nodes that the tree does not have are left out.

    Raises DataError for a table without these columns, or without names, UnknownName for a language
    that it does not have, SubmissionError for names that stand for several nodes.
    """
    rows = _rows(path, language)
    nodes = list(dict.fromkeys(node for node, _ in rows))
    # for each node that the tree has: its index in `nodes`, its depth, and its labels from the top
    placed = placed_in(tree, nodes)
    path_of = {
        nodes[row]: names_along(tree, labels[:depth].tolist())
        for row, depth, labels in zip(
            placed.rows.tolist(), placed.depths.tolist(), placed.labels, strict=True
        )
    }

    found: OtherNames = {}
    for node, name in rows:
        if node in path_of and name not in found.setdefault(path_of[node], []):
            found[path_of[node]].append(name)
    return found


def variants(path: Row, others: OtherNames | None, *, is_replaced: bool) -> Sequence[Row]:
    """Return a node's path with each of its names as the last one: its own name and those in
    `others`. If `is_replaced` and there are others, its own name is left out.

    >>> variants(("Owls", "Bubo"), {("Owls", "Bubo"): ["hibou"]}, is_replaced=True)
    [('Owls', 'hibou')]
    >>> variants(("Owls", "Bubo"), {("Owls", "Bubo"): ["hibou"]}, is_replaced=False)
    [('Owls', 'Bubo'), ('Owls', 'hibou')]
    """
    further = [(*path[:-1], name) for name in (others or {}).get(path, [])]
    return further if further and is_replaced else [path, *further]


def _rows(path: Path, language: str | None) -> list[tuple[str, str]]:
    """Read (node, name) from a table of names, in one language, or in all if it is None. Rows
    without a node or a name are left out."""
    table = read_table(path)
    columns = ["node", "name", *([LANGUAGE] if language is not None else [])]
    if missing := [column for column in columns if column not in table.column_names]:
        raise DataError(
            f"{path} lacks the column {missing[0]}",
            expected="the columns node and name, and language where --language names one",
            found=", ".join(table.column_names),
        )

    rows = [tuple(map(str.strip, row)) for row in text_rows(table, columns)]
    if language is not None:
        known = sorted({row[2] for row in rows if row[2]})
        if language not in known:
            raise UnknownName("language", language, known, searched=path)
        rows = [row for row in rows if row[2] == language]
    named = [(row[0], row[1]) for row in rows if row[0] and row[1]]
    if not named:
        raise DataError(f"{path} has no names", expected="a node and a name in each row")
    return named
