"""Names the pictures of a dataset by the vectors of its nodes, and scores the readers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike, NDArray

from hbench.core import tables
from hbench.core.arguments import checked
from hbench.core.errors import SubmissionError, UsageError
from hbench.datasets import Dataset
from hbench.datasets.manifest import Manifest
from hbench.engine.settings import Settings
from hbench.engine.similarity import as_vectors
from hbench.evaluation.by_name.naming import (
    SCALE,
    SUM,
    Nodes,
    NodeVectors,
    Readings,
    are_consistent,
)
from hbench.evaluation.by_name.nodes import PlacedNodes, placed_in, read
from hbench.evaluation.by_name.queries import refuse_vectors
from hbench.evaluation.by_name.scores import scores_of
from hbench.evaluation.examination import Examined, examine
from hbench.evaluation.submission import as_submission
from hbench.evaluation.summary import summarise
from hbench.records.document import Score
from hbench.records.queries import queries_of, units_of
from hbench.sheets.paths import JOINED
from hbench.submissions import embeddings as embedding_files
from hbench.submissions.embeddings import Embeddings, joined
from hbench.submissions.embeddings.ids import as_ids
from hbench.tree import LabelTree
from hbench.tree.names import class_rows
from hbench.tree.partial import is_unknown, known_levels


@dataclass(frozen=True)
class NamedPictures:
    """The names of a test's pictures, and how good they are.

    Attributes:
        table: item, path and share by the reader `sum`, and the finest level down to which all
            readers agree.
        scores: of every reader, each value's mean with its interval over classes.
        signature: what the scores cannot be quoted without.
        manifest: the items, whose queries are named, with their labels.
        nodes: of every reader, the nodes (Q, L) of the queries, coarse to fine.
        warnings: what is left out.
    """

    table: pa.Table
    scores: Mapping[str, Mapping[str, Score]]
    signature: str
    manifest: Manifest
    nodes: Mapping[str, Nodes]
    warnings: tuple[str, ...] = ()

    def write(self, path: str | Path) -> None:
        """Write the names as .csv, .tsv or .parquet, whole or not at all."""
        tables.write_sheet(self.table, Path(path))


@checked
def name(
    pictures: str | Path | Embeddings | ArrayLike,
    dataset: str | Path | Dataset,
    nodes: str | Path | Embeddings | Mapping[str, ArrayLike],
    *,
    ids: Sequence[str] | None = None,
    scale: float = SCALE,
    unit: str | None = None,
) -> NamedPictures:
    """Give every picture of a test a path in the label tree, by the vectors of the tree's nodes.

    Three readers stand beside each other (hbench.evaluation.by_name.naming): `each`, the best node
    of every level; `sum`, softmax(scale · cosine) of the finest nodes, summed upwards; `down`, the
    best child of the best child. A node without a vector scores as the best of its children.

    Args:
        pictures: an embedding file of the test's queries, or, with `ids`, vectors (N, D).
        dataset: a name, a folder, a table, or what `hbench.load` returns, of one test.
        nodes: an embedding file whose ids are names of nodes, or the paths to them; or vectors by
            such a name, a dictionary.
        ids: (N,), of vectors in memory.
        scale: of the cosines in `sum`, more than 0. Default: 100, as CLIP has it.
        unit: what intervals are taken over: the classes of a level, or "query". Default: the
            finest.

    Returns:
        NamedPictures: `table`, `scores`, `write("names.csv")`.

    Raises:
        SubmissionError: vectors that cannot be used, names that are no nodes of the tree.
        UnknownName: a dataset or unit that does not exist.
        UsageError: a dataset of several tests, or without a label tree.
    """
    if not scale > 0:
        raise UsageError("the scale is not positive", expected="more than 0", found=f"{scale}")
    given: Any = pictures
    if ids is not None:
        given = joined(as_ids(ids, "ids"), as_vectors(given, "vectors"))
    examined = examine(as_submission(given), dataset, Settings(metrics="R@1", unit=unit))
    if len(examined.data.tests) > 1 or examined.data.lists:
        raise UsageError(
            "pictures are named in one label tree",
            expected="a dataset with one test, which has labels",
            found=", ".join(examined.data.tests),
        )
    (manifest,) = examined.data.tests.values()
    vectors = read(nodes, manifest.levels)
    embedded = examined.submission.embeddings("naming").queries
    refuse_vectors(vectors, embedded.dim, cosine=True)
    placed = placed_in(manifest.tree, vectors.ids.tolist())
    _refuse_without_finest(manifest.tree, placed)
    order = _order_of_names(manifest)
    rows = embedding_files.align(embedded, manifest.items[manifest.query][order])
    of_nodes = _node_vectors(manifest, placed, vectors)
    readings = of_nodes.read(_unit(embedded.vectors[rows]), scale=scale).of(np.argsort(order))
    return _named(examined, manifest, readings, placed, vectors)


def _order_of_names(manifest: Manifest) -> NDArray[np.int64]:
    """The order of the queries by name, in which they have the same bits however a table is
    sorted."""
    return np.argsort(manifest.items[manifest.query].astype(str), kind="stable")


def _refuse_without_finest(tree: LabelTree, placed: PlacedNodes) -> None:
    """Raise SubmissionError where no class of the finest level has a vector."""
    if placed.depths.max() == tree.depth:
        return
    given = [tree.levels[depth - 1] for depth in np.unique(placed.depths).tolist()]
    raise SubmissionError(
        "none of the names is of the finest level, down to which pictures are named",
        expected=f"names of {tree.levels[-1]}",
        found=f"names of {', '.join(given)}",
        fix="hbench embed --names embeds the names of all levels",
    )


def _unit(vectors: NDArray[np.floating]) -> NDArray[np.float32]:
    """The rows at length 1, float32."""
    rows = np.asarray(vectors, np.float32)
    scaled: NDArray[np.float32] = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    return scaled


def _node_vectors(manifest: Manifest, placed: PlacedNodes, vectors: Embeddings) -> NodeVectors:
    """The vectors of the nodes, level by level."""
    nodes, of_nodes = [], []
    for level in range(manifest.tree.depth):
        here = placed.of(placed.depths == level + 1)
        at = here.labels[:, level].astype(np.int64)
        order = np.argsort(at)
        nodes.append(at[order])
        of_nodes.append(_unit(vectors.vectors[here.rows[order]]))
    return NodeVectors(manifest.tree, nodes, of_nodes)


def _named(
    examined: Examined,
    manifest: Manifest,
    readings: Readings,
    placed: PlacedNodes,
    vectors: Embeddings,
) -> NamedPictures:
    """The names and their scores."""
    tree = manifest.tree
    units = units_of(queries_of("test", manifest), examined.conditions.unit)
    depths = np.bincount(placed.depths, minlength=tree.depth + 1)[1:].tolist()
    numbers = zip(depths, tree.levels, strict=True)
    counted = ",".join(f"{number}@{level}" for number, level in numbers)
    signature = f"{examined.signature()}|names:nodes({counted})"
    warnings = [*examined.warnings, *placed.remarks(len(vectors))]
    of_finest = [name for name in tree.names[-1] if not is_unknown(name)]
    without = len(of_finest) - depths[-1]
    if without:
        warnings.append(
            f"{without:,} of {len(of_finest):,} names of {tree.levels[-1]} have no vector, and no "
            "picture gets them"
        )
    scores = _scores(manifest, readings, units)
    return NamedPictures(
        _table(manifest, readings), scores, signature, manifest, readings.nodes, tuple(warnings)
    )


def _scores(
    manifest: Manifest, readings: Readings, units: NDArray[np.int64]
) -> dict[str, dict[str, Score]]:
    """The scores of every reader, by name, with intervals over the units (Q,)."""
    tree = manifest.tree
    asked = np.flatnonzero(manifest.query)
    labels, items = manifest.paths.of(asked).all_labels()
    known = known_levels(tree)[labels[:, -1]].astype(np.int64)
    order = [_order_of_names(manifest)]

    scores = {}
    for reader, nodes in readings.nodes.items():
        values = scores_of(tree, nodes, labels, items, known)
        values["consistent"] = are_consistent(tree, nodes).astype(np.float64)
        means = summarise(np.stack(list(values.values())), order, units)
        scores[reader] = dict(zip(values, means, strict=True))
    return scores


def _table(manifest: Manifest, readings: Readings) -> pa.Table:
    """A row per picture: its path by `sum`, and down to which level the readers agree."""
    tree = manifest.tree
    nodes = readings.nodes[SUM]
    agreed = np.ones(nodes.shape, bool)
    for other in readings.nodes.values():
        agreed &= other == nodes
    down_to = np.cumprod(agreed, axis=1).sum(axis=1)
    paths = np.array([JOINED.join(row) for row in class_rows(tree)], dtype=object)
    levels = np.array(["", *tree.levels], dtype=object)
    return pa.table(
        {
            "item": pa.array(manifest.items[manifest.query].tolist()),
            "path": pa.array(paths[nodes[:, -1]].tolist()),
            "share": pa.array(readings.shares),
            "agreed_to": pa.array(levels[down_to].tolist()),
        }
    )
