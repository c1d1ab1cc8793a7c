"""From rows of scores to the values of their queries: all metrics at once from few sums, or each on the level sequence.

A metric that is no function of those sums is computed on the level sequence there, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from hbench import kernel, order
from hbench.by_name import ByName
from hbench.plan import Plan, Room
from hbench.protocol import ScoreQuery, scorers_by_name
from hbench.ranking import LevelSequence, Ranker
from hbench.steps import steps_for

SEQUENCE_BYTES = 64  # per item of the gallery, for one level sequence in the making


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


class Block(Protocol):
    """The values of the queries of one block in the making."""

    def add(self, scores: NDArray[np.floating], start: int) -> None:
        """Value the queries of the block from `start` on by their rows of scores (n, G)."""

    def finish(self) -> Values:
        """The values, when every query was added."""


StartBlock = Callable[[int], Block]


def values_of(
    ranker: Ranker, scorers: Sequence[ScoreQuery], plan: Plan | None, by_name: ByName | None = None
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


def plan_of(ranker: Ranker, scorers: Sequence[ScoreQuery]) -> Plan | None:
    """The plan of an evaluation; None where equal scores have an order that it does not know."""
    if ranker.pessimistic is None:
        return None
    steps = steps_for(len(ranker.queries) * len(ranker.columns))
    return Plan.of(ranker, scorers, steps, pessimistic=ranker.pessimistic)


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

    def __init__(self, plan: Plan, block: int) -> None:
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
            for at in order.fitting(positives, len(room.ranks)):
                own = slice(start + at.start, start + at.stop)
                self._add(scores[at], parts.of(at), own, positives[at], room)

    def _add(
        self, scores: NDArray[np.floating], parts: order.Parts, at: slice, positives: NDArray[np.int64], room: Room
    ) -> None:
        """Value the queries `at` these places of the block, by their rows of scores and what of them is to be sorted."""
        steps, ends = self.plan.steps, np.cumsum(positives)
        ranked = kernel.Ranked(room.ranks, room.levels, ends - positives, ends, self.values.tied[at])
        for some in order.fitting(parts.sizes + 1, len(room.by_score.keys)):
            rows, own = scores[some], parts.of(some)
            steps.sort(rows, own, room.by_score)
            steps.rank(rows, own, room.by_score, self.plan.how, (room.lookup, ranked.of(some)))
        self.values.first_level[at] = self._first_levels(scores, parts, ranked)
        self.add_ranked(ranked, at, room)

    def add_ranked(self, ranked: kernel.Ranked, at: slice, room: Room) -> None:
        """Value the queries `at` these places of the block by the ranks of their positives."""
        for listed, batch in self.batches:
            listed.add(ranked, self.queries[at], batch.part(at), room.above, self.plan.steps)
        if self.plan.others:
            for n, sequence in enumerate(_sequences(ranked, self.values.counts[at]), at.start):
                for row, other in self.plan.others.items():
                    self.values.values[row, n] = other(int(self.queries[n]), sequence)

    def _first_levels(
        self, scores: NDArray[np.floating], parts: order.Parts, ranked: kernel.Ranked
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


def _sequences(ranked: kernel.Ranked, counts: NDArray[np.int64]) -> Iterator[LevelSequence]:
    for first, end, own, tied in zip(ranked.starts, ranked.ends, counts, ranked.tied.tolist(), strict=True):
        yield LevelSequence(ranked.ranks[first:end].astype(np.int64), ranked.levels[first:end], own, tied)


class NamedBlock:
    """Another block, in which the queries that the tree does not show as their names do are valued by name."""

    def __init__(
        self, block: Block, ranker: Ranker, scorers: Sequence[ScoreQuery], by_name: ByName, number: int
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
