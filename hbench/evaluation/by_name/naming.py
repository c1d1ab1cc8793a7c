"""Gives every picture a path in the label tree, by the vectors of the tree's nodes.

Three readers, none of which is best for every model:

* `each`: the best node of every level, whatever the others say;
* `sum`: probabilities softmax(scale · score) of the finest nodes, summed up to each node above;
* `down`: from the root, the best child each time.

A node without a vector scores as the best of its children.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hbench.core.compiled import available_threads, one_blas_thread
from hbench.tree import LabelTree
from hbench.trust.climbing import Climb

EACH, SUM, DOWN = READERS = ("each", "sum", "down")
SCALE = 100.0  # by which CLIP multiplies cosines
BLOCK_BYTES = 128 << 20  # of scores of the finest nodes at once
PIECE = 8192  # nodes that a thread multiplies at once
CACHE_BYTES = 1 << 20  # of them that are read at once
Floats = NDArray[np.float32]
Nodes = NDArray[np.int32]
Positions = NDArray[np.int64]


class Readings(NamedTuple):
    """What the readers say of N pictures: `nodes` (N, L) of each reader; `climb`, the masses along
    the path of the most probable finest node."""

    nodes: dict[str, Nodes]
    climb: Climb

    @property
    def shares(self) -> NDArray[np.float64]:
        """The probability (N,) of the finest node of each picture by the reader SUM: the mass at
        the end of its path."""
        return self.climb.masses[:, -1]

    def of(self, rows: NDArray[np.int64]) -> Readings:
        """The readings of the pictures at the positions `rows` (n,), in this order."""
        nodes = {name: nodes[rows] for name, nodes in self.nodes.items()}
        return Readings(nodes, self.climb.of(rows))


class NodeVectors:
    """Vectors of nodes of a tree, by level: `nodes` (n,), those that have one, in order, and
    `vectors` (n, D)."""

    def __init__(self, tree: LabelTree, nodes: list[Positions], vectors: list[Floats]) -> None:
        """`nodes`, `vectors`: by level from the coarsest, the numbers (n,) of the nodes that have a
        vector, ascending, and these vectors (n, D), of length 1."""
        self.tree = tree
        self.nodes = nodes
        self.vectors = vectors
        self.parents = tree.parents
        # the nodes of a tree are numbered in the order of their paths: the children of node i lie
        # side by side, from edges[i] to edges[i + 1]; by level, without the finest, which has no
        # children
        self.edges = [
            np.searchsorted(parents, np.arange(len(above) + 1))
            for parents, above in zip(self.parents[1:], tree.names, strict=False)
        ]
        # Above the first level with vectors every node scores as one of that level.
        self.first = next(level for level, here in enumerate(nodes) if len(here))

    def read(self, pictures: Floats, *, scale: float = SCALE) -> Readings:
        """Name pictures by their vectors (N, D), a block of them at a time, by three readers.

        EACH takes the best node of every level by itself, DOWN the best child of the node above,
        SUM the masses of the leaves, softmax of `scale` times their cosines, added up to the top.

        The last bits of a product depend on the shapes of its factors: pieces of one size (cut in
        `product_of`, where each gets a thread) give the same bits by any number of threads.
        """
        depth = self.tree.depth
        nodes = {reader: np.empty((len(pictures), depth), np.int32) for reader in READERS}
        masses = np.empty((len(pictures), depth))
        bytes_of_one = 4 * len(self.tree.names[-1])  # of a picture's float32 scores of all leaves
        for block in slices(len(pictures), BLOCK_BYTES // bytes_of_one):
            products = [product_of(pictures[block], each) for each in self.vectors[self.first :]]
            # A product is fastest of many pictures, what follows of few: their scores stay in the
            # cache of the processor.
            for part in slices(block.stop - block.start, CACHE_BYTES // bytes_of_one):
                by_level = self._scores_of_all_nodes([product[part] for product in products])
                best = [scores.argmax(axis=1) for scores in by_level]
                at = slice(block.start + part.start, block.start + part.stop)
                nodes[EACH][at, self.first :] = np.stack(best, axis=1)
                nodes[DOWN][at] = self._go_down(by_level)
                # last, since it overwrites the scores of the leaves
                nodes[SUM][at], masses[at] = self._sum_upwards(by_level[-1], best[-1], scale)
        # above the first level with vectors, the nodes above what was found there
        for reader in (EACH, DOWN):
            for level in range(self.first, 0, -1):
                nodes[reader][:, level - 1] = self.parents[level][nodes[reader][:, level]]
        return Readings(nodes, Climb(self.tree.paths[nodes[SUM][:, -1]].astype(np.int32), masses))

    def _scores_of_all_nodes(self, products: list[Floats]) -> list[Floats]:
        """The scores (n, nodes) of n pictures for all nodes of every level, from the first level
        with vectors on, given their `products` (n, nodes with a vector) of each of these levels.

        A node without a vector scores as the best of its children, and −∞ at the finest level,
        where it has none: so levels are filled from the finest upwards.
        """
        by_level: list[Floats] = []
        for level in range(self.tree.depth - 1, self.first - 1, -1):
            nodes = self.nodes[level]
            own = products[level - self.first]
            number = len(self.tree.names[level])
            if len(nodes) == number:
                scores = own
            elif by_level:  # there is a finer level, the first of the list
                # the children of a node lie side by side: one maximum from each start to the next
                scores = np.maximum.reduceat(by_level[0], self.edges[level][:-1], axis=1)
                scores[:, nodes] = own
            else:
                scores = np.full((len(own), number), -np.inf, np.float32)
                scores[:, nodes] = own
            by_level.insert(0, scores)
        return by_level

    def _go_down(self, by_level: list[Floats]) -> Nodes:
        """The best child of the best child, from the root; nodes (n, L), of which the levels before
        the first with vectors are left open. `by_level`: the scores (n, nodes) of every level from
        that one on. `first`: that level, from 0; `edges`: for each level, where the children of
        each of its nodes begin among those of the next."""
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
        """Add up softmax(scale · score) of the finest nodes from the leaves to the root: the most
        probable node of every level (n, L), and the probabilities (n, L) of the nodes on the path
        to the finest one.

        `finest` (n, nodes): scores, which are overwritten; `best` (n,): the finest nodes of the
        highest ones.
        """
        rows = np.arange(len(finest))
        finest -= finest[rows, best][:, None]
        finest *= np.float32(scale)
        # in proportion to the probabilities, 1 for the most probable: no exponential overflows
        shares: NDArray[np.floating] = np.exp(finest, out=finest)
        whole = shares.sum(axis=1, dtype=np.float64)
        above = self.tree.paths[best]
        masses = np.ones(above.shape)
        nodes = np.empty((len(finest), self.tree.depth), np.int32)
        nodes[:, -1] = best
        for level in range(self.tree.depth - 2, -1, -1):
            # children of a node lie side by side: one sum from each start to the next
            starts = self.edges[level][:-1]
            shares = np.add.reduceat(shares, starts, axis=1, dtype=np.float64)
            nodes[:, level] = shares.argmax(axis=1)
            masses[:, level] = shares[rows, above[:, level]]
        return nodes, np.minimum(masses / whole[:, None], 1.0)  # sums may round above the whole


def product_of(pictures: Floats, vectors: Floats) -> Floats:
    """The products (n, nodes) of pictures (n, D) and vectors (nodes, D), in pieces of PIECE nodes
    by all threads: pieces of one size have the same bits by any number of threads."""
    scores = np.empty((len(pictures), len(vectors)), np.float32)

    def multiply(piece: slice) -> None:
        """Write the products with the vectors of one piece."""
        scores[:, piece] = pictures @ vectors[piece].T

    with one_blas_thread(), ThreadPoolExecutor(available_threads()) as pool:
        list(pool.map(multiply, slices(len(vectors), PIECE)))
    return scores


def slices(number: int, at_once: int) -> Iterator[slice]:
    """Yield slices that cover 0 … number − 1, of `at_once` each, at least 1, but for the last."""
    step = max(1, at_once)
    for start in range(0, number, step):
        yield slice(start, min(number, start + step))


def are_consistent(tree: LabelTree, nodes: Nodes) -> NDArray[np.bool_]:
    """Whether the nodes (N, L) of each picture, coarse to fine, lie on one path of the tree: that
    to the finest of them."""
    on_path: NDArray[np.bool_] = (tree.paths[nodes[:, -1]] == nodes).all(axis=1)
    return on_path
