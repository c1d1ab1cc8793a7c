"""The compiled kernels of rank sums on a CPU. Each list is summed in order of rank.

For a positive k, the items with t = s_j − s_k > δ come first. There the step is a line, whose sum
follows from running sums of the weights and of the weighted scores. Then comes the window of items
where the sigmoid is neither 0 nor 1. It is summed directly, in four lanes: with e_j = exp(s_j/τ)
the sigmoid is e_j/(e_j + e_k), so no exponential per pair is needed. The items behind the window
add nothing. The results are reproducible: all numbers are float64, and expressions are evaluated
as written, so that freshly compiled code and code from the cache give the same bits. Each list is
summed on its own, so that the number of threads does not matter.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hbench.core.compiled import Scalar, compiled, compiled_part

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
LANES = 4  # parts of a window that are summed in parallel
# no exponential of a score within this many τ around the centre is 0 or infinite
SPAN = 300.0


class SortedLists(NamedTuple):
    """Q lists with their items in order of rank.

    `columns`, `scores`, `levels` (Q, N): of the items. `exponentials` (Q, N): exp((score −
    highest)/τ + SPAN); empty, (Q, 0), if no sigmoids are needed. `places` (Q,): the place of each
    list's first positive among the P positives of all lists, which are sorted by query.
    `relevance` (Q, L + 1): of each level in each list. `weights` (Q, L + 1, L + 2): the weight of
    an item j for a positive k, by level of k and level of j; level L + 1 is outside of the list.
    """

    columns: Integers
    scores: Floats
    levels: NDArray[np.uint8]
    exponentials: Floats
    places: Integers
    relevance: NDArray[np.float32]
    weights: NDArray[np.float32]


class StepShape(NamedTuple):
    """The constants of a step: σ(t/τ) for t up to δ, plus `start` from 0 on; `beyond` + ρ(t − δ)
    for t above δ; 0 for t below −`reach`.
    """

    tau: float
    delta: float
    rho: float
    beyond: float
    start: float
    reach: float


class OneList(NamedTuple):
    """One list, in order of rank, with buffers. `scores`, `levels` (N,): of its items. `place`: of
    its first positive among those of all lists. `relevance` (L + 1,): of each level.

    `exponential` (N + LANES,): e^((s − c)/τ) of the scores s, around a centre c. `weight` (L + 1,
    N + LANES): the weights of all items for positives of each level, 0 in the last LANES places.
    `work`: a buffer of at least that size.
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
    """Write keys (Q, N) that sort items by descending score, then by ascending level, then by
    ascending column. A key has 32 bits of the score, 8 of the level, and 24 of the column.

    `bits` (Q, N): the bits of float32 scores, where N is less than 2²⁴. `levels` (Q, N): of the
    items, 0 … L, or L + 1 outside of the list. Also adds the number of items of each level to
    `counts` (Q, L + 2).
    """
    sign = np.uint32(0x80000000)
    zero = np.uint32(0)
    for row in range(bits.shape[0]):
        for column in range(bits.shape[1]):
            score = bits[row, column]
            level = np.uint64(levels[row, column])
            score = zero if score == sign else score  # −0 equals 0
            # The bits of a float increase with its absolute value. For negative scores this is the
            # wanted descending order. For scores from 0 on, all bits but the sign are inverted.
            descending = np.uint64(score if score & sign else score ^ ~sign)
            keys[row, column] = (
                (descending << np.uint64(32)) | (level << np.uint64(24)) | np.uint64(column)
            )
            counts[row, level] += 1


@compiled
def list_positives(
    columns: Integers, levels: NDArray[np.uint8], relevance: NDArray[np.float32], to: Integers
) -> None:
    """Write query, item and level of all positives to `to` (3, P), list by list, in order of rank.
    Positives are the items whose level has a relevance above 0. `columns`, `levels` (Q, N): the
    column and the level of the item at each rank; `relevance` (Q, L + 1): of each level.
    """
    at = 0  # positives written so far
    for row in range(levels.shape[0]):
        for item in range(levels.shape[1]):  # the place of an item in the list, from 0
            level = levels[row, item]  # L + 1 for an item outside of the query's list
            if level < relevance.shape[1] and relevance[row, level] > 0:
                to[0, at], to[1, at], to[2, at] = row, columns[row, item], level
                at += 1


@compiled
def exact_sums(rows: SortedLists, sums: NDArray[np.float32]) -> None:
    """Write sums[place] = Σ_{j before k} weight for each positive k. The positives of all lists,
    sorted by list and then by rank, are numbered from 0, and `place` is the number of k.

    The weight of an item j for k depends only on the two levels: `rows.weights` (Q, L + 1, L + 2),
    by level of k and level of j. So the sum is taken by level, as the number of items of each level
    before k times their weight.
    """
    depth = rows.weights.shape[1]  # L + 1, the level of items outside of a list
    for row in range(len(rows.scores)):
        before = np.zeros(depth + 1)  # (L+2,): how many items of each level come before this item
        place = rows.places[row]  # of the next positive, among those of all lists
        for item in range(rows.levels.shape[1]):
            # unsigned, so that numba adds no code for negative indices
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
    """Write two sums for each positive k, which is number `place` of all positives: sums[0, place]
    = Σ_{j ≠ k} weight · step(s_j − s_k), and sums[1, place] = Σ_j weight · step'(s_j − s_k).
    Without the term of k itself, the second would be minus the derivative of the first by s_k;
    `step_slopes` adds this term once more, with the other sign.
    """
    buffers = make_buffers(rows)
    for row in range(len(rows.scores)):
        list_sums(enter(rows, row, buffers), shape, sums)


@compiled
def step_slopes(
    rows: SortedLists, shape: StepShape, factors: Floats, to: NDArray[np.float32]
) -> None:
    """Write the gradient of Σ_place factors[0, place] · sum[place] by the scores to `to` (Q, N), by
    column. `sum[place]` is Σ_j weight · step(s_j − s_k) of the positive k number `place` of all
    lists.

    `factors` (2, P) has for each positive k: the gradient by sum[place], and what sum[place] adds
    to the gradient by s_k, which is in all of its terms. The caller computes the latter from the
    slopes of `step_sums`, as −factors[0] · slope, so the terms are not summed again.
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
    """Allocate buffers for one of the lists at a time. They are LANES places longer than a list,
    because windows of items are extended to a multiple of LANES."""
    longer = rows.scores.shape[1] + LANES
    depth = rows.relevance.shape[1]  # L + 1 levels
    weight = np.zeros((depth, longer))
    work = np.empty((max(2, depth), longer))  # two rows for the windows' sums, L + 1 for slopes
    # exponentials of scores, which `enter` writes. In the places behind a list, whose weight is 0,
    # any finite number will do
    exponential = np.ones(longer)
    # the first list and the place 0 are placeholders, which `enter` replaces
    place = 0
    return OneList(
        rows.scores[0], rows.levels[0], place, rows.relevance[0], exponential, weight, work
    )


@compiled_part
def enter(rows: SortedLists, row: int, buffers: OneList) -> OneList:
    """Load the exponentials and weights of one of the lists into the buffers.

    The exponentials (N,) are e^((s − c)/τ) around a centre c; sigmoids of score differences are
    formed of them. The weights (N,) of all items, by their levels, are different in the sums of
    positives of each level, so they are loaded for each level of a positive. Levels without a
    relevance above 0 have no positives and get no weights.

    In the result, `place` (`rows.places[row]`) is where the sums of the list's first positive are
    among those of all lists.
    """
    levels = rows.levels[row]
    relevance = rows.relevance[row]
    # Behind the list the buffers have LANES more places, to which windows are extended. The weights
    # stay 0 there, so that these places add nothing to a sum, whatever their exponentials are.
    buffers.exponential[: len(levels)] = rows.exponentials[row]
    for level in range(1, len(relevance)):
        if relevance[level] > 0:
            weights = rows.weights[row, level]
            weight = buffers.weight[level]
            for item in range(len(levels)):
                # unsigned, so that numba adds no code for negative indices
                weight[item] = weights[np.uint64(levels[item])]
    parts = rows.scores[row], levels, rows.places[row], relevance
    return OneList(*parts, buffers.exponential, buffers.weight, buffers.work)


@compiled_part
def list_sums(one: OneList, shape: StepShape, sums: Floats) -> None:
    """Compute Σ_{j ≠ k} weight · step(s_j − s_k) for each positive k of one list, and the slope
    Σ_j weight · step'(s_j − s_k), at which this sum falls as s_k rises. Write both to the places of
    the positives in `sums` (2, P).

    The step at a difference t is σ(t/τ), plus `shape.start` for t ≥ 0; for t > δ it is the line
    `shape.beyond` + ρ(t − δ); for t < −`shape.reach` it is 0. Items are sorted by descending score.
    So for a positive k there are three ranges of items. Those more than δ above k are on the line:
    their sums of weights (`beyond`) and of weighted scores (`moment`) give the value. Those around
    k are the window, where the sigmoid is computed. Those far below k add nothing. From one
    positive to the next, the borders of the window only move down the list, so that each item
    passes a border once.
    """
    number = len(one.scores)
    place = one.place  # of the next positive, among those of all lists
    # the score around which exponentials were computed: that of the best score is e^SPAN
    centre = one.scores[0] - SPAN * shape.tau
    first = 0  # the start of the window
    below = 0  # the first item whose score is below the positive's
    last = 0  # the end of the window
    # (L+1,) each, by level of k: for the items more than δ above k, the sums of weights and of
    # weights times scores; for all items not below k, the sums of weights
    lines = np.zeros((3, len(one.relevance)))
    beyond, moment, above = lines

    for item in range(number):
        level = np.int64(one.levels[item])
        score = one.scores[item]
        if level >= len(one.relevance) or one.relevance[level] <= 0:
            continue  # no positive
        centre = centred(one, score, shape.tau, centre)
        passed = first  # items from here to the new `first` move from the window to the line
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
        # the end of the window, extended to a multiple of LANES: the added items are below the
        # reach, or are places behind the list with weight 0
        parts = first + (last - first + LANES - 1) // LANES * LANES
        window = one.exponential[first:parts]
        weight = one.weight[level, first:parts]
        value, slope = window_sums(window, weight, one.exponential[item], one.work)
        line = shape.beyond * beyond[level] + shape.rho * (
            moment[level] - beyond[level] * (score + shape.delta)
        )
        # `start` for each item not below k, except for those on the line: `shape.beyond` has it
        jump = shape.start * (above[level] - beyond[level])
        # The window includes k itself, whose step, at a difference of 0, is ½ + start. Its slope is
        # not subtracted: `list_slopes` adds it with the opposite sign, since k is also an item of
        # its own window there.
        itself = one.weight[level, item] * (0.5 + shape.start)
        sums[0, place], sums[1, place] = (
            value + line + jump - itself,
            slope / shape.tau + shape.rho * beyond[level],
        )
        place += 1


@compiled_part
def list_slopes(one: OneList, shape: StepShape, factors: Floats, gradient: Floats) -> None:
    """Add the gradient of one list to `gradient` (N,), by rank. `factors` (2, P), for each
    positive: the gradient of its sum of steps, and the part of the gradient of its own score that
    comes from that sum.

    The windows are those of `list_sums`: the items from δ (`shape.delta`) above a positive to
    `shape.reach` below it, where the step is a sigmoid. For the items more than δ above a positive,
    the step is a line of slope ρ, so the positive adds the same to each of these items, apart from
    their weights. This share is noted in `lines` at the first place behind these items, where the
    window begins, and the notes are summed up at the end.
    """
    number = len(one.scores)
    place = one.place  # of the next positive, among those of all lists
    # The score around which the exponentials are computed, at first that of the loaded list. If the
    # exponential of a positive would be nearly 0, `centred` computes them anew around the positive.
    centre = one.scores[0] - SPAN * shape.tau
    first = 0  # the start of the window
    last = 0  # the end of the window
    # (L+1, N+1): by level of k, the share that is added to all items before a place
    lines = np.zeros((len(one.relevance), number + 1))
    one.work[:] = 0  # by level of k and item: the slopes of sigmoids

    for item in range(number):
        level = np.int64(one.levels[item])
        score = one.scores[item]
        if level >= len(one.relevance) or one.relevance[level] <= 0:
            continue  # no positive
        centre = centred(one, score, shape.tau, centre)
        first = first_within(one.scores, score, first, shape.delta)
        last = first_within(one.scores, score, last, -shape.reach)
        share = factors[0, place]
        window = one.exponential[first:last]
        add_slopes(window, one.exponential[item], share / shape.tau, one.work[level, first:last])
        lines[level, first] += share
        gradient[item] += factors[1, place]
        place += 1

    # From the end of the list: `line` is the sum of the notes at places behind an item, which are
    # those of the positives more than δ below it. There are no positives of level 0.
    for other in range(1, len(one.relevance)):
        line = 0.0
        for item in range(number - 1, -1, -1):
            line += lines[other, item + 1]
            gradient[item] += one.weight[other, item] * (one.work[other, item] + shape.rho * line)


@compiled_part
def first_within(scores: Floats, score: float, start: int, beyond: float) -> int:
    """The first position from `start` on whose score exceeds `score` by at most `beyond`."""
    while start < len(scores) and scores[start] - score > beyond:
        start += 1
    return start


@compiled_part
def centred(one: OneList, score: Scalar, tau: float, centre: Scalar) -> Scalar:
    """Return the centre of the exponentials. The exponential of a positive more than SPAN τ below
    the centre would be nearly 0; all exponentials are then computed anew around the positive.

    No positive is more than SPAN τ above the centre: the first centre is SPAN τ below the best
    score, a later one is the score of a positive, and positives come best first.

    `score`: of the positive; `tau`: of the step; `centre`: the score around which the exponentials
    have been computed.
    """
    if centre - score <= SPAN * tau:
        return centre
    for item in range(len(one.scores)):
        # The exponent is bounded, so that no exponential is infinite. The bound is only reached by
        # items 2 SPAN τ above the positive, whose σ((s_item − s_positive)/τ) in `window_sums` is 1.
        one.exponential[item] = math.exp(min((one.scores[item] - score) / tau, 2 * SPAN))
    return score


@compiled_part
def window_sums(
    exponential: Floats, weight: Floats, itself: Scalar, work: Floats
) -> tuple[Scalar, Scalar]:
    """Compute Σ w σ and Σ w (σ − σ²) of a window. First, the i-th items of the four quarters of the
    window are added to each other, for all i, which do not depend on one another. This shortens
    the running sum, in which each addition waits for the one before, to n/4 items.

    `exponential`, `weight` (n,), where n is a multiple of LANES = 4: e^((score − centre)/τ) of the
    window's scores, for any centre, and the weights of its items. `itself`: the exponential of the
    positive, so that σ = e/(e + itself). `work` (2, n/4 or more): a buffer.
    """
    size = len(weight) // LANES
    # e to h: views from the start of each quarter of the exponentials; q to t: the same of the
    # weights; only the first `size` places of each are used. a to d: sigmoids
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
    """Add share · (σ − σ²) to the gradient (n,) of the items in a window. `exponential` (n,): of
    their scores; `itself`: that of the positive, so that σ = e/(e + itself)."""
    for item in range(len(exponential)):
        sigmoid = exponential[item] / (exponential[item] + itself)
        gradient[item] += share * (sigmoid - sigmoid * sigmoid)
