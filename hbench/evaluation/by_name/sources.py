"""Names the items of a dataset by one of three sources: the vectors of its nodes, neighbours, or a
table of predictions; and scores the readers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike, NDArray

from hbench.core.arguments import checked
from hbench.core.errors import SubmissionError, UsageError
from hbench.core.version import __version__
from hbench.datasets import Dataset, load
from hbench.datasets.manifest import Manifest
from hbench.engine.settings import Settings
from hbench.engine.similarity import as_vectors
from hbench.evaluation.by_name.galleries import gallery_of
from hbench.evaluation.by_name.named import NamedPictures, truth_of
from hbench.evaluation.by_name.naming import (
    SCALE,
    SUM,
    NodeVectors,
    Readings,
    are_consistent,
)
from hbench.evaluation.by_name.neighbours import SHARPNESS, K, climb_by_neighbours
from hbench.evaluation.by_name.nodes import PlacedNodes, placed_in, read
from hbench.evaluation.by_name.numbering import Numbering
from hbench.evaluation.by_name.predicted import climb_of_table
from hbench.evaluation.by_name.queries import refuse_vectors
from hbench.evaluation.by_name.scores import scores_of, scores_of_path
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
from hbench.tree.partial import is_unknown
from hbench.trust.climbing import BELOW, Climb, Values

NEIGHBOURS = "neighbours"
PREDICTIONS = "predictions"


@checked
def name(
    pictures: str | Path | Embeddings | ArrayLike | None,
    dataset: str | Path | Dataset,
    nodes: str | Path | Embeddings | Mapping[str, ArrayLike] | None = None,
    *,
    gallery: str | Path | Embeddings | None = None,
    predictions: str | Path | None = None,
    ids: Sequence[str] | None = None,
    scale: float = SCALE,
    k: int = K,
    sharpness: float = SHARPNESS,
    unit: str | None = None,
) -> NamedPictures:
    """Give every item of a test a path in the label tree, with the masses of the nodes on it.

    Masses are sums of shares over the classes below a node. Shares come from one of three sources:
    the vectors of names (`nodes`), neighbours with labels (`gallery`), or a table of predictions.

    Of names, three readers stand beside each other (hbench.evaluation.by_name.naming): `each`, the
    best node of every level; `sum`, softmax(scale · cosine) of the finest nodes, summed upwards;
    `down`, the best child of the best child. A node without a vector scores as the best of its
    children.

    Args:
        pictures: an embedding file of the test's queries, or, with `ids`, vectors (N, D); without
            `nodes` and `gallery`, a table of predictions.
        dataset: a name, a folder, a table, or what `hbench.load` returns, of one test.
        nodes: an embedding file whose ids are names of nodes, or the paths to them; or vectors by
            such a name, a dictionary.
        gallery: an embedding file of items that the dataset has labels of, in any split; an item is
            never its own neighbour.
        predictions: a table of predictions, in place of `pictures`.
        ids: (N,), of vectors in memory.
        scale: of the cosines in `sum`, more than 0. Default: 100, as CLIP has it.
        k: how many neighbours have a share. Default: 10.
        sharpness: τ of their weights exp(τ · (cosine − 1)). Default: 20.
        unit: what intervals are taken over: the classes of a level, or "query". Default: the
            finest.

    Returns:
        NamedPictures: `table`, `scores`, `write("names.csv")`, `trust(0.95)`.

    Raises:
        SubmissionError: vectors that cannot be used, names that are no nodes of the tree.
        UnknownName: a dataset or unit that does not exist.
        UsageError: a dataset of several tests, or without a label tree; several sources.
    """
    if not scale > 0:
        raise UsageError("the scale is not positive", expected="more than 0", found=f"{scale}")
    if k < 1 or not sharpness > 0:
        raise UsageError(
            "the settings of neighbours are not positive",
            expected="k of 1 or more, a sharpness above 0",
            found=f"{k}, {sharpness}",
        )
    _refuse_sources(nodes, gallery, predictions)
    if nodes is None and gallery is None:
        return _name_by_predictions(pictures if predictions is None else predictions, dataset, unit)
    given: Any = pictures
    if ids is not None:
        given = joined(as_ids(ids, "ids"), as_vectors(given, "vectors"))
    examined = examine(as_submission(given), dataset, Settings(metrics="R@1", unit=unit))
    if nodes is None:
        return _name_by_neighbours(examined, gallery, k=k, sharpness=sharpness)
    return _name_by_nodes(examined, nodes, scale)


def _name_by_nodes(examined: Examined, nodes: Any, scale: float) -> NamedPictures:
    """Name items by the vectors of the tree's nodes; `nodes`: what `hbench.name` takes."""
    manifest = _one_test(examined.data)
    vectors = read(nodes, manifest.levels)
    embedded = examined.submission.embeddings("naming").queries
    refuse_vectors(vectors, embedded.dim, cosine=True)
    placed = placed_in(manifest.tree, vectors.ids.tolist())
    _refuse_without_finest(manifest.tree, placed)
    # by name, so that the order of a file's rows moves no bit; `of` undoes it
    order = _order_of_names(manifest)
    rows = embedding_files.align(embedded, manifest.items[manifest.query][order])
    of_nodes = _node_vectors(manifest, placed, vectors)
    readings = of_nodes.read(_unit(embedded.vectors[rows]), scale=scale).of(np.argsort(order))
    return _naming_of_readings(examined, manifest, readings, placed, vectors)


def _refuse_sources(*sources: object) -> None:
    """Raise UsageError for more than one source of shares."""
    if sum(source is not None for source in sources) > 1:
        raise UsageError(
            "names, neighbours and predictions are three sources of the same masses",
            expected="one of nodes, gallery and predictions",
        )


def _one_test(data: Dataset) -> Manifest:
    """The test of a dataset. Raises UsageError for several, and for pairs without labels."""
    if len(data.tests) > 1 or data.lists:
        raise UsageError(
            "pictures are named in one label tree",
            expected="a dataset with one test, which has labels",
            found=", ".join(data.tests),
        )
    (manifest,) = data.tests.values()
    return manifest


def _name_by_neighbours(
    examined: Examined, given: Any, *, k: int, sharpness: float
) -> NamedPictures:
    """Name items by their k nearest neighbours in a gallery; `given`: a file of it, or what was
    read from one."""
    manifest = _one_test(examined.data)
    embedded = examined.submission.embeddings("naming").queries
    # by name, so that the order of a file's rows moves no bit; `of` undoes it
    order = _order_of_names(manifest)
    items = manifest.items[manifest.query][order]
    numbering = Numbering(manifest.tree)
    source = embedding_files.read(Path(given)) if isinstance(given, str | Path) else given
    if not isinstance(source, Embeddings):
        raise UsageError(
            "gallery must be vectors with ids",
            expected="an embedding file, or what was read from one",
            found=type(source).__name__,
        )
    refuse_vectors(source, embedded.dim, cosine=True)
    gallery, remarks = gallery_of(source, examined.data, numbering, items)
    rows = embedding_files.align(embedded, items)
    vectors = _unit(embedded.vectors[rows])
    climb = climb_by_neighbours(vectors, gallery, k=k, sharpness=sharpness).of(np.argsort(order))
    signature = (
        f"{examined.signature()}|{NEIGHBOURS}:k({k}),tau({sharpness:g}),of({len(gallery.paths)})"
    )
    return _naming_of_climb(
        manifest,
        Source(NEIGHBOURS, climb, numbering, signature, (*examined.warnings, *remarks)),
        examined.conditions.unit,
    )


def _name_by_predictions(given: Any, dataset: Any, unit: str | None) -> NamedPictures:
    """Name items as a table of predictions does."""
    if not isinstance(given, str | Path):
        raise UsageError(
            "without nodes and without a gallery, names come from a table of predictions",
            expected="a file, or nodes=…, or gallery=…",
            found=type(given).__name__,
        )
    data = dataset if isinstance(dataset, Dataset) else load(dataset)
    manifest = _one_test(data)
    numbering = Numbering(manifest.tree)
    climb, remarks = climb_of_table(Path(given), manifest, numbering)
    unit = unit or manifest.levels[-1]
    short = ".".join(__version__.split(".")[:2])
    signature = f"{data.name}@{data.version}|test|{PREDICTIONS}|hbench:{short}"
    return _naming_of_climb(
        manifest, Source(PREDICTIONS, climb, numbering, signature, remarks), unit
    )


@dataclass(frozen=True)
class Source:
    """Where masses come from: the name of the reader, its climbs, the names of their nodes, and
    what is said about them."""

    reader: str
    climb: Climb
    numbering: Numbering
    signature: str
    warnings: tuple[str, ...]


def _naming_of_climb(manifest: Manifest, source: Source, unit: str) -> NamedPictures:
    """The names along the paths of the largest shares, and their scores."""
    units = units_of(queries_of("test", manifest), unit)
    values = scores_of_path(manifest.levels, source.climb.nodes, *truth_of(manifest))
    means = summarise(np.stack(list(values.values())), [_order_of_names(manifest)], units)
    nodes = source.climb.nodes
    # a path may end early: its mass is that of its last node
    ends = (nodes != BELOW).sum(axis=1)
    masses = np.where(ends > 0, source.climb.masses[np.arange(len(ends)), ends - 1], 0.0)
    texts = [source.numbering.text(path) for path in nodes.tolist()]
    items = manifest.items[manifest.query]
    table = pa.table({"item": items.tolist(), "path": texts, "mass": masses})
    return NamedPictures(
        table=table,
        scores={source.reader: dict(zip(values, means, strict=True))},
        values={source.reader: values},
        signature=source.signature,
        manifest=manifest,
        nodes={source.reader: nodes},
        climb=source.climb,
        numbering=source.numbering,
        unit=unit,
        warnings=source.warnings,
    )


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


def _naming_of_readings(
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
    values = _values_by_reader(manifest, readings)
    return NamedPictures(
        table=_table_of_paths(manifest, readings),
        scores=_means_by_reader(manifest, values, units),
        values=values,
        signature=signature,
        manifest=manifest,
        nodes=readings.nodes,
        climb=readings.climb,
        numbering=Numbering(tree),
        unit=examined.conditions.unit,
        warnings=tuple(warnings),
    )


def _values_by_reader(manifest: Manifest, readings: Readings) -> dict[str, dict[str, Values]]:
    """By reader (a way from similarities to a path: each, sum, down), then by the name of the value
    such as hF1, the values of the items (Q,)."""
    tree = manifest.tree
    labels, owners, known = truth_of(manifest)

    by_reader = {}
    for reader, nodes in readings.nodes.items():  # nodes (Q, L) of the items, coarse to fine
        by_reader[reader] = scores_of(tree, nodes, labels, owners, known)
        by_reader[reader]["consistent"] = are_consistent(tree, nodes).astype(np.float64)
    return by_reader


def _means_by_reader(
    manifest: Manifest, by_reader: Mapping[str, Mapping[str, Values]], units: NDArray[np.int64]
) -> dict[str, dict[str, Score]]:
    """The means of every reader's values, by name, with intervals over the units (Q,)."""
    order = [_order_of_names(manifest)]
    scores = {}
    for reader, values in by_reader.items():
        means = summarise(np.stack(list(values.values())), order, units)
        scores[reader] = dict(zip(values, means, strict=True))
    return scores


def _table_of_paths(manifest: Manifest, readings: Readings) -> pa.Table:
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
            "mass": pa.array(readings.shares),
            "agreed_to": pa.array(levels[down_to].tolist()),
        }
    )
