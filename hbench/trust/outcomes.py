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
    """How many items have their answer at a level, 1 … L, and the share of these answers that is
    right, among the items whose truth is known; NaN where none is."""

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
        """The same curve with `most` of its P points at most, evenly chosen, both ends included."""
        # iterating over this tuple gives its three arrays (P,), which are cut alike
        rows = np.unique(np.linspace(0, len(self.risk) - 1, most).astype(np.int64))
        return RiskCoverage(*(values[rows] for values in self))


def outcome_at(judged: JudgedClimb, threshold: float | Values) -> Outcome:
    """What comes of answering with the deepest node whose mass reaches a threshold: one for all
    items, or one for each item (N,)."""
    return outcome_of(judged, judged.climb.levels_at(threshold))


def outcome_of(judged: JudgedClimb, levels: Positions) -> Outcome:
    """What comes of answering N items at the `levels` (N,), 1 … L, or 0, which says nothing.

    `judged`: of the nodes on every item's path, whether each is right (N, L), and how much it
    covers (N, L). Shares that are right are among the items whose truth is known."""
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
        said=_mean((levels > 0).astype(np.float64)),
        right_of_said=_mean(answers),
        risk=1 - _mean(is_right),
        coverage=_mean(covered[np.arange(len(levels)), levels]),
        by_level=by_level,
    )


def _mean(values: Values) -> float:
    """The mean of the values (n,) that are defined; NaN where none is."""
    defined = values[~np.isnan(values)]
    return float(defined.mean()) if len(defined) else float("nan")


def curve_of(judged: JudgedClimb) -> RiskCoverage:
    """Risk against coverage at every threshold at which an answer changes, from ∞ down. `judged`:
    the paths of N items with their masses, whether each node is right (N, L), NaN where nobody
    knows, and how much it covers (N, L)."""
    reach, *changes = _changes_of_answers(judged)
    # running sums of the changes, at the last of equal thresholds; the cut is for no threshold
    order = np.argsort(-reach, kind="stable")
    falling = reach[order]
    last = np.flatnonzero(np.append(np.diff(falling) < -ROUNDED, True)[: len(falling)])
    wrong, counted, covered = (np.cumsum(each[order])[last] for each in changes)
    items = len(judged.right)
    # the first two are sums of −1, 0 and 1: whole numbers, but for rounding. The risk where no
    # item is judged is 0
    risk = np.round(wrong) / np.maximum(items + np.round(counted), 1)
    # at a threshold of ∞ every answer is the root: nothing is covered, and nothing wrong
    return RiskCoverage(
        thresholds=np.concatenate([[np.inf], falling[last]]),
        coverage=np.concatenate([[0.0], covered / max(items, 1)]),
        risk=np.concatenate([[0.0], risk]),
    )


def _changes_of_answers(judged: JudgedClimb) -> tuple[Values, Values, Values, Values]:
    """How three sums over items change where an answer moves down to a node, for all E nodes of all
    paths: the threshold of each (E,), and what is added there to the wrong answers, to the judged
    answers, and to the coverage, (E,) each.

    As the threshold falls, an item's answer goes from the root down its path, node by node. At the
    root an item is judged, and right; at a node of which nobody knows whether it is right, it is
    not judged. `judged`: as of `curve_of`.
    """
    climb, right, coverage = judged
    some = climb.nodes != BELOW
    known = ~np.isnan(right)
    wrong = np.diff(np.where(known, 1 - right, 0.0), prepend=0.0, axis=1)[some]
    counted = np.diff(np.where(known, 1.0, 0.0), prepend=1.0, axis=1)[some]
    covered = np.diff(coverage, prepend=0.0, axis=1)[some]
    return climb.reach[some], wrong, counted, covered


def area_under(curve: RiskCoverage) -> float:
    """hAURC, the area under the curve of risk (wrong answers) against coverage (how fine answers
    are) over all thresholds, by trapezoids; smaller is better."""
    widths = np.diff(curve.coverage)
    heights = (curve.risk[1:] + curve.risk[:-1]) / 2
    return float((widths * heights).sum())


class Reliability(NamedTuple):
    """The items whose node at one level has a mass in a bin, from `low` to `high`: how many `items`
    they are, their mean `mass`, and the share whose node is `right`; NaN where there are none."""

    low: float
    high: float
    items: int
    mass: float
    right: float


def reliability_of(masses: Values, right: Values) -> tuple[Reliability, ...]:
    """How well masses say how often answers are right: a `Reliability` for each of ten bins of mass
    of equal width. `masses` (N,), from 0 to 1: of one node of each item; `right` (N,): 1 where that
    node is right, 0 where it is wrong, NaN, which counts in no bin, where nobody knows. A mass of 1
    is in the last bin."""
    known = ~np.isnan(right)
    bins = np.minimum((masses * BINS).astype(np.int64), BINS - 1)
    rows = []
    for number in range(BINS):
        here = known & (bins == number)
        rows.append(
            Reliability(
                low=number / BINS,
                high=(number + 1) / BINS,
                items=int(here.sum()),
                mass=_mean(masses[here]),
                right=_mean(right[here]),
            )
        )
    return tuple(rows)
