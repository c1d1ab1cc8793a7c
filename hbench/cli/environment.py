"""Describes the machine for a bug report: versions, processor, plug-ins, and folders with the users
who may write to them.

>>> sorted(environment())
['folders', 'plugins', 'processor', 'variables', 'versions']
"""

import importlib
import os
import platform
import warnings
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from importlib.metadata import EntryPoint, PackageNotFoundError, entry_points, version
from pathlib import Path
from typing import Any, NamedTuple

from hbench.cli.plugin_trials import trial_of
from hbench.core.compiled import available_threads, is_own, kernel_folder
from hbench.core.errors import HBenchError, lines_through
from hbench.core.paths import cache_home, data_home
from hbench.core.registry import PluginWarning
from hbench.core.text import first_line
from hbench.core.version import __version__

PACKAGES = (
    "numpy", "numba", "pyarrow", "networkx", "pandas", "scikit-learn", "matplotlib", "torch",
    "torchvision", "timm",
)  # fmt: skip
# {entry-point group: (what one of its plug-ins is called, "MODULE:NAME" of the registry)}
GROUPS = {
    "hbench.datasets": ("dataset", "hbench.datasets:specs"),
    "hbench.metrics": ("metric", "hbench.metrics.definitions:metrics"),
    "hbench.losses": ("loss", "hbench.losses:losses"),
    "hbench.similarities": ("similarity", "hbench.engine.similarity:similarities"),
    "hbench.backbones": ("source of backbones", "hbench.train.models.backbones:sources"),
    "hbench.recipes": ("recipes of the verb", "hbench.train.recipes.books:books"),
    "hbench.verbs": ("verb", ""),
}
OWN_CODE = "own_"  # prefix of modules from FILE.py:NAME (hbench.train.recipes.own_code)
VARIABLES = (
    "HBENCH_HOME",
    "HBENCH_DATA",
    "HBENCH_CACHE",
    "NUMBA_CACHE_DIR",
    "NUMBA_DISABLE_JIT",
    "OMP_NUM_THREADS",
)


def environment() -> dict[str, Any]:
    """Collect what `hbench info` shows, as values for JSON: versions, hardware, folders, variables
    that are set, and plug-ins."""
    return {
        "versions": _versions(),
        "processor": _processor(),
        "folders": {"data": _folder(data_home()), "cache": _folder(cache_home())},
        "variables": {name: os.environ[name] for name in VARIABLES if name in os.environ},
        "plugins": list(plugins()),
    }


def plugins() -> Iterator[dict[str, str | bool | None]]:
    """Yield a record for each plug-in of another package: its kind, its name, the package with its
    version (None if unknown), whether it was `tried` on a small example, and its `problem` (why it
    is left out, or what it raised; None if it works).

    Plug-ins are loaded as hbench loads them: a registry loads its plug-ins when it is first read,
    and warns of those that fail. Verbs (further commands of `hbench`) have no registry.
    """
    # `registry`: "MODULE:NAME" of the one that loads this kind of plug-ins; "" for verbs
    for group, (kind, registry) in GROUPS.items():
        points = [point for point in entry_points(group=group) if not _is_ours(point)]
        if not points:
            continue
        module, _, name = registry.partition(":")
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            # the names in the registry; to read them loads the plug-ins
            known = set(getattr(importlib.import_module(module), name)) if registry else set()
        said = [str(each.message) for each in caught if each.category is PluginWarning]
        for point in points:
            problem = _problem(point, known if registry else None, said)
            was_tried = False
            if problem is None:
                was_tried, problem = _try(kind, point.name)
            yield {
                "kind": kind,
                "name": point.name,
                "package": f"{point.dist.name} {point.dist.version}" if point.dist else None,
                "tried": was_tried,
                "problem": problem,
            }


def _is_ours(point: EntryPoint) -> bool:
    """Whether an entry point belongs to hbench itself."""
    return point.dist is not None and point.dist.name == "hbench"


def _problem(point: EntryPoint, known: Collection[str] | None, said: Sequence[str]) -> str | None:
    """Return why a plug-in is left out; None if it works.

    `known`: the names in the registry of its kind; None for a verb, which has no registry and is
    loaded here. `said`: the warnings of the registry while it loaded plug-ins; a warning has the
    name of its plug-in in quotes.
    """
    if known is not None:
        if point.name in known:
            return None
        return next((text for text in said if repr(point.name) in text), "it is not registered")
    try:
        point.load()
    except Exception as error:  # another package may raise anything on import
        return f"{type(error).__name__}: {first_line(error)}"
    return None


def _try(kind: str, name: str) -> tuple[bool, str | None]:
    """Try a plug-in on a small example. Return whether there is an example for its `kind`, and what
    went wrong, with the line in the plug-in's package; None if nothing did."""
    try:
        # the trial returns False where there is no example, and raises if the plug-in fails
        return trial_of(kind)(name), None
    except HBenchError as error:
        return True, f"{error.problem}: found {error.found}" if error.found else error.problem
    except Exception as error:  # another package may raise anything
        met = f"{type(error).__name__}: {first_line(error)}"
        foreign = foreign_line(error)
        return True, f"{met}, in {foreign.line}" if foreign else met


class ForeignLine(NamedTuple):
    """A line of code outside of hbench. `whose`: whose code it is, in words. `line`: "FILE, line
    N"."""

    whose: str
    line: str


def foreign_line(error: BaseException) -> ForeignLine | None:
    """Find the innermost line of a user's own program (FILE.py:NAME), or of a plug-in package, that
    an error passed through; None if it passed through neither. A line is a text, "FILE, line N"."""
    packages = _packages_of_plugins()  # {outermost module: package}
    found = None
    # the outermost line comes first, so that the last one found is the innermost
    for module, line in lines_through(error):
        if module.startswith(OWN_CODE):
            found = ForeignLine("your own program", line)
        elif package := packages.get(module.partition(".")[0]):
            found = ForeignLine(f"the package {package}", line)
    return found


def _packages_of_plugins() -> dict[str, str]:
    """Return {outermost module: package} of the packages with plug-ins for hbench, such as "mine"
    for mine.losses."""
    points = [point for group in GROUPS for point in entry_points(group=group)]
    named = {point.module.partition(".")[0]: point.dist for point in points}
    return {module: dist.name for module, dist in named.items() if dist and dist.name != "hbench"}


def _versions() -> dict[str, str]:
    """Return the versions of hbench, Python, the system, and the packages that affect results."""
    found = {
        "hbench": __version__,
        "python": platform.python_version(),
        "system": platform.platform(),
    }
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "not installed"
    return found


def _processor() -> dict[str, Any]:
    """Describe the processor, its threads and the BLAS libraries, which measured times depend on,
    and the folder in which compiled kernels are kept ("nowhere" if it is not safe)."""
    from threadpoolctl import threadpool_info

    model = platform.processor() or "unknown"
    with suppress(OSError):  # only Linux has this file, which names the model better
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
        model = next(
            (line.partition(":")[2].strip() for line in lines if line.startswith("model name")),
            model,
        )
    # several libraries may be loaded, BLAS and OpenMP, and any of them may be in use
    blas = [
        f"{library['internal_api']} {library.get('architecture', '')}".strip()
        for library in threadpool_info()
    ]
    return {
        "model": model,
        "machine": platform.machine(),
        "threads": available_threads(),
        "blas": ", ".join(dict.fromkeys(blas)) or "unknown",  # equal texts once
        "kernels_kept_in": str(kernel_folder() or "nowhere"),
    }


def _folder(path: Path) -> dict[str, Any]:
    """Describe a folder: its path, whether it exists, its owner, whether this user may write to it,
    and whether nobody else may (`only_by_owner`). The last three are None if it does not exist. A
    folder that others may write to is not used for compiled code."""
    there = path.exists()
    return {
        "path": str(path),
        "exists": there,
        "owner": _owner(path) if there else None,
        "writable": os.access(path, os.W_OK) if there else None,
        "only_by_owner": is_own(path) if there else None,
    }


def _owner(path: Path) -> str:
    """The name of a folder's owner, or its number where it has no name, or the system no owners."""
    try:
        return path.owner()
    except (KeyError, NotImplementedError, OSError):
        return str(path.stat().st_uid)
