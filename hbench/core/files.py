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
    """Raise DataError in place of the errors that libraries raise when the disk of `path` is full.
    `missing` returns the number of bytes still to be written, or None where it is unknown.

    The operating system reports a full disk by an error number (FULL). numpy raises an OSError
    without that number and torch a RuntimeError. For these the free space decides: less than
    LOW_SPACE bytes count as a full disk.
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
    """The number of free bytes on the disk on which `path` is or will be. `path` need not exist:
    its nearest existing parent folder is looked at."""
    path = Path(path).absolute()
    return shutil.disk_usage(
        next(folder for folder in (path, *path.parents) if folder.exists())
    ).free


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside `path`. It replaces `path` when the block ends without an
    error, and is deleted otherwise.

    Of a symbolic link the target is replaced, and the link stays. A pipe or a device cannot be
    replaced: `path` itself is yielded, to be written to directly.
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
            # flush to the disk before renaming: after a crash the file could be empty otherwise
            with temporary.open("rb") as written:
                os.fsync(written.fileno())
            temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def lock_of(path: Path) -> BaseFileLock:
    """Return the lock of a file or folder, which is identified by its resolved path. The lock file
    is kept in the cache folder, so that nothing is left beside `path`.
    """
    from filelock import FileLock

    locks = cache_home() / "locks"
    locks.mkdir(parents=True, exist_ok=True)
    name = hashlib.sha256(str(Path(path).resolve()).encode()).hexdigest()[:16]
    return FileLock(locks / f"{name}.lock")


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Keep other processes from writing the file at `path` until the block ends. A warning is
    logged when another process holds the lock, before waiting for it.

    Without a writable cache folder there is no lock: this must not keep a file from being written.
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
    """Raise UsageError, before work starts, if no file can be written at `path`: because it is a
    folder, or because its folder is not writable.

    Nothing is left behind: missing parent folders are not created yet.
    """
    path = Path(path)
    _refuse_folder(path)
    if _is_special(path):
        return
    existing = next(folder for folder in path.resolve().parents if folder.exists())
    try:
        # write a file as a trial: permissions alone do not show a full or read-only disk
        tempfile.TemporaryFile(dir=existing).close()
    except OSError as error:
        raise UsageError(
            f"{path} cannot be written", found=str(error.strerror), fix="choose another place"
        ) from None


def _refuse_folder(path: Path) -> None:
    """Raise UsageError if `path`, where a file is to be written, is a folder."""
    if path.is_dir():
        raise UsageError(f"{path} is a folder", expected="the name of a file to write")


def _is_special(path: Path) -> bool:
    """Whether `path` is a pipe or a device, such as /dev/stdout, which a file must not replace."""
    return path.exists() and not path.is_file() and not path.is_dir()


HEADER = "header"  # the name of the array in an .npz that describes the others
# the errors that reading a damaged .npz raises
DAMAGED = (zipfile.BadZipFile, zlib.error, OSError, EOFError, ValueError, KeyError, TypeError)


def write(path: Path, header: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write arrays, none of objects, to an .npz file. The `header` becomes one more array: the
    bytes of its JSON."""
    text = np.frombuffer(json.dumps(header).encode(), np.uint8)
    with replacing(path) as temporary, temporary.open("wb") as file:
        np.savez(file, allow_pickle=False, **{HEADER: text}, **arrays)


def read(path: Path) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Return the header, a dictionary, and the arrays {name: array} of an .npz file that `write`
    made. Raises SubmissionError if the file is missing, damaged or of another kind.
    """
    try:
        arrays = read_arrays(path)
        # `write` keeps the header as one more array: the bytes of its JSON
        return dict(parse_json(arrays.pop(HEADER).tobytes())), arrays
    except DAMAGED as error:
        # a KeyError means that the header is missing: a sound .npz that hbench did not write
        reason = "another .npz" if isinstance(error, KeyError) else first_line(error)
        raise SubmissionError(
            f"{path} cannot be read", expected="arrays that hbench kept", found=reason
        ) from None
