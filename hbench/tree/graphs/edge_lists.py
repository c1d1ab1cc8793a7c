"""Reads a table whose rows are edges from a parent to a child, or nodes with the id of their
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
    """The columns of a list of edges."""

    parent: str
    child: str
    name: str | None = None  # of the child, if the other columns hold ids
    is_guessed: bool = False  # whether only the values, not the titles, show that these are edges


def edge_columns(table: pa.Table, chosen: Sequence[str]) -> EdgeColumns | None:
    """Find the columns of a list of edges; None for a table of levels. `chosen` are the columns of
    parent and child that the user named. If it is empty, they are found by their titles, by ids, or
    by the values.

    Raises UsageError if one column, or more than two, are chosen, and UnknownName for a chosen
    column that is missing.
    """
    if chosen:
        return _edge_columns_named(table.column_names, chosen)
    by_title = {words.folded(name): name for name in table.column_names}
    for parent, child in words.EDGES:  # usual titles in lower case, such as "source", "target"
        if parent in by_title and child in by_title:
            return EdgeColumns(by_title[parent], by_title[child])
    return _edge_columns_by_ids(table, by_title) or _edge_columns_by_values(table)


def _edge_columns_named(names: Sequence[str], chosen: Sequence[str]) -> EdgeColumns:
    """The columns of parent and child that the user chose. `names` are all columns of the table."""
    if len(chosen) != 2:
        raise UsageError(
            "edges have two columns", expected="--edges PARENT,CHILD", found=",".join(chosen)
        )
    for name in chosen:
        if name not in names:
            raise UnknownName("column", name, names)
    return EdgeColumns(chosen[0], chosen[1])


def _edge_columns_by_ids(table: pa.Table, by_title: dict[str, str]) -> EdgeColumns | None:
    """The columns of a table with a row for each node: its id, its name, and the id or name of its
    parent. None if there are no such columns.

    The ids must be unique, and at least half of the parents must be among them; not all, since a
    root may have a parent that is not listed. `by_title` has the columns by their folded names.
    """
    # TITLES are usual titles of a column of names, NODES those of a column of ids. A column such as
    # parent_rank has ranks, no parents
    parents = [by_title[title] for title in by_title if "parent" in title and "rank" not in title]
    named = next((by_title[title] for title in words.TITLES if title in by_title), None)
    children = [by_title[title] for title in words.NODES if title in by_title]
    if named:  # the parents may be names
        children.append(named)
    # columns with ids of parents are tried first
    for parent in sorted(parents, key=lambda name: "id" not in name.lower()):
        ids_of_parents = {plain_id(text) for text in texts(table, parent)} - {""}
        for child in children:
            ids = [plain_id(text) for text in texts(table, child)]
            known = ids_of_parents & {*ids}
            if (
                child != parent
                and len({*ids}) == len(ids)
                and known
                and len(known) * 2 >= len(ids_of_parents)
            ):
                # no column of names if the children are names themselves
                return EdgeColumns(parent, child, named if child != named else None)

    return None


def _edge_columns_by_values(table: pa.Table) -> EdgeColumns | None:
    """The columns of parent and child in a table of two columns with any names; None if it is no
    list of edges.

    Each child must occur once, all parents but one (the root) must be children as well, no node may
    be its own parent, and at least two nodes must be both parent and child. The conditions are this
    strict because a table of two levels looks very similar.
    """
    # Columns that a program added to number the rows are left out. `counts_rows=False`: a column
    # called "no." or "index" is not left out for this name alone, since it may hold nodes.
    columns = [name for name in table.column_names if not words.is_index(name, counts_rows=False)]
    if len(columns) != 2:
        return None
    for parent, child in (columns, columns[::-1]):
        above = texts(table, parent)
        below = texts(table, child)
        inner = {*above} & {*below} - {""}
        roots = {*above} - {*below}  # "" is among them if the root's row has an empty parent
        is_loop = any(one == other for one, other in zip(above, below, strict=True))
        if len({*below}) == len(below) and len(inner) > 1 and len(roots) == 1 and not is_loop:
            return EdgeColumns(parent, child, is_guessed=True)
    return None


def pairs_in(lines: Sequence[str]) -> pa.Table | None:
    """The edges in a text with two words on each line, a parent and a child, as in the file `is_a`
    of WordNet and ImageNet. None for any other text.

    Some names must occur in both columns, since inner nodes are children and parents. The names
    that occur in one column only are the roots (in the column of parents) or the leaves (in the
    column of children). As a tree has more leaves than roots, the column with fewer such names is
    that of the parents.

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
    """The graph of a list of edges. A node is identified by its id if the rows have ids, else by
    its name. A node that is its own parent becomes a root.
    """
    # plain_id removes the ".0" that pandas may have added to an id, so that both columns match
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
    # an edge from a parent without a row, such as "", is dropped, so that its children become roots
    graph.add_edges_from((parent, child) for parent, child in pairs if parent in graph)
    graph.graph["by_node"] = True  # tells readers that nodes are ids, and names may repeat
    return graph


def left_out(table: pa.Table, columns: EdgeColumns) -> dict[str, str]:
    """The columns of a table that are not part of its list of edges, each with the reason."""
    used = {columns.parent, columns.child, columns.name}
    others = [name for name in table.column_names if name not in used]
    return {
        name: "an index" if words.is_index(name, counts_rows=False) else "not of the edges"
        for name in others
    }
