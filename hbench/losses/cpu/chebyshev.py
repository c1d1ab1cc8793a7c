"""Sums over the windows of windows.py by Chebyshev panels, whose cost does not grow with the windows.

The sigmoid is summed over all items, and the items before the window are taken off again by σ(x) = 1 − e^−x + e^−2x − …, of
which every term is a running sum.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from hbench.core.compiled import machine_code
from hbench.losses.cpu.windows import LOG2_E, exponentials

Array = np.ndarray[Any, Any]
ORDER = 8
REACH = 15  # panels: 30τ, where n·e^−30 is nothing in float32
PANEL = 2.0  # τs
MOST_PANELS = 80  # 160τ from lowest to highest score, so that exponentials from the middle stay within float32
# What a point and a panel cost, in pairs of the direct sum (0.15 ns a pair with AVX2 or AVX-512, 0.33 ns without; a point 37 ns).
# Fitted to both ways at 268 sizes, where choosing by it costs at most 2 % more than always choosing the faster way, on all three.
PAIRS_PER_POINT, PAIRS_PER_PANEL = 140, 8000


@functools.cache
def panel_kernels() -> Array:
    """K_D of σ and of σ', by the discrete cosine transform of their values on Chebyshev nodes: (2, 2·REACH + 1, ORDER, ORDER)."""
    angle = (np.arange(ORDER) + 0.5) * np.pi / ORDER
    nodes = np.cos(angle)
    cosine = np.cos(np.arange(ORDER)[:, None] * angle) * np.where(np.arange(ORDER) == 0, 1, 2)[:, None] / ORDER
    apart = PANEL * np.arange(-REACH, REACH + 1)[:, None, None]
    value = 1 / (1 + np.exp(-(apart + (nodes[None, :] - nodes[:, None]) * PANEL / 2)))
    both = np.stack([value, value * (1 - value)])
    kernels: Array = np.einsum("ra,kdab,sb->kdrs", cosine, both, cosine)
    return kernels


@machine_code()
def panels(highest: float, lowest: float, tau: float) -> int:
    """How many panels cover the scores."""
    return int((highest - lowest) / (PANEL * tau)) + 1


@machine_code()
def moments(points: Array, coefficients: Array, origin: float, tau: float, result: Array) -> None:
    """result[panel, s] = Σ c T_s(η) over the points of each panel; points fall, panels count from `origin` up."""
    result[:] = 0
    polynomials = np.empty((3, len(points)))
    start = 0
    while start < len(points):
        panel, end = _run(points, start, origin, tau, len(result))
        run = polynomials[:, : end - start]
        _place(points[start:end], origin + (panel + 0.5) * PANEL * tau, 2 / (PANEL * tau), run)
        _project(coefficients[start:end], run, result[panel])
        start = end


@machine_code(fastmath={"contract", "reassoc", "nsz"})
def exchange(source: Array, kernels: Array, saturates: bool, result: Array) -> None:
    """result[panel, r] = Σ_D Σ_s K_D[r, s] source[panel + D, s]; panels further up count fully where the kernel saturates."""
    number = len(source)
    above = 0.0
    for panel in range(number - 1, -1, -1):
        if saturates and panel + REACH + 1 < number:
            above += source[panel + REACH + 1, 0]
        row = result[panel]
        row[:] = 0
        row[0] = above
        for other in range(max(0, panel - REACH), min(number, panel + REACH + 1)):
            kernel = kernels[other - panel + REACH]
            for to in range(ORDER):
                total = 0.0
                for order in range(ORDER):
                    total += kernel[to, order] * source[other, order]
                row[to] += total


@machine_code()
def evaluate(expansion: Array, points: Array, origin: float, tau: float, result: Array) -> None:
    """result[i] = Σ_r expansion[panel, r] T_r(ζ) of point i in its panel; points fall."""
    polynomials = np.empty((3, len(points)))
    start = 0
    while start < len(points):
        panel, end = _run(points, start, origin, tau, len(expansion))
        run = polynomials[:, : end - start]
        _place(points[start:end], origin + (panel + 0.5) * PANEL * tau, 2 / (PANEL * tau), run)
        _expand(expansion[panel], run, result[start:end])
        start = end


@machine_code()
def _run(points: Array, start: int, origin: float, tau: float, number: int) -> tuple[int, int]:
    """The panel of a point, and the first point after it in a lower panel."""
    panel = min(max(int((points[start] - origin) / (PANEL * tau)), 0), number - 1)
    edge = origin + panel * PANEL * tau if panel else -np.inf
    end = start + 1
    while end < len(points) and points[end] >= edge:
        end += 1
    return panel, end


@machine_code(fastmath={"contract"})
def _place(points: Array, centre: float, scale: float, run: Array) -> None:
    """run = 2ζ, T_0, T_1 = ζ of the points."""
    double, before, now = run[0], run[1], run[2]
    for point in range(len(points)):
        zeta = (np.float64(points[point]) - centre) * scale
        double[point], before[point], now[point] = 2 * zeta, 1.0, zeta


@machine_code(fastmath={"contract", "reassoc", "nsz"})
def _project(coefficients: Array, run: Array, row: Array) -> None:
    double, before, now = run[0], run[1], run[2]
    total = 0.0
    for point in range(len(coefficients)):
        total += coefficients[point]
    row[0] = total
    for order in range(1, ORDER):
        total = 0.0
        for point in range(len(coefficients)):
            total += coefficients[point] * now[point]
            following = double[point] * now[point] - before[point]
            before[point] = now[point]
            now[point] = following
        row[order] = total


@machine_code(fastmath={"contract"})
def _expand(row: Array, run: Array, result: Array) -> None:
    double, before, now = run[0], run[1], run[2]
    result[:] = row[0]
    for order in range(1, ORDER):
        coefficient = row[order]
        for point in range(len(result)):
            result[point] += coefficient * now[point]
            following = double[point] * now[point] - before[point]
            before[point] = now[point]
            now[point] = following


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
