"""Shares of an item by its k nearest neighbours: exp(τ · (cosine − 1)), over their sum; neighbours
are the items of an embedding file that a dataset has labels of."""

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
from hbench.engine.similarity.unit_vectors import unit_vectors
from hbench.engine.top_k import candidates
from hbench.evaluation.by_name.naming import BLOCK_BYTES, Floats, product_of, slices
from hbench.submissions.embeddings import Embeddings
from hbench.tree import Labels
from hbench.tree.names import class_rows
from hbench.tree.partial import known_part
from hbench.trust.climbing import BELOW, Climb, Positions, Shares, Values, climb_of
from hbench.trust.numbering import Numbering

K = 10
SHARPNESS = 20.0  # τ


class Neighbours(NamedTuple):
    """Items with labels: their `vectors` (M, D) of length 1, their `paths` (M, L), and `places`
    (M,): the place of each among the items that are named, −1 if it is none of them; by these no
    item becomes its own neighbour."""

    vectors: Floats
    paths: Labels
    places: Positions


def climb_by_neighbours(
    vectors: Floats, gallery: Neighbours, *, k: int = K, sharpness: float = SHARPNESS
) -> Climb:
    """The paths of the largest shares of items with vectors (N, D) of length 1.

    Each of the `k` nearest items of the gallery has the weight exp(sharpness · (cosine − 1)), and
    gives its class that share of the sum; shares add up along the paths. Of equal cosines the item
    counts that comes first in the gallery.
    """
    # (N·k,) each: the item, its neighbour in the gallery, their cosine
    owners, found, scores = _nearest_in_gallery(vectors, gallery, k)
    weights = np.exp(sharpness * (scores - 1))
    sums = np.bincount(owners, weights, len(vectors))
    shares = np.asarray(weights / sums[owners], np.float64)
    return climb_of(Shares(owners, gallery.paths[found], shares), len(vectors))


def _nearest_in_gallery(
    vectors: Floats, gallery: Neighbours, k: int
) -> tuple[Positions, Positions, Values]:
    """Find the k items of the gallery that are nearest to each of N vectors (N, D), or all items of
    a smaller gallery. Returns one entry for each pair of a vector and a neighbour, vector by
    vector, nearest first: the numbers of the vectors, the places in the gallery, and the cosines.
    """
    # gallery items that are named themselves, and their places among the vectors
    own = np.flatnonzero(gallery.places >= 0)
    place = gallery.places[own]
    parts: list[tuple[NDArray[np.int64], ...]] = []
    cosines = []
    for block in slices(len(vectors), BLOCK_BYTES // (4 * len(gallery.vectors))):
        scores = product_of(vectors[block], gallery.vectors)
        # an item that is named and in the gallery, too, is not its own neighbour
        here = (place >= block.start) & (place < block.stop)
        scores[place[here] - block.start, own[here]] = -np.inf
        # a candidate's row counts from the block's first vector
        rows, _, columns, values = candidates(scores, k).best(k, _by_column)
        parts.append((rows + block.start, columns))
        cosines.append(values.astype(np.float64))
    owners, found = (np.concatenate(each) for each in zip(*parts, strict=True))
    return owners, found, np.concatenate(cosines)


def _by_column(rows: Positions, columns: Positions) -> Positions:
    """The keys (n,) that order equal scores of a row, lower first, for items given by `rows` and
    `columns` (n,): the columns themselves, so that the item counts that comes first in the gallery.
    """
    return columns


def gallery_of(
    source: Embeddings, data: Dataset, numbering: Numbering, items: NDArray[np.object_]
) -> tuple[Neighbours, list[str]]:
    """Take those items of an embedding file that the dataset has labels of, as neighbours for items
    (N,) that are to be named; and remarks on the others.

    Raises SubmissionError where the dataset has labels of none.
    """
    # by id, so that the order of the file's rows decides nothing among equal cosines
    order = np.argsort(source.ids.astype(str), kind="stable")
    ids = source.ids[order]
    # (n, L): numbers of the nodes along the path of each id, negative without a label
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
    # where an item of the gallery is to be named itself: it is not its own neighbour
    own = pc.index_in(text_array(ids[labelled]), value_set=text_array(items))
    places = own.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
    vectors = unit_vectors(source.vectors[order[labelled]], np.float32)
    return Neighbours(vectors, paths[labelled], places), remarks


def _paths_of(ids: NDArray[np.object_], data: Dataset, numbering: Numbering) -> Labels:
    """The paths (M, L) of items, given by their ids, by the labels of any split, of the last that
    has one; in the numbers of `numbering`, and BELOW for unknown ends and items without a label."""
    paths = np.full((len(ids), len(data.levels)), BELOW, np.int32)
    for manifest in _manifests(data):
        # (M,): the row of each item in this split, −1 where it is not there
        place = pc.index_in(text_array(ids), value_set=text_array(manifest.items))
        rows = place.fill_null(-1).to_numpy(zero_copy_only=False)
        # the split's own classes may be numbered otherwise: they are placed by their names
        names = [known_part(row) for row in class_rows(manifest.tree)]
        nodes = numbering.paths(names)[manifest.labels[:, -1]]
        paths[rows >= 0] = nodes[rows[rows >= 0]]
    return paths


def _manifests(data: Dataset) -> Iterator[Manifest]:
    """Yield the splits of a dataset that have labels: the train split, if any, then the tests,
    whose labels count where both have an item."""
    if data.train is not None:
        yield data.train
    yield from data.tests.values()
