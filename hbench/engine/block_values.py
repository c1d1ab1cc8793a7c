"""Values the queries of a block: plans which metrics come from sums over ranks, ranks the rows of scores, and sums up.

The metrics of hbench.engine.fast_metrics are sums over the ranks of the positives, all taken at once; any other is computed
on the level sequence. Only items of the lowest level that some metric asks for, and above, are positives to the plan.
Ranks and sums are found by compiled kernels. A small test goes by the formulas themselves, on the
level sequence of every query: its data alone decide, so that every part of an evaluation decides alike, and no compiled code
is loaded for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from hbench.core.compiled import is_cached, pays
from hbench.engine.fast_metrics import FAST, Batch
from hbench.engine.job import Job, OtherLabels, Values
from hbench.engine.kernels import leave_out, rank_full_rows, rank_positives, rank_sums, sort_keys
from hbench.engine.ranker import Ranker
from hbench.engine.top_k import TopResults
from hbench.metrics import partial_lists
from hbench.metrics.level_sequence import LevelSequence
from hbench.metrics.name_columns import NameColumns
from hbench.metrics.partial_lists import Reading
from hbench.metrics.protocols import Grade, ScoreQuery, Scorer, scorers_by_name


def kernels_are_compiled() -> bool:
    """Whether the machine code of what every evaluation calls is on disk; the rest is little."""
    functions: list[Any] = [rank_sums.sum_up, rank_positives.rank_rows, sort_keys.write_keys]
    return all(map(is_cached, functions))


ITEMS = 600_000  # of rows sorted at once by one thread, unless one row has more: calls cost time, too
RANKS = 1 << 19  # positives whose ranks are summed up at once by one thread, unless one query has more


class Workspace(NamedTuple):
    """What one thread needs beside the scores."""

    by_score: sort_keys.SortedKeys
    lookup: rank_positives.LookupBuffers
    ranks: NDArray[np.int32]
    levels: NDArray[np.uint8]
    above: rank_sums.SumBuffers
    read: tuple[NDArray[np.int32], NDArray[np.uint8]]


def read_by(
    reading: Reading, ranked: rank_positives.RankedPositives, room: Workspace
) -> rank_positives.RankedPositives:
    """Ranked codes as ranks and levels, in the room for them."""
    ranks, levels = room.read
    to = ranked._replace(ranks=ranks, levels=levels, ends=ranked.ends.copy())
    leave_out.leave_out(ranked, reading.stays.astype(np.uint8), reading.level, to)
    return to


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
        return {row: each.grade for row, each in self.scorers.items() if FAST[each.name.base].graded and each.grade}

    def batch(self, counts: NDArray[np.int64]) -> Batch:
        """A batch without sums, for queries of these counts by code (n, K)."""
        counts = counts if self.reading is None else self.reading.counts(counts)
        cuts = np.unique(np.array([each.name.cut for each in self.scorers.values() if each.name.cut], np.int64))
        shape = (len(counts), len(self.grades), counts.shape[1])
        metrics = [FAST[each.name.base] for each in self.scorers.values()]
        wanted = rank_sums.SumRequest(
            counts.copy(), cuts, np.zeros(shape), np.ones(shape, np.int64),
            binary=any(each.binary for each in metrics), lowest=self.lowest,
            gain=any(each.gain for each in metrics), overlap=any(each.overlap for each in metrics),
        )  # fmt: skip
        return Batch.empty(wanted, self.tables)

    def add(
        self,
        ranked: rank_positives.RankedPositives,
        queries: NDArray[np.int64],
        batch: Batch,
        room: Workspace,
    ) -> rank_positives.RankedPositives:
        """Sum up for a batch of queries (n,), in input positions; the list as it was read, until the room is used again."""
        if self.reading is not None:
            ranked = read_by(self.reading, ranked, room)
        if self.loses_last:
            ranked = _without_last(ranked, batch.wanted.counts)
        for place, grade in enumerate(self.grades.values()):
            relevance, weight = grade(queries, batch.wanted.counts)
            batch.wanted.relevance[:, place], batch.wanted.weight[:, place] = relevance, weight
        rank_sums.sum_up(ranked, batch.wanted, batch.tables, room.above, batch.sums)
        return ranked

    def put(self, batch: Batch, values: NDArray[np.float64]) -> None:
        """Write the metrics of a batch to their rows of the values (M, n)."""
        graded = {row: {"graded": place} for place, row in enumerate(self.grades)}
        for row, scorer in self.scorers.items():
            values[row] = FAST[scorer.name.base].value(batch, **graded.get(row, scorer.arguments))


def _without_last(ranked: rank_positives.RankedPositives, counts: NDArray[np.int64]) -> rank_positives.RankedPositives:
    """The rankings without their last items, which are taken off the counts (n, L+1), too."""
    last, some = ranked.ends - 1, ranked.ends > ranked.starts
    lost = some & (ranked.ranks[np.where(some, last, 0)] == counts.sum(axis=1))
    level = np.where(lost, ranked.levels[np.where(some, last, 0)], 0)
    counts[np.arange(len(counts)), level] -= counts.sum(axis=1) > 0  # an empty list has no last item
    return ranked._replace(ends=ranked.ends - lost)


@dataclass(frozen=True)
class MetricPlan:
    """`lists` of fast metrics, and the `others` by row of the `metrics` values; `lowest` level that they ask for. `asked`: the
    rows that ask only the queries known to some level, and that level."""

    ranker: Ranker
    how: rank_positives.RankingRule
    metrics: int
    lists: Sequence[MetricGroup]
    others: Mapping[int, ScoreQuery]
    lowest: int
    asked: Mapping[int, int]
    spare: list[Workspace] = field(default_factory=list)

    @classmethod
    def of(cls, ranker: Ranker, scorers: Sequence[ScoreQuery]) -> MetricPlan:
        """The plan of an evaluation."""
        known = {row: each for row, each in enumerate(scorers) if isinstance(each, Scorer) and each.name.base in FAST}
        by_list: dict[tuple[bool, str], dict[int, Scorer]] = {}
        for row, each in sorted(known.items(), key=lambda item: item[1].loses_last):
            by_list.setdefault((each.loses_last, each.reading.name if each.reading else ""), {})[row] = each
        others = {row: each for row, each in enumerate(scorers) if row not in known}
        levels = [each.arguments.get("level", 1) for each in known.values()]
        lowest = 1 if others or ranker.known is not None else min(levels, default=1)
        tables = rank_sums.tables(len(ranker.columns))
        lists = [
            MetricGroup(each, loses, next(iter(each.values())).reading, lowest, tables)
            for (loses, _), each in by_list.items()
        ]
        asked = {row: each.asked for row, each in enumerate(scorers) if isinstance(each, Scorer) and each.asked}
        how = rank_positives.RankingRule(ranker.pessimistic, rank_positives.FEW, rank_positives.MANY)
        return cls(ranker, how, len(scorers), lists, others, lowest, asked)

    def parts(self, first: int, last: int) -> sort_keys.Parts:
        """What is to be sorted of the rows of these canonical queries: their positives, and they themselves; with many
        positives the whole row."""
        starts, ends = self.ranker.starts[first:last], self.ranker.ends[first:last]
        begins = starts[:, self.lowest - 1]
        sizes = ends[:, self.lowest - 1] - begins
        whole = sizes >= self.how.many
        begins, sizes = np.where(whole, 0, begins), np.where(whole, len(self.ranker.columns), sizes)
        return sort_keys.Parts(begins, np.cumsum(sizes + 1) - (sizes + 1), sizes, starts, ends, self.lowest)

    def coded(self, parts: sort_keys.Parts, first: int, last: int) -> sort_keys.Parts:
        """The parts of these canonical queries as they are sorted: by the codes of their items, where these are no levels."""
        if self.ranker.known is None:
            return parts
        starts, ends = (each[first:last] for each in self.ranker.coded)
        return parts._replace(starts=starts, ends=ends)

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
        read = 0 if self.ranker.known is None else max(most, RANKS) * 5
        return items * self._by_score(0).bytes_per_item + max(most, RANKS) * 5 + read + lookup + most * 9

    @contextmanager
    def room(self) -> Iterator[Workspace]:
        """Room for one thread, which is used again."""
        try:
            own = self.spare.pop()
        except IndexError:
            items, most = max(self.most_sorted + 1, ITEMS), self.most_positives
            ranks, levels = np.empty(max(most, RANKS), np.int32), np.empty(max(most, RANKS), np.uint8)
            lookup = rank_positives.scratch(min(most, self.how.many))
            read = ranks[:0], levels[:0]
            if self.ranker.known is not None:
                read = np.empty_like(ranks), np.empty_like(levels)
            own = Workspace(self._by_score(items), lookup, ranks, levels, rank_sums.scratch(most), read)
        yield own
        self.spare.append(own)

    def _by_score(self, items: int) -> sort_keys.SortedKeys:
        return sort_keys.room(items, self.ranker.scores.dtype, self.ranker.code_ties)


SEQUENCE_BYTES = 64  # per item of the gallery, for one level sequence in the making


class Block(Protocol):
    """The values of the queries of one block in the making."""

    def add(self, scores: NDArray[np.floating], start: int) -> None:
        """Value the queries of the block from `start` on by their rows of scores (n, G)."""

    def finish(self) -> Values:
        """The values, when every query was added."""


StartBlock = Callable[[int], Block]


def values_of(job: Job, plan: MetricPlan | None) -> tuple[StartBlock, int]:
    """The function that starts a block, from its number, under the evaluation's plan or, without one, by the formulas; and how
    many bytes a thread that adds to blocks needs."""

    def start(number: int) -> Block:
        block = FormulaBlock(job.ranker, job.scorers, number) if plan is None else FastBlock(plan, number)
        started: Block = block
        if job.by_name is not None:
            started = NamedBlock(started, job.ranker, job.scorers, job.by_name, number)
        if job.others:
            started = RelabelledBlock(started, [(labels, other(labels, number)) for labels in job.others])
        return started if job.top is None else TopBlock(started, job.ranker, job.top, number)

    def other(labels: OtherLabels, number: int) -> FormulaBlock | FastBlock:
        own = plans.get(id(labels))
        return FormulaBlock(labels.ranker, labels.scorers, number) if own is None else FastBlock(own, number)

    plans = {id(each): MetricPlan.of(each.ranker, each.scorers) for each in job.others if plan is not None}
    rows = max(ITEMS, len(job.ranker.columns)) * job.ranker.scores.dtype.itemsize if job.others else 0
    sequences = SEQUENCE_BYTES * len(job.ranker.columns) * (job.by_name is not None or plan is None)
    fast = [plan, *plans.values()] if plan is not None else []
    return start, sequences + rows + sum(each.room_bytes for each in fast)


def plan_of(job: Job) -> MetricPlan | None:
    """The plan of an evaluation; None for a small one, which goes by the formulas."""
    pairs = len(job.ranker.queries) * len(job.ranker.columns)
    return MetricPlan.of(job.ranker, job.scorers) if pays(pairs) else None


class FormulaBlock:
    """The metrics are the functions of hbench.metrics.definitions, of one level sequence after another."""

    def __init__(self, ranker: Ranker, scorers: Sequence[ScoreQuery], block: int) -> None:
        self.ranker, self.scorers, self.queries = ranker, scorers, ranker.rows(block)
        self.first = block * ranker.scores.block_size
        self.counts = ranker.counts_by_code(self.first, self.first + len(self.queries))
        self.reading = None if ranker.known is None else partial_lists.known(ranker.depth)
        counts = self.counts if self.reading is None else self.reading.counts(self.counts)
        self.values = Values.empty(len(scorers), counts)

    def add(self, scores: NDArray[np.floating], start: int) -> None:
        self.ranker.mask(scores, self.first + start)
        for n, row in enumerate(scores, start):
            sequence = self.ranker.sequence_of_codes(self.first + n, row, self.counts[n])
            query = int(self.queries[n])
            self.values.values[:, n] = [scorer(query, sequence) for scorer in self.scorers]
            known = sequence if self.reading is None else self.reading.of(sequence)
            first = len(known.ranks) > 0 and known.ranks[0] == 1
            self.values.first_level[n] = known.levels[0] if first else 0
            self.values.tied[n] = sequence.tied

    def finish(self) -> Values:
        if self.ranker.known is not None:
            of_queries = self.ranker.known[self.first : self.first + len(self.queries)]
            for row, scorer in enumerate(self.scorers):
                if isinstance(scorer, Scorer) and scorer.asked:
                    self.values.values[row, of_queries < scorer.asked] = np.nan
        return self.values


class FastBlock:
    """The metrics are sums over the ranks, all taken at once."""

    def __init__(self, plan: MetricPlan, block: int) -> None:
        self.plan, self.ranker, self.queries = plan, plan.ranker, plan.ranker.rows(block)
        self.first = block * self.ranker.scores.block_size
        self.counts = self.ranker.counts_by_code(self.first, self.first + len(self.queries))
        self.reading = None if self.ranker.known is None else partial_lists.known(self.ranker.depth)
        counts = self.counts if self.reading is None else self.reading.counts(self.counts)
        self.values = Values.empty(plan.metrics, counts)
        self.batches = [(listed, listed.batch(self.counts)) for listed in plan.lists]

    def add(self, scores: NDArray[np.floating], start: int) -> None:
        self.ranker.mask(scores, self.first + start)
        first, last = self.first + start, self.first + start + len(scores)
        parts = self.plan.coded(self.plan.parts(first, last), first, last)
        positives = self.counts[start : start + len(scores), self.plan.lowest :].sum(axis=1)
        with self.plan.room() as room:
            for at in sort_keys.fitting(positives, len(room.ranks)):
                own = slice(start + at.start, start + at.stop)
                self._add(scores[at], parts.of(at), own, positives[at], room)

    def _add(
        self,
        scores: NDArray[np.floating],
        parts: sort_keys.Parts,
        at: slice,
        positives: NDArray[np.int64],
        room: Workspace,
    ) -> None:
        """Value the queries `at` these places of the block, by their rows of scores and what of them is to be sorted."""
        ends = np.cumsum(positives)
        ranked = rank_positives.RankedPositives(room.ranks, room.levels, ends - positives, ends, self.values.tied[at])
        for some in sort_keys.fitting(parts.sizes + 1, len(room.by_score.keys)):
            rows, own = scores[some], parts.of(some)
            sort_keys.sort(rows, own, room.by_score)
            rank_positives.rank_rows(rows, own, room.by_score, self.plan.how, (room.lookup, ranked.of(some)))
        self.values.first_level[at] = self._first_levels(scores, parts, ranked)
        self.add_ranked(ranked, at, room)

    def add_ranked(self, ranked: rank_positives.RankedPositives, at: slice, room: Workspace) -> None:
        """Value the queries `at` these places of the block by the ranks of their positives."""
        first = None
        for listed, batch in self.batches:
            read = listed.add(ranked, self.queries[at], batch.part(at), room)
            if self.reading and listed.reading and listed.reading.name == self.reading.name:
                first = _levels_at_rank_1(read)
        if self.plan.others:
            for n, sequence in enumerate(_sequences(ranked, self.counts[at]), at.start):
                for row, other in self.plan.others.items():
                    self.values.values[row, n] = other(int(self.queries[n]), sequence)
        if self.reading is not None:
            if first is None:
                first = _levels_at_rank_1(read_by(self.reading, ranked, room))
            self.values.first_level[at] = first

    def _first_levels(
        self, scores: NDArray[np.floating], parts: sort_keys.Parts, ranked: rank_positives.RankedPositives
    ) -> NDArray[np.uint8]:
        """The level of the item ranked first; (n,)."""
        levels = _levels_at_rank_1(ranked)
        if self.plan.lowest > 1:  # then the item ranked first may be a positive that is not listed
            rank_full_rows.levels_of_best(scores, parts, self.plan.how.pessimistic, levels, levels == 0)
        return levels

    def finish(self) -> Values:
        for listed, batch in self.batches:
            listed.put(batch, self.values.values)
        if self.ranker.known is not None:
            of_queries = self.ranker.known[self.first : self.first + len(self.queries)]
            for row, level in self.plan.asked.items():
                self.values.values[row, of_queries < level] = np.nan
        return self.values


def _levels_at_rank_1(ranked: rank_positives.RankedPositives) -> NDArray[np.uint8]:
    """The level of the positive at rank 1, 0 where there is none; (n,)."""
    some = ranked.ends > ranked.starts
    place = np.where(some, ranked.starts, 0)
    return np.where(some & (ranked.ranks[place] == 1), ranked.levels[place], 0).astype(np.uint8)


def _sequences(ranked: rank_positives.RankedPositives, counts: NDArray[np.int64]) -> Iterator[LevelSequence]:
    for first, end, own, tied in zip(ranked.starts, ranked.ends, counts, ranked.tied.tolist(), strict=True):
        yield LevelSequence(ranked.ranks[first:end].astype(np.int64), ranked.levels[first:end], own, tied)


class NamedBlock:
    """Another block, in which the queries that the tree does not show as their names do are valued by name."""

    def __init__(
        self, block: Block, ranker: Ranker, scorers: Sequence[ScoreQuery], by_name: NameColumns, number: int
    ) -> None:
        self.block, self.ranker, self.by_name = block, ranker, by_name
        self.scorers = scorers_by_name(scorers)
        self.queries, self.first = ranker.rows(number), number * ranker.scores.block_size
        self.found: dict[int, list[float]] = {}

    def add(self, scores: NDArray[np.floating], start: int) -> None:
        self.block.add(scores, start)
        for n, row in enumerate(scores, start):
            query = self.first + n
            if self.by_name.affected[query]:
                out = self.ranker.left_out(query, query + 1)[1]
                named = self.by_name.sequences(query, row, out)
                self.found[n] = [scorer(int(self.queries[n]), named) for scorer in self.scorers.values()]

    def finish(self) -> Values:
        values = self.block.finish()
        for n, found in self.found.items():
            values.values[list(self.scorers), n] = found
        return values


class TopBlock:
    """Another block, whose queries' first results are kept on the way."""

    def __init__(self, block: Block, ranker: Ranker, top: TopResults, number: int) -> None:
        self.block, self.ranker, self.top = block, ranker, top
        self.first = number * ranker.scores.block_size

    def add(self, scores: NDArray[np.floating], start: int) -> None:
        self.block.add(scores, start)
        self.top.keep(self.ranker, scores, self.first + start)

    def finish(self) -> Values:
        return self.block.finish()


class RelabelledBlock:
    """Another block, whose rows of scores are valued under other labels, too."""

    def __init__(self, block: Block, others: Sequence[tuple[OtherLabels, FormulaBlock | FastBlock]]) -> None:
        self.block, self.others = block, others

    def add(self, scores: NDArray[np.floating], start: int) -> None:
        self.block.add(scores, start)
        rows = max(ITEMS // scores.shape[1], 1)  # copied at once: only positives are sorted, so columns must be moved
        for labels, other in self.others:
            for first in range(0, len(scores), rows):
                other.add(np.take(scores[first : first + rows], labels.order, axis=1), start + first)

    def finish(self) -> Values:
        for labels, other in self.others:
            labels.put(other.queries, other.finish())
        return self.block.finish()
