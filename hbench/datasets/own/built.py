"""Turns a built dataset into a table like a user's own, so that decisions about its labels, such as
those of an audit, can make a new dataset of it.
"""

import numpy as np
import pyarrow as pa

from hbench.core.errors import UsageError
from hbench.datasets.dataset import TEST, TRAIN, Dataset
from hbench.datasets.manifest import Manifest
from hbench.datasets.own.folder import SPLIT
from hbench.datasets.own.table import OwnTable
from hbench.sheets.columns import TableColumns
from hbench.tree.names import class_rows

KEPT = ("licence", "citation", "homepage")  # fields of the card that hold for the same images
QUERY, GALLERY = "query", "gallery"


def table_of(dataset: Dataset) -> OwnTable:
    """Make a table of the items of a dataset with one test, with their levels and splits.

    Raises UsageError if the dataset has something that such a table cannot hold.
    """
    _refuse_what_is_lost(dataset)
    (test,) = dataset.tests.values()
    # the items of the training set, if there is one, come before those of the test
    manifests = [manifest for manifest in (dataset.train, test) if manifest is not None]
    items = [item for manifest in manifests for item in manifest.items.tolist()]
    rows = [row for manifest in manifests for row in _rows(manifest)]
    # an item of the test is in "test", or in "query" or "gallery" if it is only that
    splits = [TRAIN] * (len(items) - len(test)) + _splits_of_test(test)

    columns = dict(zip(dataset.levels, map(list, zip(*rows, strict=True)), strict=True))
    table = pa.table({"item": items, **columns, SPLIT: splits})
    named = TableColumns(item="item", levels=tuple(dataset.levels), split=SPLIT)
    made_of = f"{dataset.name}@{dataset.version}"
    # the new dataset has the same images, so their licence and origin stay in its card
    said = {key: dataset.card[key] for key in KEPT if key in dataset.card}
    return OwnTable(source=made_of, table=table, columns=named, origin={"made of": made_of, **said})


def _rows(manifest: Manifest) -> list[tuple[str, ...]]:
    """Return the names of each item of a manifest, coarse to fine."""
    rows = class_rows(manifest.tree)
    return [rows[label] for label in manifest.labels[:, -1].tolist()]


def _splits_of_test(test: Manifest) -> list[str]:
    """Return the word for the split of each item of a test: "query" or "gallery" if the item is
    only that, "test" if it is a query and in the gallery."""
    only_query = test.query & ~test.gallery
    only_gallery = test.gallery & ~test.query
    words: list[str] = np.select([only_query, only_gallery], [QUERY, GALLERY], TEST).tolist()
    return words


def _refuse_what_is_lost(dataset: Dataset) -> None:
    """Raise UsageError if a dataset has something that a table of items and paths cannot hold."""
    manifests = dataset.manifests.values()
    # {what a table cannot hold: whether the dataset has it}
    reasons = {
        f"{len(dataset.tests)} tests": len(dataset.tests) != 1,
        "lists of judged pairs": bool(dataset.lists),
        "items that some queries leave out": any(each.ignore is not None for each in manifests),
        "items of several paths": any(each.more is not None for each in manifests),
        "another set of levels in its training": any(
            each.levels != dataset.levels for each in manifests
        ),
    }
    if found := [words for words, is_so in reasons.items() if is_so]:
        raise UsageError(
            f"{dataset.name} cannot be taken for a table of your own",
            expected="one test, and items of one path each",
            found=", ".join(found),
        )
