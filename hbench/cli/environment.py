"""Describes the machine for a bug report: versions, processor, and the folders with those who may
write to them.

>>> sorted(environment())
['folders', 'processor', 'variables', 'versions']
"""

import os
import platform
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from hbench.core.compiled import available_threads, is_own, kernel_folder
from hbench.core.paths import cache_home, data_home
from hbench.core.version import __version__

PACKAGES = (
    "numpy", "numba", "pyarrow", "networkx", "pandas", "scikit-learn", "matplotlib", "torch",
    "torchvision", "timm",
)  # fmt: skip
VARIABLES = (
    "HBENCH_HOME",
    "HBENCH_DATA",
    "HBENCH_CACHE",
    "NUMBA_CACHE_DIR",
    "NUMBA_DISABLE_JIT",
    "OMP_NUM_THREADS",
)


def environment() -> dict[str, Any]:
    """Versions, hardware, folders and variables as JSON-ready values."""
    return {
        "versions": _versions(),
        "processor": _processor(),
        "folders": {"data": _folder(data_home()), "cache": _folder(cache_home())},
        "variables": {name: os.environ[name] for name in VARIABLES if name in os.environ},
    }


def _versions() -> dict[str, str]:
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
    from threadpoolctl import threadpool_info

    model = platform.processor() or "unknown"
    with suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
        model = next(
            (line.partition(":")[2].strip() for line in lines if line.startswith("model name")),
            model,
        )
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
    there = path.exists()
    return {
        "path": str(path),
        "exists": there,
        "owner": _owner(path) if there else None,
        "writable": os.access(path, os.W_OK) if there else None,
        "only_by_owner": is_own(path) if there else None,
    }


def _owner(path: Path) -> str:
    try:
        return path.owner()
    except (
        KeyError,
        NotImplementedError,
        OSError,
    ):  # a number without a name, or a system without owners
        return str(path.stat().st_uid)
