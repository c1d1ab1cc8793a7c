"""Ranks a job's blocks on a graphics card: torch multiplies and holds the memory, the kernels of
hbench.engine.kernels.card rank and sum up, and only the sums come back.

The card's matrix product rounds in other places than the processor's, so scores differ in their
last bits, and values in about the seventh digit. Blocks are multiplied by groups that the data
alone decide, so a block's values do not depend on which others are asked for, or were kept.
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

AHEAD = 2  # shares of the rows that the card is at work on, or that wait for the host, at once


def on_devices(names: str) -> Execute:
    """Return the executor for one device of torch, or for several, separated by commas, which share
    the blocks. Raises UsageError where one is not there, or is no card of NVIDIA's."""
    devices = [_device(name.strip()) for name in names.split(",")]

    def execute(job: Job, blocks: Sequence[int]) -> Iterator[tuple[int, Values]]:
        """Compute blocks, given by their numbers, on the cards together; each takes the next share
        of them when it is done with one. Raises UsageError for what no kernel of a card does:
        values by name, and float64."""
        if job.by_name is not None or job.ranker.scores.dtype != "float32":
            raise UsageError(
                "this evaluation cannot be done on a device",
                expected="float32 scores, labels that form a tree",
                found="values by name" if job.by_name else str(job.ranker.scores.dtype),
                fix="leave --device out to rank on the processors",
            )
        # of each set of labels: the dataset's own, then other trees
        plans = [MetricPlan.of(view.ranker, view.scorers) for view in (job, *job.others)]
        cards = [CardJob(job, plans, device) for device in devices]
        # an error of too little memory names the first card
        with exact_products(), _enough_memory(job.ranker, devices[0]):
            # any card may take any share: the one with the least memory decides
            at_once = min(card.fitting for card in cards)
            # one iterator for all cards: each takes the next share when it is done with one
            shares = iter(shares_of_blocks(blocks, at_once))
            yield from together([card.values(shares, at_once) for card in cards])

    return execute


def _device(name: str) -> torch.device:
    """The card of a name. Raises UsageError where there is none, or no compiler for it."""
    with refuse_device(name):
        device = torch.device(name)
        torch.zeros(1, device=device)  # the line above takes any name; this fails without a card
    # numba's simulator, for tests, runs the kernels on a processor
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
    """Divide blocks, by their numbers, into shares of neighbours, of `at_once` blocks at most.

    A card ranks one share at a time: large ones keep it busy.
    """
    shares: list[range] = []
    for block in blocks:
        # a neighbour goes to the share before, unless that is full; blocks that were kept are
        # missing, and part their neighbours
        last = shares[-1] if shares else range(0)
        if last and block == last.stop and len(last) < at_once:
            shares[-1] = range(last.start, block + 1)
        else:
            shares.append(range(block, block + 1))
    return shares


def together(each: Sequence[Iterator[tuple[int, Values]]]) -> Iterator[tuple[int, Values]]:
    """Yield the blocks, with their values, that several iterators give, in any order; each is run
    by a thread of its own. At an error of one, or where the caller stops, the others stop, too."""
    if len(each) == 1:
        yield from each[0]
        return
    found: queue.SimpleQueue[tuple[int, Values] | None] = queue.SimpleQueue()
    is_over = Event()

    def run(values: Iterator[tuple[int, Values]]) -> None:
        """Put what the iterator `values` gives, pairs of a block's number and its values, into the
        queue, then None to say that it has ended; it also ends once nobody wants more
        (`is_over`)."""
        try:
            for pair in values:
                found.put(pair)
                if is_over.is_set():
                    return
        finally:
            found.put(None)  # also after an error, which `result` raises below

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
        for task in tasks:
            task.result()  # raises the error of an iterator that had one


class CardJob:
    """One card at work on a job: its gallery, and what all shares of the blocks need there.

    `plans`: of the job's own view of the labels, then of its other views. A share: some blocks that
    follow one another, ranked together.
    """

    def __init__(self, job: Job, plans: Sequence[MetricPlan], device: torch.device) -> None:
        """`plans`: of the job's own view of the labels, then of its other views; the gallery is
        loaded when it is first asked for."""
        self.job = job
        self.plans = plans
        self.device = device

    @cached_property
    def fitting(self) -> int:
        """How many blocks can be ranked at once; a multiple of `gallery.group`, the blocks that are
        multiplied together, and one group at least. `plans`: of the metrics, one for each view."""
        scores = self.job.ranker.scores
        # other views of the labels, and lists, copy the rows into another order of columns
        copies = 1 if len(self.plans) == 1 and self.job.ranker.arrange is None else 2
        positives = max(plan.most_positives for plan in self.plans)
        # bytes of one query: float32 scores of its row, and its positives
        of_query = 4 * copies * len(scores.columns) + POSITIVE_BYTES * positives
        group = self.gallery.group
        # a third of what is free: AHEAD shares, two, lie there at once, and some is left over
        budget = min(ROWS_BYTES, free_bytes(self.device) // 3)
        return group * max(1, budget // (of_query * scores.block_size * group))

    @cached_property
    def gallery(self) -> Gallery:
        """The gallery's vectors on this card, loaded at the first use."""
        return Gallery(self.job.ranker.scores, self.device)

    def views(self, at_once: int) -> list[CardView]:
        """Memory on the card for ranking up to `at_once` blocks: one for each view, that is, one
        set of labels and metrics of the job; the dataset's own first."""
        scores = self.job.ranker.scores
        queries = min(at_once * scores.block_size, len(scores.queries))
        return [CardView(plan, queries, self.device) for plan in self.plans]

    @cached_property
    def copies(self) -> tuple[Tensor, Tensor]:
        """Two (n,) tensors of columns: gallery items whose vectors are copies of another item's,
        and these others, whose scores they get."""
        ranker = self.job.ranker
        copies, originals = sent([ranker.copies, ranker.originals], self.device)
        return copies, originals

    def values(self, shares: Iterator[range], at_once: int) -> Iterator[tuple[int, Values]]:
        """Yield the number and values of every block of the shares that this card takes.

        `shares`: neighbouring blocks, `at_once` at most, each; other cards take from the same
        iterator. Up to AHEAD shares are queued, so that the card works while the host finishes one.
        """
        with _current(self.device):
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
        """Start to rank the blocks with these numbers on the card, under every view of the labels;
        keep the first results of each query where the job wants them (`job.top`)."""
        ranker = self.job.ranker
        rows = self.finished_rows(numbers)  # (n, G): of all queries of these blocks
        own, *others = [CardValues(view, numbers, self._in_order(rows, view)) for view in views]
        if self.job.top is not None:
            first = own.block.first
            self.job.top.keep_found(ranker, _best(rows, self.job.top.k), first, len(rows))
        return _Share(numbers, own, others, _event_when_done(self.device))

    def _in_order(self, rows: Tensor, view: CardView) -> Tensor:
        """Finished rows (n, G) with their columns in the order of a view: each view sorts the
        gallery by its own labels. The first view's order is None: the rows have it already."""
        order = view.plan.ranker.order
        if order is None:
            return rows
        (on_device,) = sent([order], self.device)
        return rows[:, on_device]

    def finished_rows(self, numbers: range) -> Tensor:
        """The rows (n, G) of scores of some blocks, finished as Ranker.arranged finishes them:
        copies have the score of their original, and items left out of a list −inf. Where positives
        are listed the rows are (n, G + P): their scores stand in P columns behind the gallery, and
        −inf where they were, so that the positives of each level lie side by side."""
        rows = self.gallery.rows(numbers)
        ranker = self.job.ranker
        # the canonical number of the first query
        first = numbers.start * ranker.scores.block_size
        if len(ranker.copies):
            copies, originals = self.copies
            rows[:, copies] = rows[:, originals]
        if ranker.listed is not None:
            return _of_lists(rows, ranker.listed.placed(first, first + len(rows)))
        queries, columns = sent(ranker.left_out(first, first + len(rows)), self.device)
        rows[queries, columns] = _left_out(rows[queries, columns])
        return rows


class _Share(NamedTuple):
    """Blocks, by their `numbers`, whose values are in the making, under the job's `own` view and
    `others`; the event `done` comes when the device has found all, None: it has already."""

    numbers: range
    own: CardValues
    others: list[CardValues]
    done: torch.cuda.Event | None

    def finish(self) -> Iterator[tuple[int, Values]]:
        """Wait for the card, then yield the number and values of each block. Raises SubmissionError
        where a score is beyond the largest float.

        `done`: the card's event to wait for; `own`: the values under the dataset's own view, to
        which `others`, under other labels of the same items, are added."""
        if self.done is not None:  # the simulator has done all at once
            self.done.synchronize()
        scores = self.own.block.ranker.scores
        # one view tells: all have the same scores
        if self.own.overflows():
            raise overflow(scores.query_rows.read(self.own.block.queries))
        for view in (self.own, *self.others):
            view.finish()
        self.own.block.others = [view.block for view in self.others]
        # the values of all blocks lie side by side: each block gets its own slice
        values = self.own.block.finish()
        for place, number in enumerate(self.numbers):
            yield (
                number,
                values.of(slice(place * scores.block_size, (place + 1) * scores.block_size)),
            )


def _of_lists(rows: Tensor, placed: RowArrangement) -> Tensor:
    """Move the positives of each of `rows` of scores (n, G) behind the gallery, as
    ListedItems.arranged does on the host; (n, G + width), −inf where the items were.

    So the items of each level lie side by side, which the kernels expect. `placed`: the width, and
    pairs of a row and a column as arrays (pairs,): what is moved, with its place behind the
    gallery, and what becomes −inf, the moved items and those that are left out.
    """
    # all but the first member, the width, are index arrays
    of_row, place, column, all_rows, all_columns = sent(placed[1:], rows.device)
    size = rows.shape[1]
    arranged = torch.full((len(rows), size + placed.width), -torch.inf, device=rows.device)
    arranged[of_row, size + place] = rows[of_row, column]
    rows[all_rows, all_columns] = _left_out(rows[all_rows, all_columns])
    arranged[:, :size] = rows
    return arranged


def _left_out(scores: Tensor) -> Tensor:
    """What replaces the scores (n,) of items that are left out of a list: −inf; NaN for scores that
    are no finite number, so that the kernels still find that overflow."""
    return torch.where(scores.isfinite(), -torch.inf, torch.nan)


def _best(rows: Tensor, k: int) -> Contenders:
    """The items that may be among the k best of each of the rows of scores (n, G): those that reach
    the k-th best score, with all of equal score, among which the host chooses; −inf marks items
    that are left out of a list."""
    bounds = rows.topk(min(k, rows.shape[1]), dim=1).values[:, -1:]
    row, column = torch.nonzero((rows >= bounds) & (rows > -torch.inf), as_tuple=True)
    return Contenders(*(each.cpu().numpy() for each in (row, column, rows[row, column])))


def _event_when_done(device: torch.device) -> torch.cuda.Event | None:
    """An event that comes when the device has done all that it was given so far; None for the
    simulator, which works at once.
    """
    if device.type != "cuda":
        return None
    # blocking: the thread that waits for it sleeps, and does not keep a processor busy
    event = torch.cuda.Event(blocking=True)  # type: ignore[no-untyped-call]
    event.record()
    return event


@contextmanager
def _current(device: torch.device) -> Iterator[None]:
    """Make this card the current one of torch within the block, and of numba from now on: each has
    a choice of its own in every thread."""
    if device.type != "cuda":
        yield
        return
    with torch.cuda.device(device):
        cuda.select_device(torch.cuda.current_device())
        yield


@contextmanager
def _enough_memory(ranker: Ranker, device: torch.device) -> Iterator[None]:
    """Raise UsageError, with what would fit, where the card's memory is too small."""
    try:
        yield
    except torch.cuda.OutOfMemoryError:
        scores = ranker.scores
        row = 4 * len(scores.columns) * 2**-20  # MB of one query's float32 scores
        # room for three shares of rows, of which one is left over; blocks take 3/5 of --max-memory,
        # hence 5/3
        raise UsageError(
            "the card's memory is too small for a block of scores",
            expected=f"{(scores.block_bytes * 3) / 2**30:,.1f} GB free beside the vectors",
            found=f"{free_bytes(device) / 2**30:,.1f} GB",
            fix=f"give a smaller --max-memory: {row * 32 * 5 / 3:,.0f} MB make blocks of 32 "
            "queries; or free the card",
        ) from None


@contextmanager
def exact_products() -> Iterator[None]:
    """Multiply in whole float32 meanwhile, whatever the process has set: TensorFloat-32 would round
    the factors to 10 bits and change ranks.
    """
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = False
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before
