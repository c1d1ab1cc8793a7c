"""Makes labels wrong on purpose: an item gets the class of another item from a chosen branch."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hbench.auditing.evidence import Indices, Votes

SWAPS = 4_000
SMALLEST = 3  # the votes of a class with fewer items say too little


class Swaps(NamedTuple):
    """Items, and the wrong classes that they are given."""

    items: Indices  # (m,)
    classes: Indices  # (m,)


def draw_swaps(votes: Votes, rng: np.random.Generator, *, is_far: bool) -> Swaps:
    """Draw items at random, and for each the class of another item.

    This class is a sibling; or, if `is_far`, one that leaves the item's path at a coarser level,
    which is drawn uniformly. Items for which there is no such class are left out.
    """
    # fewer for a small dataset, where more would repeat the same swaps
    number = min(SWAPS, 2 * len(votes.classes))
    items = rng.integers(0, len(votes.classes), number)
    known = votes.known[votes.classes[items]]
    # the index of the level at which the wrong class leaves the path
    parts_at = rng.integers(0, np.maximum(known - 1, 1)) if is_far else known - 1
    drawn, has_others = _draw_classes(votes, rng, votes.classes[items], parts_at)

    sizes = np.bincount(votes.classes, minlength=len(votes.paths))
    is_deep = known > 1 if is_far else known > 0
    # together with the swapped item, the class must have SMALLEST items, as in the audit itself
    kept = has_others & is_deep & (sizes[drawn] >= SMALLEST - 1)
    # a label that ends above the level where it should differ would not contradict the item's
    kept &= votes.known[drawn] > parts_at
    return Swaps(items[kept], drawn[kept])


def _draw_classes(
    votes: Votes, rng: np.random.Generator, classes: Indices, parts_at: Indices
) -> tuple[Indices, NDArray[np.bool_]]:
    """For each class, draw a random item whose path differs from that of the class from a given
    level on, and not above it. Return the classes of these items, (m,), and whether there is such
    an item, (m,).

    Sorted by class, the items of a node are adjacent at every level. So an item is drawn from the
    range of the node above, without the range of the node itself.

    Args:
        classes: (m,).
        parts_at: the index of the level at which the paths must differ; above it they are equal,
            (m,).
    """
    ranked = np.sort(votes.classes)
    # each range is that of the places from the first up to, but without, the last; above the
    # coarsest level is the root, at −1
    first_above, last_above = _range_of(votes, ranked, classes, parts_at - 1)
    first, last = _range_of(votes, ranked, classes, parts_at)
    others = (last_above - first_above) - (last - first)
    # draw a place as if the range of the node itself did not exist, then shift it past that range
    place = first_above + (rng.random(len(classes)) * others).astype(np.int64)
    place = np.where(place >= first, place + (last - first), place)
    # if there are no others, the place may be beyond the end; its class is not used
    return ranked[np.minimum(place, len(ranked) - 1)], others > 0


def _range_of(
    votes: Votes, ranked: Indices, classes: Indices, level: Indices
) -> tuple[Indices, Indices]:
    """The range of the items of each class's node at a level: its first place, and the place after
    its last, (m,) each.

    Args:
        ranked: the classes of all items, sorted, (N,).
        classes: (m,).
        level: the index of a level for each class, (m,). −1 is the root, whose range has all items.
    """
    first = np.zeros(len(classes), np.int64)
    last = np.full(len(classes), len(ranked), np.int64)
    for at in range(votes.depth):
        here = level == at
        nodes = votes.paths[:, at]
        # nodes are numbered in the order of their paths, so that items that are sorted by class are
        # sorted by their nodes of every level as well
        first[here] = np.searchsorted(nodes[ranked], nodes[classes[here]], side="left")
        last[here] = np.searchsorted(nodes[ranked], nodes[classes[here]], side="right")
    return first, last
