"""Extracts untrusted archives safely: files stay in their folder and of sane size, and an interrupted extraction
resumes.

Each file is written under another name, one per archive, and then takes its own, so that a file that is there is
whole; one that is there with the size the archive says is not written again.
"""

from __future__ import annotations

import lzma
import re
import struct
import tarfile
import threading
import zipfile
import zlib
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from hbench.core.errors import IntegrityError, examples
from hbench.core.files import FULL
from hbench.datasets.download import DownloadInterrupted
from hbench.datasets.download.records import LOCKED, disk_errors

BLOCK = 1 << 20
MOST_EXPANSION = 200  # times the size of the archive; more is a bomb
ALWAYS_ALLOWED = 1 << 26  # bytes, however small the archive
RECORDS, ADOPTED = ".hbench", "adopted.txt"  # what hbench's own files in a raw folder are called, or begin with
LONGEST_NAME = 240  # bytes, so that the temporary name fits too
UNSAFE = re.compile(r"^[A-Za-z]:|[\\\x00-\x1f\x7f\ud800-\udfff]")
ZIP_LINK = 0o120000
FILES_ALLOWED, BYTES_A_FILE = 10_000, 64  # files of any archive; beyond, one for so many of its bytes
LONGEST_HEADER = 1 << 20  # bytes of a tar's own words about a member, which tarfile takes into memory at once
HEADERS = (
    tarfile.XHDTYPE,
    tarfile.XGLTYPE,
    tarfile.SOLARIS_XHDTYPE,
    tarfile.GNUTYPE_LONGNAME,
    tarfile.GNUTYPE_LONGLINK,
)
DAMAGED = (
    tarfile.TarError,
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    EOFError,
    NotImplementedError,
    OSError,  # bz2's for damage, and the system's
    ValueError,
    struct.error,
)
Open = Callable[[], IO[bytes]]


@dataclass(frozen=True)
class Member:
    """A regular file in an archive: its safe relative path, its size, and how to read it."""

    path: str
    size: int
    open: Open


def unpack(
    archive: Path,
    folder: Path,
    *,
    on_progress: Callable[[int], None] = lambda _: None,
    stop: threading.Event | None = None,
) -> int:
    """Unpack a .zip or .tar(.gz, .bz2, .xz) into `folder` and return its number of files.

    `on_progress` hears of every file. Raises IntegrityError for an archive that is damaged, escapes its folder, holds
    anything but files and folders, or expands beyond reason; DataError for a full or read-only disk; Interrupted
    after `stop`.
    """
    number = 0
    with disk_errors(folder), _readable(archive):
        folder.mkdir(parents=True, exist_ok=True)
        into = Folder(folder.resolve(), folder.resolve() / f".{archive.name}.unpacking")
        if is_zip(archive):  # its list is at hand: nothing is written when any of it is bad
            deque(_sane(members(archive), archive), maxlen=0)
        for member in _sane(members(archive), archive):
            if stop is not None and stop.is_set():
                raise DownloadInterrupted
            into.write(member)
            number += 1
            on_progress(1)
    return number


def not_unpacked(archive: Path, folder: Path) -> list[str]:
    """The files of an archive that are missing below `folder` or have other content."""
    with _readable(archive):
        return [member.path for member in members(archive) if not _is_unpacked(member, folder / member.path)]


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


def safe_path(name: str, archive: Path) -> str:
    """A member's name as a relative POSIX path; raises IntegrityError for one that is hostile.

    It refuses all that tarfile's filter "data" refuses, and backslashes, drives, control characters and endless names; and
    the names of hbench's own records, by which an archive could say of other files that they were checked.
    """
    parts = [part for part in name.split("/") if part not in {"", "."}]
    too_long = any(len(part) > LONGEST_NAME or len(part.encode(errors="replace")) > LONGEST_NAME for part in parts)
    if name.startswith("/") or ".." in parts or not parts or too_long or UNSAFE.search(name):
        raise _unsafe(archive, f"the name {name[:100]!r}")
    if any(part.casefold().startswith(RECORDS) or part.casefold() == ADOPTED for part in parts):
        raise _unsafe(archive, f"the name {name[:100]!r}, which only hbench's own records have")
    return "/".join(parts)


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
    with tarfile.open(archive, tarinfo=BoundedInfo) as opened:
        for info in opened:
            opened.members.clear()  # type: ignore[attr-defined]  # or the list of a million members would stay in memory
            if info.isdir() and info.name == ".":
                continue
            path = safe_path(info.name, archive)
            if info.isdir():
                continue
            if not info.isreg() or info.issparse():
                raise _unsafe(archive, f"{path}, which is a link, a device or a sparse file")
            yield Member(path, info.size, lambda info=info: _body(opened, info))  # type: ignore[misc]
        opened.fileobj.seek(opened.offset)
        if len(opened.fileobj.read(tarfile.BLOCKSIZE)) < tarfile.BLOCKSIZE:
            raise EOFError("its end is missing")
        _drain(opened.fileobj, archive)


class BoundedInfo(tarfile.TarInfo):
    """A member of a tar whose headers are of sane length, and which is no sparse file."""

    def _proc_member(self, tar: tarfile.TarFile) -> tarfile.TarInfo:
        if self.type == tarfile.GNUTYPE_SPARSE:
            raise tarfile.ReadError(f"{self.name} is a sparse file")
        if self.size < 0 or (self.type in HEADERS and self.size > LONGEST_HEADER):
            raise tarfile.ReadError(f"a header of {self.size:,} bytes")
        return super()._proc_member(tar)  # type: ignore[misc,no-any-return]


def _drain(stream: Any, archive: Path) -> None:
    """Read what follows the last member, for a compressed stream is checked against its sum only at its very end."""
    rest = 0
    while block := stream.read(BLOCK):
        rest += len(block)
        if rest > ALWAYS_ALLOWED:
            raise _unsafe(archive, f"more than {ALWAYS_ALLOWED:,} bytes after its last file")


def _body(opened: tarfile.TarFile, info: tarfile.TarInfo) -> IO[bytes]:
    body = opened.extractfile(info)
    assert body is not None
    return body


def _sane(files: Iterator[Member], archive: Path) -> Iterator[Member]:
    """The members, as long as they do not expand beyond reason together."""
    size = archive.stat().st_size
    most, files_allowed = max(MOST_EXPANSION * size, ALWAYS_ALLOWED), max(FILES_ALLOWED, size // BYTES_A_FILE)
    total = 0
    for number, member in enumerate(files, start=1):
        if number > files_allowed:
            raise _unsafe(archive, f"more than {files_allowed:,} files in {size:,} bytes")
        total += member.size
        if total > most:
            raise _unsafe(archive, f"more than {most:,} bytes in {archive.stat().st_size:,}")
        yield member


@dataclass
class Folder:
    """A folder that members are written into, under `temporary` until they are whole."""

    root: Path
    temporary: Path
    inside: set[str] = field(default_factory=set)

    def write(self, member: Member) -> None:
        """Write a member; one that is there with its size stays."""
        target = self.root / member.path
        self._enter(member.path.rpartition("/")[0])
        with suppress(FileNotFoundError):
            if target.stat().st_size == member.size:
                return
        with member.open() as body, self.temporary.open("wb") as file:
            while block := body.read(BLOCK):
                file.write(block)
            if file.tell() != member.size:
                raise EOFError(f"{member.path} is cut short")
        self.temporary.replace(target)

    def _enter(self, parent: str) -> None:
        """Make the folder of a member, once; raises IntegrityError where a link leads out."""
        if parent in self.inside:
            return
        folder = self.root / parent
        if not folder.resolve().is_relative_to(self.root):
            raise IntegrityError(f"{folder} leads out of {self.root}", found="a link in the way", fix="remove the link")
        folder.mkdir(parents=True, exist_ok=True)
        self.inside.add(parent)


@contextmanager
def _readable(archive: Path) -> Iterator[None]:
    """Turn what a damaged archive raises, in the archive modules or on the disk (a file where it wants a folder, a path that is
    too long), into an IntegrityError; a full or locked disk is not its fault."""
    try:
        yield
    except DAMAGED as error:
        if getattr(error, "errno", None) in FULL | LOCKED:
            raise
        raise IntegrityError(
            f"{archive.name} is damaged or no archive",
            found=getattr(error, "strerror", None) or str(error),
            fix="fetch it again: hbench download NAME --repair",
        ) from None


def _unsafe(archive: Path, found: str) -> IntegrityError:
    return IntegrityError(
        f"{archive.name} is not safe to unpack",
        expected="files that stay in their folder, of sane size",
        found=examples([found]),
        fix="do not use this copy; report where it came from",
    )
