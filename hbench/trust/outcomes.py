"""Measures answers: how many items have one, how many are right, risk against coverage, and
reliability.

Risk is the share of items whose answer is wrong; an answer at the root is never wrong. Coverage is
the mean of 1 − log2 leaves / log2 F over the answers. hAURC is the area under risk against coverage
over all thresholds, by trapezoids (Goren et al. 2024, Hierarchical Selective Classification).

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
# masses that differ by less are equal: sums in another order may be rounded differently
ROUNDED = 1e-12


class JudgedClimb(NamedTuple):
    """The climbs of N items, and for each node of their paths whether it is `right` (N, L), NaN if
    that is not known, and its `coverage` (N, L)."""

    climb: Climb
    right: Values
    coverage: Values

    def of(self, rows: Positions | NDArray[np.bool_]) -> JudgedClimb:
        """The judged climbs of some items; `rows`: their positions (n,), or a mask (N,)."""
        return JudgedClimb(
            climb=self.climb.of(rows), right=self.right[rows], coverage=self.coverage[rows]
        )


class AtLevel(NamedTuple):
    """How many `items` have their answer at a `level`, 1 … L, and the share of these answers that
    is `right`, among those of which it is known; NaN if it is known of none."""

    level: int
    items: int
    right: float


class Outcome(NamedTuple):
    """How answers at a threshold turn out.

    `said`: the share of items that have an answer below the root. `right_of_said`: the share of
    these answers that is right. `risk`, `coverage`: over all items. A share of nothing is NaN.
    `by_level`: the answers at each level.
    """

    said: float
    right_of_said: float
    risk: float
    coverage: float
    by_level: tuple[AtLevel, ...]


class RiskCoverage(NamedTuple):
    """Risk against coverage at T decreasing thresholds, of which the first is inf; (T,) each."""

    thresholds: Values
    coverage: Values
    risk: Values

    def thinned(self, most: int) -> RiskCoverage:
        """The same curve with at most `most` of its points, evenly chosen, including both ends."""
        # unique, because a curve with fewer points has some of them chosen more than once
        rows = np.unique(np.linspace(0, len(self.risk) - 1, most).astype(np.int64))
        return RiskCoverage(*(values[rows] for values in self))


def outcome_at(judged: JudgedClimb, threshold: float | Values) -> Outcome:
    """The outcome of answering each item with the deepest node whose mass reaches the threshold:
    one for all items, or one for each item (N,)."""
    return outcome_of(judged, judged.climb.levels_at(threshold))


def outcome_of(judged: JudgedClimb, levels: Positions) -> Outcome:
    """The outcome of answering N items at these `levels` (N,): 1 … L, or 0 for the root, which says
    nothing. Items of which it is not known whether their answer is right do not count in shares
    of right answers.

    `judged` has, for each node of the items' paths, whether it is right and its coverage (N, L):
    how much of the tree an answer at the node rules out, 0 at the root and 1 at a leaf.
    """
    _, right, coverage = judged
    answers = answers_of(levels, right)  # (N,): 1 or 0; NaN at the root, and if it is not known
    is_right = np.where(levels == 0, 1.0, answers)  # an answer at the root is not wrong
    # (N, L + 1): by level from 0, the root, whose coverage is 0
    covered = np.concatenate([np.zeros((len(levels), 1)), coverage], axis=1)
    by_level = tuple(
        AtLevel(
            level=level, items=int((levels == level).sum()), right=_mean(answers[levels == level])
        )
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
    """The mean of the values (n,) that are not NaN; NaN if all are."""
    defined = values[~np.isnan(values)]
    return float(defined.mean()) if len(defined) else float("nan")


def curve_of(judged: JudgedClimb) -> RiskCoverage:
    """Risk against coverage at each threshold at which an answer changes, from ∞ down. An answer is
    the finest node of an item's path whose mass reaches the threshold. Its coverage is how much of
    the tree it rules out, from 0 at the root to 1 at a leaf."""
    # (E,) each: thresholds, and what changes there in the sums of wrong, judged and covered
    reach, *changes = _changes_of_answers(judged)
    order = np.argsort(-reach, kind="stable")
    falling = reach[order]
    # Thresholds that are equal up to rounding (ROUNDED) are one. `last`: the place of the last of
    # each such group, at which the cumulative sums have all its changes. The slice is for the case
    # without any threshold, in which `append` gives one place too many.
    last = np.flatnonzero(np.append(np.diff(falling) < -ROUNDED, True)[: len(falling)])
    wrong, counted, covered = (np.cumsum(each[order])[last] for each in changes)
    items = len(judged.right)
    # `wrong` and `counted` are sums of −1, 0 and 1, so rounding restores whole numbers. At first,
    # at the root, all items are judged; `counted` is the change from there. The risk is 0 if no
    # item is judged.
    risk = np.round(wrong) / np.maximum(items + np.round(counted), 1)
    # at a threshold of ∞ every answer is the root, with coverage and risk 0
    return RiskCoverage(
        thresholds=np.concatenate([[np.inf], falling[last]]),
        coverage=np.concatenate([[0.0], covered / max(items, 1)]),
        risk=np.concatenate([[0.0], risk]),
    )


def _changes_of_answers(judged: JudgedClimb) -> tuple[Values, Values, Values, Values]:
    """How sums over all items change when an answer moves down to a node. Returns four arrays, with
    an entry for each of the E nodes of all paths: the threshold at which the answer moves to the
    node, and what is added then to the number of wrong answers, to the number of judged answers,
    and to the sum of coverages.

    As the threshold decreases, an item's answer moves from the root down its path, node by node. An
    answer at the root is judged, and right. An answer at a node of which it is not known whether it
    is right is not judged.
    """
    climb, right, coverage = judged
    some = climb.nodes != BELOW  # (N, L): the nodes of the paths; a path may end early
    # prepended is the answer at the root: not wrong, judged, and of coverage 0
    known = ~np.isnan(right)
    wrong = np.diff(np.where(known, 1 - right, 0.0), prepend=0.0, axis=1)[some]
    counted = np.diff(np.where(known, 1.0, 0.0), prepend=1.0, axis=1)[some]
    covered = np.diff(coverage, prepend=0.0, axis=1)[some]
    return climb.reach[some], wrong, counted, covered


def area_under(curve: RiskCoverage) -> float:
    """hAURC: the area under the curve of risk (how many answers are wrong) against coverage (how
    fine the answers are) over all thresholds, by trapezoids. Smaller is better."""
    widths = np.diff(curve.coverage)
    heights = (curve.risk[1:] + curve.risk[:-1]) / 2
    return float((widths * heights).sum())


class Reliability(NamedTuple):
    """The items whose node at one level has a mass from `low` to `high`: the number of `items`, the
    mean `mass` of their nodes, and the share of these nodes that is `right`. Mean and share are NaN
    if there are no items."""

    low: float
    high: float
    items: int
    mass: float
    right: float


def reliability_of(masses: Values, right: Values) -> tuple[Reliability, ...]:
    """How well masses predict the share of right answers: a `Reliability` for each of ten bins of
    mass, which have equal width. A mass of 1 is in the last bin. The mean and the share of an empty
    bin are NaN.

    Args:
        masses: (N,), from 0 to 1, of one node of each item.
        right: (N,), 1 if that node is right, 0 if it is wrong; NaN if that is not known, which
            counts in no bin.
    """
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
