"""The kernel: ranked codes of partial labels are read as ranks and levels, the twin of
rank_positives.leave_out.
"""

from __future__ import annotations

from typing import NamedTuple

from hbench.engine.kernels.card.compiling import (
    Int32s,
    Number,
    Uint8s,
    card_kernel,
    card_part,
    cuda,
    int64,
    sizes,
)
from hbench.engine.kernels.card.of_block import Span, at_once, running, span_from

THREADS = sizes(256, 2)


class Listed(NamedTuple):
    """Ranked positives of n queries: `ranks`, `levels` (n, P), of query q the first `sizes[q]`; the
    level of the item ranked `first` (n,), 0 where it is no positive."""

    ranks: Int32s
    levels: Uint8s
    sizes: Int32s
    first: Uint8s


class Meaning(NamedTuple):
    """What the codes of a reading mean: whether an item `stays` in the list, 1 or 0, and its
    `levels`, by code."""

    stays: Uint8s
    levels: Uint8s


class Counted(NamedTuple):
    """The items of some that are `removed` from a list, and those that are `listed`."""

    removed: Number
    listed: Number


class ReadItems(NamedTuple):
    """A query, the items of it that a thread reads, and what was counted before these."""

    number: Number
    span: Span
    before: Counted


@card_kernel
def read_lists(coded: Listed, meaning: Meaning, out: Listed) -> None:
    """Write the lists of n queries with the levels that codes mean, a block of threads per query.

    An item that does not stay gives its rank up to those behind it; one that stays and is of level
    0 is a distractor from then on, and is not listed.
    """
    sums = cuda.shared.array(THREADS, int64)
    query = cuda.blockIdx.x
    if cuda.threadIdx.x == 0:
        out.first[query] = 0
    cuda.syncthreads()

    size = coded.sizes[query]
    # `done`: how many items before `start` were removed, and how many were listed. Each thread
    # takes some neighbours; running sums tell it both numbers of the threads before it
    done = Counted(int64(0), int64(0))
    for start in range(0, size, at_once()):
        span = span_from(start, size)
        own = count_read(coded.levels[query], span, meaning)
        removed, all_removed = running(own.removed, sums)
        listed, all_listed = running(own.listed, sums)
        before = Counted(done.removed + removed, done.listed + listed)
        write_listed(coded, ReadItems(query, span, before), meaning, out)
        done = Counted(done.removed + all_removed, done.listed + all_listed)

    if cuda.threadIdx.x == 0:
        out.sizes[query] = done.listed


@card_part
def count_read(codes: Uint8s, span: Span, meaning: Meaning) -> Counted:
    """Count how many of one query's items in a span are removed from the list, and how many stay
    with a level above 0; `codes` (P,) of its items."""
    removed = int64(0)
    listed = int64(0)
    for item in range(span.begin, span.end):
        stays = int64(meaning.stays[codes[item]])
        removed += int64(1) - stays
        listed += stays * int64(meaning.levels[codes[item]] > 0)
    return Counted(removed, listed)


@card_part
def write_listed(coded: Listed, query: ReadItems, meaning: Meaning, out: Listed) -> None:
    """Write the ranks and levels of the items that are listed, where the codes mean this. An item
    that does not stay leaves its rank to those behind it, so every rank falls by the number of
    items removed before.
    """
    # the threads before this one have removed and listed so many
    removed = query.before.removed
    place = query.before.listed
    for item in range(query.span.begin, query.span.end):
        code = coded.levels[query.number, item]
        level = meaning.levels[code]
        if meaning.stays[code] == 0:
            removed += int64(1)
        elif level > 0:
            rank = coded.ranks[query.number, item] - removed
            out.ranks[query.number, place] = rank
            out.levels[query.number, place] = level
            if rank == 1:
                out.first[query.number] = level
            place += int64(1)
