"""Compiles functions with numba on first use and keeps their machine code on disk; they run without
the interpreter's lock.

What is kept is kept for these very sources. numba itself looks at the file of a function, not at
those of the functions it calls, and would keep using the old ones; so each module's code lies in a
folder named after all sources it is made of.

Nothing is compiled, and numba not even loaded, before a compiled function is called: that takes a
third of a second, which a small test saves.
"""

import hashlib
import importlib
import os
import re
import stat
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from functools import cache, update_wrapper
from pathlib import Path
from threading import RLock
from typing import Any, TypeVar, cast

from threadpoolctl import threadpool_limits

from hbench.core.paths import cache_home

LOADING = RLock()  # numba's, and the folder it is told to keep machine code in
# values that numpy has worked through before compiled code is even loaded; pairs of 2,000 items
MIN_COMPILED = 1 << 22
FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])
Scalar = Any  # a number in compiled code, of the type that numba finds


class Compiled:
    """A function that is compiled when it, or a compiled function that calls it, is first
    called."""

    def __init__(self, function: Callable[..., Any], *, called_from_python: bool = True) -> None:
        self.function = function
        self.called_from_python = called_from_python
        self.made: Any = None
        update_wrapper(self, function)

    def __call__(self, *arguments: Any) -> Any:
        if not self.called_from_python:
            return self.function(*arguments)
        return self.dispatcher(*arguments)

    @property
    def _numba_type_(self) -> Any:
        """Return the type that numba gives a global name in the function it compiles."""
        return self.dispatcher._numba_type_

    @property
    def dispatcher(self) -> Any:
        """numba's, one for all threads."""
        if self.made is None:
            with LOADING:
                self.made = self.made or self._make()
        return self.made

    def _make(self) -> Any:
        """Compile the function. numba knows one folder for all kernels while it is set, so it is
        set for this one, by the digest of its sources, and set back."""
        numba: Any = importlib.import_module("numba")
        usual = numba.config.CACHE_DIR
        folder = kernel_folder()
        jit = numba.njit(
            nogil=True,
            cache=bool(folder),
            error_model="numpy",
            no_cfunc_wrapper=True,
            no_cpython_wrapper=not self.called_from_python,
        )
        numba.config.CACHE_DIR = (
            str(folder / sources_digest(self.function.__module__)[:16]) if folder else usual
        )

        try:
            return jit(self.function)
        finally:
            numba.config.CACHE_DIR = usual


@cache
def kernel_folder() -> Path | None:
    """Return the folder of numba's cache: NUMBA_CACHE_DIR, else one in the user's cache; None if
    others may write to it.

    Never in the package: what is left there when it is uninstalled would shadow the next
    installation. Numba unpickles its cache, so a folder that somebody else may write to, such as
    the system's temporary one, could make it run their code.
    """
    with LOADING:
        named = importlib.import_module("numba").config.CACHE_DIR
    folder = Path(named) if named else cache_home() / "kernels"
    with suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
        if os.access(folder, os.W_OK) and is_own(folder) and is_own(folder.parent, sticky=True):
            return folder
    return None


def is_own(folder: Path, *, sticky: bool = False) -> bool:
    """Whether a folder is this user's, or the system's, and nobody else may write to it; true where
    there are no owners.

    A group of the user's own name is the user alone. `sticky`: others may write where they cannot
    touch what is not theirs.
    """
    if not hasattr(os, "geteuid"):
        return True
    import grp
    import pwd

    status = folder.stat()
    writers = stat.S_IWOTH
    with suppress(KeyError):
        if grp.getgrgid(status.st_gid).gr_name != pwd.getpwuid(os.geteuid()).pw_name:
            writers |= stat.S_IWGRP
    shared = bool(status.st_mode & writers) and not (sticky and status.st_mode & stat.S_ISVTX)
    return status.st_uid in {os.geteuid(), 0} and not shared


@cache
def sources_digest(module: str) -> str:
    """sha256 of numba's version and of the sources of a module, of those of its package it imports
    from, and so on.
    """
    imported = re.compile(
        rf"^from ({module.partition('.')[0]}(?:\.\w+)*) import ([^(\n]+|\([^)]*\))", re.MULTILINE
    )
    sources: dict[str, str] = {}
    waiting = [module]

    while waiting:
        name = waiting.pop()
        if name not in sources:
            sources[name] = Path(str(sys.modules[name].__file__)).read_text(encoding="utf-8")
            for package, names in imported.findall(sources[name]):
                modules = [package, *(f"{package}.{part}" for part in re.findall(r"\w+", names))]
                waiting += [other for other in modules if other in sys.modules]

    version: str = importlib.import_module("numba").__version__
    words = [version, *(f"{name} {sources[name]}" for name in sorted(sources))]
    return hashlib.sha256("\0".join(words).encode()).hexdigest()


def compiled(function: FunctionT) -> FunctionT:
    """The function compiled, with every float operation as it is written: an order of sums that is
    left to the compiler depends on whether the code was just made or was kept on disk."""
    return cast("FunctionT", Compiled(function))


def compiled_part(function: FunctionT) -> FunctionT:
    """Compile a function that only compiled functions call: it gets no wrapper for arguments from
    Python, which takes a third of the time to compile. Called from Python, as in a test, it runs as
    Python."""
    return cast("FunctionT", Compiled(function, called_from_python=False))


def pays(numbers: int) -> bool:
    """Whether compiled code is faster for this many values. Depends on the data alone, so that
    repeated runs agree to the last bit."""
    return numbers > MIN_COMPILED


def is_cached(function: Callable[..., Any]) -> bool:
    """Whether the machine code of a compiled function is on disk."""
    made = cast("Compiled", function)
    folder = made.dispatcher.stats.cache_path
    return bool(folder) and any(Path(folder).glob(f"*.{made.function.__name__}-*.nbi"))


def announcement() -> str:
    """Return the line that is shown before the ranking kernel is compiled."""
    if kernel_folder():
        return "compiling the ranking kernel, this once"
    return (
        "compiling the ranking kernel, as every time: there is no folder to keep it in that can be "
        "written to, and by "
        "nobody else; HBENCH_CACHE may name one"
    )


def available_threads() -> int:
    """The processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def one_blas_thread() -> AbstractContextManager[object]:
    """Keep BLAS to one thread, in the whole process, while blocks are ranked: the threads are ours,
    one piece each.
    """
    limits: AbstractContextManager[object] = threadpool_limits(1, user_api="blas")
    return limits
