"""Fetches one file: tries its mirrors in turn, resumes where it stopped, and verifies its checksum
before naming it.

Until then the file is called `.NAME.part`. The server's validator (ETag) is kept next to it in
`.NAME.part.json`, so that a later run resumes only if the server still has the same file.
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
    """Raised after a request to stop; the bytes on disk are kept."""


@dataclass(frozen=True)
class Patience:
    """How long to wait for a server, in seconds, and how often, before its connection counts as
    lost and its mirror is given up."""

    connect: float = 10.0
    silence: float = 30.0  # without a byte
    total: float = 172_800.0  # for a file, whatever comes; its bytes are kept
    drops: int = 5  # connections lost in a row without a new byte
    pause: float = 0.1  # after a connection that brought nothing; doubled each time
    busy: float = 0.5  # before the next request to a busy server; doubled each time


def session() -> requests.Session:
    """Make a session that names hbench, asks for uncompressed files, and never reads the body of a
    redirect.
    """
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
    """Sends requests in a session, with some patience, until `stop` is set."""

    session: requests.Session
    patience: Patience = Patience()
    stop: threading.Event = field(default_factory=threading.Event)

    def get(self, url: str, headers: Mapping[str, str]) -> requests.Response:
        """Return the response to a request with these headers, its body unread; a busy server is
        asked again, up to four times.

        Between requests it waits as long as Retry-After says, and logs that. A server that asks for
        more than a minute is not asked again: its refusal is returned. Raises DownloadInterrupted.
        """
        attempt = 0
        timeout = (self.patience.connect, self.patience.silence)
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
        """Wait; raises DownloadInterrupted once `stop` is set."""
        if self.stop.wait(seconds):
            raise DownloadInterrupted

    def blocks(self, answer: requests.Response, until: float) -> Iterator[bytes]:
        """Yield the body of a response block by block; raises SourceError at the time `until`, in
        monotonic seconds.
        """
        while block := answer.raw.read1(BLOCK, decode_content=False):
            self.wait(0)  # raises where a stop was asked for meanwhile
            yield block
            if time.monotonic() > until:
                raise SourceError(
                    f"{answer.url} is too slow", found=f"more than {self.patience.total:,.0f} s"
                )


def fetch(
    source: RemoteFile, target: Path, requester: Requester, *, on_progress: OnBytes = lambda _: None
) -> dict[str, str]:
    """Fetch `source` into `target` and return its checksums; only a whole, verified file gets that
    name.

    `on_progress` is called with each number of new bytes (negative when some are discarded). Raises
    SourceError when no mirror has the file, IntegrityError when what they sent is wrong, DataError
    when the disk is full or read-only, DownloadInterrupted once the requester's `stop` is set.
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

    # one error of what every mirror said, of the kind of the last
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
    """The download of one file: the bytes on disk, and how to get the rest."""

    source: RemoteFile
    target: Path
    requester: Requester
    on_progress: OnBytes
    total: int | None = None
    until: float = 0.0

    def __post_init__(self) -> None:
        """Set `until`, the monotonic time at which the whole file must be here."""
        self.until = time.monotonic() + self.requester.patience.total

    @property
    def missing(self) -> int | None:
        """The number of bytes still to fetch; None where neither the source nor the server states
        the size.
        """
        size = self.source.size or self.total
        return None if size is None else max(0, size - self.here)

    @property
    def part(self) -> Path:
        """The file, under another name, in which bytes gather until they are whole and verified."""
        return self.target.with_name(f".{self.target.name}.part")

    @property
    def note(self) -> Path:
        """The file that notes which version of the file these bytes are of, by its validator."""
        return self.target.with_name(f".{self.target.name}.part.json")

    @property
    def here(self) -> int:
        """The number of bytes already on disk."""
        return self.part.stat().st_size if self.part.exists() else 0

    def whole(self, url: str) -> dict[str, str]:
        """Fetch the file from `url`, verify it, give it its name, and return its checksums.

        Where the bytes of an earlier run were wrong, the file is fetched once more from its
        beginning. `here`: bytes on disk so far; `part`: the partial file, `note`: what is known of
        it, `target`: the file."""
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
                self.note.unlink(missing_ok=True)
                return sums

    def _fetch_rest(self, url: str) -> None:
        """Fetch the rest of the file from `url`, by as many requests as lost connections take;
        raises SourceError when that server does not give it. `here`: bytes on disk; `until`: when
        the time of this server is over, in seconds of the monotonic clock."""
        drops = 0  # connections lost in a row without a new byte
        most = self.here
        while True:
            reason = "the connection ended early"
            try:
                if self._request_rest(url):
                    return
            except DROPPED as error:
                reason = reason_of(error)
            except ValueError as error:  # a redirect to http://[, a length of ²³
                raise SourceError(
                    f"the response of {url} cannot be understood", found=str(error)
                ) from None

            drops = 0 if self.here > most else drops + 1
            most = max(most, self.here)
            patience = self.requester.patience
            if drops >= patience.drops or time.monotonic() > self.until:
                raise SourceError(
                    f"{url} could not be read", found=f"{reason} ({self.here:,} bytes are kept)"
                )

            self.requester.wait(min(patience.pause * 2**drops, 10))

    def _request_rest(self, url: str) -> bool:
        """Request the bytes that are missing on disk, once, and append what comes; return whether
        the file is complete now. Raises SourceError for what cannot be the file."""
        here = self.here  # bytes on disk, of this or an earlier run
        if here and here == self.source.size:
            return True

        with self.requester.get(url, self._headers_for_rest(url)) as answer:
            # 416, "range not satisfiable": no bytes beyond those on disk. Of a file as long as
            # these (bytes */LENGTH) they are all; else they are of another file
            if answer.status_code == 416:
                if answer.headers.get("Content-Range") != f"bytes */{here}":
                    self.discard()
                return self.here > 0
            start, self.total = start_and_length(answer, here)
            blocks = self.requester.blocks(answer, self.until)
            # looked at first: a page of the server in place of the file is refused
            beginning = next(blocks, b"")
            if start == 0:
                refuse_page(answer, url, beginning)
            self._refuse_other_size(url)
            if start == 0 and here:  # the server sends all of the file anew
                self.discard()
            # a later run asks for the rest only where the server's file is still the same
            write_text(self.note, json.dumps({"url": url, "validator": validator_of(answer)}))
            self._append(chain([beginning], blocks), url, start)

        return self.total is None or self.here == self.total

    def _headers_for_rest(self, url: str) -> dict[str, str]:
        """The headers of a request for the bytes behind those on disk: Range, and, with the
        validator of an earlier response, If-Range, which asks for all of the file where it has
        changed since."""
        here = self.here
        headers = {"Range": f"bytes={here}-"} if here else {}
        validator = self._validator(url)
        if here and validator:
            headers["If-Range"] = validator
        elif here and not (self.source.md5 or self.source.sha256):
            headers = {}  # without validator and checksum a change of the file would go unnoticed
        return headers

    def _refuse_other_size(self, url: str) -> None:
        """Raise SourceError for a file that has another length than its source says, or is too
        long, by what the server states. `total`: that length, None where it states none."""
        size = self.source.size or self.total
        if self.total not in {None, size}:
            raise SourceError(
                f"{url} has a file of another size",
                expected=f"{size:,} bytes",
                found=f"{self.total:,} bytes",
            )
        self._refuse_too_long(url, self.total or 0)

    def _append(self, blocks: Iterable[bytes], url: str, start: int) -> None:
        """Append the blocks that a server sends, from byte `start` of the file on, to the partial
        file; raise SourceError at the first byte too many: a server may send without end. `part`:
        the partial file; `total`: the length that the server states, None if it states none."""
        size = self.source.size or self.total
        with self.part.open("ab") as file:
            for block in blocks:
                if size is not None and start + len(block) > size:
                    raise SourceError(
                        f"{url} sends more than the file", expected=f"{size:,} bytes", found="more"
                    )
                if size is None and free_bytes(self.part.parent) < RESERVE:
                    raise SourceError(
                        f"{url} sends a file of unknown size that nearly fills the disk",
                        found=f"{start:,} bytes so far",
                    )
                self._refuse_too_long(url, start + len(block))
                start += file.write(block)
                self.on_progress(len(block))

    def _refuse_too_long(self, url: str, size: int) -> None:
        """Raise SourceError where `size`, the bytes of the file so far or as the server states
        them, is more than the source allows, and delete what is on disk."""
        if self.source.most is not None and size > self.source.most:
            self.discard()
            raise SourceError(
                f"{url} has too large a file",
                expected=f"at most {self.source.most:,} bytes",
                found="more",
            )

    def _validator(self, url: str) -> str | None:
        """What the bytes on disk are a version of, by the server's own mark (ETag or date), if they
        came from this very address; None where that is not known."""
        with suppress(OSError, ValueError, KeyError, TypeError):
            note = read_json(self.note)
            return str(note["validator"]) if note["url"] == url and note["validator"] else None
        return None

    def discard(self) -> None:
        """Delete the bytes on disk, which are taken off the progress again."""
        self.on_progress(-self.here)
        self.part.unlink(missing_ok=True)
        self.note.unlink(missing_ok=True)


def verify(path: Path, source: RemoteFile) -> dict[str, str]:
    """Return the checksums of a file: the sha256, and the md5 where its source records one, or
    records no sha256, since those who publish one later often publish that.

    Raises IntegrityError when its size or a checksum is not the recorded one.
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
    """Return where in the file the response's body starts, in bytes, and the file's length if
    stated: 0 where the server sends the whole (200), `here`, the bytes on disk, where it sends the
    rest (206). Raises SourceError for anything else.

    Numbers have 18 digits at most: longer ones are no sizes of files.
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
    """Return the seconds to wait before asking a busy server again; None where it should not be
    asked again.

    The wait is its Retry-After, else `shortest`, doubled with each attempt. It is None for a server
    that is not busy, after the last attempt, and for a Retry-After of more than a minute.
    """
    if answer.status_code not in BUSY or attempt >= ATTEMPTS:
        return None
    after = answer.headers.get("Retry-After", "")
    if not after:
        return shortest * 2.0**attempt
    with suppress(ValueError, OverflowError, TypeError):
        is_number = re.fullmatch("[0-9]{1,9}", after)
        wait = (
            float(after)
            if is_number
            else (parsedate_to_datetime(after) - datetime.now(UTC)).total_seconds()
        )
        return max(wait, 0.0) if wait <= LONGEST_WAIT else None
    return None


def reason_of(error: Exception) -> str:
    """Say why a connection failed, in the words of the innermost error: libraries wrap it in
    errors, whose texts repeat it behind the name of a pool."""
    while isinstance(
        inner := getattr(error, "reason", error.args[0] if error.args else None), Exception
    ):
        error = inner
    return f"{type(error).__name__}: {str(error).rpartition('): ')[2]}"


def validator_of(answer: requests.Response) -> str | None:
    """Return what identifies the server's version of the file: a strong ETag, else the date of its
    last change.
    """
    tag = answer.headers.get("ETag", "")
    return tag if tag and not tag.startswith("W/") else answer.headers.get("Last-Modified")


def refuse_page(answer: requests.Response, url: str, beginning: bytes) -> None:
    """Raise SourceError for a web page in place of the file: a login, a quota notice or a captive
    portal.
    """
    is_html = beginning.lstrip()[:64].lower().startswith((b"<!doctype html", b"<html", b"<head"))
    if is_html or answer.headers.get("Content-Type", "").startswith("text/html"):
        page = "a page, perhaps a login, a quota notice or a captive portal"
        raise SourceError(f"{url} gave a web page instead of the file", found=page)
