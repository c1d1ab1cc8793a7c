"""Compression: of a row of numbers those that are chosen, side by side.

Where they are chosen at random, one after another costs a nanosecond a number. Processors with AVX-512 (VBMI2) have an
instruction for sixteen, which no compiler makes of a loop; numba is told of it here.
"""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hbench.compiled import Compiled, Scalar, compiled

LANES = 16
TILE = 1024  # numbers to choose among at once, so that they and the choice stay in the first cache
NEEDED = "+avx512vbmi2"  # among the features of a processor, as LLVM names them


@compiled
def compress(numbers: NDArray[Any], chosen: NDArray[np.uint8], out: NDArray[Any]) -> Scalar:
    """Write the chosen (1, others 0) of n integers of 8 or 32 bits to the front of `out`; how many they are.

    `out` has room for n + LANES; or it is in the array of the numbers, not behind them.
    """
    found, lanes, n = np.uint64(0), np.uint64(LANES), np.uint64(len(numbers))
    for group in range(n // lanes):
        found += compress_lanes(numbers, chosen, out, (np.uint64(group) * lanes, found))
    for item in range(n - n % lanes, n):
        out[found] = numbers[item]
        found += np.uint64(chosen[item])
    return found


class _Instruction(Compiled):
    """A compiled function that is one instruction where the processor has it."""

    def _make(self) -> Any:
        numba: Any = importlib.import_module("numba")
        extending: Any = importlib.import_module("numba.extending")

        def typed(_typing: Any, numbers: Any, chosen: Any, out: Any, places: Any) -> Any:
            return numba.types.uint64(numbers, chosen, out, places), self._generate

        lanes = extending.intrinsic(typed)
        return numba.njit(lambda numbers, chosen, out, places: lanes(numbers, chosen, out, places))

    def _generate(self, context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        if NEEDED not in context.codegen().magic_tuple()[-1]:
            return context.compile_internal(builder, self.function, signature, arguments)
        first, at = (builder.extract_value(arguments[3], place) for place in (0, 1))
        arrays = zip(signature.args, arguments, (first, first, at), strict=False)
        places = [
            builder.gep(context.make_array(kind)(context, builder, array).data, [place])
            for kind, array, place in arrays
        ]
        return _instruction(builder, signature.args[0].dtype.bitwidth, *places)


def _instruction(builder: Any, size: int, numbers: Any, chosen: Any, out: Any) -> Any:
    """The instruction in LLVM's language, from and to pointers, for numbers of `size` bits; how many are chosen."""
    ir: Any = importlib.import_module("llvmlite.ir")
    vector, choice, mask = (ir.VectorType(ir.IntType(bits), LANES) for bits in (size, 8, 1))
    own = builder.load(builder.bitcast(numbers, vector.as_pointer()), align=1)
    keep = builder.trunc(builder.load(builder.bitcast(chosen, choice.as_pointer()), align=1), mask)
    of_type = ir.FunctionType(vector, [vector, vector, mask])
    compressed = builder.module.declare_intrinsic(f"llvm.x86.avx512.mask.compress.v{LANES}i{size}", fnty=of_type)
    builder.store(builder.call(compressed, [own, own, keep]), builder.bitcast(out, vector.as_pointer()), align=1)
    return builder.zext(builder.ctpop(builder.bitcast(keep, ir.IntType(LANES))), ir.IntType(64))


def _one_by_one(
    numbers: NDArray[Any], chosen: NDArray[np.uint8], out: NDArray[Any], places: tuple[Scalar, Scalar]
) -> Scalar:
    """Write the chosen of LANES numbers from the first place on to `out`, from the second on; how many they are."""
    first, at = places
    found = np.uint64(0)
    for item in range(np.uint64(LANES)):
        out[at + found] = numbers[first + item]
        found += np.uint64(chosen[first + item])
    return found


compress_lanes = _Instruction(_one_by_one)
