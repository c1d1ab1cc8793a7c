"""Lists for the kernels: the levels of a block, and its sort by numpy's integer sort, score, level and column in one key."""

from __future__ import annotations

from typing import Any

import numpy as np

from hbench.compiled import machine_code

Array = np.ndarray[Any, Any]


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
