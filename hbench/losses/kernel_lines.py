"""The parts of a level's sums that need no pairs: the steps beyond δ, which are lines, and what every item then receives."""

from __future__ import annotations

from typing import Any

import numpy as np

from hbench.compiled import machine_code

Array = np.ndarray[Any, Any]


@machine_code()
def line_values(own: Array, sums: Any, edges: Any, step: Array, values: Array) -> None:
    """values[k] += Σ_{t > δ} w (beyond + ρ(t − δ)) + start · Σ_{0 ≤ t ≤ δ} w; edges: first item with t ≤ δ and with t < 0."""
    (weight_sums, score_sums), (first, zero) = sums, edges
    _, delta, rho, beyond, start, _, _ = step
    for k in range(len(own)):
        begin = np.uint64(first[k])
        weights, above = weight_sums[begin], weight_sums[np.uint64(zero[k])]
        values[k] += (
            rho * (score_sums[begin] - weights * (own[k] + delta)) + beyond * weights + start * (above - weights)
        )


@machine_code()
def line_slopes(wanted: Array, weight_sums: Array, first: Array, rho: float, slopes: Any) -> None:
    """to_own[k] += ρ g_k Σ_{t > δ} w, to_item[j] += ρ Σ_{k: t > δ} g_k."""
    (to_own, to_item), total = slopes, 0.0
    for k in range(len(wanted) - 1, -1, -1):
        begin, end = np.uint64(first[k - 1]) if k else np.uint64(0), np.uint64(first[k])
        to_own[k] += rho * weight_sums[end] * wanted[k]
        total += wanted[k]
        share = np.float32(rho * total)
        for item in range(begin, end):
            to_item[item] += share


@machine_code()
def spread(positives: Any, items: Any, weights: Array, gradient: Array) -> None:
    """gradient of the row: −to_own of its positives, and weight · to_item of all items that count."""
    (position, to_own), (level, before, to_item) = positives, items
    for k in range(len(position)):
        gradient[np.uint64(position[k])] -= np.float32(to_own[k])
    for item in range(len(level)):
        gradient[item] += weights[np.uint64(level[item])] * to_item[np.uint64(before[item])]
