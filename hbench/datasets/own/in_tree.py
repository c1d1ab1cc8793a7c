"""Places the items of a table in a tree that is read from a file. A column of the table has the
name of each item's node, or the path to it."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa

from hbench.core.errors import UnknownName, UsageError
from hbench.sheets.columns import Chosen
from hbench.sheets.paths import as_written, separator_of, split_path
from hbench.tree.names import NameTable, paths_of_nodes, refuse

if TYPE_CHECKING:
    from hbench.datasets.own.table import OwnTable
    from hbench.sheets.rows import Row


class TreeFile(NamedTuple):
    """The file of a tree, and how nodes are found in it.

    Attributes:
        path: the file.
        edges: the columns of parent and child, for a list of edges; () to find them.
        separator: the text between the names of a path; None to find it.
        policies: the policies that mend the labels of the dataset.
        several: whether a node may have several parents, and so an item several paths.
    """

    path: Path
    edges: tuple[str, ...]
    separator: str | None
    policies: Sequence[str]
    several: bool


def with_nodes_of_tree(own: OwnTable, source: TreeFile) -> OwnTable:
    """Replace the only column of levels, which has nodes of a tree or paths to them, by a column
    per level of that tree. The new columns have the names on the path to an item's node, and ""
    below that node.

    Raises UsageError if the table has several columns of levels, UnknownName for a cell that is no
    node, TreeError for a name that several nodes have.
    """
    if len(own.columns.levels) != 1:
        raise UsageError(
            "with --tree, one column names the node of each item", expected="--levels COLUMN"
        )
    from hbench.tree import files as tree_files  # loads networkx
    from hbench.tree.policies import MAJORITY_PARENT, mend

    # the names of the tree: `names.rows` are its paths
    names = tree_files.read(source.path, chosen=Chosen(edges=source.edges))
    if source.several:  # a node may have several parents, and an item several paths
        return _with_all_paths_to_nodes(own, names, source.path.name)
    refuse([problem for problem in names.broken if problem.kind == "cycle"], str(source.path))
    # other policies mend the names of the table, later; this one keeps one parent of a node, and so
    # decides which path a node has
    if MAJORITY_PARENT in source.policies:
        names = mend(names, [MAJORITY_PARENT]).table
    nodes = [row[0] for row in own.rows]
    mark = source.separator or separator_of(nodes)  # None: the cells are plain names
    # Cells are first taken for paths from the top of the tree; if some are not, all cells are taken
    # for names of nodes, below.
    # `known`: {path from the top as users write it: the tree's path, in which names of several
    # nodes are told apart, such as "Cases (Cameras)"}
    known = {
        as_written(row[:depth]): row[:depth]
        for row in names.rows
        for depth in range(1, len(row) + 1)
    }
    # () for an empty cell, or if there is no separator: not a path
    given = [split_path(node, mark) if mark else () for node in nodes]
    paths = [known.get(path, ()) for path in given]
    # the cells are names of nodes: they hold no paths, or some path is not one of the tree
    if mark is None or any(path and not found for path, found in zip(given, paths, strict=True)):
        different = [node for node in dict.fromkeys(nodes) if node]
        of_node = dict(zip(different, paths_of_nodes(names, different), strict=True))
        paths = [of_node.get(node, ()) for node in nodes]
    depth = len(names.levels)
    placed = own.with_levels(names.levels, [path + ("",) * (depth - len(path)) for path in paths])
    facts = (*own.facts, f"{own.columns.levels[0]} names nodes of {source.path.name}")
    return dataclasses.replace(placed, facts=facts)


def _with_all_paths_to_nodes(own: OwnTable, names: NameTable, tree: str) -> OwnTable:
    """Replace the column that has nodes of a DAG, in which a node may have several parents, by a
    column per level. An item gets a row for each path to its node.

    `names`: the DAG's paths; `tree`: its file's name, for messages. Raises TreeError if nodes are
    below themselves, UnknownName for a cell that is no node.
    """
    refuse([problem for problem in names.broken if problem.kind == "cycle"], tree)
    paths = _paths_to_nodes(names)
    nodes = [row[0] for row in own.rows]
    if unknown := [node for node in dict.fromkeys(nodes) if node and node not in paths]:
        raise UnknownName("node of the tree", unknown[0], list(paths))
    # the paths to the node of each row; an empty cell has one empty path, and so keeps its row
    found: list[list[Row]] = [paths[node] if node else [()] for node in nodes]

    numbers = list(map(len, found))
    # each row is repeated for each path to its node
    repeated = dataclasses.replace(
        own, table=own.table.take(pa.array(np.repeat(np.arange(len(nodes)), numbers)))
    )
    depth = len(names.levels)
    rows = [path + ("",) * (depth - len(path)) for of_node in found for path in of_node]
    facts = (*own.facts, f"{own.columns.levels[0]} names nodes of {tree}, by every path to them")
    return dataclasses.replace(repeated.with_levels(names.levels, rows), facts=facts)


def _paths_to_nodes(names: NameTable) -> dict[str, list[Row]]:
    """List all paths to each node of a DAG, in which a node may have several parents.

    Returns {name of the node in the file: its paths}. In the paths, a node is renamed so that it
    has a different name under each parent, and all paths together form a tree.
    """
    from hbench.tree.policies import mend

    # {path as in the file: path with a different name of a node under each parent}. Policies may
    # leave paths out (None), but this one never does: `or row` below only tells type checkers so
    apart = mend(names, ["by-path"]).final
    paths: dict[str, dict[Row, None]] = {}
    for row, renamed in apart.items():
        for depth, name in enumerate(row, start=1):
            # dictionaries in place of sets, since their keys keep the order
            paths.setdefault(name, {})[(renamed or row)[:depth]] = None
    return {name: list(to_node) for name, to_node in paths.items()}
