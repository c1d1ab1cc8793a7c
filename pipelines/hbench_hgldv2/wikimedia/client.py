"""A polite client of Wikimedia's APIs: serial, below a rate, patient, and never asking twice for what the cache holds.

It follows API:Etiquette, the robot and User-Agent policies and Manual:Maxlag parameter. Clock, wall clock and sleep are
passed in.
"""

from __future__ import annotations

import datetime
import importlib.metadata
import json
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import requests
from urllib3.exceptions import HTTPError, MaxRetryError
from urllib3.util import Retry

from hbench.core.errors import DataError, SourceError, UsageError
from hbench_hgldv2.wikimedia.cache import Answer, Cache, canonical
from hbench_hgldv2.wikimedia.responses import LEAST_LAG_WAIT, Again, Good, Refused, TooLong, Verdict, judge

BATCH = 50  # values of one parameter, for clients without the apihighlimits right


class Servers(NamedTuple):
    """Where Wikimedia answers: the APIs of Commons and Wikidata, and the query service."""

    commons: str = "https://commons.wikimedia.org/w/api.php"
    wikidata: str = "https://www.wikidata.org/w/api.php"
    query: str = "https://query.wikidata.org/sparql"


SERVERS = Servers()


class Endpoint(NamedTuple):
    """Where to ask: MediaWiki APIs take `maxlag` and GET, falling back to POST; a query service always gets POST."""

    url: str
    maxlag: bool = True
    posts: bool = False


@dataclass(frozen=True)
class Manners:
    """How a client behaves: at most `rate` requests per second, waits in seconds, `attempts` per request."""

    rate: float = 1.0
    maxlag: int = 5
    first_wait: float = 5.0
    longest_wait: float = 120.0
    lag_wait: float = LEAST_LAG_WAIT
    attempts: int = 15
    timeout: float = 60.0


@dataclass(frozen=True)
class Clock:
    """Time as the client sees it: `monotonic` and `wall` seconds, and how it waits."""

    monotonic: Callable[[], float] = time.monotonic
    wall: Callable[[], float] = time.time
    sleep: Callable[[float], None] = time.sleep


@dataclass
class Client:
    """Asks serially. `contact` is None for a client that only reads the cache; `tell` hears what happens."""

    contact: str | None
    cache: Cache
    manners: Manners = Manners()
    clock: Clock = Clock()
    tell: Callable[[str], None] = lambda text: None
    watch: Callable[[int, int | None], None] = lambda done, total: None
    counts: dict[str, int] = field(default_factory=lambda: {"cached": 0, "requests": 0, "retries": 0})

    def __post_init__(self) -> None:
        self._session = requests.Session()
        if self.contact is not None:
            self._session.headers.update(
                {
                    "User-Agent": user_agent(self.contact),
                    "Accept-Encoding": "gzip",
                    "Accept": "application/sparql-results+json, application/json",
                }
            )
        self._warned: set[str] = set()  # each warning is told once
        # Another run may have asked a moment ago and been killed, so that even the first request waits its turn.
        self._last = self.clock.monotonic()

    def ask(self, endpoint: Endpoint, params: Mapping[str, str]) -> Good | Refused:
        """The answer to one request, from the cache or else from the server.

        Raises SourceError when the server does not answer in `attempts` tries, DataError when only the cache may be
        used.
        """
        request = canonical(endpoint.url, params)
        answer = self.cache.get(request)
        self.counts["requests" if answer is None else "cached"] += 1
        if answer is None:
            return self._fetch(endpoint, params, request)
        verdict = judge(answer.status, answer.headers, answer.body, now=0)
        assert isinstance(verdict, Good | Refused)
        return verdict

    def ask_all(self, endpoint: Endpoint, params: Mapping[str, str]) -> Iterator[Good | Refused]:
        """The answers to a request and to its continuations, until the server says it is complete."""
        verdict = self.ask(endpoint, params)
        yield verdict
        while isinstance(verdict, Good) and "continue" in verdict.data:
            verdict = self.ask(endpoint, {**params, **verdict.data["continue"]})
            yield verdict

    def ask_batched(
        self, endpoint: Endpoint, params: Mapping[str, str], name: str, values: Sequence[str], *, size: int = BATCH
    ) -> Iterator[tuple[list[str], list[Good] | Refused]]:
        """Batches of values with their answers; a refused batch is halved until one refused value is left, which is
        yielded so.
        """
        batches = [list(values[start : start + size]) for start in range(0, len(values), size)][::-1]
        answered = 0
        while batches:
            batch = batches.pop()
            answers = list(self.ask_all(endpoint, {**params, name: "|".join(batch)}))
            refusals = [answer for answer in answers if isinstance(answer, Refused)]
            if refusals and len(batch) > 1:
                batches += [batch[len(batch) // 2 :], batch[: len(batch) // 2]]
            else:
                answered += len(batch)
                self.watch(answered, len(values))
                yield batch, refusals[0] if refusals else [answer for answer in answers if isinstance(answer, Good)]

    def _fetch(self, endpoint: Endpoint, params: Mapping[str, str], request: str) -> Good | Refused:
        if self.contact is None:
            raise DataError(
                "this request is not in the cache",
                expected=f"an answer in {self.cache.path}",
                found=request[:200],
                fix="run without --offline to ask the server",
            )
        send, budget = self._post if endpoint.posts else self._get, _budget(self.manners)
        patience = {"maxlag": str(self.manners.maxlag)} if endpoint.maxlag else {}
        while True:
            verdict, answer = self._try(send, endpoint, {**params, **patience})
            if isinstance(verdict, TooLong):
                if send == self._get:
                    send = self._post
                    continue
                verdict = Refused(verdict.why)
                answer = answer._replace(status=200, body=_refusal(verdict.why))
            if isinstance(verdict, Good | Refused):
                self.cache.put(request, answer)
                return verdict
            budget = self._wait(verdict, budget, endpoint)

    def _try(
        self,
        send: Callable[[Endpoint, Mapping[str, str]], requests.Response],
        endpoint: Endpoint,
        params: Mapping[str, str],
    ) -> tuple[Verdict, Answer]:
        """One request in its turn: no sooner than 1/rate after the one before."""
        turn = self._last + 1 / self.manners.rate - self.clock.monotonic()
        if turn > 0:
            self.clock.sleep(turn)
        self._last = self.clock.monotonic()
        fetched = datetime.datetime.fromtimestamp(self.clock.wall(), datetime.UTC).isoformat(timespec="seconds")
        try:
            response = send(endpoint, params)
        except (
            requests.ConnectionError,
            requests.Timeout,
            requests.exceptions.ChunkedEncodingError,
            requests.exceptions.ContentDecodingError,
        ) as error:
            return Again(f"no answer: {type(error).__name__}", 0.0), Answer(0, {}, b"", fetched)
        verdict = judge(
            response.status_code,
            response.headers,
            response.content,
            now=self.clock.wall(),
            lag_wait=self.manners.lag_wait,
        )
        for warning in sorted(set(verdict.warnings if isinstance(verdict, Good) else ()) - self._warned):
            self._warned.add(warning)
            self.tell(f"the server warns: {warning}")
        return verdict, Answer(response.status_code, dict(response.headers), response.content, fetched)

    def _wait(self, verdict: Again, budget: Retry, endpoint: Endpoint) -> Retry:
        """Sleep as the server asks, or longer after each failure; raise SourceError when the tries are used up."""
        self.counts["retries"] += 1
        try:
            budget = budget.increment("GET", endpoint.url, error=HTTPError(verdict.why))
        except MaxRetryError:
            raise SourceError(
                f"{endpoint.url} did not answer in {self.manners.attempts} tries",
                found=verdict.why,
                fix="run again later: what was answered is kept",
            ) from None
        pause = verdict.wait or max(self.manners.first_wait, budget.get_backoff_time())
        self.tell(f"{verdict.why}; waiting {pause:.1f} s")
        self.clock.sleep(pause)
        return budget

    def _get(self, endpoint: Endpoint, params: Mapping[str, str]) -> requests.Response:
        return self._session.get(endpoint.url, params=dict(params), timeout=self.manners.timeout, allow_redirects=False)

    def _post(self, endpoint: Endpoint, params: Mapping[str, str]) -> requests.Response:
        return self._session.post(endpoint.url, data=dict(params), timeout=self.manners.timeout, allow_redirects=False)


def user_agent(contact: str) -> str:
    """`hbench/<version> (<contact>) requests/<version>`; raises UsageError for a contact that is neither a mail nor a
    URL.
    """
    if not re.fullmatch(r"[^\s()<>@]+@[^\s()<>@]+\.[^\s()<>@]+|https?://[^\s()<>]+", contact):
        raise UsageError(
            "Wikimedia asks every client to say whom to write to",
            expected="a mail address or a URL of yours",
            found=repr(contact),
            fix="--contact you@example.org",
        )
    return f"hbench/{importlib.metadata.version('hbench')} ({contact}) requests/{requests.__version__}"


def _budget(manners: Manners) -> Retry:
    return Retry(
        total=manners.attempts - 1,
        backoff_factor=manners.first_wait / 2,
        backoff_max=manners.longest_wait,
        backoff_jitter=manners.first_wait / 5,
    )


def _refusal(why: str) -> bytes:
    return json.dumps({"error": {"code": "toomanyvalues", "info": why}}).encode()
