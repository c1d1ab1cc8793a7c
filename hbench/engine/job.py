"""Says what is evaluated, a test whose queries are ranked and measured, and who computes it.

A `Job` is one test with its scorers. The values of a query depend on its block alone. So who computes which block, and when,
changes nothing: an `Execute` takes a job and the numbers of its blocks, and yields each block's values, in any order.

* `hbench.engine.executors.threads.on_threads`: in this process, the default;
* `hbench.engine.executors.kept_blocks.kept_in`: each finished block is kept in a folder and not computed again;
* `hbench.engine.executors.dask.on_cluster`: by the workers of a dask.distributed scheduler.
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
from hbench.metrics.level_sequence import Ties
from hbench.metrics.name_columns import NameColumns
from hbench.metrics.protocols import ScoreQuery
from hbench.tree import Labels


class Values(NamedTuple):
    """The results of n queries: `values` (M, n) float64; `first_level`, `tied` (n,); `counts` (n, L+1)."""

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


@dataclass(frozen=True)
class OtherLabels:
    """Values under other labels of the same fine classes, found in the same pass from the same scores.

    The `ranker` arranges the rows of the job's. `values` and `is_measured` (Q,) are filled in, by the executor
    that sees whole rows of scores (threads). `canonical` (Q,): the order in which values are summed.
    """

    ranker: Ranker
    scorers: Sequence[ScoreQuery]
    canonical: NDArray[np.int64]
    values: Values
    is_measured: NDArray[np.bool_]

    @classmethod
    def of(
        cls, ranker: Ranker, labels: tuple[Labels, Labels], scorers: Sequence[ScoreQuery], ties: Ties
    ) -> OtherLabels:
        """Nothing measured yet; `labels` of queries (Q, L') and gallery (G, L')."""
        other = ranker.relabelled(*labels, ties)
        asked = ranker.queries
        canonical = asked[np.lexsort(labels[0][asked].T[::-1])]
        values = Values.empty(len(scorers), np.zeros((len(asked), other.depth + 1), np.int64))
        return cls(other, scorers, canonical, values, np.zeros(len(asked), bool))

    def put(self, at: NDArray[np.int64], values: Values) -> None:
        """Keep the values of the queries at these input positions."""
        self.values.put(at, values)
        self.is_measured[at] = True


@dataclass(frozen=True)
class Job:
    """A ranker and what to compute of every query.

    `conditions`: everything besides the ranker that affects the values, as text, for the digest. `canonical` (Q,): the order in
    which values are summed up, if it is not the ranker's.

    `rebuild`: recreates the job in another process, from the embeddings that were read there. `by_name`: the labels by
    name, where a scorer goes by them and they form no tree. `top`: where the first results of every query are kept, by
    the executor that sees whole rows of scores (threads); `others`: other labels that are valued in the same pass, likewise.
    """

    ranker: Ranker
    scorers: Sequence[ScoreQuery]
    conditions: str = ""
    canonical: NDArray[np.int64] | None = None
    rebuild: Callable[[Any], Job] | None = None
    by_name: NameColumns | None = None
    top: TopResults | None = None
    others: Sequence[OtherLabels] = ()

    @property
    def digest(self) -> str:
        """sha256 of everything the values depend on."""
        names = "" if self.by_name is None else f" {self.by_name.digest}"
        words = f"{self.ranker.digest} {len(self.scorers)} {self.conditions}{names}"
        return hashlib.sha256(words.encode()).hexdigest()


Execute = Callable[[Job, Sequence[int]], Iterator[tuple[int, Values]]]
