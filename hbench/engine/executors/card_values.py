"""Computes values of queries from rows of scores on a graphics card: launches the kernels that rank
and sum up, and copies their results to the host.

All work of the card is queued first and waited for later. So the card works on the next queries
while the host turns the sums into metrics.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hbench.engine.executors.card_memory import Staged, fetched, for_kernel, sent
from hbench.engine.kernels import rank_sums
from hbench.engine.kernels.card import best, ranks, reading, sums
from hbench.engine.kernels.rank_positives import RankedPositives
from hbench.engine.values.blocks import Block, FastColumns
from hbench.engine.values.fast_metrics import Batch
from hbench.engine.values.plan import MetricGroup, MetricPlan
from hbench.metrics import readings as readings_of
from hbench.metrics.readings import Reading

POSITIVE_BYTES = 2 * 4 + 4 + 3 * 1  # of one positive on the card: two scores, a rank, three codes


class CardLists(NamedTuple):
    """Ranked positives of n queries on the card, as tensors; the members are those of
    reading.Listed.

    `ranks`, `levels` (n, P): of query q the first `sizes[q]` are filled. `sizes` (n,): the number
    of positives. `first` (n,): the level of the item ranked first.
    """

    ranks: Tensor
    levels: Tensor
    sizes: Tensor
    first: Tensor

    @classmethod
    def empty(cls, queries: int, positives: int, device: torch.device) -> CardLists:
        """Allocate the lists of this many queries, with up to this many `positives` each: ranks and
        levels (queries, positives), and for each query the number of its positives (`sizes`) and
        the level of the item at rank 1 (`first`). The memory is not cleared: only what kernels have
        written is read."""
        shape = (queries, positives)
        return cls(
            ranks=torch.empty(shape, dtype=torch.int32, device=device),
            levels=torch.empty(shape, dtype=torch.uint8, device=device),
            sizes=torch.empty(queries, dtype=torch.int32, device=device),
            first=torch.empty(queries, dtype=torch.uint8, device=device),
        )

    def of_kernel(self) -> reading.Listed:
        """The same lists, in the same memory, as arrays that kernels accept."""
        return reading.Listed(*map(for_kernel, self))


class ReadLists:
    """Memory on the card for the lists that one reading makes from lists of codes.

    `name`: of the reading. `lists`: the memory as tensors; `of_kernel`: the same memory as arrays
    that kernels accept. `meaning`: what each code means in this reading.
    """

    def __init__(self, how: Reading, like: CardLists) -> None:
        """Allocate the lists, and send the meaning of each code to the card.

        Under partial labels an item has a code in place of a level, which also tells whether the
        item may be finer. A reading decides which level each code counts as.

        Args:
            how: the reading: for each code, whether an item stays in the list, and its level then.
            like: lists of codes; the new lists have as many queries and positives.
        """
        device = like.ranks.device
        self.name = how.name
        self.lists = CardLists.empty(like.ranks.shape[0], like.ranks.shape[1], device)
        self.of_kernel = self.lists.of_kernel()  # the same memory, as arrays that kernels accept
        # (codes,) each: tensors on the card, and then, in the same memory, arrays for kernels
        by_code = sent([how.stays.astype(np.uint8), how.level], device)
        self.meaning = reading.Meaning(*map(for_kernel, by_code))

    def read(self, coded: reading.Listed, queries: int) -> None:
        """Translate the codes in the lists of the first `queries` queries into levels, and drop
        the items that do not stay."""
        # one block of threads per query
        reading.read_lists[queries, reading.THREADS](coded, self.meaning, self.of_kernel)


class GroupSums:
    """Memory on the card for the sums of one `group` of metrics, and for the kernel's arguments.

    `read`: the lists by the group's reading, None if it has none. `staged`: counts, relevance and
    weight of the queries, which are sent for every batch. `request`: these and the arguments that
    all batches share, as arrays that the kernel accepts. `shapes`: the shapes (queries, …) of the
    five kinds of sums. `flat`: the memory of all sums in one piece; `out`: the same memory, as the
    arrays to which the kernel writes.
    """

    def __init__(self, group: MetricGroup, read: ReadLists | None, view: CardView) -> None:
        """Allocate what the group's kernel reads and writes, for as many queries as the view has.

        `read`: the lists over which the sums are taken; None for the view's own lists.
        """
        self.group = group
        self.read = read
        # a batch of no queries, from which the shapes and the constants of the sums are taken
        batch = group.batch(np.zeros((0, view.codes), np.int64))
        request = batch.request
        # memory for counts (Q, L + 1), relevance and weight (Q, H, L + 1) of each query, for H
        # graded sums, such as H-AP; `start` fills it for every batch
        self.staged = Staged(_of_queries(request), view.queries, view.device)
        # a kernel does not accept an empty array, so a single cut 0 stands for no cuts
        cuts = request.cuts if len(request.cuts) else np.zeros(1, np.int64)
        # both tables are by rank r: 1/log2(1 + r) and Σ_{n≤r} 1/n
        tables = [cuts, group.tables.discount, group.tables.harmonic]
        counts, relevance, weight = map(for_kernel, self.staged.arrays)
        # the same for every batch, so they are sent once
        at_cuts, discount, harmonic = map(for_kernel, sent(tables, view.device))
        # `lowest`: the lowest level in the lists; `binary`, `gain`, `overlap`: whether the metrics
        # need the ASI of each level alone, the gains (for NDCG), and the ASI of all levels
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
        # all sums are in one flat tensor, which comes back from the card in one copy; empty axes
        # get length 1, as a kernel does not accept empty arrays
        self.shapes = [(view.queries, *np.maximum(1, each.shape[1:])) for each in batch.sums]
        self.flat = torch.empty(
            sum(map(_size, self.shapes)), dtype=torch.float64, device=view.device
        )
        self.out = sums.CardSums(*map(for_kernel, self._parts(self.flat)))

    def _parts(self, flat: Tensor) -> list[Tensor]:
        """Views of the sums, which are stored one after another in the flat tensor: one view for
        each of `shapes`."""
        parts = torch.split(flat, [_size(shape) for shape in self.shapes])
        return [part.view(shape) for part, shape in zip(parts, self.shapes, strict=True)]

    def start(self, lists: reading.Listed, spare: sums.Spare, batch: Batch) -> Tensor:
        """Start the kernel that computes all sums of a batch, and a copy of the sums to the host.

        Args:
            lists: the positives of the batch's queries.
            spare: memory on the card that the kernel may overwrite.
            batch: its `request` has the queries' counts, relevance and weight.

        Returns:
            The copy on the host, which is complete once the card has finished.
        """
        # the kernel's arguments are views: `self.request` of `staged`, and `self.out` of `flat`
        self.staged.fill(_of_queries(batch.request))
        self.flat.zero_()  # the kernel writes no sum of a query without positives
        # one block of threads for each query
        sums.sum_lists[len(batch.request.counts), sums.THREADS](
            lists, spare, self.request, self.out
        )
        return fetched(self.flat)

    def take(self, flat: Tensor, batch: Batch) -> None:
        """Write the sums that `start` fetched as one `flat` tensor to the arrays of a batch. The
        batch may have fewer queries than the tensor, of which it takes the first."""
        for own, part in zip(batch.sums, self._parts(flat), strict=True):
            if own.size:  # an empty array has a place on the card, but no sums
                own[:] = part[: len(own)].numpy()


class CardView:
    """The memory that one view of a job, a set of labels with its metrics, needs on a card, for up
    to `queries` queries at once.

    `plan`: the metrics, and the ranges of the positives. `codes`: the number of codes, with code 0
    for distractors. `lists`, `found`: what the ranking kernels write, as tensors; `of_lists`,
    `of_found`, `slots`: the same memory as arrays that kernels accept. `spare`: memory for the
    sums. `staged`, `ranges`: the columns of the positives, for sending and for kernels. `readings`:
    the lists by each reading, by its name; `first_by`: the name of the reading that tells the level
    at rank 1, "" where labels are not partial. `groups`: the sums of each group of metrics.
    """

    def __init__(self, plan: MetricPlan, queries: int, device: torch.device) -> None:
        """Allocate what the kernels of this plan read and write, for up to `queries` queries.

        Kernels rank codes, which are levels, or under partial labels two codes per level. `plan`
        tells which metrics are computed and where each query's positives are in a row of scores.
        """
        self.plan = plan
        self.queries = queries
        self.device = device
        self.codes = len(plan.ranker.code_ties)  # the number of codes; each has a key for ties
        positives = max(1, plan.most_positives)  # a kernel does not accept an empty array
        self.lists = CardLists.empty(queries, positives, device)
        # Two arrays of scores: sorted, and before they are sorted, divided into parts of similar
        # scores. Two arrays of codes: one for the codes before sorting, as the sorted codes are in
        # `lists`; the other one is used only for the sums (`spare`).
        scores = torch.empty((2, queries, positives), device=device)
        codes = torch.empty((2, queries, positives), dtype=torch.uint8, device=device)
        # for each query, beside the number of its positives and the code of the item ranked first,
        # which `lists` has: how many items have −inf; whether equal scores have different codes,
        # and whether a score is beyond the largest float
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
        first_scores, other_scores = map(for_kernel, scores)
        # sorted scores, codes and ranks, then scores and codes before sorting
        self.slots = ranks.Slots(
            first_scores, of_lists.levels, of_lists.ranks, other_scores, for_kernel(codes[0])
        )
        self.of_found = ranks.Found(*map(for_kernel, self.found))
        # the sums use the memory of the scores, which are not read any more once all positives are
        # ranked; it holds int32 as well as float32, which are of the same size
        self.spare = sums.Spare(for_kernel(scores.view(torch.int32)), for_kernel(codes))
        self._stage_ranges()  # sets `staged`, `ranges`: where each query's positives are in a row
        self._make_groups()  # sets `readings`, `groups`: the sums of each group of metrics

    def _stage_ranges(self) -> None:
        """Allocate the columns of the positives on the card, for each query.

        Sets `staged`, the arrays that are sent for each share of the queries. Sets `ranges`: the
        same memory as arrays that kernels accept, with the arguments that all shares have in
        common.
        """
        # `begins`, `sizes` (n,): the first column of a query's positives, and their number.
        # `starts`, `ends` (n, K): the columns of each code but 0; a code is a level, which includes
        # finer ones, unless labels are partial. Types and widths are those of the ranges of no
        # queries, `_ranges(0, 0)`; memory is for `self.queries`, the most queries of a share.
        self.staged = Staged(self._ranges(0, 0), self.queries, self.device)
        begins, sizes, starts, ends = map(for_kernel, self.staged.arrays)
        # equal scores are ordered by these keys, one for each code
        (keys,) = sent([self.plan.ranker.code_ties], self.device)
        self.ranges = ranks.CardRanges(
            begins,
            sizes,
            starts,
            ends,
            for_kernel(keys),
            lowest=self.plan.lowest,  # the lowest level whose items are ranked
            pessimistic=self.plan.rule.pessimistic,
            # ranges of levels are nested, a coarser one holds all finer ones; those of the two
            # codes of a level are not
            nested=self.plan.ranker.known is None,
        )

    def _ranges(self, first: int, last: int) -> list[NDArray[np.int32]]:
        """The columns of the positives of the queries from `first` to `last` in canonical order:
        begins and sizes (n,) of all, starts and ends (n, K) by code."""
        parts = self.plan.coded(self.plan.parts(first, last), first, last)
        bounds = (parts.begins, parts.sizes, parts.starts, parts.ends)
        return [each.astype(np.int32) for each in bounds]

    def _make_groups(self) -> None:
        """Allocate the sums of each group of metrics, and the lists by each reading.

        Under partial labels, a reading tells which level a code counts as. Several groups may share
        one reading, so its lists are made once.
        """
        readings = {
            group.reading.name: group.reading for group in self.plan.groups if group.reading
        }
        # the reading whose lists tell the level at rank 1; "": none, the view's own lists tell it
        self.first_by = ""
        if self.plan.ranker.known is not None:
            # reports show the known level of the item ranked first
            own = readings_of.known(self.plan.ranker.depth)
            readings.setdefault(own.name, own)
            self.first_by = own.name
        self.readings = {name: ReadLists(how, self.lists) for name, how in readings.items()}
        self.groups = [
            GroupSums(group, self.readings.get(group.reading.name if group.reading else ""), self)
            for group in self.plan.groups
        ]

    def rank(self, rows: Tensor, first: int) -> None:
        """Start the kernels that rank the positives of n queries, which begin with query `first` in
        canonical order. `rows` (n, G): their finished scores, −inf where an item is left out of the
        list.

        The kernels read the columns of the positives in `self.ranges`, a view into the memory of
        `staged`, which is filled before. They write ranks and codes to `slots`, which shares
        these arrays with `of_lists`, and what else they find, such as ties, to `of_found`.
        """
        self.staged.fill(self._ranges(first, first + len(rows)))
        scores = for_kernel(rows)
        # one block of threads for each query
        ranks.rank_rows[len(rows), ranks.THREADS](scores, self.ranges, self.slots, self.of_found)
        # positives below the lowest level that a metric needs are not listed, but one of them may
        # be ranked first: so all scores are searched for the best one, and with `lowest=1` its code
        # may be any
        if self.plan.lowest > 1:
            best.codes_of_best[len(rows), ranks.THREADS](
                scores, self.ranges._replace(lowest=1), self.of_lists.first
            )


class CardValues:
    """The values of the n queries of some blocks under one view, while the card computes them.

    `block`: where the values are written; `fast`: its sums on the host. `width`: the number of
    columns of a row of scores. The following are copies on the host, complete once the card has
    finished. `found`: the number of left-out items, and flags for ties and overflows, (n,) each.
    `lists`: ranks, levels (n, P) and sizes (n,), an empty list if every metric is a sum. `first`
    (n,): the level at rank 1. `sums`: the flat sums of each group.
    """

    def __init__(self, view: CardView, numbers: range, rows: Tensor) -> None:
        """Start to rank the positives of the blocks with these `numbers`, and to compute the sums.
        `rows` (n, G): the finished scores of the blocks' queries, −inf where an item is left out.

        Nothing here waits for the card: kernels and copies are only queued, so that the host can
        prepare the next blocks. `finish` takes the results.
        """
        self.view = view
        self.block = Block(view.plan.ranker, numbers, view.plan.metrics)
        # `fast.batches`: each group of metrics that are sums over the ranks of one list, with the
        # batch that takes its sums
        self.fast = FastColumns(self.block, view.plan)
        # columns; the method `overflows` compares their number with the items of each list
        self.width = rows.shape[1]

        queries = len(rows)
        view.rank(rows, self.block.first)
        found = (view.found.left_out, view.found.tied, view.found.overflows)
        # copied to the host, as the next blocks overwrite the view's arrays
        self.found = [fetched(each[:queries]) for each in found]
        # metrics that are no sums over ranks (`others`) need the lists themselves: their ranks,
        # levels and sizes, which are the first three members
        self.lists = [fetched(each[:queries]) for each in view.lists[:3] if view.plan.others]

        # Under partial labels a list has codes, and a reading says which level an item of unknown
        # level counts as, or that it is left out. Each reading makes its own lists of levels;
        # `of_lists` is `view.lists`, the lists of codes, as kernels take it
        for read in view.readings.values():
            read.read(view.of_lists, queries)
        # The lists that tell the level at rank 1, the same as on the processor: under partial
        # labels those of the reading that leaves out items of unknown level (its name is
        # `first_by`), else ("") the ranked lists
        own = view.readings[view.first_by].lists if view.first_by else view.lists
        self.first = fetched(own.first[:queries])
        # `view.groups` has the memory on the card of the groups in `fast.batches`, in their order
        self.sums = [
            self._start(group, batch)
            for group, (_, batch) in zip(view.groups, self.fast.batches, strict=True)
        ]

    def _start(self, group: GroupSums, batch: Batch) -> Tensor:
        """Start to compute the sums of one group of metrics; return their copy on the host. They
        are sums over the ranked lists of positives or, under partial labels, over the lists that
        the group's reading makes of them, in which codes have become levels (`group.read`)."""
        lists = self.view.lists if group.read is None else group.read.lists
        of_kernel = self.view.of_lists if group.read is None else group.read.of_kernel
        # some released evaluators drop the last item of every list; this also lowers the counts of
        # `batch`
        if group.group.loses_last:
            sizes = _sizes_without_last(lists, batch)
            of_kernel = of_kernel._replace(sizes=for_kernel(sizes))
        at = slice(0, len(self.block.queries))  # all queries of the block
        # `group.group` is the group of metrics itself. The relevance and weight of a level may
        # depend on the counts, from which a lost last item has been subtracted by now
        group.group.grade(batch, queries=self.block.queries, at=at)
        # `spare`: memory in which the kernel keeps the positives of higher levels
        return group.start(of_kernel, self.view.spare, batch)

    def overflows(self) -> bool:
        """Whether a score was beyond the largest float. The card must have finished."""
        left_out, _, overflows = (each.numpy() for each in self.found)  # (n,) each
        # a score of −inf by overflow looks like one more left-out item, so the counts differ
        listed = self.block.counts.sum(axis=1)  # (n,): the items of each list, by the labels
        return bool(overflows.any() or (left_out != self.width - listed).any())

    def finish(self) -> None:
        """Write the values to the block. The card must have finished, so that the copies on the
        host are complete."""
        values = self.block.values
        # (n,): whether another order of equal scores would give other values; `overflows` reads the
        # other two
        _, tied, _ = self.found
        values.tied[:] = tied.numpy()
        values.first_level[:] = self.first.numpy()  # (n,): the level of each first result
        # `group` takes its sums from a flat tensor, and writes them to its `batch`; the first part
        # of each pair in `batches`, `group.group`, is not needed
        for group, (_, batch), flat in zip(
            self.view.groups, self.fast.batches, self.sums, strict=True
        ):
            group.take(flat, batch)
        # fetched only if some metric needs whole level sequences
        if self.lists:
            ranks_of, levels, sizes = (each.numpy() for each in self.lists)
            # in the flattened (n, P) arrays, a query's row begins P places behind the row before,
            # and the first `sizes` places of a row are filled
            starts = np.arange(len(sizes)) * ranks_of.shape[1]
            ranked = RankedPositives(
                ranks=ranks_of.reshape(-1),
                levels=levels.reshape(-1),
                starts=starts,
                ends=starts + sizes,
                tied=values.tied,
            )
            self.fast.add_sequences(ranked, slice(0, len(sizes)))


def _of_queries(request: rank_sums.SumRequest) -> list[NDArray[Any]]:
    """The arrays of a request that have a row for each query: counts (Q, L + 1), relevance and
    weight, both (Q, H, L + 1) for H graded sums. Without a graded sum, relevance and weight are
    zeros (Q, 1, L + 1), since a kernel does not accept an empty array."""
    grades = [
        each if each.shape[1] else np.zeros((len(each), 1, each.shape[2]), each.dtype)
        for each in (request.relevance, request.weight)
    ]
    return [request.counts, *grades]


def _sizes_without_last(lists: CardLists, batch: Batch) -> Tensor:
    """Drop the last item of each ranking, as the protocol "official" requires: some released
    evaluators forget the item at the last rank.

    Returns the new sizes (n,) int32 of the lists of positives, on the card. The last items are also
    subtracted from the batch's counts, in place. A last item is a positive only if the last
    positive has the last rank. The host must know that rank, so this waits for the card.
    """
    counts = batch.request.counts  # (n, L + 1): the items of each level in a query's list
    sizes = lists.sizes[: len(counts)]
    at = (sizes.long() - 1).clamp(min=0)[:, None]  # the place of the last positive
    rank, level = (
        each[: len(counts)].gather(1, at)[:, 0].cpu().numpy()
        for each in (lists.ranks, lists.levels)
    )
    size = sizes.cpu().numpy()  # (n,): positives
    # whether the last positive is lost: its rank is the length of the list, distractors included
    is_lost = (size > 0) & (rank == counts.sum(axis=1))
    # Subtract 1 at the level of the lost item, which is 0 for a distractor. An empty list loses
    # none: False is subtracted.
    counts[np.arange(len(counts)), np.where(is_lost, level, 0)] -= counts.sum(axis=1) > 0
    (without_last,) = sent([(size - is_lost).astype(np.int32)], sizes.device)
    return without_last


def _size(shape: Sequence[int]) -> int:
    """How many numbers an array of this shape holds."""
    return int(np.prod(shape))
