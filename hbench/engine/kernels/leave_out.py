"""Reads the ranked codes of partial labels as ranks and levels: items that do not stay are left out of their lists.

Each item is written at the next place, and the place moves on where the item is listed: no branch, so a random choice costs no
more than a regular one. The list of a query begins where it did; only its end moves.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hbench.core.compiled import compiled
from hbench.engine.kernels.rank_positives import RankedPositives

Codes = NDArray[np.uint8]


@compiled
def leave_out(ranked: RankedPositives, stays: Codes, level: Codes, to: RankedPositives) -> None:
    """Write the ranks, levels and ends of n lists; `stays` (1 or 0) and `level` by code. An item that stays and is of level 0
    is a distractor from then on."""
    if np.all(stays > 0) and np.all(level[1:] > 0):  # none moves, so no item waits for the one before
        for query in range(len(ranked.starts)):
            first, end = ranked.starts[query], ranked.ends[query]
            to.ranks[first:end] = ranked.ranks[first:end]
            for item in range(np.uint64(first), np.uint64(end)):
                to.levels[item] = level[np.uint64(ranked.levels[item])]
            to.ends[query] = end
        return
    for query in range(len(ranked.starts)):
        removed, place = np.int32(0), np.uint64(ranked.starts[query])
        for item in range(np.uint64(ranked.starts[query]), np.uint64(ranked.ends[query])):
            code = np.uint64(ranked.levels[item])
            to.ranks[place], to.levels[place] = ranked.ranks[item] - removed, level[code]
            place += np.uint64(stays[code] * np.uint8(level[code] > 0))
            removed += np.int32(1) - np.int32(stays[code])
        to.ends[query] = place
