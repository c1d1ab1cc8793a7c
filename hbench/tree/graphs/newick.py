"""Reads and writes Newick, which represents a tree by nested brackets, with the children of a node
before its name.

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
from hbench.tree.graphs import ClassGraph, NodeId, packed, unpacked

TOKEN = re.compile(
    r"\s+|\[(?P<comment>[^\]]*)\]|'(?P<quoted>(?:[^']|'')*)'"
    r"|:\s*(?P<length>[^\s()\[\]',;:]+)|(?P<mark>[(),;])"
    r"|(?P<plain>[^\s()\[\]',;:]+)"
)
PLAIN = re.compile(r"[^\s()\[\]',;:_]+")
LEVELS = "&levels="


def parse_newick(text: str) -> ClassGraph[NodeId]:
    """Parse the first Newick tree of a text into a graph. Branch lengths are ignored.

    The graph's attribute `trees` is the number of trees in the text, and `levels` are the level
    names, if a comment has them. Raises DataError, which states the position, for invalid text,
    also after the first tree, since the trees of a damaged file cannot be counted.
    """
    graph: ClassGraph[NodeId] = nx.DiGraph()
    graph.add_node(0, name="")

    # the nodes whose brackets are open, and the node that is being read
    above: list[NodeId] = []
    node: NodeId = 0
    tokens = _tokens(text)
    for place, kind, value in tokens:
        # a quoted name or a comment may hold one of these characters, too, and is no mark
        mark = value if kind == "mark" else ""
        # children come before the name: "(" is an error if the node has a name or children already
        fresh = not graph.nodes[node]["name"] and not any(graph.successors(node))
        # the first text of a node is its name
        if kind in {"plain", "quoted"} and not graph.nodes[node]["name"]:
            graph.nodes[node]["name"] = value
        elif mark == "(" and fresh:
            above.append(node)
            node = _add_child(graph, above[-1])
        elif mark == "," and above:
            node = _add_child(graph, above[-1])
        elif mark == ")" and above:
            node = above.pop()
        elif mark == ";" and not above:
            # the tokens after this tree
            later = sum(kind == "mark" and value == ";" for _, kind, value in tokens)
            graph.graph["trees"] = 1 + later
            # nodes are identified by their ids, so that names may repeat
            graph.graph["by_node"] = True
            return graph
        elif kind == "comment" and value.startswith(LEVELS):
            graph.graph["levels"] = unpacked(value.removeprefix(LEVELS))
        elif kind not in {"comment", "length"}:
            raise _error(text, place)

    raise _error(text, len(text))


def format_newick(tree: LabelTree) -> str:
    """Write a tree as one line of Newick. Names are quoted if the grammar would change them, and
    the names of the levels are written as a comment.
    """
    # Built from the leaves upwards: the texts of a level (`below`) go into the brackets of their
    # parents. `names` are those of a level, and `parents` has for each node of the level below the
    # id of its parent in this level.
    below = [label(name) for name in tree.names[-1]]
    for names, parents in zip(
        (*reversed(tree.names[:-1]), ("root",)), reversed(tree.parents), strict=True
    ):
        children: list[list[str]] = [[] for _ in names]  # the texts of each parent's children
        for text, parent in zip(below, parents, strict=True):
            children[parent].append(text)
        below = [
            f"({','.join(texts)}){label(name)}" for texts, name in zip(children, names, strict=True)
        ]
    return f"[{LEVELS}{packed(tree.levels)}]{below[0]};\n"


def label(name: str) -> str:
    """A name as Newick writes it. If it contains a character with a special meaning, such as a
    blank or a bracket, it is put in quotes, and quotes inside it are doubled."""
    return name if PLAIN.fullmatch(name) else "'" + name.replace("'", "''") + "'"


def _tokens(text: str) -> Iterator[tuple[int, str, str]]:
    """Yield the position, kind (comment, quoted, length, mark, plain) and value of every token, and
    skip the spaces between tokens. A mark is one of the characters ( ) , ; that form the tree.

    In Newick a quote within a quoted name is written twice, and an underscore in a plain name
    stands for a blank.
    """
    place = 0
    while place < len(text):
        token = TOKEN.match(text, place)
        if token is None:
            raise _error(text, place)
        # lastgroup, the name of the group that matched, is the kind of the token; None for spaces
        value = token[token.lastgroup] if token.lastgroup else ""
        if token.lastgroup == "quoted":
            yield place, "quoted", value.replace("''", "'")
        elif token.lastgroup == "plain":
            yield place, "plain", value.replace("_", " ")
        elif token.lastgroup:
            yield place, token.lastgroup, value
        place = token.end()


def _add_child(graph: ClassGraph[NodeId], parent: NodeId) -> NodeId:
    """Add a node without a name below a parent, and return its id, the next number."""
    child = len(graph)
    graph.add_node(child, name="")
    graph.add_edge(parent, child)
    return child


def _error(text: str, place: int) -> DataError:
    """The error for an invalid text. It shows the text at the position `place`, with its line and
    character."""
    line = text.count("\n", 0, place) + 1
    excerpt = repr(text[place : place + 20]) if place < len(text) else "the end of the text"
    expected = (
        "(children)name; with single quotes around names that hold brackets, commas or spaces"
    )
    # rfind is the place of the last line break, or -1 on the first line, so characters count from 1
    found = f"{excerpt} at line {line}, character {place - text.rfind(chr(10), 0, place)}"
    return DataError("this is not a Newick tree", expected=expected, found=found)
