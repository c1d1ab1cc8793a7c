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

# held while numba is loaded, and while its one setting CACHE_DIR is changed for a function
LOADING = RLock()
# numpy works through this many values while numba loads; 2,000 items have as many pairs
MIN_COMPILED = 1 << 22
FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])
Scalar = Any  # a number in compiled code, of the type that numba finds


class Compiled:
    """A function that is compiled when it, or a compiled function that calls it, is first
    called.

    `called_from_python`: False for what only compiled functions call (`compiled_part`).
    """

    def __init__(self, function: Callable[..., Any], *, called_from_python: bool = True) -> None:
        """Keep the function. Nothing is compiled here, but at the first call, since loading numba
        takes long."""
        self.function = function
        self.called_from_python = called_from_python
        self._dispatcher: Any = None
        update_wrapper(self, function)

    def __call__(self, *arguments: Any) -> Any:
        """Call the compiled function."""
        if not self.called_from_python:  # by a test: it was compiled without a way in from Python
            return self.function(*arguments)
        return self.dispatcher(*arguments)

    @property
    def _numba_type_(self) -> Any:
        """The type of the compiled function, which numba asks for where another function that it
        compiles calls this one by its global name."""
        return self.dispatcher._numba_type_

    @property
    def dispatcher(self) -> Any:
        """What numba makes of the function: it compiles for each types of arguments once. It is
        made at the first use, by one thread."""
        if self._dispatcher is None:
            with LOADING:  # another thread may have made it meanwhile
                self._dispatcher = self._dispatcher or self._make()
        return self._dispatcher

    def _make(self) -> Any:
        """Hand the function to numba, with a folder of its own for the machine code.

        numba has one setting of that folder for all functions and reads it here, so it is changed
        for this function and set back.
        """
        numba: Any = importlib.import_module("numba")
        jit = numba.njit(
            nogil=True,  # so that several threads rank at once
            cache=bool(kernel_folder()),
            error_model="numpy",  # 0 / 0 is NaN, without a check before each division
            no_cfunc_wrapper=True,  # no caller in C: less to compile
            no_cpython_wrapper=not self.called_from_python,
        )

        usual = numba.config.CACHE_DIR
        if folder := kernel_folder():
            digest = sources_digest(self.function.__module__)
            numba.config.CACHE_DIR = str(folder / digest[:16])
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
        # who may write to the parent could put another folder in its place, but under a sticky bit
        if os.access(folder, os.W_OK) and is_own(folder) and is_own(folder.parent, sticky=True):
            return folder
    return None


def is_own(folder: Path, *, sticky: bool = False) -> bool:
    """Whether a folder is this user's, or the system's, and nobody else may write to it; true where
    there are no owners.

    A group of the user's own name is the user alone. `sticky`: it is no matter that others may
    write to the folder where its sticky bit keeps them from touching what is not theirs, as in
    /tmp.
    """
    if not hasattr(os, "geteuid"):
        return True
    import grp
    import pwd

    status = folder.stat()
    writers = stat.S_IWOTH  # the bits of those who must not be allowed to write: all others
    with suppress(KeyError):
        if grp.getgrgid(status.st_gid).gr_name != pwd.getpwuid(os.geteuid()).pw_name:
            writers |= stat.S_IWGRP
    shared = bool(status.st_mode & writers) and not (sticky and status.st_mode & stat.S_ISVTX)
    return status.st_uid in {os.geteuid(), 0} and not shared


@cache
def sources_digest(module: str) -> str:
    """The sha256 of numba's version and of the sources of a module, of the modules of its package
    that it imports from, of those that these import from, and so on.

    They are found in the texts, as `from hbench.x import y`, where y may be a module, too.
    """
    imported = re.compile(
        rf"^from ({module.partition('.')[0]}(?:\.\w+)*) import ([^(\n]+|\([^)]*\))", re.MULTILINE
    )
    sources: dict[str, str] = {}
    waiting = [module]

    # what is not loaded cannot be called: only modules that Python has imported are followed
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


def compiling_pays(values: int) -> bool:
    """Whether compiled code is faster than numpy for this many values, loading numba included.

    It depends on the data alone, not on whether numba is loaded already: the two differ in the last
    bits, and repeated runs must not.
    """
    return values > MIN_COMPILED


def is_cached(function: Callable[..., Any]) -> bool:
    """Whether the machine code of a compiled function is on disk, where numba keeps an index file
    (.nbi) of each function."""
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
    """Keep BLAS to one thread, in the whole process, while blocks are ranked: hbench's own threads
    multiply a block each, and more threads than cores would slow all of them down.
    """
    limits: AbstractContextManager[object] = threadpool_limits(1, user_api="blas")
    return limits
