"""Compiles functions for a graphics card with numba.cuda, and keeps their machine code on disk.

numba's simulator (`NUMBA_ENABLE_CUDASIM=1`) runs the same functions in Python, without a card: a
thread of the processor for each of the card's, so blocks are small there.
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

# types of compiled code: called, they make a number of their type
float32, float64 = numba.float32, numba.float64
int32, int64, uint8, uint32 = numba.int32, numba.int64, numba.uint8, numba.uint32
# a number of the type that numba finds, and arrays in the card's memory or in a block's
Number = Any
Float32s = Any
Float64s = Any
Int32s = Any
Int64s = Any
Uint8s = Any

if not hasattr(np, "row_stack"):  # numba-cuda 0.30 asks for it, and numpy 2.5 has dropped it
    setattr(np, "row_stack", np.vstack)  # noqa: B010 — an assignment would be rewritten to vstack


def card_kernel(function: Callable[..., None]) -> Any:
    """Compile a function that is launched from the host: `kernel[blocks, threads](…)`."""
    if IS_SIMULATED:  # nothing is compiled, and nothing kept
        return cuda.jit(function)
    # what is compiled is kept in a folder of this state of the sources, which numba's own folder,
    # beside each module, does not tell apart; numba.cuda has a configuration of its own in some
    # versions
    configuration = getattr(cuda, "core", numba)
    configuration = getattr(configuration, "config", numba.config)
    usual = configuration.CACHE_DIR
    folder = kernel_folder()
    if folder:
        configuration.CACHE_DIR = str(folder / sources_digest(function.__module__)[:16])
    try:
        return cuda.jit(function, cache=bool(folder))
    finally:
        configuration.CACHE_DIR = usual


def card_part(function: Callable[..., Any]) -> Any:
    """Compile a function that only kernels call, written out where it is called: so it is known
    there which arrays lie in the memory that a block shares, which is quicker to reach.
    """
    if IS_SIMULATED:
        return cuda.jit(function, device=True)
    return cuda.jit(function, device=True, forceinline=True)


def card_call(function: Callable[..., Any]) -> Any:
    """Compile a function that only kernels call, once for all its calls: it reaches no memory that
    a block shares, and is long or seldom called."""
    return cuda.jit(function, device=True)


def sizes(of_card: int, of_simulator: int) -> int:
    """A number of threads or of places in shared memory: `of_card`, or in the simulator
    `of_simulator`, which must be small since it runs each thread in Python."""
    return of_simulator if IS_SIMULATED else of_card


def can_compile() -> bool:
    """Whether kernels can be compiled for a card that is here, or are simulated."""
    return IS_SIMULATED or bool(cuda.is_available())
