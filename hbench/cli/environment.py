"""Describes the machine for a bug report: versions, processor, and the folders with those who may
write to them.

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
from hbench.core.errors import HBenchError
from hbench.core.paths import cache_home, data_home
from hbench.core.registry import PluginWarning
from hbench.core.text import first_line
from hbench.core.version import __version__

PACKAGES = (
    "numpy", "numba", "pyarrow", "networkx", "pandas", "scikit-learn", "matplotlib", "torch",
    "torchvision", "timm",
)  # fmt: skip
# the entry-point groups of plug-ins: what one is called, and the registry that loads it
GROUPS = {
    "hbench.datasets": ("dataset", "hbench.datasets:specs"),
    "hbench.metrics": ("metric", "hbench.metrics.definitions:metrics"),
    "hbench.losses": ("loss", "hbench.losses:losses"),
    "hbench.similarities": ("similarity", "hbench.engine.similarity:similarities"),
    "hbench.backbones": ("source of backbones", "hbench.train.models.backbones:sources"),
    "hbench.recipes": ("recipes of the verb", "hbench.train.recipes.books:books"),
    "hbench.verbs": ("verb", ""),
}
OWN_CODE = "own_"  # begins the modules of FILE.py:NAME (hbench.train.recipes.own_code)
VARIABLES = (
    "HBENCH_HOME",
    "HBENCH_DATA",
    "HBENCH_CACHE",
    "NUMBA_CACHE_DIR",
    "NUMBA_DISABLE_JIT",
    "OMP_NUM_THREADS",
)


def environment() -> dict[str, Any]:
    """Versions, hardware, folders, variables that are set and plug-ins, as JSON-ready values: what
    `hbench info` shows."""
    return {
        "versions": _versions(),
        "processor": _processor(),
        "folders": {"data": _folder(data_home()), "cache": _folder(cache_home())},
        "variables": {name: os.environ[name] for name in VARIABLES if name in os.environ},
        "plugins": list(plugins()),
    }


def plugins() -> Iterator[dict[str, str | bool | None]]:
    """What other packages add, by kind, name and package ("NAME VERSION", None where the
    installation does not say): each is loaded as hbench would load it, and tried on a small
    example, where one can be made of its kind (`tried`). `problem` is why it is left out, or what
    it raises; None where there is none.

    A table of GROUPS is "MODULE:NAME", a registry that loads its plug-ins when it is first read,
    and warns of those that fail; verbs have none, and an empty text."""
    for group, (kind, table) in GROUPS.items():
        points = [point for point in entry_points(group=group) if not _is_ours(point)]
        if not points:
            continue
        module, _, name = table.partition(":")
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            known = set(getattr(importlib.import_module(module), name)) if table else set()
        said = [str(each.message) for each in caught if each.category is PluginWarning]
        for point in points:
            problem = _problem(point, known if table else None, said)
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
    """Whether hbench itself brings what an entry point names."""
    return point.dist is not None and point.dist.name == "hbench"


def _problem(point: EntryPoint, known: Collection[str] | None, said: Sequence[str]) -> str | None:
    """Say why a plug-in is left out, None where it works.

    `known`: the names in the registry of its kind, and `said`: the warnings that the registry gave
    as it loaded plug-ins, one of which has this one's name in quotes. None of a verb, which has no
    registry: it is loaded here."""
    if known is not None:
        if point.name in known:
            return None
        return next((text for text in said if repr(point.name) in text), "it is not registered")
    try:
        point.load()
    except Exception as error:  # whatever a foreign program raises as it is imported
        return f"{type(error).__name__}: {first_line(error)}"
    return None


def _try(kind: str, name: str) -> tuple[bool, str | None]:
    """Try what a package brings: return whether a small example could be made of it, and what went
    wrong, with the line of the package; None where nothing did."""
    try:
        return trial_of(kind)(name), None
    except HBenchError as error:
        return True, f"{error.problem}: found {error.found}" if error.found else error.problem
    except Exception as error:  # whatever a foreign program raises
        met = f"{type(error).__name__}: {first_line(error)}"
        foreign = foreign_line(error)
        return True, f"{met}, in {foreign.line}" if foreign else met


class ForeignLine(NamedTuple):
    """A `line` of code that is not hbench's, "FILE, line N", and `whose` it is, in words."""

    whose: str
    line: str


def foreign_line(error: BaseException) -> ForeignLine | None:
    """The innermost line of a user's own program, FILE.py:NAME, or of a package that adds to
    hbench, that an error came through; None where it came through neither."""
    packages = _packages_of_plugins()
    found = None
    at = error.__traceback__
    while at is not None:
        module = at.tb_frame.f_globals.get("__name__", "")
        line = f"{at.tb_frame.f_code.co_filename}, line {at.tb_lineno}"
        if module.startswith(OWN_CODE):
            found = ForeignLine("your own program", line)
        elif package := packages.get(module.partition(".")[0]):
            found = ForeignLine(f"the package {package}", line)
        at = at.tb_next
    return found


def _packages_of_plugins() -> dict[str, str]:
    """Return the names of the packages that add to hbench by an entry point, by the outermost
    module of each, such as "mine" of mine.losses."""
    points = [point for group in GROUPS for point in entry_points(group=group)]
    named = {point.module.partition(".")[0]: point.dist for point in points}
    return {module: dist.name for module, dist in named.items() if dist and dist.name != "hbench"}


def _versions() -> dict[str, str]:
    """The versions of hbench, Python, the system, and of the packages that results depend on."""
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
    """The processor and the libraries that multiply on it: what a measured time depends on."""
    from threadpoolctl import threadpool_info

    model = platform.processor() or "unknown"
    with suppress(OSError):  # Linux alone has this file, and names the model better
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
        model = next(
            (line.partition(":")[2].strip() for line in lines if line.startswith("model name")),
            model,
        )
    # with several libraries loaded any of them may have multiplied
    blas = [
        f"{library['internal_api']} {library.get('architecture', '')}".strip()
        for library in threadpool_info()
    ]
    return {
        "model": model,
        "machine": platform.machine(),
        "threads": available_threads(),
        "blas": ", ".join(dict.fromkeys(blas)) or "unknown",
        "kernels_kept_in": str(kernel_folder() or "nowhere"),
    }


def _folder(path: Path) -> dict[str, Any]:
    """Describe a folder: its path, whether it is there, its owner and who may write to it (None
    where it is not there). A folder of compiled code that others may write to is not used, and this
    is where one sees why."""
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
