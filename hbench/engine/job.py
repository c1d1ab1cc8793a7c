"""Says what is evaluated, a test whose queries are ranked and measured, and who computes it.

A `Job` is one test with its scorers. The values of a query depend on its block alone. So who
computes which block, and when, changes nothing: an `Execute` takes a job and the numbers of its
blocks, and yields each block's values, in any order.

* `hbench.engine.executors.threads.on_threads`: in this process, the default;
* `hbench.engine.executors.kept_blocks.kept_in`: each finished block is kept in a folder and not
  computed again;
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
    """The results of n queries.

    `values` (M, n): the M metrics, NaN where undefined. `first_level` (n,): the level of the item
    ranked first. `tied` (n,): whether another order of equal scores would give other levels.
    `counts` (n, L + 1): the items of each list by level, from 0. `others`: those under the job's
    other views, in their order.
    """

    values: NDArray[np.float64]
    first_level: NDArray[np.uint8]
    tied: NDArray[np.bool_]
    counts: NDArray[np.int64]
    others: tuple[Values, ...] = ()

    @classmethod
    def empty(
        cls, metrics: int, counts: NDArray[np.int64], others: tuple[Values, ...] = ()
    ) -> Values:
        """Values of n queries before anything is computed: NaN for each of the `metrics`.
        `counts` (n, L+1): the items in each query's list by level; `others`: for other views."""
        n = len(counts)
        return cls(
            np.full((metrics, n), np.nan), np.zeros(n, np.uint8), np.zeros(n, bool), counts, others
        )

    def of(self, queries: slice) -> Values:
        """The values of some of the queries, under every view; views into the same arrays."""
        return Values(
            self.values[:, queries],
            self.first_level[queries],
            self.tied[queries],
            self.counts[queries],
            tuple(other.of(queries) for other in self.others),
        )

    def put(self, at: NDArray[np.int64], found: Values) -> None:
        """Write the values that were `found` for n queries into these arrays, in place and under
        every view; `at` (n,): the position here of each of the n queries."""
        self.values[:, at] = found.values
        self.first_level[at] = found.first_level
        self.tied[at] = found.tied
        self.counts[at] = found.counts
        for own, other in zip(self.others, found.others, strict=True):
            own.put(at, other)


@dataclass(frozen=True)
class View:
    """What items mean to the queries, and what is computed of it: a `ranker`, which arranges the
    rows of scores, and scorers.

    `conditions`: everything else that affects the values, as text. `canonical` (Q,): the order in
    which values are summed.
    """

    ranker: Ranker
    scorers: Sequence[ScoreQuery]
    conditions: str = ""
    canonical: NDArray[np.int64] | None = None

    @classmethod
    def of_labels(
        cls,
        ranker: Ranker,
        labels: tuple[Labels, Labels],
        scorers: Sequence[ScoreQuery],
        ties: Ties,
    ) -> View:
        """The view of the ranker's queries and scores under other labels, such as another tree.

        `labels`: those of the queries (Q, L') and of the gallery (G, L'), in input order, coarse
        to fine; their finest classes must be the ranker's. `scorers`: the metrics, in order.
        `ties` orders equal scores by level.
        """
        of_queries, of_gallery = labels
        # means are summed in the order of these labels, which gives the bits of an evaluation under
        # them alone; lexsort sorts by its last key first, so the levels are reversed: coarse first
        asked = ranker.queries
        coarse_first = of_queries[asked].T[::-1]
        return cls(
            ranker.relabelled(of_queries, of_gallery, ties),
            scorers,
            canonical=asked[np.lexsort(coarse_first)],
        )

    def nothing(self, queries: int) -> Values:
        """Values of this many queries before anything is computed, NaN and zeros: a kept block
        must have their shapes and types."""
        return Values.empty(len(self.scorers), np.zeros((queries, self.ranker.depth + 1), np.int64))


@dataclass(frozen=True)
class Job(View):
    """A view of a test, the dataset's own, and who computes it.

    `rebuild`: recreates the job in another process, from the embeddings that were read there.
    `by_name`: the labels by name, where a scorer goes by them and they form no tree. `top`: where
    the first results of every query are kept, by the executors that see whole rows of scores
    in this process (threads, cards). `others`: more views of the same queries and scores, whose
    values are found in the same pass.
    """

    rebuild: Callable[[Any], Job] | None = None
    by_name: NameColumns | None = None
    top: TopResults | None = None
    others: Sequence[View] = ()

    def nothing(self, queries: int) -> Values:
        """Values of this many queries under all views before anything is computed, NaN and zeros:
        a kept block must have their shapes and types."""
        return (
            super()
            .nothing(queries)
            ._replace(others=tuple(view.nothing(queries) for view in self.others))
        )

    @property
    def digest(self) -> str:
        """sha256, as hex digits, of everything the values depend on: kept blocks and those of a
        cluster are used only where their digest is this one."""
        names = "" if self.by_name is None else f" {self.by_name.digest}"
        words = f"{self.ranker.digest} {len(self.scorers)} {self.conditions}{names}"
        for view in self.others:
            words += f" {view.ranker.digest} {len(view.scorers)} {view.conditions}"
        return hashlib.sha256(words.encode()).hexdigest()


Execute = Callable[[Job, Sequence[int]], Iterator[tuple[int, Values]]]
