"""Sorting lists with numpy's integer sort: score, level and column of an item packed into one key."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

Array = np.ndarray[Any, Any]


@njit(nogil=True, cache=True)
def pack(bits: Array, levels: Array, keys: Array) -> None:
    """Keys whose ascending order is score down, level up, column up; `bits` are the scores' float32 bits."""
    for row in range(bits.shape[0]):
        for column in range(bits.shape[1]):
            score = bits[row, column]
            if score == np.uint32(0x80000000):  # −0 and 0 are one score
                score = np.uint32(0)
            descending = score if score & np.uint32(0x80000000) else score ^ np.uint32(0x7FFFFFFF)
            level = np.uint64(levels[row, column])
            keys[row, column] = (np.uint64(descending) << np.uint64(32)) | (level << np.uint64(24)) | np.uint64(column)


@njit(nogil=True, cache=True)
def unpack(keys: Array, places: Array, column: Array, rows: tuple[Array, Array, Array]) -> None:
    """Column, and (score bits, level, place among the positives) of every item, in order of the sorted keys."""
    bits, level, place = rows
    for row in range(keys.shape[0]):
        for position in range(keys.shape[1]):
            key = keys[row, position]
            column[row, position] = key & np.uint64(0xFFFFFF)
            level[row, position] = (key >> np.uint64(24)) & np.uint64(0xFF)
            descending = np.uint32(key >> np.uint64(32))
            bits[row, position] = (
                descending if descending & np.uint32(0x80000000) else descending ^ np.uint32(0x7FFFFFFF)
            )
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
