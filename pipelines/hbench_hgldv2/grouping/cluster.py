"""Clusters labels by their vectors: with k-means, as in the paper, or with linkages.

The result depends only on the set of labels, the seed and the settings: labels are sorted first,
clusters are numbered by size, and the arithmetic runs on one thread. The must-links and
cannot-links among the decisions are respected.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import adjusted_rand_score
from threadpoolctl import threadpool_limits

from hbench.cli import terminal
from hbench.core.errors import UsageError
from hbench_hgldv2.artefact import is_done, made_by, read_rows, write_rows
from hbench_hgldv2.curation.decisions_file import DecisionsFile, decisions_in
from hbench_hgldv2.grouping.algorithms import Algorithm, ClusterSettings, Ids, algorithms
from hbench_hgldv2.grouping.constraints import Links, collapse, links_of, separate
from hbench_hgldv2.grouping.encode import Vectors, load
from hbench_hgldv2.grouping.fit import Clustered, centroids, details
from hbench_hgldv2.labels.label import Label, members_of

# 1.5–2 × the 78 groups of the release: merging whole clusters takes a curator little time,
# splitting them much
DEFAULT_K = 140
RESAMPLES = 10  # number of samples of the labels on which a clustering is repeated
SHARE = 0.8  # share of the labels in such a sample
Seed = Annotated[int, "Seed of all random choices."]
# above this number of labels scikit-learn's k-means takes minutes and faiss's takes seconds
FAISS_FROM = 5_000


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
    # above FAISS_FROM labels scikit-learn's k-means and its refits to samples would take too
    # long
    algorithm = algorithm or ("faiss" if large else "kmeans")
    if resamples is None:
        resamples = 0 if large else RESAMPLES
    # sets of class ids that decisions put into one group (must) or into different groups (cannot)
    links = links_of(decisions_in(work, decisions))
    described = {
        "k": k,
        "seed": seed,
        "restarts": restarts,
        "algorithm": algorithm,
        "resamples": resamples,
        # sorted, because the order of the decisions makes no difference
        "links": [sorted(map(list, links.must)), sorted(map(list, links.cannot))],
    }
    record = made_by("cluster", [work / "labels.csv", work / "embeddings.npz"], described)
    # clusters.csv is intact and was made from the same files with the same settings
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
    """Cluster the labels, and measure how well each label fits its cluster, also in `resamples`
    refits to samples. Return a row per label. `vectors` (n, D) are the labels' unit vectors."""
    ids = [label.class_id for label in labels]
    clusters = cluster(ids, vectors, settings, algorithm, links)

    with terminal.progress() as bar:
        fits = refits(ids, vectors, algorithm, settings, resamples=resamples)
        # class id -> how often refits put the label together with the labels of its cluster
        together = coassociation(
            ids, clusters, list(bar.track(fits, total=resamples, description="refits"))
        )

    rows = details({label.class_id: label.label for label in labels}, vectors, clusters)
    return [row._replace(coassociation=together[row.class_id]) for row in rows]


def read_clusters(work: Path) -> dict[str, int]:
    """Read {class: cluster} from clusters.csv."""
    return {row.class_id: row.cluster for row in read_rows(work / "clusters.csv", Clustered)}


def cluster(
    class_ids: Sequence[str],
    vectors: Vectors,
    settings: ClusterSettings,
    algorithm: Algorithm,
    links: Links | None = None,
) -> dict[str, int]:
    """Cluster n class ids by their unit vectors (n, D). Return class id -> cluster 0 … k − 1;
    cluster 0 is the largest.

    Must-linked labels become one point: their mean direction, weighted by their number. Raises
    UsageError when k is not in 1 … n (must-linked labels count once), when the cannot-links need
    more clusters, or when `settings.restarts` is below 1.
    """
    order = np.argsort(np.asarray(class_ids))  # the given order must make no difference
    ids = [class_ids[i] for i in order]
    # (n,): the point of each label, and the pairs of points that must be apart
    nodes, apart = collapse(ids, links or Links())
    # the mean direction of the labels of each point
    points = centroids(vectors[order], nodes)
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

    # one thread: a sum in another order could move a label to another cluster
    with threadpool_limits(limits=1):
        # (points,): the clusters. Algorithms that merge points avoid joining pairs `apart`, unless
        # k is too small; k-means ignores them. Pairs that share a cluster all the same are
        # separated afterwards
        of_points = separate(points, algorithm(points, weights, settings, apart), apart)
    members = members_of(dict(zip(ids, of_points[nodes].tolist(), strict=True))).values()
    # among clusters of one size, the one with the alphabetically first id comes first
    largest_first = sorted(members, key=lambda part: (-len(part), part[0]))
    return {class_id: number for number, part in enumerate(largest_first) for class_id in part}


def refits(
    ids: Sequence[str],
    vectors: Vectors,
    algorithm: Algorithm,
    settings: ClusterSettings,
    *,
    resamples: int = 10,
) -> Iterator[Ids]:
    """Yield `resamples` clusterings of the labels, each int64 (n,): the cluster of every label.

    A clustering is fitted to a random 80 % of the labels from a single start. Every label, in the
    sample or not, is then put into the cluster with the nearest centroid. Links are not used, so
    the agreement of the clusterings comes from the vectors alone.

    `vectors` (n, D) are the unit vectors of the class ids `ids`.
    """
    rng = np.random.default_rng(settings.seed)
    size = max(settings.k, round(SHARE * len(ids)))  # k clusters need at least k labels
    for resample in range(resamples):
        chosen = np.sort(rng.choice(len(ids), size, replace=False))
        # class id -> cluster, for the labels in the sample
        part = cluster(
            [ids[i] for i in chosen],
            vectors[chosen],
            # each clustering has its own seed, and a single start
            ClusterSettings(k=settings.k, seed=settings.seed + resample, restarts=1),
            algorithm,
        )
        numbers = np.asarray([part[ids[i]] for i in chosen])
        sample = vectors[chosen]
        clusters = range(int(numbers.max()) + 1)
        centres = np.stack([sample[numbers == c].mean(axis=0) for c in clusters])  # (k, D)
        # squared Euclidean distances without |x|², which is the same for all centres
        distances = (centres**2).sum(axis=1) - 2 * vectors @ centres.T  # (n, k)
        yield distances.argmin(axis=1)


def stability(fits: Sequence[NDArray[np.integer]]) -> float:
    """Compute the mean adjusted Rand index (ARI) over all pairs of clusterings of the same labels;
    nan for fewer than two clusterings."""
    if len(fits) < 2:
        return float("nan")
    return float(np.mean([adjusted_rand_score(a, b) for a, b in combinations(fits, 2)]))


def coassociation(
    ids: Sequence[str], clusters: Mapping[str, int], fits: Sequence[NDArray[np.integer]]
) -> dict[str, float]:
    """Compute how often refits put a label together with the other labels of its cluster. Return
    {class id: share}.

    The share is the mean over the refits, and over the other labels of the cluster. It is 1 for a
    label alone in its cluster, and nan without refits. Each of `fits` (n,) holds the clusters of
    the labels `ids` according to one refit.
    """
    numbers = np.asarray([clusters[i] for i in ids], np.int64)
    others = np.bincount(numbers)[numbers] - 1  # (n,): the number of other labels in the cluster
    total = np.zeros(len(ids))
    for fit in fits:
        # one number for each combination of a cluster and a cluster of the refit
        fit_clusters = int(fit.max()) + 1
        _, pair = np.unique(numbers * fit_clusters + fit, return_inverse=True)
        # (n,): the number of other labels that share both clusters with the label
        together = np.bincount(pair)[pair] - 1
        total += np.where(others > 0, together / np.maximum(others, 1), 1.0)
    shares = total / len(fits) if fits else np.full(len(ids), np.nan)
    return dict(zip(ids, shares.tolist(), strict=True))
