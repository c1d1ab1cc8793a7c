"""Finds copies: items far nearer than the nearest ones usually are, under other labels or in
another split.

What "near" means depends on the class: two models of one car are nearer than two animals. So the
tree gives a threshold per node: the distances 1 − cos of items to their nearest neighbour of
another label are compared among all items under a parent, by their logarithms. A copy is nearer
than their median by six of their standard deviations, or has the same vector. Pairs of one label,
in two splits, are held against the nearest neighbours of the own label.
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from hbench.auditing.evidence import Indices, Votes
from hbench.auditing.pool import Nearest, Pool

Floats = NDArray[np.float64]
EXACT = 1 - 1e-6  # cosines from which vectors are the same but for rounding
DEVIATIONS = 6
TO_DEVIATION = 1.4826  # from the median of absolute differences, of a normal distribution
FEWEST = 30  # items with a nearest neighbour, below which those of all parents count
SMALLEST = 1e-12  # a distance of rounding


class Pairs(NamedTuple):
    """Pairs of items (p,), and the cosines of their vectors (p,)."""

    first: Indices
    second: Indices
    cosines: Floats


def copies_of(pool: Pool, votes: Votes, nearest: Nearest) -> pa.Table:
    """A row per pair of an item and one of its nearest that is a copy under another label, or in
    another split, the most alike first; `is_exact`: whether the vectors are the same.

    `votes.classes` (N,): the items' labels; `nearest`: of every item its k nearest ones, with their
    cosines. A copy under the item's own label in its own split harms nothing, and is no row.
    """
    pairs = _pairs_with_nearest(nearest)
    same = votes.classes[pairs.first] == votes.classes[pairs.second]
    # what is far for one label is near for two: either kind of pair has limits of its own
    is_copy = np.where(same, _are_copies(votes, pairs, same), _are_copies(votes, pairs, ~same))
    elsewhere = pool.split[pairs.first] != pool.split[pairs.second]
    at = np.flatnonzero(is_copy & (~same | elsewhere))
    at = at[np.argsort(-pairs.cosines[at], kind="stable")]
    return _table_of_copies(
        pool, votes, Pairs(pairs.first[at], pairs.second[at], pairs.cosines[at])
    )


def is_copy_of_its_label(votes: Votes, nearest: Nearest) -> NDArray[np.bool_]:
    """Which of its nearest items (N, m) are copies of an item under the same label."""
    # each item beside each of its nearest, as flat pairs
    first = np.repeat(np.arange(len(nearest.items)), nearest.items.shape[1])
    pairs = Pairs(first, nearest.items.ravel(), nearest.cosines.ravel())
    same = votes.classes[pairs.first] == votes.classes[pairs.second]
    found: NDArray[np.bool_] = same & _are_copies(votes, pairs, same)
    return found.reshape(nearest.items.shape)


def _pairs_with_nearest(nearest: Nearest) -> Pairs:
    """Every item with each of its nearest ones, each pair once. A pair stands in the lists of both
    of its items, or of one."""
    number = len(nearest.items)
    first = np.repeat(np.arange(number), nearest.items.shape[1])
    second = nearest.items.ravel()
    # a pair as one number, whichever of the two comes first
    keys = np.minimum(first, second) * number + np.maximum(first, second)
    keys, place = np.unique(keys, return_index=True)
    return Pairs(*np.divmod(keys, number), nearest.cosines.ravel()[place])


def _are_copies(votes: Votes, pairs: Pairs, chosen: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Which pairs are copies, of pairs like the chosen ones (p,)."""
    # logarithms, since distances of copies lie many powers of ten below others
    distances = np.log(np.maximum(1 - pairs.cosines, SMALLEST))
    found: NDArray[np.bool_] = distances < _limits_of_pairs(votes, pairs, distances, chosen)
    return (pairs.cosines >= EXACT) | found


def _limits_of_pairs(
    votes: Votes, pairs: Pairs, distances: Floats, chosen: NDArray[np.bool_]
) -> Floats:
    """The logarithm of the distance (p,) below which a pair is a copy, by the other pairs under the
    parent of its first item.

    `distances` (p,): logarithms, too; `chosen` (p,): the pairs that set the limits, of which the
    nearest one of each item counts. `votes`: the class of every item (N,), and the parent of every
    class (C,), as numbers.
    """
    # (N,): of each item; ∞ where it is in no chosen pair, and so sets no limit
    nearest = np.full(len(votes.classes), np.inf)
    for items in (pairs.first, pairs.second):
        np.minimum.at(nearest, items[chosen], distances[chosen])

    parents = votes.parents[votes.classes]
    known = np.flatnonzero(np.isfinite(nearest))
    # a parent of few pairs takes the limit of all
    limits = np.full(int(parents.max()) + 1, _limit(nearest[known]))
    # items by parent: those of one lie side by side
    order = known[np.argsort(parents[known], kind="stable")]
    bounds = np.searchsorted(parents[order], np.arange(len(limits) + 1))
    for parent, (start, stop) in enumerate(pairwise(bounds.tolist())):
        if stop - start >= FEWEST:
            limits[parent] = _limit(nearest[order[start:stop]])
    by_pair: Floats = limits[parents[pairs.first]]
    return by_pair


def _limit(distances: Floats) -> float:
    """Far below what distances usually are; −inf of none. The median less DEVIATIONS standard
    deviations, estimated by the median distance from it, which few copies do not move."""
    if not len(distances):
        return -np.inf
    middle = float(np.median(distances))
    spread = TO_DEVIATION * float(np.median(np.abs(distances - middle)))
    return middle - DEVIATIONS * spread


def _table_of_copies(pool: Pool, votes: Votes, pairs: Pairs) -> pa.Table:
    """A row per pair: the copies, with the finest level down to which their labels agree, empty
    where they share none; the cosine of their vectors rounded to 6 digits, as for people."""
    labels = pool.labels
    levels = ["", *pool.manifest.levels]
    own, other = votes.classes[pairs.first], votes.classes[pairs.second]
    common = votes.common(own, other)  # (p,): how many levels the labels share: 0 is `levels[0]`
    ids = pool.manifest.items
    return pa.table(
        {
            "item": pa.array(ids[pairs.first].tolist(), pa.string()),
            "copy": pa.array(ids[pairs.second].tolist(), pa.string()),
            "similarity": pa.array(pairs.cosines.round(6)),
            "is_exact": pa.array(pairs.cosines >= EXACT),
            "label": pa.array([labels[each] for each in own.tolist()], pa.string()),
            "copy_label": pa.array([labels[each] for each in other.tolist()], pa.string()),
            "agree_to": pa.array([levels[each] for each in common.tolist()], pa.string()),
            "split": pa.array(pool.split[pairs.first].tolist(), pa.string()),
            "copy_split": pa.array(pool.split[pairs.second].tolist(), pa.string()),
        }
    )
