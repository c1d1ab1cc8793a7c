"""Sums over the scores near one, where a sigmoid is neither 0 nor 1, in four lanes."""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hbench.core.compiled import Scalar, compiled_part

Floats = NDArray[np.float64]
LANES = 4  # parts of a window that are summed in parallel
# multiples of τ around the centre of the exponentials in which none is 0 or infinite
SPAN = 300.0


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
