"""Writes the page of naming: the scores of the readers, the names given at every level, how far the
agreement of the readers can be trusted, and the surest mistakes."""

from __future__ import annotations

import base64
import io
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hbench.core.files import write_text
from hbench.evaluation.by_name.named import NamedPictures
from hbench.evaluation.by_name.naming import SUM, Nodes
from hbench.evaluation.by_name.trusted import Trusted
from hbench.look.pages.folder import SHARED, Pages, level_styles
from hbench.look.strips import thumbnail
from hbench.look.strips.retrievals import path_of
from hbench.look.trusting import answered_by_target, curve_of_page, nodes_of, stack_of
from hbench.records.document import Score
from hbench.sheets.paths import JOINED
from hbench.tree.partial import known_levels
from hbench.trust.climbing import BELOW

MATRIX = 24  # the largest number of classes in a readable confusion matrix
PAIRS = 12
SUREST = 20
HOPS = "hops"  # the value that is no fraction, and is counted in edges
SHADES = (0.005, 0.05, 0.2, 0.5)  # from each of these shares on, a cell gets a darker shade


class LevelConfusion(NamedTuple):
    """What the items of each class of a level are named.

    Attributes:
        right: the share of items that are named right.
        matrix: (items, share of the row, shade 0 … 4) by class; empty if there are too many
            classes.
        pairs: (class, name given, items, share of the class) of the most frequent mistakes.
    """

    level: str
    items: int
    right: float
    names: tuple[str, ...]
    matrix: list[list[tuple[int, float, int]]]
    pairs: list[tuple[str, str, int, float]]


class SureMistake(NamedTuple):
    """An item whose wrong name has a large share of the probability."""

    item: str
    picture: str | None
    path: tuple[str, ...]
    named: tuple[str, ...]
    share: float


def write_page(named: NamedPictures, path: Path, chosen: Trusted | None = None) -> None:
    """Write the page as one self-contained file, whole or not at all.

    `chosen` are the answers at the user's threshold: the page shows how good they are, and marks
    them on the line of risk (share of wrong answers) against coverage. None without a threshold.
    """
    tree = named.manifest.tree
    readers = list(named.scores)
    levels = range(tree.depth)
    style = resources.files(SHARED).joinpath("static/pages.css").read_text("utf-8")
    # a value's name, the metric whose unit it has, and its scores by reader; all readers have the
    # same values, so the first reader tells their names
    values = [
        (value, "hops@1" if value == HOPS else value, _of_readers(named, value))
        for value in named.scores[readers[0]]
    ]
    # the answers at each of a few targets, shares of right answers; empty without any known truth,
    # and then the line cannot be computed
    by_target = answered_by_target(named)
    # the line needs the answers at some threshold: the chosen one or, without it, that of the first
    # target
    measured = (chosen or by_target[0]) if by_target else None
    shared: dict[str, Any] = {
        "named": named,
        "readers": readers,
        "values": values,
        "confusions": [confusion_of(named, level) for level in levels],
        # the reader whose masses are shown: sum if there are several, else the only one
        "main": SUM if SUM in named.nodes else readers[0],
        "agreement": agreement_of(named),
        # `reliability` has the bins of each level; the page shows the levels of each bin
        "reliability": list(zip(*named.reliability().values(), strict=True)),
        "answered": [stack_of(each) for each in by_target],
        "curve": None if measured is None else curve_of_page(measured, chosen is not None),
        "nodes": [nodes_of(named, level, chosen) for level in levels] if by_target else [],
        "surest": surest_of(named, chosen),
        "chosen": chosen,
        "style": style + level_styles(tree.depth),
    }
    # {}: there is only this page, and `text` gets its variables
    write_text(path, Pages(SHARED, {}).text("named", **shared))


def _main(named: NamedPictures) -> Nodes:
    """The nodes of the reader whose masses are shown: `sum` or, without it, the only reader."""
    return named.nodes[SUM] if SUM in named.nodes else next(iter(named.nodes.values()))


def _of_readers(named: NamedPictures, value: str) -> list[Score]:
    """The score `value` of every reader."""
    return [scores[value] for scores in named.scores.values()]


def confusion_of(named: NamedPictures, level: int) -> LevelConfusion:
    """Count how one reader (`sum` or, without it, the only one) names the items whose truth is
    known down to a level. Levels count from 0."""
    manifest = named.manifest
    names = manifest.tree.names[level]
    # BELOW, the node below the end of a path, is −1, so that it finds the last name
    said_names = [*named.numbering.names[level], "nothing"]
    # the numbering starts with the tree's own nodes, so equal numbers mean equal nodes
    truth, said = _known_at(named, level)
    # pairs (2, p): each distinct combination (truth, name given), with its number of items
    pairs, counts = np.unique(np.stack([truth, said]), axis=1, return_counts=True)
    of_class = np.bincount(truth, minlength=len(names))

    wrong = pairs[0] != pairs[1]
    mistakes = np.flatnonzero(wrong)
    mistakes = mistakes[np.argsort(-counts[mistakes], kind="stable")[:PAIRS]]  # frequent first
    # the class, the name given, items, share of the class
    frequent = [
        (names[own], said_names[other], int(number), float(number / of_class[own]))
        for own, other, number in zip(
            *pairs[:, mistakes].tolist(), counts[mistakes].tolist(), strict=True
        )
    ]
    # by class: items, share of the class, and shade; "nothing" and names outside the tree have no
    # column
    matrix = _matrix(pairs, counts, of_class) if len(names) <= MATRIX else []
    right = float((truth == said).mean()) if len(truth) else 0.0
    return LevelConfusion(
        level=manifest.levels[level],
        items=len(truth),
        right=right,
        names=names,
        matrix=matrix,
        pairs=frequent,
    )


def _known_at(
    named: NamedPictures, level: int
) -> tuple[NDArray[np.integer[Any]], NDArray[np.integer[Any]]]:
    """Return the true node and the node named by the reader that `_main` chooses, (n,) each, of
    every item whose truth is known at a level. Levels count from 0."""
    manifest = named.manifest
    labels = manifest.labels[manifest.query]
    # the number of known levels of each item's class, 1 … L, exceeds the index of a known level
    is_known = known_levels(manifest.tree)[labels[:, -1]] > level
    return labels[is_known, level], _main(named)[is_known, level]


def _matrix(
    pairs: NDArray[np.integer[Any]], counts: NDArray[np.int64], of_class: NDArray[np.int64]
) -> list[list[tuple[int, float, int]]]:
    """Make the cells of a confusion matrix by class: (items, share of the row's items, shade).

    `pairs` (2, P) are the true class and the class named; `counts` (P,) the items of each pair;
    `of_class` (C,) the items of each true class. A shade is 0 (lightest) … 4: how many of the
    bounds in SHADES the share reaches.
    """
    number = len(of_class)
    whole = np.zeros((number, number), np.int64)
    # a name outside the tree, or none, has no column
    has_column = (pairs[1] >= 0) & (pairs[1] < number)
    whole[tuple(pairs[:, has_column])] = counts[has_column]
    shares = whole / np.maximum(of_class, 1)[:, None]
    shades = np.searchsorted(SHADES, shares, side="right")
    rows = zip(whole.tolist(), shares.tolist(), shades.tolist(), strict=True)
    return [list(zip(*row, strict=True)) for row in rows]


def agreement_of(named: NamedPictures) -> list[tuple[str, int, float | None]]:
    """Group the items by the level down to which the readers agree, coarse to fine; "" stands for
    no level.

    For each level, return the number of items and the share whose node is right at that level, None
    where the readers agree on none. The result is empty if there is only one reader.
    """
    if len(named.nodes) == 1:
        return []
    manifest = named.manifest
    labels = manifest.labels[manifest.query]
    # (Q, L): the nodes by which the reader `sum` names the items. Of the readers (each, sum, down)
    # it is the one whose names are reported; where all agree, the names are those of any of them.
    said = _main(named)
    # (Q,): the name of the level down to which the readers agree on an item
    agreed = np.array(named.table["agreed_to"].to_pylist(), dtype=object)
    rows: list[tuple[str, int, float | None]] = []
    for depth, level in enumerate(("", *manifest.levels)):
        here = agreed == level
        if here.any():
            # at depth 0 nothing is agreed, so nothing can be right
            right = float((labels[here, depth - 1] == said[here, depth - 1]).mean())
            rows.append((level, int(here.sum()), right if depth else None))
    return rows


def surest_of(named: NamedPictures, chosen: Trusted | None = None) -> list[SureMistake]:
    """Return items whose answer at the chosen threshold is wrong, one per pair of label and answer:
    the items with the largest masses. Without a threshold (None), the answer of an item is its
    complete path."""
    manifest = named.manifest
    asked = np.flatnonzero(manifest.query)
    truth = manifest.labels[asked, -1].tolist()
    if chosen is None:
        paths = named.table["path"].to_pylist()
        masses = named.table["mass"].to_numpy()
        # the number of nodes of each path, by the reader whose masses are shown
        ends = (_main(named) != BELOW).sum(axis=1)
        # `judged.right` is (Q, L), 1 for a right node, 0 for a wrong one, NaN if that is not known.
        # Take the last node of each path; an empty path takes any, since it is not counted
        right = named.judged.right[np.arange(len(ends)), np.maximum(ends, 1) - 1]
        wrong = np.flatnonzero((ends > 0) & (right == 0))
    else:
        # a path is a text, "" without an answer, which has level 0
        paths, masses = chosen.nodes, chosen.masses
        wrong = np.flatnonzero((chosen.levels > 0) & chosen.known & ~chosen.right)

    found: dict[tuple[int, str], int] = {}  # (label, answer): the row of its item
    # the largest masses first; of each pair of label and answer, the first item is kept
    for row in wrong[np.argsort(-masses[wrong], kind="stable")].tolist():
        found.setdefault((truth[row], paths[row]), row)
    return [
        SureMistake(
            item=str(manifest.items[asked[row]]),
            picture=_embedded(named, int(asked[row])),
            path=path_of(manifest, int(asked[row])),
            named=tuple(paths[row].split(JOINED)),
            share=float(masses[row]),
        )
        for row in list(found.values())[:SUREST]
    ]


def _embedded(named: NamedPictures, position: int) -> str | None:
    """A small picture of an item as a data URL; None where there is no picture."""
    image = thumbnail(named.manifest.picture, str(named.manifest.items[position]))
    if image is None:
        return None
    image.save(file := io.BytesIO(), format="PNG", optimize=True)
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()
