"""What the page of naming shows of trust: risk against coverage, what is answered by target, and
the nodes at which most goes wrong.
"""

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
MOST_NODES = 40  # of a level, that a table holds
STEPS = (0.05, 0.1, 0.2, 0.4, 1.0)  # ends of the axis of risk


class Mark(NamedTuple):
    """A point beside the line of risk against coverage: what it is of, its coverage and risk, both
    0 … 1, and where it is drawn, in the picture's units from the left and from the top."""

    label: str
    coverage: float
    risk: float
    x: float
    y: float


class RiskCurve(NamedTuple):
    """Risk against coverage as a picture.

    `width`, `height`: its size, in its own units; `line`: the points of an SVG polyline, "x,y x,y
    …"; `end`: the risk at the upper end of its axis; `marks`: the points beside the line; `haurc`:
    the area under the line."""

    width: int
    height: int
    line: str
    end: float
    marks: list[Mark]
    haurc: float


class Answered(NamedTuple):
    """What is answered at a target, which is the share of answers that are to be right.

    `remark`: what is promised, in words; `shares` (1 + L): the share of items that get no answer,
    then of those whose answer ends at each level, coarse to fine; `right`: the share of answers
    that are right, None without answers."""

    target: float
    remark: str
    shares: list[float]
    right: float | None


class NodeRow(NamedTuple):
    """A node: how many items have it for their label, how many are named it or something below,
    and how many of these rightly; and the same of what is answered at the chosen threshold, None
    without one."""

    name: str
    items: int
    named: int
    right: int
    answered: int | None
    answered_right: int | None


class NodeTable(NamedTuple):
    """The nodes of a level, those that are named wrong most often first; `number`, how many nodes
    any item has or is named."""

    level: str
    number: int
    rows: list[NodeRow]


def nodes_of(named: NamedPictures, level: int, chosen: Trusted | None) -> NodeTable:
    """Count, for every node of a level (0: the coarsest), the items that are named it, and those
    that are named it rightly, among the items whose truth is known.

    `chosen`: the answers at a threshold, which are counted too; None counts none.
    """
    manifest = named.manifest
    names = named.numbering.names[level]
    right = named.judged.right[:, level]
    nodes = named.climb.nodes[:, level]
    labels = manifest.labels[manifest.query]
    is_labelled = known_levels(manifest.tree)[labels[:, -1]] > level
    is_labelled &= named.has_truth

    def counts(of_nodes: Labels, some: NDArray[np.bool_]) -> list[int]:
        """Count by node the items, of those that are True in `some` (Q,); `of_nodes` (Q,) is the
        node of each item."""
        found: list[int] = np.bincount(of_nodes[some], minlength=len(names)).tolist()
        return found

    # `right` (Q,) is 1 or 0, and NaN where the truth is not known
    is_named, is_right = ~np.isnan(right), right == 1
    columns: list[Sequence[int | None]] = [
        counts(labels[:, level], is_labelled),
        counts(nodes, is_named),
        counts(nodes, is_right),
    ]
    if chosen is None:
        columns += [[None] * len(names)] * 2
    else:
        is_answered = chosen.levels > level
        columns += [counts(nodes, each & is_answered) for each in (is_named, is_right)]
    rows = [NodeRow(*row) for row in zip(names, *columns, strict=True)]
    # the nodes with the most wrong names first, then the largest, then by name
    rows = sorted(
        (row for row in rows if row.items or row.named),
        key=lambda row: (row.right - row.named, -row.items, row.name),
    )
    return NodeTable(manifest.levels[level], len(rows), rows[:MOST_NODES])


def answered_by_target(named: NamedPictures) -> list[Trusted]:
    """The answers at each of the targets; none where no truth is known."""
    if np.isnan(named.judged.right).all():
        return []
    return [named.trust(target) for target in TARGETS]


def stack_of(trusted: Trusted) -> Answered:
    """Make the bar of a target: the shares of items whose answer ends at each level, and of those
    without an answer, among the items whose truth is known."""
    by_level = [each.items for each in trusted.outcome.by_level]
    said = sum(by_level)
    # `said` is the number of answers and `trusted.said` their share, so this is the number of items
    tested = round(said / trusted.said) if trusted.said else 1
    shares = [1 - trusted.said, *(items / tested for items in by_level)]
    right = None if math.isnan(trusted.right_of_said) else trusted.right_of_said
    return Answered(trusted.target, trusted.remark, shares, right)


def curve_of_page(trusted: Trusted, is_chosen: bool) -> RiskCurve:
    """Make the picture of risk against coverage, with a mark at the fixed thresholds and, if
    `is_chosen`, one at the target of `trusted`, since the user asked for it."""
    curve = trusted.curve
    # the axis of risk ends at the first round number that holds the whole line
    end = next(step for step in STEPS if step >= min(float(curve.risk.max()), 1.0))
    outcomes: dict[str, Outcome] = {".8 / .6 / .4": trusted.fixed}
    if is_chosen:
        outcomes = {f"for {trusted.target:g}": trusted.outcome, **outcomes}
    marks = [
        Mark(label, each.coverage, each.risk, *_place(each.coverage, each.risk, end))
        for label, each in outcomes.items()
    ]
    return RiskCurve(WIDTH, HEIGHT, _line(curve, end), end, marks, trusted.haurc)


def _line(curve: RiskCoverage, end: float) -> str:
    """The line as points of an SVG polyline; `end`: the risk at the upper end of the axis. A few
    hundred of a curve's thousands of points look the same."""
    _, coverage, risk = curve.thinned(POINTS)
    points = zip(coverage.tolist(), risk.tolist(), strict=True)
    return " ".join("{:.1f},{:.1f}".format(*_place(*point, end)) for point in points)


def _place(coverage: float, risk: float, end: float) -> tuple[float, float]:
    """Where a point is drawn, in the picture's units from the left and from the top: coverage runs
    to the right, risk upwards to `end`, and a larger risk is drawn at the upper border."""
    return round(WIDTH * coverage, 1), round(HEIGHT * (1 - min(risk / end, 1.0)), 1)
