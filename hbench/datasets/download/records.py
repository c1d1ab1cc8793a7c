"""Keeps a record of each downloaded file (`.hbench/FILE.json`), so that none is fetched or verified twice.

A record holds the checksums, the file's size and time when they were computed, and how many files were unpacked from it.
"""

import errno
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from pydantic import TypeAdapter

from hbench.core.errors import DataError
from hbench.core.files import full_disk_told, write_text
from hbench.core.untrusted import read_json
from hbench.datasets.download.sources import RemoteFile

FOLDER = ".hbench"


@dataclass(frozen=True)
class DownloadRecord:
    """The record of one file; an adopted one has its `path` elsewhere. `unpacked`: the number of files unpacked from it, None
    before that."""

    path: str
    size: int
    time: int
    md5: str
    sha256: str
    unpacked: int | None = None


RECORD = TypeAdapter(DownloadRecord)


def read_record(folder: Path, source: RemoteFile) -> DownloadRecord | None:
    """Read the record of a source; None where it is missing or unreadable."""
    try:
        return RECORD.validate_python(read_json(_path(folder, source)))
    except (OSError, ValueError):  # pydantic's ValidationError is a ValueError
        return None


def write_record(folder: Path, source: RemoteFile, record: DownloadRecord) -> None:
    """Write the record of a source."""
    write_text(_path(folder, source), json.dumps(asdict(record)) + "\n")


def record_file(folder: Path, source: RemoteFile, path: Path, sums: dict[str, str]) -> DownloadRecord:
    """Write and return the record of a source whose file at `path` has these checksums now."""
    size, time = path.stat().st_size, path.stat().st_mtime_ns
    record = DownloadRecord(str(path), size, time, sums["md5"], sums["sha256"])
    write_record(folder, source, record)
    return record


def place_of(folder: Path, source: RemoteFile) -> tuple[Path, DownloadRecord | None]:
    """Return the path of a source's file, and its record, if there is one."""
    record = read_record(folder, source)
    return Path(record.path) if record else folder / source.file, record


def state_of(folder: Path, source: RemoteFile) -> str:
    """Return the state of a source: "done", "unpacked" (and its archive removed), "verified", "unchecked", "partial" or
    "missing"."""
    target = folder / source.file
    file, record = place_of(folder, source)
    if record and source.unpack is not None and record.unpacked is not None:
        return "done" if file.exists() else "unpacked"
    if record and file.is_file() and (file.stat().st_size, file.stat().st_mtime_ns) == (record.size, record.time):
        return "done" if source.unpack is None else "verified"
    if target.exists():
        return "unchecked"
    return "partial" if target.with_name(f".{target.name}.part").exists() else "missing"


def _path(folder: Path, source: RemoteFile) -> Path:
    return folder / FOLDER / f"{source.file.replace('/', '__')}.json"


LOCKED = {errno.EROFS, errno.EACCES, errno.EPERM}


@contextmanager
def disk_errors(path: Path, *, missing: Callable[[], int | None] = lambda: None) -> Iterator[None]:
    """Turn a full or read-only disk under `path` into a DataError; `missing` returns the bytes left to write, if known."""
    try:
        with full_disk_told(path, missing=missing):
            yield
    except OSError as error:
        if error.errno in LOCKED:
            raise DataError(
                f"{error.filename or path} cannot be written",
                found=str(error.strerror),
                fix="choose another folder with --root DIR, or use existing files with --adopt DIR",
            ) from None
        raise
