"""A sweep: what each number of clusters k would cost and give, so that a curator chooses k with open eyes.

Silhouette is flat over k and inertia has no elbow on such labels; stability and the curator's effort tell more. The
default is k ≈ 1.5–2 × the wanted number of groups: merging whole clusters is cheap, splitting them is not.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import NamedTuple

import numpy as np
from sklearn.metrics import adjusted_rand_score

from pipelines.hgldv2.cluster import Algorithm, Settings, cluster
from pipelines.hgldv2.encode import Vectors
from pipelines.hgldv2.links import Links
from pipelines.hgldv2.quality import agreement_with, lexical_coherence, silhouettes

SHARE = 0.8


class Swept(NamedTuple):
    """One k. `splits` and `merges` are what a curator would have to do to reach the reference; nan without one."""

    k: int
    silhouette: float
    stability: float
    coherence: float
    purity: float
    nmi: float
    ari: float
    splits: float
    merges: float


def sweep(
    names: Sequence[tuple[str, str]],
    vectors: Vectors,
    algorithm: Algorithm,
    settings: Sequence[Settings],
    *,
    links: Links | None = None,
    reference: dict[str, str] | None = None,
    resamples: int = 10,
) -> Iterator[Swept]:
    """One row per settings; `names` are (class id, label) in the order of the vectors; labels outside the reference are
    not judged.
    """
    ids = [class_id for class_id, _ in names]
    for one in settings:
        clusters = cluster(ids, vectors, one, algorithm, links)
        found = [clusters[i] for i in ids]
        judged = [i for i in ids if reference and i in reference]
        yield Swept(
            one.k,
            float(silhouettes(vectors, found).mean()),
            stability(ids, vectors, algorithm, one, resamples=resamples),
            lexical_coherence([label for _, label in names], found),
            *_against(clusters, judged, reference or {}),
        )


def stability(
    ids: Sequence[str], vectors: Vectors, algorithm: Algorithm, settings: Settings, *, resamples: int = 10
) -> float:
    """The mean ARI of all pairs of clusterings fitted to random 80 % of the labels and extended to all by the nearest
    centroid.
    """
    rng = np.random.default_rng(settings.seed)
    size = max(settings.k, round(SHARE * len(ids)))
    fits = []
    for seed in range(resamples):
        chosen = np.sort(rng.choice(len(ids), size, replace=False))
        part = cluster(
            [ids[i] for i in chosen], vectors[chosen], Settings(settings.k, settings.seed + seed, 1), algorithm
        )
        found = np.asarray([part[ids[i]] for i in chosen])
        centres = np.stack([vectors[chosen][found == c].mean(axis=0) for c in range(int(found.max()) + 1)])
        distances = (centres**2).sum(axis=1) - 2 * vectors @ centres.T
        fits.append(distances.argmin(axis=1))
    return (
        float(np.mean([adjusted_rand_score(a, b) for a, b in combinations(fits, 2)])) if resamples > 1 else float("nan")
    )


def _against(clusters: dict[str, int], judged: Sequence[str], reference: dict[str, str]) -> tuple[float, ...]:
    if not judged:
        return (float("nan"),) * 5
    found, groups = [clusters[i] for i in judged], [reference[i] for i in judged]
    measures = agreement_with(found, groups)
    fragments = len(set(zip(found, groups, strict=True)))
    return (
        measures["purity"],
        measures["nmi"],
        measures["ari"],
        fragments - len(set(found)),
        fragments - len(set(groups)),
    )
