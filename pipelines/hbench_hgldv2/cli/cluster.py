"""`cluster`: clusters.csv."""

from __future__ import annotations

from pathlib import Path

import click

from hbench.cli import terminal
from hbench_hgldv2.artefact import is_done, made_by, write_rows
from hbench_hgldv2.cli import options
from hbench_hgldv2.grouping import cluster as clustering
from hbench_hgldv2.grouping.constraints import links_of
from hbench_hgldv2.grouping.sweep import coassociation, refits
from hbench_hgldv2.work_folder import Work

DEFAULT_K = 140  # 1.5–2 × the 78 groups of the release: merging whole clusters is cheap, splitting them is not
RESAMPLES = 10


@click.command()
@click.option(
    "--k", default=DEFAULT_K, show_default=True, help="Number of clusters; 1.5–2 × the wanted number of groups."
)
@click.option(
    "--algorithm", metavar="kmeans|faiss|ward|average", help="By default kmeans, or faiss above 5,000 labels."
)
@options.seed
@click.option("--restarts", default=10, show_default=True, help="Starts of k-means.")
@click.option(
    "--resamples",
    type=click.IntRange(min=0),
    help="Random 80 % samples for the column coassociation; by default 10, or none above 5,000 labels.",
)
@options.decisions
@click.pass_obj
def command(
    work: Work,
    *,
    k: int,
    algorithm: str | None,
    seed: int,
    restarts: int,
    resamples: int | None,
    decisions: Path | None,
) -> None:
    """Cluster the labels.

    \b
    hbench hgldv2 cluster --k 120 --algorithm ward
    """
    run(work, clustering.Settings(k, seed, restarts), algorithm, decisions, resamples=resamples)


def run(
    work: Work,
    settings: clustering.Settings,
    algorithm: str | None = None,
    decisions: Path | None = None,
    *,
    resamples: int | None = None,
) -> None:
    """Make clusters.csv, unless it is there already."""
    labels = work.labels()
    large = len(labels) > clustering.LARGE
    algorithm = algorithm or ("faiss" if large else "kmeans")
    resamples = (0 if large else RESAMPLES) if resamples is None else resamples
    links = links_of(work.decisions(decisions))
    described = {
        "k": settings.k,
        "seed": settings.seed,
        "restarts": settings.restarts,
        "algorithm": algorithm,
        "resamples": resamples,
        "links": [sorted(map(list, links.must)), sorted(map(list, links.cannot))],
    }
    record = made_by("cluster", [work / "labels.csv", work / "embeddings.npz"], described)
    path = work / "clusters.csv"
    if is_done(record, path):
        return
    vectors = work.vectors(labels)
    ids, chosen = [label.class_id for label in labels], clustering.algorithms[algorithm]
    found = clustering.cluster(ids, vectors, settings, chosen, links)
    with terminal.progress() as bar:
        again = refits(ids, vectors, chosen, settings, resamples=resamples)
        held = coassociation(ids, found, list(bar.track(again, total=resamples, description="refits")))
    rows = [
        row._replace(coassociation=held[row.class_id])
        for row in clustering.details({label.class_id: label.label for label in labels}, vectors, found)
    ]
    counts = {"labels": len(rows), "clusters": len(set(found.values())), "outliers": sum(row.outlier for row in rows)}
    write_rows(path, rows, clustering.Clustered, record=record, counts=counts)
    terminal.say(", ".join(f"{count:,} {name}" for name, count in counts.items()))
