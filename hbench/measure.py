"""Measuring: every query of one test is ranked and every metric computed, block by block, on several threads.

The scores of a block are multiplied chunk by chunk and its queries then valued a few at a time; both are tasks for any
thread, and while one block is valued the next is multiplied. The values of a query depend on its block alone and are
put where the query belongs, so the result is the same for any number of threads.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hbench.protocol import ScoreQuery
from hbench.ranking import Ranker
from hbench.scores import one_blas_thread
from hbench.values import Block, StartBlock, Values, values_of

OnBlock = Callable[[int, int], None]
QUERIES = 16  # valued by one task
MEMORY = 300 << 20  # bytes of scores and gallery copy, unless more are allowed


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
    result = Values.empty(len(scorers), np.zeros((len(ranker.queries), ranker.depth + 1), np.int64))
    blocks = on_threads(ranker, values_of(ranker, scorers), range(ranker.blocks), threads=threads)
    for done, (block, values) in enumerate(blocks, start=1):
        result.put(ranker.rows(block), values)
        if on_block:
            on_block(done, ranker.blocks)
    return Measurement(result.values, result.first_level, result.counts, result.tied, ranker.queries)


def available_threads() -> int:
    """The processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Stage(NamedTuple):
    """A block on its way: its room for scores, the tasks at work on it, and, once it is multiplied, its values."""

    block: int
    scores: NDArray[np.floating]
    tasks: list[Future[Any]]
    values: Block | None


def on_threads(
    ranker: Ranker, start_block: StartBlock, blocks: Sequence[int], *, threads: int | None = None
) -> Iterator[tuple[int, Values]]:
    """The values of each block's queries, in order; an interrupt or an error leaves the blocks that wait undone."""
    waiting, line = deque(blocks), deque[Stage]()
    threads = threads or available_threads()
    room = [ranker.scores.buffer() for _ in range(min(len(blocks), _rooms(ranker, threads)))]
    pool = ThreadPoolExecutor(threads, thread_name_prefix="hbench")
    try:
        with one_blas_thread():
            while waiting or line:
                while waiting and room:
                    line.append(_multiplied(pool, ranker, waiting.popleft(), room.pop()))
                stage = line.popleft()
                for task in stage.tasks:
                    task.result()
                if stage.values is None:
                    line.append(_valued(pool, ranker, start_block(stage.block), stage))
                else:
                    room.append(stage.scores)
                    yield stage.block, stage.values.finish()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _rooms(ranker: Ranker, threads: int) -> int:
    """How many blocks may be on their way at once."""
    kept = 0 if ranker.scores.kept is None else ranker.scores.kept.nbytes
    block = ranker.scores.block_size * len(ranker.columns) * ranker.scores.dtype.itemsize
    return int(np.clip((MEMORY - kept) // block, 1, threads))


def _multiplied(pool: ThreadPoolExecutor, ranker: Ranker, block: int, scores: NDArray[np.floating]) -> Stage:
    multiply = partial(ranker.scores.multiply, ranker.scores.block_vectors(block), out=scores)
    return Stage(block, scores, [pool.submit(multiply, start) for start in ranker.scores.chunks], None)


def _valued(pool: ThreadPoolExecutor, ranker: Ranker, values: Block, stage: Stage) -> Stage:
    queries = len(ranker.rows(stage.block))
    parts = [slice(start, min(start + QUERIES, queries)) for start in range(0, queries, QUERIES)]
    return stage._replace(tasks=[pool.submit(values.add, stage.scores[p], p.start) for p in parts], values=values)
