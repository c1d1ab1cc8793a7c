"""Lays out one list for the kernels: its positives level by level, the items that count for those of a level, their windows.

Everything is by rank: scores fall, so for each positive the items beyond δ come first. Indices are unsigned, so that none is
checked for counting from the end. A list's room is reused for the next.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hbench.core.compiled import machine_code

Array = np.ndarray[Any, Any]
LANES = 32  # items by which a loop over a window advances; lists end in as many that count nothing


@machine_code()
def room(number: int, depth: int) -> Any:
    """Integers by place in rank, floats and doubles by item or positive, and where the levels start."""
    integers, floats = np.empty((9, number + 1), np.int32), np.empty((6, number + LANES), np.float32)
    return integers, floats, np.empty((7, number + 1)), np.empty(depth + 2, np.int64)


@machine_code()
def by_level(level: Array, start: Array, listed: Array, position: Array) -> int:
    """position[start[l] : start[l + 1]] = the items of level l = 1 … L+1; listed: all of them by rank; returns how many."""
    count = np.uint64(0)
    for item in range(len(level)):  # without a branch, which would be mispredicted half the time, as in all such loops
        listed[count] = item
        count += np.uint64(level[item] != 0)
    start[:] = 0
    for at in range(count):
        start[np.uint64(level[np.uint64(listed[at])]) + np.uint64(1)] += 1
    for at in range(1, len(start)):
        start[at] += start[at - 1]
    after = start.copy()
    for at in range(count):
        own = np.uint64(level[np.uint64(listed[at])])
        position[np.uint64(after[own])] = listed[at]
        after[own] += 1
    return int(count)


@machine_code()
def bounds(score: Array, listed: Array, step: Array, edges: Any) -> None:
    """For every listed item k the first item with t ≤ δ, the first with t < 0, and the one after the last within reach."""
    (first, zero, last), number = edges, np.uint64(len(score))
    furthest, nearest = np.float32(step[1]), np.float32(step[5])
    begin, below, end = np.uint64(0), np.uint64(0), np.uint64(0)
    for at in range(len(listed)):
        item = np.uint64(listed[at])
        own = score[item]
        while begin < number and score[begin] - own > furthest:
            begin += np.uint64(1)
        below = max(below, item)
        while below < number and score[below] >= own:
            below += np.uint64(1)
        while end < number and own - score[end] < nearest:
            end = min(end + np.uint64(LANES), number)
        first[item], zero[item], last[item] = begin, below, end


@machine_code()
def exact_parts(level: Array, listed: Array, tables: Any, sums: Any) -> None:
    """sums[item] = Σ of table[level of j, level of k] over the items j before listed item k, for both tables (L+1, L+1)."""
    (first, second), (of_first, of_second) = tables, sums
    depth = np.uint64(len(first))
    running = np.zeros((2, len(first)))
    for at in range(len(listed)):
        item = np.uint64(listed[at])
        own = np.uint64(level[item])
        if own < depth:
            distractors = np.float64(item - at)
            of_first[item] = running[0, own] + distractors * first[0, own]
            of_second[item] = running[1, own] + distractors * second[0, own]
            for other in range(depth):
                running[0, other] += first[own, other]
                running[1, other] += second[own, other]


@machine_code()
def gather(score: Array, level: Array, weights: Array, kept: Array, before: Array) -> int:
    """How many items have a non-zero weight of (L+2,): their scores, and before[item] how many of them come before it."""
    count = np.uint64(0)
    for item in range(len(score)):
        kept[count], before[item] = score[item], count
        count += np.uint64(weights[np.uint64(level[item])] != 0)
    before[len(score)] = count
    return int(count)


@machine_code()
def weigh(level: Array, weights: Array, before: Array, kept: Array) -> None:
    """The weights of the gathered items, and 0 for LANES more."""
    for item in range(len(level)):  # an item that is not gathered writes where the next gathered one overwrites it
        kept[np.uint64(before[item])] = weights[np.uint64(level[item])]
    count = before[len(level)]
    kept[count : count + LANES] = 0


@machine_code()
def sums_before(score: Array, weight: Array, result: Any) -> None:
    """Σ of weights and of weighted scores before every item."""
    weights, moments = result
    total = moment = 0.0
    for item in range(len(score)):
        weights[item], moments[item] = total, moment
        total += weight[item]
        moment += np.float64(weight[item]) * score[item]
    weights[len(score)], moments[len(score)] = total, moment


@machine_code()
def level_lists(position: Array, row: Any, rooms: Any) -> Any:
    """Scores of the positives of one level; score, room for weight and exponential of the items that count; the former's edges.

    The last two are longer by LANES. Edges are the first item with t ≤ δ, the first with t < 0, the one after the last in reach.
    """
    (score, level, weights), (integers, floats, _, _), found = row, rooms, len(position)
    before = integers[5]
    count = gather(score, level, weights, floats[0], before)
    own, first, zero, last = floats[3, :found], integers[6, :found], integers[7, :found], integers[8, :found]
    for k in range(found):
        at = np.uint64(position[k])
        own[k], first[k] = score[at], before[np.uint64(integers[2, at])]
        zero[k], last[k] = before[np.uint64(integers[3, at])], before[np.uint64(integers[4, at])]
    return own, (floats[0, :count], floats[1, : count + LANES], floats[2, : count + LANES]), (first, zero, last)


@machine_code()
def shared_levels(labels: Array, ref_columns: Array, result: Array) -> None:
    """result[query, j] = how many leading labels of (Q, L) the query shares with reference j of (L, N)."""
    for query in range(len(labels)):
        row = result[query]
        row[:] = 0
        for level in range(len(ref_columns)):
            wanted, column = labels[query, level], ref_columns[level]
            for item in range(len(row)):
                row[item] += np.uint8(row[item] == np.uint8(level)) & np.uint8(column[item] == wanted)


@machine_code()
def pack(bits: Array, levels: Array, keys: Array, counts: Array) -> None:
    """Keys whose ascending order is score down, level up, column up, and level counts; `bits` are the scores' float32 bits."""
    for row in range(bits.shape[0]):
        for level in range(counts.shape[1]):
            total = 0
            for column in range(bits.shape[1]):
                total += levels[row, column] == level
            counts[row, level] = total
        for column in range(bits.shape[1]):
            score = bits[row, column]
            if score == np.uint32(0x80000000):  # −0 and 0 are one score
                score = np.uint32(0)
            descending = score if score & np.uint32(0x80000000) else score ^ np.uint32(0x7FFFFFFF)
            own = np.uint64(levels[row, column])
            keys[row, column] = (np.uint64(descending) << np.uint64(32)) | (own << np.uint64(24)) | np.uint64(column)


@machine_code()
def unpack(keys: Array, column: Array, bits: Array, level: Array) -> None:
    """Column, score bits and level of every item, in order of the sorted keys."""
    for row in range(keys.shape[0]):
        for position in range(keys.shape[1]):
            key = keys[row, position]
            column[row, position] = np.int32(key & np.uint64(0xFFFFFF))
            level[row, position] = np.uint8(key >> np.uint64(24))
            descending = np.uint32(key >> np.uint64(32))
            bits[row, position] = (
                descending if descending & np.uint32(0x80000000) else descending ^ np.uint32(0x7FFFFFFF)
            )


@machine_code()
def find_positives(rows: Any, table: Array, start: Array, found: Any) -> None:
    """Query, column, level, relevance of every item of positive relevance, list by list, by rank; start: first of each list."""
    (column, level), (queries, items, levels, relevance) = rows, found
    for row in range(len(level)):
        at = start[row]
        for position in range(level.shape[1]):
            own = level[row, position]
            if own < table.shape[1] and table[row, own] > 0:
                queries[at], items[at] = row, column[row, position]
                levels[at], relevance[at] = own, table[row, own]
                at += 1
