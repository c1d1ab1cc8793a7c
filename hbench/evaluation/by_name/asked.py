"""Chooses the items that are named: by default the queries of a test; or any, with the labels that
the dataset has of them in whichever split, and without one where it has none: new photographs, and
those on which a threshold is set, by a share of the classes, ids, a split, or another file.
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
    """The dataset whose test's queries are named; the `whole` one, whose labels neighbours have;
    and which items were chosen, None for the queries of its own test."""

    data: Dataset
    whole: Dataset
    items: tuple[str, ...] | None = None

    def naming(self, named: NamedPictures) -> NamedPictures:
        """The names that were given, with the chosen items counted in their signature, and a remark
        on those without a label; unchanged for the queries of the dataset's own test. `items`: the
        chosen ids, None for those queries; `whole`: the dataset with all splits."""
        if self.items is None:
            return named
        digest = hashlib.sha256("\n".join(sorted(self.items)).encode()).hexdigest()
        return replace(
            named,
            signature=f"{named.signature}|items({len(self.items)}@{digest[:8]})",
            warnings=(*named.warnings, *_without_labels(self.whole, self.items)),
        )


def asked_of(dataset: str | Path | Dataset, items: Sequence[str] | None) -> Asked:
    """What is asked of a dataset, its name, path or content: the queries of its test, or, by their
    ids, any `items` in their place."""
    whole = dataset if isinstance(dataset, Dataset) else load(dataset)
    if items is None:
        return Asked(whole, whole)
    return Asked(_asking(whole, items), whole, tuple(items))


def test_of(data: Dataset) -> Manifest:
    """The one test of a dataset. Raises UsageError where it has several, or lists positives pair by
    pair, without labels: names are those of one label tree."""
    if len(data.tests) > 1 or data.lists:
        raise UsageError(
            "pictures are named in one label tree",
            expected="a dataset with one test, which has labels",
            found=", ".join(data.tests),
        )
    (manifest,) = data.tests.values()
    return manifest


def _asking(data: Dataset, items: Sequence[str]) -> Dataset:
    """The dataset with a test that asks for these items: with their labels in any split, or of no
    class where no split has one."""
    test = test_of(data)
    labels = _labels_in_splits(data, items)  # by item, its paths
    nothing = (NO_CLASS,) * len(test.levels)
    rows = [labels[item][0] if item in labels else nothing for item in items]
    # the further paths of items that have several, each with the place of its item
    more = [
        (place, path)
        for place, item in enumerate(items)
        for path in (labels[item][1:] if item in labels else ())
    ]
    # all classes of the test stay what an item may be named, whether or not one of theirs is asked
    known = class_rows(test.tree)
    tree, nodes = LabelTree.from_names(
        [*rows, *(path for _, path in more), *known], levels=test.levels
    )
    # every item is a query, and in the gallery, too, which no test may be without
    everyone = np.ones(len(items), bool)
    asked = Manifest(
        items=np.array(items, dtype=object),
        labels=nodes[: len(items)],
        tree=tree,
        query=everyone,
        gallery=everyone.copy(),
        picture=test.picture,
        more=MorePaths(
            np.array([place for place, _ in more], np.int64),
            nodes[len(items) : len(items) + len(more)],
        )
        if more
        else None,
    )
    # the names of released evaluators are of the dataset's own test, which this one replaces
    return replace(data, tests={TEST: asked}, official_names={})


def splits_of(data: Dataset) -> dict[str, Manifest]:
    """The splits that have labels in the levels of the test, by name: the tests, then the train
    split."""
    train = data.train
    fits = train is not None and train.levels == data.levels
    return {**data.tests, **({"train": train} if train is not None and fits else {})}


def _labels_in_splits(data: Dataset, items: Sequence[str]) -> dict[str, list[Row]]:
    """The paths of names, by item, of those items that a split of the dataset has labels of; where
    several splits have an item, the first of them counts, the tests before the train split."""
    wanted = set(items)
    found: dict[str, list[Row]] = {}
    for manifest in splits_of(data).values():
        rows = class_rows(manifest.tree)
        nodes, owners = manifest.paths.all_labels()
        own: dict[str, list[Row]] = {}
        # every path of every item, by its finest node
        for node, owner in zip(nodes[:, -1].tolist(), owners.tolist(), strict=True):
            item = manifest.items[owner]
            if item in wanted and rows[node][0] != NO_CLASS:
                own.setdefault(item, []).append(rows[node])
        found = {**own, **found}  # what an earlier split says of an item stays
    return found


def labelled_among(data: Dataset, items: Iterable[str]) -> list[str]:
    """Those of some items that a split of the dataset has a label of."""
    given = list(items)
    known = _labels_in_splits(data, given)
    return [item for item in given if item in known]


def to_be_answered(data: Dataset, items: Sequence[str]) -> list[str]:
    """Those of some items that are to be named: the queries of the test, and the ones of no
    split."""
    test = test_of(data)
    queries = set(test.items[test.query].tolist())
    known = {item for manifest in splits_of(data).values() for item in manifest.items.tolist()}
    return [item for item in items if item in queries or item not in known]


def _without_labels(data: Dataset, items: Sequence[str]) -> tuple[str, ...]:
    """Say which of the items that are named have no label; nothing where all have one."""
    known = set(labelled_among(data, items))
    rest = [item for item in items if item not in known]
    if not rest:
        return ()
    return (
        f"{len(rest):,} of {len(items):,} items have no label in {data.name}: they get answers, "
        f"and are not counted: {examples(rest)}",
    )


def rows_of_items(embedded: Embeddings, items: Sequence[str]) -> Embeddings:
    """The embeddings of these items alone, by id and in this order. Raises SubmissionError where
    one is missing."""
    rows = align(embedded, items)
    return replace(embedded, ids=embedded.ids[rows], vectors=embedded.vectors[rows])


def order_of_names(manifest: Manifest) -> NDArray[np.int64]:
    """The positions of the queries in the order of their ids. Products and means that are taken in
    this order have the same last bits, however the rows of a file are sorted."""
    return np.argsort(manifest.items[manifest.query].astype(str), kind="stable")


Named = Embeddings | Predictions  # what items are named by


class Others(NamedTuple):
    """Items with labels on which a threshold is set for others: the `items`, what names them, what
    messages call that, and a remark on it."""

    given: Named
    items: list[str]
    source: str
    remark: str


Calibration = float | list[str] | Others | None  # a share, ids, other items, or halves


def ids_of(given: Named) -> list[str]:
    """The ids of the items in what was read from a file, in its order, each once: a table of
    predictions may have several rows of an item."""
    if isinstance(given, Embeddings):
        return [str(item) for item in given.ids]
    return list(dict.fromkeys(row.item for row in given.rows))


def read_calibration(
    text: str | None, data: Dataset, sources: Sequence[Named], reader: Callable[[Path], Named]
) -> Calibration:
    """What `--calibrate` says.

    Args:
        text: a file, the name of a split, or a share of the classes; None for halves of them.
        data: has the labels.
        sources: the file that is named, then, if there is one, the gallery: in the first of them
            that has any, the items of a split are looked for.
        reader: reads another file as the one that is named was read.

    Raises:
        UsageError: a text that is none of these.
        SubmissionError: a file or split without any item that is labelled.
    """
    if text is None:
        return None
    if Path(text).is_file():
        # ids alone choose some of the items that are named; a file of more is named itself
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
    """The items that are answered, where a file has the items `ids`: new ones, which are in no
    split of the dataset, and, where other items set the threshold, those queries of the test that
    the file has, else all queries of the test. None where the queries of the test alone are
    answered."""
    answered = to_be_answered(data, ids)
    if isinstance(calibration, Others):
        return answered
    test = test_of(data)
    queries = test.items[test.query].tolist()
    known = set(queries)
    new = [item for item in answered if item not in known]
    # a file of new items alone is most often one of another dataset
    return [*queries, *new] if 0 < len(new) < len(answered) else None


def refuse_labels(named: NamedPictures, source: str) -> None:
    """Raise SubmissionError where what was given as predictions is the labels themselves. `source`:
    how the error calls them."""
    # (n, L): of the nodes on the path of each item with a label, whether right, and the mass
    right, masses = named.judged.right[named.has_truth], named.climb.masses[named.has_truth]
    if len(right) and np.all((right == 1) & (masses == 1)):
        raise SubmissionError(
            f"every prediction of {source} is the label itself, with a chance of 1",
            expected="what the tool predicts for these items, which errs",
            found="the labels",
            fix="to set the threshold on items of the predictions, give a file of their ids alone",
        )


def _ids_alone(path: Path) -> list[str] | None:
    """The ids in a table that has one column alone; None for any other file, such as one of
    embeddings. Of a parquet file the columns are looked at first: it may hold large vectors."""
    if not is_table(path):
        return None
    if suffix_of(path) == ".parquet":
        with open_parquet(path) as file:
            if len(file.schema_arrow.names) != 1:
                return None
    table = read_table(path)
    return texts(table, table.column_names[0]) if len(table.column_names) == 1 else None


def _of_file(path: Path, data: Dataset, given: Named) -> Others:
    """The items of another file, to set the threshold on: those that the dataset has labels of.

    `given`: what was read from the file at `path`. Raises SubmissionError where it has none.
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
    """The items of a split, to set the threshold on: those with labels, by the first of some
    `sources` that has any of them. Raises SubmissionError where none has."""
    split = set(splits_of(data)[name].items.tolist())
    for source in sources:
        items = [item for item in ids_of(source) if item in split]
        labelled = labelled_among(data, items)
        if labelled:
            return _others(source, labelled, items, f"the split {name}")
    raise SubmissionError(
        f"the split {name} of {data.name} is in none of the files, and no threshold can be set",
        expected=f"items such as {examples(sorted(split))}",
        found=examples(ids_of(sources[0])),
        fix="give its file: --calibrate FILE",
    )


def _others(given: Named, labelled: list[str], ids: list[str], source: str) -> Others:
    """The `labelled` ones of the items `ids`, to set the threshold on, with a remark that counts
    them and the rest. `given`: the paths that they have; `source`: what messages call these."""
    remark = f"the threshold is set on {len(labelled):,} items of {source}"
    if len(labelled) < len(ids):
        known = set(labelled)
        rest = [item for item in ids if item not in known]
        remark += f"; {len(rest):,} have no label, and are left out: {examples(rest)}"
    return Others(given, labelled, source, remark)


def _share(text: str) -> float | None:
    """The share, more than 0 and less than 1, that a text such as ".5" says; None for any other
    text."""
    try:
        share = float(text)
    except ValueError:
        return None
    return share if 0 < share < 1 else None
