"""Answers at a threshold: starting at the leaf with the largest share, climb up its path to the
deepest node whose mass reaches the threshold.

The mass of a node is the sum of an item's shares over the leaves below the node. The root has mass
1, and an answer at the root says nothing. Shares come from names, from neighbours, or from
somebody's predictions. All of them are turned into a `Climb`, which needs only L numbers for each
item, instead of one for each class.

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
    """The shares of items in paths of a tree: R rows, one for each pair of an item and a path.

    `owners` (R,): the item of each row. `paths` (R, L): the nodes of its path, coarse to fine,
    BELOW after the end of the path. `shares` (R,): at least 0. The shares of one item sum to at
    most 1; the rest belongs to the root alone.
    """

    owners: Positions
    paths: Labels
    shares: Values


class Climb(NamedTuple):
    """The path with the largest share of each of N items. `nodes` (N, L): the nodes of the path,
    BELOW after its end. `masses` (N, L): the masses of these nodes, 0 after the end."""

    nodes: Labels
    masses: Values

    @property
    def reach(self) -> Values:
        """The largest threshold at which an item has an answer at a level or at a finer one,
        (N, L): the largest of its masses from that level down."""
        # running maxima from the finest level up to the coarsest
        return np.maximum.accumulate(self.masses[:, ::-1], axis=1)[:, ::-1]

    def levels_at(self, threshold: float | Values) -> Positions:
        """The level of each item's answer (N,): the finest level whose node has at least the
        threshold as mass, 0 if there is none. `threshold`: one for all items, or one for each item
        (N,)."""
        # `reach` (N, L) is the largest mass of a node and the nodes below it on the path, so it
        # decreases down the path. The levels where it is at least the threshold are those down to
        # the answer's level, so their number is that level. BELOW: the path has no node there.
        thresholds = np.broadcast_to(np.asarray(threshold, np.float64), len(self.masses))
        said = (self.reach >= thresholds[:, None]) & (self.nodes != BELOW)
        return np.asarray(said.sum(axis=1), np.int64)

    def levels_by(self, thresholds: Values) -> Positions:
        """The finest level (N,) whose mass reaches the threshold of that level, 0 if there is none.
        `thresholds` (L,): one for each level."""
        depth = self.masses.shape[1]
        # a level can reach its threshold although a coarser one does not, so counting the levels
        # does not give the finest
        said = (self.masses >= thresholds) & (self.nodes != BELOW)
        return np.asarray((said * np.arange(1, depth + 1)).max(axis=1), np.int64)

    def of(self, rows: Positions | NDArray[np.bool_]) -> Climb:
        """The climbs of some items; `rows`: their positions (n,), or a mask (N,)."""
        return Climb(self.nodes[rows], self.masses[rows])


def climb_of(rows: Shares, items: int) -> Climb:
    """The climbs of the items 0 … `items` − 1: for each, the path with the largest share.

    If an item has several rows with the same path, their shares are added. Among paths with equal
    shares, the path whose nodes have the smallest numbers is taken. If the path ends at a node
    below which the item has longer paths, it is extended by the longer path with the largest share.

    `rows`: R shares, one for each pair of an item (`owners`) and one of its `paths`.
    """
    rows = _sum_equal_paths(rows)
    depth = rows.paths.shape[1]
    # (N,): the row with each item's largest share, −1 for an item without rows
    first = _row_of_largest_share(rows, items)
    nodes = np.full((items, depth), BELOW, rows.paths.dtype)
    has_rows = first >= 0
    nodes[has_rows] = rows.paths[first[has_rows]]
    nodes = _extend_paths(rows, nodes)

    masses = np.zeros((items, depth))
    for level in range(depth):
        # (R,): for each row, the node at this level on the path of the row's item. The mass of this
        # node is the sum of the shares of all rows of the item whose paths have the node, too.
        own = nodes[rows.owners, level]
        same = (rows.paths[:, level] == own) & (own != BELOW)
        masses[:, level] = np.bincount(rows.owners[same], rows.shares[same], items)
    return Climb(nodes, masses)


def _sum_equal_paths(rows: Shares) -> Shares:
    """Add up the shares of equal paths of an item. The result is sorted by item, then by path."""
    keys = np.concatenate([rows.owners[:, None], rows.paths], axis=1)
    # keys (R, 1 + L): an owner and a path; `of_row` (R,): the number of each row's key among the
    # different ones, which are sorted
    different, of_row = np.unique(keys, axis=0, return_inverse=True)
    # float64 even without rows, for which bincount returns int64
    sums = np.bincount(of_row.ravel(), rows.shares, len(different)).astype(np.float64)
    return Shares(
        owners=different[:, 0], paths=different[:, 1:].astype(rows.paths.dtype), shares=sums
    )


def _row_of_largest_share(rows: Shares, items: int) -> Positions:
    """The number of the row with the largest share of each item, (items,); the first of equal ones,
    and −1 for an item without rows."""
    # lexsort sorts by its last key first: by item, then by share, the largest first, then by number
    order = np.lexsort((np.arange(len(rows.owners)), -rows.shares, rows.owners))
    owners, at = np.unique(rows.owners[order], return_index=True)
    found = np.full(items, -1, np.int64)
    found[owners] = order[at]
    return found


def _extend_paths(rows: Shares, nodes: Labels) -> Labels:
    """Extend paths that end above the finest level, as far as possible. A path is replaced by a
    longer path of the same item that begins with it; if there are several, by the one with the
    largest share. `nodes` (N, L): the path of each item, BELOW after its end; `rows`: the shares of
    the same items, R rows."""
    depth = nodes.shape[1]
    if not (nodes == BELOW).any():
        return nodes
    ends = (nodes != BELOW).sum(axis=1)  # (N,): the length of each item's path
    lengths = (rows.paths != BELOW).sum(axis=1)
    # for each row, the path of its item (R, L), and the length of that path (R,)
    own = nodes[rows.owners]
    own_end = ends[rows.owners]
    # (R, L): whether the row's path has the same node at this level as the path of its item, or the
    # path of the item has ended above this level
    agrees = (own == rows.paths) | (np.arange(depth) >= own_end[:, None])
    # (R,): whether the row's path is longer than the path of its item, and begins with it. An item
    # whose path is empty is answered by the root, and keeps that answer.
    further = agrees.all(axis=1) & (lengths > own_end) & (own_end > 0)
    if not further.any():
        return nodes
    below = Shares(
        owners=rows.owners[further], paths=rows.paths[further], shares=rows.shares[further]
    )
    first = _row_of_largest_share(below, len(nodes))
    is_longer = first >= 0  # (N,): whether there is a longer path for the item
    nodes = nodes.copy()
    nodes[is_longer] = below.paths[first[is_longer]]
    # a longer path may end above the finest level, too
    return _extend_paths(rows, nodes)


def leaf_counts(tree: LabelTree) -> list[Positions]:
    """The number of leaves at or below each node: one array (nodes of the level,) for each level,
    coarse to fine. A leaf is a class without classes below it.

    A node that stands for an unknown class, or for the class of distractors (NO_CLASS), has the
    count 0: it is not a class that could be named, and only such nodes are below it.
    """
    # from the finest level up, so that by_level[0] is always that of the next finer level
    by_level: list[Positions] = []
    for level in range(tree.depth - 1, -1, -1):
        names = tree.names[level]
        below = np.zeros(len(names), np.int64)
        if by_level:
            # `parents` has the parent of each node of the next finer level; .at adds the counts of
            # all children of a node, where += would add only one of them
            np.add.at(below, tree.parents[level + 1], by_level[0])
        is_class = np.array([not is_unknown(name) and name != NO_CLASS for name in names])
        # maximum with 1: a class without classes below it is a leaf itself
        by_level.insert(0, np.where(is_class, np.maximum(below, 1), 0))
    return by_level


def coverage_of(tree: LabelTree, nodes: Labels) -> Values:
    """The coverage of an answer at each of the `nodes` (N, L) of paths, that is, how much the
    answer says: 1 − log2 l / log2 F, where l is the number of leaves below the node, and F that of
    the tree.

    Coverage (N, L) is 1 at a leaf, and at a node that the tree does not have. It is 0 at the root,
    and after the end of a path, where `nodes` is BELOW.
    """
    counts = leaf_counts(tree)
    whole = np.log2(max(int(counts[0].sum()), 2))  # at least 2: log2 of one leaf would be 0
    coverage = np.zeros(nodes.shape)
    for level, of_level in enumerate(counts):
        here = nodes[:, level]
        leaves = np.ones(len(here))  # 1 for nodes that the tree does not have
        # BELOW is negative, and nodes that were added to those of the tree have larger numbers
        in_tree = (here >= 0) & (here < len(of_level))
        # nodes for an unknown class and for distractors have the count 0, of which there is no log
        leaves[in_tree] = np.maximum(of_level[here[in_tree]], 1)
        coverage[:, level] = np.where(here == BELOW, 0.0, 1 - np.log2(leaves) / whole)
    return coverage


def verdicts(nodes: Labels, labels: Labels, owners: Positions, known: Positions) -> Values:
    """Whether each node of paths is right, (N, L): 1 or 0, or NaN if that is not known.

    Args:
        nodes: (N, L), the nodes of the path that each item is answered with, BELOW after its end.
        labels: the true paths (E, L), of which an item can have several, or none.
        owners: the item of each true path (E,).
        known: how many levels of each true path are known (E,), from the coarsest on.
    """
    depth = labels.shape[1]
    same = nodes[owners] == labels
    is_known = np.arange(1, depth + 1) <= known[:, None]
    # a node is right if it and all nodes above it are on a true path (hence cumprod); one of
    # several true paths is enough (hence "or")
    right = np.zeros(nodes.shape, bool)
    np.logical_or.at(right, owners, np.cumprod(same & is_known, axis=1).astype(bool))
    # A node at an unknown level of a true path may be right if all known levels agree.
    # `so_far`: whether no known level down to this one differs
    so_far = np.cumprod(same | ~is_known, axis=1).astype(bool)
    perhaps = np.zeros(nodes.shape, bool)
    np.logical_or.at(perhaps, owners, so_far & ~is_known)

    values = np.where(right, 1.0, np.where(perhaps, np.nan, 0.0))
    has_truth = np.bincount(owners, minlength=len(nodes)) > 0
    values[(nodes == BELOW) | ~has_truth[:, None]] = np.nan
    return values
