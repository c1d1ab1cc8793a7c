"""Fetches one file: tries its mirrors in turn, resumes where it stopped, and checks the sum before the file gets its
name.

While it comes, a file is called `.NAME.part`, with the server's validator (ETag) next to it in `.NAME.part.json`, so
that a later run continues with the bytes that are there, and only if the server still has the same file.
"""

from __future__ import annotations

import hashlib
import json
import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import requests
import urllib3

from hbench.core.errors import IntegrityError, SourceError
from hbench.core.files import free_bytes, write_text
from hbench.core.untrusted import read_json
from hbench.core.version import __version__
from hbench.datasets.download.records import disk_errors
from hbench.datasets.download.responses import (
    looks_like_page,
    pause_of,
    placed,
    reason_of,
    refuse_wrong_kind,
    title_of,
    validator_of,
)
from hbench.datasets.download.sources import RemoteFile

LOG = logging.getLogger(__name__)
BLOCK = 1 << 18
SHORT = 1 << 16  # bytes; a connection that brings fewer is a short one
RESERVE = 1 << 30  # bytes of the disk that a file of unknown size leaves free
DROPPED = (requests.RequestException, urllib3.exceptions.HTTPError)
OnBytes = Callable[[int], None]


class DownloadInterrupted(Exception):
    """Somebody asked to stop; what came so far is kept."""


@dataclass(frozen=True)
class Patience:
    """How long a server is waited for, in seconds, before its connection is taken for lost, and its mirror given up."""

    connect: float = 10.0
    silence: float = 30.0  # without a byte
    least_rate: int = 1024  # bytes of a file a second, over every `period`
    period: float = 60.0
    drops: int = 5  # connections lost in a row without a new byte
    shorts: int = 50  # short connections in a row
    pause: float = 0.1  # after a connection that brought nothing; doubled with each
    busy: float = 0.5  # before a busy server is asked again; doubled with each


PATIENCE = Patience()


def session() -> requests.Session:
    """A session that says who asks, wants files as they are, and does not read the page that comes with a redirect."""
    session = requests.Session()
    session.headers["User-Agent"] = f"hbench/{__version__} (a benchmark toolkit; resumable downloads)"
    session.headers["Accept-Encoding"] = "identity"
    session.hooks["response"].append(lambda answer, **_: answer.close() if answer.is_redirect else None)
    return session


@dataclass(frozen=True)
class Requester:
    """Asks servers for files: with which session and patience, and who may stop it."""

    session: requests.Session
    patience: Patience = PATIENCE
    stop: threading.Event = field(default_factory=threading.Event)

    def get(self, url: str, headers: Mapping[str, str]) -> requests.Response:
        """The answer to a request, whose body is still to be read; a busy server is asked again, up to four times.

        Between, it is left alone for as long as its Retry-After says, and that is said; one that asks for more than a
        minute is not waited for: its refusal is the answer. Raises DownloadInterrupted.
        """
        attempt, timeout = 0, (self.patience.connect, self.patience.silence)
        while True:
            answer = self.session.get(url, headers=dict(headers), stream=True, timeout=timeout)
            wait = pause_of(answer, attempt, self.patience.busy)
            if wait is None:
                return answer
            answer.close()
            if wait > 1:
                LOG.warning("%s is busy: asking again in %.0f s", url, wait)
            self.wait(wait)
            attempt += 1

    def wait(self, seconds: float) -> None:
        """Wait; raises DownloadInterrupted after `stop`."""
        if self.stop.wait(seconds):
            raise DownloadInterrupted

    def blocks(self, answer: requests.Response) -> Iterator[bytes]:
        """The body of an answer as it comes; a ConnectionError where it comes too slowly."""
        since, came = time.monotonic(), 0
        while block := answer.raw.read1(BLOCK, decode_content=False):
            self.wait(0)
            yield block
            came += len(block)
            seconds = time.monotonic() - since
            if seconds >= self.patience.period:
                if came < self.patience.least_rate * seconds:
                    raise requests.ConnectionError(f"only {came:,} bytes came in {seconds:.0f} s")
                since, came = time.monotonic(), 0


def fetch(
    source: RemoteFile, target: Path, requester: Requester, *, on_progress: OnBytes = lambda _: None
) -> dict[str, str]:
    """Fetch `source` into `target` and return its checksums; a file that is not whole and right never has that name.

    `on_progress` is called with each number of new bytes (negative when some are thrown away). Raises SourceError when
    no mirror gave the file, IntegrityError when what they gave is wrong, DataError when the disk is full or read-only,
    DownloadInterrupted after the requester's `stop`.
    """
    transfer = Transfer(source, target, requester, on_progress)
    problems: list[SourceError | IntegrityError] = []
    with disk_errors(target, missing=lambda: transfer.missing):
        target.parent.mkdir(parents=True, exist_ok=True)
        for url in source.urls:
            try:
                return transfer.whole(url)
            except (SourceError, IntegrityError) as problem:
                problems.append(problem)
    raise _all_failed(source, problems)


def _all_failed(source: RemoteFile, problems: list[SourceError | IntegrityError]) -> SourceError | IntegrityError:
    kind = IntegrityError if problems and isinstance(problems[-1], IntegrityError) else SourceError
    lines = [" ".join(f"{problem.problem}: {problem.found}".split()) for problem in problems]
    return kind(
        f"{source.file} could not be fetched",
        found="".join(f"\n      {line}" for line in lines) or "no address",
        fix="try later, give another place with --mirror URL or in sources.toml, or --adopt a copy you have",
    )


@dataclass
class Transfer:
    """One file on its way: the bytes that are there, and how to get the rest."""

    source: RemoteFile
    target: Path
    requester: Requester
    on_progress: OnBytes
    total: int | None = None

    @property
    def missing(self) -> int | None:
        """The bytes that are still to come, as far as somebody said."""
        size = self.source.size or self.total
        return None if size is None else max(0, size - self.here)

    @property
    def part(self) -> Path:
        return self.target.with_name(f".{self.target.name}.part")

    @property
    def note(self) -> Path:
        return self.target.with_name(f".{self.target.name}.part.json")

    @property
    def here(self) -> int:
        """The number of bytes already on disk."""
        return self.part.stat().st_size if self.part.exists() else 0

    def whole(self, url: str) -> dict[str, str]:
        """Get the file from `url`, check it, give it its name, and return its checksums.

        Where bytes of an earlier run were wrong the file is fetched once more from its beginning.
        """
        while True:
            resumed = self.here > 0
            self.run(url)
            try:
                sums = verify(self.part, self.source)
            except IntegrityError:
                self.discard()
                if not resumed:
                    raise
            else:
                self.part.replace(self.target)
                self.note.unlink(missing_ok=True)
                return sums

    def run(self, url: str) -> None:
        """Get the rest of the file from `url`; raises SourceError when it cannot be had there."""
        drops, shorts, most = 0, 0, self.here
        while True:
            reason = "the connection ended early"
            try:
                if self._request(url):
                    return
            except DROPPED as error:
                reason = reason_of(error)
            except ValueError as error:  # a redirect to http://[, a length of ²³
                raise SourceError(f"{url} answered what cannot be understood", found=str(error)) from None
            shorts = 0 if self.here >= most + SHORT else shorts + 1
            drops = 0 if self.here > most else drops + 1
            most = max(most, self.here)
            patience = self.requester.patience
            if drops >= patience.drops or shorts >= patience.shorts:
                raise SourceError(f"{url} could not be read", found=f"{reason} ({self.here:,} bytes are kept)")
            failures = max(drops, shorts - patience.drops)
            self.requester.wait(min(patience.pause * 2**failures, 10) if failures > 0 else 0)

    def _request(self, url: str) -> bool:
        """Ask for the bytes that are missing and append them; whether the file is complete now."""
        here = self.here
        if here and here == self.source.size:
            return True
        headers = {"Range": f"bytes={here}-"} if here else {}
        validator = self._validator(url)
        if here and validator:
            headers["If-Range"] = validator
        elif here and not (self.source.md5 or self.source.sha256):
            headers = {}  # nothing would tell if the file had changed in between
        with self.requester.get(url, headers) as answer:
            if answer.status_code == 416:  # nothing beyond what is here: it is whole, or of another file
                if answer.headers.get("Content-Range") != f"bytes */{here}":
                    self.discard()
                return self.here > 0
            start, total = placed(answer, here)
            self.total = total
            refuse_wrong_kind(answer, url, total, self.source.size)
            if start == 0 and here:
                self.discard()
            write_text(self.note, json.dumps({"url": url, "validator": validator_of(answer)}))
            self._append(answer, url, start, self.source.size or total)
        return total is None or self.here == total

    def _append(self, answer: requests.Response, url: str, start: int, size: int | None) -> None:
        with self.part.open("ab") as file:
            for block in self.requester.blocks(answer):
                if start == 0 and looks_like_page(block):
                    raise SourceError(f"{url} gave a web page instead of the file", found=title_of(block))
                if size is not None and start + len(block) > size:
                    raise SourceError(f"{url} sends more than the file", expected=f"{size:,} bytes", found="more")
                if size is None and free_bytes(self.part.parent) < RESERVE:
                    raise SourceError(f"{url} does not end", found=f"{start:,} bytes, and the disk is nearly full")
                start += file.write(block)
                self.on_progress(len(block))

    def _validator(self, url: str) -> str | None:
        with suppress(OSError, ValueError, KeyError, TypeError):
            note = read_json(self.note)
            return str(note["validator"]) if note["url"] == url and note["validator"] else None
        return None

    def discard(self) -> None:
        """Throw away what came."""
        self.on_progress(-self.here)
        self.part.unlink(missing_ok=True)
        self.note.unlink(missing_ok=True)


def verify(path: Path, source: RemoteFile) -> dict[str, str]:
    """The checksums of a file; raises IntegrityError when its size or one of them is not the recorded one."""
    size = path.stat().st_size
    if source.size is not None and size != source.size:
        raise IntegrityError(
            f"{source.file} has the wrong size", expected=f"{source.size:,} bytes", found=f"{size:,} bytes"
        )
    sums = checksums(path)
    for kind in ("md5", "sha256"):
        expected = getattr(source, kind)
        if expected and sums[kind] != expected.lower():
            raise IntegrityError(f"{source.file} has the wrong {kind}", expected=expected, found=sums[kind])
    return sums


def checksums(path: Path) -> dict[str, str]:
    """md5 and sha256 of a file, in one reading."""
    sums = {"md5": hashlib.md5(usedforsecurity=False), "sha256": hashlib.sha256()}
    with path.open("rb") as file:
        while block := file.read(1 << 22):
            for one in sums.values():
                one.update(block)
    return {kind: one.hexdigest() for kind, one in sums.items()}
