"""Reads label trees from name tables (CSV, TSV, parquet), lists of edges, GraphML, nested JSON and
Newick, and writes them as tables, JSON and Newick.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import ParseError

import networkx as nx
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from hbench.core import tables
from hbench.core.errors import DataError, TreeError, UnknownName, UsageError, examples
from hbench.core.untrusted import MAX_DEPTH, parse_json
from hbench.sheets import sheet
from hbench.sheets.columns import (
    NOTHING,
    Chosen,
    TableColumns,
    columns_of,
    has_items,
    levels_in_words,
    remark_on_single_classes,
)
from hbench.sheets.dialect import dialect_of, head_in, suffix_of
from hbench.sheets.paths import leaves_among, levels_of, separator_of, split_path, with_unique_names
from hbench.sheets.rows import prefixes
from hbench.sheets.understood import Understood
from hbench.tree import ROOT, LabelTree, refuse_depth
from hbench.tree.graphs import ClassGraph, NodeId, unfold, unpacked
from hbench.tree.graphs.edge_lists import EdgeColumns, edge_columns, edges_of, left_out, pairs_in
from hbench.tree.graphs.newick import format_newick, parse_newick
from hbench.tree.mapping import is_mapping, levels_in_mapping
from hbench.tree.names import CONTROL, NameTable, class_columns, class_rows

PATHS = ".txt"  # a path on each line
LEVELS_KEY = b"hbench.levels"


def read(path: Path, *, levels: Sequence[str] = (), chosen: Chosen = NOTHING) -> NameTable:
    """Read a name table from a file of any format. The `read` of the result says how the file was
    understood.

    Args:
        levels: the columns of a table that are levels, coarse to fine, or, for a text of paths, the
            names of the levels. Empty: they are found.
        chosen: other options of the user about the table.

    Raises:
        DataError: a file that cannot be read.
        UnknownName: a missing column.
        UsageError: an unknown format.
    """
    kind = suffix_of(path)  # such as ".csv" or ".nwk"; PATHS is ".txt"
    if levels:
        chosen = replace(chosen, levels=tuple(levels))
    if not path.exists():
        raise DataError(f"{path} does not exist")
    if sheet.is_table(path):
        return _read_sheet(sheet.read(path), chosen)
    if kind not in (*GRAPH_READERS, PATHS):
        known = ", ".join((*sheet.SUFFIXES, *GRAPH_READERS, PATHS))
        raise UsageError(
            f"{path} is not in a format of trees",
            expected=f"one of {known}",
            found=kind or "no suffix",
        )
    if chosen.levels and kind != PATHS:
        raise UsageError(
            "only the columns of a table can be chosen as levels", found=f"{path} is not a table"
        )

    text = sheet.read_document(path)
    if kind == PATHS:
        return _read_paths(path.name, text, chosen)

    graph = GRAPH_READERS[kind](text)
    table = unfold(graph)
    return replace(table, read=_understood_of_graph(path.name, graph, table))


def _understood_of_graph(source: str, graph: ClassGraph[NodeId], table: NameTable) -> Understood:
    """How a file that holds a tree (Newick, JSON, GraphML) was understood, in words. Two attributes
    of `graph` are used if they are set: "trees", the number of trees in the file, and "support",
    the number of inner nodes with a support value instead of a name."""
    facts = [f"{len(table.levels)} levels"]
    if (trees := graph.graph.get("trees", 1)) > 1:
        facts.append(f"the first of {trees} trees in the file")
    if support := graph.graph.get("support"):
        facts.append(f"the numbers on its {support:,} inner nodes are support values, left out")
    return Understood(
        source=source, what=f"a tree of {len(table.rows):,} leaves", facts=tuple(facts)
    )


def _read_sheet(found: sheet.Sheet, chosen: Chosen) -> NameTable:
    """The names in a table that has edges from parent to child, a column for each level, or one
    column of whole paths. `chosen`: the options of the user about the table, such as its columns of
    levels. The table is tried as a list of edges first, unless its levels are named."""
    table = found.table
    # how the file is written, if that is unusual for its suffix
    facts = [found.written] if found.written else []
    # If the user names no levels, the file's metadata may do so. If the metadata do not, the table
    # may be the one in which a curator maps labels to groups (a mapping), of which
    # `levels_in_mapping` keeps the columns of levels.
    if not chosen.levels and LEVELS_KEY in (table.schema.metadata or {}):
        chosen = replace(chosen, levels=tuple(parse_json(table.schema.metadata[LEVELS_KEY])))
    if not chosen.levels and not chosen.edges and is_mapping(table):
        table, said = levels_in_mapping(table)
        # named, since a label that is also a group would make the two columns look like edges
        chosen = replace(chosen, levels=tuple(table.column_names))
        facts.append(said)
    # the columns of parent and child; None if the table has a column for each level
    listed = None if chosen.levels else edge_columns(table, chosen.edges)
    if listed is not None:
        return replace(
            unfold(edges_of(table, listed)),
            read=_understood_of_edges(found.name, table, listed, facts),
        )

    # columns.levels are the columns of names; .notes and .left_out are said to the user
    columns = level_columns(table, chosen)
    rows = list(zip(*(tables.texts(table, level) for level in columns.levels), strict=True))
    names = NameTable.of(columns.levels, rows)
    if len(columns.levels) == 1:  # the cells of a single column may be whole paths
        values = [row[0] for row in rows]
        mark = chosen.separator or separator_of(values)
        if mark:  # the names are those in the paths, instead of the cells
            paths = with_unique_names([split_path(value, mark) for value in values])
            names = NameTable.of(levels_of(values, mark), paths)
            facts.append(f"the column {columns.levels[0]} holds paths, separated by {mark}")
    sizes = _sizes(names)  # the number of nodes at each level
    facts += [
        # the levels of `names`: a single column of paths has become several levels by now
        levels_in_words(TableColumns(None, names.levels), sizes),
        *columns.notes,
        *remark_on_single_classes(names.levels, sizes),
    ]
    return replace(
        names,
        read=Understood(
            source=found.name,
            what=f"{len(table):,} rows",
            facts=tuple(facts),
            left_out=columns.left_out,
        ),
    )


def _understood_of_edges(
    source: str, table: pa.Table, listed: EdgeColumns, facts: Sequence[str]
) -> Understood:
    """How a table that lists edges was understood, in words. `listed` are its columns of parent,
    child and, if these hold ids, name; `facts` are further sentences for the user."""
    titles = ", ".join(filter(None, (listed.parent, listed.child, listed.name)))
    what = f"a list of edges ({titles}), {len(table):,} rows"
    # if only the values show that these are edges, the table may as well have two levels
    hints = ("--levels A,B takes them for levels instead",) if listed.is_guessed else ()
    # left_out: the other columns, each with the reason
    return Understood(
        source=source, what=what, facts=tuple(facts), left_out=left_out(table, listed), hints=hints
    )


def _sizes(names: NameTable) -> list[int]:
    """The number of nodes at each level, coarse to fine. A node is identified by its path of
    names."""
    nodes = {node for row in names.rows for node in prefixes(row)}
    at_depth = Counter(map(len, nodes))
    return [at_depth[depth] for depth in range(1, len(names.levels) + 1)]


def _read_paths(source: str, text: str, chosen: Chosen) -> NameTable:
    """The names in a text with a path on each line, as taxonomies of product categories are
    published, or with a parent and a child on each line. Lines that begin with # are comments.
    """
    lines = [
        line.strip() for line in text.splitlines() if line.strip() and not line.startswith("#")
    ]
    mark = chosen.separator or separator_of(lines)
    # Without a separator, two words on each line may be a parent and a child. `pairs` is a table
    # of these two columns; None if the lines are not such pairs.
    pairs = None if mark else pairs_in(lines)
    if pairs is not None:
        listed = EdgeColumns("parent", "child")
        return replace(
            unfold(edges_of(pairs, listed)),
            read=_understood_of_edges(source, pairs, listed, facts=()),
        )
    if mark is None:
        raise DataError(
            f"{source} holds no paths",
            expected="a path on each line, such as Animals > Owls > Barn owl, or a parent and a "
            "child",
            found=examples(lines),
            fix="--separator names what stands between the names of a path",
        )

    # lines of inner nodes are dropped, since the paths of their leaves contain them; names that
    # several nodes of a level share get their parent's name appended
    leaves = with_unique_names(leaves_among(split_path(line, mark) for line in lines))
    levels = chosen.levels or levels_of(lines, mark)
    facts = (f"separated by {mark}", f"{len(levels)} levels")
    return replace(
        NameTable.of(levels, leaves),
        read=Understood(source, f"{len(lines):,} paths, one a line, {len(leaves):,} leaves", facts),
    )


def level_columns(table: pa.Table, chosen: Chosen) -> TableColumns:
    """The columns of names: the levels that the user chose, or else all columns without another
    meaning, such as ids or splits. Raises UnknownName for a missing column, DataError if there are
    no levels."""
    # a row is an item if the table has a column of items, else it is a class
    columns = columns_of(table, chosen, of_items=has_items(table))
    refuse_depth(len(columns.levels))
    if not columns.levels:
        raise DataError(
            "the table has no levels",
            expected="columns of names, coarse to fine",
            found=", ".join(table.column_names),
            fix="--levels names them",
        )
    return columns


def write(tree: LabelTree, kind: str) -> str:
    """Write a tree as text in a format, given by its suffix (one of WRITERS).

    Raises TreeError for names with control characters, which not every format can store, and for a
    table that would be read back as another tree; UnknownName for an unknown format.
    """
    if kind not in WRITERS:
        raise UnknownName("format", kind, WRITERS)

    bad = [name for names in (tree.levels, *tree.names) for name in names if CONTROL.search(name)]
    if bad:
        raise TreeError(
            f"{len(bad)} names hold control characters",
            expected="names on one line",
            found=examples(map(repr, bad)),
            fix="--policy trim removes them",
        )
    text = WRITERS[kind](tree)
    # A reader guesses the roles of a table's columns, and its delimiter. So levels could be taken
    # for other columns, and names with many semicolons for several cells.
    if kind in tables.DELIMITERS and not (_reads_back(tree) and _is_in_its_dialect(text, kind)):
        raise TreeError(
            "a table of these levels would be read as something else",
            found=", ".join(tree.levels),
            expected="levels and names that cannot be taken for ids, edges or a split",
            fix="--format json or nwk",
        )

    return text


def _is_in_its_dialect(text: str, kind: str) -> bool:
    """Whether a text that was written as a table of this suffix would be read with the right
    delimiter. Names with many semicolons may look like cells."""
    head = head_in(text.encode(), is_whole=True)
    return head is None or dialect_of(head, kind).delimiter == tables.DELIMITERS[kind]


def _reads_back(tree: LabelTree) -> bool:
    """Whether the tree, written as a table with a row per class, would be read as the same levels
    in the same order, and not as edges, paths, ids or a split."""
    table = pa.table(dict(zip(tree.levels, class_columns(tree), strict=True)))
    if edge_columns(table, ()) is not None:  # with () the columns of edges are guessed
        return False
    # a single column whose names have a common separator would be read as paths
    if len(tree.levels) == 1 and separator_of(tree.names[0]):
        return False
    # with a level called item, the table would be read as a table of items
    of_items = "item" in {name.lower() for name in tree.levels}
    # NOTHING: no column is chosen, so all are guessed
    return columns_of(table, NOTHING, of_items=of_items).levels == tree.levels


def _parse_graphml(text: str) -> ClassGraph[NodeId]:
    """The graph of classes in a GraphML text, as networkx reads it. The name of a node is its
    `name` or `label`, if the file has these, else its id. Raises DataError for any other text."""
    try:
        graph = nx.parse_graphml(text)
    except (ParseError, nx.NetworkXError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataError("this is not GraphML", found=str(error)) from None

    if not graph.is_directed():
        raise DataError("the graph is not directed", expected="edges from parent to child")

    # by_node: nodes are identified by their ids, so that names may repeat
    tree: ClassGraph[NodeId] = nx.DiGraph(by_node=True)
    given = {key for _, data in graph.nodes(data=True) for key in data}
    # the same key for all nodes, so that names and labels are not mixed; a node without it gets ""
    key = next((key for key in ("name", "label") if key in given), None)
    for node, data in graph.nodes(data=True):
        tree.add_node(node, name=str(data.get(key, "")) if key else str(node))
    tree.add_edges_from(graph.edges())
    # the level names, which are one text with commas, as GraphML has no lists; () if there are none
    tree.graph["levels"] = unpacked(str(graph.graph.get("levels", "")))
    return tree


def _parse_json(text: str) -> ClassGraph[NodeId]:
    """The tree in a JSON text of nested objects with `name` and `children`. The outermost object
    may have `levels`, a list of the names of levels. Raises DataError for any other text."""
    # by_node: nodes are identified by their ids, so that names may repeat
    graph: ClassGraph[NodeId] = nx.DiGraph(by_node=True)
    try:
        root = parse_json(text)
    except ValueError as error:
        raise DataError("this is not JSON", found=str(error)) from None

    # a stack instead of recursion, since a tree may be deeper than Python's limit of nested calls
    waiting: list[tuple[Any, NodeId | None]] = [(root, None)]
    while waiting:
        node, parent = waiting.pop()
        children = node.get("children", []) if isinstance(node, dict) else None
        if not isinstance(children, list) or not isinstance(node.get("name"), str):
            raise DataError(
                "this JSON is not a tree",
                expected='{"name": "…", "children": […]}',
                found=json.dumps(node)[:80],
            )
        number = len(graph)  # the id of the node, since names may repeat
        graph.add_node(number, name=node["name"])
        if parent is not None:
            graph.add_edge(parent, number)
        waiting += [(child, number) for child in reversed(children)]

    levels = root.get("levels", [])
    graph.graph["levels"] = tuple(map(str, levels)) if isinstance(levels, list) else ()
    return graph


def nested_objects(tree: LabelTree, items: NDArray[np.int64] | None = None) -> dict[str, Any]:
    """The tree as nested objects {"name", "children"}. The root also has the names of the levels.
    With `items` (C,), each fine class has its number of items."""
    # built from the leaves upwards: the nodes of a level are put into their parents
    below: list[dict[str, Any]] = [{"name": name} for name in tree.names[-1]]
    if items is not None:
        below = [
            {**node, "items": number} for node, number in zip(below, items.tolist(), strict=True)
        ]
    # from the second finest level up to the root: `names` are the names of the level, and `parents`
    # has for each node of the level below the id of its parent in this level
    for names, parents in zip(
        (*reversed(tree.names[:-1]), (ROOT,)), reversed(tree.parents), strict=True
    ):
        above: list[dict[str, Any]] = [{"name": name, "children": []} for name in names]
        for node, parent in zip(below, parents, strict=True):
            above[parent]["children"].append(node)
        below = above
    return {"name": ROOT, "levels": list(tree.levels), "children": below[0]["children"]}


def _format_json(tree: LabelTree) -> str:
    """Write a tree as nested JSON. Raises TreeError if the tree is too deep to be read back."""
    # JSON is read up to MAX_DEPTH nested brackets; each level, and the root, needs two
    deepest = MAX_DEPTH // 2 - 1
    if tree.depth > deepest:
        raise TreeError(
            "the tree is too deep for nested JSON",
            expected=f"at most {deepest} levels",
            found=f"{tree.depth}",
            fix="write Newick or CSV",
        )
    return json.dumps(nested_objects(tree), ensure_ascii=False, indent=1) + "\n"


GRAPH_READERS: dict[str, Callable[[str], ClassGraph[NodeId]]] = {
    ".graphml": _parse_graphml, ".json": _parse_json, ".nwk": parse_newick, ".newick": parse_newick,
}  # fmt: skip
WRITERS: dict[str, Callable[[LabelTree], str]] = {
    ".csv": lambda tree: tables.lines(tree.levels, class_rows(tree)),
    ".tsv": lambda tree: tables.lines(tree.levels, class_rows(tree), delimiter="\t"),
    ".json": _format_json,
    ".nwk": format_newick,
    ".newick": format_newick,
}
