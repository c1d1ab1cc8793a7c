"""Lists of float32 scores on a CPU whose rank sums are compiled (hbench/losses/cpu_kernel.py)."""

import itertools
import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.autograd.function import once_differentiable

from hbench.losses.cpu_kernel import (
    SPAN,
    SortedLists,
    StepShape,
    exact_sums,
    list_positives,
    pack,
    step_slopes,
    step_sums,
)
from hbench.losses.rank_sums import Lists, Positives, with_outside
from hbench.losses.steps import Sigmoid, Step, SupRank

MOST_ITEMS = 1 << 24  # columns that fit into a key next to score and level


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
