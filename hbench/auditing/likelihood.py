"""Finds the log-odds by which labels that were swapped on purpose are told from labels as they are,
of which an unknown share is wrong in the same way (hbench/auditing/sureness.py).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
# of squares of coefficients, in standard deviations: a bend needs a reason
HELD = np.array([1e-4, 1e-4, 8.0])
SMALLEST = 1e-9  # of the height, that a curvature can be inverted
ROUNDS, HALVINGS, ENOUGH = 60, 12, 1e-5  # of the search for a line


class Chances(NamedTuple):
    """By a line, of each row (B,): the chance that a label is a swapped one, and the slope of its
    logarithm by the log-odds."""

    chance: Floats
    steps: Floats
    seen: Floats


class Sample(NamedTuple):
    """Labels as they are and swapped ones, from the middle of what is observed on: the `features`
    (B, p), from the second on in standard units after a column of ones, how many labels of either
    kind have them, and the `ratio` of the numbers of all."""

    features: Floats
    as_is: Floats
    swapped: Floats
    ratio: float

    def fit(self, line: Floats, share: float) -> tuple[Floats, float]:
        """The `line` (p,), coefficients of the features, of the highest likelihood, from a first
        one on, and its cost: Fisher's scoring, whose steps are halved until they help. `share`: π,
        of labels that are wrong."""
        cost = self.cost(line, share)
        for _ in range(ROUNDS):
            step = np.linalg.solve(self.curvature(line, share), self.slope(line, share))
            following = self.cost(line - step, share)
            for _ in range(HALVINGS):
                if following < cost:
                    break
                step = step / 2
                following = self.cost(line - step, share)
            if cost - following < ENOUGH:  # the cost is at its bottom, or no step helps any more
                break
            line = line - step
            cost = following
        return line, cost

    def cost(self, line: Floats, share: float) -> float:
        """The negative log-likelihood of which labels are swapped, by a line of log-odds and the
        share of wrong labels, and what is paid for its coefficients. `swapped`, `as_is` (B,): how
        many labels of either kind each row of features has."""
        chance = self._chances(line, share).chance
        likely = self.swapped * np.log(chance) + self.as_is * np.log1p(-chance)
        return float((_held(line) * line**2).sum() - likely.sum())

    def slope(self, line: Floats, share: float) -> Floats:
        """The gradient of the cost, (p,)."""
        _, steps, seen = self._chances(line, share)
        slopes = self.as_is * steps * self.ratio / seen - self.swapped * steps
        found = np.array([(each * slopes).sum() for each in self.features.T])
        slope: Floats = 2 * _held(line) * line + found
        return slope

    def curvature(self, line: Floats, share: float) -> Floats:
        """The expected second derivatives (p, p) of the cost at a line (p,), by which `fit` steps;
        `share`: π, of labels that are wrong."""
        chance, steps, _ = self._chances(line, share)
        # of a chance p that has the slope p·steps, p² steps² / (p (1 − p)) for each label
        curves = (self.swapped + self.as_is) * steps**2 * chance / (1 - chance)
        found = np.diag(2 * _held(line))  # of what large coefficients cost
        for row, one in enumerate(self.features.T):
            found[row] += [(one * other * curves).sum() for other in self.features.T]
        return found

    def _chances(self, line: Floats, share: float) -> Chances:
        """The chance that each row of features is a swapped label, and its slope, by a line of
        log-odds: that of labels as they are is a mixture of wrong ones, `share`, and right ones,
        whose density is that of swapped ones times exp(−log-odds); `ratio`: of swapped labels to
        all items."""
        # clipped, since exp of more overflows and changes nothing
        against = (1 - share) * np.exp(-np.clip(line_of(line, self.features.T), -50, 50))
        seen = share + against
        return Chances(self.ratio / (self.ratio + seen), against / (self.ratio + seen), seen)


def line_of(line: Floats, columns: Iterable[Floats]) -> Floats:
    """The sum of columns, each times its coefficient. A product of matrices may add in another
    order with other threads."""
    found: Floats = np.asarray(
        sum(weight * each for weight, each in zip(line, columns, strict=True)), np.float64
    )
    return found


def _held(line: Floats) -> Floats:
    """What is paid for the square of each coefficient, (p,)."""
    return np.concatenate([[SMALLEST], HELD[: len(line) - 1]])
