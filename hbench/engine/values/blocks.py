"""Computes the values of a block's queries: ranks the rows of scores, and sums up by the plan.

The metrics of hbench.engine.values.fast_metrics are sums over the ranks of the positives, all taken
at once; any other is computed on the level sequence. Only items of the lowest level that some
metric needs, and above, are positives to the plan. Compiled kernels find ranks and sums. A small
test goes by the formulas themselves, on the level sequence of every query: its data alone decide,
so that every part of an evaluation decides alike, and no compiled code is loaded for it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hbench.core.compiled import is_cached
from hbench.engine.job import Job, Values, View
from hbench.engine.kernels import best_items, rank_positives, rank_sums, sort_keys
from hbench.engine.kernels.rank_positives import RankedPositives
from hbench.engine.ranker import ARRANGED_AT_ONCE, Ranker
from hbench.engine.values.plan import MetricPlan, Workspace, partial_rows, read_by
from hbench.metrics import readings
from hbench.metrics.level_sequence import LevelSequence
from hbench.metrics.name_columns import NameColumns
from hbench.metrics.protocols import ScoreQuery, scorers_by_name


def kernels_are_compiled() -> bool:
    """Whether the kernels that every evaluation uses are already compiled; the rest takes little
    time.
    """
    functions: list[Any] = [rank_sums.sum_up, rank_positives.rank_rows, sort_keys.write_keys]
    return all(map(is_cached, functions))


SEQUENCE_BYTES = 64  # per item of the gallery, for one level sequence while it is made


class Block:
    """Accumulates the metric values of one block of queries, or of some that follow one another.

    `first`: the canonical number of its first query. `queries` (n,): the input positions of its
    queries, in canonical order. `counts` (n, K): the items of each list by code: its levels, or
    under partial labels two codes per level. `reading`: under partial labels, which level a code
    counts as in `first_level` and `counts` of the values; else None. `values`: what is accumulated.

    `adders` take rows of scores (n, G) of the queries from a place of the block on, and `finishers`
    write what can only be written when every query was added. `others`: the same block under other
    views of the labels. Their rankers put the columns of a finished row in their own order, so they
    take rows that this one's ranker has finished.
    """

    def __init__(self, ranker: Ranker, numbers: range, metrics: int) -> None:
        """Make room for the values of all queries of some blocks; what computes them is added to
        `adders`, called with each piece of scores, and `finishers`, called once at the end.

        `numbers`: the blocks, one after another; `metrics`: how many values a query gets.
        """
        size = ranker.scores.block_size
        self.ranker = ranker
        self.first = numbers.start * size  # the canonical number of the first query
        self.queries = ranker.queries[self.first : numbers.stop * size]
        # (n, K): the items of each list by code, which is a level where labels are not partial
        self.counts = ranker.counts_by_code(self.first, self.first + len(self.queries))
        # under partial labels a reading tells which level each code counts as
        self.reading = None if ranker.known is None else readings.known(ranker.depth)
        self.values = Values.empty(
            metrics, self.counts if self.reading is None else self.reading.counts(self.counts)
        )
        self.adders: list[Callable[[NDArray[np.floating], int], None]] = []
        self.finishers: list[Callable[[], None]] = []
        self.others: list[Block] = []

    def add(self, scores: NDArray[np.floating], start: int) -> None:
        """Compute the values of the queries from place `start` of the block on, by their rows of
        scores (n, G), which have been multiplied and nothing else; under every view of the labels.
        Each function of `adders` computes some of the values, and writes them.
        """
        for begin, rows in self.ranker.arranged(scores, self.first + start):
            for add in self.adders:
                add(rows, start + begin)
            # other views take rows that are finished, and put the columns into their own order
            for other in self.others:
                other.add(rows, start + begin)

    def finish(self) -> Values:
        """The values of the block under every view, once all of its queries were added."""
        for finish in self.finishers:
            finish()
        return self.values._replace(others=tuple(other.finish() for other in self.others))

    def skip_partial(self, rows: Mapping[int, int]) -> None:
        """Make metrics undefined, NaN, for the queries whose labels end above the level that the
        metric needs. `rows`: from the row of a metric among the values to that level."""
        if self.ranker.known is not None:  # (Q,) levels known of each query; None: all are
            of_queries = self.ranker.known[self.first : self.first + len(self.queries)]
            for row, level in rows.items():
                self.values.values[row, of_queries < level] = np.nan


class JobPlans:
    """The plans of all views of a job; `own` None for a small job, which goes by the formulas."""

    def __init__(self, job: Job, own: MetricPlan | None) -> None:
        """`own`: the plan of the dataset's own view, which decides for the other views, too."""
        self.job = job
        self.own = own
        self.others: list[MetricPlan | None] = [
            None if own is None else MetricPlan.of(view.ranker, view.scorers) for view in job.others
        ]

    def start(self, number: int) -> Block:
        """An empty block of this number that knows what to do with rows of scores: under all views,
        by name and for the first results, as far as the job asks for these."""
        job = self.job
        block = _started(job, self.own, number)
        # after the values by the tree: those by name are written over them, where both exist
        if job.by_name is not None:
            fill_by_name(block, job.scorers, job.by_name)
        block.others = [
            _started(view, plan, number) for view, plan in zip(job.others, self.others, strict=True)
        ]
        if (top := job.top) is not None:
            block.adders.append(
                lambda scores, start: top.keep(job.ranker, scores, block.first + start)
            )
        return block

    @property
    def thread_bytes(self) -> int:
        """How many bytes a thread that adds to blocks needs: the workspaces of all views of the
        labels, a copy of some rows where these are put into another order, and the level sequence
        of a query where formulas compute the values (no plan of sums, or values by name)."""
        ranker = self.job.ranker
        # places behind the gallery of a row whose positives are listed, and moved there
        listed = 0 if ranker.listed is None else ranker.listed.width
        size = sum(plan.workspace_bytes for plan in (self.own, *self.others) if plan is not None)
        # rows are copied into another order, some at a time, but one at least
        if self.job.others or ranker.arrange is not None:
            size += (
                max(ARRANGED_AT_ONCE, len(ranker.columns) + listed) * ranker.scores.dtype.itemsize
            )
        if self.job.by_name is not None or self.own is None:
            size += SEQUENCE_BYTES * len(ranker.columns)
        return size


def _started(view: View, plan: MetricPlan | None, number: int) -> Block:
    """An empty block of this number under one view of the labels: its metrics are sums over ranks,
    by the plan, or without one the formulas of each level sequence."""
    block = Block(view.ranker, range(number, number + 1), len(view.scorers))
    if plan is None:
        fill_by_formulas(block, view.scorers)
    else:
        block.adders.append(FastColumns(block, plan).add)
    return block


def fill_by_formulas(block: Block, scorers: Sequence[ScoreQuery]) -> None:
    """Have the block compute the metrics `scorers` by the functions of hbench.metrics.definitions,
    from one level sequence after another: slower than sums, but nothing has to be compiled.
    """

    def add(scores: NDArray[np.floating], start: int) -> None:
        """Write the values of the queries from place `start` on; `scores` (n, G): finished rows."""
        for n, row in enumerate(scores, start):
            sequence = block.ranker.sequence_of_codes(block.first + n, row, block.counts[n])
            block.values.values[:, n] = [
                scorer(int(block.queries[n]), sequence) for scorer in scorers
            ]
            # scorers are given codes, which some of them read twice: with all unknown items wrong,
            # then right. The level of the item ranked first is that as far as it is known
            known = sequence if block.reading is None else block.reading.of(sequence)
            is_first_positive = len(known.ranks) > 0 and known.ranks[0] == 1
            block.values.first_level[n] = known.levels[0] if is_first_positive else 0
            block.values.tied[n] = sequence.tied

    block.adders.append(add)
    block.finishers.append(partial(block.skip_partial, partial_rows(scorers)))


class FastColumns:
    """The metrics of a block as sums over the ranks, all taken at once."""

    def __init__(self, block: Block, plan: MetricPlan) -> None:
        """Sums of 0 for every group of metrics that `plan` takes together; the block writes the
        metrics when it is finished."""
        self.block = block
        self.plan = plan
        self.batches = [(group, group.batch(block.counts)) for group in plan.groups]
        block.finishers.append(self.finish)

    def add(self, scores: NDArray[np.floating], start: int) -> None:
        """Rank the positives of the queries from `start` on, and compute their metrics.

        `scores` (n, G): their rows. As many queries at once as have room in a workspace. `plan`:
        what is ranked and summed; `block`: where the results go.
        """
        first = self.block.first + start
        last = self.block.first + start + len(scores)
        # where in its row each query's positives lie, and the items of each code among them
        parts = self.plan.coded(self.plan.parts(first, last), first, last)
        # (n,): only positives from the lowest level on that a metric needs are ranked
        positives = self.block.counts[start : start + len(scores), self.plan.lowest :].sum(axis=1)

        with self.plan.workspace() as workspace:
            for at in sort_keys.fitting(positives, len(workspace.ranks)):
                # in the flat arrays of the workspace one query's positives end where the next begin
                ends = np.cumsum(positives[at])
                queries = slice(start + at.start, start + at.stop)
                tied = self.block.values.tied[queries]
                ranked = RankedPositives(
                    workspace.ranks, workspace.levels, ends - positives[at], ends, tied
                )
                self._rank(scores[at], parts.of(at), ranked, workspace)
                levels = _levels_at_rank_1(ranked)
                # positives below the lowest level that a metric needs are not ranked, but one of
                # them may come first: where no ranked one does, all scores are looked at
                if self.plan.lowest > 1:
                    is_unknown = levels == 0
                    best_items.levels_of_best(  # writes to `levels` where the level is unknown
                        scores[at], parts.of(at), self.plan.rule.pessimistic, levels, is_unknown
                    )
                self.block.values.first_level[queries] = levels
                self.add_ranked(ranked, queries, workspace)

    def _rank(
        self,
        scores: NDArray[np.floating],
        parts: sort_keys.Parts,
        out: RankedPositives,
        workspace: Workspace,
    ) -> None:
        """Write the ranks of the positives of rows of scores (n, G) to `out`; `parts`: where they
        lie in the rows. As many rows at once as can be sorted in the workspace, where a score of
        −inf follows each row's part: one place more.
        """
        by_score = workspace.by_score
        for some in sort_keys.fitting(parts.sizes + 1, len(by_score.keys)):
            sort_keys.sort(scores[some], parts.of(some), by_score)
            rank_positives.rank_rows(
                scores[some], parts.of(some), by_score, self.plan.rule, out.of(some)
            )

    def add_ranked(self, ranked: RankedPositives, at: slice, workspace: Workspace) -> None:
        """Sum up for the queries `at` these places of the block by the ranks of their positives,
        for every group of metrics. `ranked`: of these queries, by code; what groups read from it
        lies in the workspace, and is written over by the next group."""
        block = self.block
        # under partial labels the level at rank 1 is that of the block's own reading, which some
        # group of metrics may have read anyway
        first = None
        for group, batch in self.batches:
            read = group.add(ranked, batch, workspace, queries=block.queries[at], at=at)
            if block.reading and group.reading and group.reading.name == block.reading.name:
                first = _levels_at_rank_1(read)

        if self.plan.others:
            self.add_sequences(ranked, at)

        # without partial labels the levels at rank 1 are known from the ranking itself
        if block.reading is not None:
            if first is None:
                first = _levels_at_rank_1(read_by(block.reading, ranked, workspace))
            block.values.first_level[at] = first

    def add_sequences(self, ranked: RankedPositives, at: slice) -> None:
        """Write the metrics that are no sums over ranks, for the queries `at` these places of the
        block, from one level sequence after another; `ranked` has their positives, those of the
        i-th query from `starts[i]` to `ends[i]` of flat arrays. `plan.others`: {row among the
        values: function of a query and its sequence}."""
        block = self.block
        for n in range(at.start, at.stop):
            part = slice(ranked.starts[n - at.start], ranked.ends[n - at.start])
            ranks = ranked.ranks[part].astype(np.int64)
            tied = bool(ranked.tied[n - at.start])
            sequence = LevelSequence(ranks, ranked.levels[part], block.counts[n], tied)
            for row, other in self.plan.others.items():
                block.values.values[row, n] = other(int(block.queries[n]), sequence)

    def finish(self) -> None:
        """Make the metrics of the block's queries out of their sums, and write them to its values;
        called once, when every query was added."""
        for group, batch in self.batches:
            group.put(batch, self.block.values.values)
        self.block.skip_partial(self.plan.partial_rows)


def _levels_at_rank_1(ranked: RankedPositives) -> NDArray[np.uint8]:
    """The level (n,) of each query's positive at rank 1; 0 where a distractor is ranked first, or
    nothing."""
    some = ranked.ends > ranked.starts
    # ranks increase: only the first positive can have rank 1; without any, place 0 is not looked at
    place = np.where(some, ranked.starts, 0)
    return np.where(some & (ranked.ranks[place] == 1), ranked.levels[place], 0).astype(np.uint8)


def fill_by_name(block: Block, scorers: Sequence[ScoreQuery], by_name: NameColumns) -> None:
    """Have the block replace the values that the metrics `scorers` have for some queries: labels
    that form no tree are put into one, where a name may then stand for several nodes; queries that
    this affects are measured by the names themselves.
    """
    named_scorers = scorers_by_name(scorers)  # by their row among the values
    values: dict[int, list[float]] = {}  # by the place of the query in the block

    def add(scores: NDArray[np.floating], start: int) -> None:
        """Compute the values by name of the queries from place `start` on; `scores` (n, G):
        finished rows."""
        for n, row in enumerate(scores, start):
            query = block.first + n  # its number among the queries
            item = int(block.queries[n])  # its row in the manifest
            if by_name.affected[query]:
                _, not_ranked = block.ranker.left_out(query, query + 1)  # columns, as itself
                named = by_name.sequences(query, row, not_ranked)
                values[n] = [scorer(item, named) for scorer in named_scorers.values()]

    def finish() -> None:
        """Write them over the values by the tree, which have been written by then."""
        for n, of_query in values.items():
            block.values.values[list(named_scorers), n] = of_query

    block.adders.append(add)
    block.finishers.append(finish)
