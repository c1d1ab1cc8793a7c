"""The kernel that computes the ranks and levels of the queries' positives from rows of scores,
compiled by numba.

In canonical order the positives are one range of the row. Only the positives are sorted. Each
distractor is looked up once among the sorted positives, and the number of distractors before a
positive gives its rank. The lookup divides the range of the positives' scores into equal buckets;
`before[b]` is the number of positives in the buckets before b. With few positives it is quicker to
compare each distractor with all of them. Very many positives are looked up in portions, one after
another; the rank of a positive does not depend on its portion.

A slot is a place among the sorted positives, best first. The flag `pessimistic` orders equal
scores: the item of lower level comes first, or else the item of higher level.

Places are uint64, because numba would add a branch to every access by an index that may be
negative.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hbench.core.compiled import Scalar, compiled, compiled_part
from hbench.engine.kernels.sort_keys import Parts, SortedKeys

# per positive, at most; nearly all buckets then hold at most one positive, and a lookup rarely has
# to search
BUCKETS = 16
PORTION = 60_000  # positives looked up at once; their counts fit into uint16
# scores compared or put into buckets at once by vector instructions; they stay in the first-level
# cache
TILE = 1024
# positives up to which it is quicker to compare every distractor with each of them
MAX_COMPARED = 16


class RankingRule(NamedTuple):
    """How positives are ranked. `pessimistic`: whether, among equal scores, lower levels come
    first. `few`: up to this many positives are compared with every distractor. `portion`: the most
    positives that are looked up at once."""

    pessimistic: bool
    few: int
    portion: int


class RankedPositives(NamedTuple):
    """The positives of n queries, in flat arrays.

    `ranks` int32, increasing, and `levels` uint8: those of query q are from `starts[q]` to
    `ends[q]`. `tied` (n,): whether another order of equal scores would give other levels.
    """

    ranks: NDArray[np.int32]
    levels: NDArray[np.uint8]
    starts: NDArray[np.int64]
    ends: NDArray[np.int64]
    tied: NDArray[np.bool_]

    def of(self, queries: slice) -> RankedPositives:
        """The positives of some of the queries; the flat arrays are the same."""
        return self._replace(
            starts=self.starts[queries], ends=self.ends[queries], tied=self.tied[queries]
        )


@compiled
def rank_rows(
    rows: NDArray[np.floating],
    parts: Parts,
    by_score: SortedKeys,
    rule: RankingRule,
    out: RankedPositives,
) -> None:
    """Write the ranks and levels of the positives of n rows of scores (n, G) to `out`. Items that
    are left out of a list have −inf. `by_score`: the positives of each row, sorted; `parts`: where
    they are in the rows and in `by_score`. `rule`: how equal scores are ordered, and how many
    positives are looked up at once (`portion`).
    """
    # Buffers for the largest portion of any row. `before`: how many positives are in the buckets
    # before each; the last place has those of all buckets. `counts`: how many distractors come
    # between each positive and the one before; the last place has those behind all positives.
    most = np.int64(0)
    for row in range(len(rows)):
        most = max(most, min(out.ends[row] - out.starts[row], np.int64(rule.portion)))
    before = np.empty(BUCKETS * most + 1, np.uint16)
    counts = np.empty(most + 1, np.int32)
    for row in range(len(rows)):
        ranks = out.ranks[out.starts[row] : out.ends[row]]
        levels = out.levels[out.starts[row] : out.ends[row]]
        offset = parts.offsets[row]
        begin = parts.begins[row]
        size = parts.sizes[row]
        sorted_levels = by_score.levels[offset : offset + size]
        tied = False
        # `levels` may be shorter than `sorted_levels`, at whose end are the items that are left out
        # of the list, such as the query itself
        for slot in range(np.uint64(len(levels))):
            levels[slot] = sorted_levels[slot]
        # the columns before and behind those of the positives; very many positives are looked up a
        # portion at a time, whose counts fit into uint16
        distractors = (rows[row, :begin], rows[row, begin + size :])
        for start in range(0, len(ranks), rule.portion):
            of_portion = ranks[start : start + rule.portion]
            # one score more, at which a search ends: the next portion's best, or the −inf that
            # `by_score` has in the place behind each row's list
            ordered = by_score.scores[offset + start : offset + start + len(of_portion) + 1]
            above = counts[: len(of_portion) + 1]
            above[:] = 0
            tied |= count_above(distractors, ordered, rule, before, above)
            add_up(above, start, of_portion)  # writes the ranks
        out.tied[row] = tied | are_tied(by_score.scores[offset : offset + size], levels)


@compiled_part
def count_above(
    distractors: tuple[NDArray[np.floating], NDArray[np.floating]],
    ordered: NDArray[np.floating],
    rule: RankingRule,
    before: NDArray[np.uint16],
    above: NDArray[np.int32],
) -> bool:
    """Add to `above[s]` (P + 1,) the number of distractors between positives s − 1 and s; return
    whether a distractor has the score of a positive.

    `distractors`: the scores in the columns left and right of those of the positives. `ordered`
    (P + 1,): the positives' scores, best first, and one more, which is not higher, so that every
    search stops there: the best score of the next portion if callers look positives up in portions,
    and −inf behind all positives. `before`: a buffer for BUCKETS·P + 1 counts, which is
    overwritten. `rule`: whether ties are `pessimistic`, and up to how many positives (`few`) each
    is compared with all distractors.
    """
    positives = len(above) - 1
    tied = False
    if positives <= rule.few:  # quicker than a table
        for scores in distractors:
            tied |= compare_distractors(scores, ordered[:positives], rule.pessimistic, above)
    else:
        # filling the table takes time, too, so it has fewer buckets per positive if there are few
        # distractors per positive to be looked up
        total = len(distractors[0]) + len(distractors[1])
        buckets = positives * (
            BUCKETS if total > 10 * positives else 8 if total > 4 * positives else 4
        )
        # the functions below take the numbers of positives and buckets from these lengths
        ordered = ordered[: positives + 1]
        before = before[: buckets + 1]
        # fills `before[b]` with the number of positives in the buckets before b
        look_up(ordered, before)
        for scores in distractors:
            tied |= count_distractors(scores, ordered, before, rule.pessimistic, above)

    return tied


@compiled_part
def add_up(above: NDArray[np.int32], positives: int, ranks: NDArray[np.int32]) -> None:
    """Write to `ranks` (n,) the rank, from 1, of each of n positives. `above` (n + 1,): how many
    distractors come between each positive and the one before; the last entry, of those behind all
    positives, is not used. `positives`: how many other positives come before the n."""
    rank = np.int32(positives)
    for slot in range(np.uint64(len(ranks))):  # unsigned: no check for an index from the end
        rank += above[slot] + np.int32(1)
        ranks[slot] = rank


@compiled_part
def look_up(ordered: NDArray[np.floating], before: NDArray[np.uint16]) -> None:
    """Fill the table by which scores are looked up: `before` (buckets + 1,) gets the number of
    positives in the buckets before each bucket; the first bucket has the highest scores. `ordered`
    (P + 1,), P ≥ 1: the positives' scores, descending, then one that is not higher, or −inf, where
    every search stops. Callers pass at most PORTION positives, so that counts fit into uint16.
    Places are uint64, since numba adds a branch to an index that may be negative."""
    scale = scale_of(ordered, before)  # buckets per unit of score
    high = ordered[0]
    top = ordered.dtype.type(len(before) - 2)  # the last bucket, as a float
    before[:] = 0
    # counts are written one place further on, so that `before[b]` sums up the buckets before b
    for slot in range(np.uint64(len(ordered) - 1)):
        before[np.uint64(bucket_of(ordered[slot], high, scale, top)) + np.uint64(1)] += np.int32(1)
    total = np.int32(0)
    for bucket in range(np.uint64(len(before))):
        total += before[bucket]
        before[bucket] = total


@compiled_part
def scale_of(ordered: NDArray[np.floating], before: NDArray[np.uint16]) -> Scalar:
    """How many buckets there are per unit of score, so that all buckets, one less than the length
    of `before`, cover the range of the positives' scores; 0 if these are equal. `ordered` (P + 1,):
    the positives' scores, best first; the last one is no positive's. The result is in the type of
    the scores, so that all products with it are rounded in the same way."""
    span = ordered[0] - ordered[len(ordered) - 2]
    return ordered.dtype.type((len(before) - 1) / span if span > 0 else 0)


@compiled_part
def bucket_of(score: Scalar, high: Scalar, scale: Scalar, top: Scalar) -> Scalar:
    """The bucket of a score, ⌊(high − score)·scale⌋ clipped to 0 … top. Buckets count from the best
    score, `high`. This formula is used for positives and distractors, so a distractor with a lower
    score never gets an earlier bucket, however the product is rounded.
    """
    position = (high - score) * scale
    return np.int32(position if position < top else top) if position > 0 else np.int32(0)


@compiled_part
def count_distractors(
    scores: NDArray[np.floating],
    ordered: NDArray[np.floating],
    before: NDArray[np.uint16],
    pessimistic: bool,
    above: NDArray[np.int32],
) -> bool:
    """Count every distractor in `above[s]` (P + 1,), where s is the slot of the first positive
    after it; return whether a distractor has the score of a positive.

    `scores` (n,): of the distractors. `ordered` (P + 1,): the positives' scores, best first, then
    one that is not higher, where every search stops. `before` (buckets + 1,): how many positives
    are in the buckets before each. The slot of a distractor is searched from there to the start of
    the next bucket. `pessimistic`: whether a distractor comes before a positive with the same
    score. Left-out items have −∞, which is no tie. Places are uint64, since numba adds a branch to
    an index that may be negative.
    """
    # as in `look_up`: buckets per unit of score, the best score, and the last bucket as a float
    scale = scale_of(ordered, before)
    high = ordered[0]
    top = ordered.dtype.type(len(before) - 2)
    buckets = np.empty(TILE, np.int32)
    one = np.uint64(1)

    tied = False
    for start in range(0, len(scores), TILE):
        tile = scores[start : start + TILE]
        for i in range(len(tile)):
            buckets[i] = bucket_of(tile[i], high, scale, top)
        for i in range(np.uint64(len(tile))):
            score = tile[i]
            slot: Scalar = np.uint64(before[np.uint64(buckets[i])])
            # no branch, and most often the last step; inside, as the last bucket is never empty: it
            # has the worst positive
            slot += np.uint64(ordered[slot] > score)
            # If this positive still has the distractor's score or a higher one, the rest of the
            # bucket is searched. If positives tie and come first, a second search (True) passes
            # all of them.
            if ordered[slot] >= score:
                end = np.uint64(before[np.uint64(buckets[i]) + one])
                slot = first_after(ordered, score, slot, end, False)
                if ordered[slot] == score and score > -np.inf:
                    tied = True
                    slot = slot if pessimistic else first_after(ordered, score, slot, end, True)
            above[slot] += np.int32(1)

    return tied


@compiled_part
def compare_distractors(
    scores: NDArray[np.floating],
    ordered: NDArray[np.floating],
    pessimistic: bool,
    above: NDArray[np.int32],
) -> bool:
    """Count distractors in `above` (P + 1,), each in the slot of the first positive after it. Those
    behind the last positive are not counted, so the last slot is not used here. Every distractor is
    compared with every positive, which suits few positives. Return whether a distractor has the
    score of a positive.

    `scores` (n,): of the distractors. `ordered`
    (P,): the positives' scores, best first. `pessimistic`: whether a distractor comes before a
    positive with the same score.
    """
    tied = False
    for start in range(0, len(scores), TILE):
        tile = scores[start : start + TILE]
        passed = np.int32(0)  # distractors of the tile before the positive of the last round
        for slot in range(np.uint64(len(ordered))):  # unsigned: no check for an index from the end
            beyond = np.int32(0)
            equal = np.int32(0)
            score = ordered[slot]
            # int32 throughout, so that the loop becomes vector instructions
            for i in range(len(tile)):
                beyond = np.int32(beyond + np.int32(tile[i] > score))
                equal = np.int32(equal + np.int32(tile[i] == score))
            tied |= bool(equal > 0)
            # `beyond` counts all distractors before this positive; those between it and the
            # positive before are the new ones
            beyond += equal if pessimistic else np.int32(0)
            above[slot] += beyond - passed
            passed = beyond

    return tied


@compiled_part
def first_after(
    ordered: NDArray[np.floating], score: Scalar, low: Scalar, high: Scalar, equal: bool
) -> Scalar:
    """The first slot from `low` on that does not come before `score`; `high` if there is none. A
    slot with a higher score comes before, and if `equal`, also one with the same score. `ordered`
    (P + 1,), the scores of the P positives and one more, descends, so bisection finds the slot.
    """
    while low < high:
        middle = (low + high) // np.uint64(2)
        if ordered[middle] > score or (equal and ordered[middle] == score):
            low = middle + np.uint64(1)
        else:
            high = middle
    return low


@compiled_part
def are_tied(ordered: NDArray[np.floating], levels: NDArray[np.uint8]) -> bool:
    """Whether positives of different levels have the same score, so that another order of equal
    scores would change the list. `ordered` (≥ P,): scores, best first; `levels` (P,)."""
    tied = False
    for slot in range(np.uint64(1), np.uint64(len(levels))):
        before = slot - np.uint64(1)
        tied |= (ordered[slot] == ordered[before]) & (levels[slot] != levels[before])
    return tied


@compiled
def leave_out(
    ranked: RankedPositives,
    stays: NDArray[np.uint8],
    level: NDArray[np.uint8],
    out: RankedPositives,
) -> None:
    """Turn lists of codes (`ranked`) into lists of levels (`out`), as a reading of partial labels
    says: write the ranks, levels and ends of n lists without the items that do not stay.

    Code 2l − 1 means that an item is known to be at level l, 2l that it is at level l or a finer
    one; code 0, of distractors, is never listed. The reading gives each code a meaning: `stays` (1
    or 0) and `level`. An item that does not stay is removed, and all items behind it move up by one
    rank. An item that stays at level 0 becomes a distractor: it keeps its rank but is not listed.

    Each item is written to the next place, which advances only if the item is listed. So the loop
    has no branch, which would be slow for irregular choices.
    """
    # A quicker way if the reading drops no item: items do not move, so no place depends on earlier
    # items. Indices are unsigned, here and below: no check for an index from the end.
    if np.all(stays > 0) and np.all(level[1:] > 0):
        for query in range(len(ranked.starts)):
            first = ranked.starts[query]
            end = ranked.ends[query]
            out.ranks[first:end] = ranked.ranks[first:end]
            for item in range(np.uint64(first), np.uint64(end)):
                out.levels[item] = level[np.uint64(ranked.levels[item])]
            out.ends[query] = end
        return

    for query in range(len(ranked.starts)):
        removed = np.int32(0)
        place = np.uint64(ranked.starts[query])
        for item in range(np.uint64(ranked.starts[query]), np.uint64(ranked.ends[query])):
            code = np.uint64(ranked.levels[item])
            # each item is written; if it is not listed, the next item overwrites it
            out.ranks[place], out.levels[place] = ranked.ranks[item] - removed, level[code]
            place += np.uint64(stays[code] * np.uint8(level[code] > 0))
            removed += np.int32(1) - np.int32(stays[code])

        out.ends[query] = place
