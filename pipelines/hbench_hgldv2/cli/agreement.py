"""`agreement`: two curators compared."""

from __future__ import annotations

import math
from pathlib import Path

import click

from hbench.cli import terminal
from hbench_hgldv2.cli import options
from hbench_hgldv2.curation import agreement, decisions_file
from hbench_hgldv2.curation.replay import replay
from hbench_hgldv2.work_folder import Work


@click.command()
@click.argument("first", type=click.Path(path_type=Path, exists=True))
@click.argument("second", type=click.Path(path_type=Path, exists=True))
@options.as_json
@click.pass_obj
def command(work: Work, *, first: Path, second: Path, as_json: bool) -> None:
    """Compare two curators' decisions files.

    \b
    hbench hgldv2 agreement a.yaml b.yaml
    """
    labels, clusters = work.labels(), work.clusters()
    ours, theirs = (replay(labels, clusters, decisions_file.load(path)).rows for path in (first, second))
    found = agreement.compare(ours, theirs, labels)
    if as_json:
        measures = {
            name: None if math.isnan(value) else value for name, value in found._asdict().items() if name != "queue"
        }
        terminal.show_json(measures | {"queue": [row._asdict() for row in found.queue]})
        return
    terminal.show(
        f"{found.labels:,} labels placed by both: agreement {found.observed:.3f}, κ {found.kappa:.3f}; "
        f"by landmarks {found.weighted_observed:.3f}, κ {found.weighted_kappa:.3f}"
    )
    terminal.show_table(
        f"{len(found.queue)} to talk about",
        agreement.Disagreement._fields,
        [[str(v) for v in row] for row in found.queue],
    )
