"""Sums over the ranks of one query's positives, from which the metrics of a full ranking follow;
compiled by numba.

Let r_1 < r_2 < … be the ranks of P_l, the items of level ≥ l, and R their number. The sums at a cut
c are hits(c) = #{r_m ≤ c}, precision(c) = Σ_{r_m ≤ c} m/r_m and gain(c) = Σ_{r_m ≤ c} 1/log2(1 +
r_m). They are taken at the given cuts, at R and at ∞, the whole list.

H-AP needs no other sums if the relevance grows with the level: min(a, b) = ∫ [t ≤ a][t ≤ b] dt
gives Σ_k H-rank(k)/rank(k) = Σ_t (t − t')·(precision of {rel ≥ t}), where t are the relevances in
increasing order, and t' is the one before t.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hbench.core.compiled import Scalar, compiled, compiled_part
from hbench.engine.kernels.rank_positives import RankedPositives

LANES = 16  # numbers that are written by an unrolled loop
# numbers to choose from at once, so that they and their marks stay in the first-level cache
TILE = 1024
Ranks = NDArray[np.signedinteger]
Levels = NDArray[np.uint8]
Floats = NDArray[np.float64]


class Tables(NamedTuple):
    """Tables by rank r, from 0 to the gallery's size: `discount` 1/log2(1 + r), `discount_sum` its
    sum from rank 1 to r, `harmonic` Σ_{n≤r} 1/n."""

    discount: Floats
    discount_sum: Floats
    harmonic: Floats


class Grades(NamedTuple):
    """What one graded sum of one query depends on, by level from 0: `relevance`, `weight` and
    `counts` (L + 1,). The weight is how often an item of the level counts, nearly always once."""

    relevance: Floats
    weight: NDArray[np.int64]
    counts: NDArray[np.int64]


class SumRequest(NamedTuple):
    """The sums to compute for Q queries.

    `counts` (Q, L + 1): how many items of each level a query's list has. `cuts` (C,): ranks,
    ascending. `relevance`, `weight` (Q, H, L + 1): of H graded sums. `tables`: by rank. `lowest`:
    the lowest level whose positives are listed. `binary`: whether to compute the ASI of each
    level's binary labels. `gain`, `overlap`: whether to compute the gains, and the ASI of all
    levels. Sums that are not computed stay 0.
    """

    counts: NDArray[np.int64]
    cuts: NDArray[np.int64]
    relevance: Floats
    weight: NDArray[np.int64]
    tables: Tables
    lowest: int
    binary: bool
    gain: bool
    overlap: bool


class Sums(NamedTuple):
    """The sums of Q queries. `hits`, `precision`, `gain` (Q, L, C + 2): at the C cuts, at R and at
    ∞. `graded` (Q, H). `intersection` (Q, 1 + L): the ASI of all levels, then that of each level's
    binary labels."""

    hits: NDArray[np.int64]
    precision: Floats
    gain: Floats
    graded: Floats
    intersection: Floats


class SumBuffers(NamedTuple):
    """Buffers for splitting the positives at a level: `ranks` and `levels` of the positives of
    higher levels, and the ranks of the `others`; (P + LANES,) each. `chosen` (TILE,): marks of the
    positives that are copied."""

    ranks: Ranks
    levels: Levels
    others: Ranks
    chosen: Levels


def scratch(positives: int) -> SumBuffers:
    """Buffers for queries of at most this many positives."""
    size = positives + LANES  # `compress` writes up to LANES numbers too many
    ranks = np.empty(size, np.int32)
    others = np.empty(size, np.int32)
    return SumBuffers(ranks, np.empty(size, np.uint8), others, np.empty(TILE, np.uint8))


def tables(size: int) -> Tables:
    """The tables for rankings of up to `size` items, (size + 1,) each, by rank from 0."""
    ranks = np.arange(size + 1, dtype=np.float64)
    # no item has rank 0, so any finite value will do in its place; the sums have 0 there
    ranks[0] = 1
    discount = 1 / np.log2(1 + ranks)
    discount_sum, harmonic = (
        np.concatenate([[0.0], np.cumsum(terms[1:])]) for terms in (discount, 1 / ranks)
    )
    return Tables(discount, discount_sum, harmonic)


@compiled
def sum_up(
    ranked: RankedPositives, request: SumRequest, buffers: SumBuffers, out: Sums, begin: int
) -> None:
    """Write all sums of n queries to `out`. `ranked`: their positives of the lowest level that a
    metric needs, or finer. Query n of `ranked` is query `begin` + n of the request and of `out`.
    """
    for n in range(len(ranked.tied)):
        query = begin + n
        first = ranked.starts[n]
        end = ranked.ends[n]
        ranks = ranked.ranks[first:end]
        levels = ranked.levels[first:end]
        counts = request.counts[query]
        total = len(ranks)  # all listed positives: ASI is a mean over the first `total` ranks

        # in each round, the positives above the level are copied to the buffers for the next round
        for lowest in range(request.lowest, len(counts)):
            if len(ranks) == 0:
                break
            # Writes hits, precision and gain of this level at each cut, at R and over the whole
            # list. Returns the precision sum over the whole list: it is also a term of `graded_sum`
            # if all of these positives count there, and need not be summed again.
            whole = sum_level(ranks, request, out, query, lowest)
            for h in range(out.graded.shape[1]):
                # by level: relevance, weight (how often an item counts) and number of items. What
                # is added are the terms of a graded sum, such as H-AP, that begin with this level
                grades = Grades(request.relevance[query, h], request.weight[query, h], counts)
                out.graded[query, h] += graded_sum(ranks, levels, lowest, grades, whole)
            if request.binary:
                # with the level's binary labels all these positives are alike: 0 are higher
                overlap = intersection_sum(ranks, np.uint64(0), len(ranks), request.tables.harmonic)
                out.intersection[query, lowest] = overlap / len(ranks)
            if lowest + 1 == len(counts) and not request.overlap:
                break  # no level is above the finest, so nothing has to be split
            # the number of positives above the level, and the number of those of exactly this level
            # that are ranked early enough to count for ASI
            higher, early = split(ranks, levels, lowest, total, buffers)
            # column 0: the ASI of all levels, to which each level adds
            if request.overlap:
                overlap = intersection_sum(
                    buffers.others[:early], higher, total, request.tables.harmonic
                )
                out.intersection[query, 0] += overlap / total
            ranks = buffers.ranks[:higher]
            levels = buffers.levels[:higher]


@compiled_part
def sum_level(ranks: Ranks, request: SumRequest, out: Sums, query: int, level: int) -> float:
    """Write hits, precision and gain (C + 2,) of a query at one level (from 1) to `out`. `ranks`
    (n,): the ranks of its positives at this level, ascending. Without `request.gain` the gains stay
    0, except for column −2, which is not used. Return the precision sum of the whole list.

    The sum up to a cut continues the sum up to the cut before, which has `done` positives.
    """
    cuts = request.cuts
    discount = request.tables.discount
    gains = request.gain
    hits = out.hits[query, level - 1]
    precision = out.precision[query, level - 1]
    gain = out.gain[query, level - 1]
    # np.int64, because for the type of a plain 0 the functions would be compiled once more
    done = np.int64(0)
    precision_so_far = 0.0
    gain_so_far = 0.0
    for column in range(len(cuts)):
        end = count_up_to(ranks, cuts[column])
        precision_so_far += precision_sum(ranks, done, end)
        if gains:
            gain_so_far += gain_sum(ranks, done, end, discount)
        hits[column], precision[column], gain[column] = end, precision_so_far, gain_so_far
        done = end
    # the last two columns are up to R, the number of positives, and of the whole list; no metric
    # needs a gain up to R
    within = count_up_to(ranks, len(ranks))
    hits[-2], precision[-2], gain[-2] = within, precision_sum(ranks, np.int64(0), within), np.nan
    hits[-1], precision[-1] = len(ranks), precision[-2] + precision_sum(ranks, within, len(ranks))
    if gains:
        gain[-1] = gain_so_far + gain_sum(ranks, done, len(ranks), discount)
    return float(precision[-1])


@compiled_part  # np.searchsorted takes seconds to compile, for all of its options
def count_up_to(ranks: Ranks, bound: int) -> Scalar:
    """Count the ranks (n,), which increase, that are at most `bound`, by bisection. numpy's search
    takes longer here than these few steps."""
    low = np.int64(0)
    high = np.int64(len(ranks))
    while low < high:
        middle = (low + high) >> 1
        if ranks[middle] <= bound:
            low = middle + 1
        else:
            high = middle
    return low


@compiled_part
def precision_sum(ranks: Ranks, first: Scalar, last: Scalar) -> float:
    """Σ m/r_m over first < m ≤ last, the sum of the precisions at these positives; r_m is the rank
    of the m-th positive, `ranks` (n,), ascending. Two terms are added as one fraction, since the
    divisions take most of the time.
    """
    total = 0.0
    index = np.uint64(first)
    one = np.uint64(1)
    two = np.uint64(2)
    while index + two <= np.uint64(last):
        # m/a + (m + 1)/b = (m·b + (m + 1)·a)/(a·b)
        m = np.float64(index + one)
        rank = np.float64(ranks[index])
        next_rank = np.float64(ranks[index + one])
        total += (m * next_rank + (m + 1.0) * rank) / (rank * next_rank)
        index += two
    return total + np.float64(last) / np.float64(ranks[index]) if index < np.uint64(last) else total


@compiled_part
def gain_sum(ranks: Ranks, first: Scalar, last: Scalar, discount: Floats) -> float:
    """Σ discount[r_m] over first < m ≤ last, where r_m is the rank of the m-th positive, `ranks`
    (n,), ascending. `discount`: by rank.

    Four sums are computed in parallel, since in a single sum each addition would wait for the one
    before; a gather by vector instructions takes longer. Indices are unsigned, so that no access
    checks for an index from the end.
    """
    total = 0.0
    second = 0.0
    third = 0.0
    fourth = 0.0
    some = ranks[first:last]
    rest = np.uint64(len(some)) % np.uint64(4)
    for index in range(np.uint64(0), np.uint64(len(some)) - rest, np.uint64(4)):
        total += discount[np.uint64(some[index])]
        second += discount[np.uint64(some[index + np.uint64(1)])]
        third += discount[np.uint64(some[index + np.uint64(2)])]
        fourth += discount[np.uint64(some[index + np.uint64(3)])]
    for index in range(np.uint64(len(some)) - rest, np.uint64(len(some))):
        total += discount[np.uint64(some[index])]
    return (total + second) + (third + fourth)


@compiled_part
def split(
    ranks: Ranks, levels: Levels, lowest: int, total: int, buffers: SumBuffers
) -> tuple[Scalar, Scalar]:
    """Split the positives (P,) of one query: copy the ranks and levels of those above level
    `lowest` to the front of `buffers`, and of the others, the ranks up to `total`, to
    `buffers.others`. Return the numbers of both. `ranks` and `levels` may be in `buffers` already,
    since each is only moved towards the front.
    """
    above = np.uint64(0)
    at = np.uint64(0)
    chosen = buffers.chosen
    early = count_up_to(ranks, total)  # ranks beyond `total` add nothing to the overlap of ASI
    for start in range(0, len(ranks), TILE):
        ranks_here = ranks[start : start + TILE]
        levels_here = levels[start : start + TILE]
        # `chosen_here` (n,) marks the items to copy. Flag 0 marks those not above `lowest`; only
        # ranks up to `total` are looked at. Flag 1 marks those above `lowest`.
        if start < early:
            chosen_here = are_above(levels_here[: early - start], lowest, np.uint8(0), chosen)
            at += compress(ranks_here[: len(chosen_here)], chosen_here, buffers.others[at:])
        chosen_here = are_above(levels_here, lowest, np.uint8(1), chosen)
        compress(levels_here, chosen_here, buffers.levels[above:])
        above += compress(ranks_here, chosen_here, buffers.ranks[above:])
    return above, at


@compiled_part
def compress(numbers: NDArray[Any], chosen: NDArray[np.uint8], out: NDArray[Any]) -> Scalar:
    """Copy the chosen numbers (n integers) to the front of `out`; return how many. `chosen` (n,): 1
    for a chosen number, else 0.

    Each number is written to the next place, which advances only if the number was chosen. So the
    loop has no branch, which would be slow for irregular choices. `out` must have at least n
    places. It may be a part of the array of the numbers, if it begins at their first place or
    before: no number is then overwritten before it is read.
    """
    count = np.uint64(0)
    lanes = np.uint64(LANES)
    n = np.uint64(len(numbers))
    # groups of LANES numbers: loops of constant length, which the compiler unrolls
    for group in range(n // lanes):
        first = np.uint64(group) * lanes
        for lane in range(np.uint64(LANES)):
            out[count] = numbers[first + lane]
            count += np.uint64(chosen[first + lane])
    for item in range(n - n % lanes, n):
        out[count] = numbers[item]
        count += np.uint64(chosen[item])
    return count


@compiled_part
def are_above(
    levels: Levels, lowest: int, flag: Scalar, chosen: NDArray[np.uint8]
) -> NDArray[np.uint8]:
    """Mark levels (n,) with 1 or 0. If `flag` is 1, those above `lowest` get 1; if `flag` is 0,
    those not above it do. Return the marks (n,), which are the front of `chosen`."""
    for index in range(len(levels)):
        chosen[index] = np.uint8(np.uint8(levels[index] > np.uint8(lowest)) == flag)
    return chosen[: len(levels)]


@compiled_part
def intersection_sum(ranks: Ranks, higher: Scalar, total: Scalar, harmonic: Floats) -> Scalar:
    """What the items of one level add to the sum of ASI. ASI is the mean overlap of the first n
    items of the ranking with the first n items of the ideal order, over n = 1 … `total`, where
    `total` is the number of the query's positives of all levels.

    `ranks` (P,): of the level's items, ascending, from 1. `higher`: how many positives are of
    higher levels, which the ideal order puts before these items. `harmonic`: H_n = Σ_{i≤n} 1/i by
    n. The j-th item is among the first n items of both orders from n = max(rank_j, higher + j) on.
    It adds 1/n for each n from there to `total`, which is H_total − H_{n−1}.
    """
    overlap = 0.0
    # items behind place `total` in one of the orders add nothing: `last` items are up to that place
    # in the ranking, and `rest` items in the ideal order
    last = count_up_to(ranks, total)
    rest = total - np.int64(higher)
    last = last if last < rest else rest
    for index in range(np.uint64(last)):
        # n − 1 in both orders; `index` is j − 1
        start = np.uint64(ranks[index]) - np.uint64(1)
        ideal = np.uint64(higher) + index
        overlap += harmonic[np.uint64(total)] - harmonic[start if start > ideal else ideal]
    return overlap


@compiled_part
def graded_sum(ranks: Ranks, levels: Levels, lowest: int, grades: Grades, whole: float) -> float:
    """Σ (t − t')·(precision sum of the items of relevance ≥ t), over the relevances t that the
    level `lowest`, but no lower one, reaches; t' is the next smaller relevance.

    `ranks`, `levels` (P,): the positives of level `lowest` or finer. `grades`: by level, the
    relevance, the weight (how often an item counts), and the number of items. `whole`: the
    precision sum of these positives, which is used if all of them have relevance ≥ t.
    """
    relevance, weight, counts = grades
    total = 0.0
    for level in range(lowest, len(counts)):
        # a quick check first: only levels that meet these conditions can make a term
        if (
            counts[level]
            and relevance[level] > 0
            and relevance[lowest] >= relevance[level]
            and counts[lowest]
        ):
            # t', whether there is a term, and whether it is over the whole list
            previous, is_term, is_whole = threshold_of(level, lowest, grades)
            if is_term:
                part = (
                    whole
                    if is_whole
                    else threshold_sum(ranks, levels, relevance, relevance[level], weight)
                )
                total += (relevance[level] - previous) * part

    return total


@compiled_part
def threshold_of(level: int, lowest: int, grades: Grades) -> tuple[float, bool, bool]:
    """Return what one term of a graded sum needs, for the relevance t of `level`. `grades`: by
    level, the relevance, the weight (how often an item counts), and the number of items.

    Returns three values: the next smaller relevance; whether there is a term, that is, `lowest` is
    the lowest level that reaches t, and no level before `level` has the same t; and whether the
    term is over the whole list, since all levels from `lowest` on reach t and have weight 1. Levels
    without items are ignored. The caller has tested that `lowest` itself has items and reaches t.
    """
    relevance, weight, counts = grades
    previous = 0.0
    is_term = True
    is_whole = True
    for other in range(1, len(counts)):
        if counts[other]:
            reaches = relevance[other] >= relevance[level]
            previous = relevance[other] if not reaches and relevance[other] > previous else previous
            # there is no term if a level below `lowest` reaches t, or a level before has the same t
            is_term &= not (
                reaches
                and (other < lowest or (other < level and relevance[other] == relevance[level]))
            )
            is_whole &= other < lowest or (reaches and weight[other] == 1)
    return previous, is_term, is_whole


@compiled_part
def threshold_sum(
    ranks: Ranks, levels: Levels, relevance: Floats, threshold: float, weight: NDArray[np.int64]
) -> float:
    """Σ_k (1/r_k)·Σ_{j ≤ k} weight_j over the positives whose relevance reaches the threshold.

    `ranks`, `levels` (P,): of all positives; `relevance`, `weight` (L + 1,): by level.
    """
    # by level, from 0: whether it reaches the threshold, and its weight or 0. With these tables the
    # loop below has no branch.
    reaches = np.empty(len(weight), np.int64)
    added = np.empty(len(weight), np.int64)
    for level in range(len(weight)):
        reaches[level] = np.int64(relevance[level] >= threshold)
        added[level] = reaches[level] * weight[level]
    count = np.int64(0)
    total = 0.0
    # unsigned indices, so that no access checks for an index from the end
    for index in range(np.uint64(len(ranks))):
        place = np.uint64(levels[index])
        count += added[place]
        total += np.float64(count * reaches[place]) / np.float64(ranks[index])
    return total
