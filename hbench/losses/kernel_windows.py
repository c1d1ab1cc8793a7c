"""Sums over the window of each positive, item by item or on panels.

Items and positives come in order of rank. For positive k the items before first[k] have t = s_j − s_k > δ, those from last[k]
on count nothing, and the window between them is where the sigmoid is neither. With e_j = exp(s_j/τ) the sigmoid is
e_j/(e_j + e_k): no exponential of a pair is needed. On panels (kernel_grid.py) the sigmoid is summed over all items, and the
items before the window are taken off again by σ(x) = 1 − e^−x + e^−2x − …, of which every term is a running sum.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from hbench.losses.kernel_grid import ORDER, evaluate, exchange, moments, panels

Array = np.ndarray[Any, Any]
SPAN = 40.0  # τs from the centre of the exponentials: with window and δ beside it, e_j stays within float32
LOG2_E = 1.4426950408889634


@njit(nogil=True, cache=True)
def direct_values(own: Array, items: Any, bounds: Any, step: Array, values: Array) -> None:
    """values[k] += Σ_window w_j σ((s_j − s_k)/τ)."""
    score, weight, exponential = items
    first, last = bounds
    tau, centre = step[0], np.inf
    own_exponential = np.empty(len(own), np.float32)
    for k in range(len(own)):
        if centre - own[k] > SPAN * tau:
            centre = own[k] - SPAN * tau
            _exponentials(score, np.float32(centre), np.float32(LOG2_E / tau), exponential)
            _exponentials(own, np.float32(centre), np.float32(LOG2_E / tau), own_exponential)
        values[k] += _sigmoids(exponential, weight, np.uint32(first[k]), np.uint32(last[k]), own_exponential[k])


@njit(nogil=True, cache=True)
def direct_slopes(positives: Any, items: Any, bounds: Any, step: Array, slopes: Any) -> None:
    """to_own[k] += g_k/τ Σ_window w_j σ', to_item[j] += 1/τ Σ_k g_k σ'."""
    (own, wanted), (score, weight, exponential) = positives, items
    (first, last), (to_own, to_item) = bounds, slopes
    tau, centre = step[0], np.inf
    own_exponential = np.empty(len(own), np.float32)
    for k in range(len(own)):
        if centre - own[k] > SPAN * tau:
            centre = own[k] - SPAN * tau
            _exponentials(score, np.float32(centre), np.float32(LOG2_E / tau), exponential)
            _exponentials(own, np.float32(centre), np.float32(LOG2_E / tau), own_exponential)
        pair = own_exponential[k], np.float32(wanted[k] / tau)
        slope = _sigmoid_slopes((exponential, weight), np.uint32(first[k]), np.uint32(last[k]), pair, to_item)
        to_own[k] += pair[1] * slope


@njit(nogil=True, cache=True)
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


@njit(nogil=True, cache=True)
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


@njit(nogil=True, cache=True)
def span(own: Array, score: Array, tau: float) -> tuple[float, int]:
    """The lowest score, and how many panels reach from it to the highest."""
    lowest = np.float64(min(own[-1], score[-1]))
    return lowest, panels(np.float64(max(own[0], score[0])), lowest, tau)


@njit(nogil=True, cache=True)
def _both_exponentials(own: Array, score: Array, tau: float, exponential: Array) -> Array:
    """exp((s − centre)/τ) of the items, in place, and of the positives."""
    centre = (np.float64(max(own[0], score[0])) + np.float64(min(own[-1], score[-1]))) / 2
    result = np.empty(len(own), np.float32)
    _exponentials(score, np.float32(centre), np.float32(LOG2_E / tau), exponential)
    _exponentials(own, np.float32(centre), np.float32(LOG2_E / tau), result)
    return result


@njit(nogil=True, cache=True)
def _enter(tail: Array, coefficient: float, factor: float) -> None:
    """tail_m += c f^m."""
    power = coefficient * factor
    for m in range(len(tail)):
        tail[m] += power
        power *= factor


@njit(nogil=True, cache=True)
def _alternating(tail: Array, factor: float, slope: int) -> float:
    """Σ_m (−1)^{m+1} tail_m f^m, or with a factor m: Σ 1 − σ, or Σ σ', over the items that entered."""
    total, power = 0.0, factor
    for m in range(len(tail)):
        total += tail[m] * power * (m + 1 if slope else 1)
        power *= -factor
    return total


@njit(nogil=True, cache=True, error_model="numpy", fastmath={"contract", "nnan", "nsz"})
def _exponentials(score: Array, centre: np.float32, scale: np.float32, exponential: Array) -> None:
    """2^((s − centre)·scale) by a polynomial between whole powers, 10⁻⁷ exact, kept finite where it is not needed."""
    for item in range(len(score)):
        power = (score[item] - centre) * scale
        power = np.float32(-125) if power < np.float32(-125) else power
        power = np.float32(125) if power > np.float32(125) else power
        whole = np.int32(power + np.float32(128)) - np.int32(128)  # rounds down: the sum is positive
        part = power - np.float32(whole)
        value = np.float32(1.8775767e-3)
        value = value * part + np.float32(8.9893397e-3)
        value = value * part + np.float32(5.5826318e-2)
        value = value * part + np.float32(2.4015361e-1)
        value = value * part + np.float32(6.9315308e-1)
        value = value * part + np.float32(9.9999994e-1)
        exponential[item] = value * np.int32((whole + np.int32(127)) << np.int32(23)).view(np.float32)


@njit(nogil=True, cache=True, error_model="numpy", fastmath={"reassoc", "nsz", "contract"})
def _sigmoids(exponential: Array, weight: Array, first: np.uint32, last: np.uint32, own: np.float32) -> np.float32:
    total = np.float32(0)
    for item in range(first, last):  # unsigned, so that no index is checked for counting from the end
        total += weight[item] * (exponential[item] / (exponential[item] + own))
    return total


@njit(nogil=True, cache=True, error_model="numpy", fastmath={"reassoc", "nsz", "contract"})
def _sigmoid_slopes(items: Any, first: np.uint32, last: np.uint32, pair: Any, to_item: Array) -> np.float32:
    (exponential, weight), (own, share) = items, pair
    total = np.float32(0)
    for item in range(first, last):
        sigmoid = exponential[item] / (exponential[item] + own)
        slope = sigmoid - sigmoid * sigmoid
        total += weight[item] * slope
        to_item[item] += share * slope
    return total
