"""What the page of naming shows of trust: risk against coverage, and what is answered by target."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from hbench.evaluation.by_name.named import NamedPictures
from hbench.evaluation.by_name.trusted import POINTS, Trusted
from hbench.trust.outcomes import Outcome, RiskCoverage

TARGETS = (0.8, 0.9, 0.95, 0.99)
WIDTH, HEIGHT = 320, 180  # of the picture, in its own units
STEPS = (0.05, 0.1, 0.2, 0.4, 1.0)  # ends of the axis of risk


class Mark(NamedTuple):
    """A point beside the line: what it is of, its coverage and risk, and where it is drawn."""

    label: str
    coverage: float
    risk: float
    x: float
    y: float


class RiskCurve(NamedTuple):
    """Risk against coverage as a picture: its size, the `line` (points of a polyline), the end of
    the axis of risk, the points beside the line, and the area under it."""

    width: int
    height: int
    line: str
    end: float
    marks: list[Mark]
    haurc: float


class Answered(NamedTuple):
    """What is answered at a target: what is promised, in words; the share of items answered at each
    level, 0 (nothing is said) first; and what is right of what is said, None of nothing."""

    target: float
    remark: str
    shares: list[float]
    right: float | None


def answered_by_target(named: NamedPictures) -> list[Trusted]:
    """The answers at each of the targets; none where no truth is known."""
    if np.isnan(named.judged.right).all():
        return []
    return [named.trust(target) for target in TARGETS]


def stack_of(trusted: Trusted) -> Answered:
    """How many of the items with a truth are answered at each level."""
    by_level = [each.items for each in trusted.outcome.by_level]
    said = sum(by_level)
    tested = round(said / trusted.said) if trusted.said else 1
    shares = [1 - trusted.said, *(items / tested for items in by_level)]
    right = None if math.isnan(trusted.right_of_said) else trusted.right_of_said
    return Answered(trusted.target, trusted.remark, shares, right)


def curve_of_page(trusted: Trusted, is_chosen: bool) -> RiskCurve:
    """Risk against coverage, with the point of a target, where it was chosen, and of the thresholds
    in use."""
    curve = trusted.curve
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
    """The points of the line, so many that an eye sees no fewer."""
    _, coverage, risk = curve.thinned(POINTS)
    points = zip(coverage.tolist(), risk.tolist(), strict=True)
    return " ".join("{:.1f},{:.1f}".format(*_place(*point, end)) for point in points)


def _place(coverage: float, risk: float, end: float) -> tuple[float, float]:
    """Where a point is drawn: coverage to the right, risk upwards."""
    return round(WIDTH * coverage, 1), round(HEIGHT * (1 - min(risk / end, 1.0)), 1)
