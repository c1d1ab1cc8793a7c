"""Sorts the scores of the queries' positives, best first: each item becomes one integer key, and
keys are sorted by radix.

Keys. An item's key is the code of its score first and the tie key of its level last, so that one
sort gives scores, levels and the order of equal scores; keys of 32 bits are sorted by radix, those
of 64 by numpy. The code of a score s ≤ 0 is middle + c, of s > 0 middle − c, with c = |s| − floor
in steps of a float32, 0 below it. `floor` is so far below the largest |s| of the part that all
codes fit: with 3 bits for the tie key, by a factor of 2^32. Where some score but zero is smaller
still, or is a float64, its code is its place among the distinct scores.

Radix. Two passes move every key to the place that a histogram of one digit gives it. A pass reads
and writes each key once, whatever the processor's vector instructions: numpy's sort compresses
registers into memory, which takes 3.5 ns an item on some processors and 23 ns on others (136,000
keys, AMD Zen 4); two passes take less than 3 ns on all of them. The digits are those of a key minus
the lowest key, so that they share out the range that the keys really have. After two passes the
keys are sorted but for those that agree in all the bits of both digits. These lie side by side,
mostly alone or in twos, and insertion puts them in order. Where many agree, as scores that are
almost equal do, insertion would take quadratic time: it gives up after a few moves an item, and all
bits are passed over from the lowest. The result is the sorted array, whichever way led to it, so
nothing depends on the way taken.

>>> keys = np.array([7, 3, 2**31, 3], np.uint32)
>>> sort_parts(keys, np.array([0]), np.array([4]))
>>> keys.tolist()
[3, 3, 7, 2147483648]
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hbench.core.compiled import Scalar, compiled, compiled_part

Keys = NDArray[np.uint32]

MIN_RADIX_KEYS = 600  # keys that numpy's sort is quicker for, on all processors measured
WIDTH = 11  # bits of a digit
MOVES = 4  # an item, after which insertion gives up


def sort_parts(keys: Keys, offsets: NDArray[np.int64], sizes: NDArray[np.int64]) -> None:
    """Sort each part of a flat array in place: it begins at `offsets` (n,) and is `sizes` (n,)
    long.
    """
    large = sizes > MIN_RADIX_KEYS  # below, numpy's own sort is quicker
    for first, size in zip(offsets[~large].tolist(), sizes[~large].tolist(), strict=True):
        keys[first : first + size].sort()
    if large.any():
        radix_sort_parts(keys, offsets[large], sizes[large], np.empty(sizes.max(), np.uint32))


@compiled
def radix_sort_parts(
    keys: Keys, offsets: NDArray[np.int64], sizes: NDArray[np.int64], buffer: Keys
) -> None:
    """Sort parts of the keys in place, each by radix: the part i is the `sizes[i]` keys from
    `offsets[i]` on. `buffer`: room for as many keys as the longest part has."""
    for part in range(len(offsets)):
        radix_sort(keys[offsets[part] : offsets[part] + sizes[part]], buffer)


@compiled_part
def radix_sort(keys: Keys, buffer: Keys) -> None:
    """Sort keys (n,) in place, with a buffer of at least n, by passes over digits of WIDTH bits of
    the difference to the lowest key."""
    low = keys[0]
    high = keys[0]
    bits = 0
    for item in range(np.uint64(len(keys))):
        low = keys[item] if keys[item] < low else low
        high = keys[item] if keys[item] > high else high
    # bits that the largest difference needs; a uint64, since a uint32 cannot be shifted by 32 bits
    while np.uint64(np.uint32(high - low)) >> np.uint64(bits):
        bits += 1
    counts = np.empty((2, 1 << WIDTH), np.uint32)
    # the top digits put random keys almost in order, and the few that are not are inserted; only
    # where too many are not, all digits are passed, from the lowest
    first = max(bits - 2 * WIDTH, 0)
    pass_twice(keys, buffer, counts, low, first)
    if first > 0 and not insert(keys, MOVES * len(keys)):
        for shift in range(0, bits, 2 * WIDTH):
            pass_twice(keys, buffer, counts, low, shift)


@compiled_part
def pass_twice(keys: Keys, buffer: Keys, counts: NDArray[np.uint32], low: int, shift: int) -> None:
    """Order keys in place, stably, by two digits of `key − low`, the lower of which begins at bit
    `shift`: by the lower one into `buffer`, as long as the keys, and by the upper one back. Both
    histograms, `counts` (2, 2^WIDTH), are taken in one reading."""
    one = np.uint32(1)
    mask = np.uint32((1 << WIDTH) - 1)
    down = np.uint32(shift)
    up = np.uint32(WIDTH)
    lower = counts[0]
    upper = counts[1]
    lower[:], upper[:] = np.uint32(0), np.uint32(0)

    for item in range(np.uint64(len(keys))):
        digits = np.uint32(np.uint32(keys[item] - low) >> down)
        lower[digits & mask] += one
        upper[np.uint32(digits >> up) & mask] += one

    # from how many keys have a digit to where the first of them goes
    become_places(lower)
    become_places(upper)
    # each key goes to the next free place of its digit
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


@compiled_part
def become_places(counts: NDArray[np.uint32]) -> None:
    """Turn `counts`, the number of keys of each digit, into the place of its first key, in place:
    [2, 0, 3] becomes [0, 2, 2]."""
    place = np.uint32(0)
    for digit in range(np.uint64(len(counts))):
        count = counts[digit]
        counts[digit] = place
        place += count


@compiled_part
def insert(keys: Keys, most: int) -> bool:
    """Sort almost sorted keys by insertion; False, with the same keys in some order, once more than
    `most` were moved.
    """
    moved = 0  # places by which keys have been moved, in all
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


SIGN = 2**31
SIZE = SIGN - 1  # the bits of |s|
INFINITE = 0x7F800000


class Parts(NamedTuple):
    """Parts of n rows of scores, one for each query: the columns in which its positives lie.

    A part is `sizes` (n,) columns from column `begins` (n,) on; in flat arrays of all parts it lies
    from place `offsets` (n,) on, and one place more follows it. `starts`, `ends` (n, L): inside of
    it, the columns of the items of level ≥ l, in column l − 1, l from `lowest` on; all lower ones
    count as level 0. Under partial labels codes stand for levels, two for each.
    """

    begins: NDArray[np.int64]
    offsets: NDArray[np.int64]
    sizes: NDArray[np.int64]
    starts: NDArray[np.int64]
    ends: NDArray[np.int64]
    lowest: int

    def of(self, rows: slice) -> Parts:
        """The parts of some of the rows; their offsets count anew from 0, for flat arrays that
        hold these rows alone."""
        offsets = self.offsets[rows]
        return Parts(
            begins=self.begins[rows],
            offsets=offsets - offsets[:1],  # not [0]: of no rows there is no first one
            sizes=self.sizes[rows],
            starts=self.starts[rows],
            ends=self.ends[rows],
            lowest=self.lowest,
        )


def fitting(sizes: NDArray[np.int64], most: int) -> Iterator[slice]:
    """Yield slices of neighbouring rows, as many as fit each time: their sizes (n,) add up to
    `most` items at most; a row that is larger by itself comes alone."""
    ends = np.cumsum(sizes)  # items up to and with each row
    first = 0
    while first < len(sizes):
        before = ends[first] - sizes[first]  # items in the slices so far
        last = max(int(np.searchsorted(ends, before + most, side="right")), first + 1)
        yield slice(first, last)
        first = last


class Coding(NamedTuple):
    """The coding of keys: `of_level` (L+1,), the tie key of each level, and `to_level`, back; the
    `bits` of a tie key; the `middle` of the codes, that of zero. The code of −inf is the last,
    2·middle."""

    of_level: NDArray[np.uint8]
    to_level: NDArray[np.uint8]
    bits: int
    middle: int


class SortedKeys(NamedTuple):
    """Flat arrays of sorted parts: `keys`, of that `coding`, `scores`, `levels` uint8. A score of
    −inf follows each part.
    """

    keys: NDArray[np.unsignedinteger]
    scores: NDArray[np.floating]
    levels: NDArray[np.uint8]
    coding: Coding


def empty(items: int, dtype: np.dtype[np.floating], tie_key: NDArray[np.uint8]) -> SortedKeys:
    """Buffers for sorting parts that have this many `items` together, by scores of type `dtype`.
    `tie_key` (L+1,): the key of each level, by which equal scores are ordered, lower first.
    """
    # the tie key of a level takes the low bits of a key, the score those above it; with more than
    # 3 bits for the ties, 32 are too few for the scores
    bits = (len(tie_key) - 1).bit_length()
    kind = np.dtype(np.uint32 if bits <= 3 else np.uint64)
    # half of all codes are for positive scores, half for negative; a float32 needs no more than
    # the bits of infinity
    middle = min(2 ** (8 * kind.itemsize - 1 - bits) - 1, INFINITE)
    coding = Coding(tie_key, np.argsort(tie_key).astype(np.uint8), bits, middle)
    return SortedKeys(
        np.empty(items, kind), np.empty(items, dtype), np.empty(items, np.uint8), coding
    )


def sort(rows: NDArray[np.floating], parts: Parts, to: SortedKeys) -> None:
    """Sort each part of the rows of scores (n, G): by score, then by the tie key of the level; both
    with the best first. Write scores and levels to `to`.

    The scores' bits are sorted as integers, which is quicker; float64, and scores too far apart for
    a code each (`write_keys`), are sorted by their places.
    """
    if rows.dtype == np.float64 or not write_keys(rows.view(np.uint32), parts, to.coding, to.keys):
        sort_distinct(rows, parts, to)
        return
    if to.keys.dtype == np.uint32:
        sort_parts(to.keys, parts.offsets, parts.sizes)
    else:  # the radix sort is one of 32 bits
        for first, size in zip(parts.offsets.tolist(), parts.sizes.tolist(), strict=True):
            to.keys[first : first + size].sort()
    read_keys(rows.view(np.uint32), parts, to, to.scores.view(np.uint32))


def sort_distinct(rows: NDArray[np.floating], parts: Parts, to: SortedKeys) -> None:
    """Sort each part (a range of the columns) of the rows of scores (n, G), whatever the scores
    are: by score, best first, then by the tie key of the level. Write scores, levels and keys to
    `to`, flat arrays in which part i lies at `parts.offsets[i]`; a key holds the place of the score
    among the distinct ones, since the score itself does not fit."""
    coding = to.coding
    # `first`: the place of the part in the flat arrays
    for row, begin, first, size in zip(
        range(len(rows)), parts.begins, parts.offsets, parts.sizes, strict=True
    ):
        scores = rows[row, begin : begin + size]
        by_column = tie_keys(parts, row, coding.of_level)
        # lexsort takes its last key first: the highest score, then the tie key
        by_rank = np.lexsort((by_column, -scores))
        kind = to.keys.dtype.type
        at = slice(first, first + size)
        ties = by_column[by_rank]
        to.scores[at] = scores[by_rank]
        # a score by how many distinct ones are better, which fits where the score does not
        places = np.zeros(size, np.int64)
        np.cumsum(to.scores[at][1:] != to.scores[at][:-1], out=places[1:])
        # the largest code is kept for −inf: there are fewer distinct scores
        places[to.scores[at] == -np.inf] = 2 * coding.middle
        to.keys[at] = places.astype(kind) << kind(coding.bits) | ties
        to.levels[at] = coding.to_level[ties]
        to.scores[first + size] = -np.inf  # behind each part, where every search stops


def tie_keys(parts: Parts, row: int, of_level: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """The tie key of every item of one row's part (size,), in the order of the columns; `of_level`
    (L+1,): the key of each level."""
    keys = np.full(parts.sizes[row], of_level[0], np.uint8)
    begin = parts.begins[row]
    # the range of level ≥ l lies in that of a lower level, and is written over it
    for level in range(parts.lowest, parts.starts.shape[1] + 1):
        start = parts.starts[row, level - 1]
        end = parts.ends[row, level - 1]
        if end > start:
            keys[start - begin : end - begin] = of_level[level]
    return keys


@compiled
def write_keys(
    rows: NDArray[np.uint32], parts: Parts, coding: Coding, keys: NDArray[np.unsignedinteger]
) -> bool:
    """Write the sort keys of the parts' items, in the order of the columns: the code of the score
    in the high bits, the tie key of the level in the low ones. Return whether every score has a
    code of its own; else the order of the keys is not that of the scores.

    `rows` (n, G): the bits of float32 scores; `keys`: flat, as `parts.offsets` say.
    """
    exact = True
    for row in range(len(parts.begins)):
        begin = parts.begins[row]
        part = keys[parts.offsets[row] : parts.offsets[row] + parts.sizes[row]]
        bits = rows[row, begin : begin + len(part)]
        floor, own_exact = floor_of(bits, coding.middle)
        exact &= own_exact
        write_codes(bits, floor, coding, coding.of_level[0], part)

        # a level writes over the one that holds it
        for level in range(parts.lowest, parts.starts.shape[1] + 1):
            start = parts.starts[row, level - 1] - begin
            end = parts.ends[row, level - 1] - begin
            if end > start:
                write_codes(bits[start:end], floor, coding, coding.of_level[level], part[start:end])

    return exact


@compiled_part
def floor_of(bits: NDArray[np.uint32], middle: int) -> tuple[Scalar, bool]:
    """Return the floor of a part's finite scores, and whether no score but zero lies below it, so
    that each has a code of its own.

    A size is |score| as the bits of a float32 (`bits` without the sign), which grow with |score|.
    A code has room for `middle` − 1 steps above the floor: the floor is the largest size less that
    many, so that the largest has the last step. The smallest size above zero has a code of its own
    where it lies above the floor, since the floor itself is no step.
    """
    largest = np.uint32(0)
    smallest = np.uint32(SIZE)
    for item in range(len(bits)):
        size = np.uint32(bits[item] & np.uint32(SIZE))
        # the smallest size but zero, less one: a code above 0 stands for a size above the floor
        less_one = np.uint32(size - np.uint32(1))  # zero becomes the largest number
        smallest = less_one if less_one < smallest else smallest
        # infinity has a code of its own, whatever the floor
        size = size if size < np.uint32(INFINITE) else np.uint32(0)
        largest = size if size > largest else largest
    floor: Scalar = np.int64(largest) - np.int64(middle - 1)
    floor = floor if floor > np.int64(0) else np.int64(0)
    return floor, floor <= np.int64(smallest)


@compiled_part
def write_codes(
    bits: NDArray[np.uint32],
    floor: int,
    coding: Coding,
    tie: Scalar,
    keys: NDArray[np.unsignedinteger],
) -> None:
    """Write the keys (n,) of items of one level, with the tie key `tie`, from the bits (n,) of
    their scores.

    A code is 0 for the highest score, `middle` for zero and 2·middle for −inf: the size of a score
    above `floor` is taken off the middle, or added to it where the sign is set. int32 throughout,
    so that the loop becomes vector instructions.
    """
    low = np.int32(floor)
    middle = np.int32(coding.middle)
    kind = keys.dtype.type
    for item in range(len(bits)):
        size = np.int32(bits[item] & np.uint32(SIZE))
        above = np.int32(size - low) if size > low else np.int32(0)
        above = above if above < middle else middle
        code = (
            np.uint32(middle - above) if bits[item] < np.uint32(SIGN) else np.uint32(middle + above)
        )
        keys[item] = kind(kind(code) << kind(coding.bits)) | kind(tie)


@compiled
def read_keys(
    rows: NDArray[np.uint32], parts: Parts, to: SortedKeys, scores: NDArray[np.uint32]
) -> None:
    """Turn the sorted keys back into the bits of the scores, flat, and the levels in `to`; behind
    each part −inf is written. `rows` (n, G): the bits of the unsorted scores, which tell the floor
    that the codes of each part count from."""
    coding = to.coding
    for row in range(len(parts.begins)):
        first = parts.offsets[row]
        size = parts.sizes[row]
        begin = parts.begins[row]
        floor, _exact = floor_of(rows[row, begin : begin + size], coding.middle)
        keys = to.keys[first : first + size]
        read_codes(keys, floor, coding, scores[first : first + size])
        for item in range(np.uint64(size)):
            tie = np.uint64(keys[item]) & np.uint64((1 << coding.bits) - 1)
            to.levels[np.uint64(first) + item] = coding.to_level[tie]
        scores[first + size] = np.uint32(SIGN | INFINITE)  # −inf ends every search


@compiled_part
def read_codes(
    keys: NDArray[np.unsignedinteger], floor: int, coding: Coding, bits: NDArray[np.uint32]
) -> None:
    """Write the bits of the float32 scores (n,) that sorted keys (n,) stand for, the inverse of
    `write_codes`: code `middle` is zero, 0 is +inf, 2·middle is −inf, and in between a step is one
    float32 above `floor`, which lies below the bits of every |score| but zero. `coding.bits`: by
    how many bits the code stands in a key, above what breaks ties.
    """
    shift = keys.dtype.type(coding.bits)
    middle = np.int64(coding.middle)
    for item in range(len(keys)):
        above = np.int64(keys[item] >> shift) - middle
        size = abs(above)
        magnitude = floor + size if size > 0 else 0
        magnitude = magnitude if size < middle else INFINITE
        bits[item] = np.uint32(magnitude) | np.uint32(SIGN if above > 0 else 0)
