"""A job: one test whose queries are to be ranked and measured, and who does it.

The values of a query depend on its block alone. So who computes which block, and when, changes nothing: an `Execute`
takes a job and the numbers of its blocks, and yields each block's values, in any order.

* `hbench.engine.executors.threads.on_threads`: in this process, the default;
* `hbench.engine.executors.kept_blocks.kept_in`: each finished block is kept in a folder and not computed again;
* `hbench.engine.executors.dask.on_cluster`: by the workers of a dask.distributed scheduler.

`hbench.evaluation.shards` computes a part of the blocks, for processes that do not talk to each other.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hbench.engine.ranker import Ranker
from hbench.engine.top_k import TopResults
from hbench.metrics.level_sequence import LevelSequence
from hbench.metrics.name_columns import NameColumns
from hbench.metrics.protocols import ScoreQuery


class Values(NamedTuple):
    """Of n queries: `values` (M, n) float64; `first_level`, `tied` (n,); `counts` (n, L+1)."""

    values: NDArray[np.float64]
    first_level: NDArray[np.uint8]
    tied: NDArray[np.bool_]
    counts: NDArray[np.int64]

    @classmethod
    def empty(cls, metrics: int, counts: NDArray[np.int64]) -> Values:
        n = len(counts)
        return cls(np.full((metrics, n), np.nan), np.zeros(n, np.uint8), np.zeros(n, bool), counts)

    def put(self, at: NDArray[np.int64], other: Values) -> None:
        """Write the values of other queries at their positions."""
        self.values[:, at], self.first_level[at], self.tied[at], self.counts[at] = other

    def put_sequence(self, n: int, sequence: LevelSequence) -> None:
        self.tied[n] = sequence.tied
        if len(sequence.ranks) and sequence.ranks[0] == 1:
            self.first_level[n] = sequence.levels[0]


@dataclass(frozen=True)
class Job:
    """A ranker and what to compute of every query. `conditions`: all the values depend on beside the ranker, in words.

    `again`: makes the same job in another process, from the embeddings that were read there. `by_name`: the labels by
    name, where a scorer goes by them and they form no tree. `top`: where the first results of every query are kept, by
    the executor that sees whole rows of scores (threads).
    """

    ranker: Ranker
    scorers: Sequence[ScoreQuery]
    conditions: str = ""
    again: Callable[[Any], Job] | None = None
    by_name: NameColumns | None = None
    top: TopResults | None = None

    @property
    def digest(self) -> str:
        """sha256 of everything the values depend on."""
        names = "" if self.by_name is None else f" {self.by_name.digest}"
        words = f"{self.ranker.digest} {len(self.scorers)} {self.conditions}{names}"
        return hashlib.sha256(words.encode()).hexdigest()


Execute = Callable[[Job, Sequence[int]], Iterator[tuple[int, Values]]]
