"""Loops, compiled, over lists and the levels of their positives for rank_sums.py.

A step is σ(t/τ) up to δ, `beyond` + ρ(t − δ) after it, and jumps by `start` at 0; see rank_sums.constants. Rows are column, score
and level (Q, N), sorted; tables are relevance (Q, L+1) and one or more of (Q, L+1, L+1) or, with 0 for items outside,
(Q, L+1, L+2).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hbench.core.compiled import machine_code
from hbench.losses.cpu.chebyshev import panel_slopes, panel_values, worth_panels
from hbench.losses.cpu.lists import bounds, by_level, exact_parts, level_lists, room, sums_before, weigh
from hbench.losses.cpu.windows import direct_ratios, direct_slopes, direct_values

Array = np.ndarray[Any, Any]


@machine_code()
def line_values(own: Array, sums: Any, edges: Any, step: Array, values: Array) -> None:
    """values[k] += Σ_{t > δ} w (beyond + ρ(t − δ)) + start · Σ_{0 ≤ t ≤ δ} w; edges: first item with t ≤ δ and with t < 0."""
    (weight_sums, score_sums), (first, zero) = sums, edges
    _, delta, rho, beyond, start, _, _ = step
    for k in range(len(own)):
        begin = np.uint64(first[k])
        weights, above = weight_sums[begin], weight_sums[np.uint64(zero[k])]
        values[k] += (
            rho * (score_sums[begin] - weights * (own[k] + delta)) + beyond * weights + start * (above - weights)
        )


@machine_code()
def line_slopes(wanted: Array, weight_sums: Array, first: Array, rho: float, slopes: Any) -> None:
    """to_own[k] += ρ g_k Σ_{t > δ} w, to_item[j] += ρ Σ_{k: t > δ} g_k."""
    (to_own, to_item), total = slopes, 0.0
    for k in range(len(wanted) - 1, -1, -1):
        begin, end = np.uint64(first[k - 1]) if k else np.uint64(0), np.uint64(first[k])
        to_own[k] += rho * weight_sums[end] * wanted[k]
        total += wanted[k]
        share = np.float32(rho * total)
        for item in range(begin, end):
            to_item[item] += share


@machine_code()
def spread(positives: Any, items: Any, weights: Array, gradient: Array) -> None:
    """gradient of the row: −to_own of its positives, and weight · to_item of all items that count."""
    (position, to_own), (level, before, to_item) = positives, items
    for k in range(len(position)):
        gradient[np.uint64(position[k])] -= np.float32(to_own[k])
    for item in range(len(level)):
        gradient[item] += weights[np.uint64(level[item])] * to_item[np.uint64(before[item])]


@machine_code()
def ratios(rows: Any, tables: Any, step: Array, kernels: Array, results: Any) -> None:
    """values[row] = Σ_k gain(k)/rank(k) over the positives of each list, and slopes its gradient in the scores (Q, N).

    rank(k) = 1 + Σ_{j before k} others + Σ_{j ≠ k} less · step(s_j − s_k), gain(k) = relevance + Σ_{j before k} shared; `less`
    is 0 or 1. The two exact tables are [level of j, level of k].
    """
    (column, score, level), (relevance, less, others, shared), (values, slopes) = rows, tables, results
    rooms, gradient = room(score.shape[1], relevance.shape[1]), np.empty(score.shape[1], np.float32)
    integers, floats, doubles, start = rooms
    floats[1], doubles[5] = 1, np.arange(doubles.shape[1])  # every item that counts weighs 1
    for row in range(len(score)):
        listed = integers[0, : by_level(level[row], start, integers[0], integers[1])]
        bounds(score[row], listed, step, (integers[2], integers[3], integers[4]))
        exact_parts(level[row], listed, (others[row], shared[row]), (doubles[0], doubles[1]))
        gradient[:], total = 0, 0.0
        for at in range(1, relevance.shape[1]):
            if relevance[row, at] > 0 and start[at] < start[at + 1]:
                positives, parts = integers[1, start[at] : start[at + 1]], (score[row], level[row], less[row, at])
                total += _level_ratios(positives, relevance[row, at], parts, (step, kernels), (rooms, gradient))
        values[row] = total
        for item in range(len(gradient)):
            slopes[row, np.uint64(column[row, item])] = gradient[item]


@machine_code()
def _level_ratios(position: Array, relevance: float, row: Any, step: Any, work: Any) -> float:
    """Σ gain/rank of the positives of one level; its gradient is added to that of the row."""
    (numbers, kernels), (rooms, gradient), doubles = step, work, work[0][2]
    own, items, edges = level_lists(position, row, rooms)
    sums, lines = (doubles[5], doubles[6]), edges[0][-1]
    wanted, to_item = rooms[1][4, : len(own)], rooms[1][5, : len(items[1])]
    rank, gain, to_own = doubles[2, : len(own)], doubles[3, : len(own)], doubles[4, : len(own)]
    for k in range(len(own)):
        at = np.uint64(position[k])
        rank[k], gain[k] = 1 + doubles[0, at], relevance + doubles[1, at]
    to_own[:], to_item[:] = 0, 0
    sums_before(items[0][:lines], items[1][:lines], sums)
    line_values(own, sums, edges[:2], numbers, rank)
    if worth_panels(own, items[0], edges, numbers):
        panel_values(own, items, edges[0], numbers, (kernels, rank))
        for k in range(len(own)):
            wanted[k] = -gain[k] / (rank[k] * rank[k])
        panel_slopes((own, wanted), items, edges[0], numbers, (kernels, to_own, to_item))
    else:
        direct_ratios((own, rank, gain), items, edges, numbers, (wanted, to_own, to_item))
    line_slopes(wanted, sums[0], edges[0], numbers[2], (to_own, to_item))
    spread((position, to_own), (row[1], rooms[0][5], to_item), row[2], gradient)
    total = 0.0
    for k in range(len(own)):
        total += gain[k] / rank[k]
    return total


@machine_code()
def exact_sums(level: Array, tables: Any, first: Array, sums: Array) -> None:
    """sums = Σ of table[level of j, level of k] over the items j before k, of every positive k in order; first of each list."""
    relevance, table = tables
    integers, _, doubles, start = room(level.shape[1], relevance.shape[1])
    listed, found = integers[0], doubles[0]
    for row in range(len(level)):
        number = by_level(level[row], start, listed, integers[1])
        exact_parts(level[row], listed[:number], (table[row], table[row]), (found, found))
        place = first[row]
        for at in range(number):
            own = level[row, listed[at]]
            if own < relevance.shape[1] and relevance[row, own] > 0:
                sums[place] = found[listed[at]]
                place += 1


@machine_code()
def step_values(rows: Any, tables: Any, step: Array, kernels: Array, sums: Any) -> None:
    """result = Σ_{j ≠ k} table[level of k, level of j] · step(s_j − s_k) of every positive k in order; sums: first, result."""
    (_, score, level), (relevance, table), (first, result) = rows, tables, sums
    rooms = room(score.shape[1], relevance.shape[1])
    integers, _, doubles, start = rooms
    for row in range(len(score)):
        _prepare((score[row], level[row]), relevance[row], step, rooms)
        for at in range(1, relevance.shape[1]):
            if relevance[row, at] <= 0 or start[at] == start[at + 1]:
                continue
            position = integers[1, start[at] : start[at + 1]]
            own, items, edges = _weighted((score[row], level[row], table[row, at]), position, rooms)
            values = doubles[2, : len(own)]
            values[:] = -table[row, at, at] * (0.5 + step[4])  # the positive itself, which the sums below count
            line_values(own, (doubles[5], doubles[6]), edges[:2], step, values)
            if worth_panels(own, items[0], edges, step):
                panel_values(own, items, edges[0], step, (kernels, values))
            else:
                direct_values(own, items, edges, step, values)
            for k in range(len(own)):
                result[first[row] + np.int64(doubles[0, position[k]])] = values[k]


@machine_code()
def step_slopes(rows: Any, tables: Any, step: Array, kernels: Array, gradients: Any) -> None:
    """result[row] = the gradient of Σ upstream · step_values in the scores; gradients: first, upstream, result."""
    (column, score, level), (relevance, table), (first, upstream, result) = rows, tables, gradients
    rooms, gradient = room(score.shape[1], relevance.shape[1]), np.empty(score.shape[1], np.float32)
    (integers, floats, doubles, start), sums = rooms, (rooms[2][5], rooms[2][6])
    for row in range(len(score)):
        _prepare((score[row], level[row]), relevance[row], step, rooms)
        gradient[:] = 0
        for at in range(1, relevance.shape[1]):
            if relevance[row, at] <= 0 or start[at] == start[at + 1]:
                continue
            position = integers[1, start[at] : start[at + 1]]
            own, items, edges = _weighted((score[row], level[row], table[row, at]), position, rooms)
            wanted, slopes = floats[4, : len(own)], (doubles[4, : len(own)], floats[5, : len(items[1])])
            slopes[0][:], slopes[1][:] = 0, 0
            for k in range(len(own)):
                wanted[k] = upstream[first[row] + np.int64(doubles[0, position[k]])]
            if worth_panels(own, items[0], edges, step):
                panel_slopes((own, wanted), items, edges[0], step, (kernels, slopes[0], slopes[1]))
            else:
                direct_slopes((own, wanted), items, edges, step, slopes)
            line_slopes(wanted, sums[0], edges[0], step[2], slopes)
            spread((position, slopes[0]), (level[row], integers[5], slopes[1]), table[row, at], gradient)
        for item in range(len(gradient)):
            result[row, np.uint64(column[row, item])] = gradient[item]


@machine_code()
def _prepare(row: Any, relevance: Array, step: Array, rooms: Any) -> None:
    """The row by level, its edges, and which positive, counted by rank, every item is."""
    (score, level), (integers, _, doubles, start) = row, rooms
    listed = integers[0, : by_level(level, start, integers[0], integers[1])]
    bounds(score, listed, step, (integers[2], integers[3], integers[4]))
    place = 0
    for at in range(len(listed)):
        own, doubles[0, listed[at]] = level[listed[at]], place
        place += own < len(relevance) and relevance[own] > 0


@machine_code()
def _weighted(row: Any, position: Array, rooms: Any) -> Any:
    """level_lists, with the weights of the table and the sums of both before every item."""
    own, items, edges = level_lists(position, row, rooms)
    weigh(row[1], row[2], rooms[0][5], items[1])
    sums_before(items[0], items[1], (rooms[2][5], rooms[2][6]))
    return own, items, edges
