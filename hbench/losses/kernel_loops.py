"""The compiled loops of kernel.py: for every level of positives, the items that count for it, their windows and linear parts.

A step is σ(t/τ) up to δ, `beyond` + ρ(t − δ) after it, and jumps by `start` at 0. Scores fall along a sorted list, so for each
positive the items beyond δ come first, and every bound only moves forward from one positive to the next.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from hbench.losses.kernel_grid import MOST_PANELS, PAIRS_PER_PANEL, PAIRS_PER_POINT
from hbench.losses.kernel_windows import direct_slopes, direct_values, panel_slopes, panel_values, span

Array = np.ndarray[Any, Any]


@njit(nogil=True, cache=True)
def step_values(rows: Any, table: Array, step: Array, kernels: Array, sums: Array) -> None:
    """sums[place] = Σ_{j ≠ k} table[level of k, level of j] · step(s_j − s_k).

    rows: score, level, place (Q, N), sorted; table (Q, L+1, L+2); step: see kernel.constants.
    """
    score, level, place = rows
    floats, integers = np.empty((4, score.shape[1]), np.float32), np.empty((5, score.shape[1]), np.int32)
    values = np.empty(score.shape[1], np.float64)
    for row in range(len(score)):
        for at in range(1, table.shape[1]):
            found = _positives((score[row], level[row], place[row]), at, floats[0], integers)
            count = _items(score[row], level[row], table[row, at], floats, integers[2]) if found else 0
            if count == 0:
                continue
            own, items = floats[0, :found], (floats[1, :count], floats[2, :count], floats[3, :count])
            bounds = integers[3, :found], integers[4, :found]
            pairs = _bounds(own, items[0], step, bounds)
            _linear_values(own, items, bounds[0], step, values)
            if _worth_panels(pairs, own, items[0], step):
                panel_values(own, items, bounds[0], step, (kernels, values))
            else:
                direct_values(own, items, bounds, step, values)
            itself = table[row, at, at] * (0.5 + step[4])
            for k in range(found):
                sums[integers[0, k]] = values[k] - itself


@njit(nogil=True, cache=True)
def step_slopes(rows: Any, table: Array, step: Array, kernels: Array, gradients: Any) -> None:
    """result[column] = the gradient of Σ upstream[place] · sums[place] in the scores; gradients: column, upstream, result."""
    (score, level, place), (column, upstream, result) = rows, gradients
    floats, integers = np.empty((5, score.shape[1]), np.float32), np.empty((5, score.shape[1]), np.int32)
    to_own, to_item = np.empty(score.shape[1], np.float64), np.empty(score.shape[1], np.float32)
    for row in range(len(score)):
        for at in range(1, table.shape[1]):
            found = _positives((score[row], level[row], place[row]), at, floats[0], integers)
            count = _items(score[row], level[row], table[row, at], floats, integers[2]) if found else 0
            if count == 0:
                continue
            for k in range(found):
                floats[4, k] = upstream[integers[0, k]]
            positives, items = (
                (floats[0, :found], floats[4, :found]),
                (floats[1, :count], floats[2, :count], floats[3, :count]),
            )
            bounds = integers[3, :found], integers[4, :found]
            pairs = _bounds(positives[0], items[0], step, bounds)
            slopes = to_own[:found], to_item[:count]
            _linear_slopes(positives, items[1], bounds[0], step, slopes)
            if _worth_panels(pairs, positives[0], items[0], step):
                panel_slopes(positives, items, bounds[0], step, (kernels, slopes[0], slopes[1]))
            else:
                direct_slopes(positives, items, bounds, step, slopes)
            for k in range(found):
                result[row, column[row, integers[1, k]]] -= to_own[k]
            for item in range(count):
                result[row, column[row, integers[2, item]]] += items[1][item] * to_item[item]


@njit(nogil=True, cache=True)
def _positives(row: Any, at: int, own: Array, integers: Array) -> int:
    """How many positives of one level; their scores into `own`, places and positions into the first two of `integers`."""
    score, level, place = row
    found = 0
    for item in range(len(score)):  # without a branch, which would be mispredicted half the time
        own[found], integers[0, found], integers[1, found] = score[item], place[item], item
        found += (level[item] == at) & (place[item] >= 0)
        if found == len(score):
            break
    return found


@njit(nogil=True, cache=True)
def _items(score: Array, level: Array, table: Array, floats: Array, position: Array) -> int:
    """How many items of non-zero weight; their scores, weights into floats[1] and floats[2], and positions."""
    count = 0
    for item in range(len(score)):
        weight = table[level[item]]
        floats[1, count], floats[2, count], position[count] = score[item], weight, item
        count += weight != 0
        if count == len(score):
            break
    return count


@njit(nogil=True, cache=True)
def _bounds(own: Array, score: Array, step: Array, bounds: Any) -> int:
    """First item of every positive's window, and the one after its last; how many pairs are in all windows."""
    first, last = bounds
    delta, reach = np.float32(step[1]), np.float32(step[5])
    begin = end = pairs = 0
    for k in range(len(own)):
        while begin < len(score) and score[begin] - own[k] > delta:
            begin += 1
        end = max(end, begin)
        while end < len(score) and own[k] - score[end] < reach:
            end += 1
        first[k], last[k] = begin, end
        pairs += end - begin
    return pairs


@njit(nogil=True, cache=True)
def _linear_values(own: Array, items: Any, first: Array, step: Array, values: Array) -> None:
    """values[k] = Σ_{t > δ} w (beyond + ρ(t − δ)) + start · Σ_{0 ≤ t ≤ δ} w."""
    score, weight, _ = items
    _, delta, rho, beyond, start, _, _ = step
    item = zero = 0
    weights = moments = above = 0.0
    for k in range(len(own)):
        while item < first[k]:
            weights += weight[item]
            moments += np.float64(weight[item]) * score[item]
            item += 1
        while zero < len(score) and score[zero] >= own[k]:
            above += weight[zero]
            zero += 1
        values[k] = rho * (moments - weights * (own[k] + delta)) + beyond * weights + start * (above - weights)


@njit(nogil=True, cache=True)
def _linear_slopes(positives: Any, weight: Array, first: Array, step: Array, slopes: Any) -> None:
    """to_own[k] = ρ g_k Σ_{t > δ} w, to_item[j] = ρ Σ_{k: t > δ} g_k."""
    (own, wanted), (to_own, to_item) = positives, slopes
    rho, weights, item = step[2], 0.0, 0
    for k in range(len(own)):
        while item < first[k]:
            weights += weight[item]
            item += 1
        to_own[k] = rho * weights * wanted[k]
    k, total = len(own) - 1, 0.0
    for item in range(len(weight) - 1, -1, -1):
        while k >= 0 and first[k] > item:
            total += wanted[k]
            k -= 1
        to_item[item] = rho * total


@njit(nogil=True, cache=True)
def _worth_panels(pairs: int, own: Array, score: Array, step: Array) -> bool:
    number = span(own, score, step[0])[1]
    if step[6] < 0 or number > MOST_PANELS:
        return False
    return pairs > PAIRS_PER_POINT * (len(own) + len(score)) + PAIRS_PER_PANEL * number
