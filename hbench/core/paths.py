"""Finds the data and cache folders: HBENCH_DATA and HBENCH_CACHE, else inside HBENCH_HOME, else
where the system keeps such files (XDG)."""

import os
from pathlib import Path

import platformdirs


def data_home() -> Path:
    """The folder of downloaded and built datasets; it may be a read-only share."""
    return _folder("HBENCH_DATA", "data", platformdirs.user_data_path("hbench"))


def cache_home() -> Path:
    """The folder of everything that can be made again: HTTP answers, derived files, compiled
    kernels.
    """
    return _folder("HBENCH_CACHE", "cache", platformdirs.user_cache_path("hbench"))


def consent_home() -> Path:
    """The folder that remembers which programs of somebody's own may run; nothing can make it
    again."""
    return _folder("", "trusted", platformdirs.user_config_path("hbench") / "trusted")


def _folder(variable: str, name: str, default: Path) -> Path:
    """The folder that an environment variable of its own names, or that is called so below
    HBENCH_HOME, or else the default."""
    if variable and os.environ.get(variable):
        return Path(os.environ[variable])
    if os.environ.get("HBENCH_HOME"):
        return Path(os.environ["HBENCH_HOME"]) / name
    return default
