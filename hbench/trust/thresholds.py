"""Sets the least threshold above which a share of answers is right, for classes drawn anew.

Fixed-sequence testing: thresholds are tried from the largest down, in an order that looks at the
masses alone. At each, the one-sided 95 % bound over units (by default classes) of the share wrong
among what is said is compared with 1 − target; the first that exceeds it ends the sequence, and the
one before it holds. Since each test is made only after all before it were passed, the chance that
any false one passes is that of one test, 5 %.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from hbench.core.errors import UsageError
from hbench.metrics.significance import UnitSums, bound_without_errors, upper_bounds
from hbench.trust.climbing import BELOW, Climb, Positions, Values

STEPS = 200  # thresholds that are tried at most
ROOM = 0.75  # of the errors that a target allows, what a bound without any may take at the start
AT_ONCE = 8  # of them that are bounded together
MOST_UNITS = 10**7  # beyond which no number of units is said to do


class Promise(NamedTuple):
    """A threshold, and on how much its promise rests: `threshold`, inf where none passed the test;
    `units`, on how many it was tested; `needed`, how many would do that weigh the same and have no
    error."""

    threshold: float
    units: int
    needed: int


def threshold_for(climb: Climb, right: Values, units: Positions, target: float) -> Promise:
    """The least threshold at which, with 95 % confidence, at least `target` of what is said is
    right.

    Args:
        climb: of the N items calibrated on.
        right: whether each node on an item's path is right (N, L), NaN where nobody knows.
        units: the unit of every item (N,), such as its class: items of one unit tend to be right
            or wrong together, so units are what the bound counts.
        target: more than 0 and less than 1.
    """
    needed = units_needed(target)
    different, units = np.unique(units, return_inverse=True)
    units = units.ravel()  # (N,): numbered 0 … number − 1; some versions of numpy add a dimension
    number = len(different)
    answers = _answers_at_thresholds(climb, right, units)
    first = _first_threshold(answers, target)
    if first is None:
        return Promise(math.inf, number, needed)
    # fixed-sequence testing: from the largest threshold down, until the first that fails
    held = math.inf
    for tried, said, wrong in answers.by_unit(first):
        # the upper bound of the share wrong, at each threshold
        passed = upper_bounds(UnitSums.of_counts(said, wrong)) <= 1 - target
        through = len(passed) if passed.all() else int(passed.argmin())
        if through:
            held = float(tried[through - 1])
        if through < len(passed):
            break
    return Promise(held, number, needed)


def units_needed(target: float) -> int:
    """How many units a target needs at least, if all weigh the same and none has an error. Raises
    UsageError for a target that MOST_UNITS do not reach.

    >>> units_needed(0.95), units_needed(0.9)
    (65, 32)
    """
    # by doubling, then by halving: the bound falls with the number of units. A target near 1 would
    # double for ever without MOST_UNITS
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
    """Whether each item's answer at a threshold is right, (N,): 1, 0, or NaN where nothing is said,
    or nobody knows. `threshold`: one for all items, or one for each item (N,)."""
    return answers_of(climb.levels_at(threshold), right)


def answers_of(levels: Positions, right: Values) -> Values:
    """Whether the answers at levels (N,) are right (N,): 1, 0, or NaN where nothing is said, level
    0, or nobody knows. `right` (N, L): of the node at each level, from 1."""
    padded = np.concatenate([np.full((len(right), 1), np.nan), right], axis=1)
    return np.asarray(padded[np.arange(len(right)), levels])


class _Answers(NamedTuple):
    """How the answers of `units` many units change as the threshold falls, in E changes.

    `tried` (T,): the thresholds, falling. Of each change: `at` (E,), the number of its threshold
    in `tried`; `of` (E,), its unit; `said` (E,), how many more answers the unit gives there;
    `wrong` (E,), how many more of its answers are wrong."""

    tried: Values
    at: Positions
    of: Positions
    said: Values
    wrong: Values
    units: int

    def by_unit(self, first: int = 0) -> Iterator[tuple[Values, Values, Values]]:
        """Yield the thresholds from number `first` on, some (n,) at a time, and with them how many
        answers each of the G units gives there, and how many of those are wrong, (n, G) each.

        Every change has the number of its threshold, `at`, its unit, `of`, and what it adds to
        either number, `said` and `wrong`; `tried` (T,): all thresholds, falling.
        """
        # (2, G): how many answers are said, and wrong, at the last threshold gone through
        totals = np.zeros((2, self.units))
        for start in range(0, len(self.tried), AT_ONCE):
            here = (self.at >= start) & (self.at < start + AT_ONCE)
            some = self.tried[start : start + AT_ONCE]
            # the place of each change in a table of thresholds and units
            cells = (self.at[here] - start) * self.units + self.of[here]
            size = len(some) * self.units
            more = [np.bincount(cells, each[here], size) for each in (self.said, self.wrong)]
            changes = np.stack(more).reshape(2, len(some), self.units)
            sums = np.asarray(np.cumsum(changes, axis=1) + totals[:, None], np.float64)
            totals = sums[:, -1]
            said, wrong = sums
            # thresholds before `first` are gone through for their sums, and not given
            skipped = max(first - start, 0)
            if skipped < len(some):
                yield some[skipped:], said[skipped:], wrong[skipped:]


def _answers_at_thresholds(climb: Climb, right: Values, units: Positions) -> _Answers:
    """How the answers of items change as the threshold falls, at STEPS thresholds at most.

    `right` (N, L): whether each node on an item's path is right, NaN where nobody knows; `units`
    (N,): the unit of each item. An item is counted while its answer is a node of known truth.
    """
    # (N, L): the highest threshold at which a node, or one below it, is said; falls down the path
    reach = climb.reach
    is_node = climb.nodes != BELOW
    falling = np.unique(reach[is_node])[::-1]
    # of all thresholds at which an answer changes, STEPS with as many changes between them
    every = np.sort(reach[is_node])[::-1]
    step = max(1, -(-len(every) // STEPS))  # rounded up, so that there are no more than STEPS
    tried = np.unique(every[step - 1 :: step])[::-1]
    # the lowest threshold, at which every answer is said, is always tried. Where it was not taken,
    # the last full step ended above it, so that it is not one more than STEPS
    if len(falling) and (not len(tried) or tried[-1] > falling[-1]):
        tried = np.append(tried, falling[-1])

    # (N, L): the number of the first tried threshold at which a node is said; both are negated,
    # for searchsorted wants rising numbers
    at = np.searchsorted(-tried, -reach, side="left")
    known = ~np.isnan(right)
    # (N, L) each: what changes when an item's answer moves to this node from the node above it.
    # `said` is +1 where the truth becomes known, −1 where it is unknown again below a known node:
    # an item whose answer nobody can judge is not counted
    said = np.diff(np.where(known, 1.0, 0.0), prepend=0.0, axis=1)
    wrong = np.diff(np.where(known, 1 - right, 0.0), prepend=0.0, axis=1)
    owners = np.broadcast_to(units[:, None], reach.shape)
    some = is_node & ((said != 0) | (wrong != 0))
    number = int(units.max(initial=-1)) + 1
    return _Answers(tried, at[some], owners[some], said[some], wrong[some], number)


def _first_threshold(answers: _Answers, target: float) -> int | None:
    """The number of the threshold at which the sequence of tests begins, by what is said alone.

    It is the first at which enough units have answers to pass the test with ROOM for errors; if
    there is none, the one at which most have answers; None if even those units would not pass
    without an error. `target`: the share of the answers that is to be right."""
    most = 0.0
    found = None
    number = 0  # of the threshold
    for _, said, _ in answers.by_unit():
        for of_units in said:  # (G,): how many answers each unit gives at this threshold
            total = of_units.sum()
            # the number of units with equally many answers that would be as good as these
            effective = total**2 / (of_units**2).sum() if total else 0.0
            bound = bound_without_errors(effective)
            if bound <= ROOM * (1 - target):
                return number
            if bound <= 1 - target and effective > most:
                most = effective
                found = number
            number += 1
    return found
