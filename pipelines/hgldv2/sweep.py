"""A sweep: what each number of clusters k would cost and give, so that a curator chooses k with open eyes.

Silhouette is flat over k and inertia has no elbow on such labels; stability and the curator's effort tell more. The
default is k ≈ 1.5–2 × the wanted number of groups: merging whole clusters is cheap, splitting them is not.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from pipelines.hgldv2.cluster import Algorithm, Settings, cluster
from pipelines.hgldv2.encode import Vectors
from pipelines.hgldv2.links import Links
from pipelines.hgldv2.quality import agreement_with, lexical_coherence, silhouettes
from pipelines.hgldv2.stability import refits, stability


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
