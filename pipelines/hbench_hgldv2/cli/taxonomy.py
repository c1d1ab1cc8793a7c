"""`taxonomy`: taxonomy.csv and taxonomy_removed.csv."""

from __future__ import annotations

from typing import Any

import click

from hbench.cli import terminal
from hbench.core.errors import DataError
from hbench_hgldv2.artefact import made_by, write_rows
from hbench_hgldv2.cli import options
from hbench_hgldv2.grouping import taxonomy
from hbench_hgldv2.wikimedia import api
from hbench_hgldv2.wikimedia.client import opened
from hbench_hgldv2.wikimedia.facts import FactSource
from hbench_hgldv2.work_folder import Work


@click.command()
@options.asking_wikimedia
@click.option("--least", default=17, show_default=True, help="Landmarks below an ancestor worth keeping.")
@click.pass_obj
def command(work: Work, /, *, least: int, **options: Any) -> None:
    """Propose a taxonomy from P279, next to the curated one.

    \b
    hbench hgldv2 taxonomy --contact you@example.org
    """
    with opened(work.folder, **options) as asking:
        run(work, api.source(asking), least=least)


def run(work: Work, source: FactSource, *, least: int) -> None:
    """Make taxonomy.csv and taxonomy_removed.csv."""
    labels = [label for label in work.labels() if label.class_id.startswith("Q")]
    if not labels:
        raise DataError(
            "no class has a QID, so no subclass of it is known",
            expected="labels scraped from Wikidata",
            fix="scrape, then clean without --released",
        )
    parents = taxonomy.ancestors_of([label.class_id for label in labels], source.entities)
    found = taxonomy.taxonomy(
        parents, {label.class_id: label.landmarks for label in labels if label.landmarks}, least=least
    )
    others = sorted(set(found.tree) - {label.class_id for label in labels} - {taxonomy.ROOT})
    names = {label.class_id: label.label for label in labels}
    names |= {class_id: name.text or class_id for class_id, name in source.names(others).items()}
    rows = taxonomy.rows(found, names)
    record = made_by("taxonomy", [work / "labels.csv"], {"least": least})
    write_rows(work / "taxonomy.csv", rows, taxonomy.Node, record=record, counts={"nodes": len(rows)})
    write_rows(
        work / "taxonomy_removed.csv",
        list(found.removed),
        taxonomy.Removed,
        record=record,
        counts={"edges": len(found.removed)},
    )
    terminal.show("\n".join(f"{'  ' * (row.depth - 1)}{row.label} ({row.landmarks:,}, {row.kind})" for row in rows))
