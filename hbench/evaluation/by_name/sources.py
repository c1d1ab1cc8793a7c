"""Names the items of a dataset from one of three sources (the vectors of its nodes, neighbours, or
a table of predictions), and scores the names.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike

from hbench.core.arguments import checked
from hbench.core.errors import UsageError
from hbench.core.version import __version__
from hbench.datasets import Dataset
from hbench.datasets.manifest import Manifest
from hbench.engine.settings import Settings
from hbench.engine.similarity import as_vectors
from hbench.engine.similarity.unit_vectors import unit_vectors
from hbench.evaluation.by_name.asked import asked_of, order_of_names, rows_of_items, test_of
from hbench.evaluation.by_name.named import NamedPictures, truth_of
from hbench.evaluation.by_name.named_by_nodes import name_by_nodes
from hbench.evaluation.by_name.naming import (
    SCALE,
)
from hbench.evaluation.by_name.neighbours import SHARPNESS, K, climb_by_neighbours, gallery_of
from hbench.evaluation.by_name.predicted import climb_of_predictions, predictions_in
from hbench.evaluation.by_name.queries import refuse_vectors
from hbench.evaluation.by_name.scores import scores_of_path
from hbench.evaluation.examination import Examined, examine
from hbench.evaluation.submission import as_submission
from hbench.evaluation.summary import summarise
from hbench.records.queries import queries_of, units_of
from hbench.sheets.predictions import Predictions
from hbench.submissions import embeddings as embedding_files
from hbench.submissions.embeddings import Embeddings, joined
from hbench.submissions.embeddings.ids import as_ids
from hbench.trust.climbing import BELOW, Climb
from hbench.trust.numbering import Numbering

NEIGHBOURS = "neighbours"
PREDICTIONS = "predictions"


@checked
def name(
    pictures: str | Path | Embeddings | Predictions | ArrayLike | None,
    dataset: str | Path | Dataset,
    nodes: str | Path | Embeddings | Mapping[str, ArrayLike] | None = None,
    *,
    gallery: str | Path | Embeddings | None = None,
    predictions: str | Path | None = None,
    ids: Sequence[str] | None = None,
    items: Sequence[str] | None = None,
    scale: float = SCALE,
    k: int = K,
    sharpness: float = SHARPNESS,
    unit: str | None = None,
) -> NamedPictures:
    """Give every item of a test a path in the label tree, with the masses of the nodes on it.

    Masses are sums of shares over the classes below a node. Shares come from one of three sources:
    the vectors of names (`nodes`), neighbours with labels (`gallery`), or a table of predictions.

    For the vectors of names three readers are compared (hbench.evaluation.by_name.naming): `each`
    takes the best node of every level; `sum` adds softmax(scale · cosine) of the finest nodes
    upwards; `down` takes the best child at each step from the root. A node without a vector has the
    score of its best child.

    Args:
        pictures: an embedding file of the test's queries, or, with `ids`, vectors (N, D); without
            `nodes` and `gallery`, a table of predictions.
        dataset: a name, a folder, a table, or what `hbench.load` returns, of one test.
        nodes: an embedding file whose ids are names of nodes, or the paths to them; or vectors by
            such a name, a dictionary.
        gallery: an embedding file of items that have a label in any split of the dataset. An item
            is never its own neighbour.
        predictions: a table of predictions, in place of `pictures`.
        ids: (N,), of vectors in memory.
        items: the ids of the items to name, in place of the test's queries. They may have a label
            in any split, or none, such as new pictures, which do not count in scores.
        scale: the factor of cosines in the reader `sum`, above 0. Default: 100, as in CLIP.
        k: how many neighbours have a share. Default: 10.
        sharpness: τ in the weights exp(τ · (cosine − 1)) of neighbours. Default: 20.
        unit: what intervals are taken over: the classes of a level, or "query". Default: the
            finest level.

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
    # `data`: a dataset with a test whose queries are the items to be named. `whole`: the dataset
    # with all labels. `naming` puts the number of items into the signature if the user chose them
    asked = asked_of(dataset, items)
    if nodes is None and gallery is None:
        given = pictures if predictions is None else predictions
        return asked.naming(_name_by_predictions(given, asked.data, unit))
    source: Any = pictures
    if ids is not None:
        source = joined(as_ids(ids, "ids"), as_vectors(source, "vectors"))
    if items is not None:
        source = rows_of_items(_as_embeddings(source, "pictures"), items)
    # checks that the vectors fit the test; the metric is required, but not computed
    examined = examine(as_submission(source), asked.data, Settings(metrics="R@1", unit=unit))
    if nodes is None:
        return asked.naming(
            _name_by_neighbours(examined, asked.whole, gallery, k=k, sharpness=sharpness)
        )
    return asked.naming(name_by_nodes(examined, nodes, scale))


def _as_embeddings(given: Any, what: str) -> Embeddings:
    """Return embeddings, read from a file if its path was given. `what`: what the error message
    calls them. Raises UsageError for anything else."""
    source = embedding_files.read(Path(given)) if isinstance(given, str | Path) else given
    if not isinstance(source, Embeddings):
        raise UsageError(
            f"{what} must be vectors with ids",
            expected="an embedding file, or what was read from one",
            found=type(source).__name__,
        )
    return source


def _refuse_sources(*sources: object) -> None:
    """Raise UsageError if more than one source of shares is given."""
    if sum(source is not None for source in sources) > 1:
        raise UsageError(
            "names, neighbours and predictions are three sources of the same masses",
            expected="one of nodes, gallery and predictions",
        )


def _name_by_neighbours(
    examined: Examined, labelled: Dataset, given: Any, *, k: int, sharpness: float
) -> NamedPictures:
    """Name items by their k nearest neighbours in a gallery.

    `examined`: the vectors of the items. `labelled`: the dataset with the neighbours' labels.
    `given`: the gallery, a file or embeddings. `sharpness`: τ in the weights exp(τ · (cosine − 1)).
    """
    manifest = test_of(examined.data)
    # a ranking has no vectors; the error then says that "naming" needs them
    embedded = examined.submission.embeddings("naming").queries
    # work in the order of the ids, so that the order of a file's rows does not change any bit;
    # `.of(np.argsort(order))` below restores the order of the test
    order = order_of_names(manifest)
    items = manifest.items[manifest.query][order]
    # nodes are numbered by their names: the gallery's paths may have names that the tree lacks
    numbering = Numbering(manifest.tree)
    source = _as_embeddings(given, "gallery")
    fix = "embed the gallery and the items with one model"
    refuse_vectors(source, embedded.dim, cosine=True, what="gallery", fix=fix)
    gallery, remarks = gallery_of(source, labelled, numbering, items)
    rows = embedding_files.align(embedded, items)
    # (Q, D), in the order of the ids
    vectors = unit_vectors(embedded.vectors[rows], np.float32)
    # for each item the path with the largest share of its neighbours, and the masses along it
    climb = climb_by_neighbours(vectors, gallery, k=k, sharpness=sharpness).of(np.argsort(order))
    signature = (
        f"{examined.signature()}|{NEIGHBOURS}:k({k}),tau({sharpness:g}),of({len(gallery.paths)})"
    )
    return _naming_of_climb(
        manifest,
        Source(
            reader=NEIGHBOURS,
            climb=climb,
            numbering=numbering,
            signature=signature,
            warnings=(*examined.warnings, *remarks),
        ),
        examined.conditions.unit,
    )


def _name_by_predictions(given: Any, data: Dataset, unit: str | None) -> NamedPictures:
    """Name the queries of a dataset's test by predictions. `given`: a file of predictions, or what
    was read from one. `unit`: what intervals are taken over, None for the classes of the finest
    level."""
    if not isinstance(given, str | Path | Predictions):
        raise UsageError(
            "without nodes and without a gallery, names come from a table of predictions",
            expected="a file, or nodes=…, or gallery=…",
            found=type(given).__name__,
        )
    manifest = test_of(data)
    read_as = given if isinstance(given, Predictions) else predictions_in(Path(given), manifest)
    numbering = Numbering(manifest.tree)
    # for each query the path that is predicted for it, as numbers of nodes, with the masses along
    # it, as other sources of names also give them
    climb, remarks = climb_of_predictions(read_as, manifest, numbering)
    unit = unit or manifest.levels[-1]
    # "test" stands for the only test, whatever its name. Without the patch version: a patch release
    # changes no score
    short = ".".join(__version__.split(".")[:2])
    signature = f"{data.name}@{data.version}|test|{PREDICTIONS}|hbench:{short}"
    return _naming_of_climb(
        manifest,
        Source(
            reader=PREDICTIONS,
            climb=climb,
            numbering=numbering,
            signature=signature,
            warnings=remarks,
        ),
        unit,
    )


@dataclass(frozen=True)
class Source:
    """A source of masses. `reader`: its name. `climb`: the masses along the items' paths.
    `numbering`: the names of the nodes. `signature`, `warnings`: of the resulting scores."""

    reader: str
    climb: Climb
    numbering: Numbering
    signature: str
    warnings: tuple[str, ...]


def _naming_of_climb(manifest: Manifest, source: Source, unit: str) -> NamedPictures:
    """Score the names that a source gives to a test's queries. `source`: the masses along a path
    for each query, with the names of the nodes. `unit`: the level whose classes intervals are taken
    over, or "query" for the items themselves."""
    units = units_of(queries_of("test", manifest), unit)
    # {name of the value, such as hF1: values (Q,)}
    values = scores_of_path(manifest.levels, source.climb.nodes, *truth_of(manifest))
    # a mean with its interval for each value; there is one test, whose queries are summed up in the
    # order of their ids, so that the order of a file's rows does not change the last bits
    means = summarise(np.stack(list(values.values())), [order_of_names(manifest)], units)
    nodes = source.climb.nodes
    # a path may end early, so the mass of its last node is the one at index ends − 1; an empty
    # path has the mass 0
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
