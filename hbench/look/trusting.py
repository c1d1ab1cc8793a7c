"""Prepares what the page of naming shows about trust: risk against coverage, the answers at each
target, and the nodes with most mistakes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hbench.evaluation.by_name.named import NamedPictures
from hbench.evaluation.by_name.trusted import POINTS, Trusted
from hbench.tree import Labels
from hbench.tree.partial import known_levels
from hbench.trust.outcomes import Outcome, RiskCoverage

TARGETS = (0.8, 0.9, 0.95, 0.99)
WIDTH, HEIGHT = 320, 180  # of the picture, in its own units
MOST_NODES = 40  # of a level, in a table
STEPS = (0.05, 0.1, 0.2, 0.4, 1.0)  # ends of the axis of risk


class Mark(NamedTuple):
    """A labelled point on the picture: its label, coverage and risk, and its position."""

    label: str
    coverage: float
    risk: float
    x: float
    y: float


class RiskCurve(NamedTuple):
    """Risk against coverage as a picture: its size, the `line` (points of a polyline), the end of
    the axis of risk, the labelled points, and the area under the line."""

    width: int
    height: int
    line: str
    end: float
    marks: list[Mark]
    haurc: float


class Answered(NamedTuple):
    """The answers at a target: what is promised, in words; the share of items answered at each
    level, starting with level 0 (no answer); and the share of right ones among the answers, None
    without answers."""

    target: float
    remark: str
    shares: list[float]
    right: float | None


class NodeRow(NamedTuple):
    """A node with three counts: the items that have it as their label, the items that are named it
    or something below it, and how many of these are right. The last two are also given for the
    answers at the chosen threshold, None without one."""

    name: str
    items: int
    named: int
    right: int
    answered: int | None
    answered_right: int | None


class NodeTable(NamedTuple):
    """The nodes of a level, those with most mistakes first. `number` counts the nodes that any item
    has or is named."""

    level: str
    number: int
    rows: list[NodeRow]


def nodes_of(named: NamedPictures, level: int, chosen: Trusted | None) -> NodeTable:
    """Count, for each node of a level (0 for the coarsest), the items that have the node as their
    label, the items that are named it or something below it, and how many of the latter are right.
    Items with an unknown truth are not counted.

    The numbers of named and of right items are counted a second time, only among the answers at the
    threshold of `chosen`; without `chosen` these second numbers are None.
    """
    manifest = named.manifest
    names = named.numbering.names[level]
    # (N,): whether each item's node at this level is right, 1 or 0; NaN if that is unknown, or if
    # the item's path ends above this level
    right = named.judged.right[:, level]
    # (N,): the node of each item's path at this level
    nodes = named.climb.nodes[:, level]
    labels = manifest.labels[manifest.query]
    # (N,): the items whose label is known down to this level. The number of known levels must be
    # above `level`, which counts from 0
    is_labelled = known_levels(manifest.tree)[labels[:, -1]] > level
    is_labelled &= named.has_truth

    def counts(of_nodes: Labels, some: NDArray[np.bool_]) -> list[int]:
        """The number of the selected items (`some`) at each node."""
        found: list[int] = np.bincount(of_nodes[some], minlength=len(names)).tolist()
        return found

    is_named, is_right = ~np.isnan(right), right == 1
    # the numbers of a NodeRow, in order, each for all nodes
    columns: list[Sequence[int | None]] = [
        counts(labels[:, level], is_labelled),
        counts(nodes, is_named),
        counts(nodes, is_right),
    ]
    if chosen is None:
        columns += [[None] * len(names)] * 2
    else:
        is_answered = chosen.levels > level  # the level of an answer, 1 … L; 0 without an answer
        columns += [counts(nodes, each & is_answered) for each in (is_named, is_right)]
    rows = [NodeRow(*row) for row in zip(names, *columns, strict=True)]
    # nodes that no item has or is named are left out; those with most mistakes (named − right) come
    # first, among equals those with most items
    rows = sorted(
        (row for row in rows if row.items or row.named),
        key=lambda row: (row.right - row.named, -row.items, row.name),
    )
    return NodeTable(level=manifest.levels[level], number=len(rows), rows=rows[:MOST_NODES])


def answered_by_target(named: NamedPictures) -> list[Trusted]:
    """The answers at each of the targets; empty where no truth is known."""
    if np.isnan(named.judged.right).all():
        return []
    return [named.trust(target) for target in TARGETS]


def stack_of(trusted: Trusted) -> Answered:
    """Return the answers at a target, which is the share of answers that should be right.

    The result has, of the items with a known truth, the share without an answer and the share that
    is answered at each level; and the share of answers that are right."""
    by_level = [each.items for each in trusted.outcome.by_level]
    said = sum(by_level)
    # the number of items with a known truth: `trusted.said` is the share of them that is answered;
    # 1 avoids a division by 0 if none is
    tested = round(said / trusted.said) if trusted.said else 1
    shares = [1 - trusted.said, *(items / tested for items in by_level)]
    right = None if math.isnan(trusted.right_of_said) else trusted.right_of_said
    return Answered(trusted.target, trusted.remark, shares, right)


def curve_of_page(trusted: Trusted, is_chosen: bool) -> RiskCurve:
    """Lay out the curve of risk (the share of wrong answers) against coverage for the page. Points
    mark the fixed thresholds and, if `is_chosen`, the threshold for the target that a person chose.
    """
    curve = trusted.curve
    # the axis of risk ends at the first of the STEPS that is not below the curve; a risk above 1
    # counts as 1, the last step, so that there always is one
    end = next(step for step in STEPS if step >= min(float(curve.risk.max()), 1.0))
    # the outcome with the fixed thresholds in common use, which depend on the level
    outcomes: dict[str, Outcome] = {".8 / .6 / .4": trusted.fixed}
    if is_chosen:
        outcomes = {f"for {trusted.target:g}": trusted.outcome, **outcomes}
    marks = [
        Mark(label, each.coverage, each.risk, *_place(each.coverage, each.risk, end))
        for label, each in outcomes.items()
    ]
    return RiskCurve(
        width=WIDTH,
        height=HEIGHT,
        line=_line(curve, end),
        end=end,
        marks=marks,
        haurc=trusted.haurc,  # the area under the curve
    )


def _line(curve: RiskCoverage, end: float) -> str:
    """Return the line as an SVG polyline, "x,y x,y". At most POINTS points are kept, more than the
    eye can tell apart. `end` is the risk at the top of the picture."""
    _, coverage, risk = curve.thinned(POINTS)
    points = zip(coverage.tolist(), risk.tolist(), strict=True)
    return " ".join("{:.1f},{:.1f}".format(*_place(*point, end)) for point in points)


def _place(coverage: float, risk: float, end: float) -> tuple[float, float]:
    """The position of a point: coverage runs to the right, risk upwards."""
    return round(WIDTH * coverage, 1), round(HEIGHT * (1 - min(risk / end, 1.0)), 1)
