"""Lists of float32 scores on a CPU, whose rank sums are computed by compiled kernels
(hbench/losses/cpu_kernel.py)."""

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
from hbench.losses.rank_sums import Lists
from hbench.losses.rank_sums.step_sums import Positives, with_outside
from hbench.losses.steps import Sigmoid, Step, SupRank

MOST_ITEMS = 1 << 24  # columns that fit into a key next to score and level


def make_lists(scores: Tensor, levels: Tensor, depth: int) -> Lists:
    """Make lists of scores (Q, N). Finite float32 scores on a CPU get compiled lists, if they have
    fewer than MOST_ITEMS columns: each item is sorted by a key of 64 bits, of which the score takes
    32, the level 8 and the column 24. Other scores get the general code, which also handles NaN and
    ∞. `levels` (Q, N): of the items; `depth`: L."""
    # The sum is finite only if all scores are. If a sum of finite scores overflows, the general
    # code is used, which is slower but gives the same result.
    fits = (
        scores.device.type == "cpu"
        and scores.dtype == torch.float32
        and scores.shape[1] < MOST_ITEMS
    )
    made = CompiledLists if fits and math.isfinite(scores.detach().sum()) else Lists
    return made(scores, levels, depth)


class CompiledLists(Lists):
    """Lists whose sums over pairs are computed by compiled kernels, except for steps without a
    sigmoid. The positives of a list are in order of rank.

    `scores` float32, `levels` (Q, N): in the order of the columns. `sorted_scores` float64,
    `sorted_levels` uint8 (Q, N): in order of rank; `by_rank` (Q, N): the columns in this order.
    """

    def arrange(self) -> tuple[Tensor, Tensor]:
        """Sort all lists. Return the counts of each level (Q, L + 1), and the columns (Q, N) by
        rank. Also set `sorted_levels` and `sorted_scores`. Items outside of a list are sorted by
        their scores like all others; the kernels tell them by their level, L + 1."""
        scores = self.scores.detach().contiguous()
        levels = self.levels.to(torch.uint8).numpy()
        keys = np.empty(levels.shape, np.uint64)
        # levels 0 … depth, and depth + 1 for items outside of the list, such as the query itself
        counts = np.zeros((len(levels), self.depth + 2), np.float32)
        # keys are made of the bits of float32 (`view`); a larger score gives a smaller key
        pack(scores.numpy().view(np.uint32), levels, keys, counts)
        # a key has the score, the level, and in its low 24 bits the column, so that one sort of
        # integers sorts by all three
        keys.sort(axis=1)
        # uint8 keeps the 8 bits of the level, and drops those of the score above them
        self.sorted_levels = (keys >> np.uint64(24)).astype(np.uint8)
        keys &= np.uint64((1 << 24) - 1)
        by_rank = torch.from_numpy(keys.view(np.int64))
        self.sorted_scores = scores.gather(1, by_rank).double().numpy()
        # without the last column, the items outside of the list
        return torch.from_numpy(counts[:, :-1]), by_rank

    def find_positives(self, table: Tensor) -> Positives:
        """Find the items of positive relevance, list by list, and in a list in order of rank.
        `table` (Q, L + 1): the relevance of each level in each list, 0 for distractors."""
        number = int((self.counts * (table > 0)).sum())
        # the kernel writes to the three rows of one array, which are unpacked here
        query, item, level = columns = torch.empty((3, number), dtype=torch.int64)
        list_positives(self.by_rank.numpy(), self.sorted_levels, table.numpy(), columns.numpy())
        return Positives(query, item, level, table[query, level], table)

    def exact_sums(self, positives: Positives, table: Tensor) -> Tensor:
        """Compute Σ_{j before k} table[q, level of k, level of j] for each positive k of query q:
        float32 (P,), without a gradient. `table` (Q, L + 1, L + 1): the weight of an item j for a
        positive k, by level of each."""
        rows = self._rows(positives, table)
        sums = np.empty(len(positives.query), np.float32)
        _by_threads(lambda part: exact_sums(part, sums), rows)
        return torch.from_numpy(sums)

    def step_sums(self, positives: Positives, table: Tensor, step: Step) -> Tensor:
        """Compute Σ_{j ≠ k} table[q, level of k, level of j] · step(s_j − s_k) for each positive k
        of query q: (P,), differentiable. Sigmoid and SupRank, which are sigmoids around 0, have a
        compiled kernel; other steps take the general code of `Lists`. `table` (Q, L + 1, L + 1):
        the weight of an item j for a positive k, by level of each."""
        if not isinstance(step, Sigmoid | SupRank):  # the general code, tile by tile
            return super().step_sums(positives, table, step)
        # the lists as the kernel takes them, in order of rank, still without exponentials
        rows = self._rows(positives, table)
        # The constants of the step. They depend on the number of items, since the sigmoids beyond
        # the step's reach must be negligible even when they are added up over all items.
        shape = shape_of(step, self.scores.shape[1])
        # (Q, N), by rank: the exponents of the kernel's exponentials.
        # Exponents are relative to the best score of a list, so that no exponential overflows.
        # SPAN is added so that lower scores do not underflow too soon.
        below = self.sorted_scores - self.sorted_scores[:, :1]
        below /= step.tau
        below += SPAN
        lists = rows._replace(exponentials=np.exp(below, out=below))
        result: Tensor = _CompiledSums.apply(self.scores, lists, shape, len(positives.query))
        return result

    def _rows(self, positives: Positives, table: Tensor) -> SortedLists:
        """Make the lists for the kernels, in order of rank.

        The exponentials are left empty, because exact sums do not need them; `step_sums` adds them.
        `table` (Q, L + 1, L + 1) is the weight of an item for a positive, by level of the positive
        and of the item. In contrast, `positives.table` (Q, L + 1) is the relevance of each level.
        """
        # positives are sorted by query, so this finds where those of each query begin
        places = np.searchsorted(positives.query.numpy(), np.arange(len(table)))
        return SortedLists(
            columns=self.by_rank.numpy(),
            scores=self.sorted_scores,
            levels=self.sorted_levels,
            exponentials=np.empty((len(table), 0)),
            places=places,
            relevance=positives.table.numpy(),
            weights=with_outside(table).numpy(),  # (Q, L + 1, L + 2), 0 outside of the list
        )


class _CompiledSums(torch.autograd.Function):
    """`Lists.step_sums` by compiled kernels: the sums of all positives (P,), and their slopes in
    the positives' own scores, which the gradient needs."""

    @staticmethod
    def forward(
        ctx: Any, scores: Tensor, rows: SortedLists, shape: StepShape, positives: int
    ) -> Tensor:
        """The sums (P,) of all P positives; their slopes are kept for the gradient.

        `scores` (Q, N): by column; only an input, so that autograd differentiates by it. `rows`:
        the same scores by rank. `positives`: P.
        """
        both = np.zeros((2, positives))  # the kernel writes sums and slopes
        _by_threads(lambda part: step_sums(part, shape, both), rows)
        sums, slopes = both
        ctx.rows = rows
        ctx.step_shape = shape
        ctx.slopes = slopes
        return torch.from_numpy(sums).to(scores)

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradient with respect to the scores (Q, N), given `upstream[0]` (P,), the
        gradient with respect to the only output of `forward`, the sums. The three arguments of
        `forward` that are not tensors get None."""
        of_sums = upstream[0].double().numpy()
        # (2, P), for each positive k: the gradient with respect to its sum Σ_j step(s_j − s_k), and
        # the part of the gradient with respect to s_k that comes from this sum. When s_k increases,
        # the sum decreases by the sum of the slopes of these steps, `slopes` (P,).
        factors = np.stack([of_sums, -of_sums * ctx.slopes])
        gradient = np.empty(ctx.rows.scores.shape, np.float32)  # `step_slopes` writes all of it
        _by_threads(
            lambda part, to: step_slopes(part, ctx.step_shape, factors, to), ctx.rows, gradient
        )
        return torch.from_numpy(gradient), None, None, None


def shape_of(step: Sigmoid | SupRank, items: int) -> StepShape:
    """The constants of a step for lists of this many `items`. A SupRank is a sigmoid, to which
    `start` is added from 0 on and `jump` at δ; from there on it is a line of slope `rho`.

    The reach is so large that the sigmoids of all items beyond it sum to less than the precision of
    float32: `items` times e^(−reach/τ) is e^(−17), or 4·10⁻⁸.
    """
    reach = step.tau * (math.log(max(2, items)) + 17)  # max, because 0 has no logarithm
    if isinstance(step, Sigmoid):
        # a sigmoid has no straight part; the constant 1 is used where it is practically 1
        return StepShape(tau=step.tau, delta=reach, rho=0.0, beyond=1.0, start=0.0, reach=reach)
    # `beyond`: the value of the step just above δ
    sigmoid_at_delta = 1 / (1 + math.exp(-step.delta / step.tau))
    beyond = sigmoid_at_delta + step.start + step.jump
    return StepShape(step.tau, step.delta, step.rho, beyond, step.start, reach)


def _by_threads(work: Callable[..., None], rows: SortedLists, *more: NDArray[Any]) -> None:
    """Call work(part of the lists, the same part of each array in `more`) on as many threads as
    torch uses. `rows`: Q lists, of which each thread gets some neighbouring ones. `more`: arrays
    with Q rows. No lock is needed, as a kernel writes only to the places of its own lists.
    """
    threads = min(torch.get_num_threads(), len(rows.scores))
    if threads < 2:
        work(rows, *more)
        return
    edges = [len(rows.scores) * part // threads for part in range(threads + 1)]
    parts = []
    for start, end in itertools.pairwise(edges):  # slices are views, so `work` fills the arrays
        part_of_rows = SortedLists._make(array[start:end] for array in rows)
        parts.append((part_of_rows, *(array[start:end] for array in more)))
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(lambda part: work(*part), parts))  # `list` raises the errors of threads
