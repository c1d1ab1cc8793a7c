"""Clusters with several numbers of clusters k and measures each result, so that a curator can
choose k.

On labels of this kind the silhouette is flat over k and the inertia has no elbow; stability and the
curator's effort are more informative. The default k is 1.5–2 × the desired number of groups,
because merging whole clusters is cheap and splitting them is not.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, NamedTuple

import numpy as np

from hbench.cli import terminal
from hbench.core.errors import UsageError
from hbench_hgldv2.artefact import made_by, read_rows, write_rows
from hbench_hgldv2.curation.replay import groups_in
from hbench_hgldv2.grouping import cluster as clustering
from hbench_hgldv2.grouping.algorithms import Algorithm, ClusterSettings, algorithms
from hbench_hgldv2.grouping.encode import Vectors, load
from hbench_hgldv2.grouping.fit import silhouettes
from hbench_hgldv2.grouping.quality import agreement_with, lexical_coherence
from hbench_hgldv2.labels.label import Label

ABOUT = 0.02  # a difference in stability that ten refits cannot resolve


class Swept(NamedTuple):
    """The measures of one k. `splits` and `merges` are the numbers of steps with which a curator
    would reach the reference; nan without a reference."""

    k: int
    silhouette: float
    stability: float
    coherence: float
    purity: float
    nmi: float
    ari: float
    splits: float
    merges: float


class _Against(NamedTuple):
    """The measures of a sweep that need a reference."""

    purity: float = math.nan
    nmi: float = math.nan
    ari: float = math.nan
    splits: float = math.nan
    merges: float = math.nan


def run(
    work: Path,
    *,
    k: Annotated[str, "Numbers of clusters.", "K,K,…"] = "40,60,80,100,120,140,160,200",
    algorithm: Annotated[str, "kmeans, faiss, ward or average."] = "kmeans",
    seed: clustering.Seed = 0,
    resamples: Annotated[int, "Random 80 % samples for the stability."] = clustering.RESAMPLES,
    reference: Annotated[Path | None, "A mapping.csv to measure against."] = None,
) -> None:
    """Try several numbers of clusters.

    \b
    hbench hgldv2 sweep --k 80,120,160 --algorithm ward
    """
    if not all(number.strip().isdecimal() for number in k.split(",")):
        raise UsageError(
            "--k is a list of numbers of clusters", expected="such as 80,120,160", found=k
        )

    if resamples < 2 and reference is None:
        raise UsageError(
            "without a reference, k is chosen by its stability",
            expected="--resamples of 2 or more",
            found=f"{resamples}",
        )

    labels = read_rows(work / "labels.csv", Label)
    # a number that is given twice is tried once
    settings = [ClusterSettings(number, seed) for number in dict.fromkeys(map(int, k.split(",")))]
    described = {"k": k, "algorithm": algorithm, "seed": seed, "resamples": resamples}
    inputs = [work / "labels.csv", work / "embeddings.npz"]
    if reference:
        inputs.append(reference)
    record = made_by("sweep", inputs, described)
    # a lazy iterator: each setting is clustered when its row is needed below
    swept = sweep(
        [(label.class_id, label.label) for label in labels],
        load(work / "embeddings.npz", labels),
        algorithms[algorithm],
        settings,
        reference=groups_in(reference) if reference else {},
        resamples=resamples,
    )
    with terminal.progress() as bar:
        rows = list(bar.track(swept, total=len(settings), description="k"))
    write_rows(work / "sweep.csv", rows, Swept, record=record, counts={"rows": len(rows)})
    _show(rows)
    terminal.say(proposal(rows))  # recommends a k, in words


def proposal(rows: Sequence[Swept]) -> str:
    """Propose a k and give the reason, as a sentence.

    With a reference, this is the k whose clusters need the fewest splits and merges to become the
    reference's groups. Without one, this is the largest k whose stability is at most ABOUT below
    the highest, since merging clusters is cheaper than splitting them.

    >>> measures = {"silhouette": 0.1, "coherence": 0.5, "purity": math.nan, "nmi": math.nan}
    >>> rest = {**measures, "ari": math.nan, "splits": math.nan, "merges": math.nan}
    >>> proposal([Swept(k=k, stability=s, **rest) for k, s in ((40, 0.9), (80, 0.89), (160, 0.6))])
    'take k = 80: the largest that is about as stable as the best (0.89 of 0.90); merging whole \
clusters is cheaper than splitting them'
    """
    # splits and merges are nan in every row, without a reference, or in none
    if not math.isnan(rows[0].splits):
        # of two k with the same sum, the larger leaves fewer splits
        best = min(rows, key=lambda row: (row.splits + row.merges, -row.k))
        return (
            f"take k = {best.k}: {best.splits:.0f} splits and {best.merges:.0f} merges reach the "
            "reference, the fewest"
        )
    top = max(row.stability for row in rows)
    best = max((row for row in rows if row.stability >= top - ABOUT), key=lambda row: row.k)
    return (
        f"take k = {best.k}: the largest that is about as stable as the best "
        f"({best.stability:.2f} of {top:.2f}); merging whole clusters is cheaper than splitting "
        "them"
    )


def _show(rows: Sequence[Swept]) -> None:
    """Print the measures of every k, without the measures that are nan in all rows."""
    unknown = np.isnan(np.asarray(rows, float)).all(axis=0)
    shown = [name for name, absent in zip(Swept._fields, unknown, strict=True) if not absent]
    table = []
    for row in rows:
        values = [getattr(row, name) for name in shown[1:]]  # all but k, which is an integer
        table.append([str(row.k), *(f"{value:.3f}" for value in values)])
    terminal.show_table(title=None, header=shown, rows=table)


def sweep(
    names: Sequence[tuple[str, str]],
    vectors: Vectors,
    algorithm: Algorithm,
    settings: Sequence[ClusterSettings],
    *,
    reference: Mapping[str, str] = MappingProxyType({}),
    resamples: int = 10,
) -> Iterator[Swept]:
    """Cluster the classes with each of the settings, and yield the measures of the result.

    `names` are the (class id, label) of the rows of `vectors` (N, D). `reference` maps class id to
    group; it is empty if there is no reference. `resamples` is the number of clusterings of random
    samples. How well these agree is the stability.
    """
    ids = [class_id for class_id, _ in names]
    for setting in settings:
        clusters = clustering.cluster(ids, vectors, setting, algorithm)  # class id -> number
        numbers = [clusters[i] for i in ids]
        yield Swept(
            setting.k,
            float(silhouettes(vectors, numbers).mean()),
            clustering.stability(
                list(clustering.refits(ids, vectors, algorithm, setting, resamples=resamples))
            ),
            lexical_coherence([label for _, label in names], numbers),
            *_against(reference, clusters),  # purity and all later fields
        )


def _against(reference: Mapping[str, str], clusters: Mapping[str, int]) -> _Against:
    """Compare clusters (class id -> number) with a reference (class id -> group). Every measure is
    nan where the two have no class in common."""
    pairs = [
        (number, reference[class_id])
        for class_id, number in clusters.items()
        if class_id in reference
    ]
    if not pairs:
        return _Against()

    numbers, groups = zip(*pairs, strict=True)
    measures = agreement_with(numbers, groups)
    # A curator splits every cluster into its fragments (cluster, group), then merges these to the
    # groups. A split makes one fragment more, a merge one fewer.
    fragments = len(set(pairs))
    return _Against(
        purity=measures["purity"],
        nmi=measures["nmi"],
        ari=measures["ari"],
        splits=fragments - len(set(numbers)),
        merges=fragments - len(set(groups)),
    )
