"""Assembles the dataset: applies the curated mapping to the landmarks, and writes the official
five-column files, the label trees and the dataset's card."""

import dataclasses
import shlex
import shutil
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Annotated

from hbench import datasets
from hbench.cli import terminal
from hbench.core.errors import DataError, UsageError
from hbench.core.files import replacing, write_text
from hbench.datasets.benchmarks import gldv2
from hbench.tree.partial import classes_in_words
from hbench_hgldv2.artefact import counts_text, made_by, read_rows, rows_text, sha256, write_rows
from hbench_hgldv2.curation.replay import Placed
from hbench_hgldv2.dataset import assign, own_items
from hbench_hgldv2.dataset.assign import Assigned
from hbench_hgldv2.dataset.card import card
from hbench_hgldv2.dataset.landmarks import (
    Sourced,
    by_source,
    official,
    place_landmarks,
    tree_of,
)
from hbench_hgldv2.grouping import encode, quality
from hbench_hgldv2.labels.clean import CleanedLandmark
from hbench_hgldv2.labels.label import SPLITS
from hbench_hgldv2.labels.released import Released

SHOWN_PROBLEMS = 20  # inconsistencies on the card; the step quality lists all


def run(
    work: Path,
    *,
    raw: Annotated[
        Path | None,
        "Folder of GLDv2's metadata: with it the dataset hgldv2 is built too, in dataset/.",
    ] = None,
    labels: Annotated[
        Path | None,
        "A table of your own items with the label of each: with it their dataset is built instead.",
    ] = None,
    pictures: Annotated[
        Path | None, "With --labels: the folder of the pictures.  [default: that of the table]"
    ] = None,
    item_column: Annotated[
        str | None,
        "With --labels: the column of the items' ids, or of their paths below --pictures.  "
        "[default: the one that looks so]",
    ] = None,
    split_column: Annotated[
        str | None, "With --labels: the column that says train or test.  [default: all are tested]"
    ] = None,
) -> None:
    """Apply mapping.csv to the landmarks, and assigned_{train,index}.csv, if they exist, to those
    without a group, for hierarchy/, hierarchy.csv and card.md; or, with --labels, to items of your
    own, for items.csv and dataset/.

    The column `source` of hierarchy.csv says how each landmark got its super-category.

    \b
    hbench hgldv2 assemble --raw gldv2/raw
    hbench hgldv2 --work birds assemble --labels photographs.csv
    """
    if labels is not None:
        if raw is not None:
            raise UsageError("--raw is of GLDv2's own landmarks", fix="leave --raw or --labels out")
        _assemble_own(work, own_items.OwnItems(labels, pictures, item_column, split_column))
        return
    if any(given is not None for given in (pictures, item_column, split_column)):
        raise UsageError(
            "--pictures, --item-column and --split-column are of --labels",
            fix="give it too, or leave them out",
        )
    _assemble_landmarks(work, raw)


def _assemble_landmarks(work: Path, raw: Path | None) -> None:
    """Write the official files and the card, and build the dataset where `raw` is given."""
    selection = _selection(work)
    if raw is not None:
        _refuse_one_split(work, raw, selection)
    # name -> path of GLDv2's lists of images; looked up first, so that a missing file is refused
    # before anything is written
    metadata = {} if raw is None else _metadata(work, raw)
    mapping = read_rows(work / "mapping.csv", Placed)
    # the groups that `assign` chose for landmarks without a group, for each split that it has run
    # on
    by_images = {split: path for split in SPLITS if (path := assign.file_of(work, split)).exists()}
    inputs = [work / "selection.csv", work / "mapping.csv", *by_images.values()]
    record = made_by("assemble", inputs, settings={})
    assigned = {split: read_rows(path, Assigned) for split, path in by_images.items()}
    # split -> rows of its landmarks, each with the super-category and where that comes from
    splits = _rows_by_split(selection, mapping, assigned)
    # Made before anything is written, so that rows that form no tree are refused here. `tree_of`
    # returns a tree and the paths of its rows, which are not needed.
    trees = {split: tree_of(rows)[0] for split, rows in splits.items()}
    # split -> number of landmarks by the source of their group
    counts = {split: by_source(rows) for split, rows in splits.items()}

    for split, rows in splits.items():
        write_rows(
            file_of(work, split), official(rows), Released, record=record, counts=counts[split]
        )

    write_text(work / "hierarchy.csv", rows_text(chain.from_iterable(splits.values()), Sourced))
    sources = {path.name: sha256(path) for path in inputs}
    # pairs of near labels in different groups; the card shows the first ones
    odd = _inconsistencies(mapping, work / "embeddings.npz")
    write_text(work / "card.md", card(splits, odd[:SHOWN_PROBLEMS], sources))

    # level 1 of each tree is the kind, level 2 the super-category
    for split, tree in trees.items():
        terminal.say(
            counts_text(f"{split}: {len(tree.names[1])} super-categories; landmarks", counts[split])
        )

    if raw is not None:
        _build(work, raw, metadata)
    elif len(splits) < len(SPLITS):  # there is a single split
        terminal.say(
            f"{file_of(work, *splits)} is all there is to make of {', '.join(splits)} alone: "
            "the dataset hgldv2 (--raw) needs both splits"
        )


def _assemble_own(work: Path, own: own_items.OwnItems) -> None:
    """Build a dataset from a table of the user's own items."""
    mapping = read_rows(work / "mapping.csv", Placed)
    dataset = own_items.build_own(work, own, mapping, terminal.say)
    for split, manifest in dataset.manifests.items():
        terminal.say(f"{work / 'dataset'}, {split}: {classes_in_words(manifest.tree, ', ')}")
    terminal.say(f"hbench evaluate EMBEDDINGS --dataset {work / 'dataset'}")


def _selection(work: Path) -> list[CleanedLandmark]:
    """Read the landmarks to assemble; raises DataError where there are none."""
    selection = read_rows(work / "selection.csv", CleanedLandmark)
    if not selection:
        raise DataError(
            f"{work / 'selection.csv'} has no landmarks to assemble",
            expected="landmarks of scraped links or of a released file",
            found="none, as where the labels are those of a table (clean --labels)",
            fix="give your items with the label of each: assemble --labels items.csv",
        )
    return selection


def _refuse_one_split(work: Path, raw: Path, selection: Iterable[CleanedLandmark]) -> None:
    """Raise DataError where one of the splits train and index has no landmarks: the dataset trains
    on one split and searches the other. This is called before anything is written."""
    numbers = Counter(landmark.split for landmark in selection)
    if len(numbers) == len(SPLITS):
        return
    # the commands that the error advises
    step = ["hbench", "hgldv2", "--work", str(work)]
    clean = [*step, "clean"]
    for split in SPLITS:
        clean += ["--released", split, str(_released_file(raw, split))]
    fetch = ["hbench", "download", "hgldv2", "--part", "metadata", "--root", str(raw)]
    raise DataError(
        f"{work / 'selection.csv'} has landmarks of {', '.join(numbers)} only, of which --raw "
        "cannot build the dataset hgldv2",
        expected="landmarks of train, to train on, and of index, to search in",
        found=", ".join(f"{numbers[split]:,} of {split}" for split in SPLITS),
        fix=f"for the labels alone: {shlex.join([*step, 'assemble'])}. For the dataset: "
        f"{shlex.join(clean)} (where a file is missing: {shlex.join(fetch)}), then encode, "
        "cluster, replay and assemble again",
    )


def _released_file(raw: Path, split: str) -> Path:
    """The path of a split's released labels; if they are not there, the path where a download would
    store them."""
    found = gldv2.metadata_file(raw, gldv2.LABELS.format(split))
    return found if found.exists() else raw / gldv2.LABELS.format(split)


def _rows_by_split(
    selection: Sequence[CleanedLandmark],
    mapping: Sequence[Placed],
    assigned: Mapping[str, Sequence[Assigned]],
) -> dict[str, list[Sourced]]:
    """Return {split: rows of its landmarks} for the splits that the selection has. A row holds the
    super-category of a landmark and the source of it.

    Args:
        selection: the landmarks of all splits, with their classes.
        mapping: the place that the curators gave each class.
        assigned: split -> the landmarks whose group was chosen by a vote of their images.
    """
    present = {landmark.split for landmark in selection}
    return {
        split: place_landmarks(selection, mapping, split, assigned.get(split, ()))
        for split in SPLITS
        if split in present
    }


def _inconsistencies(mapping: Iterable[Placed], vectors: Path) -> list[quality.Inconsistency]:
    """Find pairs of near labels in different groups. They are compared by their vectors or, where
    the file of vectors does not exist, by their names alone."""
    placed = [row for row in mapping if row.status == "group"]
    known = encode.rows_of(vectors, [row.class_id for row in placed]) if vectors.exists() else None
    return quality.inconsistencies(
        [row.label for row in placed], [row.group for row in placed], known
    )


def file_of(work: Path, split: str) -> Path:
    """The path of a split's assembled five-column file, in the layout that `hbench build` expects
    of the released files."""
    return work / "hierarchy" / gldv2.LABELS.format(split)


def _metadata(work: Path, raw: Path) -> dict[str, Path]:
    """Find GLDv2's metadata files below `raw`, by name; raises DataError for a missing one."""
    found = {
        name: gldv2.metadata_file(raw, name) for name in (gldv2.TRAIN, gldv2.INDEX, gldv2.TRUTH)
    }
    if missing := [name for name, path in found.items() if not path.exists()]:
        fetch = shlex.join(
            ["hbench", "download", "hgldv2", "--part", "metadata", "--root", f"{raw}"]
        )
        raise DataError(
            f"{raw} has no {' and no '.join(missing)}",
            expected="the lists of images of GLDv2 (" + ", ".join(found) + "), there or in it",
            found=", ".join(name for name in found if name not in missing) or "none of them",
            fix=f"{fetch}, or leave --raw out: the labels, in {work / 'hierarchy'}, need no images",
        )
    return found


def _build(work: Path, raw: Path, metadata: Mapping[str, Path]) -> None:
    """Build the dataset hgldv2 with the labels in `work`/hierarchy, and save it in `work`/dataset.

    `metadata` maps file names to GLDv2's lists of images. They are copied next to the labels, since
    the build reads both from one folder; the images stay in `raw`, the root of the dataset.
    """
    for name, source in metadata.items():
        with replacing(work / "hierarchy" / name) as temporary:
            shutil.copyfile(source, temporary)
    dataset = datasets.assemble(gldv2.SPEC, work / "hierarchy")
    # these labels differ from the published ones, so the dataset gets its own version, which ends
    # in the digest of its test set
    digest = next(iter(dataset.tests.values())).digest
    dataset = dataclasses.replace(dataset, root=raw, version=f"{gldv2.SPEC.version}+{digest[:8]}")
    datasets.save(dataset, work / "dataset")
    terminal.say(f"hbench evaluate EMBEDDINGS --dataset {work / 'dataset'}")
