"""Proposes a taxonomy from Wikidata's subclass graph (P279): a tree of several levels, in addition
to the curated one.

Cycles are condensed into one node, classes that are too general are left out, ancestors with too
few landmarks are skipped, and each class gets the parent with the highest information content. The
removed edges are kept in a table, so that the proposal can be audited.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, NamedTuple

import networkx as nx

from hbench.cli import terminal
from hbench.core.errors import DataError, TreeError
from hbench_hgldv2.artefact import made_by, read_rows, write_rows
from hbench_hgldv2.labels.label import Label
from hbench_hgldv2.wikimedia import api
from hbench_hgldv2.wikimedia.client import CacheFile, Offline, RequestsPerSecond, opened
from hbench_hgldv2.wikimedia.contact import Contact
from hbench_hgldv2.wikimedia.facts import QID, Entity, FactSource

ROOT = "Q35120"  # entity
MOST_LEVELS = 12
STOP = frozenset(
    {
        "Q35120",  # entity
        "Q488383",  # object
        "Q223557",  # physical object
        "Q27096213",  # geographic entity
        "Q618123",  # geographical feature
        "Q811979",  # architectural structure
        "Q11908691",  # fixed construction
        "Q8205328",  # artificial physical object
        "Q271669",  # landform
        "Q82794",  # geographic region
        "Q570116",  # tourist attraction
    }
)
NATURAL = frozenset({"Q271669", "Q15324", "Q29651224"})  # landform, body of water, natural object
# architectural structure, artificial physical object, fixed construction
HUMAN_MADE = frozenset({"Q811979", "Q8205328", "Q11908691"})


class Removed(NamedTuple):
    """An edge of Wikidata that is not in the tree: child, parent, and the reason."""

    child: str
    parent: str
    why: str


class Node(NamedTuple):
    """A row of taxonomy.csv: a class, its position in the tree, and the other parents that it could
    have."""

    class_id: str
    label: str
    parent: str
    depth: int
    landmarks: int
    kind: str
    alternative_parents: tuple[str, ...]
    members: tuple[str, ...]


def run(
    work: Path,
    *,
    least: Annotated[int, "An ancestor needs at least this many landmarks below it."] = 17,
    contact: Contact = None,
    offline: Offline = False,
    rate: RequestsPerSecond = 1.0,
    cache: CacheFile = None,
) -> None:
    """Propose a taxonomy from P279, next to the curated one.

    \b
    hbench hgldv2 taxonomy --contact you@example.org
    """
    # `rate`: requests per second, at most. `command` is what errors advise; they append the option
    # that is missing
    command = shlex.join(["hbench", "hgldv2", "--work", f"{work}", "taxonomy"])
    with opened(
        work, command=command, contact=contact, offline=offline, rate=rate, cache=cache
    ) as client:
        propose(work, api.source(client), least=least)


def propose(work: Path, source: FactSource, *, least: int) -> None:
    """Make taxonomy.csv and taxonomy_removed.csv from the facts of a source. An ancestor is kept if
    at least `least` landmarks are below it."""
    # the facts come from Wikidata, so only labels with a QID take part
    labels = [
        label for label in read_rows(work / "labels.csv", Label) if QID.fullmatch(label.class_id)
    ]
    if not labels:
        raise DataError(
            "no class has a QID, so no subclass of it is known",
            expected="labels scraped from Wikidata",
            fix="run hbench hgldv2 scrape, then clean without --released and --labels",
        )

    parents = ancestors_of([label.class_id for label in labels], source.entities)
    landmarks = {label.class_id: label.landmarks for label in labels if label.landmarks}
    tree, removed = taxonomy(parents, landmarks, least=least)
    names = {label.class_id: label.label for label in labels}
    # kept ancestors are not among the labels, so their names are fetched
    others = sorted(set(tree) - set(names) - {ROOT})
    # an ancestor without a name in Wikidata is called by its id
    names |= {class_id: name.text or class_id for class_id, name in source.names(others).items()}
    nodes = rows(tree, names)
    record = made_by("taxonomy", [work / "labels.csv"], {"least": least})
    write_rows(work / "taxonomy.csv", nodes, Node, record=record, counts={"nodes": len(nodes)})
    write_rows(
        work / "taxonomy_removed.csv",
        removed,
        Removed,
        record=record,
        counts={"edges": len(removed)},
    )
    # the tree is printed as an indented list; `nodes` has no root, so depths begin with 1
    terminal.show(
        "\n".join(
            f"{'  ' * (row.depth - 1)}{row.label} ({row.landmarks:,}, {row.kind})" for row in nodes
        )
    )


def ancestors_of(
    class_ids: Iterable[str], entities: Callable[[Sequence[str]], Mapping[str, Entity]]
) -> dict[str, tuple[str, ...]]:
    """Find the direct superclasses (best-ranked P279) of the classes and of their ancestors: class
    id -> ids of its direct superclasses.

    `entities` fetches the entities of a list of ids. MOST_LEVELS levels are fetched, from the
    classes themselves upwards; superclasses above that level are not keys of the result.
    """
    parents: dict[str, tuple[str, ...]] = {}
    unknown = sorted(set(class_ids))
    for _ in range(MOST_LEVELS):
        if not unknown:  # every ancestor is known
            break
        # the classes of a level are fetched together
        entity_of = entities(unknown)
        parents |= {class_id: entity_of[class_id].parents for class_id in unknown}
        unknown = sorted(
            {parent for class_id in unknown for parent in parents[class_id]} - set(parents)
        )
    return parents


def taxonomy(
    parents: Mapping[str, Sequence[str]], landmarks: Mapping[str, int], *, least: int = 1
) -> tuple[nx.DiGraph[str], list[Removed]]:
    """Make the tree, below ROOT, of the classes with landmarks and of the kept ancestors. Returns
    the tree, with edges from parent to child, and the removed edges.

    `parents` maps a class to its direct superclasses; `landmarks` maps a class to the number of its
    own landmarks.

    A node has the attributes `landmarks` (of the node and all nodes below it), `kind` (natural,
    human-made or review), `members` (the classes of a condensed cycle) and `alternatives` (its
    other possible parents).

    Classes that are too general to say anything (STOP) are left out first. An ancestor is kept if
    at least `least` landmarks are below it, and at least two kept nodes are below it with no other
    kept ancestor in between: with only one such node, it would merely add a level. The
    parent of a node is the kept ancestor with the highest information content −ln p, where p is the
    ancestor's share of the landmarks; ties are broken by id. Raises TreeError if the result is not
    a tree.
    """
    removed: list[Removed] = []
    graph, members = _condense_cycles(
        _graph_of_specific_classes(parents, landmarks, removed), landmarks, removed
    )
    # node -> its own landmarks; node -> its landmarks and those of all nodes below it
    here = _landmarks_of(members, landmarks)
    weights = _with_those_below(graph, here)
    # a class "entity" with landmarks of its own is the root itself, not a node below it
    kept = _nodes_of_tree(graph, here, weights, least) - {ROOT}

    tree: nx.DiGraph[str] = nx.DiGraph()
    tree.add_node(ROOT, alternatives=())
    for node in sorted(kept):
        # The nearest kept ancestors; edges of `graph`, unlike those of `tree`, lead upwards. The
        # one with the fewest landmarks is first, since −ln p is highest for the smallest share p.
        candidates = sorted(
            _first_kept(node, graph.successors, kept), key=lambda parent: (weights[parent], parent)
        )
        tree.add_edge(candidates[0] if candidates else ROOT, node)
        removed += [
            Removed(child=node, parent=other, why="less informative") for other in candidates[1:]
        ]
        tree.nodes[node]["alternatives"] = tuple(candidates[1:])

    if not nx.is_arborescence(tree):
        raise TreeError(
            "the subclass graph did not become a tree",
            found=f"{tree.number_of_nodes()} nodes, {tree.number_of_edges()} edges",
        )

    above: nx.DiGraph[str] = nx.DiGraph(
        [(child, parent) for child, listed in parents.items() for parent in listed]
    )
    for node, facts in tree.nodes.items():
        # ROOT is above all landmarks, also those of classes that the graph does not connect to it
        facts["landmarks"] = sum(landmarks.values()) if node == ROOT else weights[node]
        facts["members"] = members.get(node, (node,))
        facts["kind"] = kind_of(facts["members"], above)
    return tree, sorted(removed)


def _landmarks_of(
    members: Mapping[str, Sequence[str]], landmarks: Mapping[str, int]
) -> dict[str, int]:
    """Sum the landmarks of each node's members: {node: landmarks}."""
    here = {}
    for node, classes in members.items():
        here[node] = sum(landmarks.get(member, 0) for member in classes)
    return here


def _with_those_below(graph: nx.DiGraph[str], here: Mapping[str, int]) -> dict[str, int]:
    """Sum the landmarks of each node and of all nodes below it. `here` holds each node's own
    landmarks."""
    weights = {}
    for node in graph:  # edges lead from child to parent, so `nx.ancestors` are the nodes below
        weights[node] = here[node] + sum(here[below] for below in nx.ancestors(graph, node))
    return weights


def _nodes_of_tree(
    graph: nx.DiGraph[str], here: Mapping[str, int], weights: Mapping[str, int], least: int
) -> set[str]:
    """Choose the nodes of the tree. These are the nodes with landmarks of their own (`here`), and
    the nodes that have at least `least` landmarks in total (`weights`) and join two chosen nodes.

    Edges of `graph` lead from child to parent; `here` and `weights` have an entry for every node. A
    node with a single chosen node below it would only add a level with one child.
    """
    kept: set[str] = set()
    for node in nx.topological_sort(graph):  # from the bottom up, as the edges do
        # a node joins chosen nodes if several of them are the nearest ones below it
        joins = weights[node] >= least and len(_first_kept(node, graph.predecessors, kept)) > 1
        if joins or here[node]:
            kept.add(node)
    return kept


def kind_of(members: Sequence[str], graph: nx.DiGraph[str]) -> str:
    """Return "natural" or "human-made", depending on which of these general classes are among the
    members or above them; "review" if both or neither apply. The edges of `graph` lead upwards."""
    up = set(members)
    for member in members:
        if member in graph:  # a class without superclasses may be absent
            up |= nx.descendants(graph, member)
    natural = bool(up & NATURAL)
    made = bool(up & HUMAN_MADE)
    if natural == made:
        return "review"
    return "natural" if natural else "human-made"


def rows(tree: nx.DiGraph[str], names: Mapping[str, str]) -> list[Node]:
    """List the nodes below the root in tree order: each node is followed by the nodes below it, and
    siblings are sorted by id. `names` maps a class to its label."""
    # a path lists its nodes, the root and the node itself included, so the root has depth 0
    depth = {
        node: len(path) - 1 for node, path in nx.single_source_shortest_path(tree, ROOT).items()
    }
    _root, *below = nx.dfs_preorder_nodes(tree, ROOT, sort_neighbors=sorted)
    # a node has one parent in the tree; the other possible parents are kept as `alternatives`
    parent = {child: above for above, child in tree.edges}
    nodes = []
    for node in below:
        facts = tree.nodes[node]
        nodes.append(
            Node(
                class_id=node,
                label=names.get(node, node),
                parent=parent[node],
                depth=depth[node],
                landmarks=int(facts["landmarks"]),
                kind=str(facts["kind"]),
                alternative_parents=facts["alternatives"],
                members=facts["members"],
            )
        )
    return nodes


def paths(nodes: Iterable[Node]) -> dict[str, str]:
    """Return, for each class, the labels of the classes above it in the tree, the nearest first,
    joined by " < "."""
    # the node of a condensed cycle represents all of the cycle's classes
    node_of = {member: node for node in nodes for member in (node.class_id, *node.members)}

    def labels_above(node: Node) -> list[str]:
        """The labels from the parent upwards; empty for a node whose parent is the root."""
        parent = node_of.get(node.parent)
        return [] if parent is None else [parent.label, *labels_above(parent)]

    return {class_id: " < ".join(labels_above(node)) for class_id, node in node_of.items()}


def _graph_of_specific_classes(
    parents: Mapping[str, Sequence[str]], landmarks: Mapping[str, int], removed: list[Removed]
) -> nx.DiGraph[str]:
    """Make the graph of child → parent edges without the classes that are too general (STOP). Each
    edge left out is added to `removed`.

    `parents` maps a class to its direct superclasses; `landmarks` maps a class to the number of its
    own landmarks. The classes in `landmarks` are always nodes: a general class with landmarks of
    its own stays as a node without edges.
    """
    graph: nx.DiGraph[str] = nx.DiGraph()
    graph.add_nodes_from(sorted(landmarks))
    for child, above in sorted(parents.items()):
        for parent in above:
            if parent in STOP or child in STOP:
                removed.append(Removed(child, parent, "too general"))
            elif parent == child:
                removed.append(Removed(child, parent, "its own parent"))
            else:
                graph.add_edge(child, parent)
    return graph


def _condense_cycles(
    graph: nx.DiGraph[str], landmarks: Mapping[str, int], removed: list[Removed]
) -> tuple[nx.DiGraph[str], dict[str, tuple[str, ...]]]:
    """Condense every cycle into one node, named after the member with most landmarks. Returns the
    graph and the classes that each node represents: {node: classes}.

    Wikidata has cycles, in which each class would be above itself. Edges inside a cycle are added
    to `removed`.
    """
    name: dict[str, str] = {}  # class -> node
    members: dict[str, tuple[str, ...]] = {}
    # a strongly connected component: each of its classes is above all the others; a class outside
    # of cycles forms its own
    for part in nx.strongly_connected_components(graph):
        leader = min(part, key=lambda node: (-landmarks.get(node, 0), node))
        members[leader] = tuple(sorted(part))
        name |= dict.fromkeys(part, leader)
    result: nx.DiGraph[str] = nx.DiGraph()
    result.add_nodes_from(sorted(members))
    for child, parent in sorted(graph.edges):
        if name[child] != name[parent]:
            result.add_edge(name[child], name[parent])
        else:
            removed.append(Removed(child, parent, "cycle"))
    return result, members


def _first_kept(node: str, steps: Callable[[str], Iterable[str]], kept: set[str]) -> set[str]:
    """Find the first kept node on every path from `node`. `steps` lists a node's neighbours in the
    chosen direction, upwards or downwards."""
    nearest: set[str] = set()
    seen = {node}
    waiting = [node]
    while waiting:
        for other in steps(waiting.pop()):
            if other in seen:
                continue
            seen.add(other)
            if other in kept:
                nearest.add(other)
            else:
                waiting.append(other)
    return nearest
