"""Plans which metrics come from sums over ranks, taken at once, and which need a level sequence."""

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

# items sorted at once by one thread, unless one row has more: each call of a kernel has its price
ITEMS = 600_000
# positives whose ranks are summed up at once by one thread, unless one query has more
RANKS = 1 << 19


class Workspace(NamedTuple):
    """The buffers of one thread, next to the scores, written over for every few queries.

    `by_score`: where positives are sorted. `ranks` int32, `levels` uint8: the ranked positives of
    some queries, flat, one query's behind another's; under partial labels `levels` are codes.
    `sums`: what the kernel of the sums needs. `read`: ranks and levels once more, for the lists
    that a reading makes of codes; of length 0 where labels are not partial.
    """

    by_score: sort_keys.SortedKeys
    ranks: NDArray[np.int32]
    levels: NDArray[np.uint8]
    sums: rank_sums.SumBuffers
    read: tuple[NDArray[np.int32], NDArray[np.uint8]]


def read_by(reading: Reading, ranked: RankedPositives, workspace: Workspace) -> RankedPositives:
    """The ranked lists as one reading of partial labels has them, in the workspace: `ranked` holds
    codes, two for each level, and the reading tells which stay in a list, and as which level."""
    ranks, levels = workspace.read
    # `ends` are written, since lists become shorter: a copy, for other readings need those of now
    out = ranked._replace(ranks=ranks, levels=levels, ends=ranked.ends.copy())
    rank_positives.leave_out(ranked, reading.stays.astype(np.uint8), reading.level, out)
    return out


@dataclass(frozen=True)
class MetricGroup:
    """The fast metrics that are taken of one and the same list of each query.

    `scorers`: the metrics, by their row among the values (M, n). `loses_last`: whether the list is
    taken without the item at its last rank, as released evaluators do whose queries are apart from
    the gallery. `reading`: under partial labels, which level each code counts as; None where codes
    are levels. `lowest`: the lowest level whose items are ranked, from 1. `tables`: discounts and
    their sums, by rank.
    """

    scorers: dict[int, Scorer]
    loses_last: bool
    reading: Reading | None
    lowest: int
    tables: rank_sums.Tables

    @property
    def grades(self) -> dict[int, Grade]:
        """The relevance of each metric that is a sum weighted by relevance, such as H-AP, by the
        metric's row among the values; in the order of the graded sums of a batch."""
        return {
            row: s.grade
            for row, s in self.scorers.items()
            if NEEDS[s.name.base] == "graded" and s.grade
        }

    def batch(self, counts: NDArray[np.int64]) -> Batch:
        """A batch with sums of 0 for n queries, and what the group needs summed; `counts` (n, K):
        the items in each query's list by code, which is a level, or under partial labels becomes
        one by the group's reading. Relevance and weight are room for each query's own, which
        `grade` writes."""
        by_level = counts if self.reading is None else self.reading.counts(counts)
        # (C,): the k of R@k and others, ascending; a metric of the whole list has no cut
        cuts = np.unique(
            np.array([s.name.cut for s in self.scorers.values() if s.name.cut], np.int64)
        )
        # (n, H, L+1) of H graded sums, one for each metric with a relevance
        shape = (len(by_level), len(self.grades), by_level.shape[1])
        needs = {NEEDS[s.name.base] for s in self.scorers.values()}
        request = rank_sums.SumRequest(
            counts=by_level.copy(),  # the caller's stay, since `add` may take a lost item off these
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
        """Add the sums of n queries to the batch, `at` these places; `queries` (n,): their
        positions in the input, which grades go by. `ranked`: the ranks of their positives, each
        with its level; under partial labels with one of two codes per level, "of this level" and
        "of this level or a finer one".

        Return the lists as they were summed, valid until the workspace is used again.
        """
        counts = batch.request.counts[at]  # a view: what is taken off here is off in the batch
        listed = ranked
        # only partial labels have a reading: it makes levels of codes, and leaves out the items
        # whose level it takes for unknown
        if self.reading is not None:
            listed = read_by(self.reading, ranked, workspace)
        # the numbers of released evaluators are matched, which forget the item at the last rank
        # where queries are apart from the gallery
        if self.loses_last:
            listed = _without_last(listed, counts)
        # only now, since a relevance may divide by the counts, from which the lost item is gone
        self.grade(batch, queries=queries, at=at)
        rank_sums.sum_up(listed, batch.request, workspace.sums, batch.sums, at.start)
        return listed

    def grade(self, batch: Batch, *, queries: NDArray[np.int64], at: slice) -> None:
        """Write the relevance and weight of every level to the batch's request, both (n, H, L+1) of
        H graded metrics and levels from 0, for the n queries `at` these places; `queries` (n,):
        their positions in the input.

        The relevance is what one item of a level is worth. The weight is how often it counts:
        once, but as often as levels have the same relevance where a released evaluator finds items
        by their relevance. Both differ by query, for some go by how many items of each level its
        list has.
        """
        request = batch.request
        for place, grade in enumerate(self.grades.values()):
            request.relevance[at, place], request.weight[at, place] = grade(
                queries, request.counts[at]
            )

    def put(self, batch: Batch, values: NDArray[np.float64]) -> None:
        """Make the group's metrics out of the sums of a batch of n queries, and write each to its
        row of the values (M, n)."""
        # a graded metric is told which of the graded sums is its own, and nothing else: its
        # relevance is in the sum already
        graded = {row: {"graded": place} for place, row in enumerate(self.grades)}
        for row, scorer in self.scorers.items():
            values[row] = FAST[scorer.name.base](batch, **graded.get(row, scorer.arguments))


def _without_last(ranked: RankedPositives, counts: NDArray[np.int64]) -> RankedPositives:
    """The rankings without the last item of each, as some released evaluators rank; that item is
    taken off the counts (n, L+1), too, in place.

    `ranked`: the positives of n queries in flat arrays, those of query q from `starts[q]` to
    `ends[q]`; distractors are not listed, so a lost distractor changes the counts alone.
    """
    has_positives = ranked.ends > ranked.starts
    # the place of each query's last positive; 0 stands for none, and is not looked at
    last = np.where(has_positives, ranked.ends - 1, 0)
    # the last item is a positive where the last positive has the last rank, else a distractor
    sizes = counts.sum(axis=1)
    is_lost = has_positives & (ranked.ranks[last] == sizes)
    level = np.where(is_lost, ranked.levels[last], 0)
    # one off its level, or off level 0 for a distractor; an empty list has no last item
    counts[np.arange(len(counts)), level] -= sizes > 0
    return ranked._replace(ends=ranked.ends - is_lost)


@dataclass(frozen=True)
class MetricPlan:
    """A plan to compute all metrics of a ranker's queries together.

    `ranker`: of Q queries, with the ranges in which their positives lie. `rule`: how equal scores
    are ordered, and up to how many positives are compared or looked up at once. `metrics`: how many
    values a query gets. `groups`: the fast metrics; `others`: those that are no sums over ranks, by
    their row among the values. `lowest`: the lowest level that some metric needs, from 1; items
    below it are not ranked. `partial_rows`: metrics that skip queries whose labels end above a
    level, by row, and that level. `spare`: workspaces that no thread uses at present.
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
        """The plan by which the metrics of these scorers, each a row of the values, are computed of
        the ranker's queries."""
        fast = {
            row: s for row, s in enumerate(scorers) if isinstance(s, Scorer) and s.name.base in FAST
        }

        # {(without the last item or not, reading): the metrics of that list, by row}; those of
        # whole lists come first
        by_list: dict[tuple[bool, str], dict[int, Scorer]] = {}
        for row, scorer in sorted(fast.items(), key=lambda item: item[1].loses_last):
            reading = scorer.reading.name if scorer.reading else ""
            by_list.setdefault((scorer.loses_last, reading), {})[row] = scorer

        others = {row: scorer for row, scorer in enumerate(scorers) if row not in fast}
        # a metric without a level of its own, such as H-AP, needs all levels, from 1
        levels = [scorer.arguments.get("level", 1) for scorer in fast.values()]
        # whole level sequences, and readings of codes, need the positives of all levels
        lowest = 1 if others or ranker.known is not None else min(levels, default=1)
        tables = rank_sums.tables(len(ranker.columns))  # no rank is beyond the gallery's size
        # all metrics of a group have one reading: any of them tells it
        groups = [
            MetricGroup(group, loses, next(iter(group.values())).reading, lowest, tables)
            for (loses, _), group in by_list.items()
        ]
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
            partial_rows=partial_rows(scorers),
        )

    def parts(self, first: int, last: int) -> sort_keys.Parts:
        """The part of each row of scores that is to be sorted, the positives with the query itself:
        of the n queries from `first` to `last` in canonical order, where the items of each level
        lie side by side.

        A part is `sizes` (n,) columns from `begins` (n,) on; in flat arrays it lies from `offsets`
        (n,) on. `starts` and `ends` (n, L) are the columns of the items of level ≥ l inside of it.
        """
        starts = self.ranker.starts[first:last]
        ends = self.ranker.ends[first:last]
        # ranges are nested: that of the lowest level which any metric asks for holds all positives;
        # level l stands in column l − 1
        begins = np.ascontiguousarray(starts[:, self.lowest - 1])
        sizes = ends[:, self.lowest - 1] - begins
        # one part after another in flat arrays, each followed by one place for a score of
        # −inf, where every search stops
        offsets = np.cumsum(sizes + 1) - (sizes + 1)
        return sort_keys.Parts(begins, offsets, sizes, starts, ends, self.lowest)

    def coded(self, parts: sort_keys.Parts, first: int, last: int) -> sort_keys.Parts:
        """The parts of the n queries from `first` to `last`, in canonical order, with the ranges of
        codes in place of those of levels: `starts` and `ends` (n, 2L − 1), since under partial
        labels there are two codes for each level but the finest. Begins and sizes stay: the codes
        share out the same columns."""
        if self.ranker.known is None:  # labels are not partial: codes are levels
            return parts
        starts, ends = (bounds[first:last] for bounds in self.ranker.coded)
        return parts._replace(starts=starts, ends=ends)

    @cached_property
    def most_positives(self) -> int:
        """The positives of the query that has most, itself counted. `starts`, `ends` (Q, L): the
        columns of the items of each level and finer ones; `lowest`: the coarsest level that some
        metric needs, from 1."""
        lowest = self.lowest - 1
        return int((self.ranker.ends[:, lowest] - self.ranker.starts[:, lowest]).max(initial=0))

    @property
    def workspace_bytes(self) -> int:
        """Bytes of one thread's workspace, as `workspace` makes it, with the tables in which a
        kernel looks distractors up, a portion of the positives (`rule.portion`) at a time."""
        most = self.most_positives
        rank, level, bucket, count = 4, 1, 2, 4  # bytes: int32, uint8, uint16, int32
        # a key, a score and a level of each positive, and of the −inf behind those of a row
        buffers = self._by_score(0)
        sorted_item = buffers.keys.itemsize + buffers.scores.itemsize + buffers.levels.itemsize
        by_score = max(most + 1, ITEMS) * sorted_item
        ranked = max(most, RANKS) * (rank + level)
        # once more for the lists that a reading makes, where labels are partial
        read = ranked if self.ranker.known is not None else 0
        # ranks and levels of the higher positives, and ranks of the others (SumBuffers)
        sums = most * (rank + level + rank)
        # of each positive of a portion, its buckets, and the distractors before it
        lookup = min(most, self.rule.portion) * (bucket * rank_positives.BUCKETS + count)
        return by_score + ranked + read + sums + lookup

    @contextmanager
    def workspace(self) -> Iterator[Workspace]:
        """A workspace for one thread, for use inside of `with`; other threads use it afterwards.
        `spare`: those that nobody uses. Only partial labels (`ranker.known`) need room for what a
        reading makes of codes."""
        try:
            workspace = self.spare.pop()
        except IndexError:  # rather than looking first, for another thread may take it meanwhile
            size = max(self.most_positives, RANKS)
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
        """Buffers in which the positives of some rows, this many items together, are sorted."""
        return sort_keys.empty(items, self.ranker.scores.dtype, self.ranker.code_ties)


def plan_of(job: Job) -> MetricPlan | None:
    """The plan by which a job's metrics are summed up; None for a small job, whose metrics go by
    the formulas, since loading compiled code would take longer."""
    pairs = len(job.ranker.queries) * len(job.ranker.columns)
    return MetricPlan.of(job.ranker, job.scorers) if compiling_pays(pairs) else None


def partial_rows(scorers: Sequence[ScoreQuery]) -> dict[int, int]:
    """The metrics that skip queries whose labels end above a level: {row of the metric among the
    `scorers`, which is that among the values: that level, from 1}."""
    return {
        row: scorer.level_required
        for row, scorer in enumerate(scorers)
        if isinstance(scorer, Scorer) and scorer.level_required
    }
