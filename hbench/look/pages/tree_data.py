"""Prepares a label tree for the zoomable picture of it: nodes by level, how large they are, and the scale of their colours.

The children of a node lie side by side in the page's lists, since a tree's paths are sorted: a page needs no more than each
node's number of children to draw any part of it.

>>> tree, _ = LabelTree.from_names([("a", "x"), ("a", "y"), ("b", "z")], levels=("coarse", "fine"))
>>> found = tree_data(tree, np.array([5, 1, 2]))
>>> found["items"], found["children"]
([[6, 2], [5, 1, 2]], [[2, 1]])
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hbench.look.palette import CIVIDIS
from hbench.tree import LabelTree
from hbench.tree.statistics import items_of_level

DIGITS = 4
Floats = NDArray[np.float64]


def tree_data(tree: LabelTree, items: NDArray[np.int64]) -> dict[str, Any]:
    """Names, items and children of the nodes of every level, coarse to fine, in the order in which they are drawn; `nodes`:
    the ids that stand at each place. `items` (C,): those of the fine classes."""
    orders = [_drawn_order(tree, level) for level in range(tree.depth)]
    sizes = [items_of_level(tree, items, level + 1)[order].tolist() for level, order in enumerate(orders)]
    return {
        "levels": list(tree.levels),
        "names": [[names[node] for node in order] for names, order in zip(tree.names, orders, strict=True)],
        "nodes": [order.tolist() for order in orders],
        "items": sizes,
        "children": [_children(tree, level, orders) for level in range(tree.depth - 1)],
        "colors": [list(color) for color in CIVIDIS],
    }


def _drawn_order(tree: LabelTree, level: int) -> NDArray[np.int64]:
    """The nodes of a level as the sorted paths meet them first."""
    nodes, first = np.unique(tree.paths[:, level], return_index=True)
    order: NDArray[np.int64] = nodes[np.argsort(first, kind="stable")].astype(np.int64)
    return order


def _children(tree: LabelTree, level: int, orders: Sequence[NDArray[np.int64]]) -> list[int]:
    pairs = np.unique(tree.paths[:, level : level + 2], axis=0)
    counts: list[int] = np.bincount(pairs[:, 0], minlength=len(tree.names[level]))[orders[level]].tolist()
    return counts


def rounded(values: Floats) -> list[float | None]:
    """Values as JSON has them, None for NaN."""
    return [None if value != value else value for value in values.round(DIGITS).tolist()]  # noqa: PLR0124
