"""Gives every picture a path in the label tree, by the vectors of the tree's nodes.

There are three readers, ways to get from scores to a path. None is best for every model:

* `each` takes the best node of every level, independently of the other levels;
* `sum` computes probabilities softmax(scale · score) of the finest nodes, and sums them up for each
  node above;
* `down` starts at the root and takes the best child at each step.

A node without a vector has the score of its best child.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hbench.engine.similarity.products import product_of, slices
from hbench.tree import LabelTree
from hbench.trust.climbing import Climb

EACH, SUM, DOWN = READERS = ("each", "sum", "down")
SCALE = 100.0  # CLIP multiplies cosines by this
BLOCK_BYTES = 128 << 20  # scores of the finest nodes that are computed at once
CACHE_BYTES = 1 << 20  # scores of the finest nodes that are read at once
Floats = NDArray[np.float32]
Nodes = NDArray[np.int32]
Positions = NDArray[np.int64]


class Readings(NamedTuple):
    """The results of the readers for N pictures. `nodes`: {reader: the nodes (N, L) of the paths}.
    `climb`: the masses along the path to the most probable finest node."""

    nodes: dict[str, Nodes]
    climb: Climb

    @property
    def shares(self) -> NDArray[np.float64]:
        """The probability (N,) of each picture's finest node by the reader SUM: the mass at the end
        of its path."""
        return self.climb.masses[:, -1]

    def of(self, rows: NDArray[np.int64]) -> Readings:
        """Select the pictures at the positions `rows` (n,), in this order."""
        nodes = {name: nodes[rows] for name, nodes in self.nodes.items()}
        return Readings(nodes, self.climb.of(rows))


class NodeVectors:
    """The vectors of a tree's nodes: for each level the `nodes` (n,) that have a vector, ascending,
    and their `vectors` (n, D)."""

    def __init__(self, tree: LabelTree, nodes: list[Positions], vectors: list[Floats]) -> None:
        """Keep the vectors. `nodes`, `vectors`: for each level, from the coarsest, the numbers (n,)
        of the nodes that have a vector, ascending, and the vectors (n, D), of length 1."""
        self.tree = tree
        self.nodes = nodes
        self.vectors = vectors
        self.parents = tree.parents  # parents[l][i]: the node above node i of level l
        # For each level but the finest: the children of node i are numbered from edges[i] to
        # edges[i + 1] − 1. They are contiguous, since nodes are numbered in the order of their
        # paths. `strict=False`: `tree.names` also has the finest level, which has no children.
        self.edges = [
            np.searchsorted(parents, np.arange(len(above) + 1))
            for parents, above in zip(self.parents[1:], tree.names, strict=False)
        ]
        # the index of the coarsest level with vectors; at the levels above it, the nodes of a
        # picture are the ones above its node at this level
        self.first = next(level for level, here in enumerate(nodes) if len(here))

    def read(self, pictures: Floats, *, scale: float = SCALE) -> Readings:
        """Name pictures by their vectors (N, D), of length 1, a block of pictures at a time. There
        are three readers: EACH takes the best node of every level, DOWN the best child at each
        step from the root, and SUM adds up probabilities of the finest nodes. `scale`: the factor
        of the cosines in the softmax of SUM.

        The last bits of a matrix product depend on the shapes of its factors. `product_of` splits
        it into pieces of a fixed size, so that the number of threads does not change them.
        """
        depth = self.tree.depth
        nodes = {reader: np.empty((len(pictures), depth), np.int32) for reader in READERS}
        masses = np.empty((len(pictures), depth))
        bytes_of_one = 4 * len(self.tree.names[-1])  # float32 scores of all leaves for one picture
        for block in slices(len(pictures), BLOCK_BYTES // bytes_of_one):
            # for each level with vectors, (pictures, nodes with a vector)
            products = [product_of(pictures[block], each) for each in self.vectors[self.first :]]
            # A product is fastest for many pictures at once. The steps below are faster for few,
            # whose scores stay in the processor's cache.
            for part in slices(block.stop - block.start, CACHE_BYTES // bytes_of_one):
                # for each of these levels, (pictures, all its nodes): a node without a vector has
                # the score of its best child
                by_level = self._scores_of_all_nodes([product[part] for product in products])
                best = [scores.argmax(axis=1) for scores in by_level]
                at = slice(block.start + part.start, block.start + part.stop)
                # both leave the levels above `first` open, which are filled at the end
                nodes[EACH][at, self.first :] = np.stack(best, axis=1)
                nodes[DOWN][at] = self._go_down(by_level)
                # SUM comes last, since `_sum_upwards` overwrites the scores of the leaves
                nodes[SUM][at], masses[at] = self._sum_upwards(by_level[-1], best[-1], scale)
        # levels above the first one with vectors: the ancestors of the node that was found there
        for reader in (EACH, DOWN):  # SUM has nodes at all levels
            for level in range(self.first, 0, -1):
                nodes[reader][:, level - 1] = self.parents[level][nodes[reader][:, level]]
        # `masses` are of the nodes on the path from the root to the leaf that SUM found. The nodes
        # of SUM may be others, since each is the most probable one of its level
        return Readings(nodes, Climb(self.tree.paths[nodes[SUM][:, -1]].astype(np.int32), masses))

    def _scores_of_all_nodes(self, products: list[Floats]) -> list[Floats]:
        """Return the scores (n, nodes) of n pictures for all nodes of every level, from the first
        level with vectors on. `products`: for each of these levels the scores of the nodes that
        have a vector.

        A node without a vector has the score of its best child, or −∞ at the finest level. So
        levels are computed from the finest upwards.
        """
        by_level: list[Floats] = []
        for level in range(self.tree.depth - 1, self.first - 1, -1):
            nodes = self.nodes[level]
            own = products[level - self.first]  # the first product is of the level `first`
            number = len(self.tree.names[level])
            if len(nodes) == number:  # every node has a vector
                scores = own
            elif by_level:  # there is a finer level, the first of the list
                # the best child of each node, then the own scores of the nodes with vectors.
                # Children are contiguous: reduceat takes the maximum from each start to the next
                scores = np.maximum.reduceat(by_level[0], self.edges[level][:-1], axis=1)
                scores[:, nodes] = own
            else:
                scores = np.full((len(own), number), -np.inf, np.float32)
                scores[:, nodes] = own
            by_level.insert(0, scores)
        return by_level

    def _go_down(self, by_level: list[Floats]) -> Nodes:
        """Take the best child at each step, starting from the best node of the level `first`, the
        coarsest level with vectors. Return nodes (n, L), in which the levels above `first` are not
        filled yet. `by_level`: the scores (n, nodes) of each level from `first` on."""
        path = np.empty((len(by_level[0]), self.tree.depth), np.int32)
        path[:, self.first] = by_level[0].argmax(axis=1)
        for level in range(self.first + 1, self.tree.depth):
            edges = self.edges[level - 1]
            scores = by_level[level - self.first]
            for row, above in enumerate(path[:, level - 1].tolist()):
                # the children of a node are numbered from begin to end
                begin, end = edges[above : above + 2].tolist()
                path[row, level] = begin + scores[row, begin:end].argmax()
        return path

    def _sum_upwards(
        self, finest: Floats, best: NDArray[np.intp], scale: float
    ) -> tuple[Nodes, NDArray[np.float64]]:
        """Sum softmax(scale · score) of the finest nodes from the leaves to the root. Return the
        most probable node of every level (n, L), and the probabilities (n, L) of the nodes on the
        path to the most probable finest node.

        `finest` (n, nodes): scores of the finest nodes, which are overwritten. `best` (n,): the
        node with the highest score.
        """
        rows = np.arange(len(finest))
        finest -= finest[rows, best][:, None]
        finest *= np.float32(scale)
        # proportional to the probabilities, with 1 for the most probable: exp cannot overflow
        shares: NDArray[np.floating] = np.exp(finest, out=finest)
        whole = shares.sum(axis=1, dtype=np.float64)
        above = self.tree.paths[best]
        masses = np.ones(above.shape)
        nodes = np.empty((len(finest), self.tree.depth), np.int32)
        nodes[:, -1] = best
        for level in range(self.tree.depth - 2, -1, -1):
            # children are contiguous: reduceat sums from each start to the next
            starts = self.edges[level][:-1]
            shares = np.add.reduceat(shares, starts, axis=1, dtype=np.float64)
            nodes[:, level] = shares.argmax(axis=1)
            masses[:, level] = shares[rows, above[:, level]]
        return nodes, np.minimum(masses / whole[:, None], 1.0)  # rounding may exceed 1


def are_consistent(tree: LabelTree, nodes: Nodes) -> NDArray[np.bool_]:
    """Return whether the nodes (N, L) of each picture, coarse to fine, are a path of the tree: bool
    (N,)."""
    on_path: NDArray[np.bool_] = (tree.paths[nodes[:, -1]] == nodes).all(axis=1)
    return on_path
