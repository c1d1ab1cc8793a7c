"""Unpacks untrusted archives: all files stay in the folder, and their number and size are limited.

A file is written under a temporary name and then renamed, so that a file with its final name is
whole. Existing files are overwritten: which archives were unpacked is recorded in
`.hbench/FILE.json` (hbench.datasets.download.sources).
"""

import lzma
import re
import shutil
import struct
import tarfile
import threading
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import IO

from hbench.core.errors import IntegrityError
from hbench.core.files import FULL
from hbench.core.untrusted import refuse_bomb
from hbench.datasets.download import DownloadInterrupted
from hbench.datasets.download.sources import LOCKED, RECORDS, disk_errors

BLOCK = 1 << 20
ADOPTED = "adopted.txt"  # another of hbench's records in a raw folder; no archive may write it
LONGEST_NAME = 240  # bytes
Member = tuple[
    str, int, Callable[[], IO[bytes]]
]  # a regular file: its safe relative path, its size, a function that opens it
UNSAFE = re.compile(r"^[A-Za-z]:|[\\\x00-\x1f\x7f\ud800-\udfff]")
ZIP_LINK = 0o120000  # the bits of Unix for a symbolic link
# any archive may hold FILES_ALLOWED files; a larger archive one file per BYTES_A_FILE bytes
FILES_ALLOWED = 10_000
BYTES_A_FILE = 64
LONGEST_HEADER = 1 << 20  # bytes of a tar header, which tarfile reads into memory at once
DAMAGED = (
    *(tarfile.TarError, zipfile.BadZipFile, zlib.error, lzma.LZMAError, struct.error),
    *(
        EOFError,
        NotImplementedError,
        OSError,
        ValueError,
    ),  # bz2 raises OSError for damage; the operating system does for bad paths
)


def unpack(
    archive: Path,
    folder: Path,
    *,
    on_progress: Callable[[int], None] = lambda _: None,
    stop: threading.Event | None = None,
) -> int:
    """Unpack a .zip or .tar(.gz, .bz2, .xz) into `folder` and return its number of files.

    `on_progress` is called with 1 for each file. Raises IntegrityError if the archive is damaged,
    leaves its folder, holds anything but files and folders, or expands beyond reason; DataError if
    the disk is full or read-only; DownloadInterrupted if `stop` is set.
    """
    number = 0
    root = folder.resolve()
    temporary = root / f".{archive.name}.unpacking"
    with disk_errors(folder), _readable(archive):
        root.mkdir(parents=True, exist_ok=True)
        try:
            # `members` refuses names that lead out of the folder, but a link on the disk could
            # still lead out of it. `_readable` turns the ValueError into an IntegrityError
            for path, _, opened in members(archive):  # the second is the size
                if stop is not None and stop.is_set():
                    raise DownloadInterrupted
                target = root / path
                if not target.resolve().is_relative_to(root):
                    raise ValueError(f"{target} leads out of {root} by a link that lies there")
                target.parent.mkdir(parents=True, exist_ok=True)
                # written under another name first, so that a file with its final name is whole
                with opened() as body, temporary.open("wb") as file:
                    shutil.copyfileobj(body, file, BLOCK)
                temporary.replace(target)
                number += 1
                on_progress(1)
        finally:
            temporary.unlink(missing_ok=True)

    return number


def not_unpacked(archive: Path, folder: Path) -> list[str]:
    """List the files of an archive that are missing below `folder` or have other content there."""
    with _readable(archive):
        return [member[0] for member in members(archive) if not _is_unpacked(*member, folder)]


def _is_unpacked(path: str, size: int, opened: Callable[[], IO[bytes]], folder: Path) -> bool:
    """Whether the file of an archive exists at `path` below `folder`, with the same bytes. `size`:
    the number of bytes; `opened`: opens the file in the archive."""
    file = folder / path
    if not file.is_file() or file.stat().st_size != size:
        return False
    with opened() as body, file.open("rb") as unpacked:
        return all(
            unpacked.read(len(block)) == block for block in iter(partial(body.read, BLOCK), b"")
        )


def members(archive: Path) -> Iterator[Member]:
    """Yield the files of an archive in its order, each as its safe relative path, its size in bytes
    and a function that opens it. Raises ValueError for hostile names, too many files or bytes.
    """
    # tiny or empty files could fill the disk by their number: it is limited by the archive's size
    size = archive.stat().st_size
    most_files = max(FILES_ALLOWED, size // BYTES_A_FILE)
    unpacked = 0
    with archive.open("rb") as file:
        is_zip = file.read(4) in {b"PK\x03\x04", b"PK\x05\x06"}  # anything else is read as a tar
    for number, member in enumerate(
        _zip_members(archive) if is_zip else _tar_members(archive), start=1
    ):
        if number > most_files:
            raise ValueError(f"it has more than {most_files:,} files in {size:,} bytes")
        unpacked += member[1]  # the size
        refuse_bomb(size, unpacked)  # raises if the archive expands beyond reason
        yield member


def safe_path(name: str) -> str:
    """Return a member's name as a relative POSIX path. Raises ValueError for a hostile name.

    Hostile are all names that tarfile's filter "data" refuses, and those with backslashes, drives,
    control characters or overlong parts. The names of hbench's own records are refused, too: with
    them an archive could declare other files verified.
    """
    parts = [part for part in name.split("/") if part not in {"", "."}]
    too_long = any(len(part.encode(errors="replace")) > LONGEST_NAME for part in parts)
    if name.startswith("/") or ".." in parts or not parts or too_long or UNSAFE.search(name):
        raise ValueError(f"the name {name[:100]!r} is not safe")
    # names of records begin with RECORDS, or are ADOPTED; case is ignored, as some file systems
    # ignore it
    if any(part.casefold().startswith(RECORDS) or part.casefold() == ADOPTED for part in parts):
        raise ValueError(f"only hbench's own records have the name {name[:100]!r}")
    return "/".join(parts)


def _zip_members(archive: Path) -> Iterator[Member]:
    """Yield the files of a zip. Raises ValueError for links, which could lead out of the folder,
    and for encrypted files."""
    with zipfile.ZipFile(archive) as opened:
        for info in opened.infolist():
            path = safe_path(info.filename)
            # the upper 16 bits are Unix's mode, whose mask 0o170000 selects the type of a file
            if info.external_attr >> 16 & 0o170000 == ZIP_LINK:
                raise ValueError(f"{path} is a link")
            if info.flag_bits & 1:
                raise ValueError(
                    f"{path} is encrypted: unpack it yourself with its password, then --adopt the "
                    "folder"
                )
            if not info.is_dir():
                yield path, info.file_size, partial(opened.open, info)


def _tar_members(archive: Path) -> Iterator[Member]:
    """Yield the files of a tar, and then read to its end, so that a truncated archive is not taken
    for a whole one. Raises ValueError for links, devices and sparse files, and tarfile's ReadError
    for headers that are so long that they could fill the memory (`BoundedInfo`)."""
    with tarfile.open(archive, tarinfo=BoundedInfo) as opened:
        for info in opened:
            # tarfile lists all members that it has read; a million of them would fill the memory
            opened.members.clear()  # type: ignore[attr-defined]
            if info.isdir() and info.name == ".":  # the packed folder itself
                continue
            path = safe_path(info.name)
            if not info.isdir() and (not info.isreg() or info.issparse()):
                raise ValueError(f"{path} is a link, a device or a sparse file")
            if not info.isdir():
                yield path, info.size, partial(opened.extractfile, info)  # type: ignore[misc]
        # after the last file, where tarfile stopped, a sound archive has a block of zeros
        opened.fileobj.seek(opened.offset)
        rest = len(opened.fileobj.read(tarfile.BLOCKSIZE))  # bytes after the last file
        if rest < tarfile.BLOCKSIZE:
            raise EOFError("its end is missing")
        # a compressed stream verifies its checksum only at its very end
        while block := opened.fileobj.read(BLOCK):
            rest += len(block)
            refuse_bomb(archive.stat().st_size, rest, "what follows its last file")


class BoundedInfo(tarfile.TarInfo):
    """A tar member that refuses overlong headers and sparse files."""

    def _proc_member(self, tar: tarfile.TarFile) -> tarfile.TarInfo:
        """Process a member's header as tarfile does, unless it could fill the memory: tarfile reads
        a long name as a whole. The method overrides a private one of tarfile."""
        if self.size < 0 or (self.type not in tarfile.REGULAR_TYPES and self.size > LONGEST_HEADER):
            raise tarfile.ReadError(f"a header of {self.size:,} bytes")
        if self.type == tarfile.GNUTYPE_SPARSE:
            raise tarfile.ReadError(f"{self.name} is a sparse file")
        return super()._proc_member(tar)  # type: ignore[misc,no-any-return]


@contextmanager
def _readable(archive: Path) -> Iterator[None]:
    """Turn the errors that a hostile or damaged archive causes into an IntegrityError. They come
    from the archive modules, or from the disk (a path that is too long, a file in place of a
    folder). Errors of a full or locked disk pass, as they are not the archive's fault."""
    try:
        yield
    except DAMAGED as error:
        if getattr(error, "errno", None) in FULL | LOCKED:
            raise
        raise IntegrityError(
            f"{archive.name} cannot be unpacked",
            expected="a sound archive of files that stay in their folder, of sane number and size",
            found=getattr(error, "strerror", None) or str(error),
            fix="fetch it again: hbench download NAME --repair; if that does not help, report "
            "where it came from",
        ) from None
