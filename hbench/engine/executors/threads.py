"""Threads: the blocks of a job computed in this process.

The scores of a block are multiplied chunk by chunk and its queries then valued a few at a time; both are tasks for any
thread. Where there is room for the scores of several blocks, one is multiplied while another is valued.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hbench.core.compiled import SMALL, announcement, available_threads, one_blas_thread
from hbench.engine.block_values import Block, MetricPlan, plan_of, values_of
from hbench.engine.executors.symmetric import triangle_of
from hbench.engine.job import Job, Values
from hbench.engine.kernels import steps_for
from hbench.engine.score_blocks import Scores

SHARE = 2  # of what is left of a block to value, a task takes this part of a thread's share: the last ones end together
QUERIES = 8  # valued by one task, at least: each holds the interpreter's lock for a while


class Stage(NamedTuple):
    """A block on its way: its room for scores, the tasks at work on it, its values in the making; whether it `is_valued`
    by these tasks, no longer multiplied."""

    block: int
    scores: NDArray[np.floating]
    tasks: list[Future[Any]]
    values: Block
    is_valued: bool = False


def on_threads(
    job: Job, blocks: Sequence[int], *, threads: int | None = None, announce: Callable[[str], None] | None = None
) -> Iterator[tuple[int, Values]]:
    """The values of each block's queries, in any order; an interrupt or an error leaves the blocks that wait undone.

    `announce` is told when the kernel has to be compiled first.
    """
    ranker = job.ranker
    pairs = len(ranker.queries) * len(ranker.columns)
    # threads of short numpy calls only wait for each other
    threads = 1 if pairs <= SMALL else threads or available_threads()
    plan = plan_of(ranker, job.scorers)
    triangle = triangle_of(job, plan, blocks, threads)
    if announce and not (triangle or steps_for(pairs)).are_kept:
        announce(announcement())
    if triangle:
        with _pool(triangle.threads) as pool:
            if lists := triangle.lists(pool):
                yield from triangle.values(lists, pool)
                return
    yield from _by_rows(job, plan, blocks, threads)


def _by_rows(job: Job, plan: MetricPlan, blocks: Sequence[int], threads: int) -> Iterator[tuple[int, Values]]:
    """The values of each block's queries from whole rows of scores."""
    scores, (start_block, scratch) = job.ranker.scores, values_of(job, plan)
    threads, rooms = scores.fitting(threads, scratch)
    waiting, line = deque(blocks), deque[Stage]()
    room = [scores.buffer() for _ in range(min(len(blocks), rooms))]
    done: list[Stage] = []
    with _pool(threads) as pool:
        while waiting or line or done:
            while waiting and room:
                block = waiting.popleft()
                tasks = _multiplying(pool, scores, block, room[-1])
                line.append(Stage(block, room.pop(), tasks, start_block(block)))
            for stage in done:  # while the threads are at work on the next
                yield stage.block, stage.values.finish()
            done.clear()
            if line:
                stage = line.popleft()
                for task in stage.tasks:
                    task.result()
                if stage.is_valued:
                    done.append(stage)
                    room.append(stage.scores)
                else:
                    tasks = _valuing(pool, threads, stage, len(scores.rows(stage.block)))
                    line.append(stage._replace(tasks=tasks, is_valued=True))


@contextmanager
def _pool(threads: int) -> Iterator[ThreadPoolExecutor]:
    """So many threads, each of which multiplies alone; at the end what waits is left undone."""
    pool = ThreadPoolExecutor(threads, thread_name_prefix="hbench")
    try:
        with one_blas_thread():
            yield pool
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _multiplying(pool: ThreadPoolExecutor, scores: Scores, block: int, room: NDArray[np.floating]) -> list[Future[Any]]:
    multiply = partial(scores.multiply, scores.block_vectors(block), out=room)
    return [pool.submit(multiply, start) for start in scores.chunks]


def _valuing(pool: ThreadPoolExecutor, threads: int, stage: Stage, queries: int) -> list[Future[Any]]:
    tasks, start = [], 0
    while start < queries:
        end = min(start + max((queries - start) // (SHARE * threads), QUERIES), queries)
        tasks.append(pool.submit(stage.values.add, stage.scores[start:end], start))
        start = end
    return tasks
