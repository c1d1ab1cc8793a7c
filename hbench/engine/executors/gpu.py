"""Computes a job's blocks on graphics cards: torch multiplies the vectors and holds the memory, the
kernels of hbench.engine.kernels.card rank and sum up, and only the sums are copied back.

The card's matrix product rounds differently from the processor's, so scores differ in their last
bits, and values in about the seventh digit. Blocks are multiplied in fixed groups, which follow
from the data alone. So a block's values do not depend on which other blocks are requested, or were
kept by an earlier run.
"""

from __future__ import annotations

import queue
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cached_property
from threading import Event
from typing import NamedTuple

import torch
from torch import Tensor

from hbench.core.errors import UsageError
from hbench.engine.executors.card_gallery import Gallery
from hbench.engine.executors.card_memory import ROWS_BYTES, free_bytes, sent
from hbench.engine.executors.card_values import POSITIVE_BYTES, CardValues, CardView
from hbench.engine.executors.devices import NAMES, refuse_device
from hbench.engine.job import Execute, Job, Values
from hbench.engine.kernels.card.compiling import IS_SIMULATED, can_compile, cuda
from hbench.engine.lists import RowArrangement
from hbench.engine.ranker import Ranker
from hbench.engine.score_blocks import overflow
from hbench.engine.top_k import Contenders
from hbench.engine.values.plan import MetricPlan

AHEAD = 2  # shares of the blocks that are started and not yet finished by the host, at most


def on_devices(names: str) -> Execute:
    """Return the executor for one device of torch, or for several with commas between their names,
    which share the blocks. Raises UsageError if a device does not exist here or is no NVIDIA card.
    """
    devices = [_device(name.strip()) for name in names.split(",")]

    def execute(job: Job, blocks: Sequence[int]) -> Iterator[tuple[int, Values]]:
        """Compute blocks, given by their numbers, on all cards together. Raises UsageError for what
        the kernels do not support: values by name (`job.by_name`, for labels that form no tree),
        and float64."""
        if job.by_name is not None or job.ranker.scores.dtype != "float32":
            raise UsageError(
                "this evaluation cannot be done on a device",
                expected="float32 scores, labels that form a tree",
                found="values by name" if job.by_name else str(job.ranker.scores.dtype),
                fix="leave --device out to rank on the processors",
            )
        # One plan for each set of labels: the dataset's own, then other trees. A plan tells which
        # metrics are computed and where the positives are in a row of scores.
        plans = [MetricPlan.of(view.ranker, view.scorers) for view in (job, *job.others)]
        cards = [CardJob(job, plans, device) for device in devices]
        # float32 products without rounded factors. If the memory is too small, the error tells the
        # free bytes of the first card
        with exact_products(), _enough_memory(job.ranker, devices[0]):
            # Any card may take any share of the blocks, so the card with the least memory decides
            # how many blocks a share has.
            at_once = min(card.fitting for card in cards)
            # one iterator for all cards: each takes the next share when it is done with one
            shares = iter(shares_of_blocks(blocks, at_once))
            yield from together([card.values(shares, at_once) for card in cards])

    return execute


def _device(name: str) -> torch.device:
    """The card with this name. Raises UsageError if there is none, or no compiler for it."""
    with refuse_device(name):
        device = torch.device(name)
        torch.zeros(1, device=device)  # fails if there is no such card; the line above does not
    # numba's simulator, for tests, runs the kernels on the processor
    if device.type != "cuda" and not IS_SIMULATED:
        raise UsageError(
            f"{name!r} is no card that hbench has kernels for",
            expected=NAMES,
            fix="leave --device out to rank on the processors",
        )
    if not can_compile():
        raise UsageError(
            "the kernels cannot be compiled for this card",
            expected="numba-cuda, for the CUDA version of torch",
            found="no compiler for it",
            fix='pip install "numba-cuda[cu13]", or [cu12]; or leave --device out',
        )
    return device


def shares_of_blocks(blocks: Sequence[int], at_once: int) -> list[range]:
    """Divide blocks, given by their numbers, into shares: ranges of at most `at_once` blocks.

    A card ranks one share at a time, and large shares keep it busy.
    """
    shares: list[range] = []
    for block in blocks:
        # A block is added to the last share, unless that is full or ends earlier: blocks that an
        # earlier run kept are missing here.
        last = shares[-1] if shares else range(0)
        if last and block == last.stop and len(last) < at_once:
            shares[-1] = range(last.start, block + 1)
        else:
            shares.append(range(block, block + 1))
    return shares


def together(each: Sequence[Iterator[tuple[int, Values]]]) -> Iterator[tuple[int, Values]]:
    """Yield what several iterators yield, blocks with their values, in any order. Each iterator is
    run by its own thread. If the caller stops early, or an iterator raises an error, all of them
    stop after their present block; then the error is raised."""
    if len(each) == 1:
        yield from each[0]
        return
    found: queue.SimpleQueue[tuple[int, Values] | None] = queue.SimpleQueue()
    is_over = Event()

    def run(values: Iterator[tuple[int, Values]]) -> None:
        """Put what the iterator yields, pairs of a block's number and its values, into the queue,
        and at the end None. Stop early once it `is_over`: the caller wants no more, or another
        iterator has failed."""
        try:
            for pair in values:
                found.put(pair)
                if is_over.is_set():
                    return
        except BaseException:
            is_over.set()  # the other iterators need not compute the rest of a failed evaluation
            raise
        finally:
            # also after an error, so that the loop below ends; `task.result` then raises the error
            found.put(None)

    with ThreadPoolExecutor(len(each)) as pool:
        tasks = [pool.submit(run, values) for values in each]
        try:
            left = len(tasks)  # iterators that have not ended
            while left:
                pair = found.get()
                if pair is None:
                    left -= 1
                else:
                    yield pair
        finally:
            is_over.set()
        # reached if the caller has not stopped early; all iterators have ended
        for task in tasks:
            task.result()  # raises the error of an iterator that had one


class CardJob:
    """Computes shares of a job's blocks on one card. A share is a range of blocks that are ranked
    together. `plans`: the plan of the job's own view of the labels, then those of its other views.
    """

    def __init__(self, job: Job, plans: Sequence[MetricPlan], device: torch.device) -> None:
        """`plans`: the plan of the job's own view of the labels, then those of its other views."""
        self.job = job
        self.plans = plans
        self.device = device

    @cached_property
    def fitting(self) -> int:
        """How many blocks can be ranked at once: a multiple of `gallery.group`, which is the number
        of blocks that are multiplied together, and at least one group."""
        scores = self.job.ranker.scores
        # other views of the labels copy the rows into another order of columns, and lists of
        # positives, with which the ranker has an `arrange`, copy them into wider rows
        copies = 1 if len(self.plans) == 1 and self.job.ranker.arrange is None else 2
        positives = max(plan.most_positives for plan in self.plans)
        # bytes of one query: float32 scores of its row, and its positives
        of_query = 4 * copies * len(scores.columns) + POSITIVE_BYTES * positives
        group = self.gallery.group
        # A third of the free memory for the blocks that are ranked at once. The card holds up to
        # AHEAD (two) such shares of the blocks at a time; the last third is a reserve.
        budget = min(ROWS_BYTES, free_bytes(self.device) // 3)
        return group * max(1, budget // (of_query * scores.block_size * group))

    @cached_property
    def gallery(self) -> Gallery:
        """The gallery's vectors on this card, loaded at the first use."""
        return Gallery(self.job.ranker.scores, self.device)

    def views(self, at_once: int) -> list[CardView]:
        """Allocate memory on the card for ranking up to `at_once` blocks: one object for each view
        of the job, the dataset's own first."""
        scores = self.job.ranker.scores
        queries = min(at_once * scores.block_size, len(scores.queries))
        return [CardView(plan, queries, self.device) for plan in self.plans]

    @cached_property
    def copies(self) -> tuple[Tensor, Tensor]:
        """Two tensors (n,) of columns: gallery items whose vectors are copies of an earlier item's
        vector, and these earlier items, whose scores the copies get."""
        ranker = self.job.ranker
        copies, originals = sent([ranker.copies, ranker.originals], self.device)
        return copies, originals

    def values(self, shares: Iterator[range], at_once: int) -> Iterator[tuple[int, Values]]:
        """Yield the number and values of each block of the shares that this card takes.

        `shares`: ranges of at most `at_once` blocks; other cards take from the same iterator. Up to
        AHEAD shares are started, so that the card works on one while the host finishes another.
        """
        with _current(self.device):
            # memory on the card for a share, for each view of the labels. All shares use it, one
            # after the other, as the card works on them in order.
            views = self.views(at_once)
            waiting: deque[_Share] = deque()
            while True:
                numbers = next(shares, None) if len(waiting) < AHEAD else None
                if numbers is not None:
                    waiting.append(self._start(numbers, views))
                elif waiting:
                    yield from waiting.popleft().finish()
                else:
                    return

    def _start(self, numbers: range, views: Sequence[CardView]) -> _Share:
        """Start to rank the blocks with these numbers on the card, under every view of the labels.
        If the job wants the first results of each query (`job.top`), keep them."""
        ranker = self.job.ranker
        # (n, G): the scores of all queries of these blocks, −inf for left-out items
        rows = self.finished_rows(numbers)
        # each view sorts the columns by its own labels
        own, *others = [CardValues(view, numbers, self._in_order(rows, view)) for view in views]
        if self.job.top is not None:
            first = own.block.first  # the number, in canonical order, of the first query
            self.job.top.keep_found(ranker, _best(rows, self.job.top.k), first, len(rows))
        return _Share(numbers, own, others, _event_when_done(self.device))

    def _in_order(self, rows: Tensor, view: CardView) -> Tensor:
        """Sort the columns of finished rows (n, G) by the labels of a view. The rows are in the
        order of the job's own view already, whose `order` is None."""
        order = view.plan.ranker.order
        if order is None:
            return rows
        (on_device,) = sent([order], self.device)
        return rows[:, on_device]

    def finished_rows(self, numbers: range) -> Tensor:
        """The finished rows of scores of the blocks with these numbers, (n, G), as Ranker.arranged
        finishes them. Copies, items whose vectors equal those of an earlier item, get the score of
        that item, since equal products may be rounded differently. Left-out items have −inf.

        Where positives are listed, rows are (n, G + P): the scores of positives are moved to P
        columns behind the gallery, so that the positives of each level are side by side.
        """
        rows = self.gallery.rows(numbers)
        ranker = self.job.ranker
        # the number, in canonical order, of the first query
        first = numbers.start * ranker.scores.block_size
        if len(ranker.copies):
            copies, originals = self.copies  # columns
            rows[:, copies] = rows[:, originals]
        # items with several paths: the positives of a query are listed, not ranges of columns
        if ranker.listed is not None:
            # sets left-out scores, too
            return _of_lists(rows, ranker.listed.placed(first, first + len(rows)))
        # The row and column of each left-out score. `_left_out` makes it −inf, or NaN if it was not
        # finite: −inf would hide an overflow from the kernels
        queries, columns = sent(ranker.left_out(first, first + len(rows)), self.device)
        rows[queries, columns] = _left_out(rows[queries, columns])
        return rows


class _Share(NamedTuple):
    """Blocks, by their `numbers`, whose values the card computes, under the job's `own` view (the
    labels of the dataset) and its `others`, such as those of other trees. `done`: the event that
    the card has finished, None if there is nothing to wait for."""

    numbers: range
    own: CardValues
    others: list[CardValues]
    done: torch.cuda.Event | None

    def finish(self) -> Iterator[tuple[int, Values]]:
        """Wait for the card, then yield the number and values of each block. Raises SubmissionError
        if a score is beyond the largest float."""
        if self.done is not None:  # the simulator has no event, as it works synchronously
            self.done.synchronize()
        scores = self.own.block.ranker.scores
        # the job's own view tells, as all views have the same scores
        if self.own.overflows():
            raise overflow(scores.query_rows.read(self.own.block.queries))
        # each view writes the metrics of its queries to the values of its block
        for view in (self.own, *self.others):
            view.finish()
        # own.block.finish() joins the values of these other blocks to those of its own
        self.own.block.others = [view.block for view in self.others]
        # one `Values` holds those of all blocks, of which each block gets a slice
        values = self.own.block.finish()
        for place, number in enumerate(self.numbers):
            yield (
                number,
                values.of(slice(place * scores.block_size, (place + 1) * scores.block_size)),
            )


def _of_lists(rows: Tensor, placed: RowArrangement) -> Tensor:
    """Move the positives of each row of scores (n, G) behind the gallery, and put −inf in their old
    places: (n, G + width). This is what ListedItems.arranged does on the host.

    The items of each level are then side by side, as the kernels expect. `placed`: which scores are
    moved, and where to; it also has the left-out items, which get −inf. Changes `rows`, too.
    """
    # All but the first member, the width, are index arrays. Of each positive: its row, its place
    # behind the gallery and its column. Of each score that becomes −inf: its row and column.
    of_row, place, column, all_rows, all_columns = sent(placed[1:], rows.device)
    size = rows.shape[1]
    arranged = torch.full((len(rows), size + placed.width), -torch.inf, device=rows.device)
    arranged[of_row, size + place] = rows[of_row, column]
    # −inf, but NaN for a score that is not finite, so that the kernels still find the overflow
    rows[all_rows, all_columns] = _left_out(rows[all_rows, all_columns])
    arranged[:, :size] = rows
    return arranged


def _left_out(scores: Tensor) -> Tensor:
    """What replaces the scores (n,) of left-out items: −inf. A score that is not finite becomes
    NaN, so that the kernels still find the overflow."""
    return torch.where(scores.isfinite(), -torch.inf, torch.nan)


def _best(rows: Tensor, k: int) -> Contenders:
    """The items that may be among the k best of each row of scores (n, G): all that reach the k-th
    best score. Of items with equal scores, the host chooses. Items with score −inf are left out of
    the list."""
    bounds = rows.topk(min(k, rows.shape[1]), dim=1).values[:, -1:]
    row, column = torch.nonzero((rows >= bounds) & (rows > -torch.inf), as_tuple=True)
    return Contenders(*(each.cpu().numpy() for each in (row, column, rows[row, column])))


def _event_when_done(device: torch.device) -> torch.cuda.Event | None:
    """An event that occurs when the device has done all work that is queued so far; None for the
    simulator, which works synchronously.
    """
    if device.type != "cuda":
        return None
    # blocking: the thread that waits for it sleeps, and does not keep a processor busy
    event = torch.cuda.Event(blocking=True)  # type: ignore[no-untyped-call]
    event.record()
    return event


@contextmanager
def _current(device: torch.device) -> Iterator[None]:
    """Make this card the current one of torch inside of `with`. Also make it the current one of
    numba, which keeps it afterwards. Both have a current card for each thread."""
    if device.type != "cuda":
        yield
        return
    with torch.cuda.device(device):
        cuda.select_device(torch.cuda.current_device())
        yield


@contextmanager
def _enough_memory(ranker: Ranker, device: torch.device) -> Iterator[None]:
    """Turn torch's error that the card's memory is too small into UsageError, which says what would
    fit."""
    try:
        yield
    except torch.cuda.OutOfMemoryError:
        scores = ranker.scores
        row = 4 * len(scores.columns) * 2**-20  # MB of one query's float32 scores
        # A card ranks some blocks at a time, in a third of its free memory. So for a single block,
        # three times its bytes must be free. The advice is the --max-memory for small blocks that
        # are still quick: 5/3 of their bytes, since a block takes 3/5 of --max-memory.
        raise UsageError(
            "the card's memory is too small for a block of scores",
            expected=f"{(scores.block_bytes * 3) / 2**30:,.1f} GB free beside the vectors",
            found=f"{free_bytes(device) / 2**30:,.1f} GB",
            fix=f"give a smaller --max-memory: {row * 32 * 5 / 3:,.0f} MB make blocks of 32 "
            "queries; or free the card",
        ) from None


@contextmanager
def exact_products() -> Iterator[None]:
    """Multiply in full float32 inside of `with`, whatever the process has set: TensorFloat-32 would
    round the factors to 10 bits and change ranks.
    """
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = False
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before
