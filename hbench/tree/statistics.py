"""Describes a label tree level by level: the number of nodes, their branching, and the distribution
of items over them.

>>> tree, labels = LabelTree.from_names(
...     [("a", "x"), ("a", "x"), ("a", "y"), ("b", "z")], levels=("coarse", "fine")
... )
>>> coarse, fine = statistics(tree, np.array([2, 1, 1]))
>>> coarse.nodes, tuple(fine.branching), fine.largest
(2, (1, 1.5, 2), ('x', 2))
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hbench.tree import LabelTree
from hbench.tree.partial import is_class

Floats = NDArray[np.float64]


class Branching(NamedTuple):
    """How many children the nodes above a level have."""

    least: int
    median: float
    most: int


class LevelStatistics(NamedTuple):
    """The statistics of a level of a tree."""

    level: str
    nodes: int  # how many there are
    branching: Branching  # children per node of the level above
    effective: float  # number of classes, exp(−Σ p log p) over the nodes' shares p of the items
    largest: tuple[str, int]  # the node with most items, and their number
    smallest: tuple[str, int]


def statistics(tree: LabelTree, items: NDArray[np.int64]) -> list[LevelStatistics]:
    """Compute the statistics of every level, coarse to fine. `items` (C,) are the numbers of items
    of the fine classes. Nodes that mark the unknown are not counted.
    """
    rows = []
    for depth, (level, names) in enumerate(zip(tree.levels, tree.names, strict=True)):
        # bool, for each node of the level above: True unless it marks the unknown; at the top, the
        # root alone
        above = _described(tree, depth) if depth else np.ones(1, bool)
        nodes = np.flatnonzero(_described(tree, depth + 1))
        # the number of described children of each described node of the level above;
        # `parents[depth]` has for each node of this level the id of its parent there
        children = np.bincount(tree.parents[depth][nodes], minlength=len(above))[above]
        branching = Branching(
            least=int(children.min()), median=float(np.median(children)), most=int(children.max())
        )
        counts = items_of_level(tree, items, depth + 1)[nodes]
        largest, smallest = (
            (names[nodes[at]], int(counts[at])) for at in (counts.argmax(), counts.argmin())
        )
        effective = effective_number(counts)
        rows.append(LevelStatistics(level, len(nodes), branching, effective, largest, smallest))

    return rows


def _described(tree: LabelTree, level: int) -> NDArray[np.bool_]:
    """Whether each node of a level, 1 … L, is counted in the statistics, (n,): it is a class and
    does not mark the unknown."""
    known = is_class(tree, level)
    # if no node is a class, all are counted, since statistics need at least one
    return known if known.any() else ~known


def items_of_level(tree: LabelTree, items: NDArray[np.int64], depth: int) -> NDArray[np.int64]:
    """Count the items of every node at `depth` (1 … L). `items` (C,) are the numbers of items of
    the fine classes."""
    counts = np.zeros(len(tree.names[depth - 1]), np.int64)
    # np.add.at, since a node occurs once for each class below it; counts[…] += would add only once
    np.add.at(counts, tree.paths[:, depth - 1], items)
    return counts


def means_of_nodes(tree: LabelTree, labels: NDArray[np.int32], values: Floats) -> list[Floats]:
    """Average `values` (N,) over the items of each node, one array per level, coarse to fine.

    `labels` (N, L) are the node ids of the items. Items whose value is NaN are ignored; a node
    without any other items gets NaN.

    >>> tree, labels = LabelTree.from_names(
    ...     [("a", "x"), ("a", "y"), ("b", "z")], levels=("coarse", "fine")
    ... )
    >>> [means.tolist() for means in means_of_nodes(tree, labels, np.array([0.25, 0.75, np.nan]))]
    [[0.5, nan], [0.25, 0.75, nan]]
    """
    known = ~np.isnan(values)
    values = values[known]
    means = []
    for column, names in zip(labels[known].T, tree.names, strict=True):
        count = np.bincount(column, minlength=len(names))
        total = np.bincount(column, values, minlength=len(names))
        means.append(np.divide(total, count, out=np.full(len(names), np.nan), where=count > 0))
    return means


def effective_number(items: NDArray[np.int64]) -> float:
    """The effective number of classes: the number of equally large classes that would have the same
    diversity. It is exp of the entropy of the classes' shares of the items. `items` are the numbers
    of items of the classes; empty classes are ignored.

    >>> effective_number(np.array([5, 5, 0, 0]))
    2.0
    """
    shares = items[items > 0] / items.sum()
    return float(np.exp(-(shares * np.log(shares)).sum()))
