"""`clean`: selection.csv and labels.csv, from scraped links or from released files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from hbench.cli import terminal
from hbench.core.errors import UsageError
from hbench_hgldv2.artefact import is_done, made_by, read_rows, write_rows
from hbench_hgldv2.labels import clean, released, scrape
from hbench_hgldv2.labels.label import Label
from hbench_hgldv2.work_folder import SPLITS, Work, told


@click.command()
@click.option(
    "--rules", type=click.Path(path_type=Path, exists=True), default=clean.RULES, help="CSV label,qid,action,why."
)
@click.option(
    "--released",
    "files",
    type=(click.Choice(SPLITS), click.Path(path_type=Path, exists=True)),
    multiple=True,
    metavar="SPLIT FILE",
    help="Start from a released five-column file instead of scraped links.",
)
@click.pass_obj
def command(work: Work, *, rules: Path, files: Sequence[tuple[str, Path]]) -> None:
    """Select landmarks and list their classes.

    \b
    hbench hgldv2 clean
    hbench hgldv2 clean --released train train_label_to_hierarchical.csv
    """
    run(work, rules, files)


def run(work: Work, rules: Path = clean.RULES, files: Sequence[tuple[str, Path]] = ()) -> None:
    """Make selection.csv and labels.csv, unless they are there already."""
    if len({split for split, _ in files}) != len(files):
        raise UsageError("a split is given twice", expected="one released file per split")
    inputs = [path for _, path in files] or [work / "links.csv", work / "classes.csv", rules]
    record = made_by("clean", inputs, {"splits": [split for split, _ in files]})
    selection_file, labels_file = work / "selection.csv", work / "labels.csv"
    if is_done(record, selection_file, labels_file):
        return
    selection, names = _from_released(files) if files else _from_links(work, rules)
    counts = clean.counts(selection)
    labels = clean.labels_of(selection, names)
    write_rows(selection_file, selection, clean.CleanedLandmark, record=record, counts=counts)
    write_rows(labels_file, labels, Label, record=record, counts={"labels": len(labels)})
    terminal.say(told(f"{len(labels):,} classes; landmarks", {k: v for k, v in counts.items() if " " in k}))
    terminal.say(told("why not kept", {k: v for k, v in counts.items() if " " not in k}))


def _from_links(work: Work, rules: Path) -> tuple[list[clean.CleanedLandmark], list[scrape.ClassName]]:
    names = read_rows(work / "classes.csv", scrape.ClassName)
    return clean.select(read_rows(work / "links.csv", scrape.Link), names, clean.read_rules(rules)), names


def _from_released(files: Sequence[tuple[str, Path]]) -> tuple[list[clean.CleanedLandmark], list[scrape.ClassName]]:
    selection: list[clean.CleanedLandmark] = []
    names: dict[str, scrape.ClassName] = {}
    for split, path in files:
        rows, found = released.selection_of(released.read(path), split)
        selection += rows
        names |= {name.class_id: name for name in found}
    return selection, [names[key] for key in sorted(names)]
