"""Records what is known of each downloaded file (`.hbench/FILE.json`), so that none is fetched or read twice.

It holds the size and time of the file when its checksums were taken, and how many files were unpacked from it.
"""

from __future__ import annotations

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
    """`path`: where the file lies (elsewhere when adopted). `unpacked`: number of files unpacked from it, None
    when not."""

    path: str
    size: int
    time: int
    md5: str
    sha256: str
    unpacked: int | None = None

    def is_current(self) -> bool:
        """Whether the file is still the one whose checksums these are."""
        file = Path(self.path)
        return file.is_file() and (file.stat().st_size, file.stat().st_mtime_ns) == (self.size, self.time)


RECORD = TypeAdapter(DownloadRecord)


def record_of(path: Path, sums: dict[str, str]) -> DownloadRecord:
    """The record of a file with these checksums, now."""
    return DownloadRecord(str(path), path.stat().st_size, path.stat().st_mtime_ns, sums["md5"], sums["sha256"])


def read_record(folder: Path, source: RemoteFile) -> DownloadRecord | None:
    """The record of a source; None where there is none, or a foreign one."""
    try:
        return RECORD.validate_python(read_json(_path(folder, source)))
    except (OSError, ValueError):  # pydantic's ValidationError is one
        return None


def write_record(folder: Path, source: RemoteFile, record: DownloadRecord) -> None:
    """Keep the record of a source."""
    write_text(_path(folder, source), json.dumps(asdict(record)) + "\n")


def forget_record(folder: Path, source: RemoteFile) -> None:
    """Remove the record of a source, if there is one."""
    _path(folder, source).unlink(missing_ok=True)


def state_of(folder: Path, source: RemoteFile) -> str:
    """How a source stands: "done", "unpacked" (its archive was removed), "verified", "unchecked", "partial",
    "missing"."""
    target = folder / source.file
    record = read_record(folder, source)
    if record and source.unpack is not None and record.unpacked is not None:
        return "done" if Path(record.path).exists() else "unpacked"
    if record and record.is_current():
        return "done" if source.unpack is None else "verified"
    if target.exists():
        return "unchecked"
    return "partial" if target.with_name(f".{target.name}.part").exists() else "missing"


def _path(folder: Path, source: RemoteFile) -> Path:
    return folder / FOLDER / f"{source.file.replace('/', '__')}.json"


LOCKED = {errno.EROFS, errno.EACCES, errno.EPERM}


@contextmanager
def disk_errors(path: Path, *, missing: Callable[[], int | None] = lambda: None) -> Iterator[None]:
    """Turn a full or read-only disk under `path` into a DataError; `missing`: the bytes still to be written, if known."""
    try:
        with full_disk_told(path, missing=missing):
            yield
    except OSError as error:
        if error.errno in LOCKED:
            raise DataError(
                f"{error.filename or path} cannot be written",
                found=str(error.strerror),
                fix="choose another folder with --root DIR, or take files as they lie with --adopt DIR",
            ) from None
        raise
