"""Clusters labels by their vectors: with k-means, as in the paper, or with linkages.

The result depends on the set of labels, the seed and the settings alone: labels are sorted first,
clusters are numbered by size, and the arithmetic runs on one thread. The must-links and
cannot-links among the decisions are respected.
"""

import math
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import adjusted_rand_score
from threadpoolctl import threadpool_limits

from hbench.cli import terminal
from hbench.core.errors import UsageError
from hbench.core.registry import Registry
from hbench_hgldv2.artefact import is_done, made_by, read_rows, write_rows
from hbench_hgldv2.curation.decisions_file import DecisionsFile, decisions_in
from hbench_hgldv2.grouping.constraints import Links, collapse, links_of, separate
from hbench_hgldv2.grouping.encode import Vectors, load
from hbench_hgldv2.labels.label import Label, members_of

Ids = NDArray[np.int64]
# 1.5–2 × the 78 groups of the release: merging whole clusters is cheap, splitting them is not
DEFAULT_K = 140
RESAMPLES = 10
SHARE = 0.8
Seed = Annotated[int, "Seed of all random choices."]
# with more labels than this scikit-learn's k-means takes minutes, and faiss's seconds
FAISS_FROM = 5_000
FORBIDDEN = 1e3  # a distance far beyond that of any merge of unit vectors


@dataclass(frozen=True)
class ClusterSettings:
    """The settings of a clustering: `k` clusters, the seed, the restarts of k-means."""

    k: int
    seed: int = 0
    restarts: int = 10


class Clustered(NamedTuple):
    """A label in clusters.csv: `name` is the medoid of its cluster, `margin` how much nearer its
    centroid is than the next.

    `outlier`: whether even its nearest label is unusually far. `coassociation`: how often refits
    put it together with the other labels of its cluster; nan without refits.
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


Algorithm = Callable[
    [Vectors, NDArray[np.float32], ClusterSettings, Sequence[tuple[int, int]]], Ids
]
algorithms: Registry[Algorithm] = Registry("clustering algorithm")


def run(
    work: Path,
    *,
    k: Annotated[int, "Number of clusters; 1.5–2 × the wanted number of groups."] = DEFAULT_K,
    algorithm: Annotated[
        str | None, "By default kmeans, or faiss above 5,000 labels.", "kmeans|faiss|ward|average"
    ] = None,
    seed: Seed = 0,
    restarts: Annotated[int, "Starts of k-means."] = 10,
    resamples: Annotated[
        int | None,
        "Random 80 % samples for the column coassociation; by default 10, or none above 5,000 "
        "labels.",
    ] = None,
    decisions: DecisionsFile = None,
) -> None:
    """Cluster the labels.

    \b
    hbench hgldv2 cluster --k 120 --algorithm ward
    """
    labels = read_rows(work / "labels.csv", Label)
    large = len(labels) > FAISS_FROM
    algorithm = algorithm or ("faiss" if large else "kmeans")
    if resamples is None:
        resamples = 0 if large else RESAMPLES
    links = links_of(decisions_in(work, decisions))
    described = {
        "k": k,
        "seed": seed,
        "restarts": restarts,
        "algorithm": algorithm,
        "resamples": resamples,
        "links": [sorted(map(list, links.must)), sorted(map(list, links.cannot))],
    }
    record = made_by("cluster", [work / "labels.csv", work / "embeddings.npz"], described)
    if is_done(record, work / "clusters.csv"):
        return

    rows = _clustered(
        labels,
        load(work / "embeddings.npz", labels),
        ClusterSettings(k, seed, restarts),
        algorithms[algorithm],
        links=links,
        resamples=resamples,
    )
    counts = {
        "labels": len(rows),
        "clusters": len({row.cluster for row in rows}),
        "outliers": sum(row.outlier for row in rows),
    }
    write_rows(work / "clusters.csv", rows, Clustered, record=record, counts=counts)
    terminal.say(", ".join(f"{count:,} {name}" for name, count in counts.items()))


def _clustered(
    labels: Sequence[Label],
    vectors: Vectors,
    settings: ClusterSettings,
    algorithm: Algorithm,
    *,
    links: Links,
    resamples: int,
) -> list[Clustered]:
    """Cluster the labels, and measure how well each fits its cluster, also in refits to samples."""
    ids = [label.class_id for label in labels]
    clusters = cluster(ids, vectors, settings, algorithm, links)

    with terminal.progress() as bar:
        fits = refits(ids, vectors, algorithm, settings, resamples=resamples)
        together = coassociation(
            ids, clusters, list(bar.track(fits, total=resamples, description="refits"))
        )

    rows = details({label.class_id: label.label for label in labels}, vectors, clusters)
    return [row._replace(coassociation=together[row.class_id]) for row in rows]


def read_clusters(work: Path) -> dict[str, int]:
    """Read class -> cluster from clusters.csv."""
    return {row.class_id: row.cluster for row in read_rows(work / "clusters.csv", Clustered)}


def cluster(
    class_ids: Sequence[str],
    vectors: Vectors,
    settings: ClusterSettings,
    algorithm: Algorithm,
    links: Links | None = None,
) -> dict[str, int]:
    """Cluster n class ids by their unit vectors (n, D); return class id -> cluster 0 … k−1, the
    largest first.

    Must-linked labels are one point, their mean direction, with their number as weight. Raises
    UsageError when k is not in 1 … n, where must-linked labels count once, when the cannot-links
    need more clusters, or without a start.
    """
    order = np.argsort(np.asarray(class_ids))  # so that the given order does not tell
    ids = [class_ids[i] for i in order]
    nodes, apart = collapse(ids, links or Links())  # (n,): the point of each label; pairs of points
    points = _centroids(vectors[order], nodes)
    weights = np.bincount(nodes).astype(np.float32)
    if not 1 <= settings.k <= len(points):
        raise UsageError(
            "this many clusters cannot be made",
            expected=f"1 … {len(points)}",
            found=f"k = {settings.k}",
        )
    if settings.restarts < 1:
        raise UsageError(
            "k-means has to start", expected="--restarts 1 or more", found=f"{settings.restarts}"
        )

    with threadpool_limits(limits=1):
        of_points = separate(points, algorithm(points, weights, settings, apart), apart)
    members = members_of(dict(zip(ids, of_points[nodes].tolist(), strict=True))).values()
    largest_first = sorted(members, key=lambda part: (-len(part), part[0]))
    return {class_id: number for number, part in enumerate(largest_first) for class_id in part}


def details(
    names: Mapping[str, str], vectors: Vectors, clusters: Mapping[str, int]
) -> list[Clustered]:
    """Measure how well each label fits its cluster: `names` are class id -> label, in the order of
    the vectors (n, D).

    Rows are sorted by cluster, with the most doubtful label (lowest silhouette) first.
    """
    ids = list(names)
    numbers = np.asarray([clusters[i] for i in ids])
    similar = vectors @ _centroids(vectors, numbers).T  # (n, k)
    to_centre = similar[np.arange(len(ids)), numbers]
    nearest, margins = _next_nearest(similar, numbers)
    medoids = [names[ids[place]] for place in _medoids(similar, numbers)]
    scores = silhouettes(vectors, numbers.tolist())
    far = outliers(vectors)
    rows = [
        Clustered(
            class_id,
            int(numbers[place]),
            medoids[numbers[place]],
            distance=float(1 - to_centre[place]),
            silhouette=float(scores[place]),
            nearest_cluster=int(nearest[place]),
            margin=float(margins[place]),
            outlier=bool(far[place]),
        )
        for place, class_id in enumerate(ids)
    ]

    return sorted(rows, key=lambda row: (row.cluster, row.silhouette, row.class_id))


def _next_nearest(similar: Vectors, numbers: Ids) -> tuple[Ids, Vectors]:
    """Find the nearest other cluster of each label, and how much nearer its own centroid is.

    `similar` (n, k) are the similarities to the centroids, `numbers` (n,) the own clusters. A
    single cluster is its own nearest, by a margin of 0.
    """
    places = np.arange(len(numbers))
    own = similar[places, numbers]
    if similar.shape[1] == 1:
        return numbers, own - own
    others = similar.copy()
    others[places, numbers] = -np.inf
    return others.argmax(axis=1), own - others.max(axis=1)


def _medoids(similar: Vectors, numbers: Ids) -> list[int]:
    """Find the place of the label that is nearest to the centroid of each cluster."""
    inside = numbers[:, None] == np.arange(similar.shape[1])  # (n, k): whether in this cluster
    return [int(place) for place in np.where(inside, similar, -np.inf).argmax(axis=0)]


def silhouettes(vectors: Vectors, clusters: Sequence[Hashable]) -> NDArray[np.float64]:
    """Compute the silhouette of every unit vector under cosine distance: (n, D), n ids -> (n,); 0
    in clusters of one.

    s = (b − a) / max(a, b), where a and b are the mean distances to the others in the same cluster
    and to the nearest other cluster. The mean cosine distance to a cluster is 1 − x·mean, so
    O(n·k·D) operations suffice and no pairs are formed.
    """
    ids = numbered(clusters)
    sizes = np.bincount(ids).astype(np.float64)
    if len(sizes) < 2:
        return np.zeros(len(ids))
    exact = vectors.astype(np.float64)
    distances = 1 - exact @ (_sums(exact, ids) / sizes[:, None]).T  # (n, k): mean, to each cluster
    rows = np.arange(len(ids))
    # the mean over a label's own cluster counts itself, at distance 0: a is over the others alone
    within = distances[rows, ids] * sizes[ids] / np.maximum(sizes[ids] - 1, 1)
    others = distances.copy()
    others[rows, ids] = np.inf
    nearest = others.min(axis=1)
    return np.where(
        sizes[ids] > 1, (nearest - within) / np.maximum(np.maximum(within, nearest), 1e-12), 0.0
    )


def numbered(ids: Sequence[Hashable]) -> NDArray[np.int64]:
    """Number group ids 0 … G−1, by first appearance."""
    number: dict[Hashable, int] = {}
    return np.asarray([number.setdefault(i, len(number)) for i in ids], np.int64)


def outliers(vectors: Vectors, *, block: int = 2048) -> NDArray[np.bool_]:
    """Mark labels whose similarity to the nearest label is below Tukey's fence, Q1 − 1.5·IQR: (n,
    D) -> bool (n,).
    """
    nearest = np.full(len(vectors), -1.0)
    for start in range(0, len(vectors), block):
        similar = vectors[start : start + block] @ vectors.T
        rows = np.arange(len(similar))
        similar[rows, start + rows] = -np.inf  # no label is its own neighbour
        nearest[start : start + block] = similar.max(axis=1)
    low, high = np.quantile(nearest, [0.25, 0.75])
    return np.asarray(nearest < low - 1.5 * (high - low))


def refits(
    ids: Sequence[str],
    vectors: Vectors,
    algorithm: Algorithm,
    settings: ClusterSettings,
    *,
    resamples: int = 10,
) -> Iterator[Ids]:
    """Yield clusterings int64 (n,) fitted to random 80 % of the labels and extended to all by the
    nearest centroid.
    """
    rng = np.random.default_rng(settings.seed)
    size = max(settings.k, round(SHARE * len(ids)))
    for seed in range(resamples):
        chosen = np.sort(rng.choice(len(ids), size, replace=False))
        part = cluster(
            [ids[i] for i in chosen],
            vectors[chosen],
            ClusterSettings(settings.k, settings.seed + seed, 1),
            algorithm,
        )
        numbers = np.asarray([part[ids[i]] for i in chosen])
        centres = np.stack(
            [vectors[chosen][numbers == c].mean(axis=0) for c in range(int(numbers.max()) + 1)]
        )
        # squared Euclidean distances less |x|², which is the same for all centres
        distances = (centres**2).sum(axis=1) - 2 * vectors @ centres.T
        yield distances.argmin(axis=1)


def stability(fits: Sequence[NDArray[np.integer]]) -> float:
    """Compute the mean ARI of all pairs of clusterings of the same labels; nan for fewer than
    two."""
    pairs = list(combinations(fits, 2))
    return float(np.mean([adjusted_rand_score(a, b) for a, b in pairs])) if pairs else float("nan")


def coassociation(
    ids: Sequence[str], clusters: Mapping[str, int], fits: Sequence[NDArray[np.integer]]
) -> dict[str, float]:
    """Compute how often refits put a label together with the other labels of its cluster: class id
    -> share.

    The share is the mean over refits and over those labels; 1 for a label alone in its cluster, nan
    without refits.
    """
    numbers = np.asarray([clusters[i] for i in ids], np.int64)
    others = np.bincount(numbers)[numbers] - 1  # (n,): labels with it in its cluster
    total = np.zeros(len(ids))
    for fit in fits:
        # together: those of them that are with it in the refit's cluster, too
        _, pair = np.unique(numbers * (int(fit.max()) + 1) + fit, return_inverse=True)
        together = np.bincount(pair)[pair] - 1
        total += np.where(others > 0, together / np.maximum(others, 1), 1.0)
    shares = total / len(fits) if fits else np.full(len(ids), np.nan)
    return dict(zip(ids, shares.tolist(), strict=True))


def dendrogram(
    vectors: Vectors, method: Literal["ward", "average"], apart: Sequence[tuple[int, int]] = ()
) -> NDArray[np.float64]:
    """Compute the merges of a linkage ("ward": Euclidean, "average": cosine distances) of n points,
    as scipy writes them: (n, D) -> (n − 1, 4). Pairs that must stay apart (`apart`) are so far from
    each other that they are merged last.
    """
    import fastcluster

    distances = _upper_triangle_of_distances(vectors, method)
    n = len(vectors)
    for i, j in map(sorted, apart):  # the place of the pair i < j in a triangle row by row
        distances[n * i - i * (i + 1) // 2 + j - i - 1] = FORBIDDEN
    return np.asarray(fastcluster.linkage(distances, method, preserve_input=False))


@algorithms.register("kmeans")
def kmeans(
    points: Vectors,
    weights: NDArray[np.float32],
    settings: ClusterSettings,
    apart: Sequence[tuple[int, int]],
) -> Ids:
    """Run Lloyd's k-means of scikit-learn; the best of several k-means++ starts."""
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
    """Run Lloyd's k-means of faiss, for many labels."""
    import faiss

    model = faiss.Kmeans(
        points.shape[1],
        settings.k,
        niter=50,
        nredo=settings.restarts,
        seed=settings.seed + 1,
        min_points_per_centroid=1,
        max_points_per_centroid=len(points),
    )
    model.train(points, weights=weights)
    return np.asarray(model.index.search(points, 1)[1][:, 0], np.int64)


def _cut_linkage(
    points: Vectors,
    weights: NDArray[np.float32],
    settings: ClusterSettings,
    apart: Sequence[tuple[int, int]],
    *,
    method: Literal["ward", "average"],
) -> Ids:
    """Cut a linkage of the points (n, D) into k clusters, 0 … k−1; a linkage knows no weights."""
    from scipy.cluster.hierarchy import fcluster

    from_one = fcluster(dendrogram(points, method, apart), settings.k, "maxclust")
    return np.asarray(from_one, np.int64) - 1


algorithms.register("ward")(partial(_cut_linkage, method="ward"))
algorithms.register("average")(partial(_cut_linkage, method="average"))


def _upper_triangle_of_distances(
    vectors: Vectors, method: str, *, block: int = 256
) -> NDArray[np.float64]:
    """Compute the upper triangle of the distances of unit vectors (n, D), row by row without its
    diagonal: (n·(n − 1)/2,), in blocks, without the whole matrix in memory.
    """
    position = 0
    result = np.empty(len(vectors) * (len(vectors) - 1) // 2)
    for start in range(0, len(vectors), block):
        cosine = np.clip(1 - vectors[start : start + block] @ vectors[start:].T, 0, None)
        distances = np.sqrt(2 * cosine) if method == "ward" else cosine  # |x − y|² = 2 − 2·x·y
        for i, row in enumerate(distances, start=1):  # row i of a block begins at its first column
            result[position : position + len(row) - i] = row[i:]
            position += len(row) - i
    return result


def _centroids(vectors: Vectors, clusters: Ids) -> Vectors:
    """The mean direction of each cluster, a unit vector: (n, D), (n,) -> (k, D)."""
    sums = _sums(vectors, clusters)
    return np.asarray(
        sums / np.maximum(np.linalg.norm(sums, axis=1, keepdims=True), 1e-12), np.float32
    )


def _sums(vectors: NDArray[Any], clusters: Ids) -> NDArray[Any]:
    """Sum the vectors of each cluster: (n, D), (n,) -> (k, D)."""
    sums = np.zeros((int(clusters.max()) + 1, vectors.shape[1]), vectors.dtype)
    np.add.at(sums, clusters, vectors)
    return sums
