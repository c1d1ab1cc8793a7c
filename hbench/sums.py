"""Sums over the ranks of one query's positives, from which the metrics of a full ranking follow; compiled by numba.

With r_1 < r_2 < … the ranks of P_l, the items of level ≥ l, and R their number:
hits(c) = #{r_m ≤ c}, precision(c) = Σ_{r_m ≤ c} m/r_m, gain(c) = Σ_{r_m ≤ c} 1/log2(1 + r_m), at given cuts, R and ∞.

H-AP needs no more where the relevance grows with the level, for min(a, b) = ∫ [t ≤ a][t ≤ b] dt gives
Σ_k H-rank(k)/rank(k) = Σ_t (t − t')·(precision of {rel ≥ t}), t the relevances in increasing order, t' the one before.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hbench.compiled import Scalar, compiled, compiled_sum

Ranks = NDArray[np.signedinteger]
Levels = NDArray[np.uint8]
Floats = NDArray[np.float64]


class Tables(NamedTuple):
    """By rank, from 0: `discount` 1/log2(1 + r), its sum from 1, `harmonic` Σ_{n≤r} 1/n."""

    discount: Floats
    discount_sum: Floats
    harmonic: Floats


class Wanted(NamedTuple):
    """`cuts` (C,), ascending. Of H graded sums, `relevance`, `weight` (H, L+1). `binary`: every level's ASI, too."""

    cuts: NDArray[np.int64]
    relevance: Floats
    weight: NDArray[np.int64]
    binary: bool


class Sums(NamedTuple):
    """Of one query: `hits`, `precision`, `gain` (L, C+2), at the cuts, R and ∞; `graded` (H,); `intersection` (1+L,):
    the ASI, then that of every level's binary labels."""

    hits: NDArray[np.int64]
    precision: Floats
    gain: Floats
    graded: Floats
    intersection: Floats


def tables(size: int) -> Tables:
    """The tables for rankings of up to so many items."""
    ranks = np.arange(size + 1, dtype=np.float64)
    ranks[0] = 1
    discount = 1 / np.log2(1 + ranks)
    return Tables(discount, *(np.concatenate([[0.0], np.cumsum(each[1:])]) for each in (discount, 1 / ranks)))


@compiled
def sum_up(
    sequence: tuple[Ranks, Levels, NDArray[np.int64]],
    wanted: Wanted,
    by_rank: Tables,
    room: tuple[Ranks, Levels],
    out: Sums,
) -> None:
    """All sums of one query: ranks (P,), levels (P,), P ≥ 1, and counts (L+1,); `room`: two arrays of at least (P,)."""
    ranks, levels, counts = sequence
    out.graded[:] = 0
    out.intersection[0] = set_intersection(ranks, levels, counts, by_rank.harmonic)
    for lowest in range(1, len(counts)):
        if lowest > 1:
            kept = select(ranks, levels, lowest, room)
            ranks, levels = room[0][:kept], room[1][:kept]
        row = lowest - 1
        sum_level(ranks, wanted.cuts, by_rank.discount, (out.hits[row], out.precision[row], out.gain[row]))
        if wanted.binary:
            out.intersection[lowest] = binary_intersection(ranks, by_rank.harmonic)
        for h in range(len(out.graded)):
            terms = (wanted.relevance[h], wanted.weight[h], counts)
            out.graded[h] += graded_sum(ranks, levels, lowest, terms, out.precision[row, -1])


@compiled
def sum_level(
    ranks: Ranks, cuts: NDArray[np.int64], discount: Floats, out: tuple[NDArray[np.int64], Floats, Floats]
) -> None:
    """hits, precision and gain (C + 2,) of one level."""
    hits, precision, gain = out
    done, precision_so_far, gain_so_far = 0, 0.0, 0.0
    for column in range(len(cuts)):
        end = np.searchsorted(ranks, cuts[column], side="right")
        precision_so_far += precision_sum(ranks, done, end)
        gain_so_far += gain_sum(ranks, done, end, discount)
        hits[column], precision[column], gain[column] = end, precision_so_far, gain_so_far
        done = end
    within = np.searchsorted(ranks, len(ranks), side="right")
    hits[-2], precision[-2], gain[-2] = within, precision_sum(ranks, 0, within), np.nan
    hits[-1], precision[-1] = len(ranks), precision[-2] + precision_sum(ranks, within, len(ranks))
    gain[-1] = gain_so_far + gain_sum(ranks, done, len(ranks), discount)


@compiled_sum
def precision_sum(ranks: Ranks, first: Scalar, last: Scalar) -> float:
    """Σ m/r_m over first < m ≤ last."""
    total = 0.0
    for index in range(np.uint64(first), np.uint64(last)):
        total += np.float64(index + np.uint64(1)) / np.float64(ranks[index])
    return total


@compiled_sum
def gain_sum(ranks: Ranks, first: Scalar, last: Scalar, discount: Floats) -> float:
    """Σ discount[r_m] over first < m ≤ last."""
    total = 0.0
    for index in range(np.uint64(first), np.uint64(last)):
        total += discount[np.uint64(ranks[index])]
    return total


@compiled
def select(ranks: Ranks, levels: Levels, lowest: int, room: tuple[Ranks, Levels]) -> Scalar:
    """Copy the positives of level ≥ lowest to the front of `room`, which may hold them already; their number."""
    kept_ranks, kept_levels = room
    kept = np.uint64(0)
    for index in range(np.uint64(len(ranks))):
        level = levels[index]
        kept_ranks[kept], kept_levels[kept] = ranks[index], level
        kept += np.uint64(level >= lowest)
    return kept


@compiled
def set_intersection(ranks: Ranks, levels: Levels, counts: NDArray[np.int64], harmonic: Floats) -> Scalar:
    """ASI: with B_l items above level l, the j-th of exactly level l is in the first n of both orders from
    n = max(r_j, B_l + j) on, which adds Σ_{n ≤ R} 1/n from there: H_R − H_{n−1}."""
    reached = np.zeros(len(counts), np.int64)
    for higher in range(len(counts) - 1, 0, -1):
        reached[higher - 1] = reached[higher] + counts[higher]
    total, found = reached[0], 0.0
    for index in range(np.uint64(np.searchsorted(ranks, total, side="right"))):
        level: Scalar = np.uint64(levels[index])
        reached[level] += 1
        first: Scalar = max(np.int64(ranks[index]), reached[level])
        if first <= total:
            found += harmonic[np.uint64(total)] - harmonic[np.uint64(first - 1)]
    return found / total


@compiled_sum
def binary_intersection(ranks: Ranks, harmonic: Floats) -> Scalar:
    """The ASI of binary labels, Σ_{r_m ≤ R} (H_R − H_{r_m − 1}) / R."""
    total, found = np.uint64(len(ranks)), 0.0
    for index in range(np.uint64(np.searchsorted(ranks, len(ranks), side="right"))):
        found += harmonic[total] - harmonic[np.uint64(ranks[index]) - np.uint64(1)]
    return found / len(ranks)


@compiled
def graded_sum(
    ranks: Ranks, levels: Levels, lowest: int, terms: tuple[Floats, NDArray[np.int64], NDArray[np.int64]], whole: float
) -> float:
    """The terms (t − t')·(precision of {rel ≥ t}) whose set has `lowest` as its lowest level, the set lying in `ranks`;
    `whole` is the precision of all `ranks`."""
    relevance, weight, counts = terms
    total = 0.0
    for level in range(lowest, len(counts)):
        if counts[level] and relevance[level] > 0 and relevance[lowest] >= relevance[level] and counts[lowest]:
            previous, is_term, is_whole = threshold_of(level, lowest, terms)
            if is_term:
                part = whole if is_whole else threshold_sum(ranks, levels, relevance >= relevance[level], weight)
                total += (relevance[level] - previous) * part
    return total


@compiled
def threshold_of(
    level: int, lowest: int, terms: tuple[Floats, NDArray[np.int64], NDArray[np.int64]]
) -> tuple[float, bool, bool]:
    """The relevance before that of `level`; whether `lowest` is the lowest level that reaches it, and `level` the first
    to have it; whether all levels from there reach it, with weight 1."""
    relevance, weight, counts = terms
    previous, is_term, is_whole = 0.0, True, True
    for other in range(1, len(counts)):
        if counts[other]:
            reaches = relevance[other] >= relevance[level]
            previous = previous if reaches else max(previous, relevance[other])
            is_term &= not (reaches and (other < lowest or (other < level and relevance[other] == relevance[level])))
            is_whole &= other < lowest or (reaches and weight[other] == 1)
    return previous, is_term, is_whole


@compiled
def threshold_sum(ranks: Ranks, levels: Levels, reaches: NDArray[np.bool_], weight: NDArray[np.int64]) -> float:
    """Σ_k (1/r_k)·Σ_{j ≤ k} weight_j over the positives whose level reaches the threshold."""
    own = reaches.astype(np.int64)
    added = own * weight
    count, total = np.int64(0), 0.0
    for index in range(np.uint64(len(ranks))):
        level = np.uint64(levels[index])
        count += added[level]
        total += np.float64(count * own[level]) / np.float64(ranks[index])
    return total
