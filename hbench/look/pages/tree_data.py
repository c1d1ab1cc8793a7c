"""Prepares a label tree for its zoomable picture: the nodes of every level, their sizes, and the
scale of colours.

Since a tree's paths are sorted, the children of a node are adjacent in the page's lists: the
numbers of children suffice to draw any part of the tree.

>>> tree, _ = LabelTree.from_names([("a", "x"), ("a", "y"), ("b", "z")], levels=("coarse", "fine"))
>>> found = tree_data(tree, np.array([5, 1, 2]))
>>> found["items"], found["children"]
([[6, 2], [5, 1, 2]], [[2, 1]])
"""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hbench.look.palette import CIVIDIS
from hbench.tree import LabelTree
from hbench.tree.partial import shown_names
from hbench.tree.statistics import items_of_level

DIGITS = 4
Floats = NDArray[np.float64]


def tree_data(tree: LabelTree, items: NDArray[np.int64]) -> dict[str, Any]:
    """Collect what the page's script needs to draw a tree, in the order in which it draws the nodes
    of a level: those of one parent side by side.

    `items` (C,): the numbers of items of the fine classes. Returns, besides the names of the levels
    and the colours, by level, coarse to fine: "names", "items" and "nodes" (their numbers in the
    tree) of its nodes; and "children", how many each has, which the finest level lacks.
    """
    orders = []
    children = []
    for level in range(tree.depth):
        nodes, first = np.unique(tree.paths[:, level], return_index=True)
        # the paths (C, L) are sorted, so by first occurrence the nodes of one parent stay together
        orders.append(nodes[np.argsort(first, kind="stable")])
        # each (parent, child) once; a parent occurs as often as it has children
        edges = np.unique(tree.paths[:, level : level + 2], axis=0)
        counts = np.bincount(edges[:, 0], minlength=len(tree.names[level]))
        children.append(counts[orders[-1]].tolist())

    sizes = [
        items_of_level(tree, items, level + 1)[order].tolist() for level, order in enumerate(orders)
    ]
    names = []
    for of_level, order in zip(shown_names(tree), orders, strict=True):
        names.append([of_level[node] for node in order])

    return {
        "levels": list(tree.levels),
        "names": names,
        "nodes": [order.tolist() for order in orders],
        "items": sizes,
        "children": children[:-1],  # the finest level has none
        "colors": [list(color) for color in CIVIDIS],
    }


def rounded(values: Floats) -> list[float | None]:
    """Round values (n,) for JSON, which is as long as their digits; None for NaN, which it has
    not."""
    return [None if math.isnan(value) else value for value in values.round(DIGITS).tolist()]
