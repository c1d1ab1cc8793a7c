"""What a disk refuses, said in one clear message."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hbench.errors import DataError

FULL = {errno.ENOSPC, errno.EDQUOT}
LOCKED = {errno.EROFS, errno.EACCES, errno.EPERM}


@contextmanager
def disk_errors(path: Path) -> Iterator[None]:
    """Turn a full or read-only disk under `path` into a DataError."""
    try:
        yield
    except OSError as error:
        if error.errno in FULL:
            raise DataError(
                f"the disk is full: {path} could not be written",
                found=f"{free_bytes(path):,} bytes free",
                fix="make room and run the same command again: it goes on where it stopped",
            ) from None
        if error.errno in LOCKED:
            raise DataError(
                f"{error.filename or path} cannot be written",
                found=str(error.strerror),
                fix="choose another folder with --root DIR, or take files as they lie with --adopt DIR",
            ) from None
        raise


def free_bytes(path: Path) -> int:
    """The bytes free where `path` is or will be."""
    return shutil.disk_usage(next(folder for folder in (path, *path.parents) if folder.exists())).free
