"""`cluster`: clusters.csv."""

from __future__ import annotations

from pathlib import Path

import click

from hbench.cli import terminal
from pipelines.hgldv2 import cluster as clustering
from pipelines.hgldv2.artefact import is_current, made_by, write_rows
from pipelines.hgldv2.links import links_of
from pipelines.hgldv2.work import Work

WANTED = 78  # super-categories of the release
DEFAULT_K = 140  # 1.5–2 × that: merging whole clusters is cheap, splitting them is not


@click.command(short_help="group the labels by their vectors")
@click.option(
    "--k", default=DEFAULT_K, show_default=True, help="Number of clusters; 1.5–2 × the wanted number of groups."
)
@click.option(
    "--algorithm", metavar="kmeans|faiss|ward|average", help="By default kmeans, or faiss above 5,000 labels."
)
@click.option("--seed", default=0, show_default=True)
@click.option("--restarts", default=10, show_default=True, help="Starts of k-means.")
@click.option(
    "--decisions", type=click.Path(path_type=Path, exists=True), help="Respect the must- and cannot-links in it."
)
@click.pass_obj
def command(work: Work, *, k: int, algorithm: str | None, seed: int, restarts: int, decisions: Path | None) -> None:
    """Cluster the labels.

    \b
    python -m pipelines.hgldv2 cluster --k 120 --algorithm ward
    """
    run(work, clustering.Settings(k, seed, restarts), algorithm, decisions)


def run(work: Work, settings: clustering.Settings, algorithm: str | None = None, decisions: Path | None = None) -> None:
    """Make clusters.csv, unless it is there already."""
    labels = work.labels()
    algorithm = algorithm or ("kmeans" if len(labels) <= clustering.LARGE else "faiss")
    links = links_of(work.decisions(decisions))
    described = {
        "k": settings.k,
        "seed": settings.seed,
        "restarts": settings.restarts,
        "algorithm": algorithm,
        "links": [sorted(map(list, links.must)), sorted(map(list, links.cannot))],
    }
    record = made_by("cluster", [work / "labels.csv", work / "embeddings.npz"], described)
    path = work / "clusters.csv"
    if is_current(path, record):
        terminal.say(f"{path} is up to date")
        return
    vectors = work.vectors(labels)
    found = clustering.cluster(
        [label.class_id for label in labels], vectors, settings, clustering.algorithms[algorithm], links
    )
    rows = clustering.details({label.class_id: label.label for label in labels}, vectors, found)
    counts = {"labels": len(rows), "clusters": len(set(found.values())), "outliers": sum(row.outlier for row in rows)}
    write_rows(path, rows, clustering.Clustered, record=record, counts=counts)
    terminal.say(", ".join(f"{count:,} {name}" for name, count in counts.items()))
