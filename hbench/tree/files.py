"""Reads and writes label trees: name tables (CSV, TSV, parquet), lists of edges, GraphML, nested JSON and Newick."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import ParseError

import networkx as nx
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from hbench.core import tables
from hbench.core.errors import DataError, TreeError, UnknownName, UsageError, examples
from hbench.core.untrusted import DEPTH, LIST, parse_json, read_text
from hbench.tree import NOT_LEVELS, ROOT, LabelTree, refuse_depth
from hbench.tree.graph import ClassGraph, NodeId, edges, packed, unfold, unpacked
from hbench.tree.names import CONTROL, NameTable, class_rows
from hbench.tree.newick import format_newick, parse_newick

EDGE_COLUMNS = ("parent", "child")
LEVELS_KEY = b"hbench.levels"


def read(path: Path, *, levels: Sequence[str] = ()) -> NameTable:
    """Read a name table from a file of any format; `levels` names the columns of a table, coarse to fine.

    Raises DataError for a file that cannot be read, UnknownName for a missing column, UsageError for an unknown format.
    """
    kind = tables.kind_of(path)
    if not path.exists():
        raise DataError(f"{path} does not exist")
    if kind in tables.SUFFIXES:
        return _read_sheet(path, levels)
    if kind not in GRAPH_READERS:
        known = ", ".join((*tables.SUFFIXES, *GRAPH_READERS))
        raise UsageError(f"{path} is not in a format of trees", expected=f"one of {known}", found=kind or "no suffix")
    if levels:
        raise UsageError("only the columns of a table can be chosen as levels", found=f"{path} is not a table")
    try:
        return unfold(GRAPH_READERS[kind](read_text(path, most=LIST)))
    except ValueError as error:
        raise DataError(f"{path} is not UTF-8 text", found=str(error)) from None


def is_edges(table: pa.Table, levels: Sequence[str]) -> bool:
    """Whether a table without chosen levels is a list of edges, from parent to child."""
    return not levels and {name.lower() for name in table.column_names} == set(EDGE_COLUMNS)


def _read_sheet(path: Path, levels: Sequence[str]) -> NameTable:
    table = tables.read_sheet(path)
    if is_edges(table, levels):
        by_name = {name.lower(): tables.texts(table, name) for name in table.column_names}
        return unfold(edges(zip(by_name["parent"], by_name["child"], strict=True)))
    if not levels and LEVELS_KEY in (table.schema.metadata or {}):
        levels = parse_json(table.schema.metadata[LEVELS_KEY])
    levels = level_columns(table, levels)
    return NameTable.of(levels, zip(*(tables.texts(table, level) for level in levels), strict=True))


def level_columns(table: pa.Table, levels: Sequence[str]) -> list[str]:
    """Return the columns of names: `levels`, else all columns without another meaning. Raises UnknownName."""
    names = table.column_names
    for level in levels:
        if level not in names:
            raise UnknownName("column", level, names)
    chosen = list(levels) or [name for name in names if name not in NOT_LEVELS]
    refuse_depth(len(chosen))
    return chosen


def write(tree: LabelTree, kind: str) -> str:
    """Write a tree as text in a format, given by its suffix (one of WRITERS).

    Raises TreeError for names with control characters, which not every format can hold.
    """
    if kind not in WRITERS:
        raise UnknownName("format", kind, WRITERS)
    bad = [name for names in (tree.levels, *tree.names) for name in names if CONTROL.search(name)]
    if bad:
        raise TreeError(
            f"{len(bad)} names hold control characters", expected="names on one line", found=examples(map(repr, bad)),
            fix="--policy trim removes them",
        )  # fmt: skip
    lost, edge_list = {*NOT_LEVELS} & {*tree.levels}, {level.lower() for level in tree.levels} == {*EDGE_COLUMNS}
    if kind in tables.SUFFIXES and (lost or edge_list):
        raise TreeError(
            f"a table cannot have levels of these names: {', '.join(sorted(lost) or tree.levels)}",
            expected="levels that a table does not use for anything else", fix="--format json, graphml or nwk",
        )  # fmt: skip
    return WRITERS[kind](tree)


def _parse_graphml(text: str) -> ClassGraph[NodeId]:
    try:
        graph = nx.parse_graphml(text)
    except (ParseError, nx.NetworkXError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataError("this is not GraphML", found=str(error)) from None
    if not graph.is_directed():
        raise DataError("the graph is not directed", expected="edges from parent to child")
    tree: ClassGraph[NodeId] = nx.DiGraph()
    key = next((key for key in ("name", "label") if any(key in data for _, data in graph.nodes(data=True))), None)
    for node, data in graph.nodes(data=True):
        tree.add_node(node, name=str(data.get(key, "")) if key else str(node))
    tree.add_edges_from(graph.edges())
    tree.graph["levels"] = unpacked(str(graph.graph.get("levels", "")))
    return tree


def _format_graphml(tree: LabelTree) -> str:
    graph = nx.relabel_nodes(tree.graph(), lambda node: f"{node[0]}.{node[1]}")
    graph.graph["levels"] = packed(tree.levels)
    file = io.BytesIO()
    nx.write_graphml_xml(graph, file)
    return file.getvalue().decode() + "\n"


def _parse_json(text: str) -> ClassGraph[NodeId]:
    graph: ClassGraph[NodeId] = nx.DiGraph()
    try:
        root = parse_json(text)
    except ValueError as error:
        raise DataError("this is not JSON", found=str(error)) from None
    waiting: list[tuple[Any, NodeId | None]] = [(root, None)]
    while waiting:
        node, parent = waiting.pop()
        children = node.get("children", []) if isinstance(node, dict) else None
        if not isinstance(children, list) or not isinstance(node.get("name"), str):
            raise DataError(
                "this JSON is not a tree", expected='{"name": "…", "children": […]}', found=json.dumps(node)[:80]
            )
        number = len(graph)
        graph.add_node(number, name=node["name"])
        if parent is not None:
            graph.add_edge(parent, number)
        waiting += [(child, number) for child in reversed(children)]
    levels = root.get("levels", [])
    graph.graph["levels"] = tuple(map(str, levels)) if isinstance(levels, list) else ()
    return graph


def nested(tree: LabelTree, items: NDArray[np.int64] | None = None) -> dict[str, Any]:
    """Return the tree as nested {"name", "children"}; the root has the level names, and with `items` (C,) fine classes
    have their numbers of items."""
    below: list[dict[str, Any]] = [{"name": name} for name in tree.names[-1]]
    if items is not None:
        below = [{**node, "items": number} for node, number in zip(below, items.tolist(), strict=True)]
    for names, parents in zip((*reversed(tree.names[:-1]), (ROOT,)), reversed(tree.parents), strict=True):
        above: list[dict[str, Any]] = [{"name": name, "children": []} for name in names]
        for node, parent in zip(below, parents, strict=True):
            above[parent]["children"].append(node)
        below = above
    return {"name": ROOT, "levels": list(tree.levels), "children": below[0]["children"]}


def _format_json(tree: LabelTree) -> str:
    deepest = DEPTH // 2 - 1  # `_parse_json` reads DEPTH brackets: an object and a list per level, and the root
    if tree.depth > deepest:
        raise TreeError(
            "the tree is too deep for nested JSON", expected=f"at most {deepest} levels", found=f"{tree.depth}",
            fix="write GraphML, Newick or CSV",
        )  # fmt: skip
    return json.dumps(nested(tree), ensure_ascii=False, indent=1) + "\n"


def _format_dot(tree: LabelTree) -> str:
    def quoted(name: str) -> str:
        return '"' + name.replace("\\", "\\\\").replace('"', '\\"') + '"'

    graph = tree.graph()
    nodes = [f"  n{depth}_{i} [label={quoted(graph.nodes[depth, i]['name'])}];" for depth, i in graph]
    arrows = [f"  n{a}_{i} -> n{b}_{j};" for (a, i), (b, j) in graph.edges]
    return "\n".join(["digraph tree {", "  rankdir=LR;", "  node [shape=box];", *nodes, *arrows, "}", ""])


GRAPH_READERS: dict[str, Callable[[str], ClassGraph[NodeId]]] = {
    ".graphml": _parse_graphml, ".json": _parse_json, ".nwk": parse_newick, ".newick": parse_newick,
}  # fmt: skip
WRITERS: dict[str, Callable[[LabelTree], str]] = {
    ".csv": lambda tree: tables.lines(tree.levels, class_rows(tree)),
    ".tsv": lambda tree: tables.lines(tree.levels, class_rows(tree), delimiter="\t"),
    ".json": _format_json, ".graphml": _format_graphml, ".nwk": format_newick, ".newick": format_newick, ".dot": _format_dot,
}  # fmt: skip
