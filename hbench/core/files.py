"""Writes files atomically: whole and under another name first, then renamed into place."""

from __future__ import annotations

import errno
import hashlib
import json
import logging
import os
import shutil
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hbench.core.errors import DataError, SubmissionError, UsageError
from hbench.core.paths import cache_home
from hbench.core.text import first_line
from hbench.core.untrusted import parse_json, read_arrays

if TYPE_CHECKING:
    from filelock import BaseFileLock

LOG = logging.getLogger(__name__)
FULL = {errno.ENOSPC, errno.EDQUOT}  # the disk is full, or the user's share of it
# with fewer free bytes, an unexplained write error is reported as a full disk
LOW_SPACE = 1 << 16


@contextmanager
def full_disk_told(
    path: Path, *, missing: Callable[[], int | None] = lambda: None
) -> Iterator[None]:
    """Turn what libraries raise where the disk of `path` is full into a DataError; `missing`: the
    bytes still to be written, if known.

    The system says so by a number; numpy raises an OSError without it, torch a RuntimeError, so
    that only the space left tells.
    """
    try:
        yield
    except (OSError, RuntimeError) as error:
        number = getattr(error, "errno", None)
        if number in FULL or (number is None and free_bytes(path) < LOW_SPACE):
            needed = missing()
            raise DataError(
                f"the disk is full: {path} could not be written",
                expected=None if needed is None else f"{needed:,} more bytes free",
                found=f"{free_bytes(path):,} bytes free",
                fix="free some space and run the same command again",
            ) from None
        raise


def free_bytes(path: Path) -> int:
    """The bytes free on the disk where `path` is or will be: that of its nearest existing
    folder."""
    path = Path(path).absolute()
    return shutil.disk_usage(
        next(folder for folder in (path, *path.parents) if folder.exists())
    ).free


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary path beside `path` that replaces it when the block ends well and vanishes when it
    does not.

    A link stays a link, and the file it leads to is replaced; a pipe or a device is written to as
    it is.
    """
    path = Path(path)
    _refuse_folder(path)
    if _is_special(path):
        yield path
        return

    path = path.resolve()
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with full_disk_told(path):
            yield temporary
            # on the disk before it has the name: else a crash could leave the name of an empty file
            with temporary.open("rb") as written:
                os.fsync(written.fileno())
            temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def lock_of(path: Path) -> BaseFileLock:
    """The lock of a file or folder, by its resolved path; it lies in the cache, so that nothing is
    left beside the file.
    """
    from filelock import FileLock

    locks = cache_home() / "locks"
    locks.mkdir(parents=True, exist_ok=True)
    name = hashlib.sha256(str(Path(path).resolve()).encode()).hexdigest()[:16]
    return FileLock(locks / f"{name}.lock")


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Keep other processes from writing the same file until the block ends; says so where it has to
    wait for one.

    Where the cache cannot be written there is no lock: a file that can be written is written all
    the same.
    """
    from filelock import Timeout

    try:
        lock = lock_of(path)
        lock.acquire(timeout=0)  # without waiting, to know whether there is somebody to wait for
    except Timeout:
        LOG.warning("waiting for another process that writes %s", path)
        lock.acquire()
    except OSError:
        yield
        return
    try:
        yield
    finally:
        lock.release()


def write_text(path: Path, text: str) -> None:
    """Write UTF-8 text at `path`, whole or not at all."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def refuse_unwritable(path: Path) -> None:
    """Raise UsageError, before work starts, where no file can be written: at a folder, or in a
    folder that is closed.

    Nothing is left behind, not even the folders that the file is yet to get.
    """
    path = Path(path)
    _refuse_folder(path)
    if _is_special(path):
        return
    existing = next(folder for folder in path.resolve().parents if folder.exists())
    try:
        # a trial says more than permissions do: of a full or read-only disk, too
        tempfile.TemporaryFile(dir=existing).close()
    except OSError as error:
        raise UsageError(
            f"{path} cannot be written", found=str(error.strerror), fix="choose another place"
        ) from None


def _refuse_folder(path: Path) -> None:
    """Raise UsageError for a folder where a file is to be written."""
    if path.is_dir():
        raise UsageError(f"{path} is a folder", expected="the name of a file to write")


def _is_special(path: Path) -> bool:
    """Whether a path leads to a pipe or a device, such as /dev/stdout, which no file replaces."""
    return path.exists() and not path.is_file() and not path.is_dir()


HEADER = "header"  # the name, among the arrays of an .npz, of what describes them
# what reading an .npz raises where bytes of it are wrong
DAMAGED = (zipfile.BadZipFile, zlib.error, OSError, EOFError, ValueError, KeyError, TypeError)


def write(path: Path, header: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write a .npz of the arrays, none of objects, with the header as one array more: the bytes of
    its JSON."""
    text = np.frombuffer(json.dumps(header).encode(), np.uint8)
    with replacing(path) as temporary, temporary.open("wb") as file:
        np.savez(file, allow_pickle=False, **{HEADER: text}, **arrays)


def read(path: Path) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """The header and the arrays that `write` put into a .npz; SubmissionError for a file that is
    missing, damaged or of another kind.
    """
    try:
        arrays = read_arrays(path)
        return dict(parse_json(arrays.pop(HEADER).tobytes())), arrays
    except DAMAGED as error:
        # without a header it is sound, but none of hbench's
        reason = "another .npz" if isinstance(error, KeyError) else first_line(error)
        raise SubmissionError(
            f"{path} cannot be read", expected="arrays that hbench kept", found=reason
        ) from None
