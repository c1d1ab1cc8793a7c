"""Sums over the window of each positive, item by item; chebyshev.py has the same for windows that are wide.

Items and positives come in order of rank. For positive k the items before first[k] have t = s_j − s_k > δ, those from last[k]
on count nothing, and the window between them is where the sigmoid is neither. With e_j = exp(s_j/τ) the sigmoid is
e_j/(e_j + e_k): no exponential of a pair is needed.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hbench.core.compiled import machine_code
from hbench.losses.cpu.lists import LANES

Array = np.ndarray[Any, Any]
SPAN = 40.0  # τs from the centre of the exponentials: with window and δ beside it, e_j stays within float32
LOG2_E = 1.4426950408889634
TO_UNITS = np.float32(3 << 22)
RECIPROCAL = {
    "reassoc",
    "nsz",
    "contract",
    "arcp",
    "nnan",
    "ninf",
}  # divisions by an estimate and one Newton step, 10⁻⁷ exact


@machine_code()
def direct_values(own: Array, items: Any, edges: Any, step: Array, values: Array) -> None:
    """values[k] += Σ_window w_j σ((s_j − s_k)/τ)."""
    (_, weight, exponential), (first, _, last) = items, edges
    own_exponential, centre = np.empty(len(own), np.float32), np.inf
    for k in range(len(own)):
        if centre - own[k] > SPAN * step[0]:
            centre = _around(own[k], (own, own_exponential), items, step[0])
        begin, blocks = _blocks(first[k], last[k])
        values[k] += _sigmoids(exponential, weight, begin, blocks, own_exponential[k])


@machine_code()
def direct_slopes(positives: Any, items: Any, edges: Any, step: Array, slopes: Any) -> None:
    """to_own[k] += g_k/τ Σ_window w_j σ', to_item[j] += 1/τ Σ_k g_k σ'."""
    (own, wanted), (_, weight, exponential), (first, _, last), (to_own, to_item) = positives, items, edges, slopes
    own_exponential, centre = np.empty(len(own), np.float32), np.inf
    for k in range(len(own)):
        if centre - own[k] > SPAN * step[0]:
            centre = _around(own[k], (own, own_exponential), items, step[0])
        begin, blocks = _blocks(first[k], last[k])
        pair = own_exponential[k], np.float32(wanted[k] / step[0])
        to_own[k] += pair[1] * _sigmoid_slopes((exponential, weight), begin, blocks, pair, to_item)


@machine_code()
def direct_ratios(positives: Any, items: Any, edges: Any, step: Array, slopes: Any) -> None:
    """direct_values into rank, then, with g_k = −gain/rank² into wanted, direct_slopes; all items that count weigh 1.

    The sigmoids of a window are divided once for both.
    """
    (own, rank, gain), (_, _, exponential), (first, _, last) = positives, items, edges
    wanted, to_own, to_item = slopes
    own_exponential, sigmoids = np.empty(len(own), np.float32), np.empty(len(exponential), np.float32)
    centre = np.inf
    for k in range(len(own)):
        if centre - own[k] > SPAN * step[0]:
            centre = _around(own[k], (own, own_exponential), items, step[0])
        begin, blocks = _blocks(first[k], last[k])
        rank[k] += _keep_sigmoids(exponential, begin, blocks, own_exponential[k], sigmoids)
        wanted[k] = -gain[k] / (rank[k] * rank[k])
        share = np.float32(wanted[k] / step[0])
        to_own[k] += share * _kept_slopes(sigmoids, begin, blocks, share, to_item)


@machine_code()
def _around(own_score: np.float32, positives: Any, items: Any, tau: float) -> float:
    """The centre SPAN below a positive, and exponentials around it; 0 for the items that pad the list."""
    (own, own_exponential), (score, _, exponential) = positives, items
    centre = float(own_score) - SPAN * tau
    exponentials(score, np.float32(centre), np.float32(LOG2_E / tau), exponential)
    exponentials(own, np.float32(centre), np.float32(LOG2_E / tau), own_exponential)
    exponential[len(score) :] = 0
    return centre


@machine_code()
def _blocks(first: int, last: int) -> tuple[np.uint64, np.uint64]:
    """A window's first item, and how many whole runs of LANES items it takes: what is beyond its last adds nothing."""
    return np.uint64(first), np.uint64((last - first + LANES - 1) // LANES)


@machine_code(error_model="numpy", fastmath={"contract", "nnan", "nsz"})
def exponentials(score: Array, centre: np.float32, scale: np.float32, exponential: Array) -> None:
    """2^((s − centre)·scale) by a polynomial between whole powers, 10⁻⁷ exact, kept finite where it is not needed."""
    bits = exponential.view(np.int32)
    for item in range(len(score)):
        power = (score[item] - centre) * scale
        power = np.float32(-100) if power < np.float32(-100) else power
        power = np.float32(100) if power > np.float32(100) else power
        shifted = power - np.float32(0.5) + TO_UNITS  # rounded to whole units, which are its lowest bits
        part = power - (shifted - TO_UNITS)
        value = np.float32(1.8775767e-3)
        value = value * part + np.float32(8.9893397e-3)
        value = value * part + np.float32(5.5826318e-2)
        value = value * part + np.float32(2.4015361e-1)
        value = value * part + np.float32(6.9315308e-1)
        value = value * part + np.float32(9.9999994e-1)
        bits[item] = np.float32(value).view(np.int32) + (np.float32(shifted).view(np.int32) << np.int32(23))


@machine_code(error_model="numpy", fastmath=RECIPROCAL)
def _sigmoids(exponential: Array, weight: Array, begin: np.uint64, blocks: np.uint64, own: np.float32) -> np.float32:
    total = np.float32(0)
    for item in range(begin, begin + blocks * np.uint64(LANES)):
        total += weight[item] * (exponential[item] / (exponential[item] + own))
    return total


@machine_code(error_model="numpy", fastmath=RECIPROCAL)
def _sigmoid_slopes(items: Any, begin: np.uint64, blocks: np.uint64, pair: Any, to_item: Array) -> np.float32:
    (exponential, weight), (own, share) = items, pair
    total = np.float32(0)
    for item in range(begin, begin + blocks * np.uint64(LANES)):
        sigmoid = exponential[item] / (exponential[item] + own)
        slope = sigmoid - sigmoid * sigmoid
        total += weight[item] * slope
        to_item[item] += share * slope
    return total


@machine_code(error_model="numpy", fastmath=RECIPROCAL)
def _keep_sigmoids(
    exponential: Array, begin: np.uint64, blocks: np.uint64, own: np.float32, sigmoids: Array
) -> np.float32:
    total = np.float32(0)
    for item in range(blocks * np.uint64(LANES)):
        value = exponential[begin + item]
        sigmoid = value / (value + own)
        sigmoids[item] = sigmoid
        total += sigmoid
    return total


@machine_code(error_model="numpy", fastmath=RECIPROCAL)
def _kept_slopes(sigmoids: Array, begin: np.uint64, blocks: np.uint64, share: np.float32, to_item: Array) -> np.float32:
    total = np.float32(0)
    for item in range(blocks * np.uint64(LANES)):
        slope = sigmoids[item] - sigmoids[item] * sigmoids[item]
        total += slope
        to_item[begin + item] += share * slope
    return total
