"""Compiles functions for a graphics card with numba.cuda, and keeps their machine code on disk.

numba's simulator (`NUMBA_ENABLE_CUDASIM=1`) runs the same functions in Python, without a card. It
uses a thread of the processor for each thread of the card, so blocks of threads are small there.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np

from hbench.core.compiled import kernel_folder, sources_digest

numba: Any = importlib.import_module("numba")
cuda: Any = importlib.import_module("numba.cuda")
IS_SIMULATED: bool = bool(numba.config.ENABLE_CUDASIM)

# types of compiled code; a call such as int32(0) makes a number of the type
float32, float64 = numba.float32, numba.float64
int32, int64, uint8, uint32 = numba.int32, numba.int64, numba.uint8, numba.uint32
# for annotations: a number of any type, and arrays in the memory of the card or of a block of
# threads
Number = Any
Float32s = Any
Float64s = Any
Int32s = Any
Int64s = Any
Uint8s = Any

if not hasattr(np, "row_stack"):  # numba-cuda 0.30 uses it, but numpy 2.5 has removed it
    setattr(np, "row_stack", np.vstack)  # noqa: B010 — an assignment would be rewritten to vstack


def card_kernel(function: Callable[..., None]) -> Any:
    """Compile a function that is launched from the host: `kernel[blocks, threads](…)`."""
    if IS_SIMULATED:  # nothing is compiled, and nothing kept
        return cuda.jit(function)
    # Machine code is kept in a folder for this state of the sources: numba's own folder, beside
    # each module, does not distinguish states. Some versions of numba.cuda have a configuration
    # object of their own, in `cuda.core`; others use the one of numba.
    has_own = hasattr(cuda, "core") and hasattr(cuda.core, "config")
    configuration = cuda.core.config if has_own else numba.config
    usual = configuration.CACHE_DIR
    folder = kernel_folder()  # None if other users may write to it: then nothing is kept
    if folder:
        configuration.CACHE_DIR = str(folder / sources_digest(function.__module__)[:16])
    try:
        return cuda.jit(function, cache=bool(folder))
    finally:
        configuration.CACHE_DIR = usual


def card_part(function: Callable[..., Any]) -> Any:
    """Compile a function that only kernels call, inlined where it is called. The compiler then
    knows which arrays are in the shared memory of a block, to which access is quicker.
    """
    if IS_SIMULATED:
        return cuda.jit(function, device=True)
    return cuda.jit(function, device=True, forceinline=True)


def card_call(function: Callable[..., Any]) -> Any:
    """Compile a function that only kernels call, without inlining: for functions that use no shared
    memory of a block, and are long or rarely called."""
    return cuda.jit(function, device=True)


def sizes(of_card: int, of_simulator: int) -> int:
    """Choose a number of threads, or of places in shared memory: `of_card`, or `of_simulator` in
    the simulator, which runs each thread in Python and needs small numbers."""
    return of_simulator if IS_SIMULATED else of_card


def can_compile() -> bool:
    """Whether kernels can be compiled for a card of this machine, or are simulated."""
    return IS_SIMULATED or bool(cuda.is_available())
