"""Measures how well each label fits its cluster: distance, silhouette, margin, and whether it is an
outlier.
"""

import math
from collections.abc import Hashable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hbench_hgldv2.grouping.algorithms import Ids
from hbench_hgldv2.grouping.encode import Vectors


class Clustered(NamedTuple):
    """A row of clusters.csv: a label and its fit.

    `name` is the medoid of the label's cluster. `margin` says how much nearer the centroid of the
    own cluster is than the next centroid. `outlier` says whether even the nearest label is
    unusually far. `coassociation` is how often refits put the label together with the other labels
    of its cluster, nan without refits.
    """

    class_id: str
    cluster: int
    name: str
    distance: float
    silhouette: float
    nearest_cluster: int
    margin: float
    outlier: bool
    coassociation: float = math.nan


def details(
    names: Mapping[str, str], vectors: Vectors, clusters: Mapping[str, int]
) -> list[Clustered]:
    """Measure how well each label fits its cluster. `names` maps class id to label, in the order of
    the vectors (n, D).

    Rows are sorted by cluster. Within a cluster, the most doubtful label (with the lowest
    silhouette) comes first.
    """
    ids = list(names)
    numbers = np.asarray([clusters[i] for i in ids])
    similar = vectors @ centroids(vectors, numbers).T  # (n, k)
    to_own_centre = similar[np.arange(len(ids)), numbers]  # (n,)
    # (n,) each: the nearest other cluster, and how much nearer the own cluster is
    nearest, margins = _next_nearest(similar, numbers)
    # for each cluster, the name of the label nearest to its centroid
    medoids = [names[ids[place]] for place in _medoids(similar, numbers)]
    scores = silhouettes(vectors, numbers.tolist())  # (n,)
    far = outliers(vectors)  # (n,)
    rows = [
        Clustered(
            class_id=class_id,
            cluster=int(numbers[place]),
            name=medoids[numbers[place]],
            distance=float(1 - to_own_centre[place]),
            silhouette=float(scores[place]),
            nearest_cluster=int(nearest[place]),
            margin=float(margins[place]),
            outlier=bool(far[place]),
        )
        for place, class_id in enumerate(ids)
    ]

    return sorted(rows, key=lambda row: (row.cluster, row.silhouette, row.class_id))


def _next_nearest(similar: Vectors, numbers: Ids) -> tuple[Ids, Vectors]:
    """Find the nearest other cluster of each label, and how much nearer the label's own centroid
    is.

    `similar` (n, k) holds the similarities to the centroids, `numbers` (n,) the own clusters. If
    there is only one cluster, it is its own nearest, with a margin of 0.
    """
    places = np.arange(len(numbers))
    own = similar[places, numbers]
    if similar.shape[1] == 1:
        return numbers, np.zeros_like(own)
    others = similar.copy()
    others[places, numbers] = -np.inf
    return others.argmax(axis=1), own - others.max(axis=1)


def _medoids(similar: Vectors, numbers: Ids) -> list[int]:
    """Find, for each cluster, the position of the label nearest to the centroid."""
    inside = numbers[:, None] == np.arange(similar.shape[1])  # (n, k): whether in this cluster
    return [int(place) for place in np.where(inside, similar, -np.inf).argmax(axis=0)]


def silhouettes(vectors: Vectors, clusters: Sequence[Hashable]) -> NDArray[np.float64]:
    """Compute the silhouette of every unit vector under cosine distance: (n, D), n ids -> (n,). It
    is 0 in clusters of one.

    s = (b − a) / max(a, b), where a is the mean distance to the other labels of the same cluster
    and b the mean distance to the nearest other cluster. The mean cosine distance to a cluster is 1
    − x·mean, so O(n·k·D) operations suffice and no pairs are formed.
    """
    ids = numbered(clusters)
    sizes = np.bincount(ids).astype(np.float64)
    if len(sizes) < 2:
        return np.zeros(len(ids))
    exact = vectors.astype(np.float64)
    means = _sums(exact, ids) / sizes[:, None]  # (k, D)
    distances = 1 - exact @ means.T  # (n, k): the mean distance to the labels of each cluster
    rows = np.arange(len(ids))
    # the mean over the own cluster includes the label itself, at distance 0; `a` excludes it
    own_size = sizes[ids]  # (n,)
    a = distances[rows, ids] * own_size / np.maximum(own_size - 1, 1)
    others = distances.copy()
    others[rows, ids] = np.inf  # never the nearest
    b = others.min(axis=1)
    silhouette = (b - a) / np.maximum(np.maximum(a, b), 1e-12)  # equal labels are at distance 0
    return np.where(own_size > 1, silhouette, 0.0)


def numbered(ids: Sequence[Hashable]) -> NDArray[np.int64]:
    """Number group ids 0 … G − 1 in the order of their first appearance."""
    number: dict[Hashable, int] = {}
    return np.asarray([number.setdefault(i, len(number)) for i in ids], np.int64)


def outliers(vectors: Vectors, *, block: int = 2048) -> NDArray[np.bool_]:
    """Mark labels whose similarity to the nearest label is below Tukey's fence, Q1 − 1.5·IQR: (n,
    D) -> bool (n,).

    Similarities are computed for `block` labels at a time to limit memory.
    """
    nearest = np.full(len(vectors), -1.0)
    for start in range(0, len(vectors), block):
        similar = vectors[start : start + block] @ vectors.T
        rows = np.arange(len(similar))
        similar[rows, start + rows] = -np.inf  # no label is its own neighbour
        nearest[start : start + block] = similar.max(axis=1)
    low, high = np.quantile(nearest, [0.25, 0.75])
    return np.asarray(nearest < low - 1.5 * (high - low))


def centroids(vectors: Vectors, clusters: Ids) -> Vectors:
    """Compute the mean direction of each cluster, a unit vector: (n, D), (n,) -> (k, D)."""
    sums = _sums(vectors, clusters)
    lengths = np.linalg.norm(sums, axis=1, keepdims=True)
    return np.asarray(sums / np.maximum(lengths, 1e-12), np.float32)  # opposite vectors sum to 0


def _sums(vectors: NDArray[Any], clusters: Ids) -> NDArray[Any]:
    """Sum the vectors of each cluster: (n, D), (n,) -> (k, D)."""
    sums = np.zeros((int(clusters.max()) + 1, vectors.shape[1]), vectors.dtype)
    np.add.at(sums, clusters, vectors)
    return sums
