"""Reads and writes Newick: a tree as nested brackets, a node's children before its name.

>>> graph = parse_newick("((cat,'red panda':0.5)animal,[by hand]oak_tree);")
>>> [name for _, name in graph.nodes(data="name")]
['', 'animal', 'cat', 'red panda', 'oak tree']
>>> label("oak tree"), label("oak")
("'oak tree'", 'oak')
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import networkx as nx

from hbench.core.errors import DataError
from hbench.tree import LabelTree
from hbench.tree.graph import ClassGraph, NodeId, packed, unpacked

TOKEN = re.compile(
    r"\s+|\[(?P<comment>[^\]]*)\]|'(?P<quoted>(?:[^']|'')*)'|:\s*(?P<length>[^\s()\[\]',;:]+)|(?P<mark>[(),;])"
    r"|(?P<plain>[^\s()\[\]',;:]+)"
)
PLAIN = re.compile(r"[^\s()\[\]',;:_]+")
LEVELS = "&levels="


def parse_newick(text: str) -> ClassGraph[NodeId]:
    """The graph of one Newick tree; branch lengths are read over. Raises DataError that names the place."""
    graph: ClassGraph[NodeId] = nx.DiGraph()
    graph.add_node(0, name="")
    above: list[NodeId] = []
    node: NodeId = 0
    for place, kind, value in _tokens(text):
        fresh = not graph.nodes[node]["name"] and not any(graph.successors(node))
        if kind in {"plain", "quoted"} and not graph.nodes[node]["name"]:
            graph.nodes[node]["name"] = value
        elif value == "(" and fresh:
            above.append(node)
            node = _add_child(graph, above[-1])
        elif value == "," and above:
            node = _add_child(graph, above[-1])
        elif value == ")" and above:
            node = above.pop()
        elif value == ";" and not above:
            return graph
        elif kind == "comment" and value.startswith(LEVELS):
            graph.graph["levels"] = unpacked(value.removeprefix(LEVELS))
        elif kind not in {"comment", "length"}:
            raise _error(text, place)
    raise _error(text, len(text))


def format_newick(tree: LabelTree) -> str:
    """One line of Newick; names that its grammar would change are quoted, the level names stand in a comment."""
    below = [label(name) for name in tree.names[-1]]
    for names, parents in zip((*reversed(tree.names[:-1]), ("root",)), reversed(tree.parents), strict=True):
        children: list[list[str]] = [[] for _ in names]
        for text, parent in zip(below, parents, strict=True):
            children[parent].append(text)
        below = [f"({','.join(texts)}){label(name)}" for texts, name in zip(children, names, strict=True)]
    return f"[{LEVELS}{packed(tree.levels)}]{below[0]};\n"


def label(name: str) -> str:
    """A name as Newick writes it."""
    return name if PLAIN.fullmatch(name) else "'" + name.replace("'", "''") + "'"


def _tokens(text: str) -> Iterator[tuple[int, str, str]]:
    """Place, kind (comment, quoted, length, mark, plain) and value of every token; spaces between them are dropped."""
    place = 0
    while place < len(text):
        match = TOKEN.match(text, place)
        if match is None:
            raise _error(text, place)
        value = match[match.lastgroup] if match.lastgroup else ""
        if match.lastgroup == "quoted":
            yield place, "quoted", value.replace("''", "'")
        elif match.lastgroup == "plain":
            yield place, "plain", value.replace("_", " ")
        elif match.lastgroup:
            yield place, match.lastgroup, value
        place = match.end()


def _add_child(graph: ClassGraph[NodeId], parent: NodeId) -> NodeId:
    child = len(graph)
    graph.add_node(child, name="")
    graph.add_edge(parent, child)
    return child


def _error(text: str, place: int) -> DataError:
    line = text.count("\n", 0, place) + 1
    rest = repr(text[place : place + 20]) if place < len(text) else "the end of the text"
    return DataError(
        "this is not a Newick tree",
        expected="(children)name; with names that hold brackets, commas or spaces in single quotes",
        found=f"{rest} at line {line}, character {place - text.rfind(chr(10), 0, place)}",
    )
