"""Values of queries from rows of scores on a graphics card: launches the kernels that rank and sum
up, and takes what they found back to the host.

Everything is asked of the card first, and waited for later; so the card works on the next queries
while the host makes metrics of the sums.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hbench.engine.executors.card_memory import Staged, fetched, on_card, sent
from hbench.engine.kernels import rank_sums
from hbench.engine.kernels.card import best, ranks, reading, sums
from hbench.engine.kernels.rank_positives import RankedPositives
from hbench.engine.values.blocks import Block, FastColumns
from hbench.engine.values.fast_metrics import Batch
from hbench.engine.values.plan import MetricGroup, MetricPlan
from hbench.metrics import readings as readings_of
from hbench.metrics.readings import Reading

POSITIVE_BYTES = 2 * 4 + 4 + 3 * 1  # on the card, of a positive: two scores, rank, three codes


class CardLists(NamedTuple):
    """Ranked positives of n queries on the card, as reading.Listed: `ranks`, `levels` (n, P), the
    number of them, `sizes` (n,), and the level of the item ranked `first` (n,)."""

    ranks: Tensor
    levels: Tensor
    sizes: Tensor
    first: Tensor

    @classmethod
    def empty(cls, queries: int, positives: int, device: torch.device) -> CardLists:
        """Room for the lists of n queries of up to this many positives. What is in it before the
        kernels write is never read."""
        shape = (queries, positives)
        return cls(
            ranks=torch.empty(shape, dtype=torch.int32, device=device),
            levels=torch.empty(shape, dtype=torch.uint8, device=device),
            sizes=torch.empty(queries, dtype=torch.int32, device=device),
            first=torch.empty(queries, dtype=torch.uint8, device=device),
        )

    def of_kernel(self) -> reading.Listed:
        """The same lists, in the same memory, as arrays that kernels accept."""
        return reading.Listed(*map(on_card, self))


class ReadLists:
    """Room on the card for lists read by one reading of their codes: `lists`, and the same memory
    as kernels take it, `of_kernel`; `meaning`: what each code means by the reading called `name`.
    """

    def __init__(self, how: Reading, like: CardLists) -> None:
        """Allocate `lists` as large as others, and send to the card what each code means
        (`meaning`).

        Under partial labels an item has a code, not a level: its level, and whether it may be
        finer. `how`: what metrics of one kind take of that, two arrays by code: whether an item
        stays in the list, and which level it has then. `like`: lists of as many queries and
        positives as these are to have.
        """
        device = like.ranks.device
        self.name = how.name
        self.lists = CardLists.empty(like.ranks.shape[0], like.ranks.shape[1], device)
        self.of_kernel = self.lists.of_kernel()
        by_code = sent([how.stays.astype(np.uint8), how.level], device)
        self.meaning = reading.Meaning(*map(on_card, by_code))

    def read(self, coded: reading.Listed, queries: int) -> None:
        """Translate the codes in the lists of the first `queries` queries into levels, without the
        items that do not stay; one block of threads per query."""
        reading.read_lists[queries, reading.THREADS](coded, self.meaning, self.of_kernel)


class GroupSums:
    """Room on the card for the sums of one `group` of metrics, and for what they are taken of.

    `read`: the lists by the group's reading, None where it has none. `staged`: counts, relevance
    and weight of the queries, which are sent for every batch. `request`: these and what is the same
    for all batches, as the kernel takes them. `shapes`: of the five kinds of sums, (queries, …)
    each; `flat`: their memory in one piece, `out` the same as the kernel writes it.
    """

    def __init__(self, group: MetricGroup, read: ReadLists | None, view: CardView) -> None:
        """Allocate what the group's kernel reads and writes, for as many queries as the view has.

        `read`: the lists that the sums are taken of, where these are not the view's own.
        """
        self.group = group
        self.read = read
        # a batch of no queries tells the shapes and constants of the sums
        batch = group.batch(np.zeros((0, view.codes), np.int64))
        request = batch.request
        # room for counts, relevance and weight of each query, which `start` sends
        self.staged = Staged(_of_queries(request), view.queries, view.device)
        # a kernel takes no array without numbers: the cut 0 stands for none
        cuts = request.cuts if len(request.cuts) else np.zeros(1, np.int64)
        tables = [cuts, group.tables.discount, group.tables.harmonic]
        counts, relevance, weight = map(on_card, self.staged.arrays)
        # the same for every batch, so they are sent once
        at_cuts, discount, harmonic = map(on_card, sent(tables, view.device))
        self.request = sums.CardRequest(
            counts,
            at_cuts,
            relevance,
            weight,
            discount,
            harmonic,
            graded=request.relevance.shape[1],
            lowest=request.lowest,
            binary=request.binary,
            gain=request.gain,
            overlap=request.overlap,
        )
        # one flat piece for all sums: it comes back from the card in one copy; no axis of length 0
        self.shapes = [(view.queries, *np.maximum(1, each.shape[1:])) for each in batch.sums]
        self.flat = torch.empty(
            sum(map(_size, self.shapes)), dtype=torch.float64, device=view.device
        )
        self.out = sums.CardSums(*map(on_card, self._parts(self.flat)))

    def _parts(self, flat: Tensor) -> list[Tensor]:
        """Views of the sums, one tensor for each of `shapes`, which lie one after another in the
        flat tensor."""
        parts = torch.split(flat, [_size(shape) for shape in self.shapes])
        return [part.view(shape) for part, shape in zip(parts, self.shapes, strict=True)]

    def start(self, lists: reading.Listed, spare: sums.Spare, batch: Batch) -> Tensor:
        """Start the kernel that takes all sums of the queries of a batch, and their copy to the
        host; return that copy, which is complete once the card has finished. `lists`: the positives
        of these queries; `spare`: room on the card that the kernel may write over.

        `out` is the memory of `flat`, as kernels take it, and `request` has that of `staged`.
        """
        self.staged.fill(_of_queries(batch.request))
        self.flat.zero_()  # the kernel writes no sum of a query without positives
        # one block of threads for each query
        sums.sum_lists[len(batch.request.counts), sums.THREADS](
            lists, spare, self.request, self.out
        )
        return fetched(self.flat)

    def take(self, flat: Tensor, batch: Batch) -> None:
        """Write the sums that `start` fetched as one `flat` tensor to the arrays of a batch, whose
        queries are the first of those that there is room for here."""
        for own, part in zip(batch.sums, self._parts(flat), strict=True):
            if own.size:  # one of length 0 has a place on the card, but no sums
                own[:] = part[: len(own)].numpy()


class CardView:
    """What one view of a job, a set of labels with its metrics, needs on a card, of up to `queries`
    at once.

    `plan`: the metrics and the ranges of the positives. `codes`: how many codes there are, 0 for a
    distractor included. `lists`, `found`: what ranking writes, as tensors; `of_lists`, `of_found`,
    `slots`: the same memory as kernels take it. `spare`: memory for the sums. `staged`, `ranges`:
    where the positives lie. `readings`: lists by name of a reading; `first_by`: the one that tells
    the level at rank 1, "" where labels are not partial. `groups`: the sums.
    """

    def __init__(self, plan: MetricPlan, queries: int, device: torch.device) -> None:
        """Allocate what the kernels of this plan read and write, for up to `queries` at once.

        Codes are what kernels rank: levels, or under partial labels two codes per level.
        """
        self.plan = plan
        self.queries = queries
        self.device = device
        self.codes = len(plan.ranker.code_ties)
        positives = max(1, plan.most_positives)  # a kernel takes no array without numbers
        self.lists = CardLists.empty(queries, positives, device)
        # scores sorted, and before that part by part; codes part by part, for sorted ones are in
        # `lists`, and once more for the sums alone (`spare`)
        scores = torch.empty((2, queries, positives), device=device)
        codes = torch.empty((2, queries, positives), dtype=torch.uint8, device=device)
        left_out = torch.empty(queries, dtype=torch.int32, device=device)
        tied, overflows = torch.empty((2, queries), dtype=torch.uint8, device=device)
        self.found = ranks.Found(
            positives=self.lists.sizes,
            left_out=left_out,
            first=self.lists.first,
            tied=tied,
            overflows=overflows,
        )

        of_lists = self.of_lists = self.lists.of_kernel()
        first_scores, other_scores = map(on_card, scores)
        self.slots = ranks.Slots(
            first_scores, of_lists.levels, of_lists.ranks, other_scores, on_card(codes[0])
        )
        self.of_found = ranks.Found(*map(on_card, self.found))
        # the sums use the memory of the scores again, which nobody reads once all are ranked: a
        # float32 and an int32 are of one size
        self.spare = sums.Spare(on_card(scores.view(torch.int32)), on_card(codes))
        self._stage_ranges()
        self._make_groups()

    def _stage_ranges(self) -> None:
        """Make room on the card for where the positives of the queries lie: for every code the
        range of columns, from start to end, that holds its items. `staged`: the arrays that travel
        there for every share; `ranges`: the same, as kernels take them, with what is constant."""
        # the ranges of no queries tell the types and widths: begins and sizes (n,), starts and ends
        # (n, K), K the codes but 0
        self.staged = Staged(self._ranges(0, 0), self.queries, self.device)
        begins, sizes, starts, ends = map(on_card, self.staged.arrays)
        # equal scores are ordered by these keys, one for each code
        (keys,) = sent([self.plan.ranker.code_ties], self.device)
        self.ranges = ranks.CardRanges(
            begins,
            sizes,
            starts,
            ends,
            on_card(keys),
            lowest=self.plan.lowest,
            pessimistic=self.plan.rule.pessimistic,
            # the range of a level holds those of finer ones; of two codes of a level it does not
            nested=self.plan.ranker.known is None,
        )

    def _ranges(self, first: int, last: int) -> list[NDArray[np.int32]]:
        """The columns where the positives lie, of the queries from `first` to `last` in canonical
        order (by path, then content): begins and sizes (n,), starts and ends (n, K) by code."""
        parts = self.plan.coded(self.plan.parts(first, last), first, last)
        bounds = (parts.begins, parts.sizes, parts.starts, parts.ends)
        return [each.astype(np.int32) for each in bounds]

    def _make_groups(self) -> None:
        """Make room for the sums of every group of metrics, and for the lists by every reading.

        A reading tells, under partial labels, which level a code counts as. Several groups may
        share one reading, so its lists are made once.
        """
        readings = {
            group.reading.name: group.reading for group in self.plan.groups if group.reading
        }
        self.first_by = ""  # the lists themselves tell the level at rank 1
        if self.plan.ranker.known is not None:
            # reports show the level of the item ranked first as far as it is known
            own = readings_of.known(self.plan.ranker.depth)
            readings.setdefault(own.name, own)
            self.first_by = own.name
        self.readings = {name: ReadLists(how, self.lists) for name, how in readings.items()}
        self.groups = [
            GroupSums(group, self.readings.get(group.reading.name if group.reading else ""), self)
            for group in self.plan.groups
        ]

    def rank(self, rows: Tensor, first: int) -> None:
        """Start the kernels that rank the positives of n queries, in canonical order from `first`
        on. `rows` (n, G): their finished scores, −inf where an item is left out of the list.

        `ranges`: where the positives lie, the memory of `staged`; `slots`, `of_found`: where the
        kernels write, which is the memory of `of_lists`, too.
        """
        self.staged.fill(self._ranges(first, first + len(rows)))
        scores = on_card(rows)
        # one block of threads for each query
        ranks.rank_rows[len(rows), ranks.THREADS](scores, self.ranges, self.slots, self.of_found)
        # positives below the lowest level that a metric needs are not listed, but may rank first
        if self.plan.lowest > 1:
            best.codes_of_best[len(rows), ranks.THREADS](
                scores, self.ranges._replace(lowest=1), self.of_lists.first
            )


class CardValues:
    """The values of some blocks' n queries under one view, in the making.

    `block`: where they are written; `fast`: its sums on the host. `width`: the columns of a row of
    scores. Copies on the host that are complete once the card has finished: `found`, the items left
    out, and flags of ties and overflows (n,); `lists`: ranks, levels (n, P) and sizes (n,), empty
    where every metric is a sum; `first` (n,): the level at rank 1; `sums`: flat, for each group.
    """

    def __init__(self, view: CardView, numbers: range, rows: Tensor) -> None:
        """Start to rank the positives of finished rows of scores (n, G), those of the blocks with
        these `numbers`, and to take their sums.

        Nothing here waits for the card: kernels and copies are queued, and `finish` takes what they
        have written, so that the host prepares the next blocks meanwhile.
        """
        self.view = view
        self.block = Block(view.plan.ranker, numbers, view.plan.metrics)
        self.fast = FastColumns(self.block, view.plan)
        self.width = rows.shape[1]

        queries = len(rows)
        view.rank(rows, self.block.first)
        found = (view.found.left_out, view.found.tied, view.found.overflows)
        # copied to the host, as the view's arrays are written over by the next block
        self.found = [fetched(each[:queries]) for each in found]
        # metrics that are no sums over ranks (`others`) go by the lists themselves: ranks, levels
        # and sizes, which are the first three members
        self.lists = [fetched(each[:queries]) for each in view.lists[:3] if view.plan.others]

        # under partial labels each reading makes lists of its own from those by code
        for read in view.readings.values():
            read.read(view.of_lists, queries)
        own = view.readings[view.first_by].lists if view.first_by else view.lists
        self.first = fetched(own.first[:queries])
        self.sums = [
            self._start(group, batch)
            for group, (_, batch) in zip(view.groups, self.fast.batches, strict=True)
        ]

    def _start(self, group: GroupSums, batch: Batch) -> Tensor:
        """Start to take the sums of one group of metrics; return them as they are fetched. The
        lists are the view's own, or those that the group's reading made of them."""
        lists = self.view.lists if group.read is None else group.read.lists
        of_kernel = self.view.of_lists if group.read is None else group.read.of_kernel
        if group.group.loses_last:  # some released evaluators drop the last item of every list
            sizes = _sizes_without_last(lists, batch)
            of_kernel = of_kernel._replace(sizes=on_card(sizes))
        at = slice(0, len(self.block.queries))
        # relevance and weight of each level may depend on the counts, which are final only now
        group.group.grade(batch, queries=self.block.queries, at=at)
        return group.start(of_kernel, self.view.spare, batch)

    def overflows(self) -> bool:
        """Whether a score was beyond the largest float: then more is missing in a row than what is
        left out of the list. The card must have finished."""
        left_out, _, overflows = (each.numpy() for each in self.found)  # (n,) each
        listed = self.block.counts.sum(axis=1)  # (n,): the items of each list, by the labels
        return bool(overflows.any() or (left_out != self.width - listed).any())

    def finish(self) -> None:
        """Write the values to the block. The card must have finished. `found`, `first`, `sums` and
        `lists` are copies on the host of what the kernels wrote."""
        values = self.block.values
        _, tied, _ = self.found
        values.tied[:] = tied.numpy()
        values.first_level[:] = self.first.numpy()
        for group, (_, batch), flat in zip(
            self.view.groups, self.fast.batches, self.sums, strict=True
        ):
            group.take(flat, batch)
        if self.lists:
            ranks_of, levels, sizes = (each.numpy() for each in self.lists)
            # laid out flat, each query's row of (n, P) begins P places behind the one before; its
            # first `sizes` places are filled
            starts = np.arange(len(sizes)) * ranks_of.shape[1]
            ranked = RankedPositives(
                ranks_of.reshape(-1), levels.reshape(-1), starts, starts + sizes, values.tied
            )
            self.fast.add_sequences(ranked, slice(0, len(sizes)))


def _of_queries(request: rank_sums.SumRequest) -> list[NDArray[Any]]:
    """The arrays of a request that have a row for every query: counts (Q, L + 1), relevance and
    weight, both (Q, S, L + 1) for S graded sums. Where there is no graded sum, one of zeros stands
    for it, since a kernel takes no array without numbers."""
    grades = [
        each if each.shape[1] else np.zeros((len(each), 1, each.shape[2]), each.dtype)
        for each in (request.relevance, request.weight)
    ]
    return [request.counts, *grades]


def _sizes_without_last(lists: CardLists, batch: Batch) -> Tensor:
    """The sizes (n,) int32, on the card, of the lists of positives without the last item of each
    ranking; that item is taken off the batch's counts by level, too, in place. Asked for by the
    protocol "official": some released evaluators forget the item at the last rank.

    The last item is a positive only where the last positive has the last rank, which the host must
    know: so it waits for the card.
    """
    counts = batch.request.counts
    sizes = lists.sizes[: len(counts)]
    at = (sizes.long() - 1).clamp(min=0)[:, None]  # the place of the last positive
    rank, level = (
        each[: len(counts)].gather(1, at)[:, 0].cpu().numpy()
        for each in (lists.ranks, lists.levels)
    )
    size = sizes.cpu().numpy()  # (n,): positives
    is_lost = (size > 0) & (rank == counts.sum(axis=1))
    # a lost distractor is of level 0; an empty list has no last item
    counts[np.arange(len(counts)), np.where(is_lost, level, 0)] -= counts.sum(axis=1) > 0
    (without_last,) = sent([(size - is_lost).astype(np.int32)], sizes.device)
    return without_last


def _size(shape: Sequence[int]) -> int:
    """How many numbers an array of this shape holds."""
    return int(np.prod(shape))
