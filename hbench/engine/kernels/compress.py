"""Picks the chosen numbers of a row and writes them side by side.

Each number is written at the next place, and the place moves on where the number was chosen: no branch, so a random choice
costs no more than a regular one. Sixteen at a time are written out in a row by the compiler.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from hbench.core.compiled import Scalar, compiled

LANES = 16  # numbers written by code without a loop
TILE = 1024  # numbers to choose among at once, so that they and the choice stay in the first cache


@compiled
def compress(numbers: NDArray[Any], chosen: NDArray[np.uint8], out: NDArray[Any]) -> Scalar:
    """Write the chosen (1, others 0) of n integers to the front of `out`; how many they are.

    `out` holds n + LANES; or it is in the array of the numbers, not behind them.
    """
    count, lanes, n = np.uint64(0), np.uint64(LANES), np.uint64(len(numbers))
    for group in range(n // lanes):
        first = np.uint64(group) * lanes
        for lane in range(np.uint64(LANES)):
            out[count] = numbers[first + lane]
            count += np.uint64(chosen[first + lane])
    for item in range(n - n % lanes, n):
        out[count] = numbers[item]
        count += np.uint64(chosen[item])
    return count
