"""Makes labels wrong on purpose: an item gets the class of another item of a chosen branch."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hbench.auditing.evidence import Indices, Votes

SWAPS = 4_000
SMALLEST = 3  # items of a class, below which its votes say too little


class Swaps(NamedTuple):
    """Items (m,) and the wrong classes (m,) that they are given."""

    items: Indices
    classes: Indices


def draw_swaps(votes: Votes, rng: np.random.Generator, *, is_far: bool) -> Swaps:
    """Draw items, and for each the class of another item: one with its parent, or, `is_far`, one
    that leaves its path at a level above, at each as often. Items without such another are left
    out. `votes`: of every item (N,) its class, of every class (C,) its nodes and how many levels of
    it are known.
    """
    # small sets have fewer: more would be the same swaps again
    number = min(SWAPS, 2 * len(votes.classes))
    items = rng.integers(0, len(votes.classes), number)
    known = votes.known[votes.classes[items]]
    # the level, from 0, at which the wrong class leaves the path
    parts_at = rng.integers(0, np.maximum(known - 1, 1)) if is_far else known - 1
    drawn, has_others = _draw_classes(votes, rng, votes.classes[items], parts_at)

    sizes = np.bincount(votes.classes, minlength=len(votes.paths))
    is_deep = known > 1 if is_far else known > 0
    # with the swapped item the class has SMALLEST items, as those that are judged
    kept = has_others & is_deep & (sizes[drawn] >= SMALLEST - 1)
    # a label that ends above the level where it should leave the path would contradict nothing
    kept &= votes.known[drawn] > parts_at
    return Swaps(items[kept], drawn[kept])


def _draw_classes(
    votes: Votes, rng: np.random.Generator, classes: Indices, parts_at: Indices
) -> tuple[Indices, NDArray[np.bool_]]:
    """For each class (m,), the class (m,) of a random item whose path has the same nodes above the
    level `parts_at` (m,), from 0, and another node there; and (m,) whether there is any.

    The classes of a node lie side by side in the tree, and so do the items sorted by class: what is
    wanted is the range of the node above without that of the node itself.
    """
    ranked = np.sort(votes.classes)
    first_above, last_above = _range_of(votes, ranked, classes, parts_at - 1)
    first, last = _range_of(votes, ranked, classes, parts_at)
    others = (last_above - first_above) - (last - first)
    # a place among the others, counted without the range of the node itself, which is skipped
    place = first_above + (rng.random(len(classes)) * others).astype(np.int64)
    place = np.where(place >= first, place + (last - first), place)
    # without any others the place may be behind the end: whatever is there is not used
    return ranked[np.minimum(place, len(ranked) - 1)], others > 0


def _range_of(
    votes: Votes, ranked: Indices, classes: Indices, level: Indices
) -> tuple[Indices, Indices]:
    """Where the items of the node of each class at its `level` (m,) lie among all items sorted by
    class (`ranked`): the first place, and that behind the last; the level −1 is the root, below
    which all lie."""
    first = np.zeros(len(classes), np.int64)
    last = np.full(len(classes), len(ranked), np.int64)
    for at in range(votes.depth):
        here = level == at
        nodes = votes.paths[:, at]
        # sorted by class, the items of a node lie side by side at every level
        first[here] = np.searchsorted(nodes[ranked], nodes[classes[here]], side="left")
        last[here] = np.searchsorted(nodes[ranked], nodes[classes[here]], side="right")
    return first, last
