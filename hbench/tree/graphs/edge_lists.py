"""Reads a table whose rows are edges, from a parent to a child, or nodes with the id of their
parent.

>>> rows = {
...     "id": ["1", "2", "3"],
...     "name": ["Animals", "Owls", "Cats"],
...     "parent_id": ["", "1.0", "1.0"],
... }
>>> found = edge_columns(pa.table(rows), ())
>>> found.parent, found.child, found.name
('parent_id', 'id', 'name')
>>> graph = edges_of(pa.table(rows), found)
>>> [(graph.nodes[one]["name"], graph.nodes[other]["name"]) for one, other in graph.edges]
[('Animals', 'Owls'), ('Animals', 'Cats')]
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import networkx as nx
import pyarrow as pa

from hbench.core.errors import UnknownName, UsageError
from hbench.core.tables import texts
from hbench.sheets import words
from hbench.sheets.column_values import plain_id
from hbench.tree.graphs import ClassGraph, NodeId, graph_of_edges


class EdgeColumns(NamedTuple):
    """The columns of a list of edges: `parent`, `child`, and, where these are ids of the rows,
    `name`. `is_guessed`: whether their titles do not say so, but only their values."""

    parent: str
    child: str
    name: str | None = None
    is_guessed: bool = False


def edge_columns(table: pa.Table, chosen: Sequence[str]) -> EdgeColumns | None:
    """The columns of a list of edges; None for a table of levels. `chosen`: those that the user
    named, parent and child.

    Raises UsageError unless two are chosen, UnknownName for one that is not there.
    """
    if chosen:
        return _edge_columns_named(table.column_names, chosen)
    by_title = {words.folded(name): name for name in table.column_names}
    for parent, child in words.EDGES:
        if parent in by_title and child in by_title:
            return EdgeColumns(by_title[parent], by_title[child])
    return _edge_columns_by_ids(table, by_title) or _edge_columns_by_values(table)


def _edge_columns_named(names: Sequence[str], chosen: Sequence[str]) -> EdgeColumns:
    """The two columns that the user named, parent and child, if they are among all `names`."""
    if len(chosen) != 2:
        raise UsageError(
            "edges have two columns", expected="--edges PARENT,CHILD", found=",".join(chosen)
        )
    for name in chosen:
        if name not in names:
            raise UnknownName("column", name, names)
    return EdgeColumns(chosen[0], chosen[1])


def _edge_columns_by_ids(table: pa.Table, by_title: dict[str, str]) -> EdgeColumns | None:
    """The columns of a table with a row for each node: its id, its name, and the id or the name of
    its parent. None where no pair of columns is so: the ids must differ, and half of the parents or
    more must be among them, since roots may have a parent that is not listed. `by_title`: the
    columns by their folded names."""
    parents = [by_title[title] for title in by_title if "parent" in title and "rank" not in title]
    named = next((by_title[title] for title in words.TITLES if title in by_title), None)
    # columns of parents that are ids go first
    for parent in sorted(parents, key=lambda name: "id" not in name.lower()):
        asked = {plain_id(text) for text in texts(table, parent)} - {""}
        for child in [by_title[title] for title in words.NODES if title in by_title] + (
            [named] if named else []
        ):
            ids = [plain_id(text) for text in texts(table, child)]
            known = asked & {*ids}
            if (
                child != parent
                and len({*ids}) == len(ids)
                and known
                and len(known) * 2 >= len(asked)
            ):
                return EdgeColumns(parent, child, named if child != named else None)

    return None


def _edge_columns_by_values(table: pa.Table) -> EdgeColumns | None:
    """The two columns of a table of edges under any names, parent and child: the names of one come
    back in the other, all but one, the root; each child stands once, no node is its own parent, and
    at least two nodes are both. So exact, since a table of two levels looks almost alike.
    """
    columns = [name for name in table.column_names if not words.is_index(name, counts_rows=False)]
    if len(columns) != 2:
        return None
    for parent, child in (columns, columns[::-1]):
        above = texts(table, parent)
        below = texts(table, child)
        inner = {*above} & {*below} - {""}
        roots = {*above} - {*below}  # also "", where the root stands with an empty parent
        is_loop = any(one == other for one, other in zip(above, below, strict=True))
        if len({*below}) == len(below) and len(inner) > 1 and len(roots) == 1 and not is_loop:
            return EdgeColumns(parent, child, is_guessed=True)
    return None


def pairs_in(lines: Sequence[str]) -> pa.Table | None:
    """The pairs of a text with two words on each line, as WordNet's `is_a` of ImageNet has them:
    a list of edges, parent and child; None for any other text.

    Parents are the column that has fewer names of its own: roots are fewer than leaves.

    >>> pairs_in(["n1 n2", "n1 n3", "n2 n4"]).to_pydict()
    {'parent': ['n1', 'n1', 'n2'], 'child': ['n2', 'n3', 'n4']}
    >>> pairs_in(["Barn owl", "Snowy owl"])
    """
    words = [line.split() for line in lines]
    if not words or any(len(pair) != 2 for pair in words):
        return None

    left, right = map(list, zip(*words, strict=True))
    if not {*left} & {*right}:
        return None
    if len({*left} - {*right}) > len({*right} - {*left}):
        left, right = right, left
    return pa.table({"parent": left, "child": right})


def edges_of(table: pa.Table, columns: EdgeColumns) -> ClassGraph[NodeId]:
    """The graph of a list of edges. A node is its name, or, where rows have ids, its id; a root may
    be its own parent.
    """
    parents = [plain_id(text) for text in texts(table, columns.parent)]
    children = [plain_id(text) for text in texts(table, columns.child)]
    pairs = [
        ("" if parent == child else parent, child)
        for parent, child in zip(parents, children, strict=True)
    ]
    if columns.name is None:  # the cells are names already
        return graph_of_edges(pairs)
    graph: ClassGraph[NodeId] = nx.DiGraph()
    for child, name in zip(children, texts(table, columns.name), strict=True):
        graph.add_node(child, name=name or child)
    # A parent that has no row of its own is not known: its children begin a tree of their own.
    graph.add_edges_from((parent, child) for parent, child in pairs if parent in graph)
    graph.graph["by_node"] = True
    return graph


def left_out(table: pa.Table, columns: EdgeColumns) -> dict[str, str]:
    """The columns of a list of edges that are no part of it, each with the reason."""
    used = {columns.parent, columns.child, columns.name}
    others = [name for name in table.column_names if name not in used]
    return {
        name: "an index" if words.is_index(name, counts_rows=False) else "not of the edges"
        for name in others
    }
