"""Unfolds a graph of classes, with edges from parent to child, into a name table.

>>> unfold(
...     graph_of_edges(
...         [("thing", "animal"), ("thing", "plant"), ("animal", "cat"), ("animal", "dog")]
...     )
... ).rows
{('animal', 'cat'): 1, ('animal', 'dog'): 1, ('plant',): 1}
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from urllib.parse import quote, unquote

import networkx as nx

from hbench.core.errors import DataError, TreeError
from hbench.sheets.rows import default_levels, stripped
from hbench.tree import refuse_depth
from hbench.tree.names import NameTable, TreeProblem

NodeId = str | int
# A graph whose nodes are NodeIds with a `name`. Its attributes are optional: "levels" are the level
# names in the file; "by_node" is true if nodes are identified by their ids, so that names may
# repeat; "support" is the number of inner nodes whose name was a support value and was left out.
ClassGraph = nx.DiGraph
MOST_PATHS = 1_000_000
# a support value of a phylogeny, or two with a slash
IS_NUMBER = re.compile(r"\d+(\.\d*)?([eE][+-]?\d+)?(/\d+(\.\d*)?)?")


def graph_of_edges(pairs: Iterable[tuple[str, str]]) -> ClassGraph[NodeId]:
    """Make a graph of classes from pairs of names, (parent, child), in which each name is one node.
    The parent of a root is ""."""
    graph: ClassGraph[NodeId] = nx.DiGraph()
    for parent, child in pairs:
        graph.add_nodes_from((name, {"name": name}) for name in (parent, child) if name)
        if parent and child:
            graph.add_edge(parent, child)
    return graph


def packed(levels: Iterable[str]) -> str:
    """Write level names as one text, for formats without lists.

    >>> unpacked(packed(["class", "fine, or leaf"]))
    ('class', 'fine, or leaf')
    """
    return ",".join(quote(level, safe=" ") for level in levels)


def unpacked(text: str) -> tuple[str, ...]:
    """Read the level names in a text that `packed` wrote."""
    return tuple(map(unquote, text.split(","))) if text else ()


def unfold(graph: ClassGraph[NodeId]) -> NameTable:
    """Make the name table of all paths from a root to a leaf. A single root is left out.

    Cycles and several roots become problems of the table. Raises DataError for a graph without
    classes, TreeError for more than a million paths or more than 255 levels.
    """
    names = _names_of_nodes(graph)
    acyclic, cycles = _without_cycles(graph, names)
    roots = [node for node, parents in graph.in_degree() if parents == 0]
    # the coarsest level has the children of a single root, or else the roots themselves
    tops = list(acyclic.successors(roots[0])) if len(roots) == 1 else roots
    # the number of levels: a path has one node more than edges, but a single root is no level
    refuse_depth(nx.dag_longest_path_length(acyclic) + (len(roots) != 1))
    # {names on a path, without empty names at the end: how many paths have them}
    rows = Counter(stripped(map(names.__getitem__, path)) for path in _paths(acyclic, tops))
    at_top = tuple(names[root] for root in roots)
    # several roots are one problem, of the first root; the number of affected items is unknown here
    several = (
        [TreeProblem(kind="several roots", level="the root", node=at_top[0], where=at_top, items=0)]
        if len(roots) > 1
        else []
    )
    broken = [*cycles, *several]
    depth = max(map(len, rows), default=0)
    if depth == 0 and not broken:
        raise DataError(
            "the graph has no classes",
            expected="edges from a root down to its classes",
            found="none",
        )

    levels = tuple(graph.graph.get("levels") or ())
    # a node with several parents may be at several levels, and its name must mean this node at all
    # of them: then the names of all levels are `one_namespace`
    shared = any(parents > 1 for _, parents in graph.in_degree())
    return NameTable(
        levels=levels if len(levels) == depth else default_levels(depth),
        rows=dict(rows),
        one_namespace=shared,
        broken=tuple(broken),
    )


def _names_of_nodes(graph: ClassGraph[NodeId]) -> dict[NodeId, str]:
    """Return a name for every node, and make repeated names unique. If some node has several
    parents, repeated names get the node's id appended, else names of the nodes above or below
    (`_names_by_place`)."""
    names = {node: str(data["name"]) for node, data in graph.nodes(data=True)}
    if any(parents > 1 for _, parents in graph.in_degree()):
        times = Counter(names.values())
        return {
            node: name if times[name] == 1 else f"{name} [{node}]" for node, name in names.items()
        }
    # Without the attribute "by_node", nodes are identified by their names, so none repeats.
    # With a cycle, there is no order from the root downwards to make names unique in.
    if not graph.graph.get("by_node") or not nx.is_directed_acyclic_graph(graph):
        return names
    return _names_by_place(graph, names)


def _names_by_place(graph: ClassGraph[NodeId], names: dict[NodeId, str]) -> dict[NodeId, str]:
    """Names for the nodes of a forest that are unique at each depth. An inner node without a name
    is called by its first and last leaf. Equal names get their parent's name appended.

    If all inner nodes below the roots have a number as name, these are support values of a
    phylogeny. They are not used as names; the graph's attribute "support" tells how many they are.
    """
    inner = [node for node in graph if graph.out_degree(node) and graph.in_degree(node)]
    names_levels = graph.graph.get("levels")  # in a file that names its levels, numbers are names
    if not names_levels and inner and all(IS_NUMBER.fullmatch(names[node]) for node in inner):
        graph.graph["support"] = len(inner)
        names = {**names, **dict.fromkeys(inner, "")}
    # the first and last leaf below every node, computed from the leaves upwards
    order = list(nx.topological_sort(graph))
    ends: dict[NodeId, tuple[str, str]] = {}
    for node in reversed(order):
        below = list(graph.successors(node))
        ends[node] = (
            (ends[below[0]][0], ends[below[-1]][1]) if below else (names[node], names[node])
        )

    depth: dict[NodeId, int] = {}
    for node in order:
        depth[node] = 1 + max((depth[parent] for parent in graph.predecessors(node)), default=-1)
        if not names[node] and graph.out_degree(node):
            first, last = ends[node]
            names[node] = first if first == last else f"{first} … {last}"
    # siblings with equal names get their first and last leaf appended
    names = _siblings_apart(graph, names, ends)
    # A name that still occurs several times at a depth gets its parent's name appended. The parent
    # comes earlier in `order`, so its own name has been made unique by then.
    times = Counter((depth[node], name) for node, name in names.items() if name)
    shown: dict[NodeId, str] = {}
    for node in order:
        name = names[node]
        above = list(graph.predecessors(node))
        is_repeated = times[depth[node], name] > 1 and bool(above)
        shown[node] = f"{name} ({shown[above[0]]})" if is_repeated else name
    return shown


def _siblings_apart(
    graph: ClassGraph[NodeId], names: dict[NodeId, str], ends: dict[NodeId, tuple[str, str]]
) -> dict[NodeId, str]:
    """Make the names of siblings unique, by appending the first and last leaf below an inner node:
    "(A … B)". `ends` has the names of these leaves for each node. Nodes without a name ("") are
    left as they are. Raises TreeError for two leaves with the same name and parent, which cannot be
    distinguished.
    """
    apart = dict(names)
    for parent in graph:
        below = list(graph.successors(parent))
        times = Counter(names[node] for node in below if names[node])
        for node in below:
            if times[names[node]] < 2:
                continue
            if not graph.out_degree(node):
                raise TreeError(
                    f"two leaves of one node have the same name, {names[node]!r}",
                    expected="names that differ among the children of a node",
                    found=f"{times[names[node]]} of them below {names[parent] or 'the root'!r}",
                    fix="rename all but one in the file, or take them out",
                )
            first, last = ends[node]
            of_leaves = first if first == last else f"{first} … {last}"
            apart[node] = f"{names[node]} ({of_leaves})"
    return apart


def _without_cycles(
    graph: ClassGraph[NodeId], names: dict[NodeId, str]
) -> tuple[ClassGraph[NodeId], list[TreeProblem]]:
    """Remove the edges that are part of cycles. Return the graph without them, and the problems.

    Such edges are inside a strongly connected component, in which each node leads to all others.
    There is one problem for each component; it names one cycle, and then the component's other
    nodes.
    """
    # the index of each node's component
    part = {
        node: i for i, nodes in enumerate(nx.strongly_connected_components(graph)) for node in nodes
    }
    inside: dict[int, ClassGraph[NodeId]] = {}
    for parent, child in graph.edges:
        if part[parent] == part[child]:
            inside.setdefault(part[parent], nx.DiGraph()).add_edge(parent, child)

    acyclic = graph.copy()
    problems = []
    for cyclic in inside.values():
        acyclic.remove_edges_from(cyclic.edges)
        # first one closed cycle, then the other nodes of the component
        around = [names[parent] for parent, _ in nx.find_cycle(cyclic)]
        on_the_way = set(around)
        others = [names[node] for node in cyclic if names[node] not in on_the_way]
        # its kind, level (none), node, all nodes concerned, and number of items, unknown here
        problems.append(
            TreeProblem(
                kind="cycle", level="", node=around[0], where=(*around, around[0], *others), items=0
            )
        )

    return acyclic, problems


def _paths(graph: ClassGraph[NodeId], tops: list[NodeId]) -> Iterator[tuple[NodeId, ...]]:
    """Yield every path from one of the nodes `tops` to a leaf, depth first, with children in the
    order of the file. Raises TreeError if there are too many paths.
    """
    # count the paths from each node to a leaf first, from the leaves upwards; a leaf has one
    below: dict[NodeId, int] = {}
    for node in reversed(list(nx.topological_sort(graph))):
        below[node] = sum(below[child] for child in graph.successors(node)) or 1
    if sum(below[top] for top in tops) > MOST_PATHS:
        raise TreeError(
            "the graph has too many paths to unfold it into a tree",
            expected=f"at most {MOST_PATHS:,} paths from the root to a leaf",
            found=f"{sum(below[top] for top in tops):,}",
            fix="give every node one parent",
        )

    # a stack instead of recursion; reversed, since the last entry is taken first
    waiting: list[tuple[NodeId, ...]] = [(top,) for top in reversed(tops)]
    while waiting:
        path = waiting.pop()
        children = list(graph.successors(path[-1]))
        if not children:
            yield path
        waiting += [(*path, child) for child in reversed(children)]
