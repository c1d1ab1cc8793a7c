"""Values the queries of a block: plans which metrics come from sums over ranks, ranks the rows of scores, and sums up.

The metrics of hbench.engine.fast_metrics are sums over the ranks of the positives, all taken at once; any other is computed
on the level sequence. Only items of the lowest level that some metric needs, and above, are positives to the plan.
Compiled kernels find ranks and sums. A small test goes by the formulas themselves, on the level sequence of every query: its
data alone decide, so that every part of an evaluation decides alike, and no compiled code is loaded for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hbench.core.compiled import is_cached, pays
from hbench.engine.fast_metrics import FAST, NEEDS, Batch
from hbench.engine.job import Job, Values, View
from hbench.engine.kernels import best_items, rank_positives, rank_sums, sort_keys
from hbench.engine.kernels.rank_positives import RankedPositives
from hbench.engine.ranker import ARRANGED_AT_ONCE, Ranker
from hbench.metrics import readings
from hbench.metrics.level_sequence import LevelSequence
from hbench.metrics.name_columns import NameColumns
from hbench.metrics.protocols import Grade, ScoreQuery, Scorer, scorers_by_name
from hbench.metrics.readings import Reading


def kernels_are_compiled() -> bool:
    """Whether the kernels that every evaluation uses are already compiled; the rest takes little time."""
    functions: list[Any] = [rank_sums.sum_up, rank_positives.rank_rows, sort_keys.write_keys]
    return all(map(is_cached, functions))


ITEMS = 600_000  # sorted at once by one thread, unless one row has more: each call of a kernel has its price
RANKS = 1 << 19  # positives whose ranks are summed up at once by one thread, unless one query has more
SEQUENCE_BYTES = 64  # per item of the gallery, for one level sequence in the making


class Workspace(NamedTuple):
    """The buffers of one thread, next to the scores; `read` is for ranked codes read as ranks and levels."""

    by_score: sort_keys.SortedKeys
    ranks: NDArray[np.int32]
    levels: NDArray[np.uint8]
    sums: rank_sums.SumBuffers
    read: tuple[NDArray[np.int32], NDArray[np.uint8]]


def read_by(reading: Reading, ranked: RankedPositives, workspace: Workspace) -> RankedPositives:
    """Ranked codes as ranks and levels, in the workspace."""
    ranks, levels = workspace.read
    out = ranked._replace(ranks=ranks, levels=levels, ends=ranked.ends.copy())
    rank_positives.leave_out(ranked, reading.stays.astype(np.uint8), reading.level, out)
    return out


@dataclass(frozen=True)
class MetricGroup:
    """The fast metrics, by row of the values, that are taken of one list: the whole one, without its last item, or under one
    reading of its codes."""

    scorers: dict[int, Scorer]
    loses_last: bool
    reading: Reading | None
    lowest: int
    tables: rank_sums.Tables

    @property
    def grades(self) -> dict[int, Grade]:
        """The rows of the metrics by relevance, in the order of the graded sums."""
        return {row: s.grade for row, s in self.scorers.items() if NEEDS[s.name.base] == "graded" and s.grade}

    def batch(self, counts: NDArray[np.int64]) -> Batch:
        """A batch without sums, for queries of these counts by code (n, K)."""
        counts = counts if self.reading is None else self.reading.counts(counts)
        cuts = np.unique(np.array([s.name.cut for s in self.scorers.values() if s.name.cut], np.int64))
        shape = (len(counts), len(self.grades), counts.shape[1])
        needs = {NEEDS[s.name.base] for s in self.scorers.values()}
        request = rank_sums.SumRequest(
            counts.copy(), cuts, np.zeros(shape), np.ones(shape, np.int64), self.tables, self.lowest,
            binary="binary" in needs, gain="gain" in needs, overlap="overlap" in needs,
        )  # fmt: skip
        return Batch.empty(request)

    def add(
        self, ranked: RankedPositives, batch: Batch, workspace: Workspace, *, queries: NDArray[np.int64], at: slice
    ) -> RankedPositives:
        """Sum up for the queries `at` these places of the batch, whose input positions are `queries` (n,). Return the list
        as it was read, valid until the workspace is used again."""
        counts = batch.request.counts[at]
        if self.reading is not None:
            ranked = read_by(self.reading, ranked, workspace)
        if self.loses_last:
            ranked = _without_last(ranked, counts)
        for place, grade in enumerate(self.grades.values()):
            batch.request.relevance[at, place], batch.request.weight[at, place] = grade(queries, counts)
        rank_sums.sum_up(ranked, batch.request, workspace.sums, batch.sums, at.start)
        return ranked

    def put(self, batch: Batch, values: NDArray[np.float64]) -> None:
        """Write the metrics of a batch to their rows of the values (M, n)."""
        graded = {row: {"graded": place} for place, row in enumerate(self.grades)}
        for row, scorer in self.scorers.items():
            values[row] = FAST[scorer.name.base](batch, **graded.get(row, scorer.arguments))


def _without_last(ranked: RankedPositives, counts: NDArray[np.int64]) -> RankedPositives:
    """The rankings without their last items, which are taken off the counts (n, L+1), too."""
    last, some = ranked.ends - 1, ranked.ends > ranked.starts
    lost = some & (ranked.ranks[np.where(some, last, 0)] == counts.sum(axis=1))
    level = np.where(lost, ranked.levels[np.where(some, last, 0)], 0)
    counts[np.arange(len(counts)), level] -= counts.sum(axis=1) > 0  # an empty list has no last item
    return ranked._replace(ends=ranked.ends - lost)


@dataclass(frozen=True)
class MetricPlan:
    """A plan to compute all metrics of a ranker's queries together: `groups` of fast metrics, and the `others` by row of the
    `metrics` values; `lowest`: the lowest level that some metric needs. `partial_rows`: metrics that skip queries whose labels
    end above a level, and that level. `spare`: workspaces that no thread uses at present."""

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
        """The plan of an evaluation."""
        fast = {row: s for row, s in enumerate(scorers) if isinstance(s, Scorer) and s.name.base in FAST}
        by_list: dict[tuple[bool, str], dict[int, Scorer]] = {}
        for row, scorer in sorted(fast.items(), key=lambda item: item[1].loses_last):
            by_list.setdefault((scorer.loses_last, scorer.reading.name if scorer.reading else ""), {})[row] = scorer
        others = {row: scorer for row, scorer in enumerate(scorers) if row not in fast}
        levels = [scorer.arguments.get("level", 1) for scorer in fast.values()]
        lowest = 1 if others or ranker.known is not None else min(levels, default=1)
        tables = rank_sums.tables(len(ranker.columns))
        groups = [
            MetricGroup(group, loses, next(iter(group.values())).reading, lowest, tables)
            for (loses, _), group in by_list.items()
        ]
        rule = rank_positives.RankingRule(ranker.pessimistic, rank_positives.FEW, rank_positives.PORTION)
        return cls(ranker, rule, len(scorers), groups, others, lowest, partial_rows(scorers))

    def parts(self, first: int, last: int) -> sort_keys.Parts:
        """Return the parts to be sorted of the rows of these canonical queries: the positives and the query itself."""
        starts, ends = self.ranker.starts[first:last], self.ranker.ends[first:last]
        begins = np.ascontiguousarray(starts[:, self.lowest - 1])
        sizes = ends[:, self.lowest - 1] - begins
        return sort_keys.Parts(begins, np.cumsum(sizes + 1) - (sizes + 1), sizes, starts, ends, self.lowest)

    def coded(self, parts: sort_keys.Parts, first: int, last: int) -> sort_keys.Parts:
        """The parts of these canonical queries as they are sorted: by the codes of their items, where these differ from the
        levels."""
        if self.ranker.known is None:
            return parts
        starts, ends = (bounds[first:last] for bounds in self.ranker.coded)
        return parts._replace(starts=starts, ends=ends)

    @cached_property
    def most_positives(self) -> int:
        """The positives of the query that has most, itself counted."""
        lowest = self.lowest - 1
        return int((self.ranker.ends[:, lowest] - self.ranker.starts[:, lowest]).max(initial=0))

    @property
    def workspace_bytes(self) -> int:
        """Bytes of one thread's workspace, with the buffer that looks distractors up."""
        most = self.most_positives
        items, lookup = max(most + 1, ITEMS), min(most, self.rule.portion) * (2 * rank_positives.BUCKETS + 4)
        read = 0 if self.ranker.known is None else max(most, RANKS) * 5
        of_item = sum(part.itemsize for part in self._by_score(0)[:3])
        return items * of_item + max(most, RANKS) * 5 + read + lookup + most * 9

    @contextmanager
    def workspace(self) -> Iterator[Workspace]:
        """A workspace for one thread, which is used again afterwards."""
        try:
            workspace = self.spare.pop()
        except IndexError:
            size = max(self.most_positives, RANKS)
            read = 0 if self.ranker.known is None else size
            workspace = Workspace(
                self._by_score(max(self.most_positives + 1, ITEMS)), np.empty(size, np.int32), np.empty(size, np.uint8),
                rank_sums.scratch(self.most_positives), (np.empty(read, np.int32), np.empty(read, np.uint8)),
            )  # fmt: skip
        yield workspace
        self.spare.append(workspace)

    def _by_score(self, items: int) -> sort_keys.SortedKeys:
        return sort_keys.empty(items, self.ranker.scores.dtype, self.ranker.code_ties)


def plan_of(job: Job) -> MetricPlan | None:
    """The plan of an evaluation; None for a small one, which goes by the formulas."""
    pairs = len(job.ranker.queries) * len(job.ranker.columns)
    return MetricPlan.of(job.ranker, job.scorers) if pays(pairs) else None


def partial_rows(scorers: Sequence[ScoreQuery]) -> dict[int, int]:
    """The metrics, by row, that skip queries whose labels end above a level, and that level."""
    return {row: s.asked for row, s in enumerate(scorers) if isinstance(s, Scorer) and s.asked}


class Block:
    """The values of the queries of one block in the making: `adders` take rows of scores (n, G) of the queries from a place
    of the block on, and `finishers` write what can only be written when every query was added. `others`: the same block under
    other views, which take their rows from this one."""

    def __init__(self, ranker: Ranker, number: int, metrics: int) -> None:
        self.ranker, self.queries = ranker, ranker.rows(number)
        self.first = number * ranker.scores.block_size
        self.counts = ranker.counts_by_code(self.first, self.first + len(self.queries))
        self.reading = None if ranker.known is None else readings.known(ranker.depth)
        self.values = Values.empty(metrics, self.counts if self.reading is None else self.reading.counts(self.counts))
        self.adders: list[Callable[[NDArray[np.floating], int], None]] = []
        self.finishers: list[Callable[[], None]] = []
        self.others: list[Block] = []

    def add(self, scores: NDArray[np.floating], start: int) -> None:
        """Compute the values of the queries of the block from `start` on by their rows of scores (n, G)."""
        for begin, rows in self.ranker.arranged(scores, self.first + start):
            for add in self.adders:
                add(rows, start + begin)
            for other in self.others:
                other.add(rows, start + begin)

    def finish(self) -> Values:
        """The values, when every query was added."""
        for finish in self.finishers:
            finish()
        return self.values._replace(others=tuple(other.finish() for other in self.others))

    def skip_partial(self, rows: Mapping[int, int]) -> None:
        """Leave metrics undefined for the queries whose labels end above the level that they need."""
        if self.ranker.known is not None:
            of_queries = self.ranker.known[self.first : self.first + len(self.queries)]
            for row, level in rows.items():
                self.values.values[row, of_queries < level] = np.nan


class JobPlans:
    """The plans of all views of a job; `own` None for a small job, which goes by the formulas."""

    def __init__(self, job: Job, own: MetricPlan | None) -> None:
        self.job, self.own = job, own
        self.others: list[MetricPlan | None] = [
            None if own is None else MetricPlan.of(view.ranker, view.scorers) for view in job.others
        ]

    def start(self, number: int) -> Block:
        """Start a block, under all views."""
        job = self.job
        block = _started(job, self.own, number)
        if job.by_name is not None:
            fill_by_name(block, job.scorers, job.by_name)
        block.others = [_started(view, plan, number) for view, plan in zip(job.others, self.others, strict=True)]
        if (top := job.top) is not None:
            block.adders.append(lambda scores, start: top.keep(job.ranker, scores, block.first + start))
        return block

    @property
    def thread_bytes(self) -> int:
        """How many bytes a thread that adds to blocks needs."""
        ranker = self.job.ranker
        listed = 0 if ranker.listed is None else ranker.listed.width
        size = sum(plan.workspace_bytes for plan in (self.own, *self.others) if plan is not None)
        if self.job.others or ranker.arrange is not None:
            size += max(ARRANGED_AT_ONCE, len(ranker.columns) + listed) * ranker.scores.dtype.itemsize
        if self.job.by_name is not None or self.own is None:
            size += SEQUENCE_BYTES * len(ranker.columns)
        return size


def _started(view: View, plan: MetricPlan | None, number: int) -> Block:
    block = Block(view.ranker, number, len(view.scorers))
    if plan is None:
        fill_by_formulas(block, view.scorers)
    else:
        block.adders.append(FastColumns(block, plan).add)
    return block


def fill_by_formulas(block: Block, scorers: Sequence[ScoreQuery]) -> None:
    """Compute the metrics as the functions of hbench.metrics.definitions, of one level sequence after another."""

    def add(scores: NDArray[np.floating], start: int) -> None:
        for n, row in enumerate(scores, start):
            sequence = block.ranker.sequence_of_codes(block.first + n, row, block.counts[n])
            block.values.values[:, n] = [scorer(int(block.queries[n]), sequence) for scorer in scorers]
            known = sequence if block.reading is None else block.reading.of(sequence)
            block.values.first_level[n] = known.levels[0] if len(known.ranks) and known.ranks[0] == 1 else 0
            block.values.tied[n] = sequence.tied

    block.adders.append(add)
    block.finishers.append(partial(block.skip_partial, partial_rows(scorers)))


class FastColumns:
    """The metrics of a block as sums over the ranks, all taken at once."""

    def __init__(self, block: Block, plan: MetricPlan) -> None:
        self.block, self.plan = block, plan
        self.batches = [(group, group.batch(block.counts)) for group in plan.groups]
        block.finishers.append(self.finish)

    def add(self, scores: NDArray[np.floating], start: int) -> None:
        """Rank the positives of the queries from `start` on, and value them."""
        first, last = self.block.first + start, self.block.first + start + len(scores)
        parts = self.plan.coded(self.plan.parts(first, last), first, last)
        positives = self.block.counts[start : start + len(scores), self.plan.lowest :].sum(axis=1)
        with self.plan.workspace() as workspace:
            for at in sort_keys.fitting(positives, len(workspace.ranks)):
                ends, queries = np.cumsum(positives[at]), slice(start + at.start, start + at.stop)
                tied = self.block.values.tied[queries]
                ranked = RankedPositives(workspace.ranks, workspace.levels, ends - positives[at], ends, tied)
                self._rank(scores[at], parts.of(at), ranked, workspace)
                levels = _levels_at_rank_1(ranked)
                if self.plan.lowest > 1:  # then the item ranked first may be a positive that is not listed
                    pessimistic, unknown = self.plan.rule.pessimistic, levels == 0
                    best_items.levels_of_best(scores[at], parts.of(at), pessimistic, levels, unknown)
                self.block.values.first_level[queries] = levels
                self.add_ranked(ranked, queries, workspace)

    def _rank(
        self, scores: NDArray[np.floating], parts: sort_keys.Parts, out: RankedPositives, workspace: Workspace
    ) -> None:
        """Rank the positives of rows of scores, as many rows at once as can be sorted in the workspace."""
        by_score = workspace.by_score
        for some in sort_keys.fitting(parts.sizes + 1, len(by_score.keys)):
            sort_keys.sort(scores[some], parts.of(some), by_score)
            rank_positives.rank_rows(scores[some], parts.of(some), by_score, self.plan.rule, out.of(some))

    def add_ranked(self, ranked: RankedPositives, at: slice, workspace: Workspace) -> None:
        """Value the queries `at` these places of the block by the ranks of their positives."""
        block, first = self.block, None
        for group, batch in self.batches:
            read = group.add(ranked, batch, workspace, queries=block.queries[at], at=at)
            if block.reading and group.reading and group.reading.name == block.reading.name:
                first = _levels_at_rank_1(read)
        for n in range(at.start, at.stop) if self.plan.others else []:
            part = slice(ranked.starts[n - at.start], ranked.ends[n - at.start])
            ranks, tied = ranked.ranks[part].astype(np.int64), bool(ranked.tied[n - at.start])
            sequence = LevelSequence(ranks, ranked.levels[part], block.counts[n], tied)
            for row, other in self.plan.others.items():
                block.values.values[row, n] = other(int(block.queries[n]), sequence)
        if block.reading is not None:
            if first is None:
                first = _levels_at_rank_1(read_by(block.reading, ranked, workspace))
            block.values.first_level[at] = first

    def finish(self) -> None:
        """Write the metrics of every query."""
        for group, batch in self.batches:
            group.put(batch, self.block.values.values)
        self.block.skip_partial(self.plan.partial_rows)


def _levels_at_rank_1(ranked: RankedPositives) -> NDArray[np.uint8]:
    """The level of the positive at rank 1, 0 where there is none; (n,)."""
    some = ranked.ends > ranked.starts
    place = np.where(some, ranked.starts, 0)
    return np.where(some & (ranked.ranks[place] == 1), ranked.levels[place], 0).astype(np.uint8)


def fill_by_name(block: Block, scorers: Sequence[ScoreQuery], by_name: NameColumns) -> None:
    """Compute the values by name of the queries that the tree does not show as their names do, in place of those by the tree."""
    named_scorers = scorers_by_name(scorers)
    values: dict[int, list[float]] = {}

    def add(scores: NDArray[np.floating], start: int) -> None:
        for n, row in enumerate(scores, start):
            query = block.first + n
            if by_name.affected[query]:
                named = by_name.sequences(query, row, block.ranker.left_out(query, query + 1)[1])
                values[n] = [scorer(int(block.queries[n]), named) for scorer in named_scorers.values()]

    def finish() -> None:
        for n, of_query in values.items():
            block.values.values[list(named_scorers), n] = of_query

    block.adders.append(add)
    block.finishers.append(finish)
