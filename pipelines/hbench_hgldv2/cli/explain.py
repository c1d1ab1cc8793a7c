"""`explain`: why a label is where it is."""

from __future__ import annotations

from pathlib import Path

import click

from hbench.cli import terminal
from hbench_hgldv2.cli import options
from hbench_hgldv2.cli.replay import curated
from hbench_hgldv2.curation.explain import explain
from hbench_hgldv2.work_folder import Work


@click.command()
@click.argument("label")
@options.decisions
@click.pass_obj
def command(work: Work, *, label: str, decisions: Path | None) -> None:
    """The chain of decisions about LABEL, a class id or a name.

    \b
    hbench hgldv2 explain abbey
    """
    found = work.decisions(decisions)
    terminal.show("\n".join(explain(curated(work, found), found, label)))
