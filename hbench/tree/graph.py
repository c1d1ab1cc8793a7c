"""Unfolds a graph of classes, with edges from parent to child, into a name table.

>>> unfold(edges([("thing", "animal"), ("thing", "plant"), ("animal", "cat"), ("animal", "dog")])).rows
{('animal', 'cat'): 1, ('animal', 'dog'): 1, ('plant',): 1}
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from urllib.parse import quote, unquote

import networkx as nx

from hbench.core.errors import DataError, TreeError
from hbench.tree import default_levels, refuse_depth
from hbench.tree.names import NameTable, TreeProblem, stripped

NodeId = str | int
ClassGraph = nx.DiGraph  # a node is a NodeId with a `name`; graph["levels"]: the level names, if the file has them
MOST_PATHS = 1_000_000


def edges(pairs: Iterable[tuple[str, str]]) -> ClassGraph[NodeId]:
    """Make a graph of (parent, child) names; the parent of a root is ""."""
    graph: ClassGraph[NodeId] = nx.DiGraph()
    for parent, child in pairs:
        graph.add_nodes_from((name, {"name": name}) for name in (parent, child) if name)
        if parent and child:
            graph.add_edge(parent, child)
    return graph


def packed(levels: Iterable[str]) -> str:
    """Write level names as one word, for formats without lists.

    >>> unpacked(packed(["class", "fine, or leaf"]))
    ('class', 'fine, or leaf')
    """
    return ",".join(quote(level, safe=" ") for level in levels)


def unpacked(text: str) -> tuple[str, ...]:
    """Read the level names in a word written by `packed`."""
    return tuple(map(unquote, text.split(","))) if text else ()


def unfold(graph: ClassGraph[NodeId]) -> NameTable:
    """Make the name table of all paths from a root to a leaf; a single root is left out.

    Cycles and several roots become problems of the table. Raises DataError for a graph without classes, TreeError for more
    than a million paths or more than 255 levels.
    """
    names = _names(graph)
    acyclic, cycles = _without_cycles(graph, names)
    roots = [node for node, parents in graph.in_degree() if parents == 0]
    tops = list(acyclic.successors(roots[0])) if len(roots) == 1 else roots
    refuse_depth(nx.dag_longest_path_length(acyclic) + (len(roots) != 1))
    rows = Counter(stripped(names[node] for node in path) for path in _paths(acyclic, tops))
    at_top = tuple(names[root] for root in roots)
    several = [TreeProblem("several roots", "the root", at_top[0], at_top, 0)] if len(roots) > 1 else []
    broken = [*cycles, *several]
    depth = max(map(len, rows), default=0)
    if depth == 0 and not broken:
        raise DataError("the graph has no classes", expected="edges from a root down to its classes", found="none")
    levels = tuple(graph.graph.get("levels") or ())
    shared = any(parents > 1 for _, parents in graph.in_degree())
    return NameTable(levels if len(levels) == depth else default_levels(depth), dict(rows), shared, tuple(broken))


def _names(graph: ClassGraph[NodeId]) -> dict[NodeId, str]:
    """Return the name of every node; where nodes have several parents, repeated names are told apart by their ids."""
    names = {node: str(data["name"]) for node, data in graph.nodes(data=True)}
    if all(parents < 2 for _, parents in graph.in_degree()):
        return names
    times = Counter(names.values())
    return {node: name if times[name] == 1 else f"{name} [{node}]" for node, name in names.items()}


def _without_cycles(
    graph: ClassGraph[NodeId], names: dict[NodeId, str]
) -> tuple[ClassGraph[NodeId], list[TreeProblem]]:
    """Remove the edges inside strongly connected components; return the graph and one cycle of each component."""
    part = {node: i for i, nodes in enumerate(nx.strongly_connected_components(graph)) for node in nodes}
    inside: dict[int, ClassGraph[NodeId]] = {}
    for parent, child in graph.edges:
        if part[parent] == part[child]:
            inside.setdefault(part[parent], nx.DiGraph()).add_edge(parent, child)
    acyclic = graph.copy()
    problems = []
    for cyclic in inside.values():
        acyclic.remove_edges_from(cyclic.edges)
        around = [names[parent] for parent, _ in nx.find_cycle(cyclic)]
        others = [names[node] for node in cyclic if names[node] not in around]
        problems.append(TreeProblem("cycle", "", around[0], (*around, around[0], *others), 0))
    return acyclic, problems


def _paths(graph: ClassGraph[NodeId], tops: list[NodeId]) -> Iterator[tuple[NodeId, ...]]:
    """Yield every path from one of `tops` to a leaf, depth first, children in the order of the file."""
    below: dict[NodeId, int] = {}  # the number of paths from a node to a leaf
    for node in reversed(list(nx.topological_sort(graph))):
        below[node] = sum(below[child] for child in graph.successors(node)) or 1
    if sum(below[top] for top in tops) > MOST_PATHS:
        raise TreeError(
            "the graph has too many paths to unfold it into a tree",
            expected=f"at most {MOST_PATHS:,} paths from the root to a leaf",
            found=f"{sum(below[top] for top in tops):,}", fix="give every node one parent",
        )  # fmt: skip
    waiting: list[tuple[NodeId, ...]] = [(top,) for top in reversed(tops)]
    while waiting:
        path = waiting.pop()
        children = list(graph.successors(path[-1]))
        if not children:
            yield path
        waiting += [(*path, child) for child in reversed(children)]
