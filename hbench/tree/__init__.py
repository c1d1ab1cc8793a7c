"""Defines the label tree: the classes of a dataset, nested from coarse to fine. All leaves have the
same depth.

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
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hbench.core.arguments import as_array, checked, checked_class
from hbench.core.errors import TreeError, UnknownName, examples
from hbench.core.text import counted
from hbench.sheets.rows import default_levels
from hbench.tree.refusals import (
    check_unique,
    names_in,
    refuse_misfits,
    refuse_missing,
    refuse_other_ids,
    refuse_other_labels,
    refuse_other_rows,
)

if TYPE_CHECKING:
    import networkx as nx

Labels = NDArray[np.int32]
Node = tuple[int, int]
ROOT = "root"
MORE_PATHS = "more_paths"  # the column of the paths of an item beside its first
RESERVED = (
    "item",
    "query",
    "gallery",
    "ignore",
    MORE_PATHS,
)  # columns of a table of items that are never levels
NOT_LEVELS = (*RESERVED, "split")
SHOWN_NODES = 5
MOST_LEVELS = 255  # the level of a pair is stored in a byte


@checked_class
@dataclass(frozen=True, eq=False, repr=False)
class LabelTree:
    """A label tree: the names of its levels and nodes, coarse to fine, and the path of node ids to
    each fine class.

    A node is (depth, id), the root is (0, 0), and the height of a node is L - depth.
    `LabelTree.from_names` and `.from_labels` make a tree from data.

    Attributes:
        levels: L unique names, 1 … 255.
        names: `names[l]` are the unique names of the nodes of level l + 1, by id.
        paths: int32 (C, L), sorted. The ids of each level are 0, 1, 2 … without a gap; classes that
            are equal at a depth are equal at every smaller depth.

    Raises:
        TreeError: paths that do not form a tree, repeated names, or more than 255 levels.
    """

    levels: tuple[str, ...]
    names: tuple[tuple[str, ...], ...]
    paths: Labels

    def __post_init__(self) -> None:
        """Raise TreeError for levels, names and paths that do not form one tree. `paths` (C, L) are
        the node ids of the C fine classes, coarse to fine."""
        refuse_depth(len(self.levels))  # too many levels
        refuse_misfits(self.levels, self.names, self.paths)  # other types, shapes or ids
        check_nested(self.paths, self.levels, self.names)
        check_unique(self.levels, "level names")
        by_path = "name the nodes by their paths: hbench tree validate --policy by-path"
        for level, names in zip(self.levels, self.names, strict=True):
            check_unique(names, f"names of level {level}", fix=by_path)

    def __repr__(self) -> str:
        """The tree in one line, with the number of classes of each level."""
        classes = ", ".join(
            f"{len(names):,} {level}" for level, names in zip(self.levels, self.names, strict=True)
        )
        return f"<LabelTree: {classes}>"

    def __eq__(self, other: object) -> bool:
        """Whether two trees have the same levels, names and paths."""
        if not isinstance(other, LabelTree):
            return NotImplemented
        same_names = (self.levels, self.names) == (other.levels, other.names)
        return same_names and np.array_equal(self.paths, other.paths)

    def __hash__(self) -> int:
        """A hash of the levels and names only, since the array of paths is not hashable."""
        return hash((self.levels, self.names))

    @classmethod
    @checked
    def from_labels(
        cls,
        labels: ArrayLike,
        *,
        levels: Sequence[str] | None = None,
        names: Sequence[Sequence[str]] | None = None,
    ) -> tuple[LabelTree, Labels]:
        """Make a tree from integer labels (N, L), coarse to fine. Return the tree, and the labels
        renumbered to its node ids, int32 (N, L).

        Nodes are numbered in the order of their paths. `levels` names the columns (default: level1
        …). `names[l][label]` is the name of a label in column l; by default, its number. Raises
        TreeError if two rows share a label but differ at a coarser level.
        """
        array = as_labels(labels)
        levels = tuple(levels or default_levels(array.shape[1]))
        if len(levels) != array.shape[1]:
            raise TreeError(
                "there must be a name for each level of the labels",
                expected=f"{array.shape[1]} names, coarse to fine",
                found=f"{len(levels)}: {', '.join(levels)}",
            )

        check_nested(array, levels, names)
        ids: list[Labels] = []
        new_names = []
        of_node = np.zeros(0, np.intp)  # a row of each node of the level, to look up its path

        for level in range(array.shape[1]):
            # the old ids of the level's nodes, and for each row the index of its node among them
            old, place = distinct(array[:, level])
            of_node = np.empty(len(old), np.intp)
            of_node[place] = np.arange(len(array))  # any row of a node will do; the last one stays
            # sort nodes by their path of new ids, then by old id; lexsort takes its last key first
            above = [column[of_node] for column in reversed(ids)]
            order = np.lexsort(np.array([old, *above]))
            # argsort inverts the order: it gives each node its position, which is its new id
            ids.append(np.argsort(order).astype(np.int32)[place])
            of_node = of_node[order]
            new_names.append(_names_of(old[order], names, level))

        # of_node now has a row of each fine class, in the order of their paths
        renumbered = np.stack(ids, axis=1)
        return cls(levels, tuple(new_names), renumbered[of_node]), renumbered

    @classmethod
    @checked
    def from_names(
        cls, rows: Sequence[Sequence[str]], *, levels: Sequence[str]
    ) -> tuple[LabelTree, Labels]:
        """Make a tree from rows of names, coarse to fine. Return the tree, and the labels of the
        rows as node ids, int32 (N, L).

        Nodes are numbered in the alphabetical order of their paths. `levels` names the L levels.
        Raises TreeError for rows that are no lists or do not have L names, and for names that do
        not form a tree.
        """
        refuse_other_rows(rows)
        if short := [row for row in rows if len(row) != len(levels)]:
            raise TreeError(
                f"{counted(len(short), 'row')} without a name at some level, or with one too many",
                expected=f"{len(levels)} names per row: {', '.join(levels)}",
                found=examples(map(list, short)),
                fix="a policy makes a ragged tree even: hbench tree validate --help",
            )

        columns = []
        for level in range(len(levels)):
            columns.append([row[level] for row in rows])
        return cls.from_columns(columns, levels=levels)

    @classmethod
    @checked
    def from_columns(
        cls, columns: Sequence[Sequence[str]], *, levels: Sequence[str]
    ) -> tuple[LabelTree, Labels]:
        """Make a tree from `columns`, a column of N names for each of `levels`, coarse to fine.
        Return the tree, and the labels of the items as node ids, int32 (N, L).
        """
        is_list = isinstance(columns, list | tuple) and len(columns) == len(levels)
        if not is_list or not columns:
            raise TreeError(
                "a label tree has at least one level",
                expected=f"a column of names for each of {', '.join(levels) or 'the levels'}",
                found=f"{columns!r:.60}",
            )

        names = []
        ids = []
        for level, column in zip(levels, columns, strict=True):
            values = names_in(column, level)
            # numbered in alphabetical order, so that the order of the items does not matter
            known = sorted(set(values), key=str)  # as texts, since names may also be numbers
            place = {name: i for i, name in enumerate(known)}
            names.append([str(name) for name in known])
            ids.append(np.fromiter(map(place.__getitem__, values), np.int32, len(values)))

        return cls.from_labels(np.array(ids).T, levels=levels, names=names)

    @property
    def depth(self) -> int:
        """The number of levels L."""
        return len(self.levels)

    @checked
    def level(self, name: str) -> int:
        """Return the depth 1 … L of a level by its name. Raises UnknownName if there is none."""
        if name not in self.levels:
            raise UnknownName("level", name, self.levels)
        return self.levels.index(name) + 1

    def graph(self) -> nx.DiGraph[Node]:
        """Return the tree as a networkx graph, from "root" down. A node is (depth, id), and its
        attributes are the `name` of the node and the `level`, the name of its level."""
        import networkx as nx

        graph: nx.DiGraph[Node] = nx.DiGraph()
        graph.add_node((0, 0), name=ROOT, level=ROOT)
        for depth, level in enumerate(self.levels, start=1):
            named = enumerate(self.names[depth - 1])
            graph.add_nodes_from(((depth, i), {"name": name, "level": level}) for i, name in named)
        for depth, parents in enumerate(self.parents, start=1):
            graph.add_edges_from(
                ((depth - 1, int(parent)), (depth, i)) for i, parent in enumerate(parents)
            )
        return graph

    @cached_property
    def parents(self) -> tuple[Labels, ...]:
        """The parent of each node, one array per level: `parents[l][id]` is an id in the level
        above; 0, the root, for nodes of the coarsest level. `paths` (C, L) are the node ids of the
        fine classes."""
        # for each level, the node of each path one level higher; the root above the coarsest level
        above = [np.zeros(len(self.paths), np.int32), *self.paths.T[:-1]]
        result = []
        for ids, parent in zip(self.paths.T, above, strict=True):
            of_node = np.zeros(int(ids.max(initial=-1)) + 1, np.int32)  # empty without paths
            of_node[ids] = parent
            result.append(of_node)
        return tuple(result)

    @checked
    def lca(self, first: int, second: int) -> Node:
        """Return the lowest common ancestor of the fine classes with the ids `first` and `second`;
        its depth is their level.
        """
        refuse_other_ids(first, second, most=len(self.paths))
        # how many levels from the top are equal: cumprod is 1 up to the first difference
        depth = int(np.cumprod(self.paths[first] == self.paths[second]).sum())
        return (depth, int(self.paths[first, depth - 1])) if depth else (0, 0)

    @checked
    def counts(self, labels: Labels) -> tuple[NDArray[np.int64], ...]:
        """Count the items of each node, an array per level. `labels` (N, L) are the node ids of the
        items."""
        refuse_other_labels(labels, list(map(len, self.names)))
        pairs = zip(labels.T, self.names, strict=True)
        return tuple(np.bincount(column, minlength=len(names)) for column, names in pairs)


def refuse_depth(depth: int) -> None:
    """Raise TreeError for a tree with too many levels: arrays store a level in one byte."""
    if depth > MOST_LEVELS:
        raise TreeError(
            "the tree is too deep", expected=f"at most {MOST_LEVELS} levels", found=f"{depth:,}"
        )


def levels_of_pairs(queries: ArrayLike, gallery: ArrayLike) -> NDArray[np.uint8]:
    """Compute the level of every pair, the depth of its lowest common ancestor.

    Args:
        queries: labels (Q, L), coarse to fine, numbers or names. (Q,) means one level. (Q, P, L)
            means P right paths for each query; the pair of paths that shares most counts.
        gallery: labels (G, L), (G,) or (G, P, L), of as many levels.

    Returns:
        uint8 (Q, G): 0 (nothing shared) … L (same class).

    Raises:
        TreeError: labels of different numbers of levels.

    Example:
        >>> levels_of_pairs(
        ...     [["owl", "barn owl"]], [["owl", "bay owl"], ["owl", "barn owl"]]
        ... ).tolist()
        [[1, 2]]
        >>> two_paths = [[["pet", "cat"], ["owl", "bay owl"]]]
        >>> levels_of_pairs([["owl", "barn owl"]], two_paths).tolist()
        [[1]]
    """
    # both (items, P, L), with P = 1 for labels (N, L); labels with more axes are refused below
    first = _as_several(as_array(queries, "queries"))
    second = _as_several(as_array(gallery, "gallery"))
    if first.shape[2:] != second.shape[2:] or first.ndim != 3:
        raise TreeError(
            "the labels differ in levels",
            expected="(Q, L) and (G, L)",
            found=f"{first.shape[:1] + first.shape[2:]} and {second.shape[:1] + second.shape[2:]}",
        )

    best = np.zeros((len(first), len(second)), np.uint8)
    for of_query in first.transpose(1, 0, 2):  # (Q, L): the p-th path of each query
        for of_item in second.transpose(1, 0, 2):
            # (Q, G, L); its cumprod along the levels is 1 up to the first difference
            equal = of_query[:, None, :] == of_item[None, :, :]
            np.maximum(
                best,
                np.cumprod(equal, axis=2, dtype=np.uint8).sum(axis=2, dtype=np.uint8),
                out=best,
            )

    return best


def _names_of(
    ids: NDArray[np.integer], names: Sequence[Sequence[str]] | None, level: int
) -> tuple[str, ...]:
    """The names of the nodes `ids` (n,) of a level, which counts from 0: names[level][id], or the
    ids themselves if `names` is None. Raises TreeError if `names` has no text for an id."""
    if names is None:
        return tuple(map(str, ids.tolist()))
    try:
        of_level = names[level]
        found = tuple(of_level[i] for i in ids.tolist())
    except (TypeError, LookupError, ValueError):
        found = ()  # `names` is no list of lists, or has no such id
    if len(found) < len(ids) or not all(isinstance(name, str) for name in found):
        raise TreeError(
            "names do not name the labels",
            expected="names[level][id], a text for each id of a level",
            found=f"{names!r:.60}",
        )
    return found


def _as_several(labels: NDArray[np.generic]) -> NDArray[np.generic]:
    """Labels with an axis for paths, (N, P, L). Labels (N, L), or (N,) for one level, get P = 1."""
    refuse_missing(labels)
    if labels.ndim == 1:
        return labels[:, None, None]
    return labels[:, None, :] if labels.ndim == 2 else labels


def as_labels(labels: ArrayLike) -> NDArray[np.int64]:
    """Convert labels to integers (N, L), L ≥ 1. Labels (N,) are taken for one level, and floats are
    accepted if they are whole numbers. Raises TreeError for anything else.
    """
    array = np.asarray(as_array(labels, "labels"))
    if array.dtype.kind == "f":
        # from this number on, 2^24 for float32 and 2^53 for float64, two integers may be rounded to
        # the same float; the bound 2^53 keeps wider floats within int64
        whole = 2.0 ** (np.finfo(array.dtype).nmant + 1)
        if (np.abs(array) < min(whole, 2.0**53)).all() and (array == np.floor(array)).all():
            array = array.astype(np.int64)

    if array.ndim == 1:
        array = array[:, None]
    if array.ndim != 2 or array.shape[1] == 0 or not np.issubdtype(array.dtype, np.integer):
        raise TreeError(
            "labels must be integers of shape (items, levels)",
            expected="a column per level, coarse to fine",
            found=f"{array.dtype} of shape {array.shape}",
            fix="hbench.LabelTree.from_names makes them from names"
            if array.dtype.kind in "OU"
            else None,
        )

    # with contiguous columns, since labels are used level by level
    return array.astype(np.int64, order="F")


def check_nested(
    labels: NDArray[np.integer], levels: Sequence[str], names: Sequence[Sequence[str]] | None = None
) -> None:
    """Raise TreeError unless labels (N, L), coarse to fine, form a tree: rows that are equal at a
    level are equal at all coarser levels. The error names the nodes with several parents, by
    `names[level][number]` if labels have names.
    """
    for level in range(1, labels.shape[1]):
        nodes = labels[:, level]
        above = labels[:, level - 1]
        # the different nodes, and for each row the index of its node among them
        values, place = distinct(nodes)
        # note one parent of each node, and look for rows that have another one
        parent = np.empty(len(values), dtype=labels.dtype)
        parent[place] = above
        bad = np.unique(nodes[parent[place] != above])
        if len(bad):

            def name(depth: int, node: int) -> str:
                """The name of a node in the error, or its number if there are no names."""
                return repr(names[depth][node]) if names else str(node)

            shown = []
            for node in bad[:SHOWN_NODES]:
                parents = [name(level - 1, p) for p in np.unique(above[nodes == node])]
                shown.append(f"{name(level, node)} in {' and '.join(parents)}")
            if len(bad) > SHOWN_NODES:
                shown.append("…")

            raise TreeError(
                f"the labels do not form a tree: {len(bad)} {levels[level]} labels have several "
                "parents",
                expected=f"each {levels[level]} in one {levels[level - 1]}",
                found=f"{levels[level]} {'; '.join(shown)}",
                fix=_about_columns(labels),
            )


def _about_columns(labels: NDArray[np.integer]) -> str:
    """The advice of an error about labels (N, L) that form no tree. One-hot labels are recognised
    by a single 1 in each row."""
    is_one_hot = labels.shape[1] > 1 and bool(((labels == 0) | (labels == 1)).all())
    if is_one_hot and bool((labels.sum(axis=1) == 1).all()):
        return "these are one-hot: labels.argmax(axis=1) has the class of each item"
    return (
        "order the columns from coarse to fine; if they are, a policy mends it: hbench tree "
        "validate --help"
    )


def distinct(column: NDArray[np.integer]) -> tuple[NDArray[np.int64], NDArray[np.intp]]:
    """Return the distinct values (U,) of a column (N,), ascending, and the index (N,) of each entry
    among them.

    This is np.unique with its inverse, but if the values span a small range, they are marked in a
    table instead of being sorted.
    """
    low, high = (int(column.min()), int(column.max())) if len(column) else (0, 0)
    span = high - low + 1
    # for a wide range, the table would be larger than the column, and sorting is cheaper
    if span > 4 * len(column) + 1024:
        values, place = np.unique(column, return_inverse=True)
        return values.astype(np.int64), place
    shifted = column - low
    seen = np.zeros(span, dtype=bool)
    seen[shifted] = True
    # the index of a value is the number of different values below it
    return np.flatnonzero(seen) + low, (np.cumsum(seen) - 1)[shifted]
