"""Chooses the items to be named, and the items on which a threshold is set.

Named are the queries of a test by default, or any other items: those of other splits, with their
labels, and new photographs without a label. A threshold is set on a share of the classes, on ids,
on a split, or on another file.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hbench.core.errors import SubmissionError, UsageError, examples
from hbench.core.tables import texts
from hbench.core.untrusted import open_parquet
from hbench.datasets import Dataset, load
from hbench.datasets.dataset import TEST
from hbench.datasets.manifest import Manifest
from hbench.evaluation.by_name.named import NamedPictures
from hbench.sheets.dialect import suffix_of
from hbench.sheets.predictions import Predictions
from hbench.sheets.rows import Row
from hbench.sheets.sheet import is_table, read_table
from hbench.submissions.embeddings import Embeddings, align
from hbench.tree import LabelTree
from hbench.tree.names import class_rows
from hbench.tree.partial import NO_CLASS
from hbench.tree.several import MorePaths


@dataclass(frozen=True)
class Asked:
    """The items to be named. `data`: a dataset with a test whose queries are these items. `whole`:
    the original dataset with all of its labels. `items`: the chosen ids; None: the queries of the
    original test."""

    data: Dataset
    whole: Dataset
    items: tuple[str, ...] | None = None

    def naming(self, named: NamedPictures) -> NamedPictures:
        """Complete a naming (the paths that a source gave to the items) if the user chose the
        items: the signature gets their number and digest, and the warnings get a remark on items
        that have no label in the `whole` dataset. The naming of a test's own queries is returned
        unchanged."""
        if self.items is None:  # the queries of the test
            return named
        digest = hashlib.sha256("\n".join(sorted(self.items)).encode()).hexdigest()
        return replace(
            named,
            signature=f"{named.signature}|items({len(self.items)}@{digest[:8]})",
            warnings=(*named.warnings, *_without_labels(self.whole, self.items)),
        )


def asked_of(dataset: str | Path | Dataset, items: Sequence[str] | None) -> Asked:
    """Return the items to be named. `dataset`: a name, path or Dataset. `items`: their ids; None:
    the queries of its test."""
    whole = dataset if isinstance(dataset, Dataset) else load(dataset)
    if items is None:
        return Asked(whole, whole)
    return Asked(data=_asking(whole, items), whole=whole, items=tuple(items))


def test_of(data: Dataset) -> Manifest:
    """Return the only test of a dataset. Raises UsageError if there are several tests, or if a
    test lists positives pair by pair (`data.lists`): names need one label tree."""
    if len(data.tests) > 1 or data.lists:
        raise UsageError(
            "pictures are named in one label tree",
            expected="a dataset with one test, which has labels",
            found=", ".join(data.tests),
        )
    (manifest,) = data.tests.values()
    return manifest


def _asking(data: Dataset, items: Sequence[str]) -> Dataset:
    """Replace the test of a dataset by one whose queries are these items (ids), with their labels
    in any split, or of no class if no split has a label."""
    test = test_of(data)
    labels = _labels_in_splits(data, items)  # {item: its paths}
    nothing = (NO_CLASS,) * len(test.levels)
    rows = [labels[item][0] if item in labels else nothing for item in items]
    # the further paths of items with several, each with the position of its item
    more = [
        (place, path)
        for place, item in enumerate(items)
        for path in (labels[item][1:] if item in labels else ())
    ]
    # keep all classes of the test in the tree: an item may be named any of them
    known = class_rows(test.tree)
    # `nodes`: the labels of all these paths in the new tree, in the same order: the first path of
    # each item, the further paths, and the classes of the test, which are needed in the tree only
    tree, nodes = LabelTree.from_names(
        [*rows, *(path for _, path in more), *known], levels=test.levels
    )
    # all items are queries; they are also the gallery, which may not be empty
    everyone = np.ones(len(items), bool)
    asked = Manifest(
        items=np.array(items, dtype=object),
        labels=nodes[: len(items)],
        tree=tree,
        query=everyone,
        gallery=everyone.copy(),
        picture=test.picture,  # opens an item's image by its id, whatever its split
        more=MorePaths(
            np.array([place for place, _ in more], np.int64),
            nodes[len(items) : len(items) + len(more)],
        )
        if more
        else None,
    )
    # `official_names` belongs to the test that was replaced
    return replace(data, tests={TEST: asked}, official_names={})


def splits_of(data: Dataset) -> dict[str, Manifest]:
    """Return {name: split} of the splits with labels in the levels of the test: the tests, then the
    train split."""
    train = data.train
    fits = train is not None and train.levels == data.levels
    return {**data.tests, **({"train": train} if train is not None and fits else {})}


def _labels_in_splits(data: Dataset, items: Sequence[str]) -> dict[str, list[Row]]:
    """Return {item: its paths of names}, of the items that have a label in a split of the dataset.
    If several splits have an item, the first one counts: tests come before the train split."""
    wanted = set(items)
    found: dict[str, list[Row]] = {}
    for manifest in splits_of(data).values():
        rows = class_rows(manifest.tree)
        # all paths of the split (E, L), and the position of each path's item (E,)
        nodes, owners = manifest.paths.all_labels()
        own: dict[str, list[Row]] = {}
        # `rows` has the path of each finest node; a distractor has the name NO_CLASS at every level
        for node, owner in zip(nodes[:, -1].tolist(), owners.tolist(), strict=True):
            item = manifest.items[owner]
            if item in wanted and rows[node][0] != NO_CLASS:
                own.setdefault(item, []).append(rows[node])
        found = {**own, **found}  # the labels of an earlier split have precedence
    return found


def labelled_among(data: Dataset, items: Iterable[str]) -> list[str]:
    """Return the items that have a label in a split of the dataset."""
    given = list(items)
    known = _labels_in_splits(data, given)
    return [item for item in given if item in known]


def to_be_answered(data: Dataset, items: Sequence[str]) -> list[str]:
    """Return the items to be named: those that are queries of the test, and those of no split."""
    test = test_of(data)
    queries = set(test.items[test.query].tolist())
    known = {item for manifest in splits_of(data).values() for item in manifest.items.tolist()}
    return [item for item in items if item in queries or item not in known]


def _without_labels(data: Dataset, items: Sequence[str]) -> tuple[str, ...]:
    """Make a remark on the named items without a label, if there are any."""
    known = set(labelled_among(data, items))
    rest = [item for item in items if item not in known]
    if not rest:
        return ()
    return (
        f"{len(rest):,} of {len(items):,} items have no label in {data.name}: they get answers, "
        f"and are not counted: {examples(rest)}",
    )


def rows_of_items(embedded: Embeddings, items: Sequence[str]) -> Embeddings:
    """Select the embeddings of these items (ids), in this order. Raises SubmissionError if one is
    missing."""
    rows = align(embedded, items)
    return replace(embedded, ids=embedded.ids[rows], vectors=embedded.vectors[rows])


def order_of_names(manifest: Manifest) -> NDArray[np.int64]:
    """Return the positions of the queries in the order of their ids. Products and means in this
    order have the same last bits, whatever the order of a file's rows."""
    return np.argsort(manifest.items[manifest.query].astype(str), kind="stable")


Named = Embeddings | Predictions  # a file by which items are named


class Others(NamedTuple):
    """Items with labels on which a threshold is set for other items.

    `given`: the file by which they are named. `items`: their ids. `source`: what messages call
    them. `remark`: how many there are.
    """

    given: Named
    items: list[str]
    source: str
    remark: str


# a share of the classes, ids of named items, other items, or None for halves of the classes
Calibration = float | list[str] | Others | None


def ids_of(given: Named) -> list[str]:
    """Return the ids of the items in a file, in its order, each once: a table of predictions may
    have several rows for an item."""
    if isinstance(given, Embeddings):
        return [str(item) for item in given.ids]
    return list(dict.fromkeys(row.item for row in given.rows))


def read_calibration(
    text: str | None, data: Dataset, sources: Sequence[Named], reader: Callable[[Path], Named]
) -> Calibration:
    """Interpret the option `--calibrate`, which chooses the items on which a threshold is set.

    Args:
        text: a file, the name of a split, or a share of the classes; None: halves of the classes.
        data: the dataset with the labels.
        sources: the contents of one or two files: that of the items that get names and, if given,
            that of the gallery. The items of a split are taken from the first that has any.
        reader: reads another file in the same way as the named file was read.

    Returns:
        None for halves; a share of the classes; a list of ids, to choose among the named items; or
        Others, the items of another file or of a split.

    Raises:
        UsageError: a text that is none of these.
        SubmissionError: a file or split without any labelled item.
    """
    if text is None:
        return None
    if Path(text).is_file():
        # a file of ids chooses some of the items that are named anyway; any other file has further
        # items, which get names, too
        ids = _ids_alone(Path(text))
        return _of_file(Path(text), data, reader(Path(text))) if ids is None else ids
    splits = splits_of(data)
    if text in splits:
        return _of_split(text, data, sources)
    share = _share(text)
    if share is None:
        raise UsageError(
            f"--calibrate {text} is no file here, no split, and no share of the classes",
            expected=f"a file; {', '.join(splits)}; or a share such as .5",
        )
    return share


def items_answered(calibration: Calibration, data: Dataset, ids: Sequence[str]) -> list[str] | None:
    """Return the ids of the items that get answers; None if only the queries of the test do.
    `ids`: of the items of the file. Items that are in no split of the dataset are called new.

    `calibration`: what the threshold is set on. If it is Others (items of another file or split),
    answers are given to the items of the file that are new or queries of the test. Otherwise it is
    set on some of the named items, and answers are given to all queries of the test and to the new
    items of the file.
    """
    answered = to_be_answered(data, ids)
    if isinstance(calibration, Others):
        return answered
    test = test_of(data)
    queries = test.items[test.query].tolist()
    known = set(queries)
    new = [item for item in answered if item not in known]
    # a file that has only new items most likely belongs to another dataset: None, so that the
    # queries are asked for, which it lacks
    return [*queries, *new] if 0 < len(new) < len(answered) else None


def refuse_labels(named: NamedPictures, source: str) -> None:
    """Raise SubmissionError if the predictions are the labels themselves. `source`: what the error
    message calls them."""
    # (n, L) each: for labelled items, whether each node on the predicted path is right, and its
    # mass (the predicted chance of the node)
    right, masses = named.judged.right[named.has_truth], named.climb.masses[named.has_truth]
    if len(right) and np.all((right == 1) & (masses == 1)):
        raise SubmissionError(
            f"every prediction of {source} is the label itself, with a chance of 1",
            expected="what the tool predicts for these items, which errs",
            found="the labels",
            fix="to set the threshold on items of the predictions, give a file of their ids alone",
        )


def _ids_alone(path: Path) -> list[str] | None:
    """Return the ids in a table with a single column; None for any other file, such as
    embeddings."""
    if not is_table(path):
        return None
    # look at the columns of a parquet file before reading it: it may have large vectors
    if suffix_of(path) == ".parquet":
        with open_parquet(path) as file:
            if len(file.schema_arrow.names) != 1:
                return None
    table = read_table(path)
    return texts(table, table.column_names[0]) if len(table.column_names) == 1 else None


def _of_file(path: Path, data: Dataset, given: Named) -> Others:
    """Take the labelled items of another file, on which the threshold is set: the least mass with
    which a node is given as an answer.

    `given`: the vectors or predictions in the file at `path`, by which the items get names. Raises
    SubmissionError if no item has a label.
    """
    ids = ids_of(given)
    labelled = labelled_among(data, ids)
    if not labelled:
        raise SubmissionError(
            f"{data.name} has no label of any item in {path.name}, and no threshold can be set",
            expected=f"items such as {examples(test_of(data).items.tolist())}",
            found=examples(ids),
            fix="give a table with their labels: -d TABLE (item, and a column per level)",
        )
    return _others(given, labelled, ids, path.name)


def _of_split(name: str, data: Dataset, sources: Sequence[Named]) -> Others:
    """Take the labelled items of a split, to set the threshold on them. (A node is given as an
    answer if its mass reaches the threshold.) The result has the ids of these items and the file by
    which they are named: the first of the `sources` that has any of them. Raises SubmissionError if
    no source has one."""
    split = set(splits_of(data)[name].items.tolist())
    for source in sources:
        items = [item for item in ids_of(source) if item in split]
        labelled = labelled_among(data, items)  # ids
        if labelled:  # the others of `items` are named in the remark that `_others` makes
            return _others(source, labelled, items, f"the split {name}")
    raise SubmissionError(
        f"the split {name} of {data.name} is in none of the files, and no threshold can be set",
        expected=f"items such as {examples(sorted(split))}",
        found=examples(ids_of(sources[0])),
        fix="give its file: --calibrate FILE",
    )


def _others(given: Named, labelled: list[str], ids: list[str], source: str) -> Others:
    """Collect the items to set the threshold on, with a remark on their number.

    `given`: the file by which they are named. `labelled`: the items with a label, out of all `ids`.
    `source`: what messages call them.
    """
    remark = f"the threshold is set on {len(labelled):,} items of {source}"
    if len(labelled) < len(ids):
        known = set(labelled)
        rest = [item for item in ids if item not in known]
        remark += f"; {len(rest):,} have no label, and are left out: {examples(rest)}"
    return Others(given, labelled, source, remark)


def _share(text: str) -> float | None:
    """Parse a share such as ".5", above 0 and below 1; None for any other text."""
    try:
        share = float(text)
    except ValueError:
        return None
    return share if 0 < share < 1 else None
