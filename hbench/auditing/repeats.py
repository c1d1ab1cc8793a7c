"""Lets what comes several times under one label speak once.

A mistake is often made with all pictures of a burst, and each of them would vouch for the others.
So copies of an item under its own label have no vote about it, of several copies of another item
the nearest alone has one, and in the model of their class copies count together as one item.
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
    """The votes of the k nearest neighbours of every item that are no copies, and the distances
    1 − cos of these (N, k). `labelled`: the paths and known levels of classes, and the class of
    every item."""
    paths, known, classes = labelled
    everyone = Votes(paths, known, classes, nearest.items, np.ones(len(classes)))
    # (N,): the number of each item's burst, its copies under its own label
    bursts = _bursts(everyone, nearest)
    listed = bursts[nearest.items]
    # a neighbour repeats if it is of the item's own burst, or of that of a nearer neighbour
    is_repeat = listed == bursts[:, None]
    for place in range(1, listed.shape[1]):
        is_repeat[:, place] |= (listed[:, :place] == listed[:, place, None]).any(axis=1)

    # a stable sort puts what is no repeat first, nearest first; where these are too few, copies
    # fill the end
    kept = np.argsort(is_repeat, axis=1, kind="stable")[:, :k]
    weights = 1 / np.bincount(bursts)[bursts]
    neighbours = np.take_along_axis(nearest.items, kept, axis=1)
    distances = 1 - np.take_along_axis(nearest.cosines, kept, axis=1)
    return Votes(paths, known, classes, neighbours, weights), distances


def _bursts(votes: Votes, nearest: Nearest) -> Indices:
    """A number for every item (N,), the same for copies under one label."""
    row, place = np.nonzero(is_copy_of_its_label(votes, nearest))
    pairs = (np.ones(len(row), bool), (row, nearest.items[row, place]))
    # an edge for each pair of copies: copies of copies are in one component
    graph = coo_matrix(pairs, shape=(len(votes.classes), len(votes.classes)))
    number: Indices = connected_components(graph, directed=False)[1].astype(np.int64)
    return number
