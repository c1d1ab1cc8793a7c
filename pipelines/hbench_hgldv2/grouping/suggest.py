"""A suggestion: the groups whose names or members are nearest in meaning to a label; never a decision."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hbench_hgldv2.grouping.encode import Vectors

TOP = 3


def suggest(vectors: Vectors, anchors: Vectors, groups: Sequence[str], *, top: int = TOP) -> list[tuple[str, ...]]:
    """The `top` groups with the most similar anchor, best first: unit vectors (n, D), (m, D), the group of each anchor.

    A group may have several anchors, its name and its members; it counts once, at its best. Ties go by name.
    """
    names = sorted(set(groups))
    if not names:
        return [()] * len(vectors)
    number = np.asarray([names.index(group) for group in groups])
    similar = vectors @ anchors.T
    best = np.full((len(vectors), len(names)), -np.inf)
    for column in range(len(names)):
        best[:, column] = similar[:, number == column].max(axis=1)
    order = np.argsort(-best, axis=1, kind="stable")[:, :top]
    return [tuple(names[column] for column in row) for row in order]
