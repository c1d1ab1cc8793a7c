"""`diff`: what two decisions files disagree on."""

from __future__ import annotations

from pathlib import Path

import click

from hbench.cli import terminal
from pipelines.hgldv2 import notation
from pipelines.hgldv2.explain import Difference, differences
from pipelines.hgldv2.replay import replay
from pipelines.hgldv2.work import Work


@click.command(short_help="what two decisions files disagree on")
@click.argument("first", type=click.Path(path_type=Path, exists=True))
@click.argument("second", type=click.Path(path_type=Path, exists=True))
@click.pass_obj
def command(work: Work, *, first: Path, second: Path) -> None:
    """The labels that two decisions files put in different places.

    \b
    python -m pipelines.hgldv2 diff a.yaml b.yaml
    """
    labels, clusters = work.labels(), work.clusters()
    found = differences(*(replay(labels, clusters, notation.load(path)) for path in (first, second)))
    terminal.show_table(f"{len(found)} differences", Difference._fields, found)
