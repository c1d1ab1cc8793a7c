"""Computes the values of a block's queries: ranks the positives in the rows of scores, and computes
metrics as sums over the ranks, as a plan says.

The metrics of hbench.engine.values.fast_metrics are such sums, which compiled kernels compute all
at once. Any other metric is computed on the level sequence. Only items from the lowest level on
that some metric needs are ranked. A small test is computed without a plan, by the formulas on the
level sequence of each query, so that no compiled code has to be loaded. Whether a test is small
follows from its data alone, so that every process of an evaluation decides in the same way.
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
    """Whether the kernels that every evaluation uses are compiled already. Compiling the other
    kernels takes little time."""
    functions: list[Any] = [rank_sums.sum_up, rank_positives.rank_rows, sort_keys.write_keys]
    return all(map(is_cached, functions))


SEQUENCE_BYTES = 64  # per item of the gallery, while the level sequence of a query is made


class Block:
    """Accumulates the metric values of one block of queries, or of several neighbouring blocks.

    `first`: the number, in canonical order, of the first query. `queries` (n,): the input positions
    of the queries, in canonical order. `counts` (n, K): how many items of each code a query's list
    has; codes are levels, or under partial labels two codes per level. `reading`: under partial
    labels, how codes become the levels in `first_level` and `counts` of the values; else None.
    `values`: the accumulated values.

    `adders`: functions of finished rows of scores and the place in the block of the first row's
    query; each computes some of the values. `finishers`: functions that are called once after all
    queries were added. `others`: the same block under other views of the labels, which get the
    finished rows of this block's ranker and sort their columns.
    """

    def __init__(self, ranker: Ranker, numbers: range, metrics: int) -> None:
        """Allocate the values of all queries of some blocks. Callers add the functions that compute
        the values to `adders` and `finishers`.

        `numbers`: the numbers of the blocks; `metrics`: how many values each query gets.
        """
        size = ranker.scores.block_size
        self.ranker = ranker
        self.first = numbers.start * size
        self.queries = ranker.queries[self.first : numbers.stop * size]
        self.counts = ranker.counts_by_code(self.first, self.first + len(self.queries))
        # how codes become levels, needed only if labels are partial
        self.reading = None if ranker.known is None else readings.known(ranker.depth)
        self.values = Values.empty(
            metrics, self.counts if self.reading is None else self.reading.counts(self.counts)
        )
        # called with finished rows of scores (n, G), and the place in the block of the first of
        # their queries
        self.adders: list[Callable[[NDArray[np.floating], int], None]] = []
        # called once, after the rows of all queries were added
        self.finishers: list[Callable[[], None]] = []
        # the same queries under other labels, such as those of another tree; added by callers
        self.others: list[Block] = []

    def add(self, scores: NDArray[np.floating], start: int) -> None:
        """Compute the values of the queries from place `start` of the block on, under every view of
        the labels.

        `scores` (n, G) are the queries' rows of scores. The block of a job's own view gets them as
        they were multiplied. Its ranker finishes the rows, and the block hands them on to the
        blocks of other views (`others`). In a finished row, left-out items have −∞, and the items
        of each level are side by side.
        """
        # finished rows, some at a time, each time with the place of the first of them among the n
        for begin, rows in self.ranker.arranged(scores, self.first + start):
            for add in self.adders:
                add(rows, start + begin)
            # rankers of other views take finished rows, and only sort their columns
            for other in self.others:
                other.add(rows, start + begin)

    def finish(self) -> Values:
        """The values of the block under every view, once all of its queries were added."""
        for finish in self.finishers:
            finish()
        return self.values._replace(others=tuple(other.finish() for other in self.others))

    def skip_partial(self, rows: Mapping[int, int]) -> None:
        """Make metrics undefined (NaN) for the queries whose labels end above the level that the
        metric needs. `rows`: that level, by the row of the metric among the values."""
        if self.ranker.known is not None:  # None: labels are not partial
            of_queries = self.ranker.known[self.first : self.first + len(self.queries)]
            for row, level in rows.items():
                self.values.values[row, of_queries < level] = np.nan


class JobPlans:
    """The plans of all views of a job. `own`: the plan of the job's own view, None for a small job,
    which is computed by formulas. `others`: the plans of its other views, in the order of
    `job.others`; all are None if `own` is."""

    def __init__(self, job: Job, own: MetricPlan | None) -> None:
        """`own`: the plan of the job's own view. If it is None, other views get no plan, either."""
        self.job = job
        self.own = own
        self.others: list[MetricPlan | None] = [
            None if own is None else MetricPlan.of(view.ranker, view.scorers) for view in job.others
        ]

    def start(self, number: int) -> Block:
        """An empty block with this number, whose `adders` and `finishers` compute all that the job
        needs: values under all views, values by name, and the first results."""
        job = self.job
        block = _started(job, self.own, number)  # computes the values by the tree
        # The block's functions are called in the order in which they were added: those of
        # `_started` compute the values by the tree; `fill_by_name` then replaces some of these by
        # values by name.
        if job.by_name is not None:
            fill_by_name(block, job.scorers, job.by_name)
        block.others = [
            _started(view, plan, number) for view, plan in zip(job.others, self.others, strict=True)
        ]
        if (top := job.top) is not None:
            # `start`: the place in the block of the first query of these rows of scores
            block.adders.append(
                lambda scores, start: top.keep(job.ranker, scores, block.first + start)
            )
        return block

    @property
    def thread_bytes(self) -> int:
        """The bytes that a thread needs to add to blocks: the workspaces of all views of the
        labels, a copy of some rows if these are rearranged, and the level sequence of a query if
        formulas compute values."""
        ranker = self.job.ranker
        # a row is longer by the places behind the gallery to which listed positives are moved
        listed = 0 if ranker.listed is None else ranker.listed.width
        size = sum(plan.workspace_bytes for plan in (self.own, *self.others) if plan is not None)
        # Other views sort the columns of rows, and `arrange` moves listed positives. Such rows are
        # copied, ARRANGED_AT_ONCE scores at a time, but at least one row.
        if self.job.others or ranker.arrange is not None:
            size += (
                max(ARRANGED_AT_ONCE, len(ranker.columns) + listed) * ranker.scores.dtype.itemsize
            )
        # formulas compute values by name, and all values of a small job, which has no plan
        if self.job.by_name is not None or self.own is None:
            size += SEQUENCE_BYTES * len(ranker.columns)
        return size


def _started(view: View, plan: MetricPlan | None, number: int) -> Block:
    """An empty block with this number under one view of the labels. Its metrics are computed as
    sums over ranks by the plan, or by formulas if there is no plan."""
    # a Block may be of several neighbouring blocks, given by a range of their numbers: here of one
    block = Block(view.ranker, range(number, number + 1), len(view.scorers))
    # `block.adders` are called later, with each part of the scores; nothing is computed yet
    if plan is None:
        fill_by_formulas(block, view.scorers)
    else:
        block.adders.append(FastColumns(block, plan).add)
    return block


def fill_by_formulas(block: Block, scorers: Sequence[ScoreQuery]) -> None:
    """Let the block compute the metrics `scorers` by the functions of hbench.metrics.definitions,
    from the level sequence of each query. This is slower than sums, but nothing has to be compiled.
    """

    def add(scores: NDArray[np.floating], start: int) -> None:
        """Write the values of the queries from place `start` on; `scores` (n, G): finished rows."""
        for n, row in enumerate(scores, start):
            sequence = block.ranker.sequence_of_codes(block.first + n, row, block.counts[n])
            # a scorer is called with the query's input position and its level sequence
            block.values.values[:, n] = [
                scorer(int(block.queries[n]), sequence) for scorer in scorers
            ]
            # A scorer gets codes, and converts them by its own reading. For the level of the item
            # ranked first, the codes are converted by the block's reading.
            known = sequence if block.reading is None else block.reading.of(sequence)
            is_first_positive = len(known.ranks) > 0 and known.ranks[0] == 1
            block.values.first_level[n] = known.levels[0] if is_first_positive else 0
            block.values.tied[n] = sequence.tied

    block.adders.append(add)
    # metrics become NaN for queries whose labels end above the level that the metric needs
    block.finishers.append(partial(block.skip_partial, partial_rows(scorers)))


class FastColumns:
    """Computes the metrics of a block as sums over ranks, by a plan. `batches`: each group of
    metrics, with the sums for the block's queries."""

    def __init__(self, block: Block, plan: MetricPlan) -> None:
        """Begin with sums of 0 for each group of metrics. The metrics are computed from the sums
        when the block is finished."""
        self.block = block
        self.plan = plan
        self.batches = [(group, group.batch(block.counts)) for group in plan.groups]
        block.finishers.append(self.finish)

    def add(self, scores: NDArray[np.floating], start: int) -> None:
        """Rank the positives of the queries from place `start` of the block on, and add to the
        sums of their metrics. `scores` (n, G): their finished rows.
        """
        first = self.block.first + start
        last = self.block.first + start + len(scores)
        # for each query, the columns of its positives, and their ranges by level, or under partial
        # labels by code
        parts = self.plan.coded(self.plan.parts(first, last), first, last)
        # (n,): only positives of the lowest level that a metric needs, or finer, are ranked. Under
        # partial labels `lowest` is 1, and `counts`, which is by code then, has all positives.
        positives = self.block.counts[start : start + len(scores), self.plan.lowest :].sum(axis=1)

        with self.plan.workspace() as workspace:
            # as many queries at once as fit in the workspace
            for at in sort_keys.fitting(positives, len(workspace.ranks)):
                # in the flat arrays, a query's positives end where those of the next query begin
                ends = np.cumsum(positives[at])
                queries = slice(start + at.start, start + at.stop)
                tied = self.block.values.tied[queries]  # a view, to which `_rank` writes
                ranked = RankedPositives(
                    workspace.ranks, workspace.levels, ends - positives[at], ends, tied
                )
                self._rank(scores[at], parts.of(at), ranked, workspace)
                levels = _levels_at_rank_1(ranked)
                # Positives below the lowest level that a metric needs are not ranked, but one of
                # them may be first. If no ranked positive is, all scores are searched for the best.
                if self.plan.lowest > 1:
                    is_unknown = levels == 0
                    best_items.levels_of_best(  # writes to `levels` where `is_unknown`
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
        """Write the ranks and levels of the positives of rows of scores (n, G) to `out`. `parts`:
        the columns of the positives in the rows.
        """
        by_score = workspace.by_score
        # as many rows at once as fit in the workspace, where each row's positives are followed by
        # one −inf, hence + 1
        for some in sort_keys.fitting(parts.sizes + 1, len(by_score.keys)):
            sort_keys.sort(scores[some], parts.of(some), by_score)
            rank_positives.rank_rows(
                scores[some], parts.of(some), by_score, self.plan.rule, out.of(some)
            )

    def add_ranked(self, ranked: RankedPositives, at: slice, workspace: Workspace) -> None:
        """Add to the sums of every group of metrics, for some queries of the block.

        `ranked`: the ranks and codes of these queries' positives; `at`: the queries' places in the
        block. A group's reading makes lists of levels from these lists of codes. They are written
        to the workspace, where the next group overwrites them.
        """
        block = self.block
        # (n,): the level at rank 1. Under partial labels, it is that in the lists of levels by
        # `block.reading`: in those of a group with this reading, or in lists that are made below.
        first = None
        for group, batch in self.batches:  # a group of metrics and its sums
            # the lists of levels that were summed
            read = group.add(ranked, batch, workspace, queries=block.queries[at], at=at)
            if block.reading and group.reading and group.reading.name == block.reading.name:
                first = _levels_at_rank_1(read)

        if self.plan.others:  # metrics that are no sums: formulas take whole level sequences
            self.add_sequences(ranked, at)

        # without partial labels, the caller has written `first_level` already: `FastColumns.add`,
        # or for a triangle the kernel that ranks
        if block.reading is not None:
            if first is None:
                first = _levels_at_rank_1(read_by(block.reading, ranked, workspace))
            block.values.first_level[at] = first

    def add_sequences(self, ranked: RankedPositives, at: slice) -> None:
        """Write the metrics that are no sums over ranks (`plan.others`), from the level sequence of
        each query. `ranked`: the positives of these queries; `at`: their places in the block."""
        block = self.block
        for n in range(at.start, at.stop):
            part = slice(ranked.starts[n - at.start], ranked.ends[n - at.start])
            ranks = ranked.ranks[part].astype(np.int64)  # the type of a level sequence's ranks
            tied = bool(ranked.tied[n - at.start])
            sequence = LevelSequence(
                ranks=ranks, levels=ranked.levels[part], counts=block.counts[n], tied=tied
            )
            # a metric is called with the query's input position and its level sequence
            for row, other in self.plan.others.items():
                block.values.values[row, n] = other(int(block.queries[n]), sequence)

    def finish(self) -> None:
        """Compute the metrics of all queries from their sums, and write them to the block's values.
        Called once, after all queries were added."""
        for group, batch in self.batches:
            group.put(batch, self.block.values.values)
        self.block.skip_partial(self.plan.partial_rows)


def _levels_at_rank_1(ranked: RankedPositives) -> NDArray[np.uint8]:
    """The level (n,) of each query's positive at rank 1, 0 if no listed positive has rank 1."""
    has_positives = ranked.ends > ranked.starts
    # ranks increase, so only the first positive can have rank 1. A query without positives reads
    # place 0, which is always there, and ignores it.
    place = np.where(has_positives, ranked.starts, 0)
    is_first = has_positives & (ranked.ranks[place] == 1)
    return np.where(is_first, ranked.levels[place], 0).astype(np.uint8)


def fill_by_name(block: Block, scorers: Sequence[ScoreQuery], by_name: NameColumns) -> None:
    """Let the block, when it is finished, replace its values of the metrics `scorers` by values by
    name, for the affected queries.

    Labels that form no tree are put into a tree in which one name may stand for several nodes.
    Queries that this affects are measured by comparing the names themselves.
    """
    named_scorers = scorers_by_name(scorers)  # by their row among the values
    values: dict[int, list[float]] = {}  # of each affected query, by its place in the block

    def add(scores: NDArray[np.floating], start: int) -> None:
        """Compute the values by name of some queries of the block. `scores` (n, G): their finished
        rows; `start`: the place of the first of them in the block."""
        for place, row in enumerate(scores, start):
            query = block.first + place  # its number in canonical order
            item = int(block.queries[place])  # its input position
            if by_name.affected[query]:  # one of its names stands for several nodes
                # the columns that the query leaves out of its list, such as its own
                _, not_ranked = block.ranker.left_out(query, query + 1)
                # level sequences in which items are compared with the query by their names
                named = by_name.sequences(query, row, not_ranked)
                values[place] = [scorer(item, named) for scorer in named_scorers.values()]

    def finish() -> None:
        """Replace the values by the tree, which earlier finishers have written."""
        for n, of_query in values.items():
            block.values.values[list(named_scorers), n] = of_query

    block.adders.append(add)
    block.finishers.append(finish)
