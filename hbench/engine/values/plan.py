"""Plans which metrics are computed from sums over ranks, and which need level sequences."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hbench.core.compiled import compiling_pays
from hbench.engine.job import Job
from hbench.engine.kernels import rank_positives, rank_sums, sort_keys
from hbench.engine.kernels.rank_positives import RankedPositives
from hbench.engine.ranker import Ranker
from hbench.engine.values.fast_metrics import FAST, NEEDS, Batch
from hbench.metrics.protocols import Grade, ScoreQuery, Scorer
from hbench.metrics.readings import Reading

# items sorted at once by one thread, unless one row has more; many, as each call of a kernel takes
# some time
ITEMS = 600_000
# positives whose ranks are summed up at once by one thread, unless one query has more
RANKS = 1 << 19


class Workspace(NamedTuple):
    """The buffers of one thread, which are overwritten for every few queries.

    `by_score`: where positives are sorted. `ranks` int32, `levels` uint8: the ranked positives of
    some queries in flat arrays, one query after another; under partial labels `levels` are codes.
    `sums`: buffers of the kernel that computes sums. `read`: ranks and levels of the lists that a
    reading makes from codes, of length 0 where labels are not partial.
    """

    by_score: sort_keys.SortedKeys
    ranks: NDArray[np.int32]
    levels: NDArray[np.uint8]
    sums: rank_sums.SumBuffers
    read: tuple[NDArray[np.int32], NDArray[np.uint8]]


def read_by(reading: Reading, ranked: RankedPositives, workspace: Workspace) -> RankedPositives:
    """The lists of levels that a reading of partial labels makes from the lists of codes, `ranked`.
    For each code, the reading tells whether an item `stays` in the list, and its `level`. The
    result is in `workspace.read`, buffers of ranks and levels, until the workspace is used again.
    """
    ranks, levels = workspace.read
    # a copy, as the lists become shorter, and other readings need the present ends
    out = ranked._replace(ranks=ranks, levels=levels, ends=ranked.ends.copy())
    rank_positives.leave_out(ranked, reading.stays.astype(np.uint8), reading.level, out)
    return out


@dataclass(frozen=True)
class MetricGroup:
    """The fast metrics that are computed from the same list of each query.

    `scorers`: the metrics, by their row among the values (M, n). `loses_last`: whether the item at
    the last rank is dropped, as released evaluators do if queries and gallery are separate.
    `reading`: under partial labels, the level that each code counts as; None where codes are
    levels. `lowest`: the lowest level whose items are ranked, from 1. `tables`: discounts and their
    sums, by rank.
    """

    scorers: dict[int, Scorer]
    loses_last: bool
    reading: Reading | None
    lowest: int
    tables: rank_sums.Tables

    @property
    def grades(self) -> dict[int, Grade]:
        """The relevance of each metric that is a graded sum, such as H-AP, by the metric's row
        among the values. The order is that of the graded sums of a batch."""
        return {
            row: s.grade
            for row, s in self.scorers.items()
            if NEEDS[s.name.base] == "graded" and s.grade
        }

    def batch(self, counts: NDArray[np.int64]) -> Batch:
        """A batch for n queries, with sums of 0 and a request for the sums that the group needs.

        `counts` (n, K): how many items of each code a query's list has. The request's relevance and
        weight are only allocated, with the values of an item without relevance that counts once;
        `grade` writes them. `lowest` is the lowest level whose items are ranked, and `tables` are
        discounts by rank with their sums. `binary` asks for the ASI of each level's binary labels,
        `overlap` for that of all levels, `gain` for the discounted gains of NDCG.
        """
        by_level = counts if self.reading is None else self.reading.counts(counts)
        # (C,): the cuts k of metrics such as R@k, ascending; a metric of the whole list has none
        cuts = np.unique(
            np.array([s.name.cut for s in self.scorers.values() if s.name.cut], np.int64)
        )
        # (n, H, L+1) of H graded sums, one for each metric with a relevance
        shape = (len(by_level), len(self.grades), by_level.shape[1])
        needs = {NEEDS[s.name.base] for s in self.scorers.values()}
        request = rank_sums.SumRequest(
            # a copy, since `MetricGroup.add` subtracts the item at the last rank if released
            # evaluators drop it (`loses_last`)
            counts=by_level.copy(),
            cuts=cuts,
            relevance=np.zeros(shape),
            weight=np.ones(shape, np.int64),
            tables=self.tables,
            lowest=self.lowest,
            binary="binary" in needs,
            gain="gain" in needs,
            overlap="overlap" in needs,
        )

        return Batch.empty(request)

    def add(
        self,
        ranked: RankedPositives,
        batch: Batch,
        workspace: Workspace,
        *,
        queries: NDArray[np.int64],
        at: slice,
    ) -> RankedPositives:
        """Compute the sums of n queries, and write them to the batch.

        Args:
            ranked: the ranks and levels of the queries' positives; codes under partial labels.
            batch: the batch of all queries of a block.
            workspace: the buffers of this thread.
            queries: (n,), the input positions of the queries, by which `grade` finds their
                relevance.
            at: the places of the queries in the batch.

        Returns:
            The lists that were summed, valid until the workspace is used again.
        """
        counts = batch.request.counts[at]  # a view, so that `_without_last` changes the batch
        listed = ranked
        # only partial labels have a reading, which turns codes into levels and drops items
        if self.reading is not None:
            listed = read_by(self.reading, ranked, workspace)
        # to match released evaluators, which forget the item at the last rank
        if self.loses_last:
            listed = _without_last(listed, counts)
        # after the last item was subtracted, since a relevance may depend on the counts
        self.grade(batch, queries=queries, at=at)
        rank_sums.sum_up(listed, batch.request, workspace.sums, batch.sums, at.start)
        return listed

    def grade(self, batch: Batch, *, queries: NDArray[np.int64], at: slice) -> None:
        """Write the relevance and weight of each level to the batch's request, for n queries and
        all H graded metrics; both (n, H, L + 1), for levels from 0.

        The relevance is the gain of one item of a level. The weight is how often the item counts,
        usually once. Only a released evaluator that finds the items of a level by their relevance
        counts an item once for each level with the same relevance. Relevance and weight differ
        between queries, since a relevance may depend on how many items of each level the query's
        list has.

        `queries` (n,): the input positions of the queries; `at`: their places in the batch.
        """
        request = batch.request
        for place, grade in enumerate(self.grades.values()):
            request.relevance[at, place], request.weight[at, place] = grade(
                queries, request.counts[at]
            )

    def put(self, batch: Batch, values: NDArray[np.float64]) -> None:
        """Compute the group's metrics from the sums of a batch of n queries, and write each to its
        row of the values (M, n)."""
        # The only argument of a graded metric is the index of its graded sum: its relevance has
        # been used for the sum already.
        graded = {row: {"graded": place} for place, row in enumerate(self.grades)}
        for row, scorer in self.scorers.items():
            values[row] = FAST[scorer.name.base](batch, **graded.get(row, scorer.arguments))


def _without_last(ranked: RankedPositives, counts: NDArray[np.int64]) -> RankedPositives:
    """Drop the last item of each ranking, as some released evaluators do. The items are also
    subtracted from `counts` (n, L + 1), in place.

    `ranked`: the positives of n queries. Distractors are not listed, so a lost distractor changes
    only the counts.
    """
    has_positives = ranked.ends > ranked.starts
    # the place of each query's last positive. A query without positives gets place 0, whose rank
    # and level are read, but not used
    last = np.where(has_positives, ranked.ends - 1, 0)
    # the last item is a positive if the last positive has the last rank, else a distractor
    sizes = counts.sum(axis=1)
    is_lost = has_positives & (ranked.ranks[last] == sizes)
    level = np.where(is_lost, ranked.levels[last], 0)
    # one less at the level of the lost item, which is 0 for a distractor; an empty list loses none
    counts[np.arange(len(counts)), level] -= sizes > 0
    return ranked._replace(ends=ranked.ends - is_lost)


@dataclass(frozen=True)
class MetricPlan:
    """A plan to compute all metrics of a ranker's queries together.

    `ranker`: ranks the Q queries, with the ranges of their positives. `rule`: how equal scores are
    ordered, and how many positives are compared or looked up at once. `metrics`: how many values a
    query gets. `groups`: the fast metrics; `others`: the metrics that are no sums over ranks, by
    their row among the values. `lowest`: the lowest level that some metric needs, from 1; items
    below it are not ranked. `partial_rows`: for metrics that skip queries whose labels end above
    some level, that level, by the metric's row. `spare`: workspaces that no thread uses at present.
    """

    ranker: Ranker
    rule: rank_positives.RankingRule
    metrics: int
    groups: Sequence[MetricGroup]
    others: Mapping[int, ScoreQuery]
    lowest: int
    partial_rows: Mapping[int, int]
    spare: list[Workspace] = field(default_factory=list)

    @classmethod
    def of(cls, ranker: Ranker, scorers: Sequence[ScoreQuery]) -> MetricPlan:
        """Make the plan for the metrics of these scorers; each is one row of the values.

        Under partial labels (`ranker.known` is set) sequences have codes in place of levels, and a
        scorer has a reading, which says as what level each code counts.
        """
        fast = {
            row: s for row, s in enumerate(scorers) if isinstance(s, Scorer) and s.name.base in FAST
        }

        # {(without the last item or not, name of the reading): the metrics of that list, by row};
        # "" is for lists without a reading
        by_list: dict[tuple[bool, str], dict[int, Scorer]] = {}
        for row, scorer in fast.items():
            reading = scorer.reading.name if scorer.reading else ""
            by_list.setdefault((scorer.loses_last, reading), {})[row] = scorer

        others = {row: scorer for row, scorer in enumerate(scorers) if row not in fast}
        # a metric that has no level, such as H-AP, needs all levels from 1 on
        levels = [scorer.arguments.get("level", 1) for scorer in fast.values()]
        # level sequences, and readings of codes, need the positives of all levels
        lowest = 1 if others or ranker.known is not None else min(levels, default=1)
        tables = rank_sums.tables(len(ranker.columns))  # no rank is beyond the gallery's size
        # all metrics of a group have the same reading, so it is taken from the first
        groups = [
            MetricGroup(
                scorers=group,
                loses_last=loses,
                reading=next(iter(group.values())).reading,
                lowest=lowest,
                tables=tables,
            )
            for (loses, _), group in by_list.items()
        ]
        # `few`: up to this many positives are compared with every distractor instead of being
        # looked up; `portion`: the most that are looked up at once
        rule = rank_positives.RankingRule(
            pessimistic=ranker.pessimistic,
            few=rank_positives.MAX_COMPARED,
            portion=rank_positives.PORTION,
        )

        return cls(
            ranker,
            rule,
            metrics=len(scorers),
            groups=groups,
            others=others,
            lowest=lowest,
            # {row: level}: metrics that are undefined for queries whose label ends above the level
            partial_rows=partial_rows(scorers),
        )

    def parts(self, first: int, last: int) -> sort_keys.Parts:
        """The part of each row of scores that is to be sorted: the columns of the positives, and of
        the query itself if it is in the gallery. For the n queries at the positions `first` to
        `last` (exclusive) of the canonical order, in which items of one class are side by side.

        Part i has the `sizes[i]` columns from column `begins[i]` on, and begins at place
        `offsets[i]` of flat arrays. `starts`, `ends` (n, L): the columns of the items of level ≥ l.
        """
        starts = self.ranker.starts[first:last]
        ends = self.ranker.ends[first:last]
        # ranges are nested, so the range of the lowest level that a metric needs holds all items
        # that count as positives; level l is in column l − 1
        begins = np.ascontiguousarray(starts[:, self.lowest - 1])
        sizes = ends[:, self.lowest - 1] - begins
        # in flat arrays the parts follow each other, each with one more place for a score of −inf,
        # where every search stops
        offsets = np.cumsum(sizes + 1) - (sizes + 1)
        return sort_keys.Parts(begins, offsets, sizes, starts, ends, self.lowest)

    def coded(self, parts: sort_keys.Parts, first: int, last: int) -> sort_keys.Parts:
        """The parts of the n queries from `first` to `last` in canonical order, with the ranges of
        codes in place of those of levels. The part of query i has all its positives: the `sizes[i]`
        columns from `begins[i]` on, which stay. Its ranges by level, `starts` and `ends`, become
        (n, 2L − 1) under partial labels: two codes for each level but the finest, which has one."""
        if self.ranker.known is None:  # labels are not partial: codes are levels
            return parts
        starts, ends = (bounds[first:last] for bounds in self.ranker.coded)
        return parts._replace(starts=starts, ends=ends)

    @cached_property
    def most_positives(self) -> int:
        """The largest number of positives of a query, at level `lowest` or finer, with the query
        itself if it is in the gallery."""
        lowest = self.lowest - 1  # level l is in column l − 1
        return int((self.ranker.ends[:, lowest] - self.ranker.starts[:, lowest]).max(initial=0))

    @property
    def workspace_bytes(self) -> int:
        """Bytes of one thread's workspace, and of the tables in which a kernel looks distractors
        up, for a portion of the positives (`rule.portion`) at a time."""
        most = self.most_positives
        rank, level, bucket, count = 4, 1, 2, 4  # bytes: int32, uint8, uint16, int32
        # a key, a score and a level of each positive; + 1 for the −inf behind a row's positives
        buffers = self._by_score(0)  # of no items, for the sizes of their types alone
        sorted_item = buffers.keys.itemsize + buffers.scores.itemsize + buffers.levels.itemsize
        # at least ITEMS and RANKS, since several queries are sorted, and summed up, at once
        by_score = max(most + 1, ITEMS) * sorted_item
        ranked = max(most, RANKS) * (rank + level)
        # as much again for the lists that a reading makes, where labels are partial
        read = ranked if self.ranker.known is not None else 0
        # Sums are computed level by level. For each level, the ranks and levels of the positives
        # above it are copied, and the ranks of those of this level; each may be nearly all.
        sums = most * (rank + level + rank)
        # for each positive of a portion: its buckets, and the count of distractors before it
        lookup = min(most, self.rule.portion) * (bucket * rank_positives.BUCKETS + count)
        return by_score + ranked + read + sums + lookup

    @contextmanager
    def workspace(self) -> Iterator[Workspace]:
        """A workspace for one thread, for use inside of `with`; other threads use it afterwards."""
        try:
            workspace = self.spare.pop()  # one that no thread uses at present
        except IndexError:  # no check before: another thread could take the last one meanwhile
            # The buffers hold the positives of any one query, at most `most_positives`. They hold
            # at least ITEMS for sorting, and RANKS for the sums over ranks, so that one call of a
            # kernel handles several short queries.
            size = max(self.most_positives, RANKS)
            # Under partial labels, positives have codes in place of levels. A reading converts the
            # ranks and codes of a list to ranks and levels, which it writes to `read`.
            read = 0 if self.ranker.known is None else size
            workspace = Workspace(
                # one more, for the −inf behind a row's positives
                by_score=self._by_score(max(self.most_positives + 1, ITEMS)),
                ranks=np.empty(size, np.int32),
                levels=np.empty(size, np.uint8),
                sums=rank_sums.scratch(self.most_positives),
                read=(np.empty(read, np.int32), np.empty(read, np.uint8)),
            )
        yield workspace
        self.spare.append(workspace)

    def _by_score(self, items: int) -> sort_keys.SortedKeys:
        """Buffers in which the positives of some rows, up to this many items, are sorted."""
        return sort_keys.empty(items, self.ranker.scores.dtype, self.ranker.code_ties)


def plan_of(job: Job) -> MetricPlan | None:
    """The plan by which a job's metrics are computed as sums. None for a small job: its metrics are
    computed by formulas, since loading compiled code would take longer."""
    pairs = len(job.ranker.queries) * len(job.ranker.columns)
    return MetricPlan.of(job.ranker, job.scorers) if compiling_pays(pairs) else None


def partial_rows(scorers: Sequence[ScoreQuery]) -> dict[int, int]:
    """The metrics that skip queries whose labels end above some level. Returns that level (from 1)
    by the row of the metric, which is its position in `scorers`."""
    return {
        row: scorer.level_required
        for row, scorer in enumerate(scorers)
        if isinstance(scorer, Scorer) and scorer.level_required
    }
