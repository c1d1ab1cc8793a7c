"""`review`: review.html."""

from __future__ import annotations

from pathlib import Path

import click

from hbench.cli import terminal
from hbench.core import files
from hbench.core.schema import build
from hbench_hgldv2.artefact import read_rows, record_of
from hbench_hgldv2.cli import demo as making
from hbench_hgldv2.cli import options
from hbench_hgldv2.cli.encode import kinds_in
from hbench_hgldv2.curation import decisions_file, review
from hbench_hgldv2.curation.decisions import Inputs
from hbench_hgldv2.curation.replay import replay
from hbench_hgldv2.grouping import taxonomy
from hbench_hgldv2.work_folder import Work


@click.command()
@options.decisions
@options.names
@click.option(
    "--against",
    type=click.Path(path_type=Path, exists=True),
    help="Another reviewer's decisions.yaml: the page tells κ and what you two disagree on.",
)
@click.option(
    "--demo", is_flag=True, help="Try it: released labels, two reviewers, in the folder demo of the work folder."
)
@click.option("--sheet", hidden=True, expose_value=False, callback=options.gone)
@click.option("--images", hidden=True, expose_value=False, callback=options.gone)
@click.option("--by", hidden=True, expose_value=False, callback=options.gone)
@click.pass_obj
def command(
    work: Work,
    *,
    decisions: Path | None,
    names: Path | None,
    against: Path | None,
    demo: bool,
) -> None:
    """Write the review page.

    \b
    hbench hgldv2 review
    hbench hgldv2 review --against b.yaml
    hbench hgldv2 review --demo
    """
    if demo:
        trial = Work(work / "demo")
        making.make(trial)
        run(trial, names=trial / "names.csv", against=trial / "released.yaml")
        return
    run(work, decisions, names, against)


def run(
    work: Work,
    decisions: Path | None = None,
    names: Path | None = None,
    against: Path | None = None,
) -> None:
    """Write review.html."""
    found = material(work, decisions, names)._replace(second=_second(against))
    files.write_text(work / "review.html", review.page(found, made_with=_made_with(work)))
    terminal.say(f"open {work / 'review.html'}, decide, export decisions.yaml to {work.folder}, then replay")


def material(work: Work, decisions: Path | None = None, names: Path | None = None) -> review.Material:
    """What the work folder has to review."""
    labels, clustered, decided = work.labels(), work.clustered(), work.decisions(decisions)
    curation = replay(labels, work.clusters(), decided)
    placed = {row.class_id: row.group for row in curation.rows if row.status == "group"}
    tree = work / "taxonomy.csv"
    above = taxonomy.paths(read_rows(tree, taxonomy.Node)) if tree.exists() else {}
    return review.Material(labels, clustered, work.suggestions(labels, placed), kinds_in(names), decided, above)


def _second(against: Path | None) -> review.Second | None:
    """The other reviewer, called as the last decision says, or as the file."""
    if against is None:
        return None
    decisions = decisions_file.load(against)
    names = [decision.by for decision in decisions.decisions if decision.by]
    return review.Second(names[-1] if names else against.stem, decisions)


def _made_with(work: Work) -> Inputs:
    encoding, clustering = record_of(work / "embeddings.npz"), record_of(work / "clusters.csv")
    if encoding is None or clustering is None:
        return Inputs()
    settings = {**encoding.settings, **clustering.settings, "weights_sha256": encoding.settings.get("weights") or None}
    kept = {name: settings.get(name) for name in Inputs.model_fields if name in settings}
    return build(Inputs, kept, source=f"the record of {work / 'clusters.csv'} or of its embeddings")
