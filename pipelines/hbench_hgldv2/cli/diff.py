"""`diff`: what two decisions files disagree on."""

from __future__ import annotations

from pathlib import Path

import click

from hbench.cli import terminal
from hbench_hgldv2.curation import decisions_file
from hbench_hgldv2.curation.agreement import LabelDispute, differences
from hbench_hgldv2.curation.replay import replay
from hbench_hgldv2.work_folder import Work


@click.command()
@click.argument("first", type=click.Path(path_type=Path, exists=True))
@click.argument("second", type=click.Path(path_type=Path, exists=True))
@click.pass_obj
def command(work: Work, *, first: Path, second: Path) -> None:
    """The labels that two decisions files put in different places.

    \b
    hbench hgldv2 diff a.yaml b.yaml
    """
    labels, clusters = work.labels(), work.clusters()
    found = differences(*(replay(labels, clusters, decisions_file.load(path)) for path in (first, second)))
    terminal.show_table(f"{len(found)} differences", LabelDispute._fields, found)
