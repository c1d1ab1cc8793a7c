"""Gives every picture a path in the label tree, by the vectors of the tree's nodes.

Three readers, none of which is best for every model:

* `each`: the best node of every level, whatever the others say;
* `sum`: probabilities softmax(scale · score) of the finest nodes, summed up to each node above;
* `down`: from the root, the best child each time.

A node without a vector scores as the best of its children.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hbench.tree import LabelTree

EACH, SUM, DOWN = READERS = ("each", "sum", "down")
SCALE = 100.0  # by which CLIP multiplies cosines
BLOCK_BYTES = 128 << 20  # of scores of the finest nodes at once
CACHE_BYTES = 1 << 20  # of them that are read at once
Floats = NDArray[np.float32]
Nodes = NDArray[np.int32]
Positions = NDArray[np.int64]


class Readings(NamedTuple):
    """What the readers say of N pictures: `nodes` (N, L) of each reader; `shares` (N,), the
    probability of the finest node of `sum`."""

    nodes: dict[str, Nodes]
    shares: NDArray[np.float64]


class NodeVectors:
    """Vectors of nodes of a tree, by level: `nodes` (n,), those that have one, in order, and
    `vectors` (n, D)."""

    def __init__(self, tree: LabelTree, nodes: list[Positions], vectors: list[Floats]) -> None:
        self.tree = tree
        self.nodes = nodes
        self.vectors = vectors
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
        bytes_of_one = 4 * len(self.tree.names[-1])
        for block in _slices(len(pictures), BLOCK_BYTES // bytes_of_one):
            products = [pictures[block] @ vectors.T for vectors in self.vectors]
            # A product is fastest of many pictures, what follows of few: their scores stay in the
            # cache of the processor.
            for part in _slices(block.stop - block.start, CACHE_BYTES // bytes_of_one):
                by_level = self._of_all_nodes([product[part] for product in products])
                best = [scores.argmax(axis=1) for scores in by_level]
                at = slice(block.start + part.start, block.start + part.stop)
                nodes[EACH][at] = np.stack(best, axis=1)
                nodes[DOWN][at] = self._down(by_level)
                nodes[SUM][at], shares[at] = self._summed(by_level[-1], best[-1], scale)
        return Readings(nodes, shares)

    def _of_all_nodes(self, products: list[Floats]) -> list[Floats]:
        """The scores (n, nodes) of every level, given those of the nodes with a vector. Other
        nodes score as the best of their children, and −∞ without any."""
        by_level: list[Floats] = []
        for level in range(self.tree.depth - 1, -1, -1):
            nodes = self.nodes[level]
            number = len(self.tree.names[level])
            if len(nodes) == number:
                scores = products[level]
            elif by_level:
                scores = np.maximum.reduceat(by_level[0], self.first_child[level], axis=1)
                scores[:, nodes] = products[level]
            else:
                scores = np.full((len(products[level]), number), -np.inf, np.float32)
                scores[:, nodes] = products[level]
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

    def _summed(
        self, finest: Floats, best: NDArray[np.intp], scale: float
    ) -> tuple[Nodes, NDArray[np.float64]]:
        """The most probable node of every level (n, L), and the probability of the finest (n,);
        `best` (n,) are the finest nodes of the highest scores. The scores are used up."""
        finest -= finest[np.arange(len(finest)), best][:, None]
        finest *= np.float32(scale)
        # in proportion to the probabilities, 1 for the most probable
        shares = np.exp(finest, out=finest)
        probability = 1 / shares.sum(axis=1, dtype=np.float64)
        nodes = np.empty((len(finest), self.tree.depth), np.int32)
        nodes[:, -1] = best
        for level in range(self.tree.depth - 2, -1, -1):
            shares = np.add.reduceat(shares, self.first_child[level], axis=1)
            nodes[:, level] = shares.argmax(axis=1)
        return nodes, probability


def _slices(number: int, at_once: int) -> Iterator[slice]:
    """Cut a range into slices of `at_once`, or of 1 where that is less."""
    step = max(1, at_once)
    for start in range(0, number, step):
        yield slice(start, min(number, start + step))


def are_consistent(tree: LabelTree, nodes: Nodes) -> NDArray[np.bool_]:
    """Whether the nodes (N, L) of every picture lie on one path of the tree."""
    on_path: NDArray[np.bool_] = (tree.paths[nodes[:, -1]] == nodes).all(axis=1)
    return on_path
