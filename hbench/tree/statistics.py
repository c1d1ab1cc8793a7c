"""Describes a label tree level by level: how many nodes, how they branch, how evenly items fill them.

>>> tree, labels = LabelTree.from_names([("a", "x"), ("a", "x"), ("a", "y"), ("b", "z")], levels=("coarse", "fine"))
>>> coarse, fine = statistics(tree, np.array([2, 1, 1]))
>>> coarse.nodes, fine.branching, fine.largest
(2, (1, 1.5, 2), ('x', 2))
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hbench.tree import LabelTree

Floats = NDArray[np.float64]


class LevelStatistics(NamedTuple):
    """A level's nodes; its branching, children per node of the level above (least, median, most); its effective number
    of classes, exp(−Σ p log p) over the nodes' shares p of the items; its largest and smallest node with their
    items."""

    level: str
    nodes: int
    branching: tuple[int, float, int]
    effective: float
    largest: tuple[str, int]
    smallest: tuple[str, int]


def statistics(tree: LabelTree, items: NDArray[np.int64]) -> list[LevelStatistics]:
    """The statistics of every level, coarse to fine; `items` (C,) are those of the fine classes."""
    levels = []
    for depth, (level, names) in enumerate(zip(tree.levels, tree.names, strict=True)):
        above = len(tree.names[depth - 1]) if depth else 1
        children = np.bincount(tree.parents[depth], minlength=above)
        items_here = items_of_level(tree, items, depth + 1)
        most, least = int(items_here.argmax()), int(items_here.argmin())
        levels.append(
            LevelStatistics(
                level,
                len(names),
                (int(children.min()), float(np.median(children)), int(children.max())),
                effective_number(items_here),
                (names[most], int(items_here[most])),
                (names[least], int(items_here[least])),
            )
        )
    return levels


def items_of_level(tree: LabelTree, items: NDArray[np.int64], depth: int) -> NDArray[np.int64]:
    """The items of every node at `depth` (1 … L), from those of the fine classes (C,)."""
    children = np.zeros(len(tree.names[depth - 1]), np.int64)
    np.add.at(children, tree.paths[:, depth - 1], items)
    return children


def means_of_nodes(tree: LabelTree, labels: NDArray[np.int32], values: Floats) -> list[Floats]:
    """Of every level, coarse to fine, the mean of values (N,) over the items (N, L) of each node; values that are NaN count
    for none, and nodes without any are NaN.

    >>> tree, labels = LabelTree.from_names([("a", "x"), ("a", "y"), ("b", "z")], levels=("coarse", "fine"))
    >>> [means.tolist() for means in means_of_nodes(tree, labels, np.array([0.25, 0.75, np.nan]))]
    [[0.5, nan], [0.25, 0.75, nan]]
    """
    known = ~np.isnan(values)
    values, tables = values[known], []
    for column, names in zip(labels[known].T, tree.names, strict=True):
        count = np.bincount(column, minlength=len(names))
        total = np.bincount(column, values, minlength=len(names))
        tables.append(np.divide(total, count, out=np.full(len(names), np.nan), where=count > 0))
    return tables


def effective_number(items: NDArray[np.int64]) -> float:
    """exp of the entropy of the shares: the number of equally large classes that would be as diverse.

    >>> effective_number(np.array([5, 5, 0, 0]))
    2.0
    """
    shares = items[items > 0] / items.sum()
    return float(np.exp(-(shares * np.log(shares)).sum()))
