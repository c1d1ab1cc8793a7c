"""Finds the node of a label tree, at any level, that each named vector belongs to.

>>> rows = [("Owls", "Barn owl"), ("Owls", "Bay owl"), ("Parrots", "Galah")]
>>> tree, _ = LabelTree.from_names(rows, levels=["order", "kind"])
>>> placed = placed_in(tree, ["Owls", "Owls > Bay owl", "Galah", "Hoopoe"])
>>> placed.depths.tolist(), placed.rows.tolist(), placed.unknown
([1, 2, 2], [0, 1, 2], ('Hoopoe',))
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike, NDArray

from hbench.core.arguments import as_array
from hbench.core.errors import SubmissionError, UsageError, examples
from hbench.core.untrusted import open_parquet, parquet_table
from hbench.engine.similarity import as_vectors
from hbench.sheets import words
from hbench.sheets.paths import JOINED, SEPARATORS, as_written, split_path
from hbench.sheets.rows import Row
from hbench.submissions import embeddings as embedding_files
from hbench.submissions.embeddings import Embeddings
from hbench.submissions.embeddings.files import readable
from hbench.submissions.embeddings.ids import as_ids
from hbench.tree import Labels, LabelTree
from hbench.tree.names import class_rows
from hbench.tree.partial import is_unknown

FROM_THE_TOP = "> "  # marks the name of a node of the coarsest level, if other nodes share it
Positions = NDArray[np.int64]


@dataclass(frozen=True)
class PlacedNodes:
    """The n nodes of a tree that were found for given names.

    `rows` (n,): the position of each among the given names. `depths` (n,): 1 … L. `labels` (n, L):
    the path to each node; only the first `depth` entries are meaningful. `unknown`: the given names
    that no node has.
    """

    rows: Positions
    depths: Positions
    labels: Labels
    unknown: tuple[str, ...] = ()

    def remarks(self, number: int) -> list[str]:
        """Make a remark on the names that no node has. `number`: of all given names."""
        if not self.unknown:
            return []
        share = f"{len(self.unknown):,} of {number:,} names"
        return [f"{share} are no nodes of the tree, and left out: {examples(self.unknown)}"]

    def of(self, chosen: NDArray[np.bool_]) -> PlacedNodes:
        """Select the nodes for which `chosen` (n,) is true, without the unknown names."""
        return PlacedNodes(
            rows=self.rows[chosen], depths=self.depths[chosen], labels=self.labels[chosen]
        )


def read(
    given: str | Path | Embeddings | Mapping[str, ArrayLike], levels: Sequence[str]
) -> Embeddings:
    """Read the vectors of nodes. `given`: an embedding file whose ids are names of nodes or paths
    to them, or which has columns named like the tree's `levels`; or {name: vector (D,)}."""
    if isinstance(given, Embeddings):
        return given
    if isinstance(given, Mapping):
        vectors = as_vectors([as_array(each, "nodes") for each in given.values()], "nodes")
        return embedding_files.joined(as_ids(list(given), "nodes"), vectors)
    if not isinstance(given, str | Path):
        raise UsageError(
            "nodes must be vectors by name, or a file of them",
            expected='{"owl": (D,), …}, or an embedding file whose ids are names',
            found=type(given).__name__,
        )
    path = Path(given)
    # only a table can have columns named like the levels
    if path.suffix == ".parquet" and path.is_file():
        table = table_of_level_columns(path, levels)
        if table is not None:
            return embedding_files.from_table(table, path)
    return embedding_files.read(path)


def table_of_level_columns(path: Path, levels: Sequence[str]) -> pa.Table | None:
    """Read a parquet file that names its nodes in columns named like the tree's `levels`: filled
    from the top down to the node, and empty below it. These columns are replaced by one of ids, a
    node's name or the path to it. Return None for a file that has ids already, or no such columns.

    Raises SubmissionError, if there are several columns, for a row without a name, or with a name
    below an empty cell. In a single column an empty cell becomes the id "", which is no node, and
    is left out with a remark.
    """
    with readable(path), open_parquet(path) as file:
        columns = file.schema_arrow.names
    # SURE_IDS: names such as "item" or "id"
    has_ids = any(words.folded(name) in words.SURE_IDS for name in columns)
    present = [level for level in levels if level in columns]
    if has_ids or not present:
        return None

    # a single column may be of any level; several columns have to be the path from the top
    if tuple(present) != tuple(levels[: len(present)]) and len(present) > 1:
        raise SubmissionError(
            f"{path} has some columns of names, but not those above them",
            expected=f"{', '.join(levels[: len(present)])} …, or one column of names",
            found=", ".join(present),
        )

    with readable(path):
        table = parquet_table(path)
    of_levels = [table[level].cast(pa.string()).to_pylist() for level in present]
    if len(present) == 1:
        ids = [name or "" for name in of_levels[0]]
    else:
        ids = _ids_of(path, present, zip(*of_levels, strict=True))
    return table.drop_columns(present).append_column("id", pa.array(ids, pa.string()))


def _ids_of(path: Path, levels: Sequence[str], rows: Iterable[tuple[str | None, ...]]) -> list[str]:
    """Return the path to the node of each row as one text. `rows`: a name or None for each level,
    from the top. Raises SubmissionError for a row without a name, or with a gap."""
    ids: list[str] = []
    for row in rows:
        names = [(name or "").strip() for name in row]
        path_here = tuple(name for name in names if name)
        # without a gap the k names are in the first k cells, and all further cells are empty
        if not path_here or any(names[len(path_here) :]):
            raise SubmissionError(
                f"{path}: row {len(ids):,} is not the path to a node",
                expected=f"names from {levels[0]} on, and empty cells below the node",
                found=", ".join(repr(name) for name in names),
            )
        ids.append(path_text(path_here))
    return ids


def placed_in(tree: LabelTree, names: Sequence[str]) -> PlacedNodes:
    """Find the node of each name. A name is that of a single node, or the path of names from the
    top, separated by `>`, `/`, `|` or `;`. `> NAME` is the node NAME of the coarsest level.

    Raises SubmissionError for a name that several nodes have, for a node that is named twice, and
    if no name is one of the tree.
    """
    of_path, of_name = _nodes_of(tree)
    rows, nodes, unknown, ambiguous = [], [], [], []
    for row, name in enumerate(names):
        found = _nodes_meant_by(name, of_path, of_name)
        if len(found) == 1:
            rows.append(row)
            nodes.append(found[0])
        elif found:
            ambiguous.append(name)
        else:
            unknown.append(name)

    _refuse_unclear_names(names, nodes, ambiguous)
    # a node is represented by its depth and a fine class below it
    labels = np.stack([tree.paths[of_class] for _, of_class in nodes])
    depths = np.array([depth for depth, _ in nodes])
    return PlacedNodes(rows=np.array(rows), depths=depths, labels=labels, unknown=tuple(unknown))


def paths_of(tree: LabelTree) -> list[Row]:
    """Return the path of names to every node of the tree, except nodes that represent an unknown
    name."""
    return list(_nodes_by_path(tree))


def path_text(path: Row) -> str:
    """Write a path as a text that `placed_in` can only read as this path, even if it is a single
    name that other nodes share.

    >>> path_text(("Owls", "Bay owl")), path_text(("Owls",))
    ('Owls > Bay owl', '> Owls')
    """
    if not path:
        raise UsageError("a node has no name", expected="the names from the top to it", found="()")
    return JOINED.join(path) if len(path) > 1 else f"{FROM_THE_TOP}{path[0]}"


Node = tuple[int, int]  # a depth, and a fine class below the node


def _nodes_by_path(tree: LabelTree) -> dict[Row, Node]:
    """Return {path of names: node} for every node of the tree, except nodes that represent an
    unknown name. A node is its depth, 1 … L, and the first finest class below it."""
    nodes: dict[Row, Node] = {}
    for fine, row in enumerate(class_rows(tree)):
        for depth in range(1, tree.depth + 1):
            if not is_unknown(row[depth - 1]):
                nodes.setdefault(row[:depth], (depth, fine))
    return nodes


def _nodes_of(tree: LabelTree) -> tuple[dict[Row, Node], dict[str, list[Node]]]:
    """Return two dictionaries: {path of names: node} and {name: nodes of this name}. Both also have
    the names as they were written in the user's table, before equal names were told apart by adding
    the name of the parent.
    """
    of_path = _nodes_by_path(tree)
    of_name: dict[str, list[Node]] = {}
    by_written: dict[Row, list[Node]] = {}  # {path as it was written in the table: nodes}
    for path, node in of_path.items():
        of_name.setdefault(path[-1], []).append(node)
        if (written := as_written(path)) != path:
            by_written.setdefault(written, []).append(node)

    of_written_name: dict[str, list[Node]] = {}
    for written, nodes in by_written.items():
        of_written_name.setdefault(written[-1], []).extend(nodes)
    # a path that was written for several nodes stands for none of these. The tree's own spelling
    # has precedence over a written one: it comes last in the merged dictionaries
    alone = {written: nodes[0] for written, nodes in by_written.items() if len(nodes) == 1}
    return {**alone, **of_path}, {**of_written_name, **of_name}


def _nodes_meant_by(
    name: str, of_path: dict[Row, Node], of_name: dict[str, list[Node]]
) -> list[Node]:
    """Find the nodes that a text may mean: all nodes of this name, or else the node of this path,
    with any of the usual separators. Several nodes mean that the name is ambiguous, [] that the
    tree has no such name. `of_path`: {path of names: node}. `of_name`: {name: nodes}."""
    if name in of_name:
        return of_name[name]
    bare = name.removeprefix(FROM_THE_TOP)  # "> A" is the node A of the coarsest level
    # a separator may be written without the spaces around it
    marks = dict.fromkeys(separator.strip() for separator in SEPARATORS)
    paths = [tuple(bare.split(JOINED))]
    paths += [split_path(bare, mark) for mark in marks if mark in name]
    # hbench's own separator, JOINED, is tried first, and the first reading that is a path counts
    return [of_path[path] for path in paths if path in of_path][:1]


def _refuse_unclear_names(
    names: Sequence[str], nodes: Sequence[Node], ambiguous: Sequence[str]
) -> None:
    """Raise SubmissionError if it is unclear which nodes the names mean.

    `names`: all given names. `nodes`: the nodes that were found. `ambiguous`: the names that
    several nodes share.
    """
    if ambiguous:
        raise SubmissionError(
            f"{len(ambiguous):,} names stand for several nodes",
            expected=f"the path to each of them, such as A{JOINED}B, or {FROM_THE_TOP}A of the "
            "coarsest level",
            found=examples(ambiguous),
        )
    if not nodes:
        raise SubmissionError(
            "none of the names is a node of the tree",
            expected="names of nodes, or the paths to them",
            found=examples(names),
            fix="hbench tree show DATASET lists the names",
        )
    if len(set(nodes)) < len(nodes):
        raise SubmissionError(
            "some nodes have several vectors",
            expected="one vector of each node: the mean of those of its names",
            found=f"{len(nodes):,} vectors of {len(set(nodes)):,} nodes",
        )
