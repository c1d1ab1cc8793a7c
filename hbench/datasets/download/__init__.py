"""Fetches one file: tries its mirrors in turn, resumes an interrupted transfer, and verifies the
checksum before the file gets its name.

Until then it is called `.NAME.part`. `.NAME.part.json` next to it holds the server's validator
(ETag or date), so that a later run resumes only if the server still has the same file.
"""

import hashlib
import json
import logging
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from itertools import chain
from pathlib import Path

import requests
import urllib3

from hbench.core.errors import IntegrityError, SourceError
from hbench.core.files import free_bytes, write_text
from hbench.core.untrusted import read_json
from hbench.core.version import __version__
from hbench.datasets.download.sources import disk_errors
from hbench.datasets.spec import RemoteFile

LOG = logging.getLogger(__name__)
BLOCK = 1 << 18
BUSY = (429, 500, 502, 503, 504)
ATTEMPTS = 4  # further requests to a busy server
LONGEST_WAIT = 60.0  # seconds that a server's Retry-After may ask for
RESERVE = 1 << 30  # bytes of the disk that stay free while a file of unknown size is fetched
DROPPED = (requests.RequestException, urllib3.exceptions.HTTPError)
OnBytes = Callable[[int], None]


class DownloadInterrupted(Exception):
    """Raised after the user asked to stop; the bytes on disk are kept."""


@dataclass(frozen=True)
class Patience:
    """How long to wait for a server, in seconds, and how many lost connections to accept, before
    its mirror is given up."""

    connect: float = 10.0  # to wait for a connection
    silence: float = 30.0  # to wait for the next byte
    total: float = 172_800.0  # for the whole file; the bytes that came are kept
    drops: int = 5  # connections lost in a row without a new byte
    pause: float = 0.1  # after a connection without a new byte; doubled each time
    busy: float = 0.5  # before the next request to a busy server; doubled each time


def session() -> requests.Session:
    """Make a session that names hbench and requests files uncompressed, so that lengths and ranges
    count the files' own bytes. It closes a redirect unread: its body may be of any size."""
    session = requests.Session()
    session.headers["User-Agent"] = (
        f"hbench/{__version__} (a benchmark toolkit; resumable downloads)"
    )
    session.headers["Accept-Encoding"] = "identity"
    session.hooks["response"].append(
        lambda answer, **_: answer.close() if answer.is_redirect else None
    )
    return session


@dataclass(frozen=True)
class Requester:
    """Sends requests in a session, waiting as `patience` says, until `stop` is set."""

    session: requests.Session
    patience: Patience = Patience()
    stop: threading.Event = field(default_factory=threading.Event)

    def get(self, url: str, headers: Mapping[str, str]) -> requests.Response:
        """Return the response to a request with these headers, with its body unread.

        To a busy server the request is repeated up to four times, after the time that its header
        Retry-After states. If that is more than a minute, its refusal is returned at once. Raises
        DownloadInterrupted if `stop` is set.
        """
        attempt = 0
        timeout = (self.patience.connect, self.patience.silence)
        while True:
            answer = self.session.get(url, headers=dict(headers), stream=True, timeout=timeout)
            wait = pause_of(answer, attempt, self.patience.busy)  # seconds; None: do not repeat
            if wait is None:
                return answer
            answer.close()
            if wait > 1:
                LOG.warning("%s is busy: asking again in %.0f s", url, wait)
            self.wait(wait)
            attempt += 1

    def wait(self, seconds: float) -> None:
        """Wait some seconds. Raises DownloadInterrupted as soon as `stop` is set."""
        if self.stop.wait(seconds):
            raise DownloadInterrupted

    def blocks(self, answer: requests.Response, until: float) -> Iterator[bytes]:
        """Yield the body of a response block by block. Raises SourceError after the time `until`,
        in seconds of the monotonic clock."""
        while block := answer.raw.read1(BLOCK, decode_content=False):
            self.wait(0)  # raises DownloadInterrupted if `stop` is set
            yield block
            if time.monotonic() > until:
                raise SourceError(
                    f"{answer.url} is too slow", found=f"more than {self.patience.total:,.0f} s"
                )


def fetch(
    source: RemoteFile, target: Path, requester: Requester, *, on_progress: OnBytes = lambda _: None
) -> dict[str, str]:
    """Fetch `source` and return its checksums. Only a whole, verified file is called `target`.

    `on_progress` is called with each number of new bytes, which is negative if bytes are discarded.

    Raises SourceError if no mirror sends the file, IntegrityError if the last mirror sent a wrong
    one, DataError if the disk is full or read-only, DownloadInterrupted if the requester's `stop`
    is set.
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

    # one error with the problems of all mirrors; its type is that of the last problem
    kind = type(problems[-1]) if problems else SourceError
    lines = [" ".join(f"{problem.problem}: {problem.found}".split()) for problem in problems]
    raise kind(
        f"{source.file} could not be fetched",
        found="".join(f"\n      {line}" for line in lines) or "no address",
        fix="try later, name another server with --mirror URL or in sources.toml, or take a copy "
        "of yours with --adopt DIR",
    )


@dataclass
class Transfer:
    """The download of the file `source` to the path `target`: the bytes on disk, and how to get the
    rest. `total`: the length that the server states, None if it is not known; `until`: when the
    whole file must be here, in seconds of the monotonic clock."""

    source: RemoteFile
    target: Path
    requester: Requester
    on_progress: OnBytes
    total: int | None = None
    until: float = 0.0

    def __post_init__(self) -> None:
        """Set `until`: now, and the time that the requester's patience allows for a file."""
        self.until = time.monotonic() + self.requester.patience.total

    @property
    def missing(self) -> int | None:
        """The number of bytes still to fetch; None if neither source nor server states the size."""
        size = self.source.size or self.total
        return None if size is None else max(0, size - self.here)

    @property
    def part(self) -> Path:
        """The partial file, to which bytes are appended; it is renamed once it is verified."""
        return self.target.with_name(f".{self.target.name}.part")

    @property
    def note(self) -> Path:
        """The file that notes, by its validator, of which version of the file the bytes are."""
        return self.target.with_name(f".{self.target.name}.part.json")

    @property
    def here(self) -> int:
        """The number of bytes already on disk."""
        return self.part.stat().st_size if self.part.exists() else 0

    def whole(self, url: str) -> dict[str, str]:
        """Fetch the file from `url`, verify it, give it its name, and return its checksums.

        If a resumed file turns out wrong, perhaps by bytes of an earlier run, it is fetched once
        more from its beginning. Raises SourceError or IntegrityError if this mirror fails.
        """
        while True:
            resumed = self.here > 0
            self._fetch_rest(url)
            try:
                sums = verify(self.part, self.source)
            except IntegrityError:
                self.discard()
                if not resumed:
                    raise
            else:
                self.part.replace(self.target)
                self.note.unlink(missing_ok=True)  # it was needed only to resume
                return sums

    def _fetch_rest(self, url: str) -> None:
        """Fetch the rest of the file from `url`, with a new request after each lost connection.
        Raises SourceError after too many of them, or when the time is over."""
        drops = 0  # connections lost in a row without a new byte
        furthest = self.here  # the most bytes that were on disk
        while True:
            reason = "the connection ended early"
            try:
                if self._request_rest(url):
                    return
            except DROPPED as error:  # the connection was lost
                reason = reason_of(error)
            except ValueError as error:  # such as a redirect to http://[, or a length of ²³
                raise SourceError(
                    f"the response of {url} cannot be understood", found=str(error)
                ) from None

            drops = 0 if self.here > furthest else drops + 1
            furthest = max(furthest, self.here)
            patience = self.requester.patience
            if drops >= patience.drops or time.monotonic() > self.until:
                raise SourceError(
                    f"{url} could not be read", found=f"{reason} ({self.here:,} bytes are kept)"
                )

            self.requester.wait(min(patience.pause * 2**drops, 10))  # seconds

    def _request_rest(self, url: str) -> bool:
        """Send one request for the bytes that are missing, and append those that come. Return
        whether the file is complete. Raises SourceError if the response cannot be the file."""
        here = self.here  # bytes on disk, of this or an earlier run
        if here and here == self.source.size:
            return True

        with self.requester.get(url, self._headers_for_rest(url)) as answer:
            # 416, "range not satisfiable": the server has no bytes beyond those on disk. Either its
            # file is as long (bytes */LENGTH), and complete here, or those here are of another file
            if answer.status_code == 416:
                if answer.headers.get("Content-Range") != f"bytes */{here}":
                    self.discard()
                return self.here > 0  # complete, unless its bytes were just discarded
            start, self.total = start_and_length(answer, here)  # in bytes; the file's length
            # `until`: the time at which hbench gives up
            blocks = self.requester.blocks(answer, self.until)
            # the first block is checked before it is written: it may be a web page, not the file
            beginning = next(blocks, b"")
            if start == 0:
                refuse_page(answer, url, beginning)
            self._refuse_other_size(url)
            if start == 0 and here:  # the server sends the whole file again
                self.discard()
            # noted, so that a later run resumes only if the server's file is still the same
            write_text(self.note, json.dumps({"url": url, "validator": validator_of(answer)}))
            self._append(chain([beginning], blocks), url, start)

        return self.total is None or self.here == self.total

    def _headers_for_rest(self, url: str) -> dict[str, str]:
        """Make the headers of a request for the bytes after those on disk: Range, and If-Range with
        the validator of an earlier response. By If-Range the server sends the whole file if it has
        changed since."""
        here = self.here
        headers = {"Range": f"bytes={here}-"} if here else {}
        validator = self._validator(url)
        if here and validator:
            headers["If-Range"] = validator
        elif here and not (self.source.md5 or self.source.sha256):
            headers = {}  # all bytes: without validator and checksum a change would go unnoticed
        return headers

    def _refuse_other_size(self, url: str) -> None:
        """Raise SourceError if the length that the server states is not that of the source, or is
        too large. If the server states none, nothing is checked."""
        size = self.source.size or self.total
        if self.total not in {None, size}:
            raise SourceError(
                f"{url} has a file of another size",
                expected=f"{size:,} bytes",
                found=f"{self.total:,} bytes",
            )
        self._refuse_too_long(url, self.total or 0)

    def _append(self, blocks: Iterable[bytes], url: str, start: int) -> None:
        """Append the blocks that a server sends, which begin at byte `start` of the file, to the
        partial file. Raises SourceError before a byte too many is written, since a server may send
        without end."""
        size = self.source.size or self.total
        with self.part.open("ab") as file:
            for block in blocks:
                if size is not None and start + len(block) > size:
                    raise SourceError(
                        f"{url} sends more than the file", expected=f"{size:,} bytes", found="more"
                    )
                # with a known size, the caller's `disk_errors` tells how much room is missing
                if size is None and free_bytes(self.part.parent) < RESERVE:
                    raise SourceError(
                        f"{url} sends a file of unknown size that nearly fills the disk",
                        found=f"{start:,} bytes so far",
                    )
                # more than the source allows for a file whose size is not published (`most`)
                self._refuse_too_long(url, start + len(block))
                start += file.write(block)  # the place of the next block
                self.on_progress(len(block))

    def _refuse_too_long(self, url: str, size: int) -> None:
        """If `size`, the bytes of the file so far or as the server states them, is more than the
        source allows, delete the bytes on disk and raise SourceError."""
        if self.source.most is not None and size > self.source.most:
            self.discard()
            raise SourceError(
                f"{url} has too large a file",
                expected=f"at most {self.source.most:,} bytes",
                found="more",
            )

    def _validator(self, url: str) -> str | None:
        """Return the server's mark (ETag or date) of the version of which the bytes on disk are.
        None if it is not known, or if the bytes came from another address."""
        with suppress(OSError, ValueError, KeyError, TypeError):
            note = read_json(self.note)
            return str(note["validator"]) if note["url"] == url and note["validator"] else None
        return None

    def discard(self) -> None:
        """Delete the bytes on disk, and subtract them from the progress."""
        self.on_progress(-self.here)
        self.part.unlink(missing_ok=True)
        self.note.unlink(missing_ok=True)


def verify(path: Path, source: RemoteFile) -> dict[str, str]:
    """Compute the checksums of a file, and compare them and its size with those of its source.
    Raises IntegrityError if one differs.

    The result has the sha256. It has the md5, too, if the source states an md5, or if it states no
    sha256, since the checksum that publishers add later is often an md5.
    """
    size = path.stat().st_size
    if source.size is not None and size != source.size:
        raise IntegrityError(
            f"{source.file} has the wrong size",
            expected=f"{source.size:,} bytes",
            found=f"{size:,} bytes",
        )

    needs_md5 = source.md5 is not None or source.sha256 is None
    hashers = {
        "sha256": hashlib.sha256(),
        **({"md5": hashlib.md5(usedforsecurity=False)} if needs_md5 else {}),
    }

    with path.open("rb") as file:
        while block := file.read(1 << 22):  # 4 MiB
            for hasher in hashers.values():
                hasher.update(block)

    sums = {kind: hasher.hexdigest() for kind, hasher in hashers.items()}
    for kind in sums:
        expected = getattr(source, kind)
        if expected and sums[kind] != expected.lower():
            raise IntegrityError(
                f"{source.file} has the wrong {kind}", expected=expected, found=sums[kind]
            )

    return sums


def start_and_length(answer: requests.Response, here: int) -> tuple[int, int | None]:
    """Return at which byte of the file the response's body starts, and the length of the file, None
    if it is not stated. Raises SourceError for any other response than 200 and 206.

    The start is 0 if the server sends the whole file (200), or `here`, the number of bytes on disk,
    if it sends the rest (206). Numbers of more than 18 digits cannot be sizes of files.
    """
    length = answer.headers.get("Content-Length", "")
    if answer.status_code == 200:
        return 0, int(length) if re.fullmatch("[0-9]{1,18}", length) else None
    if answer.status_code == 206:
        sent = answer.headers.get("Content-Range", "no Content-Range")
        place = re.fullmatch(r"bytes ([0-9]{1,18})-[0-9]{1,18}/([0-9]{1,18}|\*)", sent)
        if place and int(place[1]) == here:
            return here, int(place[2]) if place[2] != "*" else None
        raise SourceError(
            f"{answer.url} sent another part than requested",
            expected=f"bytes from {here}",
            found=sent,
        )

    wait = answer.headers.get("Retry-After")
    raise SourceError(
        f"{answer.url} refused the request",
        found=f"{answer.status_code} {answer.reason}" + (f", Retry-After {wait}" if wait else ""),
    )


def pause_of(answer: requests.Response, attempt: int, shortest: float) -> float | None:
    """Return the seconds to wait before a request is sent to a busy server again; None if it should
    not be sent again.

    The wait is the server's Retry-After; without one it is `shortest`, doubled with each attempt.
    It is None if the server is not busy, after the last attempt, and if Retry-After is more than a
    minute or not understood. `attempt`: the number of repetitions so far.
    """
    if answer.status_code not in BUSY or attempt >= ATTEMPTS:
        return None
    after = answer.headers.get("Retry-After", "")
    if not after:
        return shortest * 2.0**attempt
    with suppress(ValueError, OverflowError, TypeError):
        is_number = re.fullmatch("[0-9]{1,9}", after)  # of seconds; else it is a date
        wait = (
            float(after)
            if is_number
            else (parsedate_to_datetime(after) - datetime.now(UTC)).total_seconds()
        )
        return max(wait, 0.0) if wait <= LONGEST_WAIT else None
    return None


def reason_of(error: Exception) -> str:
    """Say why a connection failed, in the words of the innermost error. Libraries wrap that error
    in others, whose texts only repeat it after the name of a connection pool."""
    while isinstance(
        inner := getattr(error, "reason", error.args[0] if error.args else None), Exception
    ):
        error = inner
    return f"{type(error).__name__}: {str(error).rpartition('): ')[2]}"


def validator_of(answer: requests.Response) -> str | None:
    """Return the validator of the server's version of the file: a strong ETag, else the date of its
    last change; None if there is neither."""
    tag = answer.headers.get("ETag", "")
    return tag if tag and not tag.startswith("W/") else answer.headers.get("Last-Modified")


def refuse_page(answer: requests.Response, url: str, beginning: bytes) -> None:
    """Raise SourceError if the response is a web page in place of the file, such as a login, a
    quota notice or a captive portal. `beginning`: the first bytes of the body."""
    is_html = beginning.lstrip()[:64].lower().startswith((b"<!doctype html", b"<html", b"<head"))
    if is_html or answer.headers.get("Content-Type", "").startswith("text/html"):
        page = "a page, perhaps a login, a quota notice or a captive portal"
        raise SourceError(f"{url} gave a web page instead of the file", found=page)
