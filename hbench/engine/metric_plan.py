"""A plan: what the fast path does with every block of an evaluation.

The metrics it knows are sums over the ranks of the positives, all taken at once; the others are computed on the level
sequence. Only items of the lowest level that some metric asks for, and above, are positives to it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hbench.engine.fast_metrics import FAST, Batch
from hbench.engine.kernels import Kernels, rank_positives, rank_sums, sort_keys
from hbench.engine.ranker import Ranker
from hbench.metrics.protocols import Grade, ScoreQuery, Scorer

ITEMS = 600_000  # of rows sorted at once by one thread, unless one row has more: calls cost time, too
RANKS = 1 << 19  # positives whose ranks are summed up at once by one thread, unless one query has more


class Workspace(NamedTuple):
    """What one thread needs beside the scores."""

    by_score: sort_keys.SortedKeys
    lookup: rank_positives.LookupBuffers
    ranks: NDArray[np.int32]
    levels: NDArray[np.uint8]
    above: rank_sums.SumBuffers


@dataclass(frozen=True)
class MetricGroup:
    """The fast metrics, by row of the values, that are taken of one list: the whole one, or without its last item."""

    scorers: dict[int, Scorer]
    loses_last: bool
    lowest: int
    tables: rank_sums.Tables

    @property
    def grades(self) -> dict[int, Grade]:
        """The rows of H-AP, in the order of the graded sums."""
        return {row: each.grade for row, each in self.scorers.items() if each.name.base == "H-AP" and each.grade}

    def batch(self, counts: NDArray[np.int64]) -> Batch:
        """A batch without sums, for queries of these level counts (n, L+1)."""
        cuts = np.unique(np.array([each.name.cut for each in self.scorers.values() if each.name.cut], np.int64))
        shape = (len(counts), len(self.grades), counts.shape[1])
        binary = any(each.name.base == "ASI/" for each in self.scorers.values())
        wanted = rank_sums.SumRequest(
            counts.copy(), cuts, np.zeros(shape), np.ones(shape, np.int64), binary, self.lowest
        )
        return Batch.empty(wanted, self.tables)

    def add(
        self,
        ranked: rank_positives.RankedPositives,
        queries: NDArray[np.int64],
        batch: Batch,
        above: rank_sums.SumBuffers,
        by: Kernels,
    ) -> None:
        """Sum up for a batch of queries (n,), in input positions."""
        if self.loses_last:
            ranked = _without_last(ranked, batch.wanted.counts)
        for place, grade in enumerate(self.grades.values()):
            relevance, weight = grade(queries, batch.wanted.counts)
            batch.wanted.relevance[:, place], batch.wanted.weight[:, place] = relevance, weight
        by.sum_up(ranked, batch.wanted, batch.tables, above, batch.sums)

    def put(self, batch: Batch, values: NDArray[np.float64]) -> None:
        """Write the metrics of a batch to their rows of the values (M, n)."""
        graded = {row: {"graded": place} for place, row in enumerate(self.grades)}
        for row, scorer in self.scorers.items():
            values[row] = FAST[scorer.name.base](batch, **graded.get(row, scorer.arguments))


def _without_last(ranked: rank_positives.RankedPositives, counts: NDArray[np.int64]) -> rank_positives.RankedPositives:
    """The rankings without their last items, which are taken off the counts (n, L+1), too."""
    last, some = ranked.ends - 1, ranked.ends > ranked.starts
    lost = some & (ranked.ranks[np.where(some, last, 0)] == counts.sum(axis=1))
    level = np.where(lost, ranked.levels[np.where(some, last, 0)], 0)
    counts[np.arange(len(counts)), level] -= counts.sum(axis=1) > 0  # an empty list has no last item
    return ranked._replace(ends=ranked.ends - lost)


@dataclass(frozen=True)
class MetricPlan:
    """`lists` of fast metrics, and the `others` by row of the `metrics` values; `lowest` level that they ask for."""

    ranker: Ranker
    steps: Kernels
    how: rank_positives.RankingRule
    metrics: int
    lists: Sequence[MetricGroup]
    others: Mapping[int, ScoreQuery]
    lowest: int
    spare: list[Workspace] = field(default_factory=list)

    @classmethod
    def of(cls, ranker: Ranker, scorers: Sequence[ScoreQuery], steps: Kernels, *, pessimistic: bool) -> MetricPlan:
        known = {row: each for row, each in enumerate(scorers) if isinstance(each, Scorer) and each.name.base in FAST}
        by_list = [{row: each for row, each in known.items() if each.loses_last == loses} for loses in (False, True)]
        others = {row: each for row, each in enumerate(scorers) if row not in known}
        levels = [each.arguments.get("level", 1) for each in known.values()]
        lowest = 1 if others else min(levels, default=1)
        tables = rank_sums.tables(len(ranker.columns))
        both = zip((False, True), by_list, strict=True)
        lists = [MetricGroup(each, loses, lowest, tables) for loses, each in both if each]
        return cls(ranker, steps, steps.how(pessimistic), len(scorers), lists, others, lowest)

    def parts(self, first: int, last: int) -> sort_keys.Parts:
        """What is to be sorted of the rows of these canonical queries: their positives, and they themselves; with many
        positives the whole row."""
        starts, ends = self.ranker.starts[first:last], self.ranker.ends[first:last]
        begins = starts[:, self.lowest - 1]
        sizes = ends[:, self.lowest - 1] - begins
        whole = sizes >= self.how.many
        begins, sizes = np.where(whole, 0, begins), np.where(whole, len(self.ranker.columns), sizes)
        return sort_keys.Parts(begins, np.cumsum(sizes + 1) - (sizes + 1), sizes, starts, ends, self.lowest)

    @property
    def most_positives(self) -> int:
        """Those of the query that has most, itself counted."""
        lowest = self.lowest - 1
        return int((self.ranker.ends[:, lowest] - self.ranker.starts[:, lowest]).max(initial=0))

    @property
    def most_sorted(self) -> int:
        """Items of one row that are sorted, at most."""
        return len(self.ranker.columns) if self.most_positives >= self.how.many else self.most_positives

    @property
    def room_bytes(self) -> int:
        items, most = max(self.most_sorted + 1, ITEMS), self.most_positives
        lookup = min(most, self.how.many) * (4 * rank_positives.BUCKETS + 4)
        return items * self._by_score(0).bytes_per_item + max(most, RANKS) * 5 + lookup + most * 9

    @contextmanager
    def room(self) -> Iterator[Workspace]:
        """Room for one thread, which is used again."""
        try:
            own = self.spare.pop()
        except IndexError:
            items, most = max(self.most_sorted + 1, ITEMS), self.most_positives
            ranks, levels = np.empty(max(most, RANKS), np.int32), np.empty(max(most, RANKS), np.uint8)
            lookup = rank_positives.scratch(min(most, self.how.many))
            own = Workspace(self._by_score(items), lookup, ranks, levels, rank_sums.scratch(most))
        yield own
        self.spare.append(own)

    def _by_score(self, items: int) -> sort_keys.SortedKeys:
        return sort_keys.room(items, self.ranker.scores.dtype, self.ranker.tie_key)
