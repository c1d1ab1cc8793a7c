"""Takes a dataset that is built for a table of one's own, so that decisions about its labels, such
as those of an audit, make another dataset of it.
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

KEPT = ("licence", "citation", "homepage")  # of its card, since its images are the same
QUERY, GALLERY = "query", "gallery"


def table_of(dataset: Dataset) -> OwnTable:
    """The items of a dataset with one test, their levels and their splits, as a table.

    Raises UsageError for what such a table cannot hold.
    """
    _refuse_what_is_lost(dataset)
    (test,) = dataset.tests.values()
    manifests = [manifest for manifest in (dataset.train, test) if manifest is not None]
    items = [item for manifest in manifests for item in manifest.items.tolist()]
    rows = [row for manifest in manifests for row in _rows(manifest)]
    # of a test: which items are queries, gallery or both
    splits = [TRAIN] * (len(items) - len(test)) + _sides(test)

    columns = dict(zip(dataset.levels, map(list, zip(*rows, strict=True)), strict=True))
    table = pa.table({"item": items, **columns, SPLIT: splits})
    named = TableColumns("item", tuple(dataset.levels), SPLIT)
    made_of = f"{dataset.name}@{dataset.version}"
    # what the card says of origin and licence holds for the new dataset, too
    said = {key: dataset.card[key] for key in KEPT if key in dataset.card}
    return OwnTable(made_of, table, named, origin={"made of": made_of, **said})


def _rows(manifest: Manifest) -> list[tuple[str, ...]]:
    """The names of every item, coarse to fine."""
    rows = class_rows(manifest.tree)
    return [rows[label] for label in manifest.labels[:, -1].tolist()]


def _sides(test: Manifest) -> list[str]:
    """The split of each item of a test, in words: "query" or "gallery" for one that is this alone,
    "test" for one that is both."""
    only_asked = test.query & ~test.gallery
    only_ranked = test.gallery & ~test.query
    sides: list[str] = np.select([only_asked, only_ranked], [QUERY, GALLERY], TEST).tolist()
    return sides


def _refuse_what_is_lost(dataset: Dataset) -> None:
    """Raise UsageError for a dataset of which a table of items and paths would lose something."""
    manifests = dataset.manifests.values()
    # {what would be lost: whether the dataset has it}
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
