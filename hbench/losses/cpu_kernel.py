"""Computes the rank sums of float32 scores on a CPU in compiled code, list by list, in order of
rank.

For a positive k, the items with t = s_j − s_k > δ come first. There the step is a line, whose sum
follows from running sums of the weights and of the weighted scores. Then comes the window of items
where the sigmoid is neither 0 nor 1. It is summed directly: with e_j = exp(s_j/τ) the sigmoid is
e_j/(e_j + e_k), so no exponential per pair is needed. The items after the window add nothing. This
is exact: everything is float64 and evaluated as written, so that freshly compiled code and code
from the cache give the same bits; and each list is summed on its own, so that the number of threads
does not matter.
"""

import itertools
import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.autograd.function import once_differentiable

from hbench.core.compiled import compiled, compiled_part
from hbench.losses.cpu_windows import (
    LANES,
    SPAN,
    Floats,
    OneList,
    add_slopes,
    centred,
    first_within,
    window_sums,
)
from hbench.losses.rank_sums import Lists, Positives, with_outside
from hbench.losses.steps import Sigmoid, Step, SupRank

Integers = NDArray[np.int64]
MOST_ITEMS = 1 << 24  # columns that fit into a key next to score and level


class SortedLists(NamedTuple):
    """Q lists with their items in order of rank: `columns`, `scores` and `levels` (Q, N) of the
    items, and `exponentials`, exp((score − highest)/τ + SPAN), which are (Q, N), or empty (Q, 0)
    where no sigmoid is asked for.

    `places` (Q,): the place of each list's first positive among all P positives, which lie query
    by query; `relevance` (Q, L+1): of each level in each list; `weights` (Q, L+1, L+2): what an
    item j weighs for a positive k, by level of k and level of j, where L+1 is outside of the list.
    """

    columns: Integers
    scores: Floats
    levels: NDArray[np.uint8]
    exponentials: Floats
    places: Integers
    relevance: NDArray[np.float32]
    weights: NDArray[np.float32]


class StepShape(NamedTuple):
    """The numbers of a step: σ(t/τ) up to δ, with a jump of `start` at 0; `beyond` + ρ(t − δ) after
    δ; 0 below −`reach`.
    """

    tau: float
    delta: float
    rho: float
    beyond: float
    start: float
    reach: float


def make_lists(scores: Tensor, levels: Tensor, depth: int) -> Lists:
    """Make lists of scores (Q, N): compiled ones for finite float32 scores on a CPU, of fewer than
    MOST_ITEMS columns, since a column takes 24 bits of a key. Other scores need the general code,
    which keeps NaN and ∞. `levels` (Q, N): of the items; `depth`: L."""
    # The sum is finite only if all scores are. The sum of finite scores can overflow, too: then
    # the general code is slower, but gives the same
    fits = (
        scores.device.type == "cpu"
        and scores.dtype == torch.float32
        and scores.shape[1] < MOST_ITEMS
    )
    made = CompiledLists if fits and math.isfinite(scores.detach().sum()) else Lists
    return made(scores, levels, depth)


class CompiledLists(Lists):
    """Lists with sums over pairs in compiled code, except for steps without a sigmoid; positives
    are in order of rank.

    `scores` float32, `levels` (Q, N) in the order of the columns; `sorted_scores` float64,
    `sorted_levels` uint8 (Q, N) and `by_rank`, their columns, in order of rank.
    """

    def arrange(self) -> tuple[Tensor, Tensor]:
        """Sort every list: the counts of each level (Q, L+1), and the columns (Q, N) by rank. Keeps
        levels and scores by rank, (Q, N), for the kernels."""
        scores = self.scores.detach().contiguous()
        levels = self.levels.to(torch.uint8).numpy()
        keys = np.empty(levels.shape, np.uint64)
        # levels 0 … depth, and depth + 1 of what is in no list, such as the query itself
        counts = np.zeros((len(levels), self.depth + 2), np.float32)
        # `view`: the bits of float32, in which larger scores give smaller keys
        pack(scores.numpy().view(np.uint32), levels, keys, counts)
        # a key is the score, the level and, in its low 24 bits, the column: one sort of numbers
        keys.sort(axis=1)
        # uint8 keeps the 8 bits of the level, and drops those of the score above them
        self.sorted_levels = (keys >> np.uint64(24)).astype(np.uint8)
        keys &= np.uint64((1 << 24) - 1)
        by_rank = torch.from_numpy(keys.view(np.int64))
        self.sorted_scores = scores.gather(1, by_rank).double().numpy()
        return torch.from_numpy(counts[:, :-1]), by_rank

    def find_positives(self, table: Tensor) -> Positives:
        """As of `Lists`, but list by list in order of rank; table (Q, L+1): the relevance of every
        level."""
        number = int((self.counts * (table > 0)).sum())
        # compiled code writes into the three rows at once
        query, item, level = columns = torch.empty((3, number), dtype=torch.int64)
        list_positives(self.by_rank.numpy(), self.sorted_levels, table.numpy(), columns.numpy())
        return Positives(query, item, level, table[query, level], table)

    def exact_sums(self, positives: Positives, table: Tensor) -> Tensor:
        """As of `Lists`, compiled."""
        rows = self._rows(positives, table)
        sums = np.empty(len(positives.query), np.float32)
        _by_threads(lambda part: exact_sums(part, sums), rows)
        return torch.from_numpy(sums)

    def step_sums(self, positives: Positives, table: Tensor, step: Step) -> Tensor:
        """As of `Lists`; compiled for the two steps that are sigmoids around 0."""
        if not isinstance(step, Sigmoid | SupRank):  # the general code, tile by tile
            return super().step_sums(positives, table, step)
        rows = self._rows(positives, table)
        shape = shape_of(step, self.scores.shape[1])
        # relative to the best score, so that none overflows; SPAN keeps small ones normal
        below = self.sorted_scores - self.sorted_scores[:, :1]
        below /= step.tau
        below += SPAN
        lists = rows._replace(exponentials=np.exp(below, out=below))
        result: Tensor = _CompiledSums.apply(self.scores, lists, shape, len(positives.query))
        return result

    def _rows(self, positives: Positives, table: Tensor) -> SortedLists:
        """The lists for the kernels, in order of rank and without exponentials; table (Q, L+1,
        L+1): what an item weighs for a positive, by level of the positive and of the item.
        `by_rank`, `sorted_scores`, `sorted_levels` (Q, N): columns, scores and levels by rank."""
        # positives are in order of queries: where those of each query begin
        places = np.searchsorted(positives.query.numpy(), np.arange(len(table)))
        return SortedLists(
            columns=self.by_rank.numpy(),
            scores=self.sorted_scores,
            levels=self.sorted_levels,
            exponentials=np.empty((len(table), 0)),
            places=places,
            relevance=positives.table.numpy(),
            weights=with_outside(table).numpy(),
        )


class _CompiledSums(torch.autograd.Function):
    """`Lists.step_sums` by compiled kernels: the sums of all positives (P,), and with them their
    slopes in the positives' own scores, which the gradient needs."""

    @staticmethod
    def forward(
        ctx: Any, scores: Tensor, rows: SortedLists, shape: StepShape, positives: int
    ) -> Tensor:
        """The sums (P,) of all P positives; their slopes are kept for the gradient. `scores` (Q,
        N): what the sums are differentiated in, by column; `rows`: the same scores by rank;
        `positives`: P."""
        both = np.zeros((2, positives))  # the kernel writes sums and slopes
        _by_threads(lambda part: step_sums(part, shape, both), rows)
        sums, slopes = both
        ctx.rows = rows
        ctx.shape = shape
        ctx.slopes = slopes
        return torch.from_numpy(sums).to(scores)

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor | None, ...]:
        """The gradient to the scores (Q, N), from that of the sums, `upstream[0]` (P,); None for
        the three arguments of `forward` that are no tensors."""
        of_sums = upstream[0].double().numpy()
        # (2, P): the gradient of each sum, and what of it reaches the positive's own score s_k:
        # the sum falls where s_k rises, and the slopes were kept without that sign
        factors = np.stack([of_sums, -of_sums * ctx.slopes])
        gradient = np.empty(ctx.rows.scores.shape, np.float32)
        _by_threads(lambda part, to: step_slopes(part, ctx.shape, factors, to), ctx.rows, gradient)
        return torch.from_numpy(gradient), None, None, None


def shape_of(step: Sigmoid | SupRank, items: int) -> StepShape:
    """Compute the numbers of a step in a list of `items` many items.

    The reach is so large that the sigmoids of all items beyond it sum to less than the precision of
    float32: `items` times e^(−reach/τ) is e^(−17), or 4·10⁻⁸.
    """
    reach = step.tau * (math.log(max(2, items)) + 17)  # 2: of no items there is no logarithm
    if isinstance(step, Sigmoid):
        # a sigmoid has no straight part: 1 takes its place, from where the sigmoid is as good as 1
        return StepShape(tau=step.tau, delta=reach, rho=0.0, beyond=1.0, start=0.0, reach=reach)
    sigmoid_at_delta = 1 / (1 + math.exp(-step.delta / step.tau))
    beyond = sigmoid_at_delta + step.start + step.jump
    return StepShape(step.tau, step.delta, step.rho, beyond, step.start, reach)


def _by_threads(work: Callable[..., None], rows: SortedLists, *more: NDArray[Any]) -> None:
    """Call work(part of the lists, the same part of each array in `more`) on as many threads as
    torch uses. `rows`: Q lists, which are cut into one run of neighbours for each thread; `more`:
    arrays of Q rows. Threads do not meet: a kernel writes only to the places of its own lists.
    """
    threads = min(torch.get_num_threads(), len(rows.scores))
    if threads < 2:
        work(rows, *more)
        return
    edges = [len(rows.scores) * part // threads for part in range(threads + 1)]
    parts = []
    for start, end in itertools.pairwise(edges):  # views: `work` writes to the arrays themselves
        part_of_rows = SortedLists._make(array[start:end] for array in rows)
        parts.append((part_of_rows, *(array[start:end] for array in more)))
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(lambda part: work(*part), parts))


@compiled
def pack(
    bits: NDArray[np.uint32],
    levels: NDArray[np.uint8],
    keys: NDArray[np.uint64],
    counts: NDArray[np.float32],
) -> None:
    """Write keys (Q, N) that sort by score down, level up, column up, from the bits of scores: 32
    bits of the score, 8 of the level, 24 of the column. `bits`, `levels` (Q, N): of the items, by
    column; `counts` (Q, L+2): where the items of each level are counted.
    """
    sign = np.uint32(0x80000000)
    zero = np.uint32(0)
    for row in range(bits.shape[0]):
        for column in range(bits.shape[1]):
            score = bits[row, column]
            level = np.uint64(levels[row, column])
            score = zero if score == sign else score  # −0 equals 0
            # The bits of a float grow with its absolute value. Below 0 they grow as the score
            # falls, as they should, and begin with the sign; from 0 on all others are inverted
            descending = np.uint64(score if score & sign else score ^ ~sign)
            keys[row, column] = (
                (descending << np.uint64(32)) | (level << np.uint64(24)) | np.uint64(column)
            )
            counts[row, level] += 1


@compiled
def list_positives(
    columns: Integers, levels: NDArray[np.uint8], relevance: NDArray[np.float32], to: Integers
) -> None:
    """Write query, item and level, to (3, P), of the items whose level has a relevance above 0,
    list by list, in order of rank. `columns`, `levels` (Q, N): the item at every rank of a query's
    list, and its level; `relevance` (Q, L+1): of every level.
    """
    at = 0  # positives written so far
    for row in range(levels.shape[0]):
        for item in range(levels.shape[1]):  # the place of an item in the list, from 0
            level = levels[row, item]  # L + 1 is outside of the list
            if level < relevance.shape[1] and relevance[row, level] > 0:
                to[0, at], to[1, at], to[2, at] = row, columns[row, item], level
                at += 1


@compiled
def exact_sums(rows: SortedLists, sums: NDArray[np.float32]) -> None:
    """Write sums[place] = Σ_{j before k} weight for every positive k, the `place`-th of all: by
    level, the number of items before k times what one of them weighs for a positive of k's level.
    """
    depth = rows.weights.shape[1]  # L + 1, the level of what is outside of a list
    for row in range(len(rows.scores)):
        before = np.zeros(depth + 1)  # (L+2,): how many items of each level have been passed
        place = rows.places[row]  # of the next positive, among those of all lists
        for item in range(rows.levels.shape[1]):
            level = np.uint64(rows.levels[row, item])
            if level < depth and rows.relevance[row, level] > 0:
                total = 0.0
                for other in range(depth):
                    total += before[other] * rows.weights[row, level, other]
                sums[place] = total
                place += 1
            before[level] += 1


@compiled
def step_sums(rows: SortedLists, shape: StepShape, sums: Floats) -> None:
    """Write sums[0, place] = Σ_{j ≠ k} weight · step(s_j − s_k) for every positive k, the
    `place`-th of all, and sums[1, place] = Σ_{j ≠ k} weight · step'(s_j − s_k), which is the slope
    of the sum in s_k without its minus.
    """
    buffers = make_buffers(rows)
    for row in range(len(rows.scores)):
        list_sums(enter(rows, row, buffers), shape, sums)


@compiled
def step_slopes(
    rows: SortedLists, shape: StepShape, factors: Floats, to: NDArray[np.float32]
) -> None:
    """Write to (Q, N) the gradient of Σ_place factors[0, place] · sum[place] in the scores, each
    item's in its column. `factors` (2, P): the gradient of each positive's sum, and, in factors[1],
    what of it comes to the positive's own score s_k, which is ready.
    """
    buffers = make_buffers(rows)
    gradient = np.empty(rows.scores.shape[1])  # of one list, by rank
    for row in range(len(rows.scores)):
        gradient[:] = 0
        list_slopes(enter(rows, row, buffers), shape, factors, gradient)
        for item in range(len(gradient)):
            to[row, rows.columns[row, item]] = gradient[item]


@compiled_part
def make_buffers(rows: SortedLists) -> OneList:
    """Allocate buffers for any one of the lists. They are LANES places longer than it: sums go over
    it in windows of LANES items, of which the last is filled up."""
    longer = rows.scores.shape[1] + LANES  # N items of a list, (B, N) of all
    depth = rows.relevance.shape[1]  # L + 1 levels
    weight = np.zeros((depth, longer))
    work = np.empty((max(2, depth), longer))  # two rows for the windows' sums, L + 1 for slopes
    exponential = np.ones(longer)  # times a weight of 0 it adds nothing
    # the first list stands for any, and so does the place of its first positive
    place = 0
    return OneList(
        rows.scores[0], rows.levels[0], place, rows.relevance[0], exponential, weight, work
    )


@compiled_part
def enter(rows: SortedLists, row: int, buffers: OneList) -> OneList:
    """Load one of the lists into the buffers. Weights are loaded only as positives of a level with
    a relevance see them, for no other level has positives."""
    levels = rows.levels[row]
    relevance = rows.relevance[row]
    # the LANES places of the buffers behind the list keep weights of 0
    buffers.exponential[: len(levels)] = rows.exponentials[row]
    for level in range(1, len(relevance)):
        if relevance[level] > 0:
            weights = rows.weights[row, level]
            weight = buffers.weight[level]
            for item in range(len(levels)):
                weight[item] = weights[np.uint64(levels[item])]
    parts = rows.scores[row], levels, rows.places[row], relevance
    return OneList(*parts, buffers.exponential, buffers.weight, buffers.work)


@compiled_part
def list_sums(one: OneList, shape: StepShape, sums: Floats) -> None:
    """Compute step_sums of one list: to `sums` (2, P), the values and slopes of its positives.

    Items lie by falling score, and a positive k meets three kinds of them: those more than δ above
    it, on the straight part of the step, whose sums of weights (`beyond`) and of weighted scores
    (`moment`) give the value at once; a window around it, where the sigmoid counts; and those so
    far below that they add nothing. The window's borders only move down from one positive to the
    next, so that each item is passed once.
    """
    number = len(one.scores)
    place = one.place  # of the next positive, among those of all lists
    # around which the exponentials were made: that of the best score is e^SPAN
    centre = one.scores[0] - SPAN * shape.tau
    first = 0  # of the window
    below = 0  # the first item whose score is below the positive's
    last = 0  # the end of the window
    # (L+1,) each, by level of k. Over the items more than δ above k: sums of weights, and of
    # weights times scores; over all items not below k: sums of weights
    lines = np.zeros((3, len(one.relevance)))
    beyond, moment, above = lines

    for item in range(number):
        level = np.int64(one.levels[item])
        score = one.scores[item]
        if level >= len(one.relevance) or one.relevance[level] <= 0:
            continue  # no positive
        centre = centred(one, score, shape.tau, centre)
        passed = first  # items from here to the new `first` leave the window for the line
        first = first_within(one.scores, score, first, shape.delta)
        last = first_within(one.scores, score, last, -shape.reach)
        for before in range(passed, first):
            for other in range(len(beyond)):
                beyond[other] += one.weight[other, before]
                moment[other] += one.weight[other, before] * one.scores[before]
        while below < number and one.scores[below] >= score:
            for other in range(len(above)):
                above[other] += one.weight[other, below]
            below += 1
        # the end of the window, moved on to whole lanes: items there are below the reach, or are
        # places behind the list, of weight 0
        parts = first + (last - first + LANES - 1) // LANES * LANES
        window = one.exponential[first:parts]
        weight = one.weight[level, first:parts]
        value, slope = window_sums(window, weight, one.exponential[item], one.work)
        line = shape.beyond * beyond[level] + shape.rho * (
            moment[level] - beyond[level] * (score + shape.delta)
        )
        # `start` for each item not below k, but for those on the line, which has it already
        jump = shape.start * (above[level] - beyond[level])
        # the window includes k, whose step at a difference of 0 is ½ + start
        itself = one.weight[level, item] * (0.5 + shape.start)
        sums[0, place], sums[1, place] = (
            value + line + jump - itself,
            slope / shape.tau + shape.rho * beyond[level],
        )
        place += 1


@compiled_part
def list_slopes(one: OneList, shape: StepShape, factors: Floats, gradient: Floats) -> None:
    """Add what `step_slopes` writes for one list to its `gradient` (N,), by rank; `factors` (2, P):
    the gradient of each positive's sum, and what of it comes to the positive's own score.

    The windows are those of `list_sums`. For the items more than δ above a positive the step is a
    line, so that the positive adds the same to each of them, but for their weights: this is noted
    at the place where those items end, and all such notes are summed up at last.
    """
    number = len(one.scores)
    place = one.place  # of the next positive, among those of all lists
    centre = one.scores[0] - SPAN * shape.tau  # around which the exponentials were made
    first = 0  # of the window, and its end
    last = 0
    # (L+1, N+1): by level of k, what is added to all items before a place
    lines = np.zeros((len(one.relevance), number + 1))
    one.work[:] = 0  # (L+1, N) and more: by level of k and item, the slopes of sigmoids

    for item in range(number):
        level = np.int64(one.levels[item])
        score = one.scores[item]
        if level >= len(one.relevance) or one.relevance[level] <= 0:
            continue
        centre = centred(one, score, shape.tau, centre)
        first = first_within(one.scores, score, first, shape.delta)
        last = first_within(one.scores, score, last, -shape.reach)
        share = factors[0, place]
        window = one.exponential[first:last]
        add_slopes(window, one.exponential[item], share / shape.tau, one.work[level, first:last])
        lines[level, first] += share
        gradient[item] += factors[1, place]
        place += 1

    # up the list: `line` is the sum of the notes at places behind an item, hence of the positives
    # more than δ below it. A positive of level 0 does not exist
    for other in range(1, len(one.relevance)):
        line = 0.0
        for item in range(number - 1, -1, -1):
            line += lines[other, item + 1]
            gradient[item] += one.weight[other, item] * (one.work[other, item] + shape.rho * line)
