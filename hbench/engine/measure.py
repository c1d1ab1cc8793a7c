"""Measuring: every query of one test is ranked and every metric computed, block by block."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hbench.engine.executors.threads import on_threads
from hbench.engine.job import Execute, Job, Values

OnBlock = Callable[[int, int], None]


@dataclass(frozen=True)
class Measurement:
    """`values` (M, Q) float64 in input order, NaN where undefined. `first_level` (Q,): the level of the item ranked
    first.

    `counts` (Q, L+1): items per level in each query's gallery. `tied` (Q,): queries whose equal scores differ in level.
    `canonical` (Q,): the input positions of the measured queries, in the order in which values are to be summed.
    """

    values: NDArray[np.float64]
    first_level: NDArray[np.uint8]
    counts: NDArray[np.int64]
    tied: NDArray[np.bool_]
    canonical: NDArray[np.int64]


def measure(
    job: Job, *, execute: Execute = on_threads, blocks: Sequence[int] | None = None, on_block: OnBlock | None = None
) -> Measurement:
    """Apply the job's scorers to the level sequence of every query, or of those of some `blocks`.

    `execute` computes the blocks; `on_block(done, blocks)` is told of progress.
    """
    ranker = job.ranker
    chosen = range(ranker.blocks) if blocks is None else blocks
    result = Values.empty(len(job.scorers), np.zeros((len(ranker.queries), ranker.depth + 1), np.int64))
    for done, (block, values) in enumerate(execute(job, chosen), start=1):
        result.put(ranker.rows(block), values)
        if on_block:
            on_block(done, len(chosen))
    canonical = np.concatenate([ranker.rows(block) for block in chosen] or [ranker.queries[:0]])
    return Measurement(result.values, result.first_level, result.counts, result.tied, canonical)
