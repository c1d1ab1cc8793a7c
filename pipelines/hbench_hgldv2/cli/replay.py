"""`replay`: mapping.csv."""

from __future__ import annotations

from pathlib import Path

import click

from hbench.cli import terminal
from hbench_hgldv2.artefact import made_by, write_rows
from hbench_hgldv2.cli import options
from hbench_hgldv2.curation import replay as replaying
from hbench_hgldv2.curation.decisions import Decisions
from hbench_hgldv2.work_folder import Work, told


@click.command()
@options.decisions
@click.option("--strict", is_flag=True, help="Fail when a precondition does not hold or an approval is stale.")
@click.pass_obj
def command(work: Work, *, decisions: Path | None, strict: bool) -> None:
    """Apply decisions.yaml to the labels and clusters.

    \b
    hbench hgldv2 replay --strict
    """
    run(work, decisions, strict=strict)


def run(work: Work, decisions: Path | None = None, *, strict: bool = False) -> replaying.Curation:
    """Make mapping.csv; conflicts and stale approvals go to the terminal."""
    path = decisions or work / "decisions.yaml"
    curation = curated(work, work.decisions(path))
    record = made_by("replay", [work / "labels.csv", work / "clusters.csv", path], {})
    if strict:
        replaying.require_clean(curation)
    write_rows(work / "mapping.csv", curation.rows, replaying.Placed, record=record, counts=curation.counts())
    for conflict in curation.conflicts:
        terminal.say(
            f"conflict in {conflict.decision} on {conflict.subject}: "
            f"expected {conflict.expected}, found {conflict.found}"
        )
    for approval in curation.stale:
        terminal.say(f"stale approval of {approval}")
    terminal.say(told(f"{len(curation.groups())} groups; labels", curation.counts()))
    return curation


def curated(work: Work, decisions: Decisions) -> replaying.Curation:
    """The replay of decisions over the work folder's labels and clusters, with suggestions for what is left."""
    labels, clusters = work.labels(), work.clusters()
    first = replaying.replay(labels, clusters, decisions)
    placed = {row.class_id: row.group for row in first.rows if row.status == "group"}
    return replaying.replay(labels, clusters, decisions, suggestions=work.suggestions(labels, placed))
