"""Ranks a job's blocks on a GPU, in torch; the processors' threads sum up the metrics of one block
while the next is ranked.

Scores and ranks are made on the device; only the ranks and levels of the positives come back. Its
matrix product rounds in other places than the processor's, so scores differ in their last bits, and
values in about the seventh digit.

As on the processor, only positives are sorted. Every other item is looked up among them once
(`distractors_before`), and how many come before each positive gives its rank.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hbench.core.compiled import available_threads
from hbench.core.errors import UsageError
from hbench.core.text import first_line
from hbench.engine.job import Execute, Job, Values
from hbench.engine.kernels.rank_positives import RankedPositives
from hbench.engine.kernels.sort_keys import fitting
from hbench.engine.lists import RowArrangement
from hbench.engine.ranker import Ranker
from hbench.engine.score_blocks import Scores, overflow
from hbench.engine.values.blocks import Block, FastColumns
from hbench.engine.values.plan import RANKS, MetricPlan

# on the device, of a score in the making: itself, its negative, its place, whether it is tied
SCORE_BYTES = 40
# and of a positive: its key, its level, the sorted ones, and what sorting takes
POSITIVE_BYTES = 64
ROWS_BYTES = 4 << 30  # on the device, for rows that are ranked at once
SUMMING = 0.5  # of the host's threads sum up: more hold up the one that drives the device
AHEAD = 3  # blocks that are ranked, or wait for their sums, at once
SPREAD = 1024  # places in which the distractors that come after all positives are counted
TABLES = 32  # tables in which the others are counted, at most
PLACES = 1 << 15  # of all tables of a query together, unless one table has more


@contextmanager
def refuse_device(name: str) -> Iterator[None]:
    """Raise UsageError where torch does not know the device of this name, or there is none here."""
    try:
        yield
    except (RuntimeError, AssertionError) as error:
        raise UsageError(
            f"there is no device {name!r} here",
            expected="cpu, cuda or cuda:1",
            found=first_line(error),
            fix="leave --device out, or name another",
        ) from None


def on_device(name: str) -> Execute:
    """Return the executor for a torch device. Raises UsageError where there is no such device."""
    with refuse_device(name):
        device = torch.device(name)
        torch.zeros(1, device=device)

    def execute(job: Job, blocks: Sequence[int]) -> Iterator[tuple[int, Values]]:
        if job.by_name is not None or job.ranker.scores.dtype == np.float64:
            raise UsageError(
                "this evaluation cannot be done on a device",
                expected="float32 scores, labels that form a tree",
                found="values by name" if job.by_name else str(job.ranker.scores.dtype),
                fix="leave --device out to rank on the processors",
            )

        plans = [MetricPlan.of(view.ranker, view.scorers) for view in (job, *job.others)]
        gallery = Gallery(job.ranker.scores, device)
        waiting: deque[_Started] = deque()
        threads = max(1, int(SUMMING * available_threads()))
        with _exact_products(), ThreadPoolExecutor(threads) as pool:
            for block in blocks:
                waiting.append(_start(plans, gallery, block, pool))
                if len(waiting) == AHEAD:
                    yield waiting.popleft().finish()
            while waiting:
                yield waiting.popleft().finish()

    return execute


class Gallery:
    """The gallery's vectors on the device, kept there if they take up at most half of what is free,
    else moved by chunks.
    """

    def __init__(self, scores: Scores, device: torch.device) -> None:
        self.scores = scores
        self.device = device
        free = torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else 0
        self.kept: Tensor | None = None
        if scores.gallery_bytes <= free // 2:
            self.kept = torch.cat([self._chunk(start) for start in scores.chunks])

    def rows(self, block: int) -> Tensor:
        """The scores (n, G) of a block's queries."""
        vectors = torch.from_numpy(self.scores.block_vectors(block)).to(self.device)
        if self.kept is not None:
            products = vectors @ self.kept.T
        else:
            products = torch.cat(
                [vectors @ self._chunk(start).T for start in self.scores.chunks], dim=1
            )
        return products[: len(self.scores.rows(block))]

    def _chunk(self, start: int) -> Tensor:
        with self.scores.chunk(start) as chunk:
            return torch.tensor(chunk, device=self.device)


class Ranked(NamedTuple):
    """The ranked positives of n queries: `ranks`, `levels` flat, query after query, then one item
    of none; `tied` (n,); `first` (n,), the level of the item ranked first."""

    ranks: Tensor
    levels: Tensor
    tied: Tensor
    first: Tensor

    def to_host(self) -> "Ranked":
        """Copies in the host's memory, which the device fills in while the host goes on."""
        return Ranked(*(each.to("cpu", non_blocking=True) for each in self))


class _Started(NamedTuple):
    """A block whose queries are being ranked, and summed up by the `tasks`. `bounds`: its least and
    its largest score.
    """

    number: int
    block: Block
    bounds: Tensor
    tasks: list[Future[list[Future[None]]]]

    def finish(self) -> tuple[int, Values]:
        """Its values, once the tasks are done. Raises SubmissionError where a score is beyond the
        largest float.
        """
        for task in self.tasks:
            for sums in task.result():
                sums.result()
        if not bool(self.bounds.isfinite().all()):
            raise overflow(self.block.ranker.scores.block_vectors(self.number))
        return self.number, self.block.finish()


def _start(plans: Sequence[MetricPlan], gallery: Gallery, number: int, pool: Executor) -> _Started:
    """Start to rank one block on the device, under the dataset's own view and others; tasks of the
    pool wait for it and sum up.
    """
    own, *others = [Block(plan.ranker, number, plan.metrics) for plan in plans]
    own.others = others
    columns = [FastColumns(block, plan) for block, plan in zip((own, *others), plans, strict=True)]
    rows = gallery.rows(number)
    started = _Started(
        number, own, torch.stack(torch.aminmax(rows)).to("cpu", non_blocking=True), []
    )
    rows = _finished(rows, own.ranker, own.first)
    most = max(plan.most_positives for plan in plans)
    at_once = max(1, ROWS_BYTES // (SCORE_BYTES * rows.shape[1] + POSITIVE_BYTES * most))

    for start in range(0, len(rows), at_once):
        at = slice(start, min(start + at_once, len(rows)))
        for fast in reversed(columns):  # the own view last: ranking uses the rows up
            ranked = rank(
                fast.plan, fast.block, _in_order(rows[at], fast.plan.ranker), at
            ).to_host()
            started.tasks.append(
                pool.submit(_sum_up, fast, ranked, _recorded(rows.device), at=at, pool=pool)
            )

    return started


def _in_order(rows: Tensor, ranker: Ranker) -> Tensor:
    """Finished rows with their columns as a view has them."""
    return rows if ranker.order is None else rows[:, _moved(ranker.order, rows.device)]


def _recorded(device: torch.device) -> torch.cuda.Event | None:
    """An event that comes when the device has done all that it was given so far; None for the
    processor, which has.
    """
    if device.type != "cuda":
        return None
    event = torch.cuda.Event(blocking=True)  # type: ignore[no-untyped-call]
    event.record()
    return event


def _sum_up(
    fast: FastColumns, ranked: Ranked, done: torch.cuda.Event | None, *, at: slice, pool: Executor
) -> list[Future[None]]:
    """Wait for the ranks of the queries `at` these places of a block, and start to sum up their
    metrics.
    """
    if done is not None:
        done.synchronize()
    ranks, levels, tied, first = (each.numpy() for each in ranked)
    fast.block.values.tied[at] = tied
    fast.block.values.first_level[at] = first
    positives = _positives(fast.plan, fast.block, at)
    ends = np.cumsum(positives)

    def add(some: slice) -> None:
        begin = int(ends[some.start] - positives[some.start])
        of_some = ends[some] - begin
        # never empty: whoever looks at the first item finds one
        flat = slice(begin, int(ends[some.stop - 1]) + 1)
        lists = RankedPositives(
            ranks[flat], levels[flat], of_some - positives[some], of_some, tied[some]
        )
        with fast.plan.workspace() as workspace:
            fast.add_ranked(lists, slice(at.start + some.start, at.start + some.stop), workspace)

    return [
        pool.submit(add, some) for some in fitting(positives, max(fast.plan.most_positives, RANKS))
    ]


def _positives(plan: MetricPlan, block: Block, at: slice) -> NDArray[np.int64]:
    """How many items are listed, of the level that some metric needs and above, for the queries
    `at` these places (n,).
    """
    positives: NDArray[np.int64] = block.counts[at, plan.lowest :].sum(axis=1)
    return positives


def _finished(rows: Tensor, ranker: Ranker, first: int) -> Tensor:
    """Ranker.arranged, on the device."""
    if len(ranker.copies):
        rows[:, _moved(ranker.copies, rows.device)] = rows[:, _moved(ranker.originals, rows.device)]
    if ranker.listed is not None:
        return _of_lists(rows, ranker.listed.placed(first, first + len(rows)))
    queries, columns = (
        _moved(positions, rows.device) for positions in ranker.left_out(first, first + len(rows))
    )
    rows[queries, columns] = -torch.inf
    return rows


def _of_lists(rows: Tensor, placed: RowArrangement) -> Tensor:
    """ListedItems.arranged, on the device."""
    positives = [
        _moved(positions, rows.device) for positions in (placed.rows, placed.places, placed.columns)
    ]
    size = rows.shape[1]
    arranged = torch.full(
        (len(rows), size + placed.width), -torch.inf, dtype=rows.dtype, device=rows.device
    )
    arranged[positives[0], size + positives[1]] = rows[positives[0], positives[2]]
    rows[_moved(placed.all_rows, rows.device), _moved(placed.all_columns, rows.device)] = -torch.inf
    arranged[:, :size] = rows
    return arranged


def rank(plan: MetricPlan, block: Block, rows: Tensor, at: slice) -> Ranked:
    """Rank the positives of rows of scores (n, G), of the queries `at` these places of the block.
    The rows are used up.
    """
    ranges = Ranges.of(plan, slice(block.first + at.start, block.first + at.stop), rows.device)
    scores, levels = sort(*ranges.positives(rows), plan.ranker.code_ties)
    is_listed, take = _listed(_positives(plan, block, at), scores)

    other = ranges.level_of_best(rows, pessimistic=plan.ranker.pessimistic)
    rows.masked_fill_(ranges.are_positives(rows), -torch.inf)
    before, tied = distractors_before(rows, scores, pessimistic=plan.ranker.pessimistic)
    ranks = before + torch.arange(1, scores.shape[1] + 1, dtype=torch.int32, device=rows.device)

    is_tied = (
        (scores[:, 1:] == scores[:, :-1]) & (levels[:, 1:] != levels[:, :-1]) & is_listed[:, 1:]
    )
    first = torch.where(is_listed[:, 0] & (ranks[:, 0] == 1), levels[:, 0], other)
    flat_ranks, flat_levels = (
        torch.nn.functional.pad(each.flatten()[take], (0, 1)) for each in (ranks, levels)
    )
    return Ranked(flat_ranks, flat_levels, tied | is_tied.any(dim=1), first)


def _listed(positives: NDArray[np.int64], scores: Tensor) -> tuple[Tensor, Tensor]:
    """Whether each slot of sorted positives (n, P) is listed, and the places of those that are in
    the flat array.
    """
    counts = _moved(positives, scores.device)
    slots = torch.arange(scores.shape[1], device=scores.device)
    total = int(positives.sum())
    row = torch.repeat_interleave(
        torch.arange(len(counts), device=scores.device), counts, output_size=total
    )
    begins = (counts.cumsum(0) - counts)[row]
    slot = torch.arange(total, device=scores.device) - begins
    return slots < counts[:, None], row * scores.shape[1] + slot


class Ranges(NamedTuple):
    """Where the items of n queries lie, in canonical order: `begins`, `sizes` (n, 1) of the
    positives, at `most` so many of one query; `starts`, `ends` (n, K) by code, each written over
    those before; `lowest`: the lowest code that is listed."""

    begins: Tensor
    sizes: Tensor
    most: int  # known on the host, which else would wait for the device here
    starts: Tensor
    ends: Tensor
    lowest: int

    @classmethod
    def of(cls, plan: MetricPlan, queries: slice, device: torch.device) -> "Ranges":
        """The ranges of some canonical queries."""
        parts = plan.coded(plan.parts(queries.start, queries.stop), queries.start, queries.stop)
        begins = _moved(parts.begins, device)[:, None]
        sizes = _moved(parts.sizes, device)[:, None]
        starts = _moved(parts.starts, device)
        ends = _moved(parts.ends, device)
        return cls(begins, sizes, int(parts.sizes.max()), starts, ends, parts.lowest)

    def positives(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """The score and the code (n, P) of every positive; −inf and 0 where a query has fewer."""
        place = torch.arange(max(1, self.most), device=rows.device)
        columns = self.begins + place
        scores = torch.where(
            place < self.sizes, rows.gather(1, columns.clamp(max=rows.shape[1] - 1)), -torch.inf
        )
        codes = torch.zeros(columns.shape, dtype=torch.uint8, device=rows.device)
        for code in range(self.lowest, self.starts.shape[1] + 1):
            codes.masked_fill_(self._within(columns, code), code)
        return scores, codes

    def are_positives(self, rows: Tensor) -> Tensor:
        """Whether each item (n, G) is a positive, or the query itself among them."""
        column = torch.arange(rows.shape[1], device=rows.device)
        return (column >= self.begins) & (column < self.begins + self.sizes)

    def level_of_best(self, rows: Tensor, *, pessimistic: bool) -> Tensor:
        """The level (n,), below the lowest that is listed, of the item that has the best score; of
        several the lowest level counts, or the highest. 0 where there is none."""
        level = torch.zeros(len(rows), dtype=torch.uint8, device=rows.device)
        if self.lowest == 1:
            return level

        column = torch.arange(rows.shape[1], device=rows.device)
        is_best = (rows == rows.amax(dim=1, keepdim=True)) & (rows > -torch.inf)
        outside = torch.zeros_like(is_best).logical_not_()

        present = []
        for code in range(1, self.lowest + 1):
            inside = self._within(column, code)
            present.append((is_best & outside & ~inside).any(dim=1))
            outside = inside

        order = range(self.lowest) if not pessimistic else range(self.lowest - 1, -1, -1)
        for code in order:  # the last to be written counts
            level.masked_fill_(present[code], code)
        return level

    def _within(self, columns: Tensor, code: int) -> Tensor:
        """Whether these columns, (n, …) or of every query, are of a code or above."""
        return (columns >= self.starts[:, code - 1, None]) & (
            columns < self.ends[:, code - 1, None]
        )


def sort(scores: Tensor, codes: Tensor, tie_key: NDArray[np.uint8]) -> tuple[Tensor, Tensor]:
    """Order the positives (n, P) of every query: by score, then by the tie key of the code; both
    with the best first.
    """
    keys = descending(scores) << 8 | _moved(tie_key, scores.device)[codes.long()]
    order = keys.sort(dim=1).indices
    return scores.gather(1, order), codes.gather(1, order)


def distractors_before(
    rows: Tensor, positives: Tensor, *, pessimistic: bool
) -> tuple[Tensor, Tensor]:
    """Count the distractors that come before each positive; (n, P) int32. And whether one has the
    score of a positive; (n,).

    `rows` (n, G): the scores of the distractors, −inf of all other items. `positives` (n, P):
    sorted scores, best first. A distractor comes before the first positive that is not better, or,
    if ties are optimistic, that is worse.
    """
    ascending = -positives
    wanted = rows.neg_()
    slots = torch.searchsorted(ascending, wanted, right=not pessimistic)
    last = positives.shape[1] - 1
    nearest = slots.clamp(max=last) if pessimistic else (slots - 1).clamp(min=0)
    tied = ((ascending.gather(1, nearest) == wanted) & (wanted < torch.inf)).any(dim=1)

    # Additions to one place wait for each other, and neighbours in a row often have one place. So
    # several tables take turns; what comes after all positives, most distractors, is shared out,
    # for it is not needed.
    tables = max(1, min(TABLES, PLACES // (last + 1)))
    column = torch.arange(rows.shape[1], device=rows.device)
    width = tables * (last + 1)
    places = torch.where(
        slots > last, width + column % SPREAD, slots + column % tables * (last + 1)
    )
    counts = torch.zeros((len(rows), width + SPREAD), dtype=torch.int32, device=rows.device)
    counts.scatter_add_(
        1, places, torch.ones((), dtype=torch.int32, device=rows.device).expand_as(places)
    )
    above = counts[:, :width].view(len(rows), tables, last + 1).sum(dim=1, dtype=torch.int32)
    return above.cumsum(dim=1, dtype=torch.int32), tied


def descending(scores: Tensor) -> Tensor:
    """int64 that fall as float32 scores rise; equal scores, also both zeros, give the same."""
    bits = (scores + 0).view(torch.int32).long()
    return torch.where(bits < 0, bits & 0x7FFFFFFF, -bits - 1) + (1 << 31)


def _moved(array: NDArray[np.generic], device: torch.device) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(array)).to(device)


@contextmanager
def _exact_products() -> Iterator[None]:
    """Products in whole float32, whatever the process has set."""
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = False
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before
