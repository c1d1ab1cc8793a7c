"""Jobs: a `Job` is what is evaluated, and an `Execute` is the function that computes it.

A `Job` is one test, whose queries are ranked, together with its scorers. The values of a query
depend only on the block to which the query belongs. It therefore makes no difference who computes
a block, or when: an `Execute` takes a job and the numbers of some of its blocks, and yields each
block's values, in any order. These are the executors:

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
    `counts` (n, L + 1): how many items of each level, from 0 to L, a query's list has. `others`:
    the results of the same queries under the job's other views, in the order of `Job.others`.
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
        """Values of n queries before anything is computed: every metric is NaN, the level of the
        item ranked first is 0, and no query has ties.

        Args:
            metrics: the number of metrics.
            counts: (n, L + 1), how many items of each level a query's list has.
            others: the empty values of the same queries under other views.
        """
        n = len(counts)
        return cls(
            np.full((metrics, n), np.nan), np.zeros(n, np.uint8), np.zeros(n, bool), counts, others
        )

    def of(self, queries: slice) -> Values:
        """The values of some of the queries, under every view. The arrays are not copied."""
        return Values(
            values=self.values[:, queries],
            first_level=self.first_level[queries],
            tied=self.tied[queries],
            counts=self.counts[queries],
            others=tuple(other.of(queries) for other in self.others),
        )

    def put(self, at: NDArray[np.int64], found: Values) -> None:
        """Copy the values `found` for n queries into these arrays, under every view. `at` (n,):
        the position of each of the n queries in these arrays, along the last axis of `values` (M,
        queries), and along the first axis of the others."""
        self.values[:, at] = found.values
        self.first_level[at] = found.first_level
        self.tied[at] = found.tied
        self.counts[at] = found.counts
        for own, other in zip(self.others, found.others, strict=True):
            own.put(at, other)


@dataclass(frozen=True)
class View:
    """What items mean to the queries, as a `ranker`, and the `scorers` that compute the metrics.

    `conditions`: everything else that affects the values, as text. `canonical` (Q,): the positions
    of the queries in the order in which their values are summed for a mean, which decides the last
    bits of the mean; None for the order in which `ranker` ranks them.
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

        Args:
            ranker: ranks the same queries under the dataset's own labels.
            labels: the labels of the queries (Q, L') and of the gallery (G, L'), in input order,
                coarse to fine. At the finest level, they must divide the items into the same
                classes as the ranker's labels.
            scorers: the metrics, in order.
            ties: makes the keys by which equal scores are ordered, one for each level.
        """
        of_queries, of_gallery = labels
        # Means are summed in the order of these labels, so that they equal, to the bit, those of an
        # evaluation under these labels alone. lexsort sorts by its last key first, which is the
        # coarsest level here.
        asked = ranker.queries  # (Q,): positions in the input, in the order of the ranking
        finest_to_coarsest = of_queries[asked].T[::-1]
        return cls(
            ranker.relabelled(of_queries, of_gallery, ties),
            scorers,
            canonical=asked[np.lexsort(finest_to_coarsest)],
        )

    def nothing(self, queries: int) -> Values:
        """Values of this many queries before anything is computed: NaN and zeros. A kept block is
        used only if its arrays have these shapes and types."""
        return Values.empty(len(self.scorers), np.zeros((queries, self.ranker.depth + 1), np.int64))


@dataclass(frozen=True)
class Job(View):
    """A test to be computed: its view under the dataset's own labels, and what executors need.

    `rebuild`: recreates the job in another process, from the embeddings that were read there; None
    if that is not possible. `by_name`: the labels by name, for scorers that compare names where the
    names form no tree; None elsewhere. `top`: where the first results of every query are kept,
    None if nobody needs them; only executors that compute whole rows of scores in this process
    (threads, cards) fill it. `others`: more views of the same queries and scores, whose values are
    computed in the same pass.
    """

    rebuild: Callable[[Any], Job] | None = None
    by_name: NameColumns | None = None
    top: TopResults | None = None
    others: Sequence[View] = ()

    def nothing(self, queries: int) -> Values:
        """Values of this many queries under all views before anything is computed: NaN and zeros.
        A kept block is used only if its arrays have these shapes and types."""
        return (
            super()
            .nothing(queries)
            ._replace(others=tuple(view.nothing(queries) for view in self.others))
        )

    @property
    def digest(self) -> str:
        """sha256, as hex digits, of everything that the values depend on. Blocks from a folder or
        from a cluster are used only if they were computed for a job of the same digest."""
        names = "" if self.by_name is None else f" {self.by_name.digest}"
        words = f"{self.ranker.digest} {len(self.scorers)} {self.conditions}{names}"
        for view in self.others:
            words += f" {view.ranker.digest} {len(view.scorers)} {view.conditions}"
        return hashlib.sha256(words.encode()).hexdigest()


Execute = Callable[[Job, Sequence[int]], Iterator[tuple[int, Values]]]
