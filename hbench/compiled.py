"""Compilation by numba: machine code made on first use and kept on disk, which runs without the interpreter's lock.

Where numba is missing, or `HBENCH_NUMBA=0`, nothing is compiled and numpy computes the same values.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from hbench.paths import cache_home

numba: Any = None
with suppress(ImportError):  # there is not a wheel for every Python and processor
    numba = importlib.import_module("numba")

AVAILABLE = numba is not None and os.environ.get("HBENCH_NUMBA", "1") != "0"
SMALL = 1 << 23  # numbers that numpy has worked through before compiled code is even loaded
FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])
Scalar = Any  # a number in compiled code, of the type that numba finds


def compiled(function: FunctionT) -> FunctionT:
    """The function compiled, with every float operation as it is written."""
    return _compiled(function, fastmath=False)


def compiled_sum(function: FunctionT) -> FunctionT:
    """The function compiled, its sums and maxima of numbers in any order, so that they run in vector instructions."""
    return _compiled(function, fastmath={"reassoc", "nnan", "nsz"})


def pays(numbers: int) -> bool:
    """Whether work on so many numbers is quicker in compiled code; to be decided by the data alone, for other sums have
    other last bits."""
    return AVAILABLE and numbers > SMALL


def is_kept(function: Callable[..., Any]) -> bool:
    """Whether the machine code of a function is on disk."""
    if not AVAILABLE:
        return True
    kept = Path(function.stats.cache_path)  # type: ignore[attr-defined]
    return any(kept.glob(f"*.{function.__name__}-*.nbi"))


def _compiled(function: FunctionT, *, fastmath: bool | set[str]) -> FunctionT:
    """Beside the module where that folder can be written to, else in the cache folder."""
    if not AVAILABLE:
        return function
    folder = numba.config.CACHE_DIR
    if not os.access(Path(__file__).parent, os.W_OK):
        numba.config.CACHE_DIR = folder or str(cache_home() / "kernels")
    try:
        jit = numba.njit(nogil=True, cache=True, error_model="numpy", fastmath=fastmath)
        made: FunctionT = jit(function)
        return made
    finally:
        numba.config.CACHE_DIR = folder
