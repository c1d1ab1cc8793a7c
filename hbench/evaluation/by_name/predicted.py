"""Finds the nodes of the label tree that predictions name, and sums the predicted probabilities
(called chances) to masses.

A predicted lineage may have more names than the tree has levels. From the top, each name is looked
up among the children of the last node that was found. Names after the last node that was found are
no nodes of the tree: the answer is wrong there.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from hbench.core.errors import SubmissionError, examples
from hbench.datasets.manifest import Manifest
from hbench.sheets.paths import as_written
from hbench.sheets.predictions import Prediction, Predictions, read
from hbench.sheets.rows import Row, prefixes
from hbench.tree import LabelTree
from hbench.tree.names import class_rows
from hbench.tree.partial import NO_CLASS, known_part
from hbench.trust.climbing import Climb, Shares, climb_of
from hbench.trust.numbering import Numbering

PERCENT = 100.0
ROUNDED = 1e-6  # the sum of chances may exceed 1 by this


class NamesBelow:
    """The nodes of a tree by the names that people write for them."""

    def __init__(self, tree: LabelTree) -> None:
        """Collect the paths to all nodes of the tree. `below`: {path to a node, () for the root:
        {name of a child: path to this child}}. `of_name`: {name: all paths that end in it}. The
        names are folded (`_folded`), so that case does not matter."""
        self.below: dict[Row, dict[str, Row]] = {}
        self.of_name: dict[str, set[Row]] = {}
        for row in map(known_part, class_rows(tree)):
            # the class of distractors is no answer
            if row[0] == NO_CLASS:
                continue
            # A name that occurs several times in the tree has its parent appended, as in "Cases
            # (Cameras)". Its node is found by this name, and by the name without the parent.
            for path, written in zip(prefixes(row), as_written(row), strict=True):
                for name in {path[-1], written}:
                    self.below.setdefault(path[:-1], {})[_folded(name)] = path
                    self.of_name.setdefault(_folded(name), set()).add(path)

    def place(self, names: Row) -> Row:
        """Follow predicted names, coarse to fine, down the tree. Return the path to the last node
        that was found, in the tree's spelling, and after it the predicted names that remain.
        Earlier names that are not in the tree are left out: a prediction may have more ranks than
        the tree has levels.
        """
        named = [name for name in names if name]
        if len(named) == 1:  # a single name may be of any level if exactly one node has it
            nodes = self.of_name.get(_folded(named[0]), set())
            return next(iter(nodes)) if len(nodes) == 1 else tuple(named)
        path: Row = ()  # the path to the last node that was found
        last = 0  # the number of predicted names up to that node, including its own name
        for number, name in enumerate(named):
            children = self.below.get(path, {})  # {folded name of a child: path to it}
            # a species may be written without its genus, which is then the previous name
            spelt = (name, f"{named[number - 1]} {name}" if number else name)
            found = next(
                (children[_folded(each)] for each in spelt if _folded(each) in children), None
            )
            if found is not None:
                path = found
                last = number + 1
        return (*path, *named[last:])


def _folded(name: str) -> str:
    """Normalise a name for comparison: ignore case and surrounding space, and take an underscore
    for a space."""
    return name.strip().casefold().replace("_", " ")


def predictions_in(source: Path, manifest: Manifest) -> Predictions:
    """Read the predictions in a file. Its format is recognised by its content; the names of the
    test's tree tell which columns or texts are names."""
    names = NamesBelow(manifest.tree)
    known = {path[-1] for paths in names.of_name.values() for path in paths}
    return read(source, manifest.levels, known)


def climb_of_predictions(
    read_as: Predictions, manifest: Manifest, numbering: Numbering
) -> tuple[Climb, tuple[str, ...]]:
    """Compute the masses along the predicted paths of a test's queries, in the test's order, and
    remarks on the predictions.

    `read_as`: the predictions in a file; each has an item, names from coarse to fine, and chances.
    `numbering`: turns paths of names into numbers of nodes, with new numbers for names that the
    tree does not have. Raises SubmissionError if no query is predicted.
    """
    names = NamesBelow(manifest.tree)  # finds nodes by names as people write them
    items = manifest.items[manifest.query].tolist()
    place = {item: number for number, item in enumerate(items)}  # {query: its position}
    rows = [row for row in read_as.rows if row.item in place]
    if not rows:
        raise SubmissionError(
            f"{read_as.understood.source} predicts none of the queries",
            expected=f"items such as {examples(items)}",
            found=examples([row.item for row in read_as.rows]),
            fix="new items get answers by --trust .95 --calibrate FILE, whose items have labels",
        )
    remarks = [str(read_as.understood), *_remarks(read_as.rows, rows, place)]
    # scale numbers such as percent to chances with a sum of at most 1; `more` says what was scaled
    rows, more = _as_chances(rows)
    climb = _climb(rows, place, names, numbering)
    return climb, (*remarks, *more, *_remarks_on_names(numbering.unknown))


def _remarks_on_names(unknown: Sequence[str]) -> list[str]:
    """Make a remark on the predicted names that the tree does not have (`unknown`), if there are
    any."""
    if not unknown:
        return []
    number = f"{len(unknown):,} names"
    return [f"{number} are no nodes of the tree, and are wrong: {examples(unknown)}"]


def _remarks(
    every: Sequence[Prediction], kept: Sequence[Prediction], place: dict[str, int]
) -> list[str]:
    """Make remarks on the queries that are not predicted, and on predicted items that are no
    queries.

    `every`: all rows of the file. `kept`: the rows of queries. `place`: {query: its position}.
    """
    remarks = []
    predicted = {row.item for row in kept}
    missing = [item for item in place if item not in predicted]
    if missing:
        remarks.append(f"{len(missing):,} items are not predicted: {examples(missing)}")
    others = list(dict.fromkeys(row.item for row in every if row.item not in place))
    if others:
        remarks.append(f"{len(others):,} predicted items are no queries: {examples(others)}")
    return remarks


def _as_chances(rows: list[Prediction]) -> tuple[list[Prediction], list[str]]:
    """Scale the chances of rows to 0 … 1, with a sum of at most 1 for each item, as masses need.
    Return the rows, and remarks on what was scaled. Percent is recognised by the largest number.

    Raises SubmissionError for negative numbers, such as logits.
    """
    given = [row.score for row in rows if row.score is not None]
    given += [value for row in rows for value in row.by_level]
    if any(not value >= 0 for value in given):  # not `value < 0`: NaN is refused, too
        raise SubmissionError(
            "some chances are negative",
            expected="0 … 1, or percent",
            found=f"{min(given)}",
            fix="take the softmax of logits",
        )
    said = []
    scale = 1.0
    # a rounded chance may exceed 1 a little. With larger numbers, up to 100, all are percent; with
    # numbers above 100 all are divided by the largest
    if given and max(given) > 1 + ROUNDED:
        scale = PERCENT if max(given) <= PERCENT + ROUNDED else max(given)
        said.append(f"chances are taken as parts of {scale:g}")
    counts: dict[str, int] = {}  # how many answers each item has
    for row in rows:
        counts[row.item] = counts.get(row.item, 0) + 1
    sums: dict[str, float] = {}  # the sum of the chances of each item
    scaled = []
    for row in rows:
        # answers without chances have equal parts of 1
        score = 1 / counts[row.item] if row.score is None else row.score / scale
        by_level = tuple(value / scale for value in row.by_level)
        scaled.append(row._replace(score=score, by_level=by_level))
        sums[row.item] = sums.get(row.item, 0.0) + score
    large = {item for item, total in sums.items() if total > 1 + ROUNDED}
    if large:
        said.append(f"chances of {len(large):,} items are more than 1 in sum, and are scaled to 1")
    # Chances by level are masses along a path, no parts of a sum, and stay as they are. Every row
    # has a score by now; `or 0.0` only tells the type checker so.
    return [
        row._replace(score=(row.score or 0.0) / max(sums[row.item], 1.0)) for row in scaled
    ], said


def _climb(
    rows: Sequence[Prediction], place: dict[str, int], names: NamesBelow, numbering: Numbering
) -> Climb:
    """Compute the masses along the path with the largest share of each item. An item without
    predictions has −1 for every node, and the masses 0.

    `rows`: the predictions, with scaled chances. `place`: {item: its position in the test}.
    `names`: finds nodes by name. `numbering`: turns paths of names into numbers of nodes. If a row
    has a chance for each of its names (`by_level`), these are the masses along its path.
    """
    depth = numbering.tree.depth
    # {names of a row: names of its path, coarse to fine; unknown ones as they were predicted}
    placed = {row.names: names.place(row.names)[:depth] for row in rows}
    paths = numbering.paths([placed[row.names] for row in rows])
    owners = np.array([place[row.item] for row in rows], np.int64)
    shares = np.array([row.score for row in rows], np.float64)
    some = paths[:, 0] >= 0  # a negative number is no node: the row predicts nothing
    climb = climb_of(
        Shares(owners=owners[some], paths=paths[some], shares=shares[some]), len(place)
    )
    for row, path in zip(rows, paths, strict=True):
        if row.by_level:
            # if a row has more chances than its path has nodes, the last ones belong to the end of
            # the path
            end = int((path >= 0).sum())
            values = row.by_level[max(len(row.by_level) - end, 0) :]
            # if it has fewer, the names began below the coarsest level, and the nodes above them
            # are at least as sure as the first name
            above = values[:1] * (end - len(values))  # the first chance, for each node above
            values = (*above, *values)
            climb.nodes[place[row.item]] = path
            climb.masses[place[row.item]] = 0
            climb.masses[place[row.item], : len(values)] = values
    return climb
