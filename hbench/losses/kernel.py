"""The CPU kernel of the rank sums: float32 scores, one sort per list, compiled loops over its sorted items, two threads or more.

It computes what ranks.py defines, list by list, so its result does not depend on the number of threads.
"""

from __future__ import annotations

import importlib.util
import itertools
import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from hbench.losses import ranks
from hbench.losses.lists import Lists, Positives
from hbench.losses.surrogates import Sigmoid, Step, SupRank

Array = np.ndarray[Any, Any]
MOST_ITEMS = 1 << 24  # columns that fit into a key besides score and level
MOST_TERMS = 8
COMPILED = importlib.util.find_spec("numba") is not None


class Sorted(NamedTuple):
    """The items of every list by rank (score down, level up, column up), each (Q, N).

    column int32; score float32; level uint8; place int32 among the positives, −1 for the others.
    """

    column: Array
    score: Array
    level: Array
    place: Array


def usable(scores: Tensor) -> bool:
    """Finite float32 scores on a CPU, where numba is installed; what is not finite takes the general path, and stays so."""
    fits = COMPILED and scores.device.type == "cpu" and scores.dtype == torch.float32 and scores.shape[1] < MOST_ITEMS
    return fits and math.isfinite(scores.detach().sum())


def sort(lists: Lists, positives: Positives) -> Sorted:
    """The items of every list by rank."""
    from hbench.losses import kernel_sort

    scores, levels = _rows(lists.scores), _rows(lists.levels)
    places = torch.full(lists.scores.shape, -1, dtype=torch.int32)
    places[positives.query, positives.item] = torch.arange(len(positives.query), dtype=torch.int32)
    result = Sorted(*(np.empty(scores.shape, dtype=kind) for kind in (np.int32, np.float32, np.uint8, np.int32)))

    def work(part: slice) -> None:
        keys = np.empty(scores[part].shape, dtype=np.uint64)
        kernel_sort.pack(scores[part].view(np.uint32), levels[part], keys)
        keys.sort(axis=1)
        column, score, level, place = (array[part] for array in result)
        kernel_sort.unpack(keys, places.numpy()[part], column, (score.view(np.uint32), level, place))

    _by_threads(work, len(scores))
    return result


def exact_sums(lists: Lists, order: Sorted, positives: Positives, table: Tensor) -> Tensor:
    """ranks.exact_sums, by one walk over each sorted list."""
    from hbench.losses import kernel_sort

    weights, sums = _rows(table), np.zeros(len(positives.query), dtype=np.float32)
    _by_threads(
        lambda part: kernel_sort.exact_sums(order.level[part], order.place[part], weights[part], sums), len(weights)
    )
    return torch.from_numpy(sums)


def step_sums(lists: Lists, order: Sorted, positives: Positives, table: Tensor, step: Step) -> Tensor:
    """ranks.step_sums, over sorted windows of each list; steps that are no sigmoid take that path itself."""
    if not isinstance(step, Sigmoid | SupRank):
        return ranks.step_sums(lists, ranks.sort(lists, positives), positives, table, step)
    result: Tensor = _StepSums.apply(
        lists.scores, order, table, constants(step, lists.scores.shape[1]), len(positives.query)
    )
    return result


class _StepSums(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, scores: Tensor, order: Sorted, table: Tensor, step: Array, number: int) -> Tensor:  # noqa: PLR0917
        from hbench.losses import kernel_grid, kernel_loops

        ctx.order, ctx.table, ctx.step = order, _rows(table), step
        sums, kernels = np.zeros(number, dtype=np.float32), kernel_grid.panel_kernels()

        def work(part: slice) -> None:
            rows = order.score[part], order.level[part], order.place[part]
            kernel_loops.step_values(rows, ctx.table[part], step, kernels, sums)

        _by_threads(work, len(scores))
        return torch.from_numpy(sums)

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor | None, ...]:
        from hbench.losses import kernel_grid, kernel_loops

        order, wanted, kernels = ctx.order, _rows(upstream[0]), kernel_grid.panel_kernels()
        result = np.zeros_like(order.score)

        def work(part: slice) -> None:
            rows = order.score[part], order.level[part], order.place[part]
            kernel_loops.step_slopes(
                rows, ctx.table[part], ctx.step, kernels, (order.column[part], wanted, result[part])
            )

        _by_threads(work, len(result))
        return torch.from_numpy(result), None, None, None, None


def constants(step: Sigmoid | SupRank, items: int) -> Array:
    """τ, δ, ρ, the value just beyond δ, the jump at 0, the reach, and how many terms the tail beyond δ takes, −1 if too many.

    The reach is the t where the sigmoids of all items together vanish beside 1 in float32.
    """
    reach = step.tau * (math.log(max(2, items)) + 17)
    if isinstance(step, Sigmoid):
        return np.array([step.tau, reach, 0.0, 1.0, 0.0, reach, 1])
    at_delta = 1 / (1 + math.exp(-step.delta / step.tau))
    terms = math.ceil(20 * step.tau / step.delta) if step.delta > 0 else MOST_TERMS + 1
    return np.array(
        [
            step.tau,
            step.delta,
            step.rho,
            at_delta + step.start + step.jump,
            step.start,
            reach,
            terms if terms <= MOST_TERMS else -1,
        ]
    )


def _rows(tensor: Tensor) -> Array:
    rows: Array = tensor.detach().contiguous().numpy()
    return rows


def _by_threads(work: Callable[[slice], None], rows: int) -> None:
    """work(part) for parts of the rows, on as many threads as torch uses; every row is computed by itself."""
    threads = min(torch.get_num_threads(), rows)
    if threads < 2:
        work(slice(0, rows))
        return
    bounds = np.linspace(0, rows, threads + 1).astype(int)
    parts = [slice(start, end) for start, end in itertools.pairwise(bounds)]
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(work, parts))
