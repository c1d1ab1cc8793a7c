"""Finds the folders for data and cache: HBENCH_DATA and HBENCH_CACHE, else folders inside
HBENCH_HOME, else the system's standard places (XDG)."""

import os
from pathlib import Path

import platformdirs


def data_home() -> Path:
    """The folder of downloaded and built datasets; it may be a read-only share."""
    return _folder("HBENCH_DATA", "data", platformdirs.user_data_path("hbench"))


def cache_home() -> Path:
    """The folder of files that can be made again: HTTP responses, derived files, kernels."""
    return _folder("HBENCH_CACHE", "cache", platformdirs.user_cache_path("hbench"))


def consent_home() -> Path:
    """The folder that records which of a user's own programs are allowed to run. It is no cache:
    the user's consent cannot be made again."""
    return _folder("", "trusted", platformdirs.user_config_path("hbench") / "trusted")


def _folder(variable: str, name: str, default: Path) -> Path:
    """The folder that the environment `variable` names ("": none), else the folder `name` in
    HBENCH_HOME, else `default`."""
    if variable and os.environ.get(variable):
        return Path(os.environ[variable])
    if os.environ.get("HBENCH_HOME"):
        return Path(os.environ["HBENCH_HOME"]) / name
    return default
