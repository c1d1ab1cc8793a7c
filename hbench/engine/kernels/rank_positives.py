"""The kernel: rows of scores become the ranks and levels of the queries' positives, compiled by
numba.

In canonical order the positives are one range of the row. Only they are sorted; every distractor is
looked up among them once, and how many distractors come before each positive gives its rank. The
lookup divides the range of the positives' scores into equal buckets; `before[b]` is the number of
positives in the buckets before b. With few positives it is quicker to compare them all. Very many
are taken in portions, one after the other: a positive's rank does not depend on the portion that it
is in.

A slot is a place among the sorted positives, best first. Equal scores are ordered by one flag:
`pessimistic`, the item of lower level first, or its contrary.

Places are uint64: numba wraps an index that may be negative, a branch at every access.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hbench.core.compiled import Scalar, compiled, compiled_part
from hbench.engine.kernels.sort_keys import Parts, SortedKeys

# per positive, at most: nearly all hold none or one, and a lookup seldom has to search
BUCKETS = 16
PORTION = 60_000  # positives looked up at once, whose numbers fit uint16
# scores compared or put in buckets at once, in vector instructions, which stay in the first cache
TILE = 1024
MAX_COMPARED = (
    16  # positives up to which it is quicker to compare every distractor with each of them
)


class RankingRule(NamedTuple):
    """The rule for ranks: whether lower levels come first where scores are equal; up to how `few`
    positives are compared with every distractor; how many are looked up at once, a `portion`."""

    pessimistic: bool
    few: int
    portion: int


class RankedPositives(NamedTuple):
    """The positives of n queries, in flat arrays: `ranks` int32, increasing, and `levels` uint8,
    those of query q from `starts[q]` to `ends[q]`. `tied` (n,): whether another order of equal
    scores would give other levels."""

    ranks: NDArray[np.int32]
    levels: NDArray[np.uint8]
    starts: NDArray[np.int64]
    ends: NDArray[np.int64]
    tied: NDArray[np.bool_]

    def of(self, queries: slice) -> RankedPositives:
        """Return views for some of the queries."""
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
    """Write the ranks and levels of the positives of n rows of scores (n, G), −inf where left out
    of the list, to `out`. `by_score`: the positives of each row, sorted; `parts`: where they lie.
    """
    # buffers that fit the largest portion of any row: `before`, positives by bucket, one place more
    # than there are buckets; `counts`, distractors by slot, one place more for those behind all
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
        for slot in range(np.uint64(len(levels))):
            levels[slot] = sorted_levels[slot]
        # whatever is not in the part of the positives, on both sides of it; very many positives are
        # looked up a portion at a time, whose counts fit into uint16
        distractors = (rows[row, :begin], rows[row, begin + size :])
        for start in range(0, len(ranks), rule.portion):
            of_portion = ranks[start : start + rule.portion]
            # one score more, where a search ends: the next portion's best, or the −inf behind all
            ordered = by_score.scores[offset + start : offset + start + len(of_portion) + 1]
            above = counts[: len(of_portion) + 1]
            above[:] = 0
            tied |= count_above(distractors, ordered, rule, before, above)
            add_up(above, start, of_portion)
        out.tied[row] = tied | are_tied(by_score.scores[offset : offset + size], levels)


@compiled_part
def count_above(
    distractors: tuple[NDArray[np.floating], NDArray[np.floating]],
    ordered: NDArray[np.floating],
    rule: RankingRule,
    before: NDArray[np.uint16],
    above: NDArray[np.int32],
) -> bool:
    """Add to `above[s]` (P + 1,) the distractors between positive s − 1 and s; return whether one
    has the score of a positive.

    `distractors`: scores on both sides of the positives; `ordered` (P + 1,): the positives' scores,
    best first, then a lower one or −inf; `before`: room for BUCKETS·P + 1 counts.
    """
    positives = len(above) - 1
    tied = False
    if positives <= rule.few:  # quicker than a table
        for scores in distractors:
            tied |= compare_distractors(scores, ordered[:positives], rule.pessimistic, above)
    else:
        # a table takes time to fill, too: fewer buckets where few distractors are looked up in it
        # (per positive, by how many distractors there are for each)
        total = len(distractors[0]) + len(distractors[1])
        buckets = positives * (
            BUCKETS if total > 10 * positives else 8 if total > 4 * positives else 4
        )
        ordered = ordered[: positives + 1]
        before = before[: buckets + 1]
        look_up(ordered, before)
        for scores in distractors:
            tied |= count_distractors(scores, ordered, before, rule.pessimistic, above)

    return tied


@compiled_part
def add_up(above: NDArray[np.int32], positives: int, ranks: NDArray[np.int32]) -> None:
    """Write to `ranks` (n,) the rank, from 1, of each of n positives, before which there are this
    many other `positives`. `above` (n + 1,): the distractors between each of the n and the one
    before; for the first, all before it; the last entry, behind all positives, is not used."""
    rank = np.int32(positives)
    for slot in range(np.uint64(len(ranks))):  # unsigned: no check for an index from the end
        rank += above[slot] + np.int32(1)
        ranks[slot] = rank


@compiled_part
def look_up(ordered: NDArray[np.floating], before: NDArray[np.uint16]) -> None:
    """Fill the table by which scores are looked up: `before` (buckets + 1,), which is overwritten,
    gets how many of the P ≥ 1 positives are in buckets before each, of which the first has the
    highest scores. `ordered` (P + 1,): the positives' scores, descending, then a lower one or −inf,
    where every search stops."""
    scale = scale_of(ordered, before)
    high = ordered[0]
    top = ordered.dtype.type(len(before) - 2)  # the last bucket, as a float
    before[:] = 0
    # counts are written one place further on: `before[b]` sums up the buckets before b
    for slot in range(np.uint64(len(ordered) - 1)):
        before[np.uint64(bucket_of(ordered[slot], high, scale, top)) + np.uint64(1)] += np.int32(1)
    total = np.int32(0)
    for bucket in range(np.uint64(len(before))):
        total += before[bucket]
        before[bucket] = total


@compiled_part
def scale_of(ordered: NDArray[np.floating], before: NDArray[np.uint16]) -> Scalar:
    """How many buckets a unit of score takes, so that all of them, one less than `before` is long,
    share out the positives' scores; 0 where these are equal. `ordered` (P + 1,): best first, the
    last is no positive's. In the type of the scores, so that products with it round alike."""
    span = ordered[0] - ordered[len(ordered) - 2]
    return ordered.dtype.type((len(before) - 1) / span if span > 0 else 0)


@compiled_part
def bucket_of(score: Scalar, high: Scalar, scale: Scalar, top: Scalar) -> Scalar:
    """⌊(high − score)·scale⌋ clipped to 0 … top: the bucket of a score, counted from the best,
    `high`. Positives and distractors go by this one formula: so a distractor of a lower score never
    falls in an earlier bucket, however the product is rounded.
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
    """Add every distractor to `above[s]` (P + 1,), s the slot of the first positive after it;
    return whether one has the score of a positive.

    `scores` (n,), the distractors'; `ordered` (P + 1,): the positives', best first, then a lower
    one, where every search stops. Scores are cut into buckets of equal widths: `before` (buckets +
    1,) is how many positives lie above each. So the search for the slot of a distractor begins
    there and ends where the next bucket begins. Unsigned indices are not checked for being
    negative.

    `pessimistic`: a distractor comes before a positive of its score.
    """
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
            slot += np.uint64(ordered[slot] > score)  # no branch: most often the last step
            # two positives or more share the bucket, or one has this very score: the bucket is
            # searched, and where a positive ties, the search may go on past all that do (True)
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
    """Add every distractor to `above[s]` (P + 1,), s the first positive behind it, by comparing it
    with each of few positives; return whether one has the score of a positive.

    `scores` (n,): the distractors'; `ordered` (P,): the positives', best first. Those behind the
    last positive are not counted. `pessimistic`: a distractor comes before a positive of its score.
    """
    tied = False
    for start in range(0, len(scores), TILE):
        tile = scores[start : start + TILE]
        passed = np.int32(0)  # distractors of the tile before the last positive looked at
        for slot in range(np.uint64(len(ordered))):  # unsigned: no check for an index from the end
            beyond = np.int32(0)
            equal = np.int32(0)
            score = ordered[slot]
            # int32 throughout, so that the loop becomes vector instructions
            for i in range(len(tile)):
                beyond = np.int32(beyond + np.int32(tile[i] > score))
                equal = np.int32(equal + np.int32(tile[i] == score))
            tied |= bool(equal > 0)
            # `beyond` grows from positive to positive; between two lie those that are new
            beyond += equal if pessimistic else np.int32(0)
            above[slot] += beyond - passed
            passed = beyond

    return tied


@compiled_part
def first_after(
    ordered: NDArray[np.floating], score: Scalar, low: Scalar, high: Scalar, equal: bool
) -> Scalar:
    """The first slot from `low` on whose score is not above `score`, with `equal` also not equal to
    it; `high` if there is none before. By halving, for `ordered` (P + 1,) descends.
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
    """Whether positives of different levels have one score: then another order of equal scores
    would change the list. `ordered` (≥ P,): scores, best first; `levels` (P,)."""
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
    """Read the ranked codes of partial labels: write the ranks, levels and ends of n lists without
    the items that do not stay.

    A code 2l − 1 is of an item known to be at level l, 2l of one at level l or a finer one; 0, of
    distractors, is never listed. A reading gives every code a meaning: `stays` (1 or 0) and
    `level`. What does not stay leaves the list, and all behind it move up by a rank; what stays and
    is of level 0 is a distractor: it keeps its rank, and is listed no more. The place moves on only
    past an item that is listed: no branch, so a random choice costs no more than a regular one.
    """
    # a quicker way where the reading drops no item: none moves, so no item waits for the one before
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
            # every item is written, and one that is not listed is written over by the next
            out.ranks[place], out.levels[place] = ranked.ranks[item] - removed, level[code]
            place += np.uint64(stays[code] * np.uint8(level[code] > 0))
            removed += np.int32(1) - np.int32(stays[code])

        out.ends[query] = place
