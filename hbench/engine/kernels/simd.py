"""Instructions: compiled functions of whole vectors, in LLVM's own language, for processors that have such instructions.

No compiler makes them of a loop; numba is told of them here. Elsewhere the function is compiled as it stands.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from hbench.core.compiled import LOADING, Compiled, available

LANES = 16  # numbers of 32 bits in a vector


class Array(NamedTuple):
    """An array as LLVM sees it: the `bits` of an item, where they begin, and the bytes from one index to the next."""

    bits: int
    data: Any
    strides: Sequence[Any]

    def place(self, builder: Any, kind: Any, *index: Any) -> Any:
        """A pointer to something of this kind that begins at an index; numbers of LLVM or our own."""
        word = llvm().IntType(64)
        address = builder.ptrtoint(self.data, word)
        for stride, step in zip(self.strides, index, strict=True):
            steps = llvm().Constant(word, step) if isinstance(step, int) else step
            address = builder.add(address, builder.mul(stride, steps))
        return builder.inttoptr(address, kind.as_pointer())


class Instructions(Compiled):
    """A compiled function of a tuple of arrays and one of integers, that gives an integer of 64 bits. Where the processor
    has `needed`, a feature as LLVM names them, `write` says what it does, given LLVM's builder, arrays and integers."""

    def __init__(self, function: Callable[..., Any], needed: str, write: Callable[..., Any]) -> None:
        super().__init__(function)
        self.needed, self.write = needed, write

    @property
    def are_there(self) -> bool:
        """Whether the processor has them, and numba is there to use them."""
        return available() and self.needed in _features()

    def _make(self) -> Any:
        numba: Any = importlib.import_module("numba")
        extending: Any = importlib.import_module("numba.extending")

        def typed(_typing: Any, arrays: Any, places: Any) -> Any:
            return numba.types.uint64(arrays, places), self._generate

        written = extending.intrinsic(typed)
        return numba.njit(lambda arrays, places: written(arrays, places))

    def _generate(self, context: Any, builder: Any, signature: Any, arguments: Sequence[Any]) -> Any:
        if not self.are_there:
            return context.compile_internal(builder, self.function, signature, arguments)
        unpack = importlib.import_module("numba.core.cgutils").unpack_tuple
        arrays = []
        for kind, each in zip(signature.args[0], unpack(builder, arguments[0]), strict=True):
            array = context.make_array(kind)(context, builder, each)
            arrays.append(Array(kind.dtype.bitwidth, array.data, unpack(builder, array.strides)))
        return self.write(builder, arrays, unpack(builder, arguments[1]))


def _features() -> list[str]:
    """Those of the processor, as LLVM names them."""
    with LOADING:
        target = importlib.import_module("numba.core.registry").cpu_target.target_context
        features: str = target.codegen().magic_tuple()[-1]
        return features.split(",")


def llvm() -> Any:
    """The types and constants of LLVM's language; loaded where code is compiled, and only there."""
    return importlib.import_module("llvmlite.ir")
