"""Unpacking archives from strangers: nothing leaves the folder, nothing explodes, and an interrupted unpacking goes on.

Each file is written under another name and then takes its own, so that a file that is there is whole; one that is
there with the size the archive says is not written again.
"""

from __future__ import annotations

import gzip
import lzma
import re
import tarfile
import threading
import zipfile
import zlib
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO

from hbench.disk import disk_errors
from hbench.errors import IntegrityError, examples
from hbench.fetch import Interrupted

BLOCK = 1 << 20
MOST_EXPANSION = 200  # times the size of the archive; more is a bomb
ALWAYS_ALLOWED = 1 << 26  # bytes, however small the archive
LONGEST_NAME = 240  # bytes, so that the temporary name fits too
ZIP_LINK = 0o120000
DAMAGED = (
    tarfile.TarError,
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    gzip.BadGzipFile,
    EOFError,
    NotImplementedError,
)
Open = Callable[[], IO[bytes]]


@dataclass(frozen=True)
class Member:
    """A regular file in an archive: its safe relative path, its size, and how to read it."""

    path: PurePosixPath
    size: int
    open: Open


def unpack(
    archive: Path, folder: Path, *, advance: Callable[[int], None] = lambda _: None, stop: threading.Event | None = None
) -> int:
    """Unpack a .zip or .tar(.gz, .bz2, .xz) into `folder` and return its number of files.

    `advance` hears of every file. Raises IntegrityError for an archive that is damaged, escapes its folder, holds
    anything but files and folders, or expands beyond reason; DataError for a full or read-only disk; Interrupted
    after `stop`.
    """
    number = 0
    with disk_errors(folder), _readable(archive):
        folder.mkdir(parents=True, exist_ok=True)
        inside = folder.resolve()
        if is_zip(archive):  # its list is at hand: nothing is written when any of it is bad
            deque(_sane(members(archive), archive), maxlen=0)
        for member in _sane(members(archive), archive):
            if stop is not None and stop.is_set():
                raise Interrupted
            _write(member, inside)
            number += 1
            advance(1)
    return number


def not_unpacked(archive: Path, folder: Path) -> list[str]:
    """The files of an archive that are missing below `folder` or have other content."""
    with _readable(archive):
        return [str(member.path) for member in members(archive) if not _is_unpacked(member, folder / member.path)]


def _is_unpacked(member: Member, file: Path) -> bool:
    if not file.is_file() or file.stat().st_size != member.size:
        return False
    with member.open() as body, file.open("rb") as found:
        while block := body.read(BLOCK):
            if found.read(len(block)) != block:
                return False
    return True


def members(archive: Path) -> Iterator[Member]:
    """The files of an archive, one after the other, as it holds them; every name is checked first."""
    return _zip_members(archive) if is_zip(archive) else _tar_members(archive)


def is_zip(archive: Path) -> bool:
    """Whether an archive begins like a .zip; every other is read as a tar."""
    with archive.open("rb") as file:
        return file.read(4) in {b"PK\x03\x04", b"PK\x05\x06"}


def safe_path(name: str, archive: Path) -> PurePosixPath:
    """A member's name as a relative path; raises IntegrityError for one that is hostile."""
    path = PurePosixPath(name)
    bad = (
        path.is_absolute()
        or ".." in path.parts
        or not path.parts
        or re.match(r"[A-Za-z]:", name)
        or re.search(r"[\\\x00-\x1f\x7f]", name)
        or any(len(part.encode()) > LONGEST_NAME for part in path.parts)
    )
    if bad:
        raise _unsafe(archive, f"the name {name[:100]!r}")
    return path


def _zip_members(archive: Path) -> Iterator[Member]:
    with zipfile.ZipFile(archive) as opened:
        for info in opened.infolist():
            path = safe_path(info.filename, archive)
            if info.external_attr >> 16 & 0o170000 == ZIP_LINK:
                raise _unsafe(archive, f"the link {path}")
            if info.flag_bits & 1:
                raise IntegrityError(
                    f"{archive.name} is encrypted",
                    found=str(path),
                    fix="unpack it yourself with its password, then --adopt the folder",
                )
            if not info.is_dir():
                yield Member(path, info.file_size, lambda info=info: opened.open(info))  # type: ignore[misc]


def _tar_members(archive: Path) -> Iterator[Member]:
    with tarfile.open(archive) as opened:
        for info in opened:
            opened.members.clear()  # type: ignore[attr-defined]  # or the list of a million members would stay in memory
            if info.isdir() and PurePosixPath(info.name) == PurePosixPath("."):
                continue
            path = safe_path(info.name, archive)
            tarfile.data_filter(info, str(archive.parent))
            if info.isdir():
                continue
            if not info.isreg() or info.issparse():
                raise _unsafe(archive, f"{path}, which is a link, a device or a sparse file")
            yield Member(path, info.size, lambda info=info: _body(opened, info))  # type: ignore[misc]
        opened.fileobj.seek(opened.offset)
        if len(opened.fileobj.read(tarfile.BLOCKSIZE)) < tarfile.BLOCKSIZE:
            raise EOFError("its end is missing")


def _body(opened: tarfile.TarFile, info: tarfile.TarInfo) -> IO[bytes]:
    body = opened.extractfile(info)
    assert body is not None
    return body


def _sane(files: Iterator[Member], archive: Path) -> Iterator[Member]:
    """The members, as long as they do not expand beyond reason together."""
    most = max(MOST_EXPANSION * archive.stat().st_size, ALWAYS_ALLOWED)
    total = 0
    for member in files:
        total += member.size
        if total > most:
            raise _unsafe(archive, f"more than {most:,} bytes in {archive.stat().st_size:,}")
        yield member


def _write(member: Member, folder: Path) -> None:
    target = folder / member.path
    if target.is_file() and target.stat().st_size == member.size:
        return
    if not target.parent.resolve().is_relative_to(folder):
        raise IntegrityError(f"{target.parent} leads out of {folder}", found="a link in the way", fix="remove the link")
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(f".{target.name}.part")
    with member.open() as body, temporary.open("wb") as file:
        while block := body.read(BLOCK):
            file.write(block)
        if file.tell() != member.size:
            raise EOFError(f"{member.path} is cut short")
    temporary.replace(target)


@contextmanager
def _readable(archive: Path) -> Iterator[None]:
    """Turn what the archive modules raise for a damaged archive into an IntegrityError."""
    try:
        yield
    except tarfile.FilterError as error:
        raise _unsafe(archive, str(error)) from None
    except DAMAGED as error:
        raise IntegrityError(
            f"{archive.name} is damaged or no archive",
            found=str(error),
            fix="fetch it again: hbench download NAME --repair",
        ) from None


def _unsafe(archive: Path, found: str) -> IntegrityError:
    return IntegrityError(
        f"{archive.name} is not safe to unpack",
        expected="files that stay in their folder, of sane size",
        found=examples([found]),
        fix="do not use this copy; report where it came from",
    )
