"""Sums, running sums and maxima over the threads of one block.

Each function ends when all threads have reached the same point, so that `shared` (one place per
thread) can be used again. Sums are added in a fixed order: the same numbers give the same bits.
"""

from __future__ import annotations

from typing import NamedTuple

from hbench.engine.kernels.card.compiling import (
    Number,
    card_part,
    cuda,
    int32,
    sizes,
)

AT_ONCE = sizes(8, 3)  # neighbouring numbers that one thread adds to a running sum


class Span(NamedTuple):
    """The neighbouring numbers that one thread takes, from `begin` to `end`."""

    begin: Number
    end: Number


@card_part
def span_from(start: Number, size: Number) -> Span:
    """The places of the AT_ONCE numbers that this thread takes, when its block takes `at_once()`
    numbers from place `start` on. There are `size` numbers in all; the span is empty behind them.
    """
    begin = start + cuda.threadIdx.x * AT_ONCE
    return Span(begin, min(size, begin + AT_ONCE))


@card_part
def at_once() -> Number:
    """How many neighbouring numbers a block of threads takes at once: AT_ONCE per thread."""
    return cuda.blockDim.x * AT_ONCE


@card_part
def running(value: Number, shared: Number) -> tuple[Number, Number]:
    """Return the sum of the `value`s of the threads before this one, and the sum of all. `shared`
    (T,): memory that all T threads share.
    """
    thread = cuda.threadIdx.x
    threads = cuda.blockDim.x
    shared[thread] = value
    cuda.syncthreads()

    # each thread adds the sum of the thread `step` places before: sums of 2, 4, 8 … values
    step = 1
    while step < threads:
        # value − value is a 0 of the right type; all threads must read before any of them writes
        added = shared[thread - step] if thread >= step else value - value
        cuda.syncthreads()
        shared[thread] += added
        cuda.syncthreads()
        step *= 2

    before = shared[thread] - value
    total = shared[threads - 1]
    cuda.syncthreads()  # the caller may overwrite `shared`: every thread must have read it
    return before, total


@card_part
def total(value: Number, shared: Number) -> Number:
    """Return the sum of the `value`s of all T threads. The sums of the two halves of the threads
    are added until one is left, so T must be a power of two. `shared` (T,): memory that they share.
    """
    thread = cuda.threadIdx.x
    shared[thread] = value
    cuda.syncthreads()

    step = cuda.blockDim.x // 2
    while step > 0:
        if thread < step:
            shared[thread] += shared[thread + step]
        cuda.syncthreads()
        step //= 2

    found = shared[0]
    cuda.syncthreads()  # the caller may overwrite `shared`: every thread must have read it
    return found


@card_part
def add_up_columns(shared: Number) -> None:
    """Add up each column of `shared` (T, C), which has a row per thread. The sums are in the first
    row afterwards. The second half of the rows is added to the first half until one row is left, so
    T must be a power of two."""
    thread = cuda.threadIdx.x
    cuda.syncthreads()  # every thread has written its row

    step = cuda.blockDim.x // 2
    while step > 0:
        if thread < step:
            for column in range(shared.shape[1]):
                shared[thread, column] += shared[thread + step, column]
        cuda.syncthreads()
        step //= 2


@card_part
def largest(value: Number, shared: Number) -> Number:
    """Return the largest `value` of all T threads. The two halves of the threads are compared until
    one value is left, so T must be a power of two. `shared` (T,): memory that they share.
    """
    thread = cuda.threadIdx.x
    shared[thread] = value
    cuda.syncthreads()

    step = cuda.blockDim.x // 2
    while step > 0:
        if thread < step:
            shared[thread] = max(shared[thread], shared[thread + step])
        cuda.syncthreads()
        step //= 2

    found = shared[0]
    cuda.syncthreads()  # the caller may overwrite `shared`: every thread must have read it
    return found


@card_part
def sum_up_before(numbers: Number, size: Number, shared: Number) -> None:
    """Replace each of the first `size` numbers by the sum of the numbers before it; the last number
    becomes the sum of all.

    `numbers`: an array of integers, (size + 1,). `shared`: an array in memory that all T threads
    share, (T,), for the sums over threads.
    """
    done = int32(0)  # the sum of all numbers before `start`
    # the block takes `at_once()` numbers in a round
    for start in range(0, size, at_once()):
        # each thread sums up a span of neighbours (`own`); `running` returns the sum of the threads
        # before it, and that of all threads
        span = span_from(start, size)
        own = int32(0)
        for place in range(span.begin, span.end):
            own += numbers[place]
        before, of_all = running(own, shared)

        before += done
        for place in range(span.begin, span.end):
            number = numbers[place]
            numbers[place] = before
            before += number
        done += of_all

    if cuda.threadIdx.x == 0:
        numbers[size] = done
    cuda.syncthreads()
