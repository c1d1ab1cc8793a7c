"""`sweep`: sweep.csv, a row per number of clusters."""

from __future__ import annotations

from pathlib import Path

import click

from hbench.cli import terminal
from hbench.core.errors import UsageError
from hbench_hgldv2.artefact import made_by, read_rows, write_rows
from hbench_hgldv2.cli import options
from hbench_hgldv2.curation.replay import Placed
from hbench_hgldv2.grouping import cluster, sweep
from hbench_hgldv2.work_folder import Work


@click.command()
@click.option("--k", "ks", metavar="K,K,…", default="40,60,80,100,120,140,160,200", show_default=True)
@click.option("--algorithm", default="kmeans", show_default=True)
@options.seed
@click.option("--resamples", default=10, show_default=True, help="Random 80 % samples for the stability.")
@options.reference
@click.pass_obj
def command(work: Work, *, ks: str, algorithm: str, seed: int, resamples: int, reference: Path | None) -> None:
    """Try several numbers of clusters.

    \b
    hbench hgldv2 sweep --k 80,120,160 --algorithm ward
    """
    if not all(k.strip().isdecimal() for k in ks.split(",")):
        raise UsageError("--k is a list of numbers of clusters", expected="such as 80,120,160", found=ks)
    labels = work.labels()
    settings = [cluster.Settings(int(k), seed) for k in ks.split(",")]
    placed = read_rows(reference, Placed) if reference else []
    known = {row.class_id: row.group for row in placed if row.status == "group"}
    described = {"k": ks, "algorithm": algorithm, "seed": seed, "resamples": resamples}
    record = made_by(
        "sweep", [work / "labels.csv", work / "embeddings.npz", *([reference] if reference else [])], described
    )
    swept = sweep.sweep(
        [(label.class_id, label.label) for label in labels],
        work.vectors(labels),
        cluster.algorithms[algorithm],
        settings,
        reference=known,
        resamples=resamples,
    )
    rows = []
    with terminal.progress() as bar:
        for row in bar.track(swept, total=len(settings), description="k"):
            rows.append(row)
    write_rows(work / "sweep.csv", rows, sweep.Swept, record=record, counts={"rows": len(rows)})
    terminal.show_table(
        None, sweep.Swept._fields, [(str(row.k), *(f"{value:.3f}" for value in row[1:])) for row in rows]
    )
