"""Compilation by numba: machine code made on first use and kept on disk, which runs without the interpreter's lock.

Nothing is compiled, and numba not even loaded, before a compiled function is called: that takes a third of a second, which
a small test saves. Where numba is missing, or `HBENCH_NUMBA=0`, numpy computes the same values.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from contextlib import suppress
from functools import cache, update_wrapper
from pathlib import Path
from threading import RLock
from typing import Any, TypeVar, cast

from hbench.paths import cache_home

LOADING = RLock()  # numba's, and the folder it is told to keep machine code in
SMALL = 1 << 23  # numbers that numpy has worked through before compiled code is even loaded
FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])
Scalar = Any  # a number in compiled code, of the type that numba finds


@cache
def available() -> bool:
    """Whether numba is installed, fits this Python and processor, and is wanted."""
    with suppress(ImportError):
        return os.environ.get("HBENCH_NUMBA", "1") != "0" and bool(importlib.import_module("numba"))
    return False


class Compiled:
    """A function that is compiled when it, or a compiled function that calls it, is first called."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.made: Any = None
        update_wrapper(self, function)

    def __call__(self, *arguments: Any) -> Any:
        return self.dispatcher(*arguments) if available() else self.function(*arguments)

    @property
    def _numba_type_(self) -> Any:
        """What numba asks of a global name in the function it compiles."""
        return self.dispatcher._numba_type_

    @property
    def dispatcher(self) -> Any:
        """numba's, one for all threads."""
        if self.made is None:
            with LOADING:
                self.made = self.made or self._make()
        return self.made

    def _make(self) -> Any:
        """Machine code is kept beside the module where that folder can be written to, else in the cache folder."""
        numba: Any = importlib.import_module("numba")
        folder = numba.config.CACHE_DIR
        if not os.access(Path(self.function.__code__.co_filename).parent, os.W_OK):
            numba.config.CACHE_DIR = folder or str(cache_home() / "kernels")
        try:
            jit = numba.njit(nogil=True, cache=True, error_model="numpy")
            return jit(self.function)
        finally:
            numba.config.CACHE_DIR = folder


def compiled(function: FunctionT) -> FunctionT:
    """The function compiled, with every float operation as it is written: an order of sums that is left to the compiler
    depends on whether the code was just made or was kept on disk."""
    return cast("FunctionT", Compiled(function))


def pays(numbers: int) -> bool:
    """Whether work on so many numbers is quicker in compiled code; to be decided by the data alone, for other sums have
    other last bits."""
    return numbers > SMALL and available()


def is_kept(function: Callable[..., Any]) -> bool:
    """Whether the machine code of a compiled function is on disk."""
    if not available():
        return True
    made = cast("Compiled", function)
    kept = Path(made.dispatcher.stats.cache_path)
    return any(kept.glob(f"*.{made.function.__name__}-*.nbi"))
