"""Defines the clustering algorithms by name: the k-means of scikit-learn and of faiss, and
linkages.

An algorithm receives points (unit vectors, float32 (n, D)), their weights (n,), the settings, and
the pairs of points that must stay apart. It returns the cluster 0 … k − 1 of every point, int64
(n,). k-means ignores such pairs; `cluster` separates them afterwards. A linkage ignores the
weights.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from hbench.core.registry import Registry
from hbench_hgldv2.grouping.encode import Vectors

Ids = NDArray[np.int64]
FORBIDDEN = 1e3  # a distance far beyond that of any merge of unit vectors


@dataclass(frozen=True)
class ClusterSettings:
    """The settings of a clustering: the number `k` of clusters, the seed, and the number of
    restarts of k-means."""

    k: int
    seed: int = 0
    restarts: int = 10


Algorithm = Callable[
    [Vectors, NDArray[np.float32], ClusterSettings, Sequence[tuple[int, int]]], Ids
]
algorithms: Registry[Algorithm] = Registry("clustering algorithm")


def dendrogram(
    vectors: Vectors, method: Literal["ward", "average"], apart: Sequence[tuple[int, int]] = ()
) -> NDArray[np.float64]:
    """Compute the merges of a linkage of n points as scipy's linkage matrix: (n, D) -> (n − 1, 4).
    The method "ward" uses Euclidean distances, "average" cosine distances.

    `apart` are pairs of rows of `vectors` that must stay apart. They get a distance so large that
    they are merged last.
    """
    import fastcluster

    distances = _upper_triangle_of_distances(vectors, method)
    n = len(vectors)
    for i, j in map(sorted, apart):
        # the flat triangle holds the n − 1 distances of row 0, the n − 2 of row 1, …; row i starts
        # with the distance to i + 1
        row_start = n * i - i * (i + 1) // 2
        distances[row_start + j - i - 1] = FORBIDDEN
    # fastcluster may overwrite the distances, which are not needed again; a copy would cost memory
    return np.asarray(fastcluster.linkage(distances, method, preserve_input=False))


@algorithms.register("kmeans")
def kmeans(
    points: Vectors,
    weights: NDArray[np.float32],
    settings: ClusterSettings,
    apart: Sequence[tuple[int, int]],
) -> Ids:
    """Run scikit-learn's Lloyd k-means. Return the cluster 0 … k − 1 of every point (n,), from the
    best of several k-means++ starts.

    `weights` (n,) are the weights of the points (n, D). `apart` is ignored: `cluster` separates
    these pairs afterwards.
    """
    from sklearn.cluster import KMeans

    model = KMeans(settings.k, n_init=settings.restarts, random_state=settings.seed)
    return np.asarray(model.fit_predict(points, sample_weight=weights), np.int64)


@algorithms.register("faiss")
def faiss_kmeans(
    points: Vectors,
    weights: NDArray[np.float32],
    settings: ClusterSettings,
    apart: Sequence[tuple[int, int]],
) -> Ids:
    """Run faiss's Lloyd k-means, which is fast for many labels. Return the cluster 0 … k − 1 of
    every point (n,).

    `weights` (n,) are the weights of the points (n, D). `apart` is ignored: `cluster` separates
    these pairs afterwards.
    """
    import faiss

    model = faiss.Kmeans(
        points.shape[1],
        settings.k,
        niter=50,  # iterations
        nredo=settings.restarts,
        # any seed would do; without the 1, existing clusterings could not be made again
        seed=settings.seed + 1,
        # use every point: by default faiss takes a sample of many points, and warns of few points
        min_points_per_centroid=1,
        max_points_per_centroid=len(points),
    )
    model.train(points, weights=weights)
    _distances, nearest_centroid = model.index.search(points, 1)  # each (n, 1)
    return np.asarray(nearest_centroid[:, 0], np.int64)


def _cut_linkage(
    points: Vectors,
    weights: NDArray[np.float32],
    settings: ClusterSettings,
    apart: Sequence[tuple[int, int]],
    *,
    method: Literal["ward", "average"],
) -> Ids:
    """Cut a linkage of the points (n, D) into the clusters 0 … k − 1. A linkage ignores the
    weights. `apart`: pairs of rows of `points` that must not share a cluster. They get a distance
    so large that they are merged last, so they are apart unless k is too small for that."""
    from scipy.cluster.hierarchy import fcluster

    from_one = fcluster(dendrogram(points, method, apart), settings.k, "maxclust")
    return np.asarray(from_one, np.int64) - 1


algorithms.register("ward")(partial(_cut_linkage, method="ward"))
algorithms.register("average")(partial(_cut_linkage, method="average"))


def _upper_triangle_of_distances(
    vectors: Vectors, method: str, *, block: int = 256
) -> NDArray[np.float64]:
    """Compute the distances between unit vectors (n, D), the upper triangle without its diagonal,
    row by row: (n·(n − 1)/2,). It is computed in blocks of rows, so the whole matrix is never in
    memory."""
    filled = 0
    result = np.empty(len(vectors) * (len(vectors) - 1) // 2)
    for start in range(0, len(vectors), block):
        # rounding could make the distance of equal vectors negative
        cosine = np.clip(1 - vectors[start : start + block] @ vectors[start:].T, 0, None)
        distances = np.sqrt(2 * cosine) if method == "ward" else cosine  # |x − y|² = 2 − 2·x·y
        # the columns of a block start at the block's first row: column 0 is the distance of that
        # row to itself, so in row r of the block the triangle begins at column r + 1
        for diagonal, row in enumerate(distances):
            right = row[diagonal + 1 :]
            result[filled : filled + len(right)] = right
            filled += len(right)
    return result
