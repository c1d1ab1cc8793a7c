"""The kernels in numpy alone: where numba is missing, or a test is so small that loading it takes longer.

Each function is the twin of the compiled one of its name; tests prove them equal.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hbench.engine.kernels.rank_positives import RankedPositives, RankingRule
from hbench.engine.kernels.rank_sums import Floats, Levels, Ranks, SumBuffers, SumRequest, Sums, Tables
from hbench.engine.kernels.sort_keys import INFINITE, SIGN, SIZE, Parts, SortedKeys, sort_distinct, tie_keys


def sort(rows: NDArray[np.floating], parts: Parts, to: SortedKeys) -> None:
    """Sort each part: by score, then by the tie key of the level; both with the best first."""
    for row, begin, first, size in zip(range(len(rows)), parts.begins, parts.offsets, parts.sizes, strict=True):
        own = to._replace(keys=to.keys[first : first + size], scores=to.scores[first : first + size])
        ties = tie_keys(parts, row, to.coding.of_level)
        if rows.dtype == np.float64 or not write_keys(rows[row, begin : begin + size], ties, own):
            sort_distinct(rows, parts, to)
            return
        own.keys.sort()


def write_keys(scores: NDArray[np.float32], ties: NDArray[np.uint8], to: SortedKeys) -> bool:
    """The keys of one part's items; whether every score has a code of its own.

    In place, for new memory takes as long as the arithmetic; and without numpy's where, minimum and maximum, which take
    several times as long.
    """
    bits, middle = scores.view(np.int32), to.coding.middle
    above, spare = to.scores.view(np.int32), to.keys.view(np.int32)[: len(bits)]
    largest = largest_finite(bits, above.view(np.uint32))
    floor = max(largest - (middle - 1), 0)
    np.right_shift(bits, np.int32(31), out=above)  # all ones below zero
    above &= np.int32(SIZE)
    above ^= bits  # |s|, or −1 − |s|
    above -= np.clip(above, np.int32(-1 - floor), np.int32(floor), out=spare)
    exact = np.count_nonzero(above) == len(bits) or not scores[above == 0].any()
    np.clip(above, np.int32(-middle), np.int32(middle), out=above)
    np.subtract(np.int32(middle), above, out=above)
    np.left_shift(above.view(np.uint32), to.keys.dtype.type(to.coding.bits), out=to.keys)
    np.bitwise_or(to.keys, ties, out=to.keys)
    return bool(exact) and largest < INFINITE


def largest_finite(bits: NDArray[np.int32], spare: NDArray[np.uint32]) -> int:
    """The bits of the largest |s| but for −inf."""
    beyond = np.uint32(SIGN - INFINITE)  # takes −inf round to 0
    below = int(np.add(bits.view(np.uint32), beyond, out=spare).max(initial=0)) - SIGN - int(beyond)
    return max(int(bits.max(initial=0)), below)


def rank_rows(
    rows: NDArray[np.floating], parts: Parts, by_score: SortedKeys, how: RankingRule, to: tuple[object, RankedPositives]
) -> None:
    """Rank the positives of rows that were sorted as a whole."""
    coding, out, one = by_score.coding, to[1], by_score.keys.dtype.type(1)
    none, ties = one * coding.of_level[0], (one << one * coding.bits) - one
    spare = np.empty(parts.sizes.max(initial=0), one.dtype)
    for row, (first, size) in enumerate(zip(parts.offsets.tolist(), parts.sizes.tolist(), strict=True)):
        keys, own = by_score.keys[first : first + size], slice(out.starts[row], out.ends[row])
        keys = keys[: keys.searchsorted(2 * coding.middle * one << one * coding.bits)]  # all but −inf
        places = np.flatnonzero(np.bitwise_and(keys, ties, out=spare[: len(keys)]) != none)
        out.ranks[own], out.levels[own] = places + 1, coding.to_level[spare[places]]
        differing = np.bitwise_xor(keys[1:], keys[:-1], out=spare[: len(keys[1:])])
        differing -= one
        out.tied[row] = (differing < ties).any()  # in the tie key alone; 0 − 1 is the largest


def levels_of_best(
    rows: NDArray[np.floating], parts: Parts, pessimistic: bool, levels: NDArray[np.uint8], todo: NDArray[np.bool_]
) -> None:
    """The level of the item ranked first, listed or not, of the queries `todo` (n,)."""
    for row in np.flatnonzero(todo).tolist():
        best = rows[row].max()
        own = np.zeros(rows.shape[1], np.uint8)
        for level, (start, end) in enumerate(zip(parts.starts[row], parts.ends[row], strict=True), start=1):
            own[start:end] = level
        of_best = own[rows[row] == best]
        levels[row] = (of_best.min() if pessimistic else of_best.max()) if best > -np.inf else 0


def sum_up(ranked: RankedPositives, wanted: SumRequest, by_rank: Tables, room: SumBuffers, to: Sums) -> None:
    """All sums of n queries, whose positives of level ≥ `lowest` are ranked."""
    for query, (first, end) in enumerate(zip(ranked.starts.tolist(), ranked.ends.tolist(), strict=True)):
        if end > first:
            sum_query(ranked.ranks[first:end], ranked.levels[first:end], query, wanted, (by_rank, to))


def sum_query(ranks: Ranks, levels: Levels, query: int, wanted: SumRequest, to: tuple[Tables, Sums]) -> None:
    """All sums of one of the queries."""
    by_rank, out = to
    total, numbers = len(ranks), np.arange(1.0, len(ranks) + 1)
    of_level, levels_of = ranks.astype(np.intp), levels
    for lowest in range(wanted.lowest, wanted.counts.shape[1]):
        if not len(of_level):
            break
        at = (out.hits[query, lowest - 1], out.precision[query, lowest - 1], out.gain[query, lowest - 1])
        sum_level(of_level, wanted.cuts, numbers, by_rank.discount if wanted.gain else None, at)
        if wanted.binary:
            binary = intersection_sum(of_level, 0, len(of_level), by_rank.harmonic)
            out.intersection[query, lowest] = binary / len(of_level)
        higher, early = np.flatnonzero(levels_of > lowest), of_level.searchsorted(total, side="right")
        if wanted.overlap:
            others = of_level[np.flatnonzero(levels_of[:early] <= lowest)]
            out.intersection[query, 0] += intersection_sum(others, len(higher), total, by_rank.harmonic) / total
        of_level, levels_of = of_level[higher], levels_of[higher]
    for h in range(out.graded.shape[1]):
        out.graded[query, h] = graded_sum((ranks, levels), (query, h), wanted, out.precision[query, :, -1].tolist())


def sum_level(
    ranks: Ranks,
    cuts: NDArray[np.int64],
    numbers: Floats,
    discount: Floats | None,
    out: tuple[NDArray[np.int64], Floats, Floats],
) -> None:
    """hits, precision and gain (C + 2,) of one level; `numbers`: 1, 2, …, as floats. Without a discount gains stay 0."""
    hits, precision, gain = out
    hits[:-2] = ranks.searchsorted(cuts, side="right")
    hits[-2:] = ranks.searchsorted(len(ranks), side="right"), len(ranks)
    most = int(hits[:-1].max())
    sums_to(numbers[: len(ranks)] / ranks, hits, most, precision)
    if discount is not None:
        sums_to(discount[ranks], hits, most, gain)
    gain[-2] = np.nan


def sums_to(terms: Floats, ends: NDArray[np.int64], most: int, out: Floats) -> None:
    """Σ terms[:end] of each end, of which the last is the end of all and `most` the largest other."""
    running = np.zeros(most + 1)
    terms[:most].cumsum(out=running[1:])
    out[:-1] = running[ends[:-1]]
    out[-1] = running[most] + terms[most:].sum()


def intersection_sum(ranks: Ranks, higher: int, total: int, harmonic: Floats) -> float:
    """The part of ASI of one level, whose items have these ranks, `higher` items being above it; `total` is R."""
    last = max(min(int(ranks.searchsorted(total, side="right")), total - higher), 0)
    start = np.maximum(ranks[:last] - 1, np.arange(higher, higher + last))
    return float(last * harmonic[total] - harmonic[start].sum())


def graded_sum(
    sequence: tuple[Ranks, Levels], at: tuple[int, int], wanted: SumRequest, precision: list[float]
) -> float:
    """Σ_t (t − t')·(precision of {rel ≥ t}); `precision` (L,) is that of every {level ≥ l}."""
    query, h = at
    relevance, weight = wanted.relevance[query, h].tolist(), wanted.weight[query, h]
    present = [level for level in np.flatnonzero(wanted.counts[query]).tolist() if level >= wanted.lowest]
    total, previous = 0.0, 0.0
    for threshold in sorted({relevance[level] for level in present if relevance[level] > 0}):
        reaches = [level for level in present if relevance[level] >= threshold]
        if reaches == present[-len(reaches) :] and (weight[reaches] == 1).all():
            part = precision[reaches[0] - 1]
        else:
            part = threshold_sum(*sequence, np.isin(np.arange(len(relevance)), reaches), weight)
        total += (threshold - previous) * part
        previous = threshold
    return total


def threshold_sum(ranks: Ranks, levels: Levels, reaches: NDArray[np.bool_], weight: NDArray[np.int64]) -> float:
    """Σ_k (1/r_k)·Σ_{j ≤ k} weight_j over the positives whose level reaches the threshold."""
    own = np.flatnonzero(reaches[levels])
    return float((np.cumsum(weight[levels[own]]) / ranks[own]).sum())


def leave_out(ranked: RankedPositives, stays: Levels, level: Levels, to: RankedPositives) -> None:
    """Write the ranks, levels and ends of n lists; `stays` (1 or 0) and `level` by code."""
    for query, (first, end) in enumerate(zip(ranked.starts.tolist(), ranked.ends.tolist(), strict=True)):
        codes = ranked.levels[first:end]
        ranks = ranked.ranks[first:end] - np.cumsum(1 - stays[codes].astype(np.int32))
        listed = np.flatnonzero((stays * (level > 0))[codes])
        place = slice(first, first + len(listed))
        to.ranks[place], to.levels[place] = ranks[listed], level[codes[listed]]
        to.ends[query] = place.stop
