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
    """The shares of items in paths of a tree, a row for each pair of an item and a path, R rows.

    `owners` (R,): the item of each row; `paths` (R, L): the nodes of its path from the coarsest
    level on, BELOW after the end of the path; `shares` (R,): at least 0; those of one item sum to
    at most 1, and what is missing to 1 stays on the root."""

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
        """The largest threshold (N, L) at which an item has an answer at a level or at a deeper
        one: the largest of its masses from that level down."""
        # running maxima from the finest level upwards
        return np.maximum.accumulate(self.masses[:, ::-1], axis=1)[:, ::-1]

    def levels_at(self, threshold: float | Values) -> Positions:
        """The level of each answer (N,), 1 … L, 0 for none: that of the deepest node whose mass is
        at least the threshold. `threshold`: one for all items, or one for each item (N,)."""
        # `reach` falls down the path: the levels that reach the threshold are the first ones
        thresholds = np.broadcast_to(np.asarray(threshold, np.float64), len(self.masses))
        said = (self.reach >= thresholds[:, None]) & (self.nodes != BELOW)
        return np.asarray(said.sum(axis=1), np.int64)

    def levels_by(self, thresholds: Values) -> Positions:
        """The deepest level (N,), 1 … L, whose mass reaches the threshold of that level, of the
        `thresholds` (L,); 0 where none does. `masses` (N, L): along the path of each item; `nodes`
        (N, L): BELOW after its end."""
        depth = self.masses.shape[1]
        # a level can pass where a coarser one does not, so that passes cannot be counted
        said = (self.masses >= thresholds) & (self.nodes != BELOW)
        return np.asarray((said * np.arange(1, depth + 1)).max(axis=1), np.int64)

    def of(self, rows: Positions | NDArray[np.bool_]) -> Climb:
        """The climbs of some items; `rows`: their positions (n,), or a mask (N,)."""
        return Climb(self.nodes[rows], self.masses[rows])


def climb_of(rows: Shares, items: int) -> Climb:
    """The climbs of the items 0 … `items` − 1: the path of an item's largest share, with masses.

    An item's rows of the same path are one share. Of paths with equal shares the one whose nodes
    have the smaller numbers is taken. Where an item's path ends at a node below which the item has
    longer paths, it goes on along the longer path with the largest share.
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
        # (R,): the node at this level on the path of each row's item. The mass of that node is the
        # sum of the shares of all the item's rows whose path has the node, too
        own = nodes[rows.owners, level]
        same = (rows.paths[:, level] == own) & (own != BELOW)
        masses[:, level] = np.bincount(rows.owners[same], rows.shares[same], items)
    return Climb(nodes, masses)


def _sum_equal_paths(rows: Shares) -> Shares:
    """The rows with the shares of equal paths of an item added up, sorted by item, then by path."""
    keys = np.concatenate([rows.owners[:, None], rows.paths], axis=1)
    # keys (R, 1 + L): the owner, then its path; `of_row` (R,): which of the different keys it has
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
    """Make paths of items that end early longer, until none can be: a path goes on along the
    longer path of its item that begins with it and has the largest share. `nodes` (N, L): the path
    of each item, BELOW after its end; `rows`: the shares of the same items, R rows."""
    depth = nodes.shape[1]
    if not (nodes == BELOW).any():
        return nodes
    ends = (nodes != BELOW).sum(axis=1)  # (N,): at how many levels each path has a node
    lengths = (rows.paths != BELOW).sum(axis=1)
    own = nodes[rows.owners]
    own_end = ends[rows.owners]
    # (R,): the rows whose path begins with the path of their item, and is longer; an item with an
    # empty path is answered by the root, and stays there
    agrees = (own == rows.paths) | (np.arange(depth) >= own_end[:, None])
    further = agrees.all(axis=1) & (lengths > own_end) & (own_end > 0)
    if not further.any():
        return nodes
    below = Shares(rows.owners[further], rows.paths[further], rows.shares[further])
    first = _row_of_largest_share(below, len(nodes))
    has = first >= 0
    nodes = nodes.copy()
    nodes[has] = below.paths[first[has]]
    # the longer path may end early itself
    return _extend_paths(rows, nodes)


def leaf_counts(tree: LabelTree) -> list[Positions]:
    """How many leaves lie below every node: an array (nodes of the level,) per level, the coarsest
    first. A leaf is a class without classes below it; a node that stands for an unknown class is
    none, and counts 0."""
    # from the finest level up, so that the first array is always of the next finer level
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
    """How much an answer at each of the `nodes` (N, L) of paths says, (N, L): 1 − log2 l / log2 F,
    where l leaves are below the node and F in the tree. It is 1 at a leaf, and at a node that the
    tree does not have; 0 at the root, and after the end of a path, where `nodes` is BELOW."""
    counts = leaf_counts(tree)
    whole = np.log2(max(int(counts[0].sum()), 2))  # of a tree of one leaf, no division by 0
    coverage = np.zeros(nodes.shape)
    for level, of_level in enumerate(counts):
        here = nodes[:, level]
        leaves = np.ones(len(here))  # of a node that the tree does not have: as of a leaf
        in_tree = (here >= 0) & (here < len(of_level))
        leaves[in_tree] = np.maximum(of_level[here[in_tree]], 1)
        coverage[:, level] = np.where(here == BELOW, 0.0, 1 - np.log2(leaves) / whole)
    return coverage


def verdicts(nodes: Labels, labels: Labels, owners: Positions, known: Positions) -> Values:
    """Whether the nodes (N, L) of paths are right (N, L): 1, 0, or NaN, where nobody knows.

    Args:
        nodes: of the path that answers for each item (N, L), BELOW after its end.
        labels: the true paths (E, L), of which an item can have several, or none.
        owners: the item of each true path (E,).
        known: how many levels of each true path are known (E,), from the coarsest on.
    """
    depth = labels.shape[1]
    same = nodes[owners] == labels
    is_known = np.arange(1, depth + 1) <= known[:, None]
    # a node is right where all above it are, too; of several true paths one is enough, hence "or"
    right = np.zeros(nodes.shape, bool)
    np.logical_or.at(right, owners, np.cumprod(same & is_known, axis=1).astype(bool))
    # below the known levels of a true path, a node may be right if all the known ones are equal
    so_far = np.cumprod(same | ~is_known, axis=1).astype(bool)
    perhaps = np.zeros(nodes.shape, bool)
    np.logical_or.at(perhaps, owners, so_far & ~is_known)

    values = np.where(right, 1.0, np.where(perhaps, np.nan, 0.0))
    has_truth = np.bincount(owners, minlength=len(nodes)) > 0
    values[(nodes == BELOW) | ~has_truth[:, None]] = np.nan
    return values
