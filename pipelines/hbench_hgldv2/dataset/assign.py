"""Assigns landmarks without a class to super-categories by a vote of their images.

This step follows the released code (SupRank, gldv2_labels.py). An image votes for the
super-category of the class name whose text is nearest to it, or for the super-category with the
largest softmax-weighted sum over its nearest names. A landmark gets the super-category with the
most votes.
"""

import csv
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hbench.cli import terminal
from hbench.core.errors import DataError
from hbench_hgldv2.artefact import made_by, open_table, read_rows, write_rows
from hbench_hgldv2.curation.replay import groups_in
from hbench_hgldv2.grouping.encode import Vectors, ids_of, load, rows_of
from hbench_hgldv2.labels.label import Label, Split

SHARPNESS = 100.0  # CLIP's logit scale
NEIGHBOURS = 5
BLOCK = 4096  # images whose similarities to all names are in memory at once
# similarities (n, C) of images to class names, the number of each name's group (C,), the number of
# groups -> the group that each image votes for (n,)
Vote = Callable[[NDArray[np.float32], NDArray[np.int64], int], NDArray[np.int64]]


class Assigned(NamedTuple):
    """A landmark with its super-category, the number of its images that voted, and the share of
    them that voted for this super-category."""

    landmark_id: int
    group: str
    images: int
    share: float


def run(
    work: Path,
    *,
    images: Annotated[
        Path,
        ".npz with ids (image ids) and vectors, from the image tower of the model of the labels.",
    ],
    landmarks: Annotated[Path, "CSV with columns id, landmark_id."],
    split: Annotated[Split, "Split of the landmark ids."],
    vote: Annotated[
        Literal["nearest", "top5"], "By the nearest class name, or by the five nearest."
    ] = "nearest",
) -> None:
    """Assign the landmarks of images to the curated groups; `assemble` uses this for landmarks
    without a group.

    \b
    hbench hgldv2 assign --split index --images clip_images.npz --landmarks index_landmarks.csv
    """
    placed = groups_in(work / "mapping.csv")  # class id -> group
    # images can vote only for names of labels that have a group
    labels = [label for label in read_rows(work / "labels.csv", Label) if label.class_id in placed]
    with open_table(landmarks) as lines:
        # image id -> landmark
        landmark_of = {row["id"]: int(row["landmark_id"]) for row in csv.DictReader(lines)}
    ids = [name for name in ids_of(images) if name in landmark_of]
    if not ids:
        raise DataError(
            f"no image of {images} has a landmark in {landmarks}",
            expected="the same image ids in both",
        )

    # a row per landmark: the group with the most votes, and its share of the votes
    rows = assign(
        rows_of(images, ids),
        [landmark_of[i] for i in ids],
        load(work / "embeddings.npz", labels),
        [placed[label.class_id] for label in labels],
        vote=VOTES[vote],
    )
    record = made_by(
        "assign", [work / "mapping.csv", work / "embeddings.npz", images, landmarks], {"vote": vote}
    )
    counts = {"images": len(ids), "landmarks": len(rows)}
    write_rows(file_of(work, split), rows, Assigned, record=record, counts=counts)
    terminal.say(
        f"{len(rows):,} landmarks by {len(ids):,} images; "
        f"mean agreement within a landmark {np.mean([row.share for row in rows]):.2f}"
    )


def file_of(work: Path, split: str) -> Path:
    """The path of a split's assigned landmarks. There is a file per split, since train and index
    number their landmarks independently."""
    return work / f"assigned_{split}.csv"


def nearest_name(
    similar: NDArray[np.float32], groups: NDArray[np.int64], n_groups: int
) -> NDArray[np.int64]:
    """Return the group of each image's most similar class name, as (n,) numbers of groups. This is
    the mode "clip" of the code of H-GLDv2's authors.

    `similar` (n, C) are the similarities of images to names, `groups` (C,) the numbers of the
    names' groups. `n_groups` is not needed here; every `Vote` has it.
    """
    return np.asarray(groups[similar.argmax(axis=1)])


def nearest_names(
    similar: NDArray[np.float32], groups: NDArray[np.int64], n_groups: int
) -> NDArray[np.int64]:
    """Return for each image the group with the largest sum of exp(100·similarity) over its five
    most similar names, as (n,) numbers of groups. This is the mode "knn" of the code of H-GLDv2's
    authors.

    `similar` (n, C) are the similarities of images to names, `groups` (C,) the numbers of the
    names' groups, below `n_groups`.
    """
    count = min(NEIGHBOURS, similar.shape[1])
    nearest = np.argsort(-similar, axis=1, kind="stable")[:, :count]  # (n, 5): names
    scores = np.take_along_axis(similar, nearest, axis=1).astype(np.float64)
    # weights relative to the best name, whose weight becomes 1, because exp(100·similarity) itself
    # would lose digits
    weights = np.exp(SHARPNESS * (scores - scores[:, :1]))
    votes = np.zeros((len(similar), n_groups))
    image = np.arange(len(similar))[:, None]
    # adds every weight, where `votes[…] += weights` would keep one for names that share a group
    np.add.at(votes, (image, groups[nearest]), weights)
    return np.asarray(votes.argmax(axis=1))


def assign(
    images: Vectors,
    landmarks: Sequence[int],
    names: Vectors,
    groups: Sequence[str],
    *,
    vote: Vote = nearest_name,
) -> list[Assigned]:
    """Assign a group to every landmark by the votes of its images.

    Rows are sorted by landmark. A tie goes to the group for which the landmark's images voted
    first. Raises DataError when the dimensions differ.

    Args:
        images: unit vectors (n, D) of the images.
        landmarks: the landmark (n,) of each image.
        names: unit vectors (C, D) of the class names.
        groups: the group (C,) of each class name.
        vote: finds the group that each image votes for.
    """
    if images.shape[1] != names.shape[1]:
        raise DataError(
            "images and class names are embedded in different spaces",
            expected=f"{names.shape[1]} dimensions",
            found=f"{images.shape[1]}",
            fix="use the image and the text tower of one model",
        )

    distinct = sorted(set(groups))
    numbers = np.asarray([distinct.index(group) for group in groups])
    voted: list[int] = []  # for every image, the number of the group in `distinct`
    for start in range(0, len(images), BLOCK):
        # similarities (images, C), of some images at a time to limit memory
        similar = images[start : start + BLOCK] @ names.T
        voted += vote(similar, numbers, len(distinct)).tolist()

    # landmark -> number of a group -> number of images that voted for the group
    ballots: dict[int, Counter[int]] = defaultdict(Counter)
    for landmark, group in zip(landmarks, voted, strict=True):
        ballots[landmark][group] += 1
    return [_row(landmark, ballots[landmark], distinct) for landmark in sorted(ballots)]


VOTES: Mapping[str, Vote] = {"nearest": nearest_name, "top5": nearest_names}


def _row(landmark: int, ballot: Mapping[int, int], groups: Sequence[str]) -> Assigned:
    """Make the row of a landmark: the group with the most votes. `ballot` maps the number of a
    group in `groups` to its votes, in the order in which groups got their first vote."""
    winner = max(ballot, key=lambda group: ballot[group])  # among equal ones, the first
    total = sum(ballot.values())
    return Assigned(
        landmark_id=landmark, group=groups[winner], images=total, share=ballot[winner] / total
    )
