"""Sorts 32-bit keys at the same speed on every processor: two passes over their highest bits, then insertion.

A pass moves every key to the place that a histogram of one digit gives it. It reads and writes each key once, whatever
the processor's vector instructions: numpy's sort compresses registers into memory, which takes 3.5 ns an item on some
processors and 23 ns on others (136,000 keys, AMD Zen 4); two passes take less than 3 ns on all of them.

The digits are those of a key minus the lowest key, so that they share out the range that the keys really have. After two
passes the keys are sorted but for those that agree in all the bits of both digits. These lie side by side, mostly alone or
in twos, and insertion puts them in order. Where many agree, as scores that are almost equal do, insertion would take
quadratic time: it gives up after a few moves an item, and all bits are passed over from the lowest.

The result is the sorted array, whichever way led to it, so nothing depends on the way taken.

>>> keys = np.array([7, 3, 2**31, 3], np.uint32)
>>> sort_parts(keys, np.array([0]), np.array([4]))
>>> keys.tolist()
[3, 3, 7, 2147483648]
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hbench.core.compiled import compiled

Keys = NDArray[np.uint32]

FEW = 600  # keys that numpy's sort is quicker for, on all processors measured
MANY = 4_000  # keys from which a pass over 2^11 digits is quicker than one over 2^8
MOVES = 4  # an item, after which insertion gives up


def sort_parts(keys: Keys, offsets: NDArray[np.int64], sizes: NDArray[np.int64]) -> None:
    """Sort each part of a flat array in place: it begins at `offsets` (n,) and is `sizes` (n,) long."""
    large = sizes > FEW
    for first, size in zip(offsets[~large].tolist(), sizes[~large].tolist(), strict=True):
        keys[first : first + size].sort()
    if large.any():
        radix_sort_parts(keys, offsets[large], sizes[large])


@compiled
def radix_sort_parts(keys: Keys, offsets: NDArray[np.int64], sizes: NDArray[np.int64]) -> None:
    """`sort_parts` by radix for each part."""
    buffer = np.empty(sizes.max(), np.uint32)
    for part in range(len(offsets)):
        radix_sort(keys[offsets[part] : offsets[part] + sizes[part]], buffer)


@compiled
def radix_sort(keys: Keys, buffer: Keys) -> None:
    """Sort keys (n,) in place, with a buffer of at least n."""
    low, high, bits = keys[0], keys[0], 0
    for item in range(np.uint64(len(keys))):
        low, high = min(low, keys[item]), max(high, keys[item])
    while np.uint64(np.uint32(high - low)) >> np.uint64(bits):
        bits += 1
    width = 8 if len(keys) < MANY else 11
    counts = np.empty((2, 1 << width), np.uint32)
    first = max(bits - 2 * width, 0)
    pass_twice(keys, buffer, counts, low, first)
    if first > 0 and not insert(keys, MOVES * len(keys)):
        for shift in range(0, bits, 2 * width):
            pass_twice(keys, buffer, counts, low, shift)


@compiled
def pass_twice(keys: Keys, buffer: Keys, counts: NDArray[np.uint32], low: int, shift: int) -> None:
    """Order keys stably by two digits of `key − low`, of as many values as `counts` (2, 2^width) has columns; the lower
    digit begins at bit `shift`. Both histograms are taken in one reading."""
    one, mask, width = np.uint32(1), np.uint32(counts.shape[1] - 1), 0
    while 1 << width < counts.shape[1]:
        width += 1
    down, up = np.uint32(shift), np.uint32(width)
    lower, upper = counts[0], counts[1]
    lower[:], upper[:] = np.uint32(0), np.uint32(0)
    for item in range(np.uint64(len(keys))):
        digits = np.uint32(np.uint32(keys[item] - low) >> down)
        lower[digits & mask] += one
        upper[np.uint32(digits >> up) & mask] += one
    become_places(lower)
    become_places(upper)
    for item in range(np.uint64(len(keys))):
        key = keys[item]
        digit = np.uint32(np.uint32(key - low) >> down) & mask
        place = lower[digit]
        lower[digit] = place + one
        buffer[place] = key
    for item in range(np.uint64(len(keys))):
        key = buffer[item]
        digit = np.uint32(np.uint32(np.uint32(key - low) >> down) >> up) & mask
        place = upper[digit]
        upper[digit] = place + one
        keys[place] = key


@compiled
def become_places(counts: NDArray[np.uint32]) -> None:
    """Turn the number of keys of each digit into the place of its first key."""
    place = np.uint32(0)
    for digit in range(np.uint64(len(counts))):
        own = counts[digit]
        counts[digit] = place
        place += own


@compiled
def insert(keys: Keys, most: int) -> bool:
    """Sort almost sorted keys by insertion; False, with the same keys in some order, once more than `most` were moved."""
    moved = 0
    for item in range(1, len(keys)):
        key = keys[item]
        if key < keys[item - 1]:
            at = item
            while at > 0 and keys[at - 1] > key:
                keys[at] = keys[at - 1]
                at -= 1
            keys[at] = key
            moved += item - at
            if moved > most:
                return False
    return True
