"""Compression: of a row of numbers those that are chosen, side by side.

Where they are chosen at random, one after another costs a nanosecond a number. Processors with AVX-512 (VBMI2) have an
instruction for sixteen.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hbench.core.compiled import Scalar, compiled
from hbench.engine.kernels.simd import LANES, Array, Instructions, llvm

TILE = 1024  # numbers to choose among at once, so that they and the choice stay in the first cache


@compiled
def compress(numbers: NDArray[Any], chosen: NDArray[np.uint8], out: NDArray[Any]) -> Scalar:
    """Write the chosen (1, others 0) of n integers of 8 or 32 bits to the front of `out`; how many they are.

    `out` has room for n + LANES; or it is in the array of the numbers, not behind them.
    """
    found, lanes, n = np.uint64(0), np.uint64(LANES), np.uint64(len(numbers))
    for group in range(n // lanes):
        found += compress_lanes((numbers, chosen, out), (np.uint64(group) * lanes, found))
    for item in range(n - n % lanes, n):
        out[found] = numbers[item]
        found += np.uint64(chosen[item])
    return found


def _one_by_one(arrays: tuple[NDArray[Any], NDArray[np.uint8], NDArray[Any]], places: tuple[Scalar, Scalar]) -> Scalar:
    """Write the chosen of LANES numbers from the first place on to `out`, from the second on; how many they are."""
    (numbers, chosen, out), (first, at) = arrays, places
    found = np.uint64(0)
    for item in range(np.uint64(LANES)):
        out[at + found] = numbers[first + item]
        found += np.uint64(chosen[first + item])
    return found


def _write(builder: Any, arrays: Sequence[Array], places: Sequence[Any]) -> Any:
    """The instruction that does the same."""
    ir = llvm()
    (numbers, chosen, out), (first, at) = arrays, places
    vector, choice, mask = (ir.VectorType(ir.IntType(bits), LANES) for bits in (numbers.bits, 8, 1))
    own = builder.load(numbers.place(builder, vector, first), align=1)
    keep = builder.trunc(builder.load(chosen.place(builder, choice, first), align=1), mask)
    name = f"llvm.x86.avx512.mask.compress.v{LANES}i{numbers.bits}"
    of_type = ir.FunctionType(vector, [vector, vector, mask])
    compressed = builder.module.declare_intrinsic(name, fnty=of_type)
    builder.store(builder.call(compressed, [own, own, keep]), out.place(builder, vector, at), align=1)
    return builder.zext(builder.ctpop(builder.bitcast(keep, ir.IntType(LANES))), ir.IntType(64))


compress_lanes = Instructions(_one_by_one, "+avx512vbmi2", _write)
