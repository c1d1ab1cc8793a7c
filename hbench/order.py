"""Order: parts of rows of scores, those that hold the queries' positives, sorted best first.

An item becomes one integer, its score first and its tie key last, so that one sort gives scores, levels and the order
of equal scores; numpy sorts such integers in vector instructions.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hbench.compiled import Scalar, compiled

SIGN = 2**31


class Parts(NamedTuple):
    """Of n rows: a part begins at column `begins` (n,) and lies at `offsets` (n,) of flat arrays, `sizes` (n,) long.

    `starts`, `ends` (n, L): the columns of the items of level ≥ l, l from `lowest` on; all lower ones count as level 0.
    """

    begins: NDArray[np.int64]
    offsets: NDArray[np.int64]
    sizes: NDArray[np.int64]
    starts: NDArray[np.int64]
    ends: NDArray[np.int64]
    lowest: int

    def of(self, rows: slice) -> Parts:
        """The parts of some of the rows, from the beginning of the flat arrays on."""
        arrays = [array[rows] for array in self[:-1]]
        offsets = arrays[1] - arrays[1][:1]
        return Parts(arrays[0], offsets, arrays[2], arrays[3], arrays[4], self.lowest)


class Sorted(NamedTuple):
    """Flat arrays of sorted parts: `keys` uint64, `scores`, `levels` uint8. A score of −inf follows each part."""

    keys: NDArray[np.uint64]
    scores: NDArray[np.floating]
    levels: NDArray[np.uint8]


BYTES = 8 + 8 + 1  # of an item in a part


def room(items: int, dtype: np.dtype[np.floating]) -> Sorted:
    """Room for parts of so many items together."""
    return Sorted(np.empty(items, np.uint64), np.empty(items, dtype), np.empty(items, np.uint8))


def sort(rows: NDArray[np.floating], parts: Parts, tie_key: NDArray[np.uint8], to: Sorted) -> None:
    """Sort each part: by score, then by the tie key (L+1,) of the level; both with the best first."""
    write_tie_keys(parts, tie_key, to.levels)
    of_key = np.argsort(tie_key).astype(np.uint8)
    if rows.dtype == np.float64:
        sort_float64(rows, parts, of_key, to)
        return
    write_keys(rows, parts, to.levels, to.keys)
    for first, size in zip(parts.offsets.tolist(), parts.sizes.tolist(), strict=True):
        to.keys[first : first + size].sort()
    read_keys(parts, of_key, to)


def sort_float64(rows: NDArray[np.floating], parts: Parts, of_key: NDArray[np.uint8], to: Sorted) -> None:
    """A float64 score leaves no room for the level in an integer."""
    for row, begin, first, size in zip(rows, parts.begins, parts.offsets, parts.sizes, strict=True):
        scores, keys = row[begin : begin + size], to.levels[first : first + size]
        order = np.lexsort((keys, -scores))
        to.scores[first : first + size], to.levels[first : first + size] = scores[order], of_key[keys[order]]
        to.scores[first + size] = -np.inf


@compiled
def write_tie_keys(parts: Parts, tie_key: NDArray[np.uint8], keys: NDArray[np.uint8]) -> None:
    """The tie key of every item of the parts, in the order of the columns."""
    for row in range(len(parts.begins)):
        own = keys[parts.offsets[row] : parts.offsets[row] + parts.sizes[row]]
        own[:] = tie_key[0]
        for level in range(parts.lowest, parts.starts.shape[1] + 1):
            start, end = parts.starts[row, level - 1], parts.ends[row, level - 1]
            if end > start:
                own[start - parts.begins[row] : end - parts.begins[row]] = tie_key[level]


@compiled
def write_keys(rows: NDArray[np.float32], parts: Parts, tie_keys: NDArray[np.uint8], keys: NDArray[np.uint64]) -> None:
    """The integers of the parts' items, in the order of the columns."""
    for row in range(len(parts.begins)):
        first, size, begin = parts.offsets[row], parts.sizes[row], parts.begins[row]
        own, own_ties, scores = keys[first : first + size], tie_keys[first : first + size], rows[row]
        bits = scores[begin : begin + size].view(np.uint32)
        for item in range(np.uint64(size)):
            own[item] = np.uint64(descending(bits[item])) << np.uint64(8) | np.uint64(own_ties[item])


@compiled
def descending(bits: Scalar) -> Scalar:
    """The bits of a float32 become an integer that falls as the float rises; both zeros become the same one."""
    bits = np.uint32(0) if bits == np.uint32(SIGN) else bits
    return bits if bits >= np.uint32(SIGN) else np.uint32(SIGN - 1) - bits


@compiled
def read_keys(parts: Parts, of_key: NDArray[np.uint8], to: Sorted) -> None:
    """Scores and levels of the sorted integers."""
    for row in range(len(parts.begins)):
        first, size = parts.offsets[row], parts.sizes[row]
        keys, levels = to.keys[first : first + size], to.levels[first : first + size]
        bits = to.scores[first : first + size].view(np.uint32)
        for item in range(np.uint64(size)):
            high = np.uint32(keys[item] >> np.uint64(8))
            bits[item] = high if high >= np.uint32(SIGN) else np.uint32(SIGN - 1) - high
            levels[item] = of_key[np.uint64(keys[item] & np.uint64(255))]
        to.scores[first + size] = -np.inf


@compiled
def are_tied(ordered: NDArray[np.floating], levels: NDArray[np.uint8]) -> bool:
    """Whether positives of different levels have one score."""
    tied = False
    for slot in range(np.uint64(1), np.uint64(len(levels))):
        before = slot - np.uint64(1)
        tied |= (ordered[slot] == ordered[before]) & (levels[slot] != levels[before])
    return tied
