"""Computes the blocks of a job with the threads of this process: from whole rows of scores, or from
half of the products, where hbench/engine/executors/triangle.py allows it.

Whole rows: the scores of a block are multiplied chunk by chunk, and then the metrics of its queries
are computed, a few queries at a time. Any thread may do any of these tasks. If memory holds the
scores of several blocks, one block is multiplied while the metrics of another are computed.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hbench.core.compiled import announcement, available_threads, one_blas_thread
from hbench.core.errors import UsageError
from hbench.engine.executors.triangle import triangle_of
from hbench.engine.job import Job, Values
from hbench.engine.values.blocks import Block, JobPlans, kernels_are_compiled
from hbench.engine.values.plan import MetricPlan, plan_of

# a task takes 1/SHARE of a thread's remaining queries, so that all threads finish together
SHARE = 2
QUERIES = 8  # of one task, at least, as each task holds the interpreter's lock for a while


class Stage(NamedTuple):
    """One block in the pipeline, by its number: its buffer of `scores` (B, G), the `tasks` that
    work on it, and its `values`. `is_scored`: False while the tasks multiply the scores, True when
    they compute the metrics."""

    block: int
    scores: NDArray[np.floating]
    tasks: list[Future[Any]]
    values: Block
    is_scored: bool = False


def on_threads(
    job: Job,
    blocks: Sequence[int],
    *,
    threads: int | None = None,
    announce: Callable[[str], None] | None = None,
) -> Iterator[tuple[int, Values]]:
    """Yield the number of each block and the values of its queries, in any order. After an
    interrupt or an error, waiting blocks are not computed.

    `threads`: the most threads to use, None for all processors; a small job, which has no plan,
    uses one. `announce`: called with a message if kernels have to be compiled first.
    """
    # computes metrics as sums with compiled kernels; None for a small job, which formulas compute
    # query by query, since loading compiled code takes longer
    plan = plan_of(job)
    if threads is not None and threads < 1:
        raise UsageError("threads must be 1 or more", found=f"{threads}", fix="leave it out: all")
    # formulas make many short calls of numpy, for which threads would only wait for each other
    most = 1 if plan is None else threads or available_threads()
    # computes each product s(i, j) = s(j, i) of two items once; None where the job needs whole rows
    triangle = triangle_of(job, plan, blocks, most)
    if announce and plan is not None and not kernels_are_compiled():
        announce(announcement())
    if triangle:
        with _pool(triangle.threads) as pool:
            lists = triangle.lists(pool)  # the sorted positives of all queries
            if lists is not None:
                yield from triangle.values(lists, pool)
                return
    # Whole rows are computed if there is no triangle, or if `lists` is None because BLAS does not
    # give s(i, j) = s(j, i) to the bit
    yield from _by_rows(job, plan, blocks, most)


def _by_rows(
    job: Job, plan: MetricPlan | None, blocks: Sequence[int], threads: int
) -> Iterator[tuple[int, Values]]:
    """Yield the number of each block and its values, computed from whole rows of scores.

    A block passes two stages, which share the threads: its scores are multiplied, then its metrics
    are computed. There may be as many blocks in the pipeline as there are buffers for scores, so
    some are multiplied while the metrics of others are computed. `plan`: computes metrics as sums;
    None if formulas compute them, one query after another. `threads`: the most to use; fewer are
    used if the memory is small.
    """
    scores = job.ranker.scores
    plans = JobPlans(job, plan)
    # how many threads, and how many blocks' scores, the memory holds at once
    workers, at_once = scores.fitting(threads, plans.thread_bytes)
    waiting = deque(blocks)
    line = deque[Stage]()
    buffers = [scores.buffer() for _ in range(min(len(blocks), at_once))]

    # `line`: blocks whose tasks are running, first in, first out; `done`: blocks that are finished
    done: list[Stage] = []
    with _pool(workers) as pool:
        while waiting or line or done:
            # each free buffer gets the next block; multiplying one chunk is a task
            while waiting and buffers:
                block = waiting.popleft()
                multiply = partial(scores.multiply, scores.block_vectors(block), out=buffers[-1])
                tasks = [pool.submit(multiply, start) for start in scores.chunks]
                # `plans.start` makes the block without values; its `add` computes them from scores
                line.append(
                    Stage(block=block, scores=buffers.pop(), tasks=tasks, values=plans.start(block))
                )
            for stage in done:  # yielded only here, when the threads have the next tasks
                yield stage.block, stage.values.finish()
            done.clear()
            if line:
                stage = line.popleft()
                for task in stage.tasks:
                    task.result()  # waits for the task, and raises its error if it had one
                if stage.is_scored:  # so the tasks waited for were those of scoring
                    done.append(stage)
                    buffers.append(stage.scores)
                else:
                    tasks = _submit_scoring(pool, workers, stage, len(scores.rows(stage.block)))
                    line.append(stage._replace(tasks=tasks, is_scored=True))


@contextmanager
def _pool(threads: int) -> Iterator[ThreadPoolExecutor]:
    """A pool of threads, each of which uses one BLAS thread. At the end, waiting tasks are
    cancelled."""
    pool = ThreadPoolExecutor(threads, thread_name_prefix="hbench")
    try:
        with one_blas_thread():
            yield pool
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _submit_scoring(
    pool: ThreadPoolExecutor, threads: int, stage: Stage, queries: int
) -> list[Future[Any]]:
    """Submit tasks that compute the metrics of a block and return these tasks.

    The tasks get smaller and smaller, so that all threads end at about the same time.

    Args:
        pool: the threads.
        threads: the number of threads.
        stage: the block, with its scores.
        queries: the number of queries in the block; later rows of the scores are padding.
    """
    tasks = []
    start = 0
    while start < queries:
        # 1/SHARE of the queries that remain for each thread, but at least QUERIES
        end = min(start + max((queries - start) // (SHARE * threads), QUERIES), queries)
        tasks.append(pool.submit(stage.values.add, stage.scores[start:end], start))
        start = end
    return tasks
