"""From rows of scores to the values of their queries: every metric on the level sequence, or, compiled, all at once.

A metric that the compiled path does not know is computed on the level sequence there, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from hbench import kernel, sums
from hbench.batch import FAST, Batch
from hbench.compiled import AVAILABLE
from hbench.protocol import Grade, ScoreQuery, Scorer, without_last
from hbench.ranking import LevelSequence, Ranker


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


def values_of(ranker: Ranker, scorers: Sequence[ScoreQuery]) -> StartBlock:
    """The function that starts a block, from its number."""
    if AVAILABLE and ranker.pessimistic is not None:
        return partial(CompiledBlock, Plan.of(ranker, scorers, pessimistic=ranker.pessimistic))
    return partial(SequenceBlock, ranker, scorers)


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


@dataclass(frozen=True)
class Listed:
    """The fast metrics, by row of the values, that are taken of one list: the whole one, or without its last item."""

    scorers: dict[int, Scorer]
    loses_last: bool
    tables: sums.Tables

    @property
    def grades(self) -> dict[int, Grade]:
        """The rows of H-AP, in the order of the graded sums."""
        return {row: each.grade for row, each in self.scorers.items() if each.name.base == "H-AP" and each.grade}

    def batch(self, queries: NDArray[np.int64], counts: NDArray[np.int64]) -> Batch:
        """A batch without sums, for queries (n,) in input positions."""
        cuts = np.unique(np.array([each.name.cut for each in self.scorers.values() if each.name.cut], np.int64))
        shape = (len(counts), len(self.grades), counts.shape[1])
        wanted = sums.Wanted(counts.copy(), cuts, np.zeros(shape), np.ones(shape, np.int64), self.binary)
        for graded, grade in enumerate(self.grades.values()):
            wanted.relevance[:, graded], wanted.weight[:, graded] = grade(queries, counts)
        return Batch.empty(wanted, self.tables)

    @property
    def binary(self) -> bool:
        return any(each.name.base == "ASI/" for each in self.scorers.values())

    def without_last(self, batch: Batch, n: int, query: int, sequence: LevelSequence) -> LevelSequence:
        """The list without its last item; where that was a positive, counts and relevances change with it."""
        listed = without_last(sequence)
        batch.wanted.counts[n] = listed.counts
        for graded, grade in enumerate(self.grades.values()):
            relevance, weight = grade(np.array([query]), listed.counts[None])
            batch.wanted.relevance[n, graded], batch.wanted.weight[n, graded] = relevance[0], weight[0]
        return listed

    def put(self, batch: Batch, result: Values) -> None:
        """Write the metrics of a batch to their rows."""
        graded = {row: {"graded": place} for place, row in enumerate(self.grades)}
        for row, scorer in self.scorers.items():
            result.values[row] = FAST[scorer.name.base](batch, **graded.get(row, scorer.arguments))


@dataclass(frozen=True)
class Plan:
    """What the compiled path does with every block: `lists` of fast metrics, and the `others` by row of the values."""

    ranker: Ranker
    pessimistic: bool
    metrics: int
    lists: Sequence[Listed]
    others: Mapping[int, ScoreQuery]
    positives: int

    @classmethod
    def of(cls, ranker: Ranker, scorers: Sequence[ScoreQuery], *, pessimistic: bool) -> Plan:
        known = {row: each for row, each in enumerate(scorers) if isinstance(each, Scorer) and each.name.base in FAST}
        by_list = [{row: each for row, each in known.items() if each.loses_last == loses} for loses in (False, True)]
        tables = sums.tables(len(ranker.columns))
        lists = [Listed(each, loses, tables) for loses, each in zip((False, True), by_list, strict=True) if each]
        others = {row: each for row, each in enumerate(scorers) if row not in known}
        return cls(ranker, pessimistic, len(scorers), lists, others, ranker.most_positives)


class CompiledBlock:
    """The metrics are sums over the ranks, all taken at once."""

    def __init__(self, plan: Plan, block: int) -> None:
        self.plan, self.ranker, self.queries = plan, plan.ranker, plan.ranker.rows(block)
        self.first = block * self.ranker.scores.block_size
        counts = self.ranker.counts(self.first, self.first + len(self.queries))
        self.values = Values.empty(plan.metrics, counts)
        self.batches = [(listed, listed.batch(self.queries, counts)) for listed in plan.lists]

    def add(self, scores: NDArray[np.floating], start: int) -> None:
        self.ranker.mask(scores, self.first + start)
        room = sums.scratch(self.plan.positives)
        for n, sequence in enumerate(self.sequences(scores, start), start):
            self.values.put_sequence(n, sequence)
            for listed, batch in self.batches:
                query = int(self.queries[n])
                own = listed.without_last(batch, n, query, sequence) if listed.loses_last else sequence
                if len(own.ranks):
                    sums.sum_up((own.ranks, own.levels), n, batch.wanted, batch.tables, (room, batch.sums))
            if self.plan.others:
                whole = sequence._replace(ranks=sequence.ranks.astype(np.int64))
                for row, other in self.plan.others.items():
                    self.values.values[row, n] = other(int(self.queries[n]), whole)

    def sequences(self, scores: NDArray[np.floating], start: int) -> Iterator[LevelSequence]:
        """The level sequences, their ranks in int32, each in the same arrays as the one before."""
        room = kernel.scratch(self.plan.positives)
        ordered = np.empty(self.plan.positives + 1, scores.dtype)
        of_level = self.values.counts[start : start + len(scores)]
        listed = of_level[:, 1:].sum(axis=1).tolist()
        starts, ends = self.ranker.starts[self.first + start :], self.ranker.ends[self.first + start :]
        for row, range_start, range_end, positives, counts in zip(scores, starts, ends, listed, of_level, strict=False):
            tied = False
            if positives:
                found = int(range_end[0] - range_start[0])
                ordered[:found] = row[range_start[0] : range_end[0]]
                ordered[:found].sort()  # what is left out stands first, at −inf
                ordered[found] = np.inf
                kept = ordered[found - positives : found + 1]
                tied = kernel.rank_positives(row, (range_start, range_end), kept, self.plan.pessimistic, room)
            yield LevelSequence(room.ranks[:positives], room.levels[:positives], counts, tied)  # type: ignore[arg-type]

    def finish(self) -> Values:
        for listed, batch in self.batches:
            listed.put(batch, self.values)
        return self.values
