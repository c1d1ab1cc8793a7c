"""Defines the label tree: the classes of a dataset, nested from coarse to fine, all equally deep.

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
    """A label tree: level names and node names, coarse to fine, and a path of node ids per fine
    class.

    A node is (depth, id), the root is (0, 0), and the height of a node is L - depth.
    `LabelTree.from_names` and `.from_labels` make a tree from data.

    Attributes:
        levels: L unique names, 1 … 255.
        names: `names[l]` are the unique names of the nodes of level l + 1, by id.
        paths: int32 (C, L), sorted, ids contiguous per level; classes that are equal at a depth are
            equal at every smaller depth.

    Raises:
        TreeError: paths that do not form a tree, repeated names, or more than 255 levels.
    """

    levels: tuple[str, ...]
    names: tuple[tuple[str, ...], ...]
    paths: Labels

    def __post_init__(self) -> None:
        """Raise TreeError for levels, names and paths that are not those of one tree."""
        refuse_depth(len(self.levels))
        refuse_misfits(self.levels, self.names, self.paths)
        check_nested(self.paths, self.levels, self.names)
        check_unique(self.levels, "level names")
        by_path = "name the nodes by their paths: hbench tree validate --policy by-path"
        for level, names in zip(self.levels, self.names, strict=True):
            check_unique(names, f"names of level {level}", fix=by_path)

    def __repr__(self) -> str:
        """The tree in one line: how many classes each level has."""
        classes = ", ".join(
            f"{len(names):,} {level}" for level, names in zip(self.levels, self.names, strict=True)
        )
        return f"<LabelTree: {classes}>"

    def __eq__(self, other: object) -> bool:
        """Whether two trees have the same levels, names and paths, which are an array."""
        if not isinstance(other, LabelTree):
            return NotImplemented
        same_names = (self.levels, self.names) == (other.levels, other.names)
        return same_names and np.array_equal(self.paths, other.paths)

    def __hash__(self) -> int:
        """A hash of the levels and names: paths are an array, which has none."""
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
        """Make a tree of integer labels (N, L), coarse to fine; return it and the labels renumbered
        to its ids, int32 (N, L).

        Nodes are numbered in the order of their paths. `levels` names the columns (default: level1
        …); `names[l][id]` names the old id, which is the default name. Raises TreeError when two
        rows share a label and differ at a coarser level.
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
        of_node = np.zeros(0, np.intp)  # some row of each node, from which its path is read

        for level in range(array.shape[1]):
            # nodes of the level by old id, and which of them each row has
            old, place = distinct(array[:, level])
            of_node = np.empty(len(old), np.intp)
            of_node[place] = np.arange(len(array))  # of several rows of a node the last one stays
            # by the new ids of the nodes above, then by old id; lexsort takes its last key first
            above = [column[of_node] for column in reversed(ids)]
            order = np.lexsort(np.array([old, *above]))
            # the inverse of that order gives each old id its new one
            ids.append(np.argsort(order).astype(np.int32)[place])
            of_node = of_node[order]
            new_names.append(_names_of(old[order], names, level))

        renumbered = np.stack(ids, axis=1)
        return cls(levels, tuple(new_names), renumbered[of_node]), renumbered

    @classmethod
    @checked
    def from_names(
        cls, rows: Sequence[Sequence[str]], *, levels: Sequence[str]
    ) -> tuple[LabelTree, Labels]:
        """Make a tree of rows of names, coarse to fine; return it and int32 labels (N, L), numbered
        in the order of the names.

        `levels` names the L levels. Raises TreeError for rows of another length, and for names that
        do not form a tree.
        """
        refuse_other_rows(rows)
        if short := [row for row in rows if len(row) != len(levels)]:
            raise TreeError(
                f"{len(short)} rows have no name at some level, or one too many",
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
        """Make a tree from `columns`, a column of names for each of `levels`, coarse to fine;
        return it and int32 labels (N, L).
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
            # names are numbered in order of the alphabet, whatever the order of the items
            known = sorted(set(values), key=str)  # a number counts as its digits
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
        """Return the depth 1 … L of a level by its name; raises UnknownName."""
        if name not in self.levels:
            raise UnknownName("level", name, self.levels)
        return self.levels.index(name) + 1

    def graph(self) -> nx.DiGraph[Node]:
        """Return the tree as a networkx graph, from "root" down; a node is (depth, id) and has a
        `name` and a `level`.
        """
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
        """The parents of the nodes of each level, as ids in the level above (0, the root, for the
        coarsest level).
        """
        # of each path the node one level higher; above the coarsest level the root, 0
        above = [np.zeros(len(self.paths), np.int32), *self.paths.T[:-1]]
        result = []
        for ids, parent in zip(self.paths.T, above, strict=True):
            of_node = np.zeros(int(ids.max(initial=-1)) + 1, np.int32)
            of_node[ids] = parent
            result.append(of_node)
        return tuple(result)

    @checked
    def lca(self, first: int, second: int) -> Node:
        """Return the lowest common ancestor of the fine classes with the ids `first` and `second`;
        its depth is their level.
        """
        refuse_other_ids(first, second, most=len(self.paths))
        # the levels from the top that both paths share
        depth = int(np.cumprod(self.paths[first] == self.paths[second]).sum())
        return (depth, int(self.paths[first, depth - 1])) if depth else (0, 0)

    @checked
    def counts(self, labels: Labels) -> tuple[NDArray[np.int64], ...]:
        """Count the rows of `labels` (N, L), node ids, that each node has: an array per level."""
        refuse_other_labels(labels, list(map(len, self.names)))
        pairs = zip(labels.T, self.names, strict=True)
        return tuple(np.bincount(column, minlength=len(names)) for column, names in pairs)


def refuse_depth(depth: int) -> None:
    """Raise TreeError for a tree whose `depth`, its number of levels, does not fit in a byte, in
    which arrays hold levels."""
    if depth > MOST_LEVELS:
        raise TreeError(
            "the tree is too deep", expected=f"at most {MOST_LEVELS} levels", found=f"{depth:,}"
        )


def levels_of_pairs(queries: ArrayLike, gallery: ArrayLike) -> NDArray[np.uint8]:
    """Compute the level of every pair, the depth of its lowest common ancestor.

    Args:
        queries: labels (Q, L), coarse to fine, numbers or names; (Q,) for one level; (Q, P, L) for
            P right paths of each, of which the pair that shares most counts.
        gallery: labels (G, L), likewise.

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
    first = _as_several(as_array(queries, "queries"))
    second = _as_several(as_array(gallery, "gallery"))
    if first.shape[2:] != second.shape[2:] or first.ndim != 3:
        raise TreeError(
            "the labels differ in levels",
            expected="(Q, L) and (G, L)",
            found=f"{first.shape[:1] + first.shape[2:]} and {second.shape[:1] + second.shape[2:]}",
        )

    best = np.zeros((len(first), len(second)), np.uint8)
    for of_query in first.transpose(1, 0, 2):
        for of_item in second.transpose(1, 0, 2):
            # (Q, G, L): cumprod is 1 as long as all levels down to here are equal
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
    """The names of nodes of a level, from 0, by their `ids` (n,): names[level][id], or, without
    names, the ids themselves. Raises TreeError where `names` have no text for one of them."""
    if names is None:
        return tuple(map(str, ids.tolist()))
    try:
        of_level = names[level]
        found = tuple(of_level[i] for i in ids.tolist())
    except (TypeError, LookupError, ValueError):
        found = ()
    if len(found) < len(ids) or not all(isinstance(name, str) for name in found):
        raise TreeError(
            "names do not name the labels",
            expected="names[level][id], a text for each id of a level",
            found=f"{names!r:.60}",
        )
    return found


def _as_several(labels: NDArray[np.generic]) -> NDArray[np.generic]:
    """Labels of one path (N, L), or of one level (N,), as those of several paths (N, 1, L)."""
    refuse_missing(labels)
    if labels.ndim == 1:
        return labels[:, None, None]
    return labels[:, None, :] if labels.ndim == 2 else labels


def as_labels(labels: ArrayLike) -> NDArray[np.int64]:
    """Convert labels to integers (N, L), L ≥ 1, from whole floats too; one dimension means one
    level. Raises TreeError.
    """
    array = np.asarray(as_array(labels, "labels"))
    if array.dtype.kind == "f":
        # from here on, two whole numbers may be one float: 2^24 for float32
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

    # a column is contiguous, since all uses are level by level
    return array.astype(np.int64, order="F")


def check_nested(
    labels: NDArray[np.integer], levels: Sequence[str], names: Sequence[Sequence[str]] | None = None
) -> None:
    """Raise TreeError, naming nodes and parents, unless rows of `labels` (N, L), coarse to fine,
    that are equal at a level are equal at all coarser ones. `names`: names[level][number], if
    labels have names.
    """
    for level in range(1, labels.shape[1]):
        nodes = labels[:, level]
        above = labels[:, level - 1]
        # one of the parents of each node is noted: with one alone, all rows have it
        # the different nodes, and the place of each row's node among them
        values, place = distinct(nodes)
        parent = np.empty(len(values), dtype=labels.dtype)
        parent[place] = above
        # nodes of which some row has another parent than the one that was noted
        bad = np.unique(nodes[parent[place] != above])
        if len(bad):

            def name(depth: int, node: int) -> str:
                """A node as the error shows it: its name, or else its number."""
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
    """Advice about labels (N, L) that form no tree: one-hot ones have a single 1 in each row."""
    is_one_hot = labels.shape[1] > 1 and bool(((labels == 0) | (labels == 1)).all())
    if is_one_hot and bool((labels.sum(axis=1) == 1).all()):
        return "these are one-hot: labels.argmax(axis=1) has the class of each item"
    return (
        "order the columns from coarse to fine; if they are, a policy mends it: hbench tree "
        "validate --help"
    )


def distinct(column: NDArray[np.integer]) -> tuple[NDArray[np.int64], NDArray[np.intp]]:
    """Return the distinct values (U,) of a column (N,), ascending, and the place (N,) of each entry
    among them.

    Like np.unique, but where the values span a small range it marks them in a table instead of
    sorting.
    """
    low, high = (int(column.min()), int(column.max())) if len(column) else (0, 0)
    span = high - low + 1
    # a table of the whole range would be larger than the column: sorting takes less
    if span > 4 * len(column) + 1024:
        values, place = np.unique(column, return_inverse=True)
        return values.astype(np.int64), place
    shifted = column - low
    seen = np.zeros(span, dtype=bool)
    seen[shifted] = True
    # the place of a value is the number of different values below it
    return np.flatnonzero(seen) + low, (np.cumsum(seen) - 1)[shifted]
