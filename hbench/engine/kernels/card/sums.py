"""The kernel: all sums over the ranks of the queries' positives, the twin of rank_sums.sum_up; a
block of threads per query.

The list is passed once per level, each thread with some neighbouring positives, and a running sum
over the threads tells each how many of the level come before its own; what is of higher levels is
written to a shorter list for the next. Up to each cut the list is passed once more.
"""

from __future__ import annotations

from typing import NamedTuple, cast

import numpy as np

from hbench.core.compiled import Compiled
from hbench.engine.kernels.card.compiling import (
    Float64s,
    Int32s,
    Int64s,
    Number,
    Uint8s,
    card_kernel,
    card_part,
    cuda,
    float64,
    int32,
    int64,
    sizes,
)
from hbench.engine.kernels.card.of_block import (
    Span,
    add_up_columns,
    at_once,
    running,
    span_from,
)
from hbench.engine.kernels.card.reading import Listed
from hbench.engine.kernels.rank_sums import Grades
from hbench.engine.kernels.rank_sums import threshold_of as threshold_on_processor

THREADS = sizes(256, 2)
COLUMNS = 6  # sums that are added up over the threads at once
# the processor's own, in the words of both
threshold_of = card_part(cast(Compiled, threshold_on_processor).function)


class CardRequest(NamedTuple):
    """A SumRequest of n queries on the card: `counts` (n, L + 1); `cuts` (C,); `relevance`,
    `weight` (n, H, L + 1), of which there are `graded`; `discount`, `harmonic` by rank."""

    counts: Int64s
    cuts: Int64s
    relevance: Float64s
    weight: Int64s
    discount: Float64s
    harmonic: Float64s
    graded: int
    lowest: int
    binary: bool
    gain: bool
    overlap: bool


class CardSums(NamedTuple):
    """The Sums of n queries, hits as float64, too."""

    hits: Float64s
    precision: Float64s
    gain: Float64s
    graded: Float64s
    intersection: Float64s


class Spare(NamedTuple):
    """Room for the positives of n queries that are of higher levels, in turns: `ranks` and `levels`
    (2, n, P)."""

    ranks: Int32s
    levels: Uint8s


class Shared(NamedTuple):
    """A place per thread for running counts, and for sums (T, COLUMNS)."""

    counts: Int64s
    sums: Float64s


class SummedQuery(NamedTuple):
    """The positives of one query from some level on: its number, how many are listed in `all`; the
    `size`, `ranks` and `levels` of these."""

    number: Number
    all: Number
    size: Number
    ranks: Int32s
    levels: Uint8s


class Work(NamedTuple):
    """What is asked, where it is written, and the memory that a block shares: apart from the
    positives, which change, so that the compiler keeps in mind which memory this is."""

    request: CardRequest
    out: CardSums
    shared: Shared


class LevelSums(NamedTuple):
    """The sums of one thread's items of a level: the whole list's `precision`, what of it is
    `within` R, the `hits` there, the `gain`, and the intersections of the `binary` labels."""

    precision: Number
    within: Number
    hits: Number
    gain: Number
    binary: Number


class Splitting(NamedTuple):
    """Items of a thread that are split: those of `level` and those above; how many before these are
    `exactly` of it."""

    level: Number
    span: Span
    exactly: Number


class Graded(NamedTuple):
    """One part of a graded sum: the number of the sum, the lowest level of the part, and that
    level's precision sum of the whole list."""

    number: Number
    lowest: Number
    whole: Number


class Higher(NamedTuple):
    """Where the positives of higher levels are written: `ranks` and `levels` (P,)."""

    ranks: Int32s
    levels: Uint8s


@card_kernel
def sum_lists(lists: Listed, spare: Spare, request: CardRequest, out: CardSums) -> None:
    """Take all sums of n queries, each by a block of threads of its own; `spare` has room for the
    positives of the levels above, which are taken out of a list level by level.
    """
    # on lines of their own, by which the simulator tells them apart
    counts = cuda.shared.array(THREADS, int64)
    sums = cuda.shared.array((THREADS, COLUMNS), float64)
    number = cuda.blockIdx.x
    listed = lists.sizes[number]
    # at the lowest level the positives are all that are listed
    query = SummedQuery(number, listed, listed, lists.ranks[number], lists.levels[number])
    sum_query(query, spare, Work(request, out, Shared(counts, sums)))


@card_part
def sum_query(query: SummedQuery, spare: Spare, work: Work) -> None:
    """Write all sums of one query, level after level, and leave in its list only the positives of
    the levels above. The higher ones go to two buffers in turns, since one is read meanwhile."""
    number = query.number
    for level in range(work.request.lowest, work.request.counts.shape[1]):
        if query.size == 0:
            break
        # the last two columns are R, the number of positives, and the whole list
        for column in range(work.out.hits.shape[2] - 2):
            sum_up_to(query, level, column, work)
        higher = Higher(spare.ranks[level % 2, number], spare.levels[level % 2, number])
        whole = sum_level(query, level, higher, work)
        for each in range(work.request.graded):
            add_graded(query, Graded(each, level, whole), work)
        # all positives above this level are listed, so their number is that of the counts
        size = int32(counted(work.request.counts, number, level + 1))
        query = SummedQuery(number, query.all, size, higher.ranks, higher.levels)


@card_part
def sum_up_to(query: SummedQuery, level: Number, column: Number, work: Work) -> None:
    """Write hits, precision and gain of one level up to a cut. Precision is a sum here, not yet
    divided.

    `query`: its ranks, ascending, are those of the positives of this level alone, so that the loop
    ends at the first one beyond the cut. `level`: from 1; it says where the sums are written.
    `column`: the number of the cut, from 0, in the request and in the output.
    """
    cut = work.request.cuts[column]
    own = work.shared.sums[cuda.threadIdx.x]  # precision, gain, hits of this thread
    own[:3] = 0
    start = 0
    while start < query.size and query.ranks[start] <= cut:
        # the threads of the block share a stretch of `at_once` positives; this is one's own part
        span = span_from(start, query.size)
        for item in range(span.begin, span.end):
            rank = query.ranks[item]
            if rank <= cut:
                own[0] += (item + 1) / rank
                own[1] += work.request.discount[rank] if work.request.gain else 0.0
                own[2] += 1
        start += at_once()

    add_up_columns(work.shared.sums[:, :3])
    if cuda.threadIdx.x == 0:
        work.out.precision[query.number, level - 1, column] = own[0]
        work.out.gain[query.number, level - 1, column] = own[1]
        work.out.hits[query.number, level - 1, column] = own[2]
    cuda.syncthreads()  # the sums are shared, and used again


@card_part
def sum_level(query: SummedQuery, level: Number, upper: Higher, work: Work) -> Number:
    """Write the sums of one level: over the whole list, up to R, the number of its positives, and
    of the intersections of the first k items with the ideal ones, for ASI; list the positives of
    upper levels. Returns the precision sum of the whole list."""
    # precision, within, hits, gain, binary
    sums = LevelSums(0.0, 0.0, 0, 0.0, 0.0)
    overlap = 0.0  # of the graded labels, of which `split` also lists the positives above
    done = int64(0)  # the items before `start` that are exactly of this level
    for start in range(0, query.size, at_once()):
        span = span_from(start, query.size)
        exactly = int64(0)
        for item in range(span.begin, span.end):
            exactly += int64(query.levels[item] == level)
        before, of_all = running(exactly, work.shared.counts)  # in the threads before, and in all

        sums = with_items(sums, query, span, work.request)
        overlap += split(query, Splitting(level, span, done + before), upper, work.request)
        done += of_all

    # (6,): the row of this thread, in memory that the threads of the block share
    own = work.shared.sums[cuda.threadIdx.x]
    own[0] = sums.precision
    own[1] = sums.within
    own[2] = sums.hits
    own[3] = sums.gain
    own[4] = sums.binary
    own[5] = overlap
    # the sums of all threads come to stand in the first thread's row
    add_up_columns(work.shared.sums)
    whole = work.shared.sums[0, 0]
    if cuda.threadIdx.x == 0:
        write_sums(query, level, own, work.out)
    # the shared memory is written again for the next level: only when every thread has read it
    cuda.syncthreads()
    return whole


@card_part
def with_items(sums: LevelSums, query: SummedQuery, span: Span, request: CardRequest) -> LevelSums:
    """Return the sums of a level with those of the items in a span added.

    `span`: of the query's positives by rank, so that item k, from 0, has precision (k + 1)/rank:
    `precision` sums it, `within` and `hits` sum and count it up to rank R, `query.size`. `gain`
    sums the discounts. `binary` is ASI's overlap for a relevance of yes or no: an item at a rank of
    R at most lies in the heads of all lengths from there to R, each of which divides by its length;
    `harmonic` is Σ 1/n by rank.
    """
    precision, within, hits, gain, binary = sums
    for item in range(span.begin, span.end):
        rank = query.ranks[item]
        term = (item + 1) / rank
        precision += term
        if request.gain:
            gain += request.discount[rank]
        if rank <= query.size:
            hits += 1
            within += term
            if request.binary:
                binary += request.harmonic[query.size] - request.harmonic[rank - 1]
    return LevelSums(precision, within, hits, gain, binary)


@card_part
def split(query: SummedQuery, items: Splitting, upper: Higher, request: CardRequest) -> Number:
    """Write the items of upper levels to their list; return what the others, exactly of this level,
    add to the ASI, the mean overlap of ranking and ideal order."""
    overlap = 0.0
    exactly = items.exactly
    above = counted(request.counts, query.number, items.level + 1)
    for item in range(items.span.begin, items.span.end):
        if query.levels[item] > items.level:
            # `item` − `exactly`: how many of the upper levels come before it
            upper.ranks[item - exactly] = query.ranks[item]
            upper.levels[item - exactly] = query.levels[item]
        else:
            exactly += 1
            # the overlap counts it in every first-n list with n ≥ position, where both orders have
            # it: Σ_{n ≥ position} 1/n
            position = max(int64(query.ranks[item]), above + exactly)
            if request.overlap and position <= query.all:
                overlap += request.harmonic[query.all] - request.harmonic[position - 1]
    return overlap


@card_part
def write_sums(query: SummedQuery, level: Number, sums: Float64s, out: CardSums) -> None:
    """Write what was added up of one level, from 1: the sums at R, the number of positives, and of
    the whole list, and the intersections. The gain at R is NaN, for no metric takes it.

    `sums` (6,): precision of the whole list, precision and hits within R, gain, intersection of the
    level's binary labels, and the overlap of all levels.
    """
    at_r = out.hits.shape[2] - 2
    out.hits[query.number, level - 1, at_r] = sums[2]
    out.hits[query.number, level - 1, at_r + 1] = query.size
    out.precision[query.number, level - 1, at_r] = sums[1]
    out.precision[query.number, level - 1, at_r + 1] = sums[0]
    out.gain[query.number, level - 1, at_r] = np.nan
    out.gain[query.number, level - 1, at_r + 1] = sums[3]
    out.intersection[query.number, level] = sums[4] / query.size
    out.intersection[query.number, 0] += sums[5] / query.all


@card_part
def counted(counts: Int64s, query: Number, level: Number) -> Number:
    """How many items of a query are of this level or a higher one; `counts` (n, L + 1) by level."""
    number = int64(0)
    for each in range(level, counts.shape[1]):
        number += counts[query, each]
    return number


@card_part
def add_graded(query: SummedQuery, part: Graded, work: Work) -> None:
    """Add to one graded sum (t − t')·(precision of {relevance ≥ t}) for the relevances t whose set
    has the part's lowest level as its lowest; t' is the next smaller relevance.

    Other sets are added at their own lowest level: only the items from there on are in the list.
    """
    counts = work.request.counts[query.number]
    relevance = work.request.relevance[query.number, part.number]
    weight = work.request.weight[query.number, part.number]
    grades = Grades(relevance, weight, counts)
    if counts[part.lowest] == 0:  # an empty level is the lowest of no set
        return
    for level in range(part.lowest, len(counts)):
        reached = relevance[part.lowest] >= relevance[level] and relevance[level] > 0
        if not reached or counts[level] == 0:
            continue
        previous, is_term, is_whole = threshold_of(level, part.lowest, grades)
        if is_term:
            # where the set is the whole list, its precision sum is known
            precision = part.whole
            if not is_whole:
                precision = sum_threshold(query, relevance[level], part.number, work)
            if cuda.threadIdx.x == 0:
                added = (relevance[level] - previous) * precision
                work.out.graded[query.number, part.number] += added


@card_part
def sum_threshold(query: SummedQuery, threshold: Number, graded: Number, work: Work) -> Number:
    """Σ_k (1/r_k)·Σ_{j ≤ k} weight_j over the positives whose relevance reaches the threshold, by
    the relevance and weight (L + 1,) of one `graded` metric, its number among those asked for."""
    relevance = work.request.relevance[query.number, graded]
    weight = work.request.weight[query.number, graded]
    part = 0.0
    done = int64(0)  # the weight of all spans before this one
    for start in range(0, query.size, at_once()):
        span = span_from(start, query.size)
        own = int64(0)
        for item in range(span.begin, span.end):
            if relevance[query.levels[item]] >= threshold:
                own += weight[query.levels[item]]
        # the weight of the threads before this one, and of all
        before, of_all = running(own, work.shared.counts)

        # r_k of the formula is the rank; items of a span follow those of the threads before
        before += done
        for item in range(span.begin, span.end):
            if relevance[query.levels[item]] >= threshold:
                before += weight[query.levels[item]]
                part += before / query.ranks[item]
        done += of_all

    work.shared.sums[cuda.threadIdx.x, 0] = part
    add_up_columns(work.shared.sums[:, :1])
    part = work.shared.sums[0, 0]
    cuda.syncthreads()
    return part
