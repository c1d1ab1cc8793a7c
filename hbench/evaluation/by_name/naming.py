"""Gives every picture a path in the label tree, by the vectors of the tree's nodes.

Three readers, none of which is best for every model:

* `each`: the best node of every level, whatever the others say;
* `sum`: probabilities softmax(scale · score) of the finest nodes, summed up to each node above;
* `down`: from the root, the best child each time.

A node without a vector scores as the best of its children.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hbench.tree import LabelTree

EACH, SUM, DOWN = READERS = ("each", "sum", "down")
SCALE = 100.0  # by which CLIP multiplies cosines
BLOCK_BYTES = 64 << 20  # of scores of the finest nodes at once
Floats = NDArray[np.float32]
Nodes = NDArray[np.int32]


class Readings(NamedTuple):
    """What the readers say of N pictures: `nodes` (N, L) of each reader; `shares` (N,), the
    probability of the finest node of `sum`."""

    nodes: dict[str, Nodes]
    shares: NDArray[np.float64]


class NodeVectors:
    """Vectors of the nodes of a tree: by level (nodes, D), with whether each node has one."""

    def __init__(
        self, tree: LabelTree, vectors: list[Floats], present: list[NDArray[np.bool_]]
    ) -> None:
        self.tree = tree
        self.vectors = vectors
        self.present = present
        # the nodes of a tree are numbered in the order of their paths: children lie side by side
        self.first_child = [
            np.searchsorted(parents, np.arange(len(above)))
            for parents, above in zip(tree.parents[1:], tree.names, strict=False)
        ]

    def read(self, pictures: Floats, *, scale: float = SCALE) -> Readings:
        """Name pictures by their vectors (N, D), a block of them at a time."""
        depth = self.tree.depth
        nodes = {reader: np.empty((len(pictures), depth), np.int32) for reader in READERS}
        shares = np.empty(len(pictures))
        at_once = max(1, BLOCK_BYTES // (4 * len(self.tree.names[-1])))
        for start in range(0, len(pictures), at_once):
            at = slice(start, start + at_once)
            by_level = self._scores(pictures[at])
            nodes[EACH][at] = np.stack([scores.argmax(axis=1) for scores in by_level], axis=1)
            nodes[DOWN][at] = self._down(by_level)
            nodes[SUM][at], shares[at] = self._summed(by_level[-1], scale)
        return Readings(nodes, shares)

    def _scores(self, pictures: Floats) -> list[Floats]:
        """The scores (n, nodes) of every level."""
        by_level: list[Floats] = []
        for level in range(self.tree.depth - 1, -1, -1):
            scores = pictures @ self.vectors[level].T
            missing = ~self.present[level]
            if missing.any():
                scores[:, missing] = -np.inf
                if by_level:
                    below = np.maximum.reduceat(by_level[0], self.first_child[level], axis=1)
                    scores[:, missing] = below[:, missing]
            by_level.insert(0, scores)
        return by_level

    def _down(self, by_level: list[Floats]) -> Nodes:
        """The best child of the best child, from the root; (n, L)."""
        path = np.empty((len(by_level[0]), self.tree.depth), np.int32)
        path[:, 0] = by_level[0].argmax(axis=1)
        for level in range(1, self.tree.depth):
            first = self.first_child[level - 1]
            last = np.append(first[1:], len(self.tree.names[level]))
            for row, above in enumerate(path[:, level - 1].tolist()):
                children = by_level[level][row, first[above] : last[above]]
                path[row, level] = first[above] + children.argmax()
        return path

    def _summed(self, finest: Floats, scale: float) -> tuple[Nodes, NDArray[np.float64]]:
        """The most probable node of every level (n, L), and the probability of the finest (n,). The
        scores are used up."""
        finest -= finest.max(axis=1, keepdims=True)
        finest *= np.float32(scale)
        shares = np.exp(finest, out=finest)
        shares /= shares.sum(axis=1, keepdims=True)
        best = np.empty((len(finest), self.tree.depth), np.int32)
        best[:, -1] = shares.argmax(axis=1)
        largest = shares.max(axis=1).astype(np.float64)
        for level in range(self.tree.depth - 2, -1, -1):
            shares = np.add.reduceat(shares, self.first_child[level], axis=1)
            best[:, level] = shares.argmax(axis=1)
        return best, largest


def are_consistent(tree: LabelTree, nodes: Nodes) -> NDArray[np.bool_]:
    """Whether the nodes (N, L) of every picture lie on one path of the tree."""
    on_path: NDArray[np.bool_] = (tree.paths[nodes[:, -1]] == nodes).all(axis=1)
    return on_path
