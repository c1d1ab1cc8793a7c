"""Turns paths of names into numbers of nodes: those of a label tree, and new numbers for names that
the tree does not have.

>>> rows = [("Owls", "Barn owl"), ("Parrots", "Galah")]
>>> tree, _ = LabelTree.from_names(rows, levels=["order", "kind"])
>>> numbers = Numbering(tree)
>>> numbers.paths([("Owls", "Barn owl"), ("Owls", "Bay owl"), ("Owls",)]).tolist()
[[0, 0], [0, 2], [0, -1]]
>>> numbers.unknown, numbers.text([0, 2])
(('Owls > Bay owl',), 'Owls > Bay owl')
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hbench.sheets.paths import JOINED
from hbench.sheets.rows import Row
from hbench.tree import Labels, LabelTree
from hbench.tree.names import class_rows
from hbench.tree.partial import known_part
from hbench.trust.climbing import BELOW


class Numbering:
    """The numbers of nodes, within their level, by the names on the path from the top to the node.

    `names`: for each level, the names of its nodes in order of their numbers. `_of_path`: the
    number of a node by its path of names. `_lacking`: all paths that were added because the tree
    does not have them. `_unknown`: the topmost path of each added branch, in order.
    """

    def __init__(self, tree: LabelTree) -> None:
        """Start with the nodes of the tree; `paths` adds others."""
        self.tree = tree
        # copies, to which the names of added nodes are appended: the place of a name is the number
        # of its node
        self.names = [list(names) for names in tree.names]
        # path of names from the top to a node → the node's number within its level
        self._of_path: dict[Row, int] = {}
        for labels, row in zip(tree.paths.tolist(), class_rows(tree), strict=True):
            known = known_part(row)
            for depth in range(1, len(known) + 1):
                self._of_path[known[:depth]] = labels[depth - 1]
        self._lacking: set[Row] = set()  # the paths to all nodes that were added
        # those of them whose parent is a node of the tree, or that are on the top level
        self._unknown: list[Row] = []

    @property
    def unknown(self) -> tuple[str, ...]:
        """The paths that the tree does not have, each up to its first name that is not in it."""
        return tuple(JOINED.join(path) for path in self._unknown)

    def paths(self, rows: Sequence[Row]) -> Labels:
        """The numbers of the nodes (R, L) on R paths of names, `rows`; BELOW after the end of a
        path. Names that the tree does not have get new numbers."""
        nodes = np.full((len(rows), self.tree.depth), BELOW, np.int32)
        for at, row in enumerate(rows):
            for depth in range(1, len(row) + 1):
                nodes[at, depth - 1] = self._number(row[:depth])
        return nodes

    def _number(self, path: Row) -> int:
        """The number, within its level, of the node at the end of a path of names. A node that has
        no number yet gets the next one."""
        found = self._of_path.get(path)
        if found is None:
            names = self.names[len(path) - 1]
            found = self._of_path[path] = len(names)
            names.append(path[-1])
            self._lacking.add(path)  # the paths to nodes that the tree does not have
            if path[:-1] not in self._lacking:  # only the top of a new branch is reported
                self._unknown.append(path)
        return found

    def text(self, nodes: Sequence[int]) -> str:
        """The names on a path of `nodes` (L,), numbers by level, as one text. BELOW marks the end
        of the path."""
        named = zip(self.names, nodes, strict=False)
        return JOINED.join(names[node] for names, node in named if node != BELOW)
