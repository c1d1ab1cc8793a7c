"""The compiled loops of kernel.py, over the items of each list in order of rank.

Scores fall along a sorted list, so that for positive k the items with t = s_j − s_k > δ come first, then a window where the
sigmoid is neither 0 nor 1, then the rest, which count nothing. All three bounds only move forward from one positive to the
next. With e_j = exp(s_j/τ) the sigmoid is e_j/(e_j + e_k): no exponential of a pair is needed.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit

Array = np.ndarray[Any, Any]
SPAN = 40.0  # τs from the centre of the exponentials: with window and δ beside it, e_j stays within float32
LOG2_E = 1.4426950408889634


@njit(nogil=True, cache=True)
def pack(bits: Array, levels: Array, keys: Array) -> None:
    """Keys whose ascending order is score down, level up, column up."""
    for row in range(bits.shape[0]):
        for column in range(bits.shape[1]):
            score = bits[row, column]
            if score == np.uint32(0x80000000):  # −0 and 0 are one score
                score = np.uint32(0)
            descending = score if score & np.uint32(0x80000000) else score ^ np.uint32(0x7FFFFFFF)
            level = np.uint64(levels[row, column])
            keys[row, column] = (np.uint64(descending) << np.uint64(32)) | (level << np.uint64(24)) | np.uint64(column)


@njit(nogil=True, cache=True)
def unpack(keys: Array, places: Array, column: Array, bits: Array, level: Array, place: Array) -> None:
    """Column, score, level and place among the positives of every item, in order of the sorted keys."""
    for row in range(keys.shape[0]):
        for position in range(keys.shape[1]):
            key = keys[row, position]
            column[row, position] = key & np.uint64(0xFFFFFF)
            level[row, position] = (key >> np.uint64(24)) & np.uint64(0xFF)
            descending = np.uint32(key >> np.uint64(32))
            bits[row, position] = descending if descending & np.uint32(0x80000000) else descending ^ np.uint32(0x7FFFFFFF)
            place[row, position] = places[row, column[row, position]]


@njit(nogil=True, cache=True)
def exact_sums(level: Array, place: Array, table: Array, sums: Array) -> None:
    """sums[place] = Σ of table[level of k, level of j] over the items j before positive k."""
    before = np.empty(table.shape[2], dtype=np.int64)
    for row in range(level.shape[0]):
        before[:] = 0
        for position in range(level.shape[1]):
            own = level[row, position]
            if place[row, position] >= 0:
                total = 0.0
                for other in range(table.shape[2]):
                    total += before[other] * np.float64(table[row, own, other])
                sums[place[row, position]] = total
            before[own] += 1


@njit(nogil=True, cache=True)
def step_values(score: Array, level: Array, place: Array, table: Array, step: Array, sums: Array) -> None:
    """sums[place] = Σ_{j ≠ k} table[level of k, level of j] · step(s_j − s_k), the items of each level of k gathered first."""
    items = score.shape[1]
    scores, weights, exponentials = np.empty(items, np.float32), np.empty(items, np.float32), np.empty(items, np.float32)
    position, own, places = np.empty(items, np.int32), np.empty(items, np.float32), np.empty(items, np.int32)
    for row in range(score.shape[0]):
        for at in range(1, table.shape[1]):
            found = _positives(score[row], level[row], place[row], at, own, places, position)
            count = _gather(score[row], level[row], table[row, at], scores, weights, position) if found else 0
            if count:
                _values((own[:found], places[:found]), scores[:count], weights[:count], exponentials[:count], step, sums)
                itself = table[row, at, at] * np.float32(0.5 + step[4])
                for item in places[:found]:
                    sums[item] -= itself


@njit(nogil=True, cache=True)
def step_slopes(
    score: Array, level: Array, place: Array, column: Array, table: Array, step: Array, upstream: Array, result: Array
) -> None:
    """result = the gradient of Σ upstream[place] · sums[place] in the scores, by column."""
    items = score.shape[1]
    scores, weights, exponentials = np.empty(items, np.float32), np.empty(items, np.float32), np.empty(items, np.float32)
    to_item, linear = np.empty(items, np.float32), np.empty(items + 1, np.float64)
    position, own, places = np.empty(items, np.int32), np.empty(items, np.float32), np.empty(items, np.int32)
    at_own, wanted, to_own = np.empty(items, np.int32), np.empty(items, np.float32), np.empty(items, np.float32)
    for row in range(score.shape[0]):
        for at in range(1, table.shape[1]):
            found = _positives(score[row], level[row], place[row], at, own, places, at_own)
            count = _gather(score[row], level[row], table[row, at], scores, weights, position) if found else 0
            if count == 0:
                continue
            to_item[:count], linear[: count + 1] = 0, 0
            for item in range(found):
                wanted[item] = upstream[places[item]]
            _slopes(
                (own[:found], wanted[:found]), scores[:count], weights[:count], exponentials[:count],
                step, to_item[:count], linear[: count + 1], to_own[:found],
            )  # fmt: skip
            for item in range(found):
                result[row, column[row, at_own[item]]] -= to_own[item]
            beyond = 0.0
            for item in range(count - 1, -1, -1):
                beyond += linear[item + 1]
                slope = np.float32(step[2] * beyond) + to_item[item] / np.float32(step[0])
                result[row, column[row, position[item]]] += weights[item] * slope


@njit(nogil=True, cache=True)
def _positives(score: Array, level: Array, place: Array, at: int, own: Array, places: Array, position: Array) -> int:
    """The positives of one level in order of rank: how many, their scores, places and positions."""
    found = 0
    for item in range(len(score)):
        own[found], places[found], position[found] = score[item], place[item], item
        found += level[item] == at and place[item] >= 0
        if found == len(own):
            break
    return found


@njit(nogil=True, cache=True)
def _gather(score: Array, level: Array, table: Array, scores: Array, weights: Array, position: Array) -> int:
    """The items of non-zero weight in order of rank: how many, their scores, weights and positions."""
    count = 0
    for item in range(len(score)):
        weight = table[level[item]]
        scores[count], weights[count], position[count] = score[item], weight, item
        count += weight != 0
        if count == len(scores):
            break
    return count


@njit(nogil=True, cache=True)
def _values(positives: Any, score: Array, weight: Array, exponential: Array, step: Array, sums: Array) -> None:
    tau, delta, rho, beyond, start, reach = step
    linear = zero = last = 0
    weight_linear = score_linear = weight_above = 0.0
    centre = np.inf
    for own, place in zip(*positives):
        while linear < len(score) and score[linear] - own > delta:
            weight_linear += weight[linear]
            score_linear += np.float64(weight[linear]) * score[linear]
            linear += 1
        while zero < len(score) and score[zero] >= own:
            weight_above += weight[zero]
            zero += 1
        last = max(last, linear)
        while last < len(score) and own - score[last] < reach:
            last += 1
        if centre - own > SPAN * tau:
            centre = own - SPAN * tau
            _exponentials(score, np.float32(centre), np.float32(LOG2_E / tau), exponential)
        window = _sigmoids(exponential[linear:last], weight[linear:last], np.float32(math.exp((own - centre) / tau)))
        flat = beyond * weight_linear + start * (weight_above - weight_linear)
        sums[place] = rho * (score_linear - weight_linear * (own + delta)) + flat + window


@njit(nogil=True, cache=True)
def _slopes(
    positives: Any, score: Array, weight: Array, exponential: Array, step: Array, to_item: Array, linear_upstream: Array, to_own: Array
) -> None:
    tau, delta, rho, reach = step[0], step[1], step[2], step[5]
    linear = last = item = 0
    weight_linear = 0.0
    centre = np.inf
    for own, wanted in zip(*positives):
        while linear < len(score) and score[linear] - own > delta:
            weight_linear += weight[linear]
            linear += 1
        last = max(last, linear)
        while last < len(score) and own - score[last] < reach:
            last += 1
        if centre - own > SPAN * tau:
            centre = own - SPAN * tau
            _exponentials(score, np.float32(centre), np.float32(LOG2_E / tau), exponential)
        linear_upstream[linear] += wanted
        slope = _sigmoid_slopes(
            exponential[linear:last], weight[linear:last], np.float32(math.exp((own - centre) / tau)), wanted, to_item[linear:last]
        )
        to_own[item] = wanted * np.float32(rho * weight_linear + slope / tau)
        item += 1


@njit(nogil=True, cache=True, error_model="numpy", fastmath={"contract"})
def _exponentials(score: Array, centre: np.float32, scale: np.float32, exponential: Array) -> None:
    """2^((s − centre)·scale) by a polynomial between whole powers, 10⁻⁷ exact, kept finite where it is not needed."""
    for item in range(len(score)):
        power = min(max((score[item] - centre) * scale, np.float32(-125)), np.float32(125))
        whole = np.floor(power)
        part = power - whole
        value = np.float32(1.8775767e-3)
        value = value * part + np.float32(8.9893397e-3)
        value = value * part + np.float32(5.5826318e-2)
        value = value * part + np.float32(2.4015361e-1)
        value = value * part + np.float32(6.9315308e-1)
        value = value * part + np.float32(9.9999994e-1)
        exponential[item] = value * np.int32((np.int32(whole) + np.int32(127)) << np.int32(23)).view(np.float32)


@njit(nogil=True, cache=True, error_model="numpy", fastmath={"reassoc", "nsz", "contract"})
def _sigmoids(exponential: Array, weight: Array, own: np.float32) -> np.float32:
    total = np.float32(0)
    for item in range(len(exponential)):
        total += weight[item] * (exponential[item] / (exponential[item] + own))
    return total


@njit(nogil=True, cache=True, error_model="numpy", fastmath={"reassoc", "nsz", "contract"})
def _sigmoid_slopes(exponential: Array, weight: Array, own: np.float32, wanted: np.float32, to_item: Array) -> np.float32:
    total = np.float32(0)
    for item in range(len(exponential)):
        sigmoid = exponential[item] / (exponential[item] + own)
        slope = sigmoid - sigmoid * sigmoid
        total += weight[item] * slope
        to_item[item] += wanted * slope
    return total
