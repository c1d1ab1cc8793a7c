"""Names items by the vectors of the nodes of their label tree, and scores the readers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from hbench.core.errors import SubmissionError
from hbench.datasets.manifest import Manifest
from hbench.engine.similarity.unit_vectors import unit_vectors
from hbench.evaluation.by_name.asked import order_of_names, test_of
from hbench.evaluation.by_name.named import NamedPictures, truth_of
from hbench.evaluation.by_name.naming import (
    SUM,
    NodeVectors,
    Readings,
    are_consistent,
)
from hbench.evaluation.by_name.nodes import PlacedNodes, placed_in
from hbench.evaluation.by_name.nodes import read as read_nodes
from hbench.evaluation.by_name.queries import refuse_vectors
from hbench.evaluation.by_name.scores import scores_of
from hbench.evaluation.examination import Examined
from hbench.evaluation.summary import summarise
from hbench.records.document import Score
from hbench.records.queries import queries_of, units_of
from hbench.sheets.paths import JOINED
from hbench.submissions import embeddings as embedding_files
from hbench.submissions.embeddings import Embeddings
from hbench.tree import LabelTree
from hbench.tree.names import class_rows
from hbench.tree.partial import classes_among
from hbench.trust.climbing import Values
from hbench.trust.numbering import Numbering


def name_by_nodes(examined: Examined, nodes: Any, scale: float) -> NamedPictures:
    """Name the queries of a test by the vectors of the tree's nodes.

    `examined`: the vectors of the queries. `nodes`: a file of node vectors, embeddings, or a
    dictionary by name, as `hbench.name` takes it. `scale`: the factor of cosines in the softmax;
    CLIP has 100.
    """
    manifest = test_of(examined.data)
    vectors = read_nodes(nodes, manifest.levels)
    # "naming": what the vectors are for, as the error says if the submission is a ranking
    embedded = examined.submission.embeddings("naming").queries
    refuse_vectors(vectors, embedded.dim, cosine=True)
    # the node of the tree that each name stands for
    placed = placed_in(manifest.tree, vectors.ids.tolist())
    _refuse_without_finest(manifest.tree, placed)
    # work in the order of the ids, so that the order of a file's rows does not change any bit.
    # `of` below restores the order of the test
    order = order_of_names(manifest)
    rows = embedding_files.align(embedded, manifest.items[manifest.query][order])
    of_nodes = _node_vectors(manifest, placed, vectors)
    pictures = unit_vectors(embedded.vectors[rows], np.float32)
    readings = of_nodes.read(pictures, scale=scale).of(np.argsort(order))
    return _naming_of_readings(examined, manifest, readings, placed, vectors)


def _refuse_without_finest(tree: LabelTree, placed: PlacedNodes) -> None:
    """Raise SubmissionError if none of the `placed` nodes is of the finest level: paths of pictures
    end at that level, and shares are summed from there upwards. A node has a depth of 1 … L."""
    if placed.depths.max() == tree.depth:
        return
    given = [tree.levels[depth - 1] for depth in np.unique(placed.depths).tolist()]
    raise SubmissionError(
        "none of the names is of the finest level, down to which pictures are named",
        expected=f"names of {tree.levels[-1]}",
        found=f"names of {', '.join(given)}",
        fix="hbench embed --names embeds the names of all levels",
    )


def _node_vectors(manifest: Manifest, placed: PlacedNodes, vectors: Embeddings) -> NodeVectors:
    """Collect the vectors of the nodes, scaled to length 1, for each level from the coarsest. Those
    of a level are in the order in which the tree numbers its nodes. `placed`: the node of each row
    of `vectors`."""
    nodes, of_nodes = [], []
    for level in range(manifest.tree.depth):
        here = placed.of(placed.depths == level + 1)
        at = here.labels[:, level].astype(np.int64)  # the node: the last one on the path to it
        order = np.argsort(at)
        nodes.append(at[order])
        # `here.rows`: the rows of `vectors` that these nodes have
        of_nodes.append(unit_vectors(vectors.vectors[here.rows[order]], np.float32))
    return NodeVectors(manifest.tree, nodes, of_nodes)


def _naming_of_readings(
    examined: Examined,
    manifest: Manifest,
    readings: Readings,
    placed: PlacedNodes,
    vectors: Embeddings,
) -> NamedPictures:
    """Score the paths that the readers found for a test's queries. A reader is a rule that chooses
    a path by the scores of the nodes: EACH, SUM or DOWN (see `naming.py`).

    `readings`: for each reader the nodes of the paths; and `climb`, the paths of the reader SUM
    with the masses of their nodes.
    `placed`: the node of each row of `vectors`, for the signature and for remarks on classes
    without a vector.
    """
    tree = manifest.tree
    units = units_of(queries_of("test", manifest), examined.conditions.unit)
    # how many nodes of each level, coarse to fine, have a vector
    counts = np.bincount(placed.depths, minlength=tree.depth + 1)[1:].tolist()
    numbers = zip(counts, tree.levels, strict=True)
    counted = ",".join(f"{number}@{level}" for number, level in numbers)
    signature = f"{examined.signature()}|names:nodes({counted})"
    warnings = [*examined.warnings, *placed.remarks(len(vectors))]
    of_finest = classes_among(tree.names[-1])  # without marks of the unknown and of distractors
    without = len(of_finest) - counts[-1]
    if without:
        warnings.append(
            f"{without:,} of {len(of_finest):,} names of {tree.levels[-1]} have no vector, and no "
            "picture gets them"
        )
    # {reader: {name of the value, such as hF1: values (Q,)}}
    values = _values_by_reader(manifest, readings)
    # only the reader SUM has masses that add up, so table and thresholds use its paths
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
    """Compute {reader: {value such as hF1: (Q,), of the items}}."""
    tree = manifest.tree
    # the E true paths (E, L), the item of each, and how many levels of each are known: first one
    # path of each of the Q items, in order, then the further paths of items that have several
    labels, owners, known = truth_of(manifest)

    by_reader = {}
    for reader, nodes in readings.nodes.items():  # nodes (Q, L) of the items, coarse to fine
        by_reader[reader] = scores_of(tree, nodes, labels, owners, known)
        # NaN for items without a label, as the other values
        consistent = are_consistent(tree, nodes).astype(np.float64)
        by_reader[reader]["consistent"] = np.where(known[: len(nodes)] > 0, consistent, np.nan)
    return by_reader


def _means_by_reader(
    manifest: Manifest, by_reader: Mapping[str, Mapping[str, Values]], units: NDArray[np.int64]
) -> dict[str, dict[str, Score]]:
    """Compute the means over the Q items, as {reader: {name of a value: its mean, with an interval
    over the `units`}}. `by_reader`: {reader: {name of a value: values (Q,)}}. `units` (Q,): the
    unit of each item.
    """
    # one order for each test, here the only one, in which its values are summed: a mean then does
    # not depend on the order of the items, not even in its last digits
    order = [order_of_names(manifest)]
    scores = {}
    for reader, values in by_reader.items():
        means = summarise(np.stack(list(values.values())), order, units)
        scores[reader] = dict(zip(values, means, strict=True))
    return scores


def _table_of_paths(manifest: Manifest, readings: Readings) -> pa.Table:
    """Make a table with a row for each picture: its path by the reader SUM, the mass of the last
    node, and the finest level down to which all readers agree, "" if they agree at none."""
    tree = manifest.tree
    nodes = readings.nodes[SUM]
    # (N, L): whether all readers give the same node
    agreed = np.ones(nodes.shape, bool)
    for other in readings.nodes.values():
        agreed &= other == nodes
    # the number of levels before the first disagreement: 2 for [1, 1, 0, 1]
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
