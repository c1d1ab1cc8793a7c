"""Limits the votes of copies with the same label.

A mistake is often made with all pictures of a burst, and these would confirm each other's labels.
So copies of an item under its own label do not vote on it. Of several copies of another item, only
the nearest one votes. In the model of their class, copies together count as one item.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components

from hbench.auditing.copies import is_copy_of_its_label
from hbench.auditing.evidence import Indices, Votes
from hbench.auditing.pool import Nearest

Floats = NDArray[np.float64]


def votes_of(
    labelled: tuple[Indices, Indices, Indices], nearest: Nearest, k: int
) -> tuple[Votes, Floats]:
    """The votes of every item's k nearest neighbours, copies excepted, and the distances 1 − cos to
    them, (N, k).

    `labelled` are the paths (C, L) and known levels (C,) of the classes, and the class of every
    item (N,). `nearest` has more than k items, so that others can take the place of copies.
    """
    paths, known, classes = labelled
    # the votes of all listed items, copies included, by which copies are found
    unlimited = Votes(
        paths=paths,
        known=known,
        classes=classes,
        neighbours=nearest.items,
        weights=np.ones(len(classes)),
    )
    bursts = _bursts(unlimited, nearest)  # (N,): the group of copies to which each item belongs
    listed = bursts[nearest.items]  # (N, m): the burst of each of the m nearest items
    # a neighbour is a repeat if it is in the item's own burst, or in that of a nearer neighbour
    is_repeat = listed == bursts[:, None]
    for place in range(1, listed.shape[1]):
        is_repeat[:, place] |= (listed[:, :place] == listed[:, place, None]).any(axis=1)

    # a stable sort puts neighbours that are no repeats first, and keeps the nearest first; if there
    # are fewer than k of them, repeats fill the end
    kept = np.argsort(is_repeat, axis=1, kind="stable")[:, :k]
    weights = 1 / np.bincount(bursts)[bursts]  # all items of a burst together weigh 1
    neighbours = np.take_along_axis(nearest.items, kept, axis=1)
    distances = 1 - np.take_along_axis(nearest.cosines, kept, axis=1)
    return Votes(paths, known, classes, neighbours, weights), distances


def _bursts(votes: Votes, nearest: Nearest) -> Indices:
    """The burst of each item, as a number from 0, (N,): items are in one burst if they are copies
    under the same label, or connected by such copies."""
    row, place = np.nonzero(is_copy_of_its_label(votes, nearest))
    pairs = (np.ones(len(row), bool), (row, nearest.items[row, place]))
    # a graph with an edge for each pair of copies; its components are the bursts
    graph = coo_matrix(pairs, shape=(len(votes.classes), len(votes.classes)))
    number: Indices = connected_components(graph, directed=False)[1].astype(np.int64)
    return number
