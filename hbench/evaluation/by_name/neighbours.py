"""Shares of an item by its k nearest neighbours: exp(τ · (cosine − 1)), over their sum."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hbench.engine.top_k import candidates
from hbench.evaluation.by_name.naming import BLOCK_BYTES, Floats, product_of, slices
from hbench.tree import Labels
from hbench.trust.climbing import Climb, Positions, Shares, Values, climb_of

K = 10
SHARPNESS = 20.0  # τ


class Neighbours(NamedTuple):
    """Items with labels: `vectors` (M, D) of length 1, `paths` (M, L), and `places` (M,), that
    of each among the items that are named, −1 of others: no item is its own neighbour."""

    vectors: Floats
    paths: Labels
    places: Positions


def climb_by_neighbours(
    vectors: Floats, gallery: Neighbours, *, k: int = K, sharpness: float = SHARPNESS
) -> Climb:
    """The paths of the largest shares of items with vectors (N, D) of length 1.

    Of equal cosines the item counts that comes first in the gallery.
    """
    owners, found, scores = _nearest_in_gallery(vectors, gallery, k)
    weights = np.exp(sharpness * (scores - 1))
    sums = np.bincount(owners, weights, len(vectors))
    shares = np.asarray(weights / sums[owners], np.float64)
    return climb_of(Shares(owners, gallery.paths[found], shares), len(vectors))


def _nearest_in_gallery(
    vectors: Floats, gallery: Neighbours, k: int
) -> tuple[Positions, Positions, Values]:
    """Find the k items of the gallery that are nearest to each of N vectors (N, D): the numbers of
    the vectors, the places in the gallery, and the cosines; (N·k,) each, nearest first."""
    own = np.flatnonzero(gallery.places >= 0)
    place = gallery.places[own]
    parts: list[tuple[NDArray[np.int64], ...]] = []
    cosines = []
    for block in slices(len(vectors), BLOCK_BYTES // (4 * len(gallery.vectors))):
        scores = product_of(vectors[block], gallery.vectors)
        # an item that is named and in the gallery, too, is not its own neighbour
        here = (place >= block.start) & (place < block.stop)
        scores[place[here] - block.start, own[here]] = -np.inf
        rows, _, columns, values = candidates(scores, k).best(k, _by_column)
        parts.append((rows + block.start, columns))
        cosines.append(values.astype(np.float64))
    owners, found = (np.concatenate(each) for each in zip(*parts, strict=True))
    return owners, found, np.concatenate(cosines)


def _by_column(rows: Positions, columns: Positions) -> Positions:
    """The key of equal scores: the column."""
    return columns
