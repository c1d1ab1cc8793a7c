"""The steps of hbench/steps.py in numpy alone: where numba is missing, or a test so small that loading it takes longer.

Each is the twin of the compiled function of its name; tests prove them equal.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hbench.kernel import How, Ranked
from hbench.order import INFINITE, SIZE, Coding, Parts, Sorted, sort_distinct, tie_keys
from hbench.sums import Floats, Levels, Ranks, Scratch, Sums, Tables, Wanted


def sort(rows: NDArray[np.floating], parts: Parts, to: Sorted) -> None:
    """Sort each part: by score, then by the tie key of the level; both with the best first."""
    coding = to.coding
    for row, begin, first, size in zip(range(len(rows)), parts.begins, parts.offsets, parts.sizes, strict=True):
        keys, scores = to.keys[first : first + size], rows[row, begin : begin + size]
        if rows.dtype == np.float64 or not write_keys(scores, tie_keys(parts, row, coding.of_level), coding, keys):
            sort_distinct(rows, parts, to)
            return
        keys.sort()


def write_keys(
    scores: NDArray[np.float32], ties: NDArray[np.uint8], coding: Coding, keys: NDArray[np.unsignedinteger]
) -> bool:
    """The keys of one part's items; whether every score has a code of its own."""
    bits, middle, one = scores.view(np.uint32), np.uint32(coding.middle), np.uint32(1)
    size = bits & np.uint32(SIZE)
    largest = int((size * (size < np.uint32(INFINITE))).max(initial=0))
    floor = np.uint32(max(largest - (coding.middle - 1), 0))
    exact = bool(floor <= (size - one).min(initial=SIZE))
    above = (size - floor) * (size > floor)  # arithmetic throughout: np.where takes ten times as long
    np.minimum(above, middle, out=above)
    sign = (bits.view(np.int32) >> np.int32(31)).view(np.uint32)  # all ones below zero
    code = middle + sign - (above ^ sign)  # so ±above
    np.bitwise_or(code.astype(keys.dtype, copy=False) << keys.dtype.type(coding.bits), ties, out=keys)
    return exact


def rank_rows(rows: NDArray[np.floating], parts: Parts, by_score: Sorted, how: How, to: tuple[object, Ranked]) -> None:
    """Rank the positives of rows that were sorted as a whole."""
    coding, out = by_score.coding, to[1]
    none, ties = coding.of_level[0], by_score.keys.dtype.type((1 << coding.bits) - 1)
    for row, (first, size) in enumerate(zip(parts.offsets.tolist(), parts.sizes.tolist(), strict=True)):
        keys, own = by_score.keys[first : first + size], slice(out.starts[row], out.ends[row])
        keys = keys[: np.searchsorted(keys, keys.dtype.type(2 * coding.middle << coding.bits))]  # all but −inf
        tie = (keys & ties).astype(np.uint8)
        places = np.flatnonzero(tie != none)
        out.ranks[own], out.levels[own] = places + 1, coding.to_level[tie[places]]
        differing = keys[1:] ^ keys[:-1]
        out.tied[row] = (differing - keys.dtype.type(1) < ties).any()  # in the tie key alone; 0 − 1 is the largest


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


def sum_up(ranked: Ranked, wanted: Wanted, by_rank: Tables, room: Scratch, to: Sums) -> None:
    """All sums of n queries, whose positives of level ≥ `lowest` are ranked."""
    for query, (first, end) in enumerate(zip(ranked.starts.tolist(), ranked.ends.tolist(), strict=True)):
        if end > first:
            sum_query(ranked.ranks[first:end], ranked.levels[first:end], query, wanted, (by_rank, to))


def sum_query(ranks: Ranks, levels: Levels, query: int, wanted: Wanted, to: tuple[Tables, Sums]) -> None:
    """All sums of one of the queries."""
    by_rank, out = to
    total = len(ranks)
    of_level, levels_of = ranks, levels
    for lowest in range(wanted.lowest, wanted.counts.shape[1]):
        if not len(of_level):
            break
        at = (out.hits[query, lowest - 1], out.precision[query, lowest - 1], out.gain[query, lowest - 1])
        sum_level(of_level, wanted.cuts, by_rank.discount, at)
        if wanted.binary:
            binary = intersection_sum(of_level, 0, len(of_level), by_rank.harmonic)
            out.intersection[query, lowest] = binary / len(of_level)
        higher = levels_of > lowest
        found = intersection_sum(of_level[~higher], int(higher.sum()), total, by_rank.harmonic)
        out.intersection[query, 0] += found / total
        of_level, levels_of = of_level[higher], levels_of[higher]
    for h in range(out.graded.shape[1]):
        out.graded[query, h] = graded_sum((ranks, levels), (query, h), wanted, out.precision[query, :, -1])


def sum_level(
    ranks: Ranks, cuts: NDArray[np.int64], discount: Floats, out: tuple[NDArray[np.int64], Floats, Floats]
) -> None:
    """hits, precision and gain (C + 2,) of one level."""
    hits, precision, gain = out
    ends = np.searchsorted(ranks, np.concatenate([cuts, [len(ranks), ranks[-1]]]), side="right")
    hits[:] = ends
    sums_to(np.arange(1, len(ranks) + 1) / ranks, ends, precision)
    sums_to(discount[ranks], ends, gain)
    gain[-2] = np.nan


def sums_to(terms: Floats, ends: NDArray[np.int64], out: Floats) -> None:
    """Σ terms[:end] of each end, the last of which is the end of all."""
    most = ends[:-1].max()
    out[:-1] = np.concatenate([[0.0], np.cumsum(terms[:most])])[ends[:-1]]
    out[-1] = out[ends[:-1].argmax()] + terms[most:].sum()


def intersection_sum(ranks: Ranks, higher: int, total: int, harmonic: Floats) -> float:
    """The part of ASI of one level, whose items have these ranks, `higher` items being above it; `total` is R."""
    last = max(min(int(np.searchsorted(ranks, total, side="right")), total - higher), 0)
    start = np.maximum(ranks[:last] - 1, np.arange(higher, higher + last))
    return float(last * harmonic[total] - harmonic[start].sum())


def graded_sum(sequence: tuple[Ranks, Levels], at: tuple[int, int], wanted: Wanted, precision: Floats) -> float:
    """Σ_t (t − t')·(precision of {rel ≥ t}); `precision` (L,) is that of every {level ≥ l}."""
    query, h = at
    relevance, weight = wanted.relevance[query, h], wanted.weight[query, h]
    present = np.flatnonzero(wanted.counts[query] > 0)
    present = present[present >= wanted.lowest]
    terms = np.unique(relevance[present])
    terms, total, previous = terms[terms > 0], 0.0, 0.0
    for threshold in terms.tolist():
        reaches = present[relevance[present] >= threshold]
        nested = present[present >= reaches[0]]
        if len(nested) == len(reaches) and (weight[reaches] == 1).all():
            part = precision[reaches[0] - 1]
        else:
            part = threshold_sum(*sequence, np.isin(np.arange(len(relevance)), reaches), weight)
        total += (threshold - previous) * part
        previous = threshold
    return float(total)


def threshold_sum(ranks: Ranks, levels: Levels, reaches: NDArray[np.bool_], weight: NDArray[np.int64]) -> float:
    """Σ_k (1/r_k)·Σ_{j ≤ k} weight_j over the positives whose level reaches the threshold."""
    own = reaches[levels]
    return float((np.cumsum(weight[levels[own]]) / ranks[own]).sum())
