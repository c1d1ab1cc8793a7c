"""Fits the log-odds that distinguish labels swapped on purpose from the labels as they are. Of the
latter, an unknown share is wrong in the same way (hbench/auditing/sureness.py).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
# penalties of squared coefficients of standardised features; the bend (the third) is penalised
# strongly, so that it needs clear evidence
HELD = np.array([1e-4, 1e-4, 8.0])
SMALLEST = 1e-9  # penalty of the intercept, so that the matrix of second derivatives is invertible
# the search for a line: most steps, most halvings of a step, and smallest gain of a step
ROUNDS, HALVINGS, ENOUGH = 60, 12, 1e-5


class Chances(NamedTuple):
    """The chances under a line of log-odds, for each row of a sample."""

    chance: Floats  # the probability p that a label of this row is a swapped one, (B,)
    steps: Floats  # the derivative of log p by the log-odds, (B,)
    seen: Floats  # the density of labels as they are, divided by that of swapped ones, (B,)


class Sample(NamedTuple):
    """Labels as they are and swapped labels, counted by their features."""

    features: Floats  # a column of ones, then standardised features, (B, p)
    as_is: Floats  # the number of labels as they are with the features of each row, (B,)
    swapped: Floats  # likewise of swapped labels, (B,)
    ratio: float  # the number of all swapped labels to that of all items

    def fit(self, line: Floats, share: float) -> tuple[Floats, float]:
        """Find the line with the lowest cost by Fisher scoring, which is Newton's method with the
        expected second derivatives. A step is halved until it lowers the cost. Return the line and
        its cost.

        Args:
            line: the coefficients of the features from which to start, (p,).
            share: π, the share of labels that are wrong.
        """
        cost = self.cost(line, share)
        for _ in range(ROUNDS):
            step = np.linalg.solve(self.curvature(line, share), self.slope(line, share))
            following = self.cost(line - step, share)
            for _ in range(HALVINGS):
                if following < cost:
                    break
                step = step / 2
                following = self.cost(line - step, share)
            if cost - following < ENOUGH:  # at the minimum, or no step lowers the cost
                break
            line = line - step
            cost = following
        return line, cost

    def cost(self, line: Floats, share: float) -> float:
        """The cost of a line: the negative log-likelihood of which labels are swapped, plus the
        penalty of the coefficients. `line`: the coefficients of the features, (p,). `share`: π, the
        share of labels that are wrong."""
        chance = self._chances(line, share).chance
        likely = self.swapped * np.log(chance) + self.as_is * np.log1p(-chance)
        return float((_held(line) * line**2).sum() - likely.sum())

    def slope(self, line: Floats, share: float) -> Floats:
        """The gradient of the cost by the coefficients of the features, which are `line`, (p,).
        `share`: π, the share of labels that are wrong."""
        _, steps, seen = self._chances(line, share)
        slopes = self.as_is * steps * self.ratio / seen - self.swapped * steps
        found = np.array([(each * slopes).sum() for each in self.features.T])
        slope: Floats = 2 * _held(line) * line + found
        return slope

    def curvature(self, line: Floats, share: float) -> Floats:
        """The expected second derivatives of the cost by the coefficients, (p, p). `line`: the
        coefficients of the features, (p,). `share`: π, the share of labels that are wrong."""
        chance, steps, _ = self._chances(line, share)
        # `chance` is p, the chance that a label with a row's features is a swapped one. `steps` is
        # the derivative of log p by the log-odds, so the derivative of p is p·steps, and each label
        # adds (p·steps)² / (p (1 − p)). The first factor is the number of labels of the row.
        curves = (self.swapped + self.as_is) * steps**2 * chance / (1 - chance)
        # of the penalty in `cost`, Σ held · coefficient²
        found = np.diag(2 * _held(line))
        for row, one in enumerate(self.features.T):
            found[row] += [(one * other * curves).sum() for other in self.features.T]
        return found

    def _chances(self, line: Floats, share: float) -> Chances:
        """For the features of each row, the `chance` that such a label is a swapped one; the
        derivative of the chance's logarithm by the log-odds (`steps`); and the density of labels as
        they are, relative to that of swapped ones (`seen`).

        Labels as they are are a mixture. A `share` of them is wrong, and has the density q of
        swapped labels. The rest is right, and has the density q · exp(−log-odds), where `line`
        gives the log-odds. With `self.ratio` swapped labels for each label as it is, the chance of
        a swapped one is ratio / (ratio + density of labels as they are, divided by q).
        """
        # clipped, since exp would overflow, and larger values change nothing
        against = (1 - share) * np.exp(-np.clip(line_of(line, self.features.T), -50, 50))
        # the density of labels as they are, divided by that of swapped labels
        seen = share + against
        return Chances(
            chance=self.ratio / (self.ratio + seen), steps=against / (self.ratio + seen), seen=seen
        )


def line_of(line: Floats, columns: Iterable[Floats]) -> Floats:
    """The sum of `columns`, each times its coefficient in `line`."""
    # no matrix product, whose order of additions, and so rounding, may depend on threads
    found: Floats = np.asarray(
        sum(weight * each for weight, each in zip(line, columns, strict=True)), np.float64
    )
    return found


def _held(line: Floats) -> Floats:
    """The penalty of the square of each coefficient, (p,)."""
    return np.concatenate([[SMALLEST], HELD[: len(line) - 1]])
