"""Computes the rank sums of float32 scores on a CPU: one sort per list, then compiled loops over its sorted items, on all threads.

It computes what losses/rank_sums.py defines, list by list, so its result does not depend on the number of threads.
"""

from __future__ import annotations

import importlib.util
import itertools
import math
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from hbench.losses import rank_sums
from hbench.losses.rank_sums import Lists, Positives, RelevanceSplit
from hbench.losses.steps import Sigmoid, Step, SupRank

Array = np.ndarray[Any, Any]
MOST_ITEMS = 1 << 24  # columns that fit into a key besides score and level
MOST_TERMS = 8
COMPILED = importlib.util.find_spec("numba") is not None


class SortedLists(NamedTuple):
    """The items of every list by rank (score down, level up, column up): column int32, score float32, level uint8, each (Q, N)."""

    column: Array
    score: Array
    level: Array


def usable(scores: Tensor) -> bool:
    """Finite float32 scores on a CPU, where numba is installed; what is not finite takes the general path, and stays so."""
    fits = COMPILED and scores.device.type == "cpu" and scores.dtype == torch.float32 and scores.shape[1] < MOST_ITEMS
    return fits and math.isfinite(scores.detach().sum())


def shared_levels(labels: Tensor, ref_labels: Tensor) -> Tensor:
    """lists.shared_levels, as uint8."""
    from hbench.losses.cpu import lists as kernel_sort

    rows, columns = _rows(labels), _rows(ref_labels.T)
    result = torch.empty(len(labels), len(ref_labels), dtype=torch.uint8)
    _by_threads(lambda part: kernel_sort.shared_levels(rows[part], columns, result.numpy()[part]), len(rows))
    return result


def make_lists(scores: Tensor, levels: Tensor, depth: int) -> Lists:
    """ranks.make_lists, sorted by rank only."""
    from hbench.losses.cpu import lists as kernel_sort

    levels = levels.to(torch.uint8)
    bits, level = _rows(scores).view(np.uint32), _rows(levels)
    counts = np.empty((len(level), depth + 1), np.float32)
    order = SortedLists(*(np.empty(level.shape, dtype=kind) for kind in (np.int32, np.float32, np.uint8)))

    def work(part: slice) -> None:
        keys = np.empty(level[part].shape, dtype=np.uint64)
        kernel_sort.pack(bits[part], level[part], keys, counts[part])
        keys.sort(axis=1)
        kernel_sort.unpack(keys, order.column[part], order.score[part].view(np.uint32), order.level[part])

    _by_threads(work, len(level))
    return Lists(scores, levels, torch.from_numpy(counts), order)


def find_positives(lists: Lists, table: Tensor) -> Positives:
    """lists.find_positives, each list's by rank."""
    from hbench.losses.cpu import lists as kernel_sort

    number = (lists.counts * (table > 0)).sum(1).long()
    start, total = number.cumsum(0) - number, int(number.sum())
    query, item, level = (torch.empty(total, dtype=torch.int64) for _ in range(3))
    relevance = torch.empty(total)
    found = tuple(tensor.numpy() for tensor in (query, item, level, relevance))
    kernel_sort.find_positives((lists.order.column, lists.order.level), _rows(table), start.numpy(), found)
    return Positives(query, item, level, relevance, table)


def exact_sums(lists: Lists, positives: Positives, table: Tensor) -> Tensor:
    """ranks.exact_sums, by one walk over each sorted list."""
    from hbench.losses.cpu import loops

    sums, level = np.empty(len(positives.query), dtype=np.float32), lists.order.level
    tables, first = (_rows(positives.table), _rows(table[:, :, :-1].transpose(1, 2))), _first(positives)

    def work(part: slice) -> None:
        loops.exact_sums(level[part], _part(tables, part), first[part], sums)

    _by_threads(work, len(level))
    return torch.from_numpy(sums)


def step_sums(lists: Lists, positives: Positives, table: Tensor, step: Step) -> Tensor:
    """ranks.step_sums, over sorted windows of each list; steps that are no sigmoid take that path itself."""
    if not isinstance(step, Sigmoid | SupRank):
        general = rank_sums.make_lists(lists.scores, lists.levels.long(), table.shape[1] - 1)
        return rank_sums.step_sums(general, positives, table, step)
    tables, numbers = (_rows(positives.table), _rows(table)), constants(step, lists.scores.shape[1])
    result: Tensor = _CompiledStepSums.apply(lists.scores, (lists.order, tables), numbers, positives)
    return result


class _CompiledStepSums(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, scores: Tensor, rows: tuple[SortedLists, Any], step: Array, positives: Positives) -> Tensor:
        from hbench.losses.cpu import chebyshev, loops

        ctx.rows, ctx.step, ctx.first = rows, step, _first(positives)
        sums, kernels = np.empty(len(positives.query), dtype=np.float32), chebyshev.panel_kernels()

        def work(part: slice) -> None:
            order, tables = (_part(arrays, part) for arrays in rows)
            loops.step_values(order, tables, step, kernels, (ctx.first[part], sums))

        _by_threads(work, len(scores))
        return torch.from_numpy(sums)

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor | None, ...]:
        from hbench.losses.cpu import chebyshev, loops

        wanted, kernels = _rows(upstream[0]), chebyshev.panel_kernels()
        result = np.empty_like(ctx.rows[0].score)

        def work(part: slice) -> None:
            order, tables = (_part(arrays, part) for arrays in ctx.rows)
            loops.step_slopes(order, tables, ctx.step, kernels, (ctx.first[part], wanted, result[part]))

        _by_threads(work, len(result))
        return torch.from_numpy(result), None, None, None


def ratios(lists: Lists, table: Tensor, split: RelevanceSplit, step: Sigmoid | SupRank) -> Tensor:
    """Σ_k H-rank(k)/rank(k) of every list, with `step` for less relevant items and the exact one elsewhere: (Q,)."""
    less = split.less.to(table)
    others, shared = 1 - less.transpose(1, 2), rank_sums.shared_relevance(table)
    tables = tuple(map(_rows, (table, rank_sums.with_outside(less), others, shared)))
    result: Tensor = _Ratios.apply(lists.scores, lists.order, tables, constants(step, lists.scores.shape[1]))
    return result


class _Ratios(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, scores: Tensor, order: SortedLists, tables: tuple[Array, ...], step: Array) -> Tensor:
        from hbench.losses.cpu import chebyshev, loops

        values, slopes = np.empty(len(scores), np.float32), np.empty(scores.shape, np.float32)
        kernels = chebyshev.panel_kernels()

        def work(part: slice) -> None:
            results = values[part], slopes[part]
            loops.ratios(_part(order, part), _part(tables, part), step, kernels, results)

        _by_threads(work, len(scores))
        ctx.slopes = torch.from_numpy(slopes)
        return torch.from_numpy(values)

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor | None, ...]:
        return upstream[0][:, None] * ctx.slopes, None, None, None


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


def _first(positives: Positives) -> Array:
    """The place of each query's first positive."""
    first: Array = np.searchsorted(positives.query.numpy(), np.arange(len(positives.table)))
    return first


def _part(arrays: Iterable[Array], part: slice) -> tuple[Array, ...]:
    return tuple(array[part] for array in arrays)


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
