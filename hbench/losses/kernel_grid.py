"""Sums of sigmoids of all pairs in time proportional to the points: both sides of the pair on panels of Chebyshev polynomials.

    F(z) = Σ_i c_i φ((y_i − z)/τ)     φ = σ or σ'

On panels 2τ wide σ(2D + η − ζ), D panels apart, is a sum of K_D[r, s] T_r(ζ) T_s(η) with ORDER² terms, exact to 10⁻⁷, since
the nearest pole of σ is iπ away. So points become moments Σ c T_s(η) of their panel, panels exchange moments within REACH
panels, beyond which σ is 0 or 1 and σ' is 0, and every z evaluates the polynomial of its panel. (A one-dimensional fast
multipole method with the kernel interpolated, as in Fong & Darve 2009.)
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from hbench.compiled import machine_code

Array = np.ndarray[Any, Any]
ORDER = 8
REACH = 15  # panels: 30τ, where n·e^−30 is nothing in float32
PANEL = 2.0  # τs
MOST_PANELS = 80  # 160τ from lowest to highest score, so that exponentials from the middle stay within float32
PAIRS_PER_POINT, PAIRS_PER_PANEL = 30, 2000  # what a point and a panel cost, in pairs of the direct sum


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
