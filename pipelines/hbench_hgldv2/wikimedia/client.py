"""Sends requests to Wikimedia's servers: one at a time, below a rate, with retries, and never the
same request twice.

It follows API:Etiquette, the robot and User-Agent policies and Manual:Maxlag parameter. Every
response is stored in a sqlite file before it is used. So a run can be repeated offline, and a
killed run loses at most the request that was being sent.
"""

from __future__ import annotations

import datetime
import hashlib
import json
import sqlite3
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import requests
from filelock import FileLock, Timeout
from requests.exceptions import ChunkedEncodingError, ContentDecodingError

from hbench.cli import terminal
from hbench.core.errors import ConfigError, DataError, SourceError
from hbench.core.untrusted import parse_json
from hbench_hgldv2.wikimedia.contact import missing_contact, user_agent
from hbench_hgldv2.wikimedia.responses import (
    LEAST_LAG_WAIT,
    Again,
    Good,
    Refused,
    TooLong,
    Verdict,
    judge,
)

NOT_ANSWERED = (
    requests.ConnectionError,
    requests.Timeout,
    ChunkedEncodingError,
    ContentDecodingError,
)
BATCH = 50  # most values of one parameter for clients without the apihighlimits right


class Servers(NamedTuple):
    """The addresses of the APIs of Commons and Wikidata, and of the query service."""

    commons: str = "https://commons.wikimedia.org/w/api.php"
    wikidata: str = "https://www.wikidata.org/w/api.php"
    query: str = "https://query.wikidata.org/sparql"


SERVERS = Servers()

# the options, besides --contact, of every step that sends requests to Wikimedia
Offline = Annotated[bool, "Answer from the cache only."]
RequestsPerSecond = Annotated[float, "Most requests per second."]
CacheFile = Annotated[Path | None, "Response cache; by default cache.sqlite in the work folder."]


@dataclass(frozen=True)
class Manners:
    """The limits of a client: at most `rate` requests per second, waiting times in seconds, and the
    number of `attempts` per request."""

    rate: float = 1.0
    maxlag: int = 5
    first_wait: float = 5.0
    longest_wait: float = 120.0
    lag_wait: float = LEAST_LAG_WAIT
    attempts: int = 15
    timeout: float = 60.0


KEPT_HEADERS = ("ETag", "Age", "Date", "Content-Type", "MediaWiki-API-Error")


class NotInTheCache(DataError):
    """A request that is not in the cache, for a client that only reads its cache."""


class Answer(NamedTuple):
    """A response of a server: HTTP status, headers, body, and when it was fetched (UTC, ISO)."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    fetched: str


class Cache:
    """Responses by request, in a sqlite file, which is created if it does not exist. Raises
    DataError if it is another kind of file."""

    def __init__(self, path: Path) -> None:
        """Open or create the file. Raises DataError for another kind of file."""
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path
        try:
            # None: every response is committed at once, so that a killed run loses none
            self._db = sqlite3.connect(path, isolation_level=None)
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.execute(
                "CREATE TABLE IF NOT EXISTS answers"
                " (key TEXT PRIMARY KEY, request TEXT, status INTEGER, headers TEXT, body BLOB, "
                "fetched TEXT)"
            )
        except sqlite3.DatabaseError as error:
            raise DataError(
                f"{path} is not a response cache",
                found=str(error),
                fix="give another path, or move the file away",
            ) from None

    def __enter__(self) -> Cache:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __len__(self) -> int:
        (count,) = self._db.execute("SELECT count(*) FROM answers").fetchone()
        return int(count)

    def get(self, request: str) -> Answer | None:
        """Return the stored response to a request, None if there is none. `request`: in canonical
        form (`canonical`)."""
        row = self._db.execute(
            "SELECT status, headers, body, fetched FROM answers WHERE key = ?", (_key(request),)
        ).fetchone()
        if row is None:
            return None
        status, headers, body, fetched = row
        return Answer(
            status=status, headers=parse_json(headers), body=zlib.decompress(body), fetched=fetched
        )

    def put(self, request: str, answer: Answer) -> None:
        """Write a response to the file, with those of its headers that are kept (KEPT_HEADERS); the
        connection commits it at once. `request`: in canonical form (`canonical`)."""
        headers = {name: answer.headers[name] for name in KEPT_HEADERS if name in answer.headers}
        self._db.execute(
            "INSERT OR REPLACE INTO answers VALUES (?, ?, ?, ?, ?, ?)",
            (
                _key(request),
                request,
                answer.status,
                json.dumps(headers),
                zlib.compress(answer.body),
                answer.fetched,
            ),
        )

    def close(self) -> None:
        self._db.close()


@dataclass
class Client:
    """Sends requests one at a time. With `contact` None it only reads the cache. `tell`: called
    with remarks.

    Requests to MediaWiki's APIs, which have an action, get the parameter `maxlag` and are sent by
    GET, or by POST if they are too long. Requests to a query service are always sent by POST.
    """

    contact: str | None
    cache: Cache
    manners: Manners = Manners()
    clock: Any = time  # whoever has its functions monotonic, time and sleep
    tell: Callable[[str], None] = lambda text: None
    on_progress: Callable[[int, int | None], None] = lambda done, total: None
    counts: dict[str, int] = field(
        default_factory=lambda: {"cached": 0, "requests": 0, "retries": 0}
    )

    def __post_init__(self) -> None:
        """Open a session with the User-Agent of this run, which names the contact. A client without
        a contact never sends anything, so its session needs none."""
        self._session = requests.Session()
        if self.contact is not None:
            accepted = {
                "Accept-Encoding": "gzip",
                "Accept": "application/sparql-results+json, application/json",
            }
            self._session.headers.update({"User-Agent": user_agent(self.contact)} | accepted)
        self._warned: set[str] = set()  # a warning is shown once
        # an earlier run may have sent a request a moment ago and been killed, so that even the
        # first request has to wait
        self._last = self.clock.monotonic()

    def ask(self, endpoint: str, params: Mapping[str, str]) -> Good | Refused:
        """Return the answer to one request, from the cache or else from the server: Good with the
        data, or Refused if the server does not accept the values in the request.

        `params`: {name: value}, sent to the address `endpoint`. Raises SourceError if the server
        does not answer in `attempts` tries, DataError for a request that is not in the cache if
        only the cache may be used.
        """
        request = canonical(endpoint, params)
        answer = self.cache.get(request)
        if answer is None:
            self.counts["requests"] += 1
            return self._fetch(endpoint, params, request)

        self.counts["cached"] += 1
        # The cache stores responses, not verdicts. The time (`now`) matters only for responses
        # that ask to try again later, and these are not stored.
        verdict = judge(answer.status, answer.headers, answer.body, now=0)
        assert isinstance(verdict, Good | Refused)  # no other responses are stored
        return verdict

    def ask_batched(
        self,
        endpoint: str,
        params: Mapping[str, str],
        name: str,
        values: Sequence[str],
        *,
        size: int = BATCH,
    ) -> Iterator[tuple[list[str], list[Good] | Refused]]:
        """Yield batches of up to `size` values of the parameter `name`, each with the answers to
        its request and the continuations of it.

        A refused batch is split into halves, down to a single refused value, which is yielded with
        its refusal.
        """
        batches = [list(values[start : start + size]) for start in range(0, len(values), size)]
        batches.reverse()  # `pop` takes the last one; the halves of a batch come before the next

        answered = 0
        while batches:
            batch = batches.pop()
            answers = self._ask_to_the_end(endpoint, {**params, name: "|".join(batch)})
            if isinstance(answers, Refused) and len(batch) > 1:
                half = len(batch) // 2
                batches += [batch[half:], batch[:half]]
                continue

            answered += len(batch)
            self.on_progress(answered, len(values))
            yield batch, answers

    def _ask_to_the_end(self, endpoint: str, request: Mapping[str, str]) -> list[Good] | Refused:
        """Return the answers to a request and to its continuations, or a refusal of any of them. A
        long answer ends with the parameters that continue it."""
        answers: list[Good] = []
        continuation: Mapping[str, str] = {}
        while True:
            answer = self.ask(endpoint, {**request, **continuation})
            if isinstance(answer, Refused):
                return answer
            answers.append(answer)
            if "continue" not in answer.data:
                return answers
            continuation = answer.data["continue"]

    def _fetch(self, endpoint: str, params: Mapping[str, str], request: str) -> Good | Refused:
        """Send a request until the server answers, and store the response. A request that is too
        long for a URL is sent again by POST.

        `params` is sent to the address `endpoint`; `request` is both of them in canonical form, the
        key of the stored response. Raises NotInTheCache for a client that only reads its cache.
        """
        if self.contact is None:
            raise NotInTheCache(
                "this request is not in the cache",
                expected=f"an answer in {self.cache.path}",
                found=request[:200],
                fix="run without --offline to ask the server",
            )

        # requests to MediaWiki's APIs have an action; others are queries of SPARQL, which are long
        posts = "action" not in params
        failures = 0
        while True:
            verdict, answer = self._try(endpoint, params, posts=posts)
            if isinstance(verdict, TooLong) and not posts:
                posts = True
                continue
            if isinstance(verdict, TooLong):
                # too long even by POST: store a refusal such as the API's own (status 200), so
                # that the batch is halved, and a later run does not send the request again
                verdict = Refused(verdict.why)
                refusal = {"error": {"code": "toomanyvalues", "info": verdict.why}}
                answer = answer._replace(status=200, body=json.dumps(refusal).encode())
            if not isinstance(verdict, Again):  # Good or Refused
                self.cache.put(request, answer)
                return verdict
            failures += 1
            self._wait(verdict, failures, endpoint)

    def _try(
        self, endpoint: str, params: Mapping[str, str], *, posts: bool
    ) -> tuple[Verdict, Answer]:
        """Send one request, no sooner than 1/rate seconds after the previous one. Return the
        verdict on the response, and the response: Good (use it), Again (send the request again),
        Refused (by the API) or TooLong (for a URL). `posts`: send it by POST, since a long list of
        ids does not fit into a URL."""
        # `_last` is the time of the previous request
        too_early = self._last + 1 / self.manners.rate - self.clock.monotonic()  # seconds
        if too_early > 0:
            self.clock.sleep(too_early)
        self._last = self.clock.monotonic()
        fetched = datetime.datetime.fromtimestamp(self.clock.time(), datetime.UTC).isoformat(
            timespec="seconds"
        )
        sent = dict(params)
        # a MediaWiki API refuses requests while its database lags by more than `maxlag` seconds
        if "action" in params:
            sent["maxlag"] = str(self.manners.maxlag)

        try:
            response = self._session.request(
                "POST" if posts else "GET",
                endpoint,
                params=None if posts else sent,
                data=sent if posts else None,
                timeout=self.manners.timeout,
                allow_redirects=False,  # another address may be another API: `judge` refuses it
            )
        except NOT_ANSWERED as error:  # wait 0.0: as long as `_wait` chooses; status 0: no response
            return Again(f"no answer: {type(error).__name__}", 0.0), Answer(
                status=0, headers={}, body=b"", fetched=fetched
            )

        status = response.status_code
        headers = response.headers
        body = response.content
        verdict = judge(
            status, headers, body, now=self.clock.time(), lag_wait=self.manners.lag_wait
        )

        if isinstance(verdict, Good):  # each warning is shown once per client
            for warning in sorted(set(verdict.warnings) - self._warned):
                self._warned.add(warning)
                self.tell(f"the server warns: {warning}")
        return verdict, Answer(status, dict(headers), body, fetched)

    def _wait(self, verdict: Again, failures: int, endpoint: str) -> None:
        """Wait as long as the server wants (`verdict.wait`, in seconds). If the server does not say
        (0), wait `first_wait` seconds, and twice as long after each further failure. Raises
        SourceError after the last try. `failures`: the number of tries that failed so far."""
        if failures == self.manners.attempts:
            raise SourceError(
                f"{endpoint} did not answer in {failures} tries",
                found=verdict.why,
                fix="run again later: the answers so far are kept",
            )
        self.counts["retries"] += 1
        pause = verdict.wait or min(
            self.manners.first_wait * 2 ** (failures - 1), self.manners.longest_wait
        )
        self.tell(f"{verdict.why}; waiting {pause:.1f} s")
        self.clock.sleep(pause)


@contextmanager
def opened(
    work: Path,
    *,
    command: str,
    contact: str | None = None,
    offline: bool = False,
    rate: float = 1.0,
    cache: Path | None = None,
) -> Iterator[Client]:
    """Open a client on the cache in the work folder, with a progress bar. Only one client may use a
    cache at a time.

    Raises UsageError without a contact, unless `offline`; the message advises the `command` with a
    contact added. `offline`: only the cache is read. `rate`: requests per second, at most. `cache`:
    the file; None: the one in the work folder.
    """
    if contact is None and not offline:
        raise missing_contact(command)
    if not 0 < rate <= 10:
        raise ConfigError(
            "--rate is out of range",
            expected="above 0, at most 10 requests per second",
            found=f"{rate:g}",
        )

    path = cache or work / "cache.sqlite"
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with (
            FileLock(f"{path}.lock", timeout=0),
            Cache(path) as answers,
            terminal.progress() as bar,
        ):
            task = bar.add_task("requests", total=None)  # `on_progress` tells the total
            # a client without a contact never sends anything
            client = Client(
                contact=None if offline else contact,
                cache=answers,
                manners=Manners(rate=rate),
                tell=bar.console.print,
            )
            client.on_progress = lambda done, total: bar.update(task, completed=done, total=total)
            yield client
    except Timeout:
        raise DataError(
            f"another run is using {path}", fix="wait for it to end, or name another --cache"
        ) from None


def canonical(endpoint: str, params: Mapping[str, str]) -> str:
    """Write a request in canonical form: a text that does not depend on the method, the order of
    parameters, or maxlag."""
    return json.dumps(
        [endpoint, sorted((k, v) for k, v in params.items() if k != "maxlag")], ensure_ascii=False
    )


def _key(request: str) -> str:
    """Return the key of a request in the cache: a digest, since requests may be long."""
    return hashlib.sha256(request.encode()).hexdigest()
