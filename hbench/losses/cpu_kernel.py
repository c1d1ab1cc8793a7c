"""The compiled code of rank sums on a CPU: each list is summed in order of rank.

For a positive k, the items with t = s_j − s_k > δ come first. There the step is a line, whose sum
follows from running sums of the weights and of the weighted scores. Then comes the window of items
where the sigmoid is neither 0 nor 1. It is summed directly, in four lanes: with e_j = exp(s_j/τ)
the sigmoid is e_j/(e_j + e_k), so no exponential per pair is needed. The items after the window add
nothing. This is exact: everything is float64 and evaluated as written, so that freshly compiled
code and code from the cache give the same bits; and each list is summed on its own, so that the
number of threads does not matter.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hbench.core.compiled import Scalar, compiled, compiled_part

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
LANES = 4  # parts of a window that are summed in parallel
# multiples of τ around the centre of the exponentials in which none is 0 or infinite
SPAN = 300.0


class SortedLists(NamedTuple):
    """Q lists with their items in order of rank: `columns`, `scores` and `levels` (Q, N) of the
    items, and `exponentials`, exp((score − highest)/τ + SPAN), which are (Q, N), or empty (Q, 0)
    where no sigmoid is asked for.

    `places` (Q,): the place of each list's first positive among all P positives, which lie query
    by query; `relevance` (Q, L+1): of each level in each list; `weights` (Q, L+1, L+2): what an
    item j weighs for a positive k, by level of k and level of j, where L+1 is outside of the list.
    """

    columns: Integers
    scores: Floats
    levels: NDArray[np.uint8]
    exponentials: Floats
    places: Integers
    relevance: NDArray[np.float32]
    weights: NDArray[np.float32]


class StepShape(NamedTuple):
    """The numbers of a step: σ(t/τ) up to δ, with a jump of `start` at 0; `beyond` + ρ(t − δ) after
    δ; 0 below −`reach`.
    """

    tau: float
    delta: float
    rho: float
    beyond: float
    start: float
    reach: float


class OneList(NamedTuple):
    """A list by rank: `scores` and `levels` of its items (N,), by falling score; the `place` of its
    first positive among those of all lists; `relevance` (L+1,) of each level.

    `exponential` (N + LANES,): e^((s − c)/τ) of the scores s, around a centre c. `weight` (L+1, N +
    LANES) are the weights of all items for the positives of every level, 0 in the last LANES;
    `work`, at least of that size, is a buffer.
    """

    scores: Floats
    levels: NDArray[np.uint8]
    place: int
    relevance: NDArray[np.float32]
    exponential: Floats
    weight: Floats
    work: Floats


@compiled
def pack(
    bits: NDArray[np.uint32],
    levels: NDArray[np.uint8],
    keys: NDArray[np.uint64],
    counts: NDArray[np.float32],
) -> None:
    """Write keys (Q, N) that sort by score down, level up, column up, from the bits of scores: 32
    bits of the score, 8 of the level, 24 of the column. `bits`, `levels` (Q, N): of the items, by
    column; `counts` (Q, L+2): where the items of each level are counted.
    """
    sign = np.uint32(0x80000000)
    zero = np.uint32(0)
    for row in range(bits.shape[0]):
        for column in range(bits.shape[1]):
            score = bits[row, column]
            level = np.uint64(levels[row, column])
            score = zero if score == sign else score  # −0 equals 0
            # The bits of a float grow with its absolute value. Below 0 they grow as the score
            # falls, as they should, and begin with the sign; from 0 on all others are inverted
            descending = np.uint64(score if score & sign else score ^ ~sign)
            keys[row, column] = (
                (descending << np.uint64(32)) | (level << np.uint64(24)) | np.uint64(column)
            )
            counts[row, level] += 1


@compiled
def list_positives(
    columns: Integers, levels: NDArray[np.uint8], relevance: NDArray[np.float32], to: Integers
) -> None:
    """Write query, item and level, to (3, P), of the items whose level has a relevance above 0,
    list by list, in order of rank. `columns`, `levels` (Q, N): the item at every rank of a query's
    list, and its level; `relevance` (Q, L+1): of every level.
    """
    at = 0  # positives written so far
    for row in range(levels.shape[0]):
        for item in range(levels.shape[1]):  # the place of an item in the list, from 0
            level = levels[row, item]  # L + 1 is outside of the list
            if level < relevance.shape[1] and relevance[row, level] > 0:
                to[0, at], to[1, at], to[2, at] = row, columns[row, item], level
                at += 1


@compiled
def exact_sums(rows: SortedLists, sums: NDArray[np.float32]) -> None:
    """Write sums[place] = Σ_{j before k} weight for every positive k, the `place`-th of all: by
    level, the number of items before k times what one of them weighs for a positive of k's level.
    """
    depth = rows.weights.shape[1]  # L + 1, the level of what is outside of a list
    for row in range(len(rows.scores)):
        before = np.zeros(depth + 1)  # (L+2,): how many items of each level have been passed
        place = rows.places[row]  # of the next positive, among those of all lists
        for item in range(rows.levels.shape[1]):
            level = np.uint64(rows.levels[row, item])
            if level < depth and rows.relevance[row, level] > 0:
                total = 0.0
                for other in range(depth):
                    total += before[other] * rows.weights[row, level, other]
                sums[place] = total
                place += 1
            before[level] += 1


@compiled
def step_sums(rows: SortedLists, shape: StepShape, sums: Floats) -> None:
    """Write sums[0, place] = Σ_{j ≠ k} weight · step(s_j − s_k) for every positive k, the
    `place`-th of all, and sums[1, place] = Σ_{j ≠ k} weight · step'(s_j − s_k), which is the slope
    of the sum in s_k without its minus.
    """
    buffers = make_buffers(rows)
    for row in range(len(rows.scores)):
        list_sums(enter(rows, row, buffers), shape, sums)


@compiled
def step_slopes(
    rows: SortedLists, shape: StepShape, factors: Floats, to: NDArray[np.float32]
) -> None:
    """Write to (Q, N) the gradient of Σ_place factors[0, place] · sum[place] in the scores, each
    item's in its column. `factors` (2, P): the gradient of each positive's sum, and, in factors[1],
    what of it comes to the positive's own score s_k, which is ready.
    """
    buffers = make_buffers(rows)
    gradient = np.empty(rows.scores.shape[1])  # of one list, by rank
    for row in range(len(rows.scores)):
        gradient[:] = 0
        list_slopes(enter(rows, row, buffers), shape, factors, gradient)
        for item in range(len(gradient)):
            to[row, rows.columns[row, item]] = gradient[item]


@compiled_part
def make_buffers(rows: SortedLists) -> OneList:
    """Allocate buffers for any one of the lists. They are LANES places longer than it: sums go over
    it in windows of LANES items, of which the last is filled up."""
    longer = rows.scores.shape[1] + LANES  # N items of a list, (B, N) of all
    depth = rows.relevance.shape[1]  # L + 1 levels
    weight = np.zeros((depth, longer))
    work = np.empty((max(2, depth), longer))  # two rows for the windows' sums, L + 1 for slopes
    exponential = np.ones(longer)  # times a weight of 0 it adds nothing
    # the first list stands for any, and so does the place of its first positive
    place = 0
    return OneList(
        rows.scores[0], rows.levels[0], place, rows.relevance[0], exponential, weight, work
    )


@compiled_part
def enter(rows: SortedLists, row: int, buffers: OneList) -> OneList:
    """Load one of the lists into the buffers. Weights are loaded only as positives of a level with
    a relevance see them, for no other level has positives."""
    levels = rows.levels[row]
    relevance = rows.relevance[row]
    # the LANES places of the buffers behind the list keep weights of 0
    buffers.exponential[: len(levels)] = rows.exponentials[row]
    for level in range(1, len(relevance)):
        if relevance[level] > 0:
            weights = rows.weights[row, level]
            weight = buffers.weight[level]
            for item in range(len(levels)):
                weight[item] = weights[np.uint64(levels[item])]
    parts = rows.scores[row], levels, rows.places[row], relevance
    return OneList(*parts, buffers.exponential, buffers.weight, buffers.work)


@compiled_part
def list_sums(one: OneList, shape: StepShape, sums: Floats) -> None:
    """Compute step_sums of one list: to `sums` (2, P), the values and slopes of its positives.

    Items lie by falling score, and a positive k meets three kinds of them: those more than δ above
    it, on the straight part of the step, whose sums of weights (`beyond`) and of weighted scores
    (`moment`) give the value at once; a window around it, where the sigmoid counts; and those so
    far below that they add nothing. The window's borders only move down from one positive to the
    next, so that each item is passed once.
    """
    number = len(one.scores)
    place = one.place  # of the next positive, among those of all lists
    # around which the exponentials were made: that of the best score is e^SPAN
    centre = one.scores[0] - SPAN * shape.tau
    first = 0  # of the window
    below = 0  # the first item whose score is below the positive's
    last = 0  # the end of the window
    # (L+1,) each, by level of k. Over the items more than δ above k: sums of weights, and of
    # weights times scores; over all items not below k: sums of weights
    lines = np.zeros((3, len(one.relevance)))
    beyond, moment, above = lines

    for item in range(number):
        level = np.int64(one.levels[item])
        score = one.scores[item]
        if level >= len(one.relevance) or one.relevance[level] <= 0:
            continue  # no positive
        centre = centred(one, score, shape.tau, centre)
        passed = first  # items from here to the new `first` leave the window for the line
        first = first_within(one.scores, score, first, shape.delta)
        last = first_within(one.scores, score, last, -shape.reach)
        for before in range(passed, first):
            for other in range(len(beyond)):
                beyond[other] += one.weight[other, before]
                moment[other] += one.weight[other, before] * one.scores[before]
        while below < number and one.scores[below] >= score:
            for other in range(len(above)):
                above[other] += one.weight[other, below]
            below += 1
        # the end of the window, moved on to whole lanes: items there are below the reach, or are
        # places behind the list, of weight 0
        parts = first + (last - first + LANES - 1) // LANES * LANES
        window = one.exponential[first:parts]
        weight = one.weight[level, first:parts]
        value, slope = window_sums(window, weight, one.exponential[item], one.work)
        line = shape.beyond * beyond[level] + shape.rho * (
            moment[level] - beyond[level] * (score + shape.delta)
        )
        # `start` for each item not below k, but for those on the line, which has it already
        jump = shape.start * (above[level] - beyond[level])
        # the window includes k, whose step at a difference of 0 is ½ + start
        itself = one.weight[level, item] * (0.5 + shape.start)
        sums[0, place], sums[1, place] = (
            value + line + jump - itself,
            slope / shape.tau + shape.rho * beyond[level],
        )
        place += 1


@compiled_part
def list_slopes(one: OneList, shape: StepShape, factors: Floats, gradient: Floats) -> None:
    """Add what `step_slopes` writes for one list to its `gradient` (N,), by rank; `factors` (2, P):
    the gradient of each positive's sum, and what of it comes to the positive's own score.

    The windows are those of `list_sums`. For the items more than δ above a positive the step is a
    line, so that the positive adds the same to each of them, but for their weights: this is noted
    at the place where those items end, and all such notes are summed up at last.
    """
    number = len(one.scores)
    place = one.place  # of the next positive, among those of all lists
    centre = one.scores[0] - SPAN * shape.tau  # around which the exponentials were made
    first = 0  # of the window, and its end
    last = 0
    # (L+1, N+1): by level of k, what is added to all items before a place
    lines = np.zeros((len(one.relevance), number + 1))
    one.work[:] = 0  # (L+1, N) and more: by level of k and item, the slopes of sigmoids

    for item in range(number):
        level = np.int64(one.levels[item])
        score = one.scores[item]
        if level >= len(one.relevance) or one.relevance[level] <= 0:
            continue
        centre = centred(one, score, shape.tau, centre)
        first = first_within(one.scores, score, first, shape.delta)
        last = first_within(one.scores, score, last, -shape.reach)
        share = factors[0, place]
        window = one.exponential[first:last]
        add_slopes(window, one.exponential[item], share / shape.tau, one.work[level, first:last])
        lines[level, first] += share
        gradient[item] += factors[1, place]
        place += 1

    # up the list: `line` is the sum of the notes at places behind an item, hence of the positives
    # more than δ below it. A positive of level 0 does not exist
    for other in range(1, len(one.relevance)):
        line = 0.0
        for item in range(number - 1, -1, -1):
            line += lines[other, item + 1]
            gradient[item] += one.weight[other, item] * (one.work[other, item] + shape.rho * line)


@compiled_part
def first_within(scores: Floats, score: float, start: int, beyond: float) -> int:
    """Find the first position from `start` whose score exceeds `score` by at most `beyond`."""
    while start < len(scores) and scores[start] - score > beyond:
        start += 1
    return start


@compiled_part
def centred(one: OneList, score: Scalar, tau: float, centre: Scalar) -> Scalar:
    """Return the centre of the exponentials. Where a positive is so far below it that its own
    exponential would soon be 0, all are computed anew around the positive. `score`: the positive's;
    `tau`: of the step; `centre`: the score around which the exponentials are so far."""
    if centre - score <= SPAN * tau:
        return centre
    for item in range(len(one.scores)):
        # exponents are bounded, so that no exponential is infinite: the sigmoid is 1 there anyway
        one.exponential[item] = math.exp(min((one.scores[item] - score) / tau, 2 * SPAN))
    return score


@compiled_part
def window_sums(
    exponential: Floats, weight: Floats, itself: Scalar, work: Floats
) -> tuple[Scalar, Scalar]:
    """Compute Σ w σ and Σ w (σ − σ²) of a window, by quarters: one running sum would wait for every
    addition.

    `exponential`, `weight` (n,), n a multiple of LANES = 4: e^((s − c)/τ) of the window's scores
    around a centre c, and its weights, 0 where the window was filled up. `itself`: the exponential
    of the positive, so that σ = e/(e + itself). `work` (2, n/4 or more): a buffer.
    """
    size = len(weight) // LANES
    # e to h are the quarters of the exponentials, q to t those of the weights, a to d sigmoids
    e = exponential[:size]
    f = exponential[size:]
    g = exponential[2 * size :]
    h = exponential[3 * size :]
    q = weight[:size]
    r = weight[size:]
    s = weight[2 * size :]
    t = weight[3 * size :]
    values = work[0, :size]
    squares = work[1, :size]

    for item in range(size):
        a = e[item] / (e[item] + itself)
        b = f[item] / (f[item] + itself)
        c = g[item] / (g[item] + itself)
        d = h[item] / (h[item] + itself)
        first = q[item] * a
        second = r[item] * b
        third = s[item] * c
        fourth = t[item] * d
        values[item] = (first + second) + (third + fourth)
        squares[item] = (first * a + second * b) + (third * c + fourth * d)

    value = 0.0
    square = 0.0
    for item in range(size):
        value += values[item]
        square += squares[item]
    return value, value - square


@compiled_part
def add_slopes(exponential: Floats, itself: Scalar, share: Scalar, gradient: Floats) -> None:
    """Add share · (σ − σ²) to the gradient."""
    for item in range(len(exponential)):
        sigmoid = exponential[item] / (exponential[item] + itself)
        gradient[item] += share * (sigmoid - sigmoid * sigmoid)
