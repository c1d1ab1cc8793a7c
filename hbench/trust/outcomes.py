"""Measures answers: what is said, how much of it is right, risk against coverage, and reliability.

Risk is the share of all items whose answer is not right (the root always is), coverage the mean of
1 − log2 leaves / log2 F of the answers, and hAURC the area under risk against coverage over all
thresholds, by trapezoids (Goren et al. 2024, Hierarchical Selective Classification).

>>> climb = Climb(np.array([[0, 0], [1, 2]], np.int32), np.array([[1.0, 0.75], [0.5, 0.5]]))
>>> judged = JudgedClimb(
...     climb, np.array([[1.0, 1.0], [1.0, 0.0]]), np.array([[0.5, 1.0], [0.5, 1.0]])
... )
>>> found = outcome_at(judged, 0.6)
>>> found.said, found.right_of_said, found.risk, found.coverage
(0.5, 1.0, 0.0, 0.5)
>>> area_under(curve_of(judged))
0.125
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hbench.trust.climbing import BELOW, Climb, Positions, Values
from hbench.trust.thresholds import answers_of

BINS = 10
ROUNDED = 1e-12  # by which equal masses differ that were summed in another order


class JudgedClimb(NamedTuple):
    """The climbs of N items; whether each node of a path is `right` (N, L), NaN where nobody knows;
    and its `coverage` (N, L)."""

    climb: Climb
    right: Values
    coverage: Values

    def of(self, rows: Positions | NDArray[np.bool_]) -> JudgedClimb:
        """The judged climbs of some items; `rows`: their positions (n,), or a mask (N,)."""
        return JudgedClimb(self.climb.of(rows), self.right[rows], self.coverage[rows])


class AtLevel(NamedTuple):
    """How many items have their answer at a level, 1 … L, and which share of those is right; NaN of
    none whose truth is known."""

    level: int
    items: int
    right: float


class Outcome(NamedTuple):
    """What comes of a threshold: the share of items of which something is `said`, and of that the
    share that is right; risk and coverage over all items; NaN of none."""

    said: float
    right_of_said: float
    risk: float
    coverage: float
    by_level: tuple[AtLevel, ...]


class RiskCoverage(NamedTuple):
    """Risk against coverage at falling thresholds, inf first; (T,) each."""

    thresholds: Values
    coverage: Values
    risk: Values

    def thinned(self, most: int) -> RiskCoverage:
        """The same line with `most` points at most, evenly along it, both ends among them. Its
        members are arrays (P,), of thresholds and of what comes of them."""
        rows = np.unique(np.linspace(0, len(self.risk) - 1, most).astype(np.int64))
        return RiskCoverage(*(values[rows] for values in self))


def outcome_at(judged: JudgedClimb, threshold: float | Values) -> Outcome:
    """What comes of answering down to the deepest node whose mass reaches a threshold, or one for
    each item (N,)."""
    return outcome_of(judged, judged.climb.levels_at(threshold))


def outcome_of(judged: JudgedClimb, levels: Positions) -> Outcome:
    """What comes of answers at levels (N,), 1 … L, or 0, which says nothing: what share is said,
    and right. `judged`: of every item's path, whether each node is right (N, L), and how much it
    covers (N, L). Means of what is right are over the items whose truth is known."""
    _, right, coverage = judged
    answers = answers_of(levels, right)
    is_right = np.where(levels == 0, 1.0, answers)  # to say nothing is not wrong
    # (N, L+1), by level from 0, at which nothing is covered
    covered = np.concatenate([np.zeros((len(levels), 1)), coverage], axis=1)
    by_level = tuple(
        AtLevel(level, int((levels == level).sum()), _mean(answers[levels == level]))
        for level in range(1, right.shape[1] + 1)
    )
    return Outcome(
        _mean((levels > 0).astype(np.float64)),
        _mean(answers),
        1 - _mean(is_right),
        _mean(covered[np.arange(len(levels)), levels]),
        by_level,
    )


def _mean(values: Values) -> float:
    """The mean of the values (n,) that are defined; NaN where none is."""
    defined = values[~np.isnan(values)]
    return float(defined.mean()) if len(defined) else float("nan")


def curve_of(judged: JudgedClimb) -> RiskCoverage:
    """Risk against coverage at every threshold at which an answer changes, from ∞ down. `judged`:
    the paths of N items with their masses, whether each node is right (N, L), NaN where nobody
    knows, and how much it covers (N, L)."""
    climb, right, coverage = judged
    # (N, L): the threshold from which on downwards an item is answered by a node
    reach = climb.reach
    some = climb.nodes != BELOW
    # what an item counts changes where the threshold reaches a node: at the root it is judged, and
    # right; at a node of which nobody knows, it is not judged
    known = ~np.isnan(right)
    wrong = np.diff(np.where(known, 1 - right, 0.0), prepend=0.0, axis=1)[some]
    counted = np.diff(np.where(known, 1.0, 0.0), prepend=1.0, axis=1)[some]
    covered = np.diff(coverage, prepend=0.0, axis=1)[some]

    # running sums of these changes, at the last of equal thresholds
    order = np.argsort(-reach[some], kind="stable")
    falling = reach[some][order]
    at = np.flatnonzero(np.append(np.diff(falling) < -ROUNDED, True)[: len(falling)])
    sums = [np.cumsum(each[order])[at] for each in (wrong, counted, covered)]
    items = len(right)
    # sums of changes between 0 and 1 are whole numbers, but for rounding; a risk of no item is 0
    risk = np.round(sums[0]) / np.maximum(items + np.round(sums[1]), 1)
    return RiskCoverage(
        np.concatenate([[np.inf], falling[at]]),
        np.concatenate([[0.0], sums[2] / max(items, 1)]),
        np.concatenate([[0.0], risk]),
    )


def area_under(curve: RiskCoverage) -> float:
    """hAURC, the area under the curve of risk (wrong answers) against coverage (how fine answers
    are) over all thresholds, by trapezoids; smaller is better."""
    widths = np.diff(curve.coverage)
    return float((widths * (curve.risk[1:] + curve.risk[:-1]) / 2).sum())


class Reliability(NamedTuple):
    """Of the nodes of one level whose mass lies in a bin: `low` and `high`, how many items, their
    mean mass, and the share that is right; NaN of none."""

    low: float
    high: float
    items: int
    mass: float
    right: float


def reliability_of(masses: Values, right: Values) -> tuple[Reliability, ...]:
    """How well masses say how often answers are right: for ten bins of equal width, the mean of the
    `masses` (N,) in it beside that of `right` (N,): 1, 0, or NaN where nobody knows. The last bin
    has the mass 1 in it."""
    known = ~np.isnan(right)
    at = np.minimum((masses * BINS).astype(np.int64), BINS - 1)
    rows = []
    for number in range(BINS):
        here = known & (at == number)
        rows.append(
            Reliability(
                number / BINS,
                (number + 1) / BINS,
                int(here.sum()),
                _mean(masses[here]),
                _mean(right[here]),
            )
        )
    return tuple(rows)
