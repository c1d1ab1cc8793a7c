"""Ranks of very many positives: one row's, sorted, are merged with its distractors, sorted too.

A table of so many positives would leave the second cache, where a lookup takes longer than sorting and merging.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hbench.compiled import Scalar, compiled
from hbench.kernel import How, Ranked
from hbench.order import Parts, Sorted, are_tied

Floats = NDArray[np.floating]


class Many(NamedTuple):
    """One row to merge: the `scores` (P,) and `levels` (P,) of its sorted positives, descending; the scores of the
    `others` (D + 1,), ascending after one of −inf."""

    scores: Floats
    levels: NDArray[np.uint8]
    others: Floats


Merge = Callable[[Many, bool, NDArray[np.int32]], bool]


def merge_rows(
    rows: Floats, sorted_parts: tuple[Parts, Sorted], how: How, to: tuple[Floats, Ranked], by: Merge
) -> None:
    """Rank the positives of those of the rows (n, G) that have `many`; the first of `to` is room for G + 1 scores."""
    (parts, by_score), (room, out) = sorted_parts, to
    for row in np.flatnonzero(out.ends - out.starts >= max(how.many, 1)).tolist():
        own, offset = slice(out.starts[row], out.ends[row]), parts.offsets[row]
        part = slice(offset, offset + own.stop - own.start)
        out.levels[own] = by_score.levels[part]
        many = Many(by_score.scores[part], out.levels[own], sorted_others(rows[row], parts, row, room))
        out.tied[row] = by(many, how.pessimistic, out.ranks[own])


def sorted_others(scores: Floats, parts: Parts, row: int, room: Floats) -> Floats:
    """The scores (G,) of one row outside its part, ascending after one of −inf, in `room`."""
    begin, end = int(parts.begins[row]), int(parts.begins[row] + parts.sizes[row])
    others = room[: 1 + len(scores) - (end - begin)]
    others[0], others[1 : 1 + begin], others[1 + begin :] = -np.inf, scores[:begin], scores[end:]
    others.sort()
    return others


@compiled
def merge(many: Many, pessimistic: bool, ranks: NDArray[np.int32]) -> bool:
    """Write the ranks (P,) of the positives; whether another order of equal scores would give other levels.

    One step of a merge waits for the one before. Two merges at once, from the best positive and from the middle one,
    take half as long.
    """
    own, levels, others = many
    one, last, middle = np.uint64(1), np.uint64(len(others) - 1), np.uint64(len(own) // 2)
    slot, other, tied = np.uint64(0), last, False
    slot_2, other_2 = middle, np.uint64(np.searchsorted(others, own[middle], side="right") - 1)
    while (slot < middle) | (slot_2 < np.uint64(len(own))):
        if slot < middle:
            ranks[slot] = slot + (last - other) + one
            comes, equal = comes_first(others[other], own[slot], pessimistic)
            other, slot, tied = other - np.uint64(comes), slot + np.uint64(not comes), tied | equal
        if slot_2 < np.uint64(len(own)):
            ranks[slot_2] = slot_2 + (last - other_2) + one
            comes, equal = comes_first(others[other_2], own[slot_2], pessimistic)
            other_2, slot_2, tied = other_2 - np.uint64(comes), slot_2 + np.uint64(not comes), tied | equal
    return tied | are_tied(own, levels)


@compiled
def comes_first(other: Scalar, own: Scalar, pessimistic: bool) -> tuple[bool, bool]:
    """Whether a distractor's score ranks before a positive's own, and whether they are equal."""
    equal = other == own
    return (other > own) | (equal & pessimistic), equal
