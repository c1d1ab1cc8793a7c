"""Kernels for whole rows of scores: sort them, for queries with very many positives, or find the best item alone."""

import numpy as np
from numpy.typing import NDArray

from hbench.core.compiled import Scalar, compiled, compiled_part
from hbench.engine.kernels.compress import LANES, TILE, compress
from hbench.engine.kernels.sort_keys import Coding, Parts

MAXIMA = 64  # running maxima side by side


@compiled_part
def rank_whole(
    keys: NDArray[np.unsignedinteger], coding: Coding, ranks: NDArray[np.int32], levels: NDArray[np.uint8]
) -> bool:
    """Write the ranks and levels (P,) of a row's positives, given its sorted keys (G,); whether another order of equal
    scores would give other levels."""
    places, chosen = np.empty(TILE, np.int32), np.empty(TILE, np.uint8)
    for place in range(TILE):
        places[place] = np.int32(place)
    buffers = (np.empty(TILE + LANES, np.uint8), np.empty(TILE + LANES, np.int32))
    ranked, start = np.uint64(0), 0
    none, mask = np.uint8(coding.of_level[0]), keys.dtype.type((1 << coding.bits) - 1)
    while ranked < np.uint64(len(ranks)) and start < len(keys):  # NaN, where products overflowed, is not found
        tile = keys[start : start + TILE]
        ties, is_positive = buffers[0][: len(tile)], chosen[: len(tile)]
        for item in range(len(tile)):
            ties[item] = np.uint8(tile[item] & mask)
        for item in range(len(tile)):  # a separate loop, which becomes vector instructions
            is_positive[item] = np.uint8(ties[item] != none)
        compress(ties, is_positive, ties)
        end = min(ranked + compress(places[: len(tile)], is_positive, buffers[1]), np.uint64(len(ranks)))
        above, ranks_here, levels_here = np.int32(start + 1), ranks[ranked:end], levels[ranked:end]
        for slot in range(len(ranks_here)):
            ranks_here[slot] = above + buffers[1][slot]
        for slot in range(np.uint64(len(levels_here))):
            levels_here[slot] = coding.to_level[np.uint64(ties[slot])]
        ranked, start = end, start + TILE
    return are_keys_tied(keys, coding)


@compiled_part
def are_keys_tied(keys: NDArray[np.unsignedinteger], coding: Coding) -> bool:
    """Whether items of different levels have one score, but for −inf."""
    kind, one, tied = keys.dtype.type, np.uint64(1), False
    ties = kind((1 << coding.bits) - 1)
    beyond = kind(kind(2 * coding.middle) << kind(coding.bits))  # from there on −inf
    listed, high = np.uint64(0), np.uint64(len(keys))
    while listed < high:
        middle = (listed + high) >> one
        if keys[middle] < beyond:
            listed = middle + one
        else:
            high = middle
    for slot in range(one, listed):
        differing: Scalar = kind(keys[slot] ^ keys[slot - one])
        tied |= (differing != kind(0)) & (differing <= ties)
    return tied


@compiled
def levels_of_best(
    rows: NDArray[np.floating], parts: Parts, pessimistic: bool, levels: NDArray[np.uint8], todo: NDArray[np.bool_]
) -> None:
    """The level of the item ranked first, listed or not, of the queries `todo` (n,)."""
    best = np.empty(parts.starts.shape[1] + 1, rows.dtype)
    for row in range(len(todo)):
        if todo[row]:
            best[:] = -np.inf
            raise_best(rows[row], 0, (parts.starts[row], parts.ends[row]), best)
            levels[row] = level_of_best(best, pessimistic)


@compiled
def raise_best(
    scores: NDArray[np.floating],
    first: int,
    ranges: tuple[NDArray[np.int64], NDArray[np.int64]],
    best: NDArray[np.floating],
) -> None:
    """Raise `best` (L+1,), the highest score of each level, by these scores of the items from column `first` on;
    `ranges`: the starts and ends (L,) of the items of level ≥ l."""
    starts, ends = ranges
    inner_start, inner_end = 0, 0
    for level in range(len(starts), -1, -1):
        start, end = 0, len(scores)
        if level:
            start = min(max(starts[level - 1] - first, 0), len(scores))
            end = min(max(ends[level - 1] - first, 0), len(scores))
        if inner_end == inner_start:
            inner_start = inner_end = start
        top = max(highest(scores[start:inner_start]), highest(scores[inner_end:end]))
        best[level] = max(best[level], top)
        if end > start:
            inner_start, inner_end = start, end


@compiled_part
def level_of_best(best: NDArray[np.floating], pessimistic: bool) -> Scalar:
    """The level of the highest of the levels' best scores (L+1,); among equal ones the lowest, or the highest level."""
    winner = 0
    for level in range(1, len(best)):
        if best[level] > best[winner] or (best[level] == best[winner] and not pessimistic and best[winner] > -np.inf):
            winner = level
    return np.uint8(winner)


@compiled_part
def highest(scores: NDArray[np.floating]) -> Scalar:
    """The highest score, −inf of none; lane by lane, which the compiler makes vectors of, unlike one running maximum."""
    lanes = np.full(MAXIMA, -np.inf, scores.dtype)
    whole = len(scores) - len(scores) % MAXIMA
    for start in range(0, whole, MAXIMA):
        part = scores[start : start + MAXIMA]
        for lane in range(MAXIMA):
            lanes[lane] = part[lane] if part[lane] > lanes[lane] else lanes[lane]
    top = lanes[0]
    for lane in range(MAXIMA):
        top = max(top, lanes[lane])
    for item in range(whole, len(scores)):
        top = max(top, scores[item])
    return top
