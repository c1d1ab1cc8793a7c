"""Fetches, verifies and unpacks the files of a dataset, several at the same time, and reports all
failures at the end.
"""

import dataclasses
import re
import shutil
import threading
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from multiprocessing.pool import ThreadPool
from pathlib import Path

import filelock

from hbench.core.errors import (
    DataError,
    HBenchError,
    IntegrityError,
    SourceError,
    UsageError,
    examples,
)
from hbench.core.files import free_bytes, replacing
from hbench.datasets.download import DROPPED, DownloadInterrupted, Requester, fetch, session, verify
from hbench.datasets.download import sources as registry
from hbench.datasets.download.archives import not_unpacked, unpack
from hbench.datasets.download.sources import DownloadRecord, disk_errors
from hbench.datasets.spec import RemoteFile

OnDownload = Callable[
    [RemoteFile, str, int], None
]  # called with a source, and "bytes" or "files" and their number, or "end" and 0
MD5_FILE = 4096  # the number of bytes that are read of a published file with an md5


@dataclass(frozen=True)
class DownloadOptions:
    """Where to fetch files, and how.

    Attributes:
        folder: the folder to fetch into.
        repair: replace wrong files.
        remove_archives: delete an archive in the folder once it is unpacked.
        on_progress: is called with new bytes and unpacked files.
        stop: ends the download when it is set.
    """

    folder: Path
    repair: bool = False
    remove_archives: bool = False
    on_progress: OnDownload = lambda source, what, number: None
    stop: threading.Event = dataclasses.field(default_factory=threading.Event)


def fetch_all(
    sources: Sequence[RemoteFile], job: DownloadOptions, *, jobs: int = 4
) -> dict[str, HBenchError]:
    """Fetch, verify and unpack the files that are not done yet, `jobs` files at the same time.
    Return the errors by file. A lock in the folder prevents a second download into it.

    Raises DataError if the disk is too small, or if the folder is read-only or in use;
    DownloadInterrupted if `job.stop` is set.
    """
    check_space(sources, job.folder)
    with disk_errors(job.folder):
        (job.folder / registry.RECORDS).mkdir(parents=True, exist_ok=True)
    try:
        with (
            # no waiting: if another download has the lock, this one ends with an error at once
            filelock.FileLock(job.folder / registry.RECORDS / "lock", timeout=0),
            ThreadPool(max(1, jobs)) as pool,
        ):
            try:
                # (file, its error or None if there is none)
                done = list(
                    pool.imap_unordered(
                        lambda source: (source.file, _attempt(source, job)), sources
                    )
                )
            except KeyboardInterrupt:
                job.stop.set()  # the other threads end at their next block
                raise
    except filelock.Timeout:
        raise DataError(
            f"another download is writing to {job.folder}",
            fix="wait for it to end, or choose --root DIR",
        ) from None

    if job.stop.is_set():
        raise DownloadInterrupted

    return {
        file: problem
        for file, problem in sorted(done, key=lambda pair: pair[0])
        if problem is not None
    }


def check_all(sources: Sequence[RemoteFile], folder: Path) -> dict[str, HBenchError]:
    """Read each file of `sources` in a folder again, with the files unpacked from it, and verify
    them. Return the errors by the name of the file; sound files have none."""
    problems: dict[str, HBenchError] = {}
    for source in sources:
        try:
            # raises for the file itself, and lists the wrong ones of the files unpacked from it
            if lost := _wrong_unpacked_files(source, folder):
                message = (
                    f"{len(lost)} files unpacked from {source.file} are missing or have "
                    "other content"
                )
                problems[source.file] = IntegrityError(message, found=examples(lost))
        except HBenchError as problem:
            problems[source.file] = problem
    return problems


def check_space(sources: Sequence[RemoteFile], folder: Path) -> None:
    """Raise DataError if the disk is too small for the files to fetch and to unpack. Unpacked files
    are assumed to take as many bytes as their archive."""
    needed = 0
    for source in sources:
        # "done": verified, and unpacked if it is an archive; "unpacked": an archive that was
        # removed after it had been unpacked; any other archive is still to be unpacked
        state = registry.state_of(folder, source)
        size = source.size or 0  # 0: not known
        if state in {"missing", "partial"}:
            needed += size
        # the files that are unpacked from an archive are assumed to be as large as the archive
        if source.unpack is not None and state not in {"done", "unpacked"}:
            needed += size

    # the bytes of partial files, which earlier runs have fetched
    part = sum(path.stat().st_size for path in folder.rglob(".*.part")) if folder.exists() else 0
    if needed - part > free_bytes(folder):
        raise DataError(
            f"the disk of {folder} is too small",
            expected=f"{needed - part:,} free bytes, for the files and what is unpacked from them",
            found=f"{free_bytes(folder):,} free bytes",
            fix="choose another folder with --root DIR, or fetch only --part metadata",
        )


def adopt(sources: Sequence[RemoteFile], folder: Path, existing: Path) -> list[str]:
    """Find the files of `sources` by name in the user's folder `existing`, verify and record them.
    Return their names.

    Plain files are copied into `folder`. Archives stay in the user's folder, from which they are
    unpacked later.
    """
    adopted = []
    for source in sources:
        name = Path(source.file).name
        # where the file may be: as in the download, at the top, or one folder down (sorted, so that
        # the choice does not depend on the disk's order)
        places = (existing / source.file, existing / name, *sorted(existing.glob(f"*/{name}")))
        for path in filter(Path.is_file, places):
            sums = verify(path, source)
            if source.unpack is None:
                with replacing(folder / source.file) as temporary:
                    shutil.copyfile(path, temporary)
                path = folder / source.file
            registry.record_file(folder, source, path.resolve(), sums)
            adopted.append(source.file)
            break  # only the first of the places counts
    return adopted


def summary(problems: dict[str, HBenchError]) -> HBenchError:
    """Make one error of all failures, which are given by file. Its type, which decides the exit
    code, is the gravest among them."""
    kind = _gravest(problems.values())  # a class of errors
    return kind(
        f"{len(problems)} files are missing or wrong"
        if len(problems) > 1
        else "a file is missing or wrong",
        found="".join(f"\n    {_in_short(file, problem)}" for file, problem in problems.items()),
        fix="run the command again: it resumes where it stopped. --repair replaces wrong files; "
        "--mirror URL or your "
        "sources.toml names another server, --adopt DIR takes a copy of yours",
    )


def _gravest(problems: Collection[HBenchError]) -> type[HBenchError]:
    """Return the gravest type among the problems. Other types than these two count as DataError."""
    for kind in (IntegrityError, SourceError):
        if any(isinstance(problem, kind) for problem in problems):
            return kind
    return DataError


def _in_short(file: str, problem: HBenchError) -> str:
    """Say what is wrong with a file, in one line that names it."""
    text = problem.problem if file in problem.problem else f"{file}: {problem.problem}"
    expected = f"expected {problem.expected}, found " if problem.expected else ""
    return f"{text}: {expected}{problem.found}" if problem.found else text


def _attempt(source: RemoteFile, job: DownloadOptions) -> HBenchError | None:
    """Fetch, verify and unpack a file, except for the steps that its state in the folder shows as
    done (`state_of`).

    Return the error that ended it instead of raising it, so that other files go on; None if there
    is no error. A stop that was requested is not an error. `job.on_progress` is called with the
    source and "bytes" or "files" and their number, and with "end" and 0 when nothing more follows.
    """
    try:
        if job.repair and not job.stop.is_set():  # a wrong file then counts as missing
            _forget_wrong(source, job.folder)
        state = registry.state_of(job.folder, source)
        if state in {"done", "unpacked"} or job.stop.is_set():
            return None

        # "verified": an archive of which only the unpacking is missing. Its record says where it is
        record = registry.read_record(job.folder, source) if state == "verified" else None
        if record is None:
            record = _fetch_or_verify(source, job, state)
        if source.unpack is not None:
            archive = Path(record.path)
            folder = job.folder / source.unpack
            number = unpack(  # of files
                archive,
                folder,
                on_progress=lambda n: job.on_progress(source, "files", n),
                stop=job.stop,
            )
            registry.write_record(job.folder, source, dataclasses.replace(record, unpacked=number))
            # an adopted archive is outside of the folder and belongs to the user
            if job.remove_archives and archive.is_relative_to(job.folder):
                archive.unlink()
    except DownloadInterrupted:
        pass
    except HBenchError as problem:
        return problem
    finally:
        job.on_progress(source, "end", 0)

    return None


def _fetch_or_verify(source: RemoteFile, job: DownloadOptions, state: str) -> DownloadRecord:
    """Fetch a file, or its rest if its `state` is "partial"; if that is "unchecked", verify the one
    on disk instead. Write and return its record."""
    target = job.folder / source.file
    with session() as opened:
        requester = Requester(opened, stop=job.stop)
        # the publisher states the checksum in another file
        if source.md5_url and not source.md5:
            source = dataclasses.replace(source, md5=_md5_in(source.md5_url, requester))
        if state == "unchecked":
            sums = verify(target, source)
        else:
            sums = fetch(
                source, target, requester, on_progress=lambda n: job.on_progress(source, "bytes", n)
            )
    return registry.record_file(job.folder, source, target, sums)


def _md5_in(url: str, requester: Requester) -> str:
    """Read the md5 at the beginning of a file on the publisher's server, such as `md5sum` writes
    it. At most MD5_FILE bytes are read. Raises SourceError if there is none."""
    try:
        with requester.get(url, {}) as answer:
            answer.raise_for_status()
            text = answer.raw.read(MD5_FILE, decode_content=True).decode("ascii", "replace")
    except (*DROPPED, ValueError) as error:
        raise SourceError(f"the checksum in {url} could not be fetched", found=str(error)) from None
    md5 = re.match(r"\s*([0-9a-fA-F]{32})(?!\S)", text)  # 32 digits, not a longer word
    if md5 is None:
        raise SourceError(f"{url} does not begin with an md5", found=repr(text[:60]))
    return md5[1]


def _wrong_unpacked_files(source: RemoteFile, folder: Path) -> list[str]:
    """Verify a file, and list the files unpacked from it that are missing or changed.

    The list is empty for a plain file. It is also empty if the archive was removed after it was
    unpacked, since nothing is left to compare with. Raises IntegrityError if the file does not
    match its published checksums or the md5 of its download, DataError if it is missing.
    """
    # the record is None if the file was not recorded
    path, record = registry.place_of(folder, source)
    unpacked = record is not None and record.unpacked is not None
    if not path.exists():
        if unpacked:
            return []
        raise DataError(f"{source.file} is missing", fix="download it")
    # without a published md5, that of the download shows whether the file has changed since; it is
    # "" if none was computed
    own_md5 = (record.md5 or None) if record else None
    verify(path, dataclasses.replace(source, md5=source.md5 or own_md5))
    if not unpacked or source.unpack is None:  # a plain file, or not unpacked
        return []
    return not_unpacked(path, folder / source.unpack)


def _forget_wrong(source: RemoteFile, folder: Path) -> None:
    """Delete a wrong file, so that it is fetched again. A sound archive whose unpacked files are
    wrong is recorded as not unpacked.

    Raises UsageError for a wrong file outside of the folder, which belongs to the user.
    """
    path, record = registry.place_of(folder, source)
    try:
        # raises IntegrityError if the file itself is wrong
        if not _wrong_unpacked_files(source, folder):
            return
    except IntegrityError as problem:
        if not path.is_relative_to(folder):
            raise UsageError(
                f"{path} is wrong, and outside of the folder in which hbench replaces files",
                found=problem.problem,
                fix="replace or remove it yourself",
            ) from None
        path.unlink()
    except DataError:  # the file is missing
        return

    # the archive, or its unpacked files, were wrong: in both cases it must be unpacked again
    if record is not None:
        registry.write_record(folder, source, dataclasses.replace(record, unpacked=None))
