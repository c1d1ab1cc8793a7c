"""Stability: how a clustering holds when it is fitted again to random parts of the labels.

>>> stability([np.array([0, 0, 1, 1]), np.array([1, 1, 0, 0])])
1.0
>>> coassociation(["a", "b", "c", "d"], {"a": 0, "b": 0, "c": 1, "d": 1}, [np.array([0, 1, 1, 1])])
{'a': 0.0, 'b': 0.0, 'c': 1.0, 'd': 1.0}
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import adjusted_rand_score

from pipelines.hgldv2.cluster import Algorithm, Ids, Settings, cluster
from pipelines.hgldv2.encode import Vectors

SHARE = 0.8


def refits(
    ids: Sequence[str], vectors: Vectors, algorithm: Algorithm, settings: Settings, *, resamples: int = 10
) -> Iterator[Ids]:
    """Clusterings int64 (n,) fitted to random 80 % of the labels and extended to all by the nearest centroid."""
    rng = np.random.default_rng(settings.seed)
    size = max(settings.k, round(SHARE * len(ids)))
    for seed in range(resamples):
        chosen = np.sort(rng.choice(len(ids), size, replace=False))
        part = cluster(
            [ids[i] for i in chosen], vectors[chosen], Settings(settings.k, settings.seed + seed, 1), algorithm
        )
        found = np.asarray([part[ids[i]] for i in chosen])
        centres = np.stack([vectors[chosen][found == c].mean(axis=0) for c in range(int(found.max()) + 1)])
        distances = (centres**2).sum(axis=1) - 2 * vectors @ centres.T
        yield distances.argmin(axis=1)


def stability(fits: Sequence[NDArray[np.integer]]) -> float:
    """The mean ARI of all pairs of clusterings of the same labels; nan for fewer than two."""
    pairs = list(combinations(fits, 2))
    return float(np.mean([adjusted_rand_score(a, b) for a, b in pairs])) if pairs else float("nan")


def coassociation(
    ids: Sequence[str], clusters: Mapping[str, int], fits: Sequence[NDArray[np.integer]]
) -> dict[str, float]:
    """How firmly each label sits in its cluster: class id -> the mean, over refits and over the other labels of its
    cluster, of [both are in one cluster of the refit]; 1 for a label alone in its cluster, nan without refits.
    """
    own = np.asarray([clusters[i] for i in ids], np.int64)
    others = np.bincount(own)[own] - 1
    total = np.zeros(len(ids))
    for fit in fits:
        _, pair = np.unique(own * (int(fit.max()) + 1) + fit, return_inverse=True)
        together = np.bincount(pair)[pair] - 1
        total += np.where(others > 0, together / np.maximum(others, 1), 1.0)
    shares = total / len(fits) if fits else np.full(len(ids), np.nan)
    return dict(zip(ids, shares.tolist(), strict=True))
