"""Applies the links of curators: labels that must share a cluster, and labels that must not.

>>> nodes, apart = collapse(["a", "b", "c"], Links(must=(("a", "c"),), cannot=(("a", "b"),)))
>>> nodes.tolist(), apart
([0, 1, 0], [(0, 1)])
"""

from collections.abc import Iterable, Sequence
from itertools import combinations, pairwise
from typing import NamedTuple

import networkx as nx
import numpy as np
from numpy.typing import NDArray

from hbench.core.errors import ConfigError, UsageError
from hbench_hgldv2.curation.decisions import CannotLink, Decisions, MustLink


class Links(NamedTuple):
    """Sets of labels to keep together, and sets of labels to keep apart pairwise."""

    must: tuple[tuple[str, ...], ...] = ()
    cannot: tuple[tuple[str, ...], ...] = ()


def links_of(decisions: Decisions) -> Links:
    """Collect the links among the decisions."""
    listed = decisions.decisions
    return Links(
        tuple(d.labels for d in listed if isinstance(d, MustLink)),
        tuple(d.labels for d in listed if isinstance(d, CannotLink)),
    )


def collapse(
    class_ids: Sequence[str], links: Links
) -> tuple[NDArray[np.int64], list[tuple[int, int]]]:
    """Merge labels that must be linked. Return the node of each label, int64 (n,), and the sorted
    pairs of nodes that must stay apart. Must-linked labels share a node, a point of the clustering.

    `links` holds sets of class ids to keep together, and sets to keep apart pairwise. Nodes are
    numbered from 0 by the alphabetically first label of each node. Labels outside `class_ids` are
    ignored, since they may no longer be in the data. Raises ConfigError for labels that both must
    and must not share a cluster.
    """
    graph: nx.Graph[str] = nx.Graph()
    graph.add_nodes_from(class_ids)
    known = set(class_ids)
    for together in links.must:
        present = [i for i in together if i in known]
        # linking each label to the next one joins the whole set, as all pairs would
        graph.add_edges_from(pairwise(present))

    numbers: dict[str, int] = {}  # label -> its node
    parts = sorted(
        (sorted(part) for part in nx.connected_components(graph)), key=lambda part: part[0]
    )
    for number, part in enumerate(parts):
        numbers |= dict.fromkeys(part, number)
    apart: set[tuple[str, str]] = set()  # pairs of labels
    for group in links.cannot:
        present = [i for i in group if i in known]
        apart.update(combinations(present, 2))
    clash = [pair for pair in sorted(apart) if numbers[pair[0]] == numbers[pair[1]]]
    if clash:
        raise ConfigError(
            "labels must be linked and must not be",
            found=" and ".join(clash[0]),
            fix="remove one of the decisions",
        )

    pairs = {(min(numbers[a], numbers[b]), max(numbers[a], numbers[b])) for a, b in apart}
    return np.asarray([numbers[i] for i in class_ids], np.int64), sorted(pairs)


def separate(
    points: NDArray[np.float32], clusters: NDArray[np.int64], apart: Iterable[tuple[int, int]]
) -> NDArray[np.int64]:
    """Separate the pairs that must be apart but share a cluster: of the two points, the one that
    fits less well moves to the nearest allowed cluster.

    k-means ignores such pairs, so they are separated after it. Raises UsageError when no cluster is
    allowed.

    Args:
        points: float32 (n, D).
        clusters: int64 (n,), numbers 0 … k − 1.
        apart: pairs of points, as rows of `points`.

    Returns:
        int64 (n,), the clusters after all moves.
    """
    result = clusters.copy()
    graph = nx.Graph(list(apart))  # an edge for each pair
    centres = np.stack([points[clusters == c].mean(axis=0) for c in range(int(clusters.max()) + 1)])
    for a, b in sorted(graph.edges):
        if result[a] != result[b]:
            continue
        # the similarity of each of the two points to the centre of their cluster; the less similar
        # one moves
        fits = {node: float(points[node] @ centres[result[node]]) for node in (a, b)}
        loser = min(fits, key=lambda node: (fits[node], node))
        # the clusters of all points that must be apart from the moving point
        taken = {int(result[other]) for other in graph[loser]}
        nearest_first = np.argsort(-(centres @ points[loser]), kind="stable").tolist()
        free = [c for c in nearest_first if c not in taken]
        if not free:
            raise UsageError(
                "the labels that must not be linked need more clusters",
                expected=f"k above {len(centres)}",
                found=f"k = {len(centres)}",
            )
        result[loser] = free[0]

    return result
