"""Answers at a threshold: from the leaf with the largest share up its path, to the deepest node
whose mass is large enough.

The mass of a node is the sum of an item's shares over the leaves below it; the root's is 1, and an
answer there says nothing. Shares come from names, from neighbours, or from somebody's predictions;
all of them end in a `Climb`, which holds L numbers of an item, and not one of every class.

>>> labels = np.array([[0, 0], [0, 1], [1, 2]])
>>> rows = Shares(np.array([0, 0, 0]), labels, np.array([0.5, 0.375, 0.125]))
>>> climb = climb_of(rows, 1)
>>> climb.nodes.tolist(), climb.masses.tolist()
([[0, 0]], [[0.875, 0.5]])
>>> climb.levels_at(0.8).tolist(), climb.levels_at(0.9).tolist()
([1], [0])
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hbench.tree import Labels, LabelTree
from hbench.tree.partial import NO_CLASS, is_unknown

Values = NDArray[np.float64]
Positions = NDArray[np.int64]
BELOW = -1  # stands for a node below the end of a path


class Shares(NamedTuple):
    """What R rows say of items: `owners` (R,), whose each is; `paths` (R, L), its nodes from the
    coarsest level on, BELOW its end; `shares` (R,), at least 0, of an item at most 1 in sum. What
    is missing to 1 stays on the root."""

    owners: Positions
    paths: Labels
    shares: Values


class Climb(NamedTuple):
    """The path of the largest share of each of N items: its `nodes` (N, L), BELOW its end, and
    their `masses` (N, L), 0 below it."""

    nodes: Labels
    masses: Values

    @property
    def reach(self) -> Values:
        """The largest threshold at which an item has an answer at a level or below it, (N, L): the
        largest of the masses from that level down."""
        # running maxima from the finest level upwards
        return np.maximum.accumulate(self.masses[:, ::-1], axis=1)[:, ::-1]

    def levels_at(self, threshold: float | Values) -> Positions:
        """The level of each answer (N,), 1 … L, 0 for none: the deepest node whose mass is at least
        the threshold; that may be one for each item (N,)."""
        # `reach` falls down the path: the levels that reach the threshold are the first ones
        thresholds = np.broadcast_to(np.asarray(threshold, np.float64), len(self.masses))
        said = (self.reach >= thresholds[:, None]) & (self.nodes != BELOW)
        return np.asarray(said.sum(axis=1), np.int64)

    def levels_by(self, thresholds: Values) -> Positions:
        """The deepest level (N,), 1 … L, whose mass reaches the threshold of that level, of the
        `thresholds` (L,); 0 where none does. `masses` (N, L): along the path of each item; `nodes`
        (N, L): BELOW after its end."""
        depth = self.masses.shape[1]
        said = (self.masses >= thresholds) & (self.nodes != BELOW)
        return np.asarray((said * np.arange(1, depth + 1)).max(axis=1), np.int64)

    def of(self, rows: Positions | NDArray[np.bool_]) -> Climb:
        """The climbs of some items; `rows`: their positions (n,), or a mask (N,)."""
        return Climb(self.nodes[rows], self.masses[rows])


def climb_of(rows: Shares, items: int) -> Climb:
    """The paths of the largest shares of a number of items.

    Rows of one path count together. Of equal shares the path comes first whose nodes do; a path
    that ends above others goes on along the largest of them.
    """
    rows = _sum_equal_paths(rows)
    depth = rows.paths.shape[1]
    # (N,): the row of each item's largest share, −1 without any
    first = _row_of_largest_share(rows, items)
    nodes = np.full((items, depth), BELOW, rows.paths.dtype)
    has = first >= 0
    nodes[has] = rows.paths[first[has]]
    nodes = _extend_paths(rows, nodes)

    masses = np.zeros((items, depth))
    for level in range(depth):
        # of each row's item the node on its path; the shares of the rows that have it, too, add up
        own = nodes[rows.owners, level]
        same = (rows.paths[:, level] == own) & (own != BELOW)
        masses[:, level] = np.bincount(rows.owners[same], rows.shares[same], items)
    return Climb(nodes, masses)


def _sum_equal_paths(rows: Shares) -> Shares:
    """The rows with the shares of equal paths of an item added up, sorted by item, then by path."""
    keys = np.concatenate([rows.owners[:, None], rows.paths], axis=1)
    # owner and path as one row: the different ones, and which of them each row is
    different, of_row = np.unique(keys, axis=0, return_inverse=True)
    sums = np.bincount(of_row.ravel(), rows.shares, len(different)).astype(np.float64)
    return Shares(different[:, 0], different[:, 1:].astype(rows.paths.dtype), sums)


def _row_of_largest_share(rows: Shares, items: int) -> Positions:
    """The number of the row with the largest share of every item (items,), the first of equal ones;
    −1 for an item without a row."""
    # lexsort takes its last key first: by item, then by falling share, then as they stand
    order = np.lexsort((np.arange(len(rows.owners)), -rows.shares, rows.owners))
    owners, at = np.unique(rows.owners[order], return_index=True)
    found = np.full(items, -1, np.int64)
    found[owners] = order[at]
    return found


def _extend_paths(rows: Shares, nodes: Labels) -> Labels:
    """Let the paths of N items, `nodes` (N, L), that end early go on along the largest share that
    their item has among the paths that begin with them; again, until none goes on. `rows`: of each
    share its item (`owners`), its path (R, L), BELOW from its end on, and its size."""
    depth = nodes.shape[1]
    if not (nodes == BELOW).any():
        return nodes
    ends = (nodes != BELOW).sum(axis=1)  # (N,): at how many levels each path has a node
    lengths = (rows.paths != BELOW).sum(axis=1)
    own = nodes[rows.owners]
    # the rows whose path begins with that of their item, and goes on
    agrees = (own == rows.paths) | (np.arange(depth) >= ends[rows.owners][:, None])
    further = agrees.all(axis=1) & (lengths > ends[rows.owners]) & (ends[rows.owners] > 0)
    if not further.any():
        return nodes
    below = Shares(rows.owners[further], rows.paths[further], rows.shares[further])
    first = _row_of_largest_share(below, len(nodes))
    has = first >= 0
    nodes = nodes.copy()
    nodes[has] = below.paths[first[has]]
    return _extend_paths(rows, nodes)


def leaf_counts(tree: LabelTree) -> list[Positions]:
    """How many leaves lie below every node: an array (nodes of the level,) per level. A leaf is a
    class below which is no other; what marks the unknown is no class, and counts nothing."""
    by_level: list[Positions] = []
    for level in range(tree.depth - 1, -1, -1):
        names = tree.names[level]
        below = np.zeros(len(names), np.int64)
        if by_level:
            np.add.at(below, tree.parents[level + 1], by_level[0])
        is_class = np.array([not is_unknown(name) and name != NO_CLASS for name in names])
        # a class without any class below it is a leaf itself
        by_level.insert(0, np.where(is_class, np.maximum(below, 1), 0))
    return by_level


def coverage_of(tree: LabelTree, nodes: Labels) -> Values:
    """How much an answer says: 1 − log2 leaves / log2 F of the nodes (N, L) of paths, by the leaves
    below a node and all F of the tree. 1 of a leaf, and of a node that the tree does not have; 0 of
    the root, and BELOW the end of a path."""
    counts = leaf_counts(tree)
    whole = np.log2(max(int(counts[0].sum()), 2))  # of a tree of one leaf, no division by 0
    coverage = np.zeros(nodes.shape)
    for level, of_level in enumerate(counts):
        here = nodes[:, level]
        leaves = np.ones(len(here))
        in_tree = (here >= 0) & (here < len(of_level))
        leaves[in_tree] = np.maximum(of_level[here[in_tree]], 1)
        coverage[:, level] = np.where(here == BELOW, 0.0, 1 - np.log2(leaves) / whole)
    return coverage


def verdicts(nodes: Labels, labels: Labels, owners: Positions, known: Positions) -> Values:
    """Whether the nodes (N, L) of paths are right (N, L): 1, 0, or NaN, where nobody knows.

    Args:
        nodes: of every item, BELOW the end of its path.
        labels: every true path (E, L).
        owners: whose path each is (E,).
        known: to how many levels each is known (E,); of 0, nothing is.
    """
    depth = labels.shape[1]
    same = nodes[owners] == labels
    is_known = np.arange(1, depth + 1) <= known[:, None]
    # a node is right where all above it are, too; of several true paths one is enough
    right = np.zeros(nodes.shape, bool)
    np.logical_or.at(right, owners, np.cumprod(same & is_known, axis=1).astype(bool))
    # below what is known, a path may be right where it is right as far as that
    so_far = np.cumprod(same | ~is_known, axis=1).astype(bool)
    perhaps = np.zeros(nodes.shape, bool)
    np.logical_or.at(perhaps, owners, so_far & ~is_known)

    values = np.where(right, 1.0, np.where(perhaps, np.nan, 0.0))
    has_truth = np.bincount(owners, minlength=len(nodes)) > 0
    values[(nodes == BELOW) | ~has_truth[:, None]] = np.nan
    return values
