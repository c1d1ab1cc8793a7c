"""Fetches, verifies and unpacks all files of a dataset, several at a time, and reports all failures at the end."""

from __future__ import annotations

import dataclasses
import re
import shutil
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.pool import ThreadPool
from pathlib import Path

import filelock
import requests
import urllib3

from hbench.core.errors import DataError, HBenchError, IntegrityError, SourceError, UsageError, examples
from hbench.core.files import free_bytes, replacing
from hbench.datasets.download import PATIENCE, DownloadInterrupted, Patience, Requester, fetch, session, verify
from hbench.datasets.download.archives import not_unpacked, unpack
from hbench.datasets.download.records import (
    FOLDER,
    DownloadRecord,
    disk_errors,
    forget_record,
    read_record,
    record_of,
    state_of,
    write_record,
)
from hbench.datasets.download.sources import RemoteFile

OnDownload = Callable[[RemoteFile, str, int], None]  # source; "bytes" or "files" and their number, or "end"
MD5_FILES_ARE_SMALL = 4096


@dataclass(frozen=True)
class DownloadOptions:
    """How to fetch: into which folder, and what else to do there."""

    folder: Path
    repair: bool = False
    remove_archives: bool = False
    on_progress: OnDownload = lambda source, what, number: None
    patience: Patience = PATIENCE
    stop: threading.Event = dataclasses.field(default_factory=threading.Event)


def fetch_all(sources: Sequence[RemoteFile], job: DownloadOptions, *, jobs: int = 4) -> dict[str, HBenchError]:
    """Fetch, verify and unpack what is not done yet; the failures by file.

    Raises DataError when the disk is too small, or the folder cannot be written or is in use; DownloadInterrupted.
    """
    check_space(sources, job.folder)
    with disk_errors(job.folder):
        (job.folder / FOLDER).mkdir(parents=True, exist_ok=True)
    try:
        with filelock.FileLock(job.folder / FOLDER / "lock", timeout=0), ThreadPool(max(1, jobs)) as pool:
            try:
                done = list(pool.imap_unordered(lambda source: (source.file, _attempt(source, job)), sources))
            except KeyboardInterrupt:
                job.stop.set()
                raise
    except filelock.Timeout:
        raise DataError(f"{job.folder} is in use", found="another download into it", fix="wait for it to end") from None
    if job.stop.is_set():
        raise DownloadInterrupted
    return {file: problem for file, problem in sorted(done, key=lambda pair: pair[0]) if problem is not None}


def check_all(sources: Sequence[RemoteFile], folder: Path) -> dict[str, HBenchError]:
    """Read every file again and compare it with its checksums, and what was unpacked with its archive; the
    failures by file."""
    problems: dict[str, HBenchError] = {}
    for source in sources:
        try:
            if lost := _verified(source, folder):
                message = f"{len(lost)} files unpacked from {source.file} are missing or cut"
                problems[source.file] = IntegrityError(message, found=examples(lost))
        except HBenchError as problem:
            problems[source.file] = problem
    return problems


def check_space(sources: Sequence[RemoteFile], folder: Path) -> None:
    """Raise DataError when the disk cannot hold what is to come: the files, and as much again for what is unpacked."""
    needed = 0
    for source in sources:
        state = state_of(folder, source)
        size = source.size or 0
        needed += size * (state in {"missing", "partial"}) + size * (
            source.unpack is not None and state not in {"done", "unpacked"}
        )
    part = sum(path.stat().st_size for path in folder.rglob(".*.part")) if folder.exists() else 0
    if needed - part > free_bytes(folder):
        raise DataError(
            f"the disk of {folder} is too small",
            expected=f"{needed - part:,} bytes free, for files and what is unpacked from them",
            found=f"{free_bytes(folder):,} bytes",
            fix="choose another folder with --root DIR, or fetch only --part metadata",
        )


def adopt(sources: Sequence[RemoteFile], folder: Path, lying: Path) -> list[str]:
    """Take the files of `sources` that lie below `lying` under their own names, verified; their names.

    Archives stay where they are and are unpacked from there; plain files are copied.
    """
    adopted = []
    for source in sources:
        name = Path(source.file).name
        for path in filter(Path.is_file, (lying / source.file, lying / name, *sorted(lying.glob(f"*/{name}")))):
            sums = verify(path, source)
            if source.unpack is None:
                with replacing(folder / source.file) as temporary:
                    shutil.copyfile(path, temporary)
                path = folder / source.file
            write_record(folder, source, record_of(path.resolve(), sums))
            adopted.append(source.file)
            break
    return adopted


def summary(problems: dict[str, HBenchError]) -> HBenchError:
    """One error for all failures, of the kind of the first."""
    kinds = (IntegrityError, SourceError, DataError)
    kind = next((kind for kind in kinds if any(isinstance(problem, kind) for problem in problems.values())), DataError)
    several = len(problems) > 1
    return kind(
        f"{len(problems)} files are not there or not right" if several else "a file is not there or not right",
        found="".join(f"\n    {_in_short(file, problem)}" for file, problem in problems.items()),
        fix="run the command again: it resumes where it stopped. --repair replaces wrong files; --mirror URL or a "
        "sources.toml of yours gives another place, --adopt DIR a copy that you have",
    )


def _in_short(file: str, problem: HBenchError) -> str:
    what = problem.problem if file in problem.problem else f"{file}: {problem.problem}"
    expected = f"expected {problem.expected}, found " if problem.expected else ""
    return f"{what}: {expected}{problem.found}" if problem.found else what


def _attempt(source: RemoteFile, job: DownloadOptions) -> HBenchError | None:
    if job.stop.is_set():
        return None
    try:
        _one(source, job)
    except DownloadInterrupted:
        return None
    except HBenchError as problem:
        return problem
    finally:
        job.on_progress(source, "end", 0)
    return None


def _one(source: RemoteFile, job: DownloadOptions) -> None:
    if job.repair:
        _forget_wrong(source, job.folder)
    state = state_of(job.folder, source)
    if state in {"done", "unpacked"}:
        return
    record = read_record(job.folder, source) if state == "verified" else None
    record = record or _record(source, job, state)
    if source.unpack is not None:
        archive, folder = Path(record.path), job.folder / source.unpack
        number = unpack(archive, folder, on_progress=lambda n: job.on_progress(source, "files", n), stop=job.stop)
        write_record(job.folder, source, dataclasses.replace(record, unpacked=number))
        if job.remove_archives and archive.is_relative_to(job.folder):
            archive.unlink()


def _record(source: RemoteFile, job: DownloadOptions, state: str) -> DownloadRecord:
    """The record of a file that is fetched now, or that was there already and is checked now."""
    target = job.folder / source.file
    with session() as opened:
        requester = Requester(opened, job.patience, job.stop)
        if source.md5_url and not source.md5:
            source = dataclasses.replace(source, md5=_md5_in(source.md5_url, requester))
        if state == "unchecked":
            sums = verify(target, source)
        else:
            sums = fetch(source, target, requester, on_progress=lambda n: job.on_progress(source, "bytes", n))
    record = record_of(target, sums)
    write_record(job.folder, source, record)
    return record


def _md5_in(url: str, requester: Requester) -> str:
    """The md5 that a file of the publisher's begins with."""
    try:
        with requester.get(url, {}) as answer:
            answer.raise_for_status()
            text = answer.raw.read(MD5_FILES_ARE_SMALL, decode_content=True).decode("ascii", "replace")
    except (requests.RequestException, urllib3.exceptions.HTTPError, ValueError) as error:
        raise SourceError(f"the checksum in {url} could not be fetched", found=str(error)) from None
    md5 = re.match(r"\s*([0-9a-fA-F]{32})(?!\S)", text)
    if md5 is None:
        raise SourceError(f"{url} holds no md5", found=repr(text[:60]))
    return md5[1]


def _place(source: RemoteFile, folder: Path) -> tuple[Path, DownloadRecord | None]:
    """Where the file of a source is, and its record."""
    record = read_record(folder, source)
    return Path(record.path) if record else folder / source.file, record


def _verified(source: RemoteFile, folder: Path) -> list[str]:
    """The files of an archive that are not as they were unpacked; none of a plain file, or where the archive was removed.

    Raises IntegrityError where the file itself is wrong, by its published checksums or those of when it came; DataError
    where it is missing.
    """
    path, record = _place(source, folder)
    unpacked = record is not None and record.unpacked is not None
    if not path.exists():
        if unpacked:
            return []
        raise DataError(f"{source.file} is missing", fix="fetch it")
    verify(path, dataclasses.replace(source, md5=source.md5 or (record.md5 if record else None)))
    return not_unpacked(path, folder / source.unpack) if unpacked and source.unpack is not None else []


def _forget_wrong(source: RemoteFile, folder: Path) -> None:
    """Remove a file that is wrong, so that it is fetched again; forget that one was unpacked whose files are wrong."""
    path, record = _place(source, folder)
    try:
        if _verified(source, folder) and record is not None:
            write_record(folder, source, dataclasses.replace(record, unpacked=None))
    except IntegrityError as problem:
        if not path.is_relative_to(folder):
            raise UsageError(
                f"{path} is wrong, and lies where hbench replaces nothing",
                found=problem.problem,
                fix="replace or remove it",
            ) from None
        path.unlink()
        forget_record(folder, source)
    except DataError:  # it is missing
        return
