"""A label tree: the classes of a dataset, nested from coarse to fine, all at the same depth.

>>> rows = [["animal", "cat"], ["animal", "dog"], ["plant", "oak"]]
>>> tree, labels = LabelTree.from_names(rows, levels=["kingdom", "species"])
>>> tree.paths.tolist()  # one row per fine class: its node at each level, coarse to fine
[[0, 0], [0, 1], [1, 2]]
>>> levels_of_pairs(labels[:1], labels).tolist()  # cat against cat, dog, oak
[[2, 1, 0]]
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import networkx as nx
import numpy as np
from numpy.typing import ArrayLike, NDArray

from hbench.errors import TreeError, UnknownName, examples

Labels = NDArray[np.int32]
ROOT = "root"


@dataclass(frozen=True)
class LabelTree:
    """Level names and node names, coarse to fine, and one path of node ids per fine class.

    `levels`: L names. `names[l]`: the names of the nodes of level l + 1, by id. `paths`: int32 (C, L), sorted, ids contiguous per
    level; classes equal at a depth are equal at every smaller depth.
    """

    levels: tuple[str, ...]
    names: tuple[tuple[str, ...], ...]
    paths: Labels

    def __post_init__(self) -> None:
        check_nested(self.paths, self.levels)

    @classmethod
    def from_labels(
        cls, labels: ArrayLike, *, levels: Sequence[str] | None = None, names: Sequence[Sequence[str]] | None = None
    ) -> tuple[LabelTree, Labels]:
        """A tree and the labels renumbered to its ids, from any integer labels (N, L), coarse to fine.

        Nodes are numbered in the order of their paths. `names[l][id]` names the old id; without it the id is the name.
        Raises TreeError when two rows share a label and differ at a coarser level.
        """
        array = as_labels(labels)
        levels = tuple(levels or default_levels(array.shape[1]))
        check_nested(array, levels)
        ids, new_names = [], []
        first: NDArray[np.intp] = np.zeros(0, np.intp)
        for level in range(array.shape[1]):
            old, first, inverse = np.unique(array[:, level], return_index=True, return_inverse=True)
            order = np.lexsort([old, *(column[first] for column in reversed(ids))])
            ids.append(np.argsort(order)[inverse].astype(np.int32))
            first = first[order]
            new_names.append(tuple(names[level][old[i]] if names else str(old[i]) for i in order))
        renumbered = np.stack(ids, axis=1)
        return cls(levels, tuple(new_names), renumbered[first]), renumbered

    @classmethod
    def from_names(cls, rows: Sequence[Sequence[str]], *, levels: Sequence[str]) -> tuple[LabelTree, Labels]:
        """A tree and int32 labels (N, L) from names per row, coarse to fine; ids follow the names' order."""
        columns = list(zip(*rows, strict=True))
        found = [np.unique(np.asarray(column, dtype=str), return_inverse=True) for column in columns]
        names = [[str(name) for name in unique] for unique, _ in found]
        return cls.from_labels(np.stack([ids for _, ids in found], axis=1), levels=levels, names=names)

    @property
    def depth(self) -> int:
        """L, the number of levels."""
        return len(self.levels)

    def level(self, name: str) -> int:
        """The depth 1 … L of a level given by name; raises UnknownName."""
        if name not in self.levels:
            raise UnknownName("level", name, self.levels)
        return self.levels.index(name) + 1

    def graph(self) -> nx.DiGraph:
        """The tree as a networkx arborescence, from "root" down; a node is (depth, id), with its `name` and `level`."""
        graph = nx.DiGraph()
        graph.add_node((0, 0), name=ROOT, level=ROOT)
        for depth, level in enumerate(self.levels, start=1):
            graph.add_nodes_from(
                ((depth, i), {"name": name, "level": level}) for i, name in enumerate(self.names[depth - 1])
            )
        for depth, parents in enumerate(self.parents, start=1):
            graph.add_edges_from(((depth - 1, int(parent)), (depth, i)) for i, parent in enumerate(parents))
        return graph

    @cached_property
    def parents(self) -> tuple[Labels, ...]:
        """For each level, the id of every node's parent in the level above (0, the root, for the coarsest)."""
        above = [np.zeros(len(self.paths), np.int32), *self.paths.T[:-1]]
        result = []
        for own, parent in zip(self.paths.T, above, strict=True):
            of_node = np.zeros(int(own.max(initial=-1)) + 1, np.int32)
            of_node[own] = parent
            result.append(of_node)
        return tuple(result)


def levels_of_pairs(queries: Labels, gallery: Labels) -> NDArray[np.uint8]:
    """The level of every pair, the depth of its lowest common ancestor: (Q, L), (G, L) -> uint8 (Q, G), 0 … L."""
    equal = queries[:, None, :] == gallery[None, :, :]
    return np.cumprod(equal, axis=2, dtype=np.uint8).sum(axis=2, dtype=np.uint8)


def default_levels(depth: int) -> tuple[str, ...]:
    """level1 (coarse) … levelL (fine)."""
    return tuple(f"level{level}" for level in range(1, depth + 1))


def as_labels(labels: ArrayLike) -> NDArray[np.int64]:
    """Integer labels (N, L), L ≥ 1; one dimension means one level. Raises TreeError otherwise."""
    array = np.asarray(labels)
    if array.ndim == 1:
        array = array[:, None]
    if array.ndim != 2 or array.shape[1] == 0 or not np.issubdtype(array.dtype, np.integer):
        raise TreeError(
            "these are no labels",
            expected="integers of shape (items, levels), coarse to fine",
            found=f"{array.dtype} of shape {array.shape}",
        )
    return array.astype(np.int64)


def check_nested(labels: NDArray[np.integer], levels: Sequence[str]) -> None:
    """Raise TreeError unless rows equal at one level are equal at every coarser level."""
    for level in range(1, labels.shape[1]):
        own, inverse = np.unique(labels[:, level], return_inverse=True)
        parent = np.empty(len(own), dtype=labels.dtype)
        parent[inverse] = labels[:, level - 1]
        bad = own[np.unique(inverse[parent[inverse] != labels[:, level - 1]])]
        if len(bad):
            raise TreeError(
                f"the labels are no tree: {len(bad)} {levels[level]} labels have several parents",
                expected=f"each {levels[level]} in one {levels[level - 1]}",
                found=f"{levels[level]} {examples(bad)} in several",
                fix="are the columns ordered coarse to fine? If so, resolve them by a policy: hbench tree validate --help",
            )
