"""Compiles functions with numba on first use and keeps their machine code on disk. Compiled
functions run without the interpreter's lock.

Kept machine code is used for unchanged sources only. numba itself checks the file of a function,
but not those of the functions that it calls, and would go on using old code of these. So the code
of a module is kept in a folder whose name is a digest of all sources that it depends on.

numba is loaded at the first call of a compiled function. Loading takes a third of a second, which
evaluations of small tests thereby save.
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

# held while numba is loaded, and while its global setting CACHE_DIR is changed for a function
LOADING = RLock()
# numpy processes this many values in the time that numba takes to load; 2,000 items have as many
# pairs
MIN_COMPILED = 1 << 22
FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])
Scalar = Any  # a number in compiled code, whose type numba infers


class Compiled:
    """A function that is compiled at its first call, by Python or by another compiled function.

    `called_from_python`: False for a function that only compiled functions call (`compiled_part`).
    """

    def __init__(self, function: Callable[..., Any], *, called_from_python: bool = True) -> None:
        """Keep the function. It is compiled at its first call rather than here, since loading numba
        takes long."""
        self.function = function
        self.called_from_python = called_from_python
        self._dispatcher: Any = None
        update_wrapper(self, function)

    def __call__(self, *arguments: Any) -> Any:
        """Call the compiled function."""
        # such a function cannot be called from Python once it is compiled; a test may do so
        if not self.called_from_python:
            return self.function(*arguments)
        return self.dispatcher(*arguments)

    @property
    def _numba_type_(self) -> Any:
        """The numba type of the compiled function. numba reads it when it compiles a function that
        calls this one."""
        return self.dispatcher._numba_type_

    @property
    def dispatcher(self) -> Any:
        """numba's dispatcher, which compiles the function once for each combination of argument
        types. It is made at the first use, by one thread."""
        if self._dispatcher is None:
            with LOADING:  # another thread may have made it while this one waited for the lock
                self._dispatcher = self._dispatcher or self._make()
        return self._dispatcher

    def _make(self) -> Any:
        """Make numba's dispatcher of the function, with the folder in which its machine code is
        kept.

        numba has one global setting for that folder and reads it while the dispatcher is made. So
        the setting is changed for that time and restored afterwards.
        """
        numba: Any = importlib.import_module("numba")
        jit = numba.njit(
            nogil=True,  # so that several threads rank at once
            cache=bool(kernel_folder()),
            error_model="numpy",  # 0 / 0 is NaN, without a check before each division
            no_cfunc_wrapper=True,  # no caller in C: less to compile
            # nor in Python, for a function that only compiled functions call
            no_cpython_wrapper=not self.called_from_python,
        )

        usual = numba.config.CACHE_DIR
        if folder := kernel_folder():
            # another folder for changed sources: numba would not notice that a callee changed
            digest = sources_digest(self.function.__module__)
            numba.config.CACHE_DIR = str(folder / digest[:16])
        try:
            return jit(self.function)
        finally:
            numba.config.CACHE_DIR = usual


@cache
def kernel_folder() -> Path | None:
    """Return the folder of numba's cache: NUMBA_CACHE_DIR, else a folder in the user's cache. None
    if other users may write to that folder: numba unpickles its cache, so they could make it run
    their code.

    numba's default is a folder inside the package. It is not used, since files that stay there
    after hbench is uninstalled would shadow the next installation.
    """
    with LOADING:  # `Compiled._make` changes CACHE_DIR for a moment under the same lock
        named = importlib.import_module("numba").config.CACHE_DIR
    folder = Path(named) if named else cache_home() / "kernels"
    with suppress(OSError):  # a folder that cannot be made or examined counts as none
        folder.mkdir(parents=True, exist_ok=True)
        # whoever may write to the parent could replace the folder, unless a sticky bit forbids it
        if os.access(folder, os.W_OK) and is_own(folder) and is_own(folder.parent, sticky=True):
            return folder
    return None


def is_own(folder: Path, *, sticky: bool = False) -> bool:
    """Whether a folder belongs to this user or the system, and no other user may write to it. True
    on systems without owners of files.

    A group named like the user is taken to have the user as its only member. `sticky`: accept a
    folder that others may write to if its sticky bit keeps them from replacing files that they do
    not own, as in /tmp.
    """
    if not hasattr(os, "geteuid"):
        return True
    import grp
    import pwd

    status = folder.stat()
    writers = stat.S_IWOTH | stat.S_IWGRP  # the permission bits that must not be set
    # a group or a user without a name, as in containers, counts as a group of several users
    with suppress(KeyError):
        if grp.getgrgid(status.st_gid).gr_name == pwd.getpwuid(os.geteuid()).pw_name:
            writers = stat.S_IWOTH
    shared = bool(status.st_mode & writers) and not (sticky and status.st_mode & stat.S_ISVTX)
    return status.st_uid in {os.geteuid(), 0} and not shared


@cache
def sources_digest(module: str) -> str:
    """The sha256, as hex digits, of all that the machine code of a module depends on: numba's
    version, the module's source, and those of the modules of its package that it imports, directly
    or through others.

    Imports are found in the source text: `from hbench.x import y`, where y may be a module, too.
    """
    # group 1: the package or module; group 2: the names, on one line or in parentheses
    imported = re.compile(
        rf"^from ({module.partition('.')[0]}(?:\.\w+)*) import ([^(\n]+|\([^)]*\))", re.MULTILINE
    )
    sources: dict[str, str] = {}
    waiting = [module]

    # follow only modules that Python has imported: the code of others cannot be called
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
    """Decorate a function to be compiled at its first call.

    Float operations keep the order in which they are written (no "fast math"). An order that the
    compiler chooses may differ between code that was just compiled and code from the disk.
    """
    return cast("FunctionT", Compiled(function))


def compiled_part(function: FunctionT) -> FunctionT:
    """Decorate a function that only compiled functions call. It is compiled without the wrapper for
    calls from Python, which saves a third of the compile time. Called from Python, as by a test, it
    runs uncompiled."""
    return cast("FunctionT", Compiled(function, called_from_python=False))


def compiling_pays(values: int) -> bool:
    """Whether compiled code is faster than numpy for this many values, loading numba included.

    The answer depends on the number of values alone, not on whether numba is loaded already: numpy
    and compiled code differ in the last bits, and repeated runs must not.
    """
    return values > MIN_COMPILED


def is_cached(function: Callable[..., Any]) -> bool:
    """Whether the machine code of a compiled function is on disk, where numba keeps an index file
    (.nbi) of each function."""
    made = cast("Compiled", function)
    folder = made.dispatcher.stats.cache_path
    return bool(folder) and any(Path(folder).glob(f"*.{made.function.__name__}-*.nbi"))


def announcement() -> str:
    """Return the line that users see before the ranking kernel is compiled."""
    if kernel_folder():
        return "compiling the ranking kernel, this once"
    return (
        "compiling the ranking kernel, as every time: there is no folder to keep it in that can be "
        "written to, and by "
        "nobody else; HBENCH_CACHE may name one"
    )


def available_threads() -> int:
    """The number of processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def one_blas_thread() -> AbstractContextManager[object]:
    """Return a context manager that limits BLAS to one thread in the whole process.

    It is used while blocks are ranked: each of hbench's own threads multiplies a block, and more
    threads than cores would slow all of them down. It is also used for principal components, whose
    last bits would depend on the number of threads.
    """
    limits: AbstractContextManager[object] = threadpool_limits(1, user_api="blas")
    return limits
