"""Finds copies: items nearer than nearly all pairs that are no copies, under other labels or in
another split.

What "near" means depends on the class: two models of one car are nearer than two animals. So the
tree gives a threshold per node: of pairs of items under a parent, drawn at random, 99.9 % are less
alike. Pairs under different labels are held against those of siblings, pairs of one label against
those of one class.
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from hbench.auditing.evidence import Indices, Votes
from hbench.auditing.pool import Pool
from hbench.auditing.suspects import known_part
from hbench.evaluation.by_name.nodes import JOINED
from hbench.tree.names import class_rows

Floats = NDArray[np.float64]
EXACT = 1 - 1e-6  # cosines from which vectors are the same but for rounding
NEARLY_ALL = 0.999
PAIRS = 2_000  # drawn for each parent
FEWEST = 200  # pairs, below which those of all parents count
ROWS_AT_ONCE = 4096


class Pairs(NamedTuple):
    """Pairs of items (p,), and the cosines of their vectors (p,)."""

    first: Indices
    second: Indices
    cosines: Floats


def copies_of(pool: Pool, votes: Votes, *, seed: int = 0) -> pa.Table:
    """A row per pair of an item and one of its neighbours that is a copy under another label, or in
    another split, the most alike first; `is_exact`: whether the vectors are the same."""
    unit = Unit(pool)
    pairs = _neighbours(unit, votes)
    parents = votes.parents[votes.classes]
    same = votes.classes[pairs.first] == votes.classes[pairs.second]
    rng = np.random.default_rng(seed)
    between, within = (
        _thresholds(unit, votes, rng, of_one_class=of_one_class) for of_one_class in (False, True)
    )
    threshold = np.where(same, within[parents[pairs.first]], between[parents[pairs.first]])

    is_copy = (pairs.cosines >= EXACT) | (pairs.cosines > threshold)
    elsewhere = pool.split[pairs.first] != pool.split[pairs.second]
    at = np.flatnonzero(is_copy & (~same | elsewhere))
    at = at[np.argsort(-pairs.cosines[at], kind="stable")]
    return _table(pool, votes, Pairs(pairs.first[at], pairs.second[at], pairs.cosines[at]))


class Unit:
    """The vectors of a pool at length 1, read as they are needed."""

    def __init__(self, pool: Pool) -> None:
        self.rows = pool.vectors

    def cosines(self, first: Indices, second: Indices) -> Floats:
        """The cosines of pairs (p,)."""
        found = np.empty(len(first))
        for start in range(0, len(first), ROWS_AT_ONCE):
            some = slice(start, start + ROWS_AT_ONCE)
            one, other = (self._of(each[some]) for each in (first, second))
            found[some] = np.einsum("ij,ij->i", one, other)
        return found

    def _of(self, items: Indices) -> Floats:
        """The vectors of items (m, D), at length 1."""
        vectors = np.asarray(self.rows.vectors[self.rows.rows[items]], np.float64)
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
        unit: Floats = vectors / np.where(lengths > 0, lengths, 1)
        return unit


def _neighbours(unit: Unit, votes: Votes) -> Pairs:
    """Every item with each of its neighbours, each pair once."""
    first = np.repeat(np.arange(len(votes.classes)), votes.k)
    second = votes.neighbours.ravel()
    low = np.minimum(first, second)
    high = np.maximum(first, second)
    keys = np.unique(low * len(votes.classes) + high)
    low, high = np.divmod(keys, len(votes.classes))
    return Pairs(low, high, unit.cosines(low, high))


def _thresholds(
    unit: Unit, votes: Votes, rng: np.random.Generator, *, of_one_class: bool
) -> Floats:
    """The cosine by parent that 99.9 % of random pairs under it do not reach: pairs of one class,
    or of siblings. Parents of few such pairs have that of all pairs together."""
    number = int(votes.parents.max()) + 1
    one, other = _drawn(votes, rng, number)
    is_same = votes.classes[one] == votes.classes[other]
    kept = (one != other) & (is_same == of_one_class)
    if not kept.any():
        return np.full(number, np.inf)

    cosines = unit.cosines(one[kept], other[kept])
    found = np.full(number, np.quantile(cosines, NEARLY_ALL))
    parents = votes.parents[votes.classes[one[kept]]]
    bounds = np.searchsorted(parents, np.arange(number + 1))
    for parent, (start, stop) in enumerate(pairwise(bounds.tolist())):
        if stop - start >= FEWEST:
            found[parent] = np.quantile(cosines[start:stop], NEARLY_ALL)
    return found


def _drawn(votes: Votes, rng: np.random.Generator, number: int) -> tuple[Indices, Indices]:
    """As many random pairs of items (p,) under each of a `number` of parents, parent by parent."""
    parents = votes.parents[votes.classes]
    order = np.argsort(parents, kind="stable")
    starts = np.searchsorted(parents[order], np.arange(number + 1))
    sizes = np.diff(starts)
    at = np.repeat(np.arange(number), np.where(sizes > 1, PAIRS, 0))
    one, other = (
        order[starts[at] + (rng.random(len(at)) * sizes[at]).astype(np.int64)] for _ in range(2)
    )
    return one, other


def _table(pool: Pool, votes: Votes, pairs: Pairs) -> pa.Table:
    """The copies, with the level down to which their labels agree."""
    paths = [JOINED.join(known_part(row)) for row in class_rows(pool.manifest.tree)]
    levels = ["", *pool.manifest.levels]
    own, other = votes.classes[pairs.first], votes.classes[pairs.second]
    common = np.cumprod(votes.paths[own] == votes.paths[other], axis=1).sum(axis=1)
    ids = pool.manifest.items
    return pa.table(
        {
            "item": pa.array(ids[pairs.first].tolist(), pa.string()),
            "copy": pa.array(ids[pairs.second].tolist(), pa.string()),
            "similarity": pa.array(pairs.cosines.round(6)),
            "is_exact": pa.array(pairs.cosines >= EXACT),
            "label": pa.array([paths[each] for each in own.tolist()], pa.string()),
            "copy_label": pa.array([paths[each] for each in other.tolist()], pa.string()),
            "agree_to": pa.array([levels[each] for each in common.tolist()], pa.string()),
            "split": pa.array(pool.split[pairs.first].tolist(), pa.string()),
            "copy_split": pa.array(pool.split[pairs.second].tolist(), pa.string()),
        }
    )
