"""An assignment: images of landmarks without a class, to finished super-categories, by a vote per landmark.

The step the authors released (SupRank, gldv2_labels.py): each image takes the super-category of the raw class name
whose text is nearest to it, or a softmax-weighted vote of its nearest names; the landmark takes the majority of its
images.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hbench.core.errors import DataError
from hbench_hgldv2.grouping.encode import Vectors

SHARPNESS = 100.0  # CLIP's logit scale
NEIGHBOURS = 5
BLOCK = 4096
Vote = Callable[[NDArray[np.float32], NDArray[np.int64], int], NDArray[np.int64]]


class Assigned(NamedTuple):
    """A landmark, its super-category, how many images voted and the share of them that agreed."""

    landmark_id: int
    group: str
    images: int
    share: float


def nearest_name(similar: NDArray[np.float32], groups: NDArray[np.int64], n_groups: int) -> NDArray[np.int64]:
    """The group of each image's most similar class name: (n, C), (C,) -> (n,); the official "clip" mode
    (softmax keeps the order).
    """
    return np.asarray(groups[similar.argmax(axis=1)])


def nearest_names(similar: NDArray[np.float32], groups: NDArray[np.int64], n_groups: int) -> NDArray[np.int64]:
    """The group with the largest sum of exp(100·similarity) over each image's five most similar class names;
    the "knn" mode.
    """
    count = min(NEIGHBOURS, similar.shape[1])
    top = np.argsort(-similar, axis=1, kind="stable")[:, :count]
    scores = np.take_along_axis(similar, top, axis=1).astype(np.float64)
    weights = np.exp(SHARPNESS * (scores - scores[:, :1]))
    votes = np.zeros((len(similar), n_groups))
    np.add.at(votes, (np.arange(len(similar))[:, None], groups[top]), weights)
    return np.asarray(votes.argmax(axis=1))


def assign(
    images: Vectors, landmarks: Sequence[int], names: Vectors, groups: Sequence[str], *, vote: Vote = nearest_name
) -> list[Assigned]:
    """One row per landmark, sorted by id: unit vectors (n, D) of images with their landmarks, (C, D) of class names
    with their groups.

    Ties of a landmark's vote go to the group of its first image in the order given. Raises DataError when the
    dimensions differ.
    """
    if images.shape[1] != names.shape[1]:
        raise DataError(
            "images and class names are embedded in different spaces",
            expected=f"{names.shape[1]} dimensions",
            found=f"{images.shape[1]}",
            fix="use the image and the text tower of one model",
        )
    known = sorted(set(groups))
    numbers = np.asarray([known.index(group) for group in groups])
    found = [
        vote(images[start : start + BLOCK] @ names.T, numbers, len(known)) for start in range(0, len(images), BLOCK)
    ]
    ballots: dict[int, Counter[int]] = defaultdict(Counter)
    for landmark, group in zip(landmarks, np.concatenate(found) if found else (), strict=True):
        ballots[landmark][int(group)] += 1
    return [_row(landmark, ballots[landmark], known) for landmark in sorted(ballots)]


def _row(landmark: int, ballot: Mapping[int, int], known: Sequence[str]) -> Assigned:
    winner = max(ballot, key=lambda group: ballot[group])  # the first seen among equals, as Counter.most_common has it
    total = sum(ballot.values())
    return Assigned(landmark, known[winner], total, ballot[winner] / total)
