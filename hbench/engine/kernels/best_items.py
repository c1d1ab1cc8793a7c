"""Kernels that find the level of the item ranked first, which may be of a level whose positives are
not ranked because no metric needs them.
"""

import numpy as np
from numpy.typing import NDArray

from hbench.core.compiled import Scalar, compiled, compiled_part
from hbench.engine.kernels.sort_keys import Parts

MAXIMA = 64  # running maxima side by side


@compiled
def levels_of_best(
    rows: NDArray[np.floating],
    parts: Parts,
    pessimistic: bool,
    levels: NDArray[np.uint8],
    todo: NDArray[np.bool_],
) -> None:
    """Write to `levels` (n,) the level of each query's best item in the whole gallery.

    `rows` (n, G): finished scores. `parts`: the columns of the items of level ≥ l in each row, from
    `starts` to `ends` (n, L); items outside of all ranges are of level 0. `pessimistic`: whether,
    among equal scores, the lowest level comes first, else the highest does. `todo` (n,): the
    queries whose level is to be written; those of other queries are not changed.
    """
    best = np.empty(parts.starts.shape[1] + 1, rows.dtype)  # by level, from 0
    for row in range(len(todo)):
        if todo[row]:
            best[:] = -np.inf
            # 0: the first score of a whole row is in column 0
            raise_best(rows[row], 0, (parts.starts[row], parts.ends[row]), best)
            levels[row] = level_of_best(best, pessimistic)


@compiled
def raise_best(
    scores: NDArray[np.floating],
    first: int,
    ranges: tuple[NDArray[np.int64], NDArray[np.int64]],
    best: NDArray[np.floating],
) -> None:
    """Update `best` (L + 1,), the highest score of each level so far, with these `scores`, whose
    items are in the columns from `first` on. `ranges`: the columns of the items of level ≥ l, as
    starts and ends (L,), at place l − 1; they may lie outside of these scores, wholly or partly.
    """
    starts, ends = ranges
    # Ranges are nested. From the finest level outwards, the items of a range that are not in the
    # range before, the inner one, are of exactly this level.
    inner_start = 0
    inner_end = 0
    for level in range(len(starts), -1, -1):
        # level 0 has no range of its own: its items are all those outside of the other ranges
        start = 0
        end = len(scores)
        if level:
            start = min(max(starts[level - 1] - first, 0), len(scores))
            end = min(max(ends[level - 1] - first, 0), len(scores))
        if inner_end == inner_start:  # no finer item: the whole range is of this level
            inner_start = inner_end = start
        top = max(highest(scores[start:inner_start]), highest(scores[inner_end:end]))
        best[level] = max(best[level], top)
        if end > start:
            inner_start = start
            inner_end = end


@compiled_part
def level_of_best(best: NDArray[np.floating], pessimistic: bool) -> Scalar:
    """The level that has the highest of the best scores of all levels, `best` (L + 1,). Among equal
    scores the lowest level if `pessimistic`, else the highest. 0 if all are −inf, without any item.
    """
    winner = 0
    for level in range(1, len(best)):
        if best[level] > best[winner] or (
            best[level] == best[winner] and not pessimistic and best[winner] > -np.inf
        ):
            winner = level
    return np.uint8(winner)


@compiled_part
def highest(scores: NDArray[np.floating]) -> Scalar:
    """The highest of the scores (n,), −inf if there is none. MAXIMA running maxima are taken, each
    of every MAXIMA-th score, because the compiler vectorises these, unlike a single maximum.
    """
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
