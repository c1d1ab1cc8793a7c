"""Sorts the positives of one part by score, best first, and equal scores by the tie key of their
code. A part has few positives, or many whose scores are equal or nearly equal.
"""

from __future__ import annotations

from typing import NamedTuple

from hbench.engine.kernels.card.compiling import (
    Float32s,
    Number,
    Uint8s,
    card_call,
    card_part,
    uint32,
)


class Slotted(NamedTuple):
    """The positives of one query: `scores`, `codes` (P,), and the tie `keys` by code."""

    scores: Float32s
    codes: Uint8s
    keys: Uint8s


@card_part
def place_among(unsorted: Slotted, slot: Number, first: Number, last: Number) -> Number:
    """Return the place that the positive in `slot` has after its part, the slots from `first` to
    `last`, is sorted: best first, equal scores by the tie key of their code (the lower key comes
    first), and equal keys by slot. `unsorted`: scores and codes by slot, and tie keys by code.
    """
    score = unsorted.scores[slot]
    key = unsorted.keys[unsorted.codes[slot]]
    place = first
    for each in range(first, last):
        other = uint32(each)  # unsigned, so that numba adds no code for negative indices
        beside = unsorted.scores[other]
        if beside > score:
            place += uint32(1)
        elif beside == score and other != slot:
            other_key = unsorted.keys[unsorted.codes[other]]
            if other_key < key or (other_key == key and other < slot):
                place += uint32(1)
    return place


@card_part
def copy(unsorted: Slotted, slot: Number, ordered: Slotted, place: Number) -> None:
    """Copy the score and the code in a slot of `unsorted` to a place of `ordered`."""
    ordered.scores[place] = unsorted.scores[slot]
    ordered.codes[place] = unsorted.codes[slot]


@card_call
def sort_part(positives: Slotted, first: Number, last: Number) -> None:
    """Sort the positives in the slots from `first` to `last` − 1, best first, in place: by falling
    score, and those of equal scores by the tie keys of their codes. Only one thread calls this, for
    a part with many positives, whose scores are equal or nearly equal."""
    equal = True
    for slot in range(first + 1, last):
        equal &= positives.scores[slot] == positives.scores[first]
    if equal:
        sort_equal(positives, first, last)
    else:
        sort_many(positives, first, last)


@card_part
def comes_first(positives: Slotted, slot: Number, score: Number, code: Number) -> bool:
    """Whether the positive in a slot ranks before one with this score and code: its score is
    higher, or the scores are equal and the tie key of its code is lower."""
    other = positives.scores[slot]
    keys = positives.keys
    return bool(other > score or (other == score and keys[positives.codes[slot]] < keys[code]))


@card_call
def sort_equal(positives: Slotted, first: Number, last: Number) -> None:
    """Sort the codes in the slots from `first` to `last` by their tie keys. All scores there are
    equal, so they stay in place. For each key, one pass swaps the codes with this key to the front
    of the unsorted rest."""
    codes = positives.codes
    place = first
    for key in range(len(positives.keys)):
        for slot in range(place, last):
            if positives.keys[codes[slot]] == key:
                code = codes[slot]
                codes[slot] = codes[place]
                codes[place] = code
                place += 1


@card_call
def sort_many(positives: Slotted, first: Number, last: Number) -> None:
    """Sort the slots from `first` to `last` in place by heap sort, which needs no other memory and
    at worst n·log n steps. The top of the heap ranks last, and is moved to the end."""
    size = last - first
    for top in range(size // 2 - 1, -1, -1):
        sink(positives, first, top, size)
    for end in range(size - 1, 0, -1):
        swap(positives, first, first + end)
        sink(positives, first, 0, end)


@card_call
def sink(positives: Slotted, first: Number, top: Number, size: Number) -> None:
    """Move the positive at place `top` of a heap down, until both of its children rank before it.

    The heap has `size` places, from slot `first` on. The children of place p are 2p + 1 and 2p + 2.
    """
    scores = positives.scores
    codes = positives.codes
    place = top
    while 2 * place + 1 < size:
        below = first + 2 * place + 1
        other = below + 1
        # choose the child that ranks later, to move up: the other one if this one comes first
        if other < first + size and comes_first(positives, below, scores[other], codes[other]):
            below = other
        if not comes_first(positives, first + place, scores[below], codes[below]):
            return
        swap(positives, first + place, below)
        place = below - first


@card_part
def swap(positives: Slotted, one: Number, other: Number) -> None:
    """Exchange the positives of two slots."""
    score = positives.scores[one]
    code = positives.codes[one]
    positives.scores[one] = positives.scores[other]
    positives.codes[one] = positives.codes[other]
    positives.scores[other] = score
    positives.codes[other] = code
