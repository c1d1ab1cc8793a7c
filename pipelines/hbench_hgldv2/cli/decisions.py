"""`decisions`: the decisions that reproduce a released hierarchy, to be replayed, disputed and improved."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from hbench.cli import terminal
from hbench.core.errors import UsageError
from hbench.core.files import write_text
from hbench_hgldv2.curation import decisions_file
from hbench_hgldv2.curation.decisions import labels_named
from hbench_hgldv2.labels import released
from hbench_hgldv2.work_folder import Work


@click.command()
@click.option(
    "--released",
    "files",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    multiple=True,
    help="A released five-column file; once for each split.",
)
@click.option("--sample", is_flag=True, help="The 156 released classes that ship with the package (CC BY 4.0).")
@click.option("--out", "-o", type=click.Path(path_type=Path), help="decisions.yaml in the work folder by default.")
@click.pass_obj
def command(work: Work, *, files: Sequence[Path], sample: bool, out: Path | None) -> None:
    """Turn released super-categories into decisions: a move per group, and labels in several groups as ambiguous.

    Where the work folder has labels, the decisions are about those of them that the files name; `hbench hgldv2
    agreement` shows where curators went another way.

    \b
    hbench hgldv2 decisions --released train_label_to_hierarchical.csv --released index_label_to_hierarchical.csv
    """
    if sample == bool(files):
        raise UsageError("decisions of what?", expected="--released FILE, or --sample")
    target = out or work / "decisions.yaml"
    if out is None and target.exists():
        raise UsageError(f"{target} is there already", fix="-o FILE writes another one")
    labels = work.labels() if (work / "labels.csv").exists() else None
    rows = [released.sample()] if sample else [released.read(path) for path in files]
    made = released.decisions_of(rows, labels)
    write_text(target, decisions_file.dumps(made))
    named = sum(len(labels_named(each)) for each in made.decisions)
    terminal.say(f"{target}: {named:,} labels in {len(made.groups)} groups, {len(made.decisions):,} decisions")
