"""From rows of scores to the values of their queries: every metric on the level sequence, or, compiled, all at once.

A metric that the compiled path does not know is computed on the level sequence there, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

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
    def empty(cls, metrics: int, queries: int, depth: int) -> Values:
        return cls(
            np.full((metrics, queries), np.nan),
            np.zeros(queries, np.uint8),
            np.zeros(queries, bool),
            np.zeros((queries, depth + 1), np.int64),
        )

    def put(self, at: NDArray[np.int64], other: Values) -> None:
        """Write the values of other queries at their positions."""
        self.values[:, at], self.first_level[at], self.tied[at], self.counts[at] = other


ValuesOf = Callable[[NDArray[np.floating], int], Values]


def values_of(ranker: Ranker, scorers: Sequence[ScoreQuery]) -> ValuesOf:
    """The function from rows of scores (n, G), of the canonical queries from a number on, to those queries' values."""
    pessimistic = ranker.pessimistic
    if not AVAILABLE or pessimistic is None:
        return lambda scores, first: _of_sequences(ranker, scorers, scores, first)
    return Compiled(ranker, scorers, pessimistic)


def _of_sequences(ranker: Ranker, scorers: Sequence[ScoreQuery], scores: NDArray[np.floating], first: int) -> Values:
    result = Values.empty(len(scorers), len(scores), ranker.depth)
    queries = ranker.queries[first : first + len(scores)].tolist()
    for n, (query, sequence) in enumerate(zip(queries, ranker.sequences(scores, first), strict=True)):
        _put_sequence(result, n, sequence)
        for row, scorer in enumerate(scorers):
            result.values[row, n] = scorer(query, sequence)
    return result


def _put_sequence(result: Values, n: int, sequence: LevelSequence) -> None:
    result.counts[n], result.tied[n] = sequence.counts, sequence.tied
    if len(sequence.ranks) and sequence.ranks[0] == 1:
        result.first_level[n] = sequence.levels[0]


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


class Compiled:
    """The compiled path of one ranker and its scorers: a function as `values_of` gives."""

    def __init__(self, ranker: Ranker, scorers: Sequence[ScoreQuery], pessimistic: bool) -> None:
        self.ranker, self.pessimistic, self.metrics = ranker, pessimistic, len(scorers)
        known = {row: each for row, each in enumerate(scorers) if isinstance(each, Scorer) and each.name.base in FAST}
        by_list = [{row: each for row, each in known.items() if each.loses_last == loses} for loses in (False, True)]
        tables = sums.tables(len(ranker.columns))
        self.lists = [Listed(each, loses, tables) for loses, each in zip((False, True), by_list, strict=True) if each]
        self.others = {row: each for row, each in enumerate(scorers) if row not in known}
        self.positives = int((ranker.ends[:, 0] - ranker.starts[:, 0]).max())

    def __call__(self, scores: NDArray[np.floating], first: int) -> Values:
        counts = self.ranker.masked(scores, first)
        queries = self.ranker.queries[first : first + len(scores)]
        result = Values.empty(self.metrics, len(scores), self.ranker.depth)
        batches = [(listed, listed.batch(queries, counts)) for listed in self.lists]
        room = sums.scratch(self.positives)
        for n, sequence in enumerate(self.sequences(scores, first, counts)):
            _put_sequence(result, n, sequence)
            for listed, batch in batches:
                own = listed.without_last(batch, n, int(queries[n]), sequence) if listed.loses_last else sequence
                if len(own.ranks):
                    sums.sum_up((own.ranks, own.levels), n, batch.wanted, batch.tables, (room, batch.sums))
            if self.others:
                whole = sequence._replace(ranks=sequence.ranks.astype(np.int64))
                for row, other in self.others.items():
                    result.values[row, n] = other(int(queries[n]), whole)
        for listed, batch in batches:
            listed.put(batch, result)
        return result

    def sequences(self, scores: NDArray[np.floating], first: int, counts: NDArray[np.int64]) -> Iterator[LevelSequence]:
        """The level sequences, their ranks in int32, each in the same arrays as the one before."""
        room = kernel.scratch(self.positives)
        ordered = np.empty(self.positives + 1, scores.dtype)
        starts, ends = self.ranker.starts[first:], self.ranker.ends[first:]
        listed = counts[:, 1:].sum(axis=1).tolist()
        for row, start, end, positives, of_level in zip(scores, starts, ends, listed, counts, strict=False):
            tied = False
            if positives:
                found = int(end[0] - start[0])
                ordered[:found] = row[start[0] : end[0]]
                ordered[:found].sort()  # what is left out stands first, at −inf
                ordered[found] = np.inf
                kept = ordered[found - positives : found + 1]
                tied = kernel.rank_positives(row, (start, end), kept, self.pessimistic, room)
            yield LevelSequence(room.ranks[:positives], room.levels[:positives], of_level, tied)  # type: ignore[arg-type]
