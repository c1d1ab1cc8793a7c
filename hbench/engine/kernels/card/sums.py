"""The kernel that computes all sums over the ranks of the queries' positives, the twin of
rank_sums.sum_up. Each block of threads handles one query.

The list is read once per level. Each thread takes some neighbouring positives, and a running sum
over the threads gives it the number of the level's positives before its own. The positives of
higher levels are written to a shorter list for the next level. For each cut, the list is read once
more, up to the cut.
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
# the function of the processor's kernel, compiled for the card
threshold_of = card_part(cast(Compiled, threshold_on_processor).function)


class CardRequest(NamedTuple):
    """A SumRequest of n queries on the card. `counts` (n, L + 1); `cuts` (C,); `relevance`,
    `weight` (n, H, L + 1), of which the first `graded` sums are used; `discount`, `harmonic` by
    rank. The other members are those of SumRequest."""

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
    """The Sums of n queries. All are float64 here, also the hits."""

    hits: Float64s
    precision: Float64s
    gain: Float64s
    graded: Float64s
    intersection: Float64s


class Spare(NamedTuple):
    """Two buffers, which are used in turns, for the positives of n queries that are of higher
    levels: `ranks` and `levels` (2, n, P)."""

    ranks: Int32s
    levels: Uint8s


class Shared(NamedTuple):
    """Memory that the T threads of a block share: for running `counts` (T,), and for `sums`
    (T, COLUMNS)."""

    counts: Int64s
    sums: Float64s


class SummedQuery(NamedTuple):
    """The positives of one query from some level on: their number, `size`, and their `ranks` and
    `levels`. `number`: of the query; `all`: how many positives it has from the lowest level on."""

    number: Number
    all: Number
    size: Number
    ranks: Int32s
    levels: Uint8s


class Work(NamedTuple):
    """What stays the same while a block handles its query: the request, the output, and shared
    memory. The positives, which change, are kept apart, so that the compiler knows in which memory
    each of these arrays is."""

    request: CardRequest
    out: CardSums
    shared: Shared


class LevelSums(NamedTuple):
    """The sums of one thread's items at a level. `precision`: over the whole list; `within`: the
    part of it up to rank R; `hits`: the number of items up to R; `gain`; `binary`: the ASI of the
    level's binary labels."""

    precision: Number
    within: Number
    hits: Number
    gain: Number
    binary: Number


class Splitting(NamedTuple):
    """A thread's items that are split into those of `level` and those of higher levels. `exactly`:
    how many items before them are of exactly this level."""

    level: Number
    span: Span
    exactly: Number


class Graded(NamedTuple):
    """One part of a graded sum: the `number` of the sum, the `lowest` level of the part, and the
    precision sum at that level over the `whole` list."""

    number: Number
    lowest: Number
    whole: Number


class Higher(NamedTuple):
    """Where the positives of one query that are of higher levels are written: `ranks` and `levels`
    (P,)."""

    ranks: Int32s
    levels: Uint8s


@card_kernel
def sum_lists(lists: Listed, spare: Spare, request: CardRequest, out: CardSums) -> None:
    """Compute all sums of n queries. Each block of threads handles one query.

    The sums of a query are computed level by level, from the lowest level up. For each further
    level the list of positives is shortened to those of higher levels. `spare` is memory for these
    shorter lists.
    """
    # one array a line: the simulator tells shared arrays apart by the line that makes them
    counts = cuda.shared.array(THREADS, int64)
    sums = cuda.shared.array((THREADS, COLUMNS), float64)
    number = cuda.blockIdx.x
    listed = lists.sizes[number]
    # `all` and `size` are both the number of positives: at the lowest level none is dropped yet
    query = SummedQuery(number, listed, listed, lists.ranks[number], lists.levels[number])
    sum_query(query, spare, Work(request, out, Shared(counts, sums)))


@card_part
def sum_query(query: SummedQuery, spare: Spare, work: Work) -> None:
    """Write all sums of one query, level by level. Each level leaves a list of the positives of
    higher levels. They are written to two buffers in turns, as one is read while the other is
    written."""
    number = query.number
    for level in range(work.request.lowest, work.request.counts.shape[1]):
        if query.size == 0:
            break
        # the last two columns are R, the number of positives, and the whole list: `sum_level`
        # writes these
        for column in range(work.out.hits.shape[2] - 2):
            sum_up_to(query, level, column, work)
        higher = Higher(spare.ranks[level % 2, number], spare.levels[level % 2, number])
        whole = sum_level(query, level, higher, work)  # the precision sum over the whole list
        # A graded sum has a term for each relevance t, over the items of relevance t or more. The
        # lowest level of these items may be this one: then the term is added now, as the list has
        # all of them. It may have others of less relevance; without any, `whole` is the term's sum.
        for each in range(work.request.graded):
            add_graded(query, Graded(each, level, whole), work)
        # all positives above this level are listed, so the counts give their number
        size = int32(counted(work.request.counts, number, level + 1))
        # `all`, the number of positives from the lowest level on, stays
        query = SummedQuery(number, query.all, size, higher.ranks, higher.levels)


@card_part
def sum_up_to(query: SummedQuery, level: Number, column: Number, work: Work) -> None:
    """Write hits, the sum of precisions, and gain at one level up to a cut.

    `query`: the positives of this level or finer, with ascending ranks, so that the loop may end at
    the first rank beyond the cut. `level`: from 1; tells where the sums are written. `column`: the
    number of the cut, from 0, in the request and in the output.
    """
    cut = work.request.cuts[column]
    own = work.shared.sums[cuda.threadIdx.x]  # precision, gain, hits of this thread
    own[:3] = 0
    start = 0
    # the same test in all threads, so that they leave the loop together
    while start < query.size and query.ranks[start] <= cut:
        # the threads of the block share `at_once` positives, of which this thread takes a span
        span = span_from(start, query.size)
        for item in range(span.begin, span.end):
            rank = query.ranks[item]
            if rank <= cut:
                own[0] += (item + 1) / rank  # `item` positives come before this one
                own[1] += work.request.discount[rank] if work.request.gain else 0.0
                own[2] += 1
        start += at_once()

    add_up_columns(work.shared.sums[:, :3])
    if cuda.threadIdx.x == 0:
        work.out.precision[query.number, level - 1, column] = own[0]
        work.out.gain[query.number, level - 1, column] = own[1]
        work.out.hits[query.number, level - 1, column] = own[2]
    cuda.syncthreads()  # the shared memory of the sums is used again


@card_part
def sum_level(query: SummedQuery, level: Number, upper: Higher, work: Work) -> Number:
    """Write the sums of one level over the whole list and up to R, the number of its positives, and
    the intersections for ASI. Return the precision sum of the whole list, for the graded sums.

    `query` has the positives of this level and finer ones. Those of finer levels are listed in
    `upper`, which becomes the query of the next level.
    """
    # the sums precision, within, hits, gain and binary, which `with_items` explains
    sums = LevelSums(0.0, 0.0, 0, 0.0, 0.0)
    overlap = 0.0  # what the items of exactly this level add to the ASI of all levels
    done = int64(0)  # the items before `start` that are exactly of this level
    for start in range(0, query.size, at_once()):
        span = span_from(start, query.size)
        exactly = int64(0)
        for item in range(span.begin, span.end):
            exactly += int64(query.levels[item] == level)
        before, of_all = running(exactly, work.shared.counts)  # in the threads before, and in all

        sums = with_items(sums, query, span, work.request)
        # an item of a higher level gets the place in `upper` that it has here, minus the items of
        # exactly this level before it; so `split` needs their number before the span
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
    # afterwards, the sums of all threads are in the first thread's row
    add_up_columns(work.shared.sums)
    whole = work.shared.sums[0, 0]
    if cuda.threadIdx.x == 0:
        write_sums(query, level, own, work.out)
    # the next level overwrites the shared memory, so every thread must have read it
    cuda.syncthreads()
    return whole


@card_part
def with_items(sums: LevelSums, query: SummedQuery, span: Span, request: CardRequest) -> LevelSums:
    """Return the sums of a level, with those of the items in a span added.

    The query's positives are sorted by rank, so item k (from 0) has the precision (k + 1)/rank.
    `precision` is the sum of these, `within` the sum up to rank R, which is `query.size`, and
    `hits` the number of items up to R. `gain` is the sum of the discounts. `binary` is ASI with
    binary relevance: an item at a rank up to R is among the first n items for each n from its rank
    to R, and adds 1/n for each of these; `harmonic` has Σ 1/n by rank.
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
    """Write the items of a span that are of higher levels to the list `upper`. Return what the
    other items, of exactly this level, add to the ASI, the mean overlap of the ranking with the
    ideal order, which puts higher levels first."""
    overlap = 0.0
    exactly = items.exactly  # items of exactly this level that come before
    above = counted(request.counts, query.number, items.level + 1)  # all items of higher levels
    for item in range(items.span.begin, items.span.end):
        if query.levels[item] > items.level:
            # `item` items come before this one, and `exactly` of them are of exactly this level;
            # the others are of higher levels, and come before this one in `upper`, too
            upper.ranks[item - exactly] = query.ranks[item]
            upper.levels[item - exactly] = query.levels[item]
        else:
            exactly += 1
            # the item is among the first n items of both orders for each n ≥ position, and adds
            # 1/n for each of these n up to `query.all`, the number of all positives
            position = max(int64(query.ranks[item]), above + exactly)
            if request.overlap and position <= query.all:
                overlap += request.harmonic[query.all] - request.harmonic[position - 1]
    return overlap


@card_part
def write_sums(query: SummedQuery, level: Number, sums: Float64s, out: CardSums) -> None:
    """Write the sums of one level (from 1): those up to R, the number of its positives
    (`query.size`), those of the whole list, and the intersections. The gain up to R is NaN, as no
    metric needs it. `query.all`: the number of positives from the lowest level on.

    `sums` (6,): precision of the whole list, precision and hits up to R, gain, ASI of the level's
    binary labels, and what the level adds to the ASI of all levels.
    """
    at_r = out.hits.shape[2] - 2  # the last two places are for R and for the whole list
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
    """How many items of a query are of this level or finer; `counts` (n, L + 1) by level."""
    number = int64(0)
    for each in range(level, counts.shape[1]):
        number += counts[query, each]
    return number


@card_part
def add_graded(query: SummedQuery, part: Graded, work: Work) -> None:
    """Add the terms of one level to a graded sum. A graded sum, such as that of H-AP, has a term
    (t − t')·(precision sum of the items of relevance ≥ t) for each relevance t; t' is the next
    smaller relevance.

    `sum_query` goes through the levels, and its list has the items of the present level,
    `part.lowest`, and finer ones. So now the terms are added whose items have this lowest level;
    `part.whole` is the precision sum of the whole list.

    By level, for this query and sum: `relevance`, and `weight`, how often an item counts in a
    precision sum (more than once where a released evaluator takes equal relevances for one level).
    `part.whole` has weights of 1, so `is_whole` is false for others.
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
        # `previous`: t'; `is_term`: whether this level and the part's lowest make a term
        if is_term:
            # if all items of the list reach t (`is_whole`), the precision sum is known
            precision = part.whole
            if not is_whole:
                precision = sum_threshold(query, relevance[level], part.number, work)
            if cuda.threadIdx.x == 0:
                added = (relevance[level] - previous) * precision
                work.out.graded[query.number, part.number] += added


@card_part
def sum_threshold(query: SummedQuery, threshold: Number, graded: Number, work: Work) -> Number:
    """Σ_k (1/r_k)·Σ_{j ≤ k} weight_j over the positives whose relevance reaches the threshold. The
    weight is how often an item counts: usually once, more often only in a released evaluator that
    finds the items of a level by their relevance, which levels may share. Each graded sum has its
    own relevance and weight of every level; `graded` is the number of the sum. H-AP is a sum of
    these, each times the step to the next lower threshold, by the relevance of all positives."""
    relevance = work.request.relevance[query.number, graded]
    weight = work.request.weight[query.number, graded]
    part = 0.0
    done = int64(0)  # the weight of all items before `start`
    for start in range(0, query.size, at_once()):
        span = span_from(start, query.size)
        own = int64(0)
        for item in range(span.begin, span.end):
            if relevance[query.levels[item]] >= threshold:
                own += weight[query.levels[item]]
        # the weight of the items of the threads before this one, and of all threads
        before, of_all = running(own, work.shared.counts)

        # From here on, `before` is the weight of all items up to k: those of earlier rounds
        # (`done`), of the threads before, and of this span. r_k in the formula is the rank.
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
