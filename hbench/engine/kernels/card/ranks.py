"""The kernel that computes the ranks and codes of the queries' positives from rows of scores; each
block of threads handles one query.

As on the processor, only positives are sorted, and each distractor is looked up once among them.
The number of distractors before a positive gives its rank. Here, positives are sorted by buckets.
BUCKETS buckets of equal width show how the scores are distributed, and each bucket is divided into
parts, the more, the more positives it has. So a part has only a few positives, even where they are
dense, and each of these finds its place by comparing itself with the others. With the same parts, a
distractor finds in a few steps between which positives it is.

The table of the parts is in the shared memory of the block. So are the counts of distractors, if
they fit; else they are in the memory of the card.
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
FIRSTS = BUCKETS + 1  # a constant, as the compiler accepts no sum as a size
# numbers in the table of parts and in the counts together: what the other arrays leave of 48 KB,
# the most shared memory that a kernel gets by default
POOL = sizes(10_700, 40)
PER_PART = 2  # positives, unless that makes too many parts
SHORT = uint32(sizes(96, 4))  # up to so many positives of a part are compared with each other
INFINITY = float32(np.inf)
WIDEST = float32(3.4e38)  # the largest scale: a larger one could be infinite


class CardRanges(NamedTuple):
    """The columns of the positives of n queries, as in sort_keys.Parts.

    `begins`, `sizes` (n,): of all positives. `starts`, `ends` (n, K): by code. `keys` (K + 1,): the
    tie key of each code. `lowest`: the lowest code that is listed. `pessimistic`: whether a
    distractor comes before a positive with the same score. `nested`: whether each range is inside
    the range before it.
    """

    begins: Int32s
    sizes: Int32s
    starts: Int32s
    ends: Int32s
    keys: Uint8s
    lowest: int
    pessimistic: bool
    nested: bool


class Slots(NamedTuple):
    """The positives of n queries, (n, P) each: `scores`, `codes` and `ranks`, best first; scores
    and codes also before they are sorted, part by part. Values behind a query's last positive are
    undefined."""

    scores: Float32s
    codes: Uint8s
    ranks: Int32s
    unsorted_scores: Float32s
    unsorted_codes: Uint8s


class Found(NamedTuple):
    """What else is found for n queries, (n,) each: the number of `positives`, and of items that are
    `left_out` of the list; the code of the item ranked `first`, 0 if it is no positive; whether
    equal scores of different codes are `tied`; whether a score `overflows`."""

    positives: Int32s
    left_out: Int32s
    first: Uint8s
    tied: Uint8s
    overflows: Uint8s


class RankedQuery(NamedTuple):
    """The query that a block of threads handles: its scores (G,), its number, and the columns of
    its positives, from `begin` to `end`. Also the ranges and results of all queries, and shared
    memory for `sums`, one place per thread."""

    scores: Float32s
    query: Number
    begin: Number
    end: Number
    ranges: CardRanges
    found: Found
    sums: Int32s


class Buckets(NamedTuple):
    """How the positives of a query are divided. `high`: the best score. `scale`: buckets per unit
    of score. `firsts` (BUCKETS + 1,): the first part of each bucket. `table`: where each part ends
    among the sorted positives."""

    high: Number
    scale: Number
    firsts: Int32s
    table: Int32s


class Sorted(NamedTuple):
    """The sorted positives of one query, best first. `size`: their number; `low`: the worst score;
    `scores`, `codes` (P,); `above` (P,): the number of distractors between each positive and the
    one before."""

    size: Number
    low: Number
    scores: Float32s
    codes: Uint8s
    above: Int32s


@card_kernel
def rank_rows(rows: Float32s, ranges: CardRanges, slots: Slots, found: Found) -> None:
    """Rank the positives of n rows of scores (n, G), in which left-out items have −inf. Each block
    of threads handles one query.

    The positives are sorted by parts: the range of their scores is divided into BUCKETS of equal
    width, each of which is divided into one or more parts. `slots` gets scores, codes and
    ranks; `found`, per query, the numbers of positives and of left-out items, and the code of the
    first item, which `count_and_add_up` writes; and flags for ties and overflows (scores that are
    not finite: the host raises an error), which are set while scores are read.
    """
    # memory that the threads of a block share: `pool` has the table of where each part ends and,
    # behind it, the counts of distractors; `firsts` the first part of each bucket; `sums` and
    # `extremes` a number per thread
    pool = cuda.shared.array(POOL, int32)
    firsts = cuda.shared.array(FIRSTS, int32)
    sums = cuda.shared.array(THREADS, int32)
    extremes = cuda.shared.array(THREADS, float32)
    query = cuda.blockIdx.x
    # the columns of this query's positives
    begin = ranges.begins[query]
    end = begin + ranges.sizes[query]
    row = RankedQuery(rows[query], query, begin, end, ranges, found, sums)
    if cuda.threadIdx.x == 0:
        found.tied[query] = 0
        found.overflows[query] = 0
    cuda.syncthreads()

    low, high, positives = score_range_of_positives(row, extremes)
    buckets = Buckets(high, scale_of(low, high), firsts, pool)
    parts = divide(row, buckets, positives)  # the number of parts; the table has one place more
    sort_positives(row, buckets, slots)
    scores = slots.scores[query]
    codes = slots.codes[query]
    # Two calls of the same function, which the compiler inlines, so that it knows in each call in
    # which memory the counts are: in the block's, if they fit, else in the card's, in
    # `slots.ranks`, where the ranks that are computed from the counts replace them.
    if parts + 1 + positives <= POOL:
        listed = Sorted(positives, low, scores, codes, pool[parts + 1 :])
        count_and_add_up(row, buckets, listed, slots.ranks[query])
    else:
        listed = Sorted(positives, low, scores, codes, slots.ranks[query])
        count_and_add_up(row, buckets, listed, slots.ranks[query])


@card_part
def count_and_add_up(row: RankedQuery, buckets: Buckets, listed: Sorted, ranks: Int32s) -> None:
    """Count the distractors between the sorted positives of one query, and write the ranks, the
    numbers of positives and of left-out items, and the code of the first item.

    `buckets`: the table by which a score is looked up among the sorted positives. `listed`: these,
    best first; `listed.above` counts the distractors between each positive and the one before.

    The left-out items in the positives' columns, `begin` to `end`, are those that are not among the
    sorted positives. Those in other columns are counted by `count_distractors`, for each thread.
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
    """Return the worst and the best score of a query's positives, and their number. `extremes`
    (T,): memory that all T threads share.
    """
    low = INFINITY
    high = -INFINITY
    positives = int32(0)
    for column in range(row.begin + cuda.threadIdx.x, row.end, cuda.blockDim.x):
        score = row.scores[column]
        if score != -INFINITY:  # −inf: the item is left out of the query's list
            low = min(low, score)
            high = max(high, score)
            positives += int32(1)
            if not score < INFINITY:  # written so that NaN counts, too; the host raises an error
                row.found.overflows[row.query] = 1
    # each thread has read some columns only, so the results of all threads are combined
    return -largest(-low, extremes), largest(high, extremes), total(positives, row.sums)


@card_part
def scale_of(low: Number, high: Number) -> Number:
    """How many buckets there are per unit of score, if all buckets together reach from the best
    score, `high`, to the worst, `low`. 0, which puts all scores into one bucket, if they are equal,
    or too far apart for float32."""
    span = high - low
    if span > 0 and span < INFINITY:
        return min(float32(BUCKETS - 1) / span, WIDEST)
    return float32(0)


@card_part
def place_of(score: Number, buckets: Buckets) -> Number:
    """The bucket of a score, and the position within the bucket, as one number: 3.25 is a quarter
    into bucket 3. Buckets count from the best score down."""
    place = (buckets.high - score) * buckets.scale
    # written so that NaN gets a valid place, too; the host raises an error for the query later
    return min(place, float32(BUCKETS - 1)) if place > 0 else float32(0)


@card_part
def part_of(score: Number, buckets: Buckets) -> Number:
    """Return the number of the part of a score; parts count from the best score down. A bucket is
    cut into one or more parts of equal width, and `firsts` has the number of the first. However
    numbers are rounded, a higher score never gets a later part."""
    # unsigned places, here and below, so that numba adds no code for negative indices
    place = place_of(score, buckets)  # 3.25: a quarter into bucket 3
    bucket = uint32(place)
    first = buckets.firsts[bucket]
    parts = buckets.firsts[bucket + uint32(1)] - first
    part = int32((place - float32(bucket)) * float32(parts))
    return uint32(first + min(part, parts - int32(1)))


@card_part
def start_of(part: Number, buckets: Buckets) -> Number:
    """The first slot of a part, which is the end of the part before. Called after `sort_positives`,
    which leaves the ends of the parts in the table."""
    return uint32(buckets.table[part - uint32(1)] if part > 0 else int32(0))


@card_part
def divide(row: RankedQuery, buckets: Buckets, positives: Number) -> Number:
    """Divide the buckets into parts, and return the number of parts. The more positives a bucket
    has, the more parts it gets, so that each part has few positives.

    `buckets.firsts` (BUCKETS + 1,) is filled three times: with the number of positives in each
    bucket, then with its number of parts, and finally with the number of its first part.
    """
    firsts = buckets.firsts
    for bucket in range(cuda.threadIdx.x, BUCKETS, cuda.blockDim.x):
        firsts[bucket] = 0
    cuda.syncthreads()

    for column in range(row.begin + cuda.threadIdx.x, row.end, cuda.blockDim.x):
        score = row.scores[column]
        # the columns are those of the positives; one that is left out of the list has −inf
        if score != -INFINITY:
            cuda.atomic.add(firsts, uint32(place_of(score, buckets)), 1)
    cuda.syncthreads()

    # Each bucket gets one part, and a share of the `wanted` parts by its positives: together at
    # most BUCKETS + wanted ≤ POOL − 2, since FIRSTS is BUCKETS + 1. So `buckets.table`, with one
    # place for each part and one more, fits into a pool of POOL numbers. int64, as the product may
    # exceed int32
    wanted = min(positives // PER_PART, POOL - FIRSTS - 1)
    for bucket in range(cuda.threadIdx.x, BUCKETS, cuda.blockDim.x):
        firsts[bucket] = 1 + int64(firsts[bucket]) * wanted // max(positives, int32(1))
    cuda.syncthreads()
    sum_up_before(firsts, BUCKETS, row.sums)
    return firsts[BUCKETS]


@card_part
def sort_positives(row: RankedQuery, buckets: Buckets, slots: Slots) -> None:
    """Write the scores and codes of the positives to `slots`, best first, and the ends of the parts
    to `buckets.table`.

    `table` (parts,) is filled three times: with the sizes of the parts, then with their starts, and
    finally with their ends. `firsts` (BUCKETS + 1,) has the first part of each bucket, and the
    number of all parts at its end.
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
        if score != -INFINITY:  # −inf: the item is left out of the query's list
            cuda.atomic.add(table, part_of(score, buckets), 1)
    cuda.syncthreads()
    sum_up_before(table, parts, row.sums)  # `row.sums` is shared memory; it ends by `syncthreads`

    # each positive goes to the next slot of its part: the start of the part advances to its end
    scores = slots.unsorted_scores[row.query]
    codes = slots.unsorted_codes[row.query]
    for column in range(row.begin + thread, row.end, threads):
        score = row.scores[column]
        if score != -INFINITY:
            slot = uint32(cuda.atomic.add(table, part_of(score, buckets), 1))
            scores[slot] = score
            codes[slot] = code_of(row.ranges, row.query, column)
    cuda.syncthreads()

    order_parts(row, buckets, slots)  # from the unsorted slots to the sorted ones
    cuda.syncthreads()


@card_part
def order_parts(row: RankedQuery, buckets: Buckets, slots: Slots) -> None:
    """Sort the positives of a query within their parts: by score, and equal scores by the keys of
    their codes. In a short part, a thread per positive counts how many positives come before its
    own. A long part is sorted by a single thread, that of its first slot."""
    keys = row.ranges.keys
    query = row.query
    unsorted = Slotted(slots.unsorted_scores[query], slots.unsorted_codes[query], keys)
    ordered = Slotted(slots.scores[query], slots.codes[query], keys)
    # The number of positives is the end of the last part. firsts[BUCKETS] is the number of parts,
    # of which each bucket has at least one, so it is never 0. A query without positives has size 0.
    size = buckets.table[buckets.firsts[BUCKETS] - 1]
    for each in range(cuda.threadIdx.x, size, cuda.blockDim.x):
        slot = uint32(each)  # unsigned, as numba adds no code for negative indices then
        part = part_of(unsorted.scores[slot], buckets)
        first = start_of(part, buckets)
        last = uint32(buckets.table[part])
        if last - first <= SHORT:
            copy(unsorted, slot, ordered, place_among(unsorted, slot, first, last))
        # `sort_part` moves scores while other threads read one of this part; but they only find
        # their part by it, which is the same for all its scores
        elif slot == first:
            sort_part(unsorted, int32(first), int32(last))
            for place in range(first, last):
                copy(unsorted, place, ordered, place)


@card_part
def code_of(ranges: CardRanges, query: Number, column: Number) -> Number:
    """The code of the item in a column, for a query: the number, from 1, of the last range that
    holds the column; 0 for a distractor, which is in no range. Codes below `ranges.lowest` count
    as 0."""
    code = uint8(0)
    for each in range(ranges.lowest - 1, ranges.starts.shape[1]):
        if ranges.starts[query, each] <= column < ranges.ends[query, each]:
            code = uint8(each + 1)
        elif ranges.nested:  # a column outside of one range is outside of all later ones
            break
    return code


@card_part
def count_distractors(row: RankedQuery, buckets: Buckets, listed: Sorted) -> Number:
    """Count every distractor that comes before some positive, in `listed.above` at the first
    positive behind it. Return how many of this thread's items are left out of the list.

    Also mark the query if a distractor ties with a positive, or if a score overflows.
    """
    left_out = int32(0)
    size = uint32(listed.size)
    pessimistic = row.ranges.pessimistic
    others = len(row.scores) - (row.end - row.begin)
    for place in range(cuda.threadIdx.x, others, cuda.blockDim.x):
        # the columns before the range of the positives, then those behind it
        column = place if place < row.begin else place + row.end - row.begin
        score = row.scores[uint32(column)]  # unsigned: no code for negative indices
        if score >= listed.low:
            if score == INFINITY:
                row.found.overflows[row.query] = 1
            # the first positive behind the distractor, `size` if there is none
            slot = slot_of(score, buckets, listed, pessimistic)
            # a positive with the same score is at `slot` if `pessimistic`, else right before it
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
        elif not score < INFINITY:  # NaN, for which all comparisons are false
            row.found.overflows[row.query] = 1
    return left_out


@card_part
def slot_of(score: Number, buckets: Buckets, listed: Sorted, pessimistic: bool) -> Number:
    """The slot of the first positive behind a distractor with this score, found by bisection in the
    part of the score. If `pessimistic`, the distractor comes before positives with the same score.
    All positives of earlier parts have higher scores, those of later parts lower ones.
    """
    part = part_of(score, buckets)
    low = start_of(part, buckets)
    high = uint32(buckets.table[part])  # by now the table has the end of each part
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
    """Write the rank, from 1, of each positive of one query: one more than the positives and
    distractors before it. Also write the code of the item at rank 1, and whether positives of
    different codes tie."""
    # the best positive is at rank 1 if no distractor comes before it
    if cuda.threadIdx.x == 0:
        is_first = listed.size > 0 and listed.above[0] == 0
        row.found.first[row.query] = listed.codes[0] if is_first else uint8(0)

    done = int32(0)  # distractors before `start`
    for start in range(0, listed.size, at_once()):
        # each thread sums up some neighbours, and gets the sum of the threads before it
        span = span_from(start, listed.size)
        own = int32(0)
        for slot in range(span.begin, span.end):
            own += listed.above[slot]  # distractors between this positive and the one before
        before, of_all = running(own, row.sums)

        before += done
        for slot in range(span.begin, span.end):
            before += listed.above[slot]
            ranks[slot] = before + slot + 1
            is_equal = slot > 0 and listed.scores[slot] == listed.scores[slot - 1]
            if is_equal and listed.codes[slot] != listed.codes[slot - 1]:
                row.found.tied[row.query] = 1
        done += of_all
