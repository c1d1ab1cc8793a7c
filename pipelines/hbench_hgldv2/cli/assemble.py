"""`assemble`: the five-column files, the label tree, the card and, where the metadata is at hand, the dataset."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Sequence
from pathlib import Path

import click

from hbench import datasets
from hbench.cli import terminal
from hbench.core.errors import DataError
from hbench.core.files import replacing, write_text
from hbench.datasets.benchmarks import gldv2
from hbench_hgldv2.artefact import made_by, read_rows, rows_text, sha256, write_rows
from hbench_hgldv2.cli import options
from hbench_hgldv2.curation.replay import Placed
from hbench_hgldv2.dataset import assemble
from hbench_hgldv2.dataset.assemble import Sourced
from hbench_hgldv2.dataset.assign import Assigned
from hbench_hgldv2.dataset.card import card
from hbench_hgldv2.grouping import encode, quality
from hbench_hgldv2.grouping.encode import Vectors
from hbench_hgldv2.labels.clean import CleanedLandmark
from hbench_hgldv2.labels.released import Released
from hbench_hgldv2.work_folder import SPLITS, Work, told

SHOWN = 20  # inconsistencies on the card; the step quality lists all


@click.command()
@options.raw("with it the dataset hgldv2 is built too, in dataset/.")
@click.pass_obj
def command(work: Work, *, raw: Path | None) -> None:
    """Apply mapping.csv to the landmarks, and assigned_{train,index}.csv to those it gives nothing, where there are such.

    hierarchy.csv says in `source` where each super-category is from.

    \b
    hbench hgldv2 assemble --raw gldv2/raw
    """
    run(work, raw)


def run(work: Work, raw: Path | None = None) -> Path:
    """Write hierarchy/metadata/{train,index}_label_to_hierarchical.csv, tree.csv, card.md; returns the
    folder hierarchy/.
    """
    selection, mapping = read_rows(work / "selection.csv", CleanedLandmark), read_rows(work / "mapping.csv", Placed)
    by_images = {split: work.assigned(split) for split in SPLITS if work.assigned(split).exists()}
    inputs = [work / "selection.csv", work / "mapping.csv", *by_images.values()]
    record = made_by("assemble", inputs, {})
    assigned = {split: read_rows(path, Assigned) for split, path in by_images.items()}
    present = [split for split in SPLITS if any(row.split == split for row in selection)]
    splits = {split: assemble.assemble(selection, mapping, split, assigned.get(split, ())) for split in present}
    trees = {split: assemble.tree_of(found.rows)[0] for split, found in splits.items()}
    for split, found in splits.items():
        write_rows(work.hierarchy(split), found.rows, Released, record=record, counts=found.counts)
    rows = {split: found.rows for split, found in splits.items()}
    placed = [row for row in mapping if row.status == "group"]
    odd = quality.inconsistencies([row.label for row in placed], [row.group for row in placed], _vectors(work, placed))
    sources = {path.name: sha256(path) for path in inputs}
    write_text(
        work / "card.md", card(rows, {split: found.counts for split, found in splits.items()}, odd[:SHOWN], sources)
    )
    write_text(work / "hierarchy.csv", rows_text((row for found in splits.values() for row in found.sourced), Sourced))
    for split, found in splits.items():
        terminal.say(told(f"{split}: {len(trees[split].names[1])} super-categories; landmarks", found.counts))
    if raw is not None:
        _dataset(work, raw)
    return work / "hierarchy"


def _vectors(work: Work, placed: Sequence[Placed]) -> Vectors | None:
    """The vectors of placed classes, where there are embeddings."""
    path = work / "embeddings.npz"
    return encode.rows_of(path, [row.class_id for row in placed]) if path.exists() else None


def _dataset(work: Work, raw: Path) -> None:
    """The dataset hgldv2 over these labels: the metadata it needs lies beside them, the images stay in `raw`."""
    for name in (gldv2.TRAIN, gldv2.INDEX, gldv2.TRUTH):
        source = gldv2.found(raw, name)
        if not source.exists():
            raise DataError(f"{raw} has no {name}", fix="hbench download hgldv2 --part metadata")
        with replacing(work / "hierarchy" / name) as temporary:
            shutil.copyfile(source, temporary)
    dataset = datasets.assemble(gldv2.SPEC, work / "hierarchy")
    digest = next(iter(dataset.tests.values())).digest
    own = dataclasses.replace(dataset, root=raw, version=f"{gldv2.SPEC.version}+{digest[:8]}")
    datasets.save(own, work / "dataset")
    terminal.say(f"hbench evaluate EMBEDDINGS --dataset {work / 'dataset'}")
