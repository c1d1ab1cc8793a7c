"""Sets the lowest threshold at which a target share of answers is right, also for newly drawn
classes.

Fixed-sequence testing: thresholds are tried from the largest down, in an order that depends on the
masses alone. At each threshold, an upper bound of the share of wrong answers, one-sided with 95 %
confidence over units (by default classes), is compared with 1 − target. The first bound that
exceeds 1 − target ends the sequence, and the threshold before is the result. Since each test is
made only if all tests before were passed, the chance that any test is passed wrongly is that of a
single test, 5 %.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from hbench.core.errors import UsageError
from hbench.metrics.significance import UnitSums, bound_without_errors, upper_bounds
from hbench.trust.climbing import BELOW, Climb, Positions, Values

STEPS = 200  # the most thresholds that are tried
# the sequence begins where the bound for answers without any error is at most this share of the
# errors that the target allows
ROOM = 0.75
AT_ONCE = 8  # thresholds whose bounds are computed together
MOST_UNITS = 10**7  # a target that needs more units is refused


class Promise(NamedTuple):
    """A threshold with a promise, and how well it is supported.

    `threshold`: inf if no threshold passed the test. `units`: how many units it was tested on.
    `needed`: how many units would be enough if all had the same weight and no error.
    """

    threshold: float
    units: int
    needed: int


def threshold_for(climb: Climb, right: Values, units: Positions, target: float) -> Promise:
    """The lowest threshold at which, with 95 % confidence, at least the share `target` of the
    answers is right. The answer for an item is the finest node of its path whose mass reaches the
    threshold.

    Args:
        climb: the paths of the N items on which the threshold is calibrated, with the masses.
        right: whether each node on an item's path is right (N, L), NaN if that is not known.
        units: the unit of each item (N,), such as its class. Items of one unit tend to be right or
            wrong together, so the bound counts units, not items.
        target: more than 0 and less than 1.
    """
    needed = units_needed(target)
    different, units = np.unique(units, return_inverse=True)
    units = units.ravel()  # (N,): numbered 0 … number − 1; some versions of numpy add a dimension
    number = len(different)
    answers = _answers_at_thresholds(climb, right, units)
    # The thresholds are numbered from the largest down. At the largest, too few units have answers
    # to pass, and the first failure ends the tests: so they begin where enough have (`first`),
    # which is chosen without looking at what is right. None: there are too few units in any case.
    first = _first_threshold(answers, target)
    if first is None:
        return Promise(threshold=math.inf, units=number, needed=needed)
    # fixed-sequence testing: from number `first` on to lower thresholds, until the first that fails
    held = math.inf  # the lowest threshold that has passed, ∞ for none
    # thresholds (n,), and at each of them the numbers of answers and of wrong ones by unit, (n, G)
    for tried, said, wrong in answers.by_unit(first):
        # at each threshold, an upper bound of the share of wrong answers
        passed = upper_bounds(UnitSums.of_counts(said, wrong)) <= 1 - target
        # how many thresholds pass before the first that fails
        through = len(passed) if passed.all() else int(passed.argmin())
        if through:
            held = float(tried[through - 1])
        if through < len(passed):
            break
    return Promise(threshold=held, units=number, needed=needed)


def units_needed(target: float) -> int:
    """The smallest number of units with which a target can be reached, if all units have the same
    weight and none has an error. Raises UsageError if MOST_UNITS units are not enough.

    It is the smallest number for which `bound_without_errors`, the upper 95 % bound of the share of
    wrong answers, is at most 1 − `target`.

    >>> units_needed(0.95), units_needed(0.9)
    (65, 32)
    """
    # The bound decreases with the number of units: a number that is enough is found by doubling,
    # and the smallest one by bisection. MOST_UNITS ends the doubling for a target near 1.
    low, high = 1, 2
    while bound_without_errors(high) > 1 - target and high < MOST_UNITS:
        low, high = high, 2 * high
    if bound_without_errors(high) > 1 - target:
        raise UsageError(
            f"no number of units that can be had promises {target:.10g} right",
            expected=f"at most {1 - bound_without_errors(MOST_UNITS):.8f}",
            found=f"{target:.10g}",
        )
    while high - low > 1:
        middle = (low + high) // 2
        if bound_without_errors(middle) > 1 - target:
            low = middle
        else:
            high = middle
    return high


def said_at(climb: Climb, right: Values, threshold: float | Values) -> Values:
    """Whether each item's answer at a threshold is right, (N,): 1 or 0, or NaN if the answer is the
    root, or if it is not known whether it is right. `threshold`: one for all items, or one for each
    item (N,)."""
    return answers_of(climb.levels_at(threshold), right)


def answers_of(levels: Positions, right: Values) -> Values:
    """Whether the answers at these `levels` (N,) are right, (N,): 1 or 0, or NaN for level 0, the
    root, and if it is not known. `right` (N, L): whether the node at each level, from 1, is right.
    """
    # a column of NaN in front, for level 0
    padded = np.concatenate([np.full((len(right), 1), np.nan), right], axis=1)
    return np.asarray(padded[np.arange(len(right)), levels])


class _Answers(NamedTuple):
    """How the answers of all units change as the threshold decreases, as E changes. A unit is a
    class, whose items err together, or a single item: promises count units.

    `tried` (T,): the thresholds, in decreasing order. For each change (E,): `at`, the number of its
    threshold in `tried`; `of`, its unit; `said`, how many more answers the unit has from there on;
    `wrong`, how many more of them are wrong. `units`: the number of units.
    """

    tried: Values
    at: Positions
    of: Positions
    said: Values
    wrong: Values
    units: int

    def by_unit(self, first: int = 0) -> Iterator[tuple[Values, Values, Values]]:
        """Yield the thresholds from number `first` on, some (n,) at a time. With them, yield how
        many answers each of the G units has at each threshold, and how many of these are wrong,
        (n, G) each.

        Both are sums over the changes up to a threshold. Change e occurs at the threshold number
        `at[e]`, in the unit `of[e]`. It adds `said[e]` to the number of answers, and `wrong[e]` to
        the number of wrong ones.
        """
        # (2, G): the numbers of answers, and of wrong ones, at the last threshold so far
        totals = np.zeros((2, self.units))
        for start in range(0, len(self.tried), AT_ONCE):
            here = (self.at >= start) & (self.at < start + AT_ONCE)
            some = self.tried[start : start + AT_ONCE]
            # the place of each change in a flattened table of thresholds × units
            cells = (self.at[here] - start) * self.units + self.of[here]
            size = len(some) * self.units
            more = [np.bincount(cells, each[here], size) for each in (self.said, self.wrong)]
            changes = np.stack(more).reshape(2, len(some), self.units)
            sums = np.asarray(np.cumsum(changes, axis=1) + totals[:, None], np.float64)
            totals = sums[:, -1]
            said, wrong = sums
            # thresholds before `first` are needed for the sums, but are not yielded
            skipped = max(first - start, 0)
            if skipped < len(some):
                yield some[skipped:], said[skipped:], wrong[skipped:]


def _answers_at_thresholds(climb: Climb, right: Values, units: Positions) -> _Answers:
    """How the answers of items change as the threshold decreases, at up to STEPS thresholds.

    `right` (N, L): whether each node on an item's path is right, NaN if that is not known; an item
    does not count while its answer is such a node. `units` (N,): the unit of each item.
    """
    # (N, L): the highest threshold at which the answer is a node or one below it; decreases down
    # the path
    reach = climb.reach
    is_node = climb.nodes != BELOW  # False after the end of a path
    falling = np.unique(reach[is_node])[::-1]  # the different thresholds, from the largest down
    # of all thresholds at which an answer changes, STEPS with equally many changes between them
    every = np.sort(reach[is_node])[::-1]
    step = max(1, -(-len(every) // STEPS))  # rounded up, so that there are no more than STEPS
    tried = np.unique(every[step - 1 :: step])[::-1]
    # The lowest threshold, at which each answer is at its finest level, is always tried. It is
    # missing only if the last step was not full, so there are still no more than STEPS.
    if len(falling) and (not len(tried) or tried[-1] > falling[-1]):
        tried = np.append(tried, falling[-1])

    # (N, L): the number of the first tried threshold at which the answer is a node or one below it;
    # negated, because searchsorted needs increasing numbers
    at = np.searchsorted(-tried, -reach, side="left")
    known = ~np.isnan(right)
    # (N, L) each: what changes when an item's answer moves to this node from the node above. An
    # answer counts if it is known whether its node is right. `said` is the change in the number of
    # answers that count: +1 if only this node is known to be right or wrong, −1 if only the node
    # above is, else 0. `wrong` is the change in the number of wrong answers.
    said = np.diff(np.where(known, 1.0, 0.0), prepend=0.0, axis=1)
    wrong = np.diff(np.where(known, 1 - right, 0.0), prepend=0.0, axis=1)
    owners = np.broadcast_to(units[:, None], reach.shape)
    some = is_node & ((said != 0) | (wrong != 0))
    number = int(units.max(initial=-1)) + 1
    return _Answers(
        tried=tried, at=at[some], of=owners[some], said=said[some], wrong=wrong[some], units=number
    )


def _first_threshold(answers: _Answers, target: float) -> int | None:
    """The number of the threshold at which the sequence of tests begins. It depends only on how
    many answers there are, not on how many are right.

    It is the first threshold at which so many units have answers that the test leaves room for some
    errors: if no answer were wrong, the bound of the share of errors would be at most
    ROOM · (1 − target). If there is no such threshold, it is the one at which most units have
    answers; None if even these would not pass the test without any error. `target`: the share of
    answers that is to be right.
    """
    most = 0.0
    found = None
    number = 0  # the threshold's position
    for _, said, _ in answers.by_unit():  # (n, G), for the next n thresholds
        for of_units in said:  # (G,): how many answers each unit gives at this threshold
            total = of_units.sum()
            # the effective number of units: that of units with equally many answers that would
            # give the same bound
            effective = total**2 / (of_units**2).sum() if total else 0.0
            bound = bound_without_errors(effective)
            if bound <= ROOM * (1 - target):
                return number
            if bound <= 1 - target and effective > most:
                most = effective
                found = number
            number += 1
    return found
