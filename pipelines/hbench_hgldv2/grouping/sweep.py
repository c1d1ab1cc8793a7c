"""A sweep: what each number of clusters k would cost and give, so that a curator chooses k with open eyes.

Silhouette is flat over k and inertia has no elbow on such labels; stability and the curator's effort tell more. The
default is k ≈ 1.5–2 × the wanted number of groups: merging whole clusters is cheap, splitting them is not.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import adjusted_rand_score

from hbench_hgldv2.grouping.cluster import Algorithm, Ids, Settings, cluster
from hbench_hgldv2.grouping.constraints import Links
from hbench_hgldv2.grouping.encode import Vectors
from hbench_hgldv2.grouping.quality import Recall, agreement_with, lexical_coherence, silhouettes

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
            stability(list(refits(ids, vectors, algorithm, one, resamples=resamples))),
            lexical_coherence([label for _, label in names], found),
            *_against(clusters, judged, reference or {}),
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


def recalls(path: Path, rows: Sequence[Recall]) -> None:
    """Bars of each group's recall, worst on top, with its labels and fragments; the same rows give the same bytes."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context({"svg.hashsalt": "hbench", "svg.fonttype": "none"}):
        figure = Figure(figsize=(8, 1 + 0.22 * len(rows)), layout="constrained")
        axes = figure.add_subplot()
        axes.barh(range(len(rows)), [row.recall for row in rows], color="#2457c5")
        names = [row.group.replace("$", "\\$") for row in rows]  # a dollar would start a formula
        texts = [f"{name} ({row.labels}; {row.fragments})" for name, row in zip(names, rows, strict=True)]
        axes.set_yticks(range(len(rows)), texts, fontsize=8)
        axes.invert_yaxis()
        axes.set_xlim(0, 1)
        axes.set_xlabel("share of the group's labels in one cluster (labels; clusters they lie in)")
        figure.savefig(path, format="svg", metadata={"Date": None})
