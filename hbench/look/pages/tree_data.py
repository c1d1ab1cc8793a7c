"""Prepares a label tree for its zoomable picture: the nodes of every level, their sizes, and the
scale of colours.

A tree's paths are sorted, so the children of a node are adjacent in the page's lists. The numbers
of children therefore suffice to draw any part of the tree.

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

# Digits that are kept of a fraction. Pages show three (43.2 %). With four kept, .43247 would become
# .4325 and be shown as 43.3, while tables show 43.2; with six, this is very rare.
DIGITS = 6
Floats = NDArray[np.float64]


def tree_data(tree: LabelTree, items: NDArray[np.int64]) -> dict[str, Any]:
    """Collect the names, numbers of items and numbers of children of the nodes of every level,
    coarse to fine, in drawing order.

    `nodes` in the result are the ids of the nodes in this order. `items` (C,) are the numbers of
    items of the fine classes.
    """
    orders = []
    children = []
    for level in range(tree.depth):
        nodes, first = np.unique(tree.paths[:, level], return_index=True)
        # in the order of first occurrence in the sorted paths
        orders.append(nodes[np.argsort(first, kind="stable")])
        # (parent, child) pairs. The finest level has no next one: its rows are single nodes, and
        # their counts are not used
        edges = np.unique(tree.paths[:, level : level + 2], axis=0)
        of_node = np.bincount(edges[:, 0], minlength=len(tree.names[level]))
        children.append(of_node[orders[-1]].tolist())

    sizes = [
        items_of_level(tree, items, level + 1)[order].tolist() for level, order in enumerate(orders)
    ]
    names = []
    for of_level, order in zip(shown_names(tree), orders, strict=True):
        names.append([of_level[node] for node in order])

    # fine classes have no children: the last level is left out
    return {
        "levels": list(tree.levels),
        "names": names,
        "nodes": [order.tolist() for order in orders],
        "items": sizes,
        "children": children[:-1],
        "colors": [list(color) for color in CIVIDIS],
    }


def rounded(values: Floats) -> list[float | None]:
    """Round values for JSON, with None for NaN."""
    return [None if math.isnan(value) else value for value in values.round(DIGITS).tolist()]
