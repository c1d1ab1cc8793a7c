"""From rows of scores to the values of their queries: all metrics at once from few sums, or each on the level sequence.

A metric that is no function of those sums is computed on the level sequence there, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from hbench.engine.job import Values
from hbench.engine.kernels import rank_positives, sort_keys, steps_for
from hbench.engine.metric_plan import MetricPlan, Workspace
from hbench.engine.ranker import Ranker
from hbench.metrics.level_sequence import LevelSequence
from hbench.metrics.name_columns import NameColumns
from hbench.metrics.protocols import ScoreQuery, scorers_by_name

SEQUENCE_BYTES = 64  # per item of the gallery, for one level sequence in the making


class Block(Protocol):
    """The values of the queries of one block in the making."""

    def add(self, scores: NDArray[np.floating], start: int) -> None:
        """Value the queries of the block from `start` on by their rows of scores (n, G)."""

    def finish(self) -> Values:
        """The values, when every query was added."""


StartBlock = Callable[[int], Block]


def values_of(
    ranker: Ranker, scorers: Sequence[ScoreQuery], plan: MetricPlan | None, by_name: NameColumns | None = None
) -> tuple[StartBlock, int]:
    """The function that starts a block, from its number, under the evaluation's plan; and how many bytes a thread that
    adds to blocks needs."""
    start: StartBlock = partial(SequenceBlock, ranker, scorers)
    room = sequence_bytes = SEQUENCE_BYTES * len(ranker.columns)
    if plan:
        start, room = partial(FastBlock, plan), plan.room_bytes
    if by_name is None:
        return start, room
    return lambda block: NamedBlock(start(block), ranker, scorers, by_name, block), room + sequence_bytes


def plan_of(ranker: Ranker, scorers: Sequence[ScoreQuery]) -> MetricPlan | None:
    """The plan of an evaluation; None where equal scores have an order that it does not know."""
    if ranker.pessimistic is None:
        return None
    steps = steps_for(len(ranker.queries) * len(ranker.columns))
    return MetricPlan.of(ranker, scorers, steps, pessimistic=ranker.pessimistic)


class SequenceBlock:
    """Every metric is a function of the level sequence."""

    def __init__(self, ranker: Ranker, scorers: Sequence[ScoreQuery], block: int) -> None:
        self.ranker, self.scorers, self.queries = ranker, scorers, ranker.rows(block)
        self.first = block * ranker.scores.block_size
        self.values = Values.empty(len(scorers), ranker.counts(self.first, self.first + len(self.queries)))

    def add(self, scores: NDArray[np.floating], start: int) -> None:
        self.ranker.mask(scores, self.first + start)
        for n, sequence in enumerate(self.ranker.sequences(scores, self.first + start), start):
            self.values.put_sequence(n, sequence)
            for row, scorer in enumerate(self.scorers):
                self.values.values[row, n] = scorer(int(self.queries[n]), sequence)

    def finish(self) -> Values:
        return self.values


class FastBlock:
    """The metrics are sums over the ranks, all taken at once."""

    def __init__(self, plan: MetricPlan, block: int) -> None:
        self.plan, self.ranker, self.queries = plan, plan.ranker, plan.ranker.rows(block)
        self.first = block * self.ranker.scores.block_size
        counts = self.ranker.counts(self.first, self.first + len(self.queries))
        self.values = Values.empty(plan.metrics, counts)
        self.batches = [(listed, listed.batch(counts)) for listed in plan.lists]

    def add(self, scores: NDArray[np.floating], start: int) -> None:
        self.ranker.mask(scores, self.first + start)
        parts = self.plan.parts(self.first + start, self.first + start + len(scores))
        positives = self.values.counts[start : start + len(scores), self.plan.lowest :].sum(axis=1)
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
        steps, ends = self.plan.steps, np.cumsum(positives)
        ranked = rank_positives.RankedPositives(room.ranks, room.levels, ends - positives, ends, self.values.tied[at])
        for some in sort_keys.fitting(parts.sizes + 1, len(room.by_score.keys)):
            rows, own = scores[some], parts.of(some)
            steps.sort(rows, own, room.by_score)
            steps.rank(rows, own, room.by_score, self.plan.how, (room.lookup, ranked.of(some)))
        self.values.first_level[at] = self._first_levels(scores, parts, ranked)
        self.add_ranked(ranked, at, room)

    def add_ranked(self, ranked: rank_positives.RankedPositives, at: slice, room: Workspace) -> None:
        """Value the queries `at` these places of the block by the ranks of their positives."""
        for listed, batch in self.batches:
            listed.add(ranked, self.queries[at], batch.part(at), room.above, self.plan.steps)
        if self.plan.others:
            for n, sequence in enumerate(_sequences(ranked, self.values.counts[at]), at.start):
                for row, other in self.plan.others.items():
                    self.values.values[row, n] = other(int(self.queries[n]), sequence)

    def _first_levels(
        self, scores: NDArray[np.floating], parts: sort_keys.Parts, ranked: rank_positives.RankedPositives
    ) -> NDArray[np.uint8]:
        """The level of the item ranked first; (n,)."""
        some = ranked.ends > ranked.starts
        place = np.where(some, ranked.starts, 0)
        levels = np.where(some & (ranked.ranks[place] == 1), ranked.levels[place], 0).astype(np.uint8)
        if self.plan.lowest > 1:  # then the item ranked first may be a positive that is not listed
            self.plan.steps.levels_of_best(scores, parts, self.plan.how.pessimistic, levels, levels == 0)
        return levels

    def finish(self) -> Values:
        for listed, batch in self.batches:
            listed.put(batch, self.values.values)
        return self.values


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
