"""Sorts the scores of the queries' positives, best first: each item gets one integer key, and the
keys are sorted by radix.

Keys. An item's key has the code of its score in the high bits and the tie key of its level in the
low bits, so that one sort gives scores, levels and the order of equal scores. Keys of 32 bits are
sorted by radix, keys of 64 bits by numpy. The code of a score s ≤ 0 is middle + c, and that of
s > 0 is middle − c, where c is |s| − floor in steps of a float32, and 0 for |s| below floor. The
`floor` is so far below the largest |s| of the part that all codes fit: with 3 bits for the tie key,
by a factor of 2^32. If some score but zero is smaller still, or if scores are float64, the code is
the place of the score among the distinct scores.

Radix. A pass moves every key to the place that a histogram of one digit gives it. It reads and
writes each key once, without special vector instructions: numpy's sort compresses registers into
memory, which takes 3.5 ns per item on some processors and 23 ns on others (136,000 keys, AMD Zen
4), while two passes take less than 3 ns on all of them. Digits are taken of a key minus the lowest
key, so that they cover only the range that the keys really have. After two passes, only keys that
agree in all bits of both digits may be unsorted. These are neighbours, mostly one or two, and are
sorted by insertion. If many keys agree, as for scores that are almost equal, insertion would take
quadratic time: it gives up after a few moves per item, and passes over all bits, from the lowest
up, sort the keys instead. Both ways give the same sorted array.

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

MIN_RADIX_KEYS = 600  # up to so many keys numpy's sort is quicker, on all processors measured
WIDTH = 11  # bits of a digit
MOVES = 4  # per item, after which insertion gives up


def sort_parts(keys: Keys, offsets: NDArray[np.int64], sizes: NDArray[np.int64]) -> None:
    """Sort n parts of a flat array in place; part i is the `sizes[i]` keys from `offsets[i]` on."""
    large = sizes > MIN_RADIX_KEYS  # for smaller parts, numpy's own sort is quicker
    for first, size in zip(offsets[~large].tolist(), sizes[~large].tolist(), strict=True):
        keys[first : first + size].sort()
    if large.any():
        radix_sort_parts(keys, offsets[large], sizes[large], np.empty(sizes.max(), np.uint32))


@compiled
def radix_sort_parts(
    keys: Keys, offsets: NDArray[np.int64], sizes: NDArray[np.int64], buffer: Keys
) -> None:
    """Sort each part of the keys in place, by radix. Part i is the `sizes[i]` keys from
    `offsets[i]` on. `buffer`: at least as long as the longest part."""
    for part in range(len(offsets)):
        radix_sort(keys[offsets[part] : offsets[part] + sizes[part]], buffer)


@compiled_part
def radix_sort(keys: Keys, buffer: Keys) -> None:
    """Sort keys (n,), at least one, in place, by passes over digits of WIDTH bits of the difference
    from the lowest key. `buffer`: at least n long."""
    low = keys[0]
    high = keys[0]
    bits = 0
    for item in range(np.uint64(len(keys))):  # unsigned: no check for an index from the end
        low = keys[item] if keys[item] < low else low
        high = keys[item] if keys[item] > high else high
    # the bits of the largest difference; as uint64, since a uint32 cannot be shifted by 32 bits
    while np.uint64(np.uint32(high - low)) >> np.uint64(bits):
        bits += 1
    counts = np.empty((2, 1 << WIDTH), np.uint32)
    # `first`: the lowest bit of the two top digits. If it is 0, the keys have no others, and
    # two passes sort them. Else two passes leave most keys nearly in order, and insertion sorts the
    # rest; if it gives up, after MOVES places per key on average, passes over all digits, from the
    # lowest up, sort them.
    first = max(bits - 2 * WIDTH, 0)
    pass_twice(keys, buffer, counts, low, first)
    if first > 0 and not insert(keys, MOVES * len(keys)):
        for shift in range(0, bits, 2 * WIDTH):
            pass_twice(keys, buffer, counts, low, shift)


@compiled_part
def pass_twice(keys: Keys, buffer: Keys, counts: NDArray[np.uint32], low: int, shift: int) -> None:
    """Sort keys in place, stably, by two neighbouring digits of `key − low`: by the lower digit,
    which begins at bit `shift`, into `buffer`, and then by the upper digit back. `counts` (2,
    2^WIDTH): memory for the histograms of both digits, which are made in one reading. `low`: the
    lowest key.

    numba makes a uint64 of every result; the casts turn it back into a uint32, like the keys."""
    one = np.uint32(1)
    mask = np.uint32((1 << WIDTH) - 1)
    # shifts: by `down` to the lower digit, then by `up` to the upper one
    down = np.uint32(shift)
    up = np.uint32(WIDTH)
    lower = counts[0]
    upper = counts[1]
    lower[:], upper[:] = np.uint32(0), np.uint32(0)

    for item in range(np.uint64(len(keys))):  # unsigned: no check for an index from the end
        digits = np.uint32(np.uint32(keys[item] - low) >> down)
        lower[digits & mask] += one
        upper[np.uint32(digits >> up) & mask] += one

    # from the number of keys with each digit to the place of the first of them
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
    """Sort almost sorted keys by insertion, and return True. If keys are moved by more than `most`
    places in all, give up and return False; the keys are then in some other order.
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


# in the bits of a float32: the sign, a mask of all other bits, and infinity
SIGN = 2**31
SIZE = SIGN - 1
INFINITE = 0x7F800000


class Parts(NamedTuple):
    """Parts of n rows of scores, one for each query: the columns of its positives, and of the query
    itself if it is in the gallery.

    A part is the `sizes` (n,) columns from column `begins` (n,) on. In flat arrays of all parts it
    begins at place `offsets` (n,), and is followed by one more place. `starts`, `ends` (n, L):
    the columns of the items of level ≥ l, in column l − 1, for levels from `lowest` on; items of
    lower levels count as level 0. Under partial labels there are two codes in place of a level.
    """

    begins: NDArray[np.int64]
    offsets: NDArray[np.int64]
    sizes: NDArray[np.int64]
    starts: NDArray[np.int64]
    ends: NDArray[np.int64]
    lowest: int

    def of(self, rows: slice) -> Parts:
        """The parts of some of the rows; each row has one part. Their offsets (n,), the places at
        which parts begin in flat arrays, start at 0 again, for flat arrays of these rows alone.
        `begins`, `starts` and `ends` are columns of rows of scores."""
        offsets = self.offsets[rows]
        return Parts(
            begins=self.begins[rows],
            offsets=offsets - offsets[:1],  # not [0], which fails if there are no rows
            sizes=self.sizes[rows],
            starts=self.starts[rows],
            ends=self.ends[rows],
            lowest=self.lowest,
        )


def fitting(sizes: NDArray[np.int64], most: int) -> Iterator[slice]:
    """Yield slices of as many neighbouring rows as have at most `most` items together. A row that
    has more items by itself makes a slice alone. `sizes` (n,): the items of each row."""
    ends = np.cumsum(sizes)  # items of all rows up to and including each row
    first = 0
    while first < len(sizes):
        before = ends[first] - sizes[first]  # items in the slices so far
        last = max(int(np.searchsorted(ends, before + most, side="right")), first + 1)
        yield slice(first, last)
        first = last


class Coding(NamedTuple):
    """How keys are made. `of_level` (L + 1,): the tie key of each level; `to_level`: the inverse.
    `bits`: of a tie key. `middle`: the code of a score of zero, in the middle of all codes; the
    last code, 2·middle, is that of −inf."""

    of_level: NDArray[np.uint8]
    to_level: NDArray[np.uint8]
    bits: int
    middle: int


class SortedKeys(NamedTuple):
    """Flat arrays of sorted parts: the `keys`, made by `coding`, and the `scores` and `levels`
    (uint8) of their items. A score of −inf follows each part.
    """

    keys: NDArray[np.unsignedinteger]
    scores: NDArray[np.floating]
    levels: NDArray[np.uint8]
    coding: Coding


def empty(items: int, dtype: np.dtype[np.floating], tie_key: NDArray[np.uint8]) -> SortedKeys:
    """Buffers for sorting parts that have this many `items` together, by scores of type `dtype`.
    `tie_key` (L + 1,): the key of each level, by which equal scores are ordered, lower first.
    """
    # The tie key of a level is in the low bits of a key, the code of the score in the bits above.
    # With up to 3 bits for the tie key, 32 bits are enough for scores between the largest of a part
    # and 2^-32 of that. Parts with smaller scores are sorted more slowly; with more bits, many
    # parts would be.
    bits = (len(tie_key) - 1).bit_length()
    kind = np.dtype(np.uint32 if bits <= 3 else np.uint64)
    # Half of all codes are for positive scores, half for negative ones, and `middle` is the code of
    # a score of zero. Each half needs at most INFINITE codes, since there are no more float32
    # numbers from 0 to below infinity.
    middle = min(2 ** (8 * kind.itemsize - 1 - bits) - 1, INFINITE)
    to_level = np.argsort(tie_key).astype(np.uint8)  # the level of each tie key
    coding = Coding(tie_key, to_level, bits, middle)
    return SortedKeys(
        np.empty(items, kind), np.empty(items, dtype), np.empty(items, np.uint8), coding
    )


def sort(rows: NDArray[np.floating], parts: Parts, to: SortedKeys) -> None:
    """Sort each part of the rows of scores (n, G) by score, best first, and equal scores by the tie
    key of the level. Write scores and levels to the flat arrays of `to`, each part from its offset
    on. `parts`: the columns of each row that are sorted, and their levels.

    The bits of the scores are sorted as integers, which is quicker. float64 scores, and scores too
    far apart to have an integer each (then `write_keys` returns False), are sorted as they are,
    which is slower; their keys then hold places among the different scores of a part.
    """
    if rows.dtype == np.float64 or not write_keys(rows.view(np.uint32), parts, to.coding, to.keys):
        sort_distinct(rows, parts, to)
        return
    if to.keys.dtype == np.uint32:
        sort_parts(to.keys, parts.offsets, parts.sizes)
    else:  # the radix sort is for 32 bits only
        for first, size in zip(parts.offsets.tolist(), parts.sizes.tolist(), strict=True):
            to.keys[first : first + size].sort()
    read_keys(rows.view(np.uint32), parts, to, to.scores.view(np.uint32))  # `rows`: for floors


def sort_distinct(rows: NDArray[np.floating], parts: Parts, to: SortedKeys) -> None:
    """Sort each part of the rows of scores (n, G), whatever the scores are: by score, best first,
    and equal scores by the tie key of the level. Write scores, levels and keys to `to`, where each
    part is followed by one more place. A key has, in place of the score, which does not fit, the
    number of better distinct scores in the part."""
    coding = to.coding
    # `first`: the place in the flat arrays at which the part begins
    for row, begin, first, size in zip(
        range(len(rows)), parts.begins, parts.offsets, parts.sizes, strict=True
    ):
        scores = rows[row, begin : begin + size]
        by_column = tie_keys(parts, row, coding.of_level)
        # lexsort sorts by its last key first: by score, the highest first, then by the tie key
        by_rank = np.lexsort((by_column, -scores))
        kind = to.keys.dtype.type
        at = slice(first, first + size)
        ties = by_column[by_rank]
        to.scores[at] = scores[by_rank]
        # the place of a score: how many distinct scores are better
        places = np.zeros(size, np.int64)
        np.cumsum(to.scores[at][1:] != to.scores[at][:-1], out=places[1:])
        # −inf always has the last code, 2·middle, which is larger than any place
        places[to.scores[at] == -np.inf] = 2 * coding.middle
        to.keys[at] = places.astype(kind) << kind(coding.bits) | ties
        to.levels[at] = coding.to_level[ties]
        to.scores[first + size] = -np.inf  # behind each part, to stop every search


def tie_keys(parts: Parts, row: int, of_level: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """The tie key, by which equal scores are ordered, of each item in the part of one row, (size,),
    by column. `of_level` (L + 1,): the key of each level. `parts.starts`, `parts.ends` (n, L): in
    column l − 1 the range of the items of level ≥ l, inside the part if l ≥ `parts.lowest`. Items
    of lower levels are in no metric, and count as level 0."""
    keys = np.full(parts.sizes[row], of_level[0], np.uint8)
    begin = parts.begins[row]
    # the range of a finer level is inside that of a coarser one, and overwrites it
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
    in the high bits, the tie key of the level in the low bits. Return whether all different scores
    have different codes; otherwise keys do not sort as scores do.

    `rows` (n, G): the bits of float32 scores. `keys`: a flat array of all parts. `parts.starts`,
    `parts.ends` (n, L): in column l − 1 the columns of the items of level ≥ l, for levels from
    `parts.lowest` on. Other items of a part, such as the query itself, count as level 0.
    """
    exact = True
    for row in range(len(parts.begins)):
        begin = parts.begins[row]
        part = keys[parts.offsets[row] : parts.offsets[row] + parts.sizes[row]]
        bits = rows[row, begin : begin + len(part)]
        # There are fewer codes than float32 numbers, `coding.middle` − 1 of them on each side of 0.
        # They count steps from a floor, chosen so that the largest size has the last step. Exact if
        # all sizes but 0 are above the floor: those at or below it all get the code of zero.
        floor, own_exact = floor_of(bits, coding.middle)
        exact &= own_exact
        write_codes(bits, floor, coding, coding.of_level[0], part)

        # the range of a finer level is inside that of a coarser one, and overwrites it
        for level in range(parts.lowest, parts.starts.shape[1] + 1):
            start = parts.starts[row, level - 1] - begin
            end = parts.ends[row, level - 1] - begin
            if end > start:
                write_codes(bits[start:end], floor, coding, coding.of_level[level], part[start:end])

    return exact


@compiled_part
def floor_of(bits: NDArray[np.uint32], middle: int) -> tuple[Scalar, bool]:
    """Return the floor of a part's finite scores, which is a size, and whether all scores but zero
    are above it, so that different scores have different codes. `middle`: the code of zero.

    A size is |score| as the bits of a float32 (`bits` without the sign), which increase with
    |score|. There are codes for `middle` − 1 steps above the floor. So the floor is the largest
    size minus that number, which gives the largest size the last step. The smallest size but zero
    has its own code if it is above the floor, since the floor itself is no step.
    """
    largest = np.uint32(0)
    smallest = np.uint32(SIZE)
    for item in range(len(bits)):
        size = np.uint32(bits[item] & np.uint32(SIZE))
        # a size is above the floor if size − 1 ≥ floor, so `smallest` is that of these differences
        less_one = np.uint32(size - np.uint32(1))  # zero wraps around to the largest number
        smallest = less_one if less_one < smallest else smallest
        # infinity has its own code, whatever the floor is
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
    """Write the keys (n,) of items of one level, which has the tie key `tie`, from the bits (n,) of
    their scores.

    Codes are 0 for +inf, `middle` for zero and 2·middle for −inf. A code is below the middle
    by what the score's size (its bits without the sign) exceeds `floor`, or above it by as much if
    the sign bit is set. Scores of a size up to the floor get the code of zero, since there are not
    enough codes; the caller knows whether there are such scores. `coding.bits`: of a tie key. All
    numbers are int32, so that the loop becomes vector instructions.
    """
    low = np.int32(floor)
    middle = np.int32(coding.middle)
    kind = keys.dtype.type
    for item in range(len(bits)):
        size = np.int32(bits[item] & np.uint32(SIZE))
        above = np.int32(size - low) if size > low else np.int32(0)
        above = above if above < middle else middle  # only infinity is so far above the floor
        # the sign bit is the top one: without it, the bits are a number below SIGN
        code = (
            np.uint32(middle - above) if bits[item] < np.uint32(SIGN) else np.uint32(middle + above)
        )
        keys[item] = kind(kind(code) << kind(coding.bits)) | kind(tie)


@compiled
def read_keys(
    rows: NDArray[np.uint32], parts: Parts, to: SortedKeys, scores: NDArray[np.uint32]
) -> None:
    """Turn the sorted keys in `to` back into scores and levels, and write −inf behind each part.

    A key has the code of a score in its high bits and the tie key of the level in its low bits. A
    code counts the steps of |score| above the floor of its part, downwards from `coding.middle` for
    positive scores and upwards for negative ones. The floor is computed again as `write_keys` did.

    `rows` (n, G): the bits of the unsorted scores. `parts`: the columns of each part, from `begins`
    on, and its place in flat arrays, from `offsets` on, `sizes` (n,) of each. `scores`: the bits of
    the scores of `to`, a flat array, which are written.
    """
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
        scores[first + size] = np.uint32(SIGN | INFINITE)  # −inf stops every search


@compiled_part
def read_codes(
    keys: NDArray[np.unsignedinteger], floor: int, coding: Coding, bits: NDArray[np.uint32]
) -> None:
    """Write the bits of the float32 scores (n,) that keys (n,) have, the inverse of `write_codes`.
    Code `middle` is zero, 0 is +inf, and 2·middle is −inf. Any other code is s steps below the
    middle for a positive score, or above it for a negative one; the bits of |score| are then
    `floor` + s, as the bits of every |score| but zero are above `floor`."""
    # the code is what is left of a key without its tie key, the lowest `coding.bits` bits
    shift = keys.dtype.type(coding.bits)
    middle = np.int64(coding.middle)
    for item in range(len(keys)):
        above = np.int64(keys[item] >> shift) - middle
        size = abs(above)
        magnitude = floor + size if size > 0 else 0
        magnitude = magnitude if size < middle else INFINITE  # infinity has the outermost codes
        bits[item] = np.uint32(magnitude) | np.uint32(SIGN if above > 0 else 0)
