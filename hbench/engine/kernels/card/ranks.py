"""The kernel: rows of scores become the ranks and codes of the queries' positives, a block of
threads per query.

As on the processor, only positives are sorted, and every distractor is looked up among them once;
how many come before each positive gives its rank. Here they are sorted by buckets: BUCKETS of equal
width tell how the scores are spread, and each is divided into parts by how many positives it holds.
So a part holds a few positives wherever they crowd, and each of these finds its place by comparing
itself with the others. The same parts tell a distractor in few steps between which positives it
lies.

The table of the parts lies in the memory that a block shares, and so do the counts of distractors
where they fit, else in the card's.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hbench.engine.kernels.card.compiling import (
    Float32s,
    Int32s,
    Number,
    Uint8s,
    card_kernel,
    card_part,
    cuda,
    float32,
    int32,
    int64,
    sizes,
    uint8,
    uint32,
)
from hbench.engine.kernels.card.of_block import (
    at_once,
    largest,
    running,
    span_from,
    sum_up_before,
    total,
)
from hbench.engine.kernels.card.parts import Slotted, copy, place_among, sort_part

THREADS = sizes(512, 2)
BUCKETS = sizes(512, 8)
FIRSTS = BUCKETS + 1  # a name, for the compiler takes no sum for a size
# numbers of the parts' table and of the counts: what 48 KB, all that may be asked for without more
# ado, leave beside the other arrays
POOL = sizes(10_700, 40)
PER_PART = 2  # positives, where that does not make too many parts
SHORT = uint32(sizes(96, 4))  # positives up to which those of a part are compared with each other
INFINITY = float32(np.inf)
WIDEST = float32(3.4e38)  # a scale of more would be infinite


class CardRanges(NamedTuple):
    """Where the positives of n queries lie, as sort_keys.Parts: `begins`, `sizes` (n,); `starts`,
    `ends` (n, K) by code; `keys` (K + 1,): the tie key of every code. `lowest`: the lowest code
    that is listed; `pessimistic`: whether a distractor comes before a positive of its score;
    `nested`: whether each range lies in the one before."""

    begins: Int32s
    sizes: Int32s
    starts: Int32s
    ends: Int32s
    keys: Uint8s
    lowest: int
    pessimistic: bool
    nested: bool


class Slots(NamedTuple):
    """The positives of n queries, best first, (n, P) each: `scores`, `codes`, `ranks`; and the
    first two part by part, before they are sorted. Behind a query's last positive lies anything."""

    scores: Float32s
    codes: Uint8s
    ranks: Int32s
    unsorted_scores: Float32s
    unsorted_codes: Uint8s


class Found(NamedTuple):
    """What else is found of n queries, (n,) each: the number of `positives`; the items `left_out`
    of the list; the code of the item ranked `first`, 0 where it is no positive; whether another
    order of equal scores would give other codes, `tied`; whether a score is beyond all floats."""

    positives: Int32s
    left_out: Int32s
    first: Uint8s
    tied: Uint8s
    overflows: Uint8s


class RankedQuery(NamedTuple):
    """One query at work: its scores (G,), its number, the range of its positives; all ranges, what
    is found, and a place per thread for `sums`."""

    scores: Float32s
    query: Number
    begin: Number
    end: Number
    ranges: CardRanges
    found: Found
    sums: Int32s


class Buckets(NamedTuple):
    """How the positives of a query are divided: the best score; buckets per unit of score; the
    first part of every bucket (BUCKETS + 1,); where each part ends among the sorted positives."""

    high: Number
    scale: Number
    firsts: Int32s
    table: Int32s


class Sorted(NamedTuple):
    """The positives of one query, best first: of `size`, the worst score `low`; `scores`, `codes`
    (P,) and, for each, the distractors between it and the one before, `above` (P,)."""

    size: Number
    low: Number
    scores: Float32s
    codes: Uint8s
    above: Int32s


@card_kernel
def rank_rows(rows: Float32s, ranges: CardRanges, slots: Slots, found: Found) -> None:
    """Rank the positives of n rows of scores (n, G), −inf where left out of the list; a block of
    threads per query. Writes the ranks and codes to `slots`, the rest to `found`."""
    # memory that the threads of a block share: counts, places of buckets, and a number per thread
    pool = cuda.shared.array(POOL, int32)
    firsts = cuda.shared.array(FIRSTS, int32)
    sums = cuda.shared.array(THREADS, int32)
    extremes = cuda.shared.array(THREADS, float32)
    query = cuda.blockIdx.x
    # where in flat arrays the ranges of this query's positives stand
    begin = ranges.begins[query]
    end = begin + ranges.sizes[query]
    row = RankedQuery(rows[query], query, begin, end, ranges, found, sums)
    if cuda.threadIdx.x == 0:
        found.tied[query] = 0
        found.overflows[query] = 0
    cuda.syncthreads()

    low, high, positives = score_range_of_positives(row, extremes)
    buckets = Buckets(high, scale_of(low, high), firsts, pool)
    # buckets of many positives are cut into several parts: how many there are
    parts = divide(row, buckets, positives)
    sort_positives(row, buckets, slots)
    scores = slots.scores[query]
    codes = slots.codes[query]
    # two calls of one function: the compiler writes it out twice, and so knows in each which memory
    # it counts in, the block's own where there is room, else the card's
    if parts + 1 + positives <= POOL:
        listed = Sorted(positives, low, scores, codes, pool[parts + 1 :])
        count_and_add_up(row, buckets, listed, slots.ranks[query])
    else:
        listed = Sorted(positives, low, scores, codes, slots.ranks[query])
        count_and_add_up(row, buckets, listed, slots.ranks[query])


@card_part
def count_and_add_up(row: RankedQuery, buckets: Buckets, listed: Sorted, ranks: Int32s) -> None:
    """Count the distractors between the sorted positives of one query, and write the ranks; and how
    many items were left out of the list, so that its length is known.

    `count_distractors` returns for each thread how many of the items at its columns are left out
    outside of the positives; within them they are what is not listed.
    """
    for slot in range(cuda.threadIdx.x, listed.size, cuda.blockDim.x):
        listed.above[slot] = 0
    cuda.syncthreads()

    beyond = count_distractors(row, buckets, listed)
    cuda.syncthreads()
    add_up(row, listed, ranks)
    left_out = total(beyond, row.sums) + row.end - row.begin - listed.size
    if cuda.threadIdx.x == 0:
        row.found.positives[row.query] = listed.size
        row.found.left_out[row.query] = left_out


@card_part
def score_range_of_positives(row: RankedQuery, extremes: Float32s) -> tuple[Number, Number, Number]:
    """Return the worst and the best score of a query's positives, and their number; `extremes`
    (T,): memory that the T threads have in common.
    """
    low = INFINITY
    high = -INFINITY
    positives = int32(0)
    for column in range(row.begin + cuda.threadIdx.x, row.end, cuda.blockDim.x):
        score = row.scores[column]
        if score != -INFINITY:
            low = min(low, score)
            high = max(high, score)
            positives += int32(1)
            if not score < INFINITY:  # also of NaN; the host refuses such a query later
                row.found.overflows[row.query] = 1
    # each thread has seen some columns: the results are those of all threads
    return -largest(-low, extremes), largest(high, extremes), total(positives, row.sums)


@card_part
def scale_of(low: Number, high: Number) -> Number:
    """How many buckets one unit of score takes, so that those of equal width reach from the best
    score, `high`, to the worst, `low`; 0, a single bucket, where all scores are equal, or too far
    apart for float32."""
    span = high - low
    if span > 0 and span < INFINITY:
        return min(float32(BUCKETS - 1) / span, WIDEST)
    return float32(0)


@card_part
def place_of(score: Number, buckets: Buckets) -> Number:
    """The bucket of a score, and how far into the bucket the score lies, as one number: 3.25 is a
    quarter into bucket 3. Buckets count from the best score down."""
    place = (buckets.high - score) * buckets.scale
    # written so that what is no number has a place, too: the query is refused later
    return min(place, float32(BUCKETS - 1)) if place > 0 else float32(0)


@card_part
def part_of(score: Number, buckets: Buckets) -> Number:
    """Return the number of the part in which a score falls; higher scores never fall in later
    parts, whatever is rounded. A bucket is cut into parts of equal width (`divide`).
    """
    # unsigned places, here and below: numba then adds no code for indices from the end (−1)
    place = place_of(score, buckets)
    bucket = uint32(place)
    first = buckets.firsts[bucket]
    parts = buckets.firsts[bucket + uint32(1)] - first
    part = int32((place - float32(bucket)) * float32(parts))
    return uint32(first + min(part, parts - int32(1)))


@card_part
def start_of(part: Number, buckets: Buckets) -> Number:
    """The first slot of a part: where the part before ends, for the table holds the ends of the
    parts by now (`sort_positives`)."""
    return uint32(buckets.table[part - uint32(1)] if part > 0 else int32(0))


@card_part
def divide(row: RankedQuery, buckets: Buckets, positives: Number) -> Number:
    """Divide the buckets, which cut the scores into equal widths, into parts, the more, the more
    positives a bucket holds, so that a part holds few; return the number of parts.
    `buckets.firsts` (BUCKETS + 1,) holds three things of each bucket, one after the other: how many
    positives it has, how many parts, and at last the number of its first part.
    """
    firsts = buckets.firsts
    for bucket in range(cuda.threadIdx.x, BUCKETS, cuda.blockDim.x):
        firsts[bucket] = 0
    cuda.syncthreads()

    for column in range(row.begin + cuda.threadIdx.x, row.end, cuda.blockDim.x):
        score = row.scores[column]
        if score != -INFINITY:
            cuda.atomic.add(firsts, uint32(place_of(score, buckets)), 1)
    cuda.syncthreads()

    # each bucket has one part, and shares in these by its positives; so few that the table fits in
    # any case
    wanted = min(positives // PER_PART, POOL - FIRSTS - 1)
    for bucket in range(cuda.threadIdx.x, BUCKETS, cuda.blockDim.x):
        firsts[bucket] = 1 + int64(firsts[bucket]) * wanted // max(positives, int32(1))
    cuda.syncthreads()
    sum_up_before(firsts, BUCKETS, row.sums)
    return firsts[BUCKETS]


@card_part
def sort_positives(row: RankedQuery, buckets: Buckets, slots: Slots) -> None:
    """Write the scores and codes of the positives, best first, and where each part ends.

    Scores fall into buckets of equal width, and a full bucket is cut into several parts: `firsts`
    (BUCKETS + 1,) has the first part of each, and their number at its end. `table` (parts,) holds
    the sizes of the parts, then their starts, then their ends.
    """
    table = buckets.table
    parts = buckets.firsts[BUCKETS]
    thread = cuda.threadIdx.x
    threads = cuda.blockDim.x
    for part in range(thread, parts, threads):
        table[part] = 0
    cuda.syncthreads()

    for column in range(row.begin + thread, row.end, threads):
        score = row.scores[column]
        if score != -INFINITY:
            cuda.atomic.add(table, part_of(score, buckets), 1)
    cuda.syncthreads()
    sum_up_before(table, parts, row.sums)

    # the start of each part moves on to its end
    scores = slots.unsorted_scores[row.query]
    codes = slots.unsorted_codes[row.query]
    for column in range(row.begin + thread, row.end, threads):
        score = row.scores[column]
        if score != -INFINITY:
            slot = uint32(cuda.atomic.add(table, part_of(score, buckets), 1))
            scores[slot] = score
            codes[slot] = code_of(row.ranges, row.query, column)
    cuda.syncthreads()

    order_parts(row, buckets, slots)
    cuda.syncthreads()


@card_part
def order_parts(row: RankedQuery, buckets: Buckets, slots: Slots) -> None:
    """Write the positives of a query best first. They lie part by part (scores near each other)
    but unsorted: in a short part each positive counts how many come before it, and a long one is
    sorted by one thread, that of its first slot."""
    keys = row.ranges.keys
    query = row.query
    unsorted = Slotted(slots.unsorted_scores[query], slots.unsorted_codes[query], keys)
    ordered = Slotted(slots.scores[query], slots.codes[query], keys)
    # table[p] is by now the end of part p, and firsts[BUCKETS] the number of parts: the end of the
    # last one is the number of positives
    size = buckets.table[buckets.firsts[BUCKETS] - 1]
    for each in range(cuda.threadIdx.x, size, cuda.blockDim.x):
        slot = uint32(each)
        part = part_of(unsorted.scores[slot], buckets)
        first = start_of(part, buckets)
        last = uint32(buckets.table[part])
        if last - first <= SHORT:
            copy(unsorted, slot, ordered, place_among(unsorted, slot, first, last))
        elif slot == first:
            sort_part(unsorted, int32(first), int32(last))
            for place in range(first, last):
                copy(unsorted, place, ordered, place)


@card_part
def code_of(ranges: CardRanges, query: Number, column: Number) -> Number:
    """The code of the item in a column, for a query: the number, from 1, of the last of the ranges
    in which it lies, since each is written over those before; 0 for a distractor."""
    code = uint8(0)
    for each in range(ranges.lowest - 1, ranges.starts.shape[1]):
        if ranges.starts[query, each] <= column < ranges.ends[query, each]:
            code = uint8(each + 1)
        elif ranges.nested:  # what lies outside of one lies outside of all later ones
            break
    return code


@card_part
def count_distractors(row: RankedQuery, buckets: Buckets, listed: Sorted) -> Number:
    """Add every distractor that comes before some positive to `listed.above`, at the first positive
    behind it; return how many of the items this thread looked at are left out of the list.

    Also marks the query where a distractor ties with a positive, or a score overflows.
    """
    left_out = int32(0)
    size = uint32(listed.size)
    pessimistic = row.ranges.pessimistic
    others = len(row.scores) - (row.end - row.begin)
    for place in range(cuda.threadIdx.x, others, cuda.blockDim.x):
        # the columns before the range of the positives, then those behind it
        column = place if place < row.begin else place + row.end - row.begin
        score = row.scores[uint32(column)]
        if score >= listed.low:
            if score == INFINITY:
                row.found.overflows[row.query] = 1
            # the first positive that comes behind it; `size` where none does
            slot = slot_of(score, buckets, listed, pessimistic)
            # the nearest positive on the side where one of its score would be
            if pessimistic:
                is_tied = slot < size and listed.scores[slot] == score
            else:
                is_tied = slot > 0 and listed.scores[slot - uint32(1)] == score
            if is_tied:
                row.found.tied[row.query] = 1
            if slot < size:
                cuda.atomic.add(listed.above, slot, 1)
        elif score == -INFINITY:
            left_out += int32(1)
        elif not score < INFINITY:  # NaN
            row.found.overflows[row.query] = 1
    return left_out


@card_part
def slot_of(score: Number, buckets: Buckets, listed: Sorted, pessimistic: bool) -> Number:
    """The slot, its place among the sorted positives, of the first positive that a distractor of
    this score comes before: found by halving the bucket of this score, which ends among the sorted
    positives where `buckets.table` (buckets,) says. At equal scores the distractor
    comes first if `pessimistic`."""
    part = part_of(score, buckets)
    low = start_of(part, buckets)
    high = uint32(buckets.table[part])
    while low < high:
        middle = uint32((low + high) >> uint32(1))
        other = listed.scores[middle]
        if other > score or (other == score and not pessimistic):
            low = middle + uint32(1)
        else:
            high = middle
    return uint32(low)


@card_part
def add_up(row: RankedQuery, listed: Sorted, ranks: Int32s) -> None:
    """Write the rank, from 1, of every positive of one query: the positives and distractors before
    it, the latter summed up over `listed.above`. Also write the code of the item at rank 1, and
    whether positives of different codes tie."""
    # the best positive is at rank 1 where no distractor comes before it
    if cuda.threadIdx.x == 0:
        is_first = listed.size > 0 and listed.above[0] == 0
        row.found.first[row.query] = listed.codes[0] if is_first else uint8(0)

    done = int32(0)  # distractors before `start`
    for start in range(0, listed.size, at_once()):
        # each thread sums up some neighbours, and learns the sum of the threads before it
        span = span_from(start, listed.size)
        own = int32(0)
        for slot in range(span.begin, span.end):
            own += listed.above[slot]
        before, of_all = running(own, row.sums)

        before += done
        for slot in range(span.begin, span.end):
            before += listed.above[slot]
            ranks[slot] = before + slot + 1
            is_equal = slot > 0 and listed.scores[slot] == listed.scores[slot - 1]
            if is_equal and listed.codes[slot] != listed.codes[slot - 1]:
                row.found.tied[row.query] = 1
        done += of_all
