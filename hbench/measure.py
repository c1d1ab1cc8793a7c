"""Measuring: every query of one test is ranked and every metric computed, block by block, on several threads.

A block's values depend on that block alone and are put where its queries belong, so the result is the same for any
number of threads.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hbench.protocol import ScoreQuery
from hbench.ranking import Ranker, one_blas_thread

OnBlock = Callable[[int, int], None]


@dataclass(frozen=True)
class Measurement:
    """`values` (M, Q) float64 in input order, NaN where undefined. `first_level` (Q,): the level of the item ranked
    first.

    `counts` (Q, L+1): items per level in each query's gallery. `tied` (Q,): queries whose equal scores differ in level.
    `canonical` (Q,): the input positions in the order in which values are to be summed.
    """

    values: NDArray[np.float64]
    first_level: NDArray[np.uint8]
    counts: NDArray[np.int64]
    tied: NDArray[np.bool_]
    canonical: NDArray[np.int64]


def measure(
    ranker: Ranker, scorers: Sequence[ScoreQuery], *, threads: int | None = None, on_block: OnBlock | None = None
) -> Measurement:
    """Apply `scorers` to the level sequence of every query; `on_block(done, blocks)` is told of progress."""
    queries = len(ranker.queries)
    values = np.full((len(scorers), queries), np.nan)
    first_level, tied = np.zeros(queries, np.uint8), np.zeros(queries, bool)
    counts = np.zeros((queries, ranker.depth + 1), np.int64)

    def work(block: int) -> None:
        for query, sequence in zip(ranker.rows(block).tolist(), ranker.block(block), strict=True):
            counts[query], tied[query] = sequence.counts, sequence.tied
            if len(sequence.ranks) and sequence.ranks[0] == 1:
                first_level[query] = sequence.levels[0]
            for row, scorer in enumerate(scorers):
                values[row, query] = scorer(query, sequence)

    with one_blas_thread():
        for done, _ in enumerate(_in_order(work, ranker.blocks, threads or available_threads()), start=1):
            if on_block:
                on_block(done, ranker.blocks)
    return Measurement(values, first_level, counts, tied, ranker.queries)


def available_threads() -> int:
    """The processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _in_order(work: Callable[[int], None], blocks: int, threads: int) -> Iterator[None]:
    """Run `work` on every block; an interrupt or an error leaves the blocks that wait undone."""
    if threads == 1:
        yield from map(work, range(blocks))
        return
    pool = ThreadPoolExecutor(threads, thread_name_prefix="hbench")
    try:
        yield from pool.map(work, range(blocks))
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
