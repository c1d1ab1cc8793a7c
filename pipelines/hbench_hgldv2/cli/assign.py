"""`assign`: assigned_train.csv, assigned_index.csv."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from pathlib import Path

import click
import numpy as np

from hbench.cli import terminal
from hbench.core.errors import DataError, UsageError
from hbench_hgldv2.artefact import made_by, open_table, read_rows, write_rows
from hbench_hgldv2.curation.replay import Placed
from hbench_hgldv2.dataset import assign
from hbench_hgldv2.grouping import encode
from hbench_hgldv2.work_folder import SPLITS, Work

VOTES: Mapping[str, assign.Vote] = {"nearest": assign.nearest_name, "top5": assign.nearest_names}


@click.command()
@click.option(
    "--images",
    type=click.Path(path_type=Path, exists=True),
    required=True,
    help=".npz with ids (image ids) and vectors, from the image tower of the model that encoded the labels.",
)
@click.option(
    "--landmarks", type=click.Path(path_type=Path, exists=True), required=True, help="CSV with columns id, landmark_id."
)
@click.option("--split", metavar="|".join(SPLITS), required=True, help="Whose landmark ids these are.")
@click.option("--vote", metavar="nearest|top5", default="nearest", show_default=True)
@click.pass_obj
def command(work: Work, *, images: Path, landmarks: Path, split: str, vote: str) -> None:
    """Assign the landmarks of images to the curated groups; `assemble` takes over those that no class places.

    \b
    hbench hgldv2 assign --split index --images clip_images.npz --landmarks index_image_to_landmark.csv
    """
    if split not in SPLITS:
        raise UsageError(f"unknown split {split!r}", expected=" or ".join(SPLITS))
    if vote not in VOTES:
        raise UsageError(f"unknown vote {vote!r}", expected=" or ".join(VOTES))
    placed = {row.class_id: row.group for row in read_rows(work / "mapping.csv", Placed) if row.status == "group"}
    labels = [label for label in work.labels() if label.class_id in placed]
    with open_table(landmarks) as lines:
        landmark_of = {row["id"]: int(row["landmark_id"]) for row in csv.DictReader(lines)}
    ids = [name for name in encode.ids_of(images) if name in landmark_of]
    if not ids:
        raise DataError(f"no image of {images} has a landmark in {landmarks}", expected="the same image ids in both")
    vectors = encode.rows_of(images, ids)
    rows = assign.assign(
        vectors,
        [landmark_of[i] for i in ids],
        work.vectors(labels),
        [placed[label.class_id] for label in labels],
        vote=VOTES[vote],
    )
    inputs, settings = [work / "mapping.csv", work / "embeddings.npz", images, landmarks], {"vote": vote}
    record = made_by("assign", inputs, settings)
    write_rows(
        work.assigned(split), rows, assign.Assigned, record=record, counts={"images": len(ids), "landmarks": len(rows)}
    )
    terminal.say(
        f"{len(rows):,} landmarks by {len(ids):,} images; "
        f"mean agreement within a landmark {np.mean([row.share for row in rows]):.2f}"
    )
