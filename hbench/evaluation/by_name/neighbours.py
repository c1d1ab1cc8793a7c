"""Computes the shares of an item's classes from its k nearest neighbours, which are weighted by
exp(τ · (cosine − 1)). The neighbours are the items of an embedding file that have a label in a
dataset."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pyarrow.compute as pc
from numpy.typing import NDArray

from hbench.core.errors import SubmissionError, examples
from hbench.core.tables import text_array
from hbench.datasets import Dataset
from hbench.datasets.manifest import Manifest
from hbench.engine.similarity.products import product_of, slices
from hbench.engine.similarity.unit_vectors import unit_vectors
from hbench.engine.top_k import candidates
from hbench.evaluation.by_name.naming import BLOCK_BYTES, Floats
from hbench.submissions.embeddings import Embeddings
from hbench.tree import Labels
from hbench.tree.names import class_rows
from hbench.tree.partial import known_part
from hbench.trust.climbing import BELOW, Climb, Positions, Shares, Values, climb_of
from hbench.trust.numbering import Numbering

K = 10
SHARPNESS = 20.0  # τ


class Neighbours(NamedTuple):
    """Items with labels: `vectors` (M, D) of length 1, `paths` (M, L). `places` (M,): the position
    of each among the items to be named, −1 if it is not one of them; with it an item is kept from
    being its own neighbour."""

    vectors: Floats
    paths: Labels
    places: Positions


def climb_by_neighbours(
    vectors: Floats, gallery: Neighbours, *, k: int = K, sharpness: float = SHARPNESS
) -> Climb:
    """Find the path with the largest share for each item, and the masses of the nodes on it.

    `vectors` (N, D): of the items, of length 1. `gallery`: the M items with labels, their vectors
    (M, D) and `paths` (M, L).

    Each of the `k` nearest gallery items has the weight exp(sharpness · (cosine − 1)). The share of
    a class is the weight of its items divided by the sum of all; shares add up along the paths. If
    cosines are equal the item that comes first in the gallery is taken.
    """
    # (N·k,) each, or fewer in a small gallery: the item, its neighbour in the gallery, their cosine
    owners, found, scores = _nearest_in_gallery(vectors, gallery, k)
    weights = np.exp(sharpness * (scores - 1))
    sums = np.bincount(owners, weights, len(vectors))
    shares = np.asarray(weights / sums[owners], np.float64)
    return climb_of(Shares(owners, gallery.paths[found], shares), len(vectors))


def _nearest_in_gallery(
    vectors: Floats, gallery: Neighbours, k: int
) -> tuple[Positions, Positions, Values]:
    """Find the k nearest gallery items of each vector (N, D), or all items of a smaller gallery.
    Return three arrays with an entry for each pair of a vector and a neighbour, sorted by vector,
    nearest first: the positions of the vectors, the positions in the gallery, and the cosines.
    """
    # the gallery items that are among the items to be named, and their positions among the vectors;
    # `places` has −1 for an item that is not to be named
    own = np.flatnonzero(gallery.places >= 0)
    place = gallery.places[own]
    parts: list[tuple[NDArray[np.int64], ...]] = []
    cosines = []
    for block in slices(len(vectors), BLOCK_BYTES // (4 * len(gallery.vectors))):
        scores = product_of(vectors[block], gallery.vectors)
        # an item that is also in the gallery is not its own neighbour
        here = (place >= block.start) & (place < block.stop)
        scores[place[here] - block.start, own[here]] = -np.inf
        # For each neighbour, best first: its row, counted from the first vector of the block, its
        # place in the list, which is not needed, its column in the gallery, and its cosine. Equal
        # cosines are ordered by column. An item with −inf, the item itself, is no neighbour.
        rows, _, columns, values = candidates(scores, k).best(k, _by_column)
        parts.append((rows + block.start, columns))
        cosines.append(values.astype(np.float64))
    owners, found = (np.concatenate(each) for each in zip(*parts, strict=True))
    return owners, found, np.concatenate(cosines)


def _by_column(rows: Positions, columns: Positions) -> Positions:
    """Return the sort keys (n,) of items with equal scores, given by `rows` and `columns` (n,); the
    lowest comes first. The column is the key, so the item that is first in the gallery is taken.
    """
    return columns


def gallery_of(
    source: Embeddings, data: Dataset, numbering: Numbering, items: NDArray[np.object_]
) -> tuple[Neighbours, list[str]]:
    """Take the items of an embedding file that have a label in the dataset as neighbours. Return
    them, and remarks on the others. `numbering`: turns paths of names into numbers of nodes.
    `items` (N,): the ids of the items to be named.

    Raises SubmissionError if no item has a label.
    """
    # sorted by id, so that the order of the file's rows does not matter for equal cosines
    order = np.argsort(source.ids.astype(str), kind="stable")
    ids = source.ids[order]
    # (n, L): the nodes along the path of each id, negative for an id without a label
    paths = _paths_of(ids, data, numbering)
    labelled = paths[:, 0] >= 0
    if not labelled.any():
        raise SubmissionError(
            "the dataset has labels of no item of the gallery",
            expected="an embedding file of items of its train split or its test",
            found=examples(ids.tolist()),
        )
    remarks = []
    if not labelled.all():
        without = ids[~labelled].tolist()
        remarks.append(
            f"{len(without):,} items of the gallery have no label in the dataset, and are no "
            f"neighbours: {examples(without)}"
        )
    # The positions of gallery items among the items to be named, −1 for those that are not. They
    # keep an item from being its own neighbour.
    own = pc.index_in(text_array(ids[labelled]), value_set=text_array(items))
    places = own.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
    vectors = unit_vectors(source.vectors[order[labelled]], np.float32)
    return Neighbours(vectors, paths[labelled], places), remarks


def _paths_of(ids: NDArray[np.object_], data: Dataset, numbering: Numbering) -> Labels:
    """Return the paths (M, L) of items, given by id, as numbers of nodes, which `numbering` gives
    to names. The label is that of the last split that has the item; tests come after the train
    split. BELOW (−1) stands for the unknown end of a path, or for a whole path without a label."""
    paths = np.full((len(ids), len(data.levels)), BELOW, np.int32)
    for manifest in _manifests(data):
        # (M,): the row of each item in this split, −1 if it is not there
        place = pc.index_in(text_array(ids), value_set=text_array(manifest.items))
        rows = place.fill_null(-1).to_numpy(zero_copy_only=False)
        # the split may number its classes differently, so they are found by name
        names = [known_part(row) for row in class_rows(manifest.tree)]
        # (C, L), by class; `labels[:, -1]` is the class of each item. In a path that ends
        # early, `known_part` left out the nodes that stand for the unknown: they become BELOW.
        nodes = numbering.paths(names)[manifest.labels[:, -1]]
        paths[rows >= 0] = nodes[rows[rows >= 0]]
    return paths


def _manifests(data: Dataset) -> Iterator[Manifest]:
    """Yield the splits of a dataset that have labels: the train split, if there is one, then the
    tests."""
    if data.train is not None:
        yield data.train
    yield from data.tests.values()
