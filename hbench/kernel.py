"""The kernel: one row of scores becomes the ranks and levels of the query's positives, compiled by numba.

In canonical order the positives are one range of the row, and in it lie the items of level ≥ l for every l. Only the
positives are sorted (by numpy, whose sort is the fastest on a CPU); every distractor is looked up among them once, and
how many distractors are above each positive gives its rank. The lookup divides the range of the positives' scores into
equal buckets; `before[b]` is the number of positives in the buckets before b.

A slot is a position in the ascending order of the positives. Equal scores are ordered by one flag: `pessimistic`, the
item of lower level first, or its contrary.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hbench.compiled import Scalar, compiled

BUCKETS = 4  # per positive: most then hold none or one, and a lookup seldom has to search
TILE = 1024  # scores whose buckets are computed at once, in vector instructions, and stay in the first cache


class Lookup(NamedTuple):
    """`ordered` (P + 1,): the positives' scores, ascending, then +inf, where every search stops. `before` (buckets+1,).

    `scale`: buckets per unit of score, () of the type of the scores.
    """

    ordered: NDArray[np.floating]
    before: NDArray[np.int32]
    scale: np.floating


class Scratch(NamedTuple):
    """Room for queries of up to P positives: int32 (BUCKETS·P + 1,) and (P + 1,), uint8 (P,); the results (P,)."""

    before: NDArray[np.int32]
    below: NDArray[np.int32]
    slots: NDArray[np.uint8]
    ranks: NDArray[np.int32]
    levels: NDArray[np.uint8]


def scratch(positives: int) -> Scratch:
    """Scratch for queries of at most so many positives."""
    before, below = np.empty(BUCKETS * positives + 1, np.int32), np.empty(positives + 1, np.int32)
    slots, levels = np.empty(positives, np.uint8), np.empty(positives, np.uint8)
    return Scratch(before, below, slots, np.empty(positives, np.int32), levels)


@compiled
def bucket_of(score: Scalar, low: Scalar, scale: Scalar, top: Scalar) -> Scalar:
    """⌊(score − low)·scale⌋ clipped to 0 … top: one formula to build and to look up, so it is monotone to the bit."""
    position = (score - low) * scale
    return np.int32(min(position, top)) if position > 0 else np.int32(0)


@compiled
def count_positives(lookup: Lookup) -> None:
    """Fill `before`: count the positives per bucket, then sum up."""
    ordered, before, scale = lookup
    low, top = ordered[0], ordered.dtype.type(len(before) - 2)
    before[:] = 0
    for slot in range(np.uint64(len(ordered) - 1)):
        before[np.uint64(bucket_of(ordered[slot], low, scale, top)) + np.uint64(1)] += np.int32(1)
    total = np.int32(0)
    for bucket in range(np.uint64(len(before))):
        total += before[bucket]
        before[bucket] = total


@compiled
def first_not_below(ordered: NDArray[np.floating], score: Scalar, low: Scalar, high: Scalar) -> Scalar:
    """The first slot in [low, high) whose score is not below `score`; `high` if there is none."""
    while low < high:
        middle = (low + high) // np.uint64(2)
        if ordered[middle] < score:
            low = middle + np.uint64(1)
        else:
            high = middle
    return low


@compiled
def first_above(ordered: NDArray[np.floating], score: Scalar, low: Scalar, high: Scalar) -> Scalar:
    """The first slot in [low, high) whose score is above `score`; `high` if there is none."""
    while low < high:
        middle = (low + high) // np.uint64(2)
        if ordered[middle] <= score:
            low = middle + np.uint64(1)
        else:
            high = middle
    return low


@compiled
def count_distractors(
    scores: NDArray[np.floating], lookup: Lookup, pessimistic: bool, below: NDArray[np.int32]
) -> bool:
    """Add every distractor to `below[s]`, s the number of positives it ranks above; whether one equals a positive."""
    ordered, before, scale = lookup
    low, top = ordered[0], ordered.dtype.type(len(before) - 2)
    buckets = np.empty(TILE, np.int32)
    one, tied = np.uint64(1), False
    for start in range(0, len(scores), TILE):
        tile = scores[start : start + TILE]
        for i in range(len(tile)):
            buckets[i] = bucket_of(tile[i], low, scale, top)
        for i in range(np.uint64(len(tile))):
            score = tile[i]
            slot: Scalar = np.uint64(before[np.uint64(buckets[i])])
            slot += np.uint64(ordered[slot] < score)  # no branch: most often the last step
            if ordered[slot] <= score:
                end = np.uint64(before[np.uint64(buckets[i]) + one])
                slot = first_not_below(ordered, score, slot, end)
                if ordered[slot] == score:
                    tied = True
                    slot = first_above(ordered, score, slot, end) if pessimistic else slot
            below[slot] += np.int32(1)
    return tied


@compiled
def place(
    scores: NDArray[np.floating], level: Scalar, lookup: Lookup, pessimistic: bool, slots: NDArray[np.uint8]
) -> None:
    """Write `level` to the slots of positives of exactly this level, after those of the higher ones."""
    ordered, before, scale = lookup
    low, top, one = ordered[0], ordered.dtype.type(len(before) - 2), np.uint64(1)
    for score in scores:
        if not score >= low:
            continue  # left out of the list
        bucket = np.uint64(bucket_of(score, low, scale, top))
        slot: Scalar = np.uint64(before[bucket])
        slot += np.uint64(ordered[slot] < score)
        if ordered[slot] < score:
            slot = first_not_below(ordered, score, slot, np.uint64(before[bucket + one]))
        if ordered[slot + one] == score:
            end = first_above(ordered, score, slot, np.uint64(before[bucket + one]))
            slot = free_slot(slots, slot, end, pessimistic)
        slots[slot] = level


@compiled
def free_slot(slots: NDArray[np.uint8], low: Scalar, high: Scalar, pessimistic: bool) -> Scalar:
    """The next slot in a run of equal scores: the taken ones are its lower end, which ranks last, or its upper end."""
    while low < high:
        middle = (low + high) // np.uint64(2)
        if (slots[middle] > 1) == pessimistic:
            low = middle + np.uint64(1)
        else:
            high = middle
    return low if pessimistic else low - np.uint64(1)


@compiled
def place_nested(
    row: NDArray[np.floating],
    ranges: tuple[NDArray[np.int64], NDArray[np.int64]],
    lookup: Lookup,
    pessimistic: bool,
    slots: NDArray[np.uint8],
) -> None:
    """The levels of all slots: 1, but for the ranges of level ≥ 2, placed from the innermost outwards."""
    starts, ends = ranges
    slots[:] = 1
    inner_start = inner_end = 0
    for level in range(len(starts), 1, -1):
        start, end = starts[level - 1], ends[level - 1]
        if inner_end == inner_start:
            inner_start = inner_end = start
        if end > start:
            place(row[start:inner_start], np.uint8(level), lookup, pessimistic, slots)
            place(row[inner_end:end], np.uint8(level), lookup, pessimistic, slots)
            inner_start, inner_end = start, end


@compiled
def rank_positives(
    row: NDArray[np.floating],
    ranges: tuple[NDArray[np.int64], NDArray[np.int64]],
    ordered: NDArray[np.floating],
    pessimistic: bool,
    room: Scratch,
) -> bool:
    """Write the ranks, increasing, and levels of a query's P ≥ 1 positives to `room`; whether it is tied across levels.

    `row` (G,): scores in canonical order, −inf where left out. `ranges`: starts, ends (L,) of the items of level ≥ l.
    """
    positives = len(ordered) - 1
    span = ordered[positives - 1] - ordered[0]
    before, below, slots = room.before[: BUCKETS * positives + 1], room.below[: positives + 1], room.slots[:positives]
    lookup = Lookup(ordered, before, row.dtype.type((len(before) - 1) / span if span > 0 else 0))
    count_positives(lookup)
    below[:] = 0
    tied = count_distractors(row[: ranges[0][0]], lookup, pessimistic, below)
    tied |= count_distractors(row[ranges[1][0] :], lookup, pessimistic, below)
    place_nested(row, ranges, lookup, pessimistic, slots)
    rank = np.int32(0)
    for index in range(np.uint64(positives)):
        slot: Scalar = np.uint64(positives) - np.uint64(1) - index
        rank += below[slot + np.uint64(1)] + np.int32(1)
        room.ranks[index], room.levels[index] = rank, slots[slot]
    for slot in range(np.uint64(1), np.uint64(positives)):
        tied |= (ordered[slot] == ordered[slot - np.uint64(1)]) & (slots[slot] != slots[slot - np.uint64(1)])
    return tied
