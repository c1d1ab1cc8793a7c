"""Takes the items of an embedding file that a dataset has labels of as neighbours."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow.compute as pc
from numpy.typing import NDArray

from hbench.core.errors import SubmissionError, examples
from hbench.core.tables import text_array
from hbench.datasets import Dataset
from hbench.datasets.manifest import Manifest
from hbench.evaluation.by_name.neighbours import Neighbours
from hbench.evaluation.by_name.numbering import Numbering
from hbench.submissions.embeddings import Embeddings
from hbench.tree import Labels
from hbench.tree.names import class_rows
from hbench.tree.partial import known_part
from hbench.trust.climbing import BELOW


def gallery_of(
    source: Embeddings, data: Dataset, numbering: Numbering, items: NDArray[np.object_]
) -> tuple[Neighbours, list[str]]:
    """Take those items of an embedding file that the dataset has labels of, as neighbours for items
    (N,) that are to be named; and remarks on the others.

    Raises SubmissionError where the dataset has labels of none.
    """
    order = np.argsort(source.ids.astype(str), kind="stable")
    ids = source.ids[order]
    paths = _paths_of(ids, data, numbering)
    labelled = paths[:, 0] >= 0
    if not labelled.any():
        raise SubmissionError(
            "the dataset has labels of no item of the gallery",
            expected="an embedding file of items of its train split or its test",
            found=examples(ids.tolist()),
        )
    remarks = []
    if not labelled.all():
        without = ids[~labelled].tolist()
        remarks.append(
            f"{len(without):,} items of the gallery have no label in the dataset, and are no "
            f"neighbours: {examples(without)}"
        )
    # where an item of the gallery is to be named itself: it is not its own neighbour
    own = pc.index_in(text_array(ids[labelled]), value_set=text_array(items))
    places = own.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
    vectors = np.asarray(source.vectors[order[labelled]], np.float32)
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return Neighbours(vectors / lengths, paths[labelled], places), remarks


def _paths_of(ids: NDArray[np.object_], data: Dataset, numbering: Numbering) -> Labels:
    """The paths (M, L) of items by the labels of any split; BELOW of items without a label."""
    paths = np.full((len(ids), len(data.levels)), BELOW, np.int32)
    for manifest in _manifests(data):
        place = pc.index_in(text_array(ids), value_set=text_array(manifest.items))
        rows = place.fill_null(-1).to_numpy(zero_copy_only=False)
        names = [known_part(row) for row in class_rows(manifest.tree)]
        nodes = numbering.paths(names)[manifest.labels[:, -1]]
        paths[rows >= 0] = nodes[rows[rows >= 0]]
    return paths


def _manifests(data: Dataset) -> Iterator[Manifest]:
    """Those that have labels: the train split, then the tests."""
    if data.train is not None:
        yield data.train
    yield from data.tests.values()
