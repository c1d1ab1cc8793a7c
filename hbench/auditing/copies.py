"""Finds copies: pairs of items that are much nearer to each other than nearest neighbours usually
are, with different labels or in different splits.

What "near" means depends on the class: two models of one car are nearer than two animals. So there
is a threshold for each parent in the tree. It is computed from the distances 1 − cos of all items
below the parent to their nearest neighbour of another label, on a logarithmic scale. A copy is
nearer than the median of these distances by six standard deviations, or has the same vector. Pairs
of one label, in two splits, are compared with nearest neighbours of the same label instead.
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
EXACT = 1 - 1e-6  # from this cosine on, vectors are equal up to rounding
DEVIATIONS = 6
TO_DEVIATION = 1.4826  # from the median absolute deviation to the standard deviation, if normal
FEWEST = 30  # with fewer items, a parent gets the threshold of all items
SMALLEST = 1e-12  # smaller distances are rounding


class Pairs(NamedTuple):
    """Pairs of items (p,), and the cosines of their vectors (p,)."""

    first: Indices
    second: Indices
    cosines: Floats


def copies_of(pool: Pool, votes: Votes, nearest: Nearest) -> pa.Table:
    """A table with a row for each pair of copies that have different labels or are in different
    splits, the most similar first. Copies with the same label and split do no harm and are left
    out. The column `is_exact` tells whether the vectors are the same.

    `nearest` has the k nearest items of every item, among which its copies are looked for.
    """
    pairs = _pairs_with_nearest(nearest)
    # (p,): whether both items of a pair have the same class
    same = votes.classes[pairs.first] == votes.classes[pairs.second]
    # Items of one label are usually nearer than those of two. So pairs of one label have their own
    # limits, and so have pairs of two labels. The last argument of `_are_copies` chooses the pairs
    # that set the limits.
    is_copy = np.where(same, _are_copies(votes, pairs, same), _are_copies(votes, pairs, ~same))
    elsewhere = pool.split[pairs.first] != pool.split[pairs.second]
    at = np.flatnonzero(is_copy & (~same | elsewhere))
    at = at[np.argsort(-pairs.cosines[at], kind="stable")]
    return _table_of_copies(
        pool,
        votes,
        Pairs(first=pairs.first[at], second=pairs.second[at], cosines=pairs.cosines[at]),
    )


def is_copy_of_its_label(votes: Votes, nearest: Nearest) -> NDArray[np.bool_]:
    """Whether each of the nearest items of an item is a copy of it under the same label, (N, m)."""
    # flat arrays of pairs of an item and each of its nearest items, (N · m,)
    first = np.repeat(np.arange(len(nearest.items)), nearest.items.shape[1])
    pairs = Pairs(first=first, second=nearest.items.ravel(), cosines=nearest.cosines.ravel())
    same = votes.classes[pairs.first] == votes.classes[pairs.second]
    found: NDArray[np.bool_] = same & _are_copies(votes, pairs, same)
    return found.reshape(nearest.items.shape)


def _pairs_with_nearest(nearest: Nearest) -> Pairs:
    """The pairs of every item and each of its nearest items. Each pair is listed once, even if each
    of its items is among the nearest items of the other."""
    number = len(nearest.items)
    first = np.repeat(np.arange(number), nearest.items.shape[1])
    second = nearest.items.ravel()
    # one number for a pair, which does not depend on its order
    keys = np.minimum(first, second) * number + np.maximum(first, second)
    keys, place = np.unique(keys, return_index=True)
    return Pairs(*np.divmod(keys, number), nearest.cosines.ravel()[place])


def _are_copies(votes: Votes, pairs: Pairs, chosen: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Whether each pair is a copy, (p,), by limits that the `chosen` pairs (p,) set. The result
    only has a meaning for these."""
    # logarithms, since distances of copies are smaller by many powers of ten
    distances = np.log(np.maximum(1 - pairs.cosines, SMALLEST))
    found: NDArray[np.bool_] = distances < _limits_of_pairs(votes, pairs, distances, chosen)
    return (pairs.cosines >= EXACT) | found


def _limits_of_pairs(
    votes: Votes, pairs: Pairs, distances: Floats, chosen: NDArray[np.bool_]
) -> Floats:
    """The limit of each pair, (p,): the logarithm of the distance below which it is a copy.

    There is a limit for each parent, since what is near depends on the class; it holds for pairs
    whose first item is below the parent.

    Args:
        distances: the logarithm of each pair's distance, (p,).
        chosen: whether a pair is used to set the limits, (p,). The nearest chosen pair of each item
            counts.
    """
    # (N,): the logarithm of the distance of each item's nearest chosen pair, ∞ if it has none
    nearest = np.full(len(votes.classes), np.inf)
    for items in (pairs.first, pairs.second):
        np.minimum.at(nearest, items[chosen], distances[chosen])

    parents = votes.parents[votes.classes]
    has_pair = np.flatnonzero(np.isfinite(nearest))
    # a parent with fewer than FEWEST items keeps the limit of all items
    limits = np.full(int(parents.max()) + 1, _limit(nearest[has_pair]))
    # sorted by parent, the items of parent i are order[bounds[i]:bounds[i + 1]]
    order = has_pair[np.argsort(parents[has_pair], kind="stable")]
    bounds = np.searchsorted(parents[order], np.arange(len(limits) + 1))
    for parent, (start, stop) in enumerate(pairwise(bounds.tolist())):
        if stop - start >= FEWEST:
            limits[parent] = _limit(nearest[order[start:stop]])
    by_pair: Floats = limits[parents[pairs.first]]
    return by_pair


def _limit(distances: Floats) -> float:
    """A limit far below the usual `distances`, which are logarithms: their median minus DEVIATIONS
    standard deviations. −inf if there are no distances."""
    if not len(distances):
        return -np.inf
    # the standard deviation is estimated as the median absolute deviation times a constant, since a
    # few copies do not change this median
    middle = float(np.median(distances))
    spread = TO_DEVIATION * float(np.median(np.abs(distances - middle)))
    return middle - DEVIATIONS * spread


def _table_of_copies(pool: Pool, votes: Votes, pairs: Pairs) -> pa.Table:
    """The table of copies with a row per pair. `agree_to` is the finest level down to which their
    labels agree, empty if they share none. The similarity is rounded to 6 digits for readers."""
    labels = pool.labels
    levels = ["", *pool.manifest.levels]  # levels[n] is the finest of n shared levels
    own, other = votes.classes[pairs.first], votes.classes[pairs.second]
    common = votes.common(own, other)  # (p,): the number of shared levels
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
