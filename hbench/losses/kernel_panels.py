"""Sums over the windows of kernel_windows.py on panels (kernel_grid.py), whose cost does not grow with the windows.

The sigmoid is summed over all items, and the items before the window are taken off again by σ(x) = 1 − e^−x + e^−2x − …, of
which every term is a running sum.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hbench.compiled import machine_code
from hbench.losses.kernel_grid import (
    MOST_PANELS,
    ORDER,
    PAIRS_PER_PANEL,
    PAIRS_PER_POINT,
    evaluate,
    exchange,
    moments,
    panels,
)
from hbench.losses.kernel_windows import LOG2_E, exponentials

Array = np.ndarray[Any, Any]


@machine_code()
def panel_values(own: Array, items: Any, first: Array, step: Array, work: Any) -> None:
    """direct_values by panels; work: the panel kernels and the values."""
    (score, weight, exponential), (kernels, values) = items, work
    tau, terms = step[0], int(step[6])
    origin, number = span(own, score, tau)
    moment, expansion, smooth = np.empty((number, ORDER)), np.empty((number, ORDER)), np.empty(len(own))
    moments(score, weight, origin, tau, moment)
    exchange(moment, kernels[0], True, expansion)
    evaluate(expansion, own, origin, tau, smooth)
    own_exponential = _both_exponentials(own, score, tau, exponential)
    tail, above, item = np.zeros(terms), 0.0, 0
    for k in range(len(own)):
        while item < first[k]:
            _enter(tail, np.float64(weight[item]), 1 / np.float64(exponential[item]))
            above += weight[item]
            item += 1
        values[k] += smooth[k] - above + _alternating(tail, np.float64(own_exponential[k]), 0)


@machine_code()
def panel_slopes(positives: Any, items: Any, first: Array, step: Array, work: Any) -> None:
    """direct_slopes by panels; work: the panel kernels and to_own, to_item."""
    (own, wanted), (score, weight, exponential), (kernels, to_own, to_item) = positives, items, work
    tau, terms = step[0], int(step[6])
    origin, number = span(own, score, tau)
    moment, expansion, smooth = np.empty((number, ORDER)), np.empty((number, ORDER)), np.empty(len(own) + len(score))
    moments(score, weight, origin, tau, moment)
    exchange(moment, kernels[1], False, expansion)
    evaluate(expansion, own, origin, tau, smooth[: len(own)])
    moments(own, wanted, origin, tau, moment)
    exchange(moment, kernels[1], False, expansion)
    evaluate(expansion, score, origin, tau, smooth[len(own) :])
    own_exponential = _both_exponentials(own, score, tau, exponential)
    tail, item = np.zeros(terms), 0
    for k in range(len(own)):
        while item < first[k]:
            _enter(tail, np.float64(weight[item]), 1 / np.float64(exponential[item]))
            item += 1
        to_own[k] += wanted[k] / tau * (smooth[k] - _alternating(tail, np.float64(own_exponential[k]), 1))
    tail[:] = 0
    k = len(own) - 1
    for item in range(len(score) - 1, -1, -1):
        while k >= 0 and first[k] > item:
            _enter(tail, np.float64(wanted[k]), np.float64(own_exponential[k]))
            k -= 1
        to_item[item] += (smooth[len(own) + item] - _alternating(tail, 1 / np.float64(exponential[item]), 1)) / tau


@machine_code()
def worth_panels(own: Array, score: Array, edges: Any, step: Array) -> bool:
    """Whether panels cost less than the windows pair by pair."""
    if len(score) == 0 or step[6] < 0:
        return False
    pairs, (first, _, last) = 0, edges
    for k in range(len(own)):
        pairs += last[k] - first[k]
    if pairs < PAIRS_PER_POINT * (len(own) + len(score)):
        return False
    number = span(own, score, step[0])[1]
    return number <= MOST_PANELS and pairs > PAIRS_PER_POINT * (len(own) + len(score)) + PAIRS_PER_PANEL * number


@machine_code()
def span(own: Array, score: Array, tau: float) -> tuple[float, int]:
    """The lowest score, and how many panels reach from it to the highest."""
    lowest = np.float64(min(own[-1], score[-1]))
    return lowest, panels(np.float64(max(own[0], score[0])), lowest, tau)


@machine_code()
def _both_exponentials(own: Array, score: Array, tau: float, exponential: Array) -> Array:
    """exp((s − centre)/τ) of the items, in place, and of the positives."""
    centre = (np.float64(max(own[0], score[0])) + np.float64(min(own[-1], score[-1]))) / 2
    result = np.empty(len(own), np.float32)
    exponentials(score, np.float32(centre), np.float32(LOG2_E / tau), exponential)
    exponentials(own, np.float32(centre), np.float32(LOG2_E / tau), result)
    return result


@machine_code()
def _enter(tail: Array, coefficient: float, factor: float) -> None:
    """tail_m += c f^m."""
    power = coefficient * factor
    for m in range(len(tail)):
        tail[m] += power
        power *= factor


@machine_code()
def _alternating(tail: Array, factor: float, slope: int) -> float:
    """Σ_m (−1)^{m+1} tail_m f^m, or with a factor m: Σ 1 − σ, or Σ σ', over the items that entered."""
    total, power = 0.0, factor
    for m in range(len(tail)):
        total += tail[m] * power * (m + 1 if slope else 1)
        power *= -factor
    return total
