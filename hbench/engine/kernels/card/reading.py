"""The kernel that turns ranked codes of partial labels into ranks and levels, the twin of
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
    """Ranked positives of n queries. `ranks`, `levels` (n, P): those of query q are the first
    `sizes[q]` of its row. `first` (n,): the level of the item ranked first, 0 if it is no positive.
    """

    ranks: Int32s
    levels: Uint8s
    sizes: Int32s
    first: Uint8s


class Meaning(NamedTuple):
    """What codes mean in a reading: for each code, whether an item `stays` in the list (1 or 0),
    and its level (`levels`)."""

    stays: Uint8s
    levels: Uint8s


class Counted(NamedTuple):
    """How many items are `removed` from a list, and how many are `listed`."""

    removed: Number
    listed: Number


class ReadItems(NamedTuple):
    """The items of a query that a thread reads: the query's `number`, the `span` of the items, and
    what was counted `before` them."""

    number: Number
    span: Span
    before: Counted


@card_kernel
def read_lists(coded: Listed, meaning: Meaning, out: Listed) -> None:
    """Write the lists of n queries with levels in place of codes. Each block of threads handles one
    query.

    `meaning` is the same for all queries. For each code it has a level, and whether an item of this
    code stays in the list: under partial labels, a reading may leave out items of unknown level. An
    item that does not stay is removed, and all items behind it move up by one rank. An item that
    stays at level 0 becomes a distractor: it keeps its rank but is not listed.
    """
    sums = cuda.shared.array(THREADS, int64)
    query = cuda.blockIdx.x
    # the level of the item ranked first: 0 unless a listed positive gets rank 1 below
    if cuda.threadIdx.x == 0:
        out.first[query] = 0
    cuda.syncthreads()

    size = coded.sizes[query]
    # `done`: how many items before `start` were removed, and how many are listed. In each turn, the
    # block handles `at_once()` items, of which each thread takes some neighbouring ones. The items
    # of the threads before it are counted, in both ways, by running sums over the threads.
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
    """Write the ranks and levels of those items of a thread that stay (`meaning`) at a level above
    0. Items come in order of rank, so each rank is lowered by the number of items that were removed
    before.
    """
    # how many items were removed and listed before those of this thread
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
