"""Judges the responses of Wikimedia's servers: whether to use them, send the request again, halve
the batch, or give up.

>>> judge(
...     200,
...     {},
...     b'{"error": {"code": "maxlag", "info": "Waiting for all: 3.45 seconds lagged."}}',
...     now=0,
... )
Again(why='maxlag: Waiting for all: 3.45 seconds lagged.', wait=5.0)
"""

import email.utils
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from hbench.core.errors import SourceError
from hbench.core.untrusted import parse_json

# 520 … 524: a proxy could not reach the server
BUSY = frozenset({408, 429, 500, 502, 503, 504, *range(520, 525)})
RETRIED_ERRORS = frozenset({"ratelimited", "readonly", "cirrussearch-too-busy-error"})
INTERNAL = "internal_api_error_"  # begins the codes of a server's internal exceptions
BATCH_ERRORS = frozenset({"no-such-entity", "toomanyvalues"})
LEAST_LAG_WAIT = 5.0  # Manual:Maxlag parameter asks for at least five seconds
SHOWN_LETTERS = 300


class Good(NamedTuple):
    """A response to use: its parsed data, with the server's harmless warnings."""

    data: dict[str, Any]
    warnings: tuple[str, ...]


class Again(NamedTuple):
    """A response after which to send the request again, after at least `wait` seconds."""

    why: str
    wait: float


class Refused(NamedTuple):
    """A refusal of the whole batch: halve the batch or, if it is a single value, take the refusal
    as the answer."""

    why: str


class TooLong(NamedTuple):
    """A refusal because the URL is too long: send the request by POST."""

    why: str


Verdict = Good | Again | Refused | TooLong


def judge(
    status: int,
    headers: Mapping[str, str],
    body: bytes,
    *,
    now: float,
    lag_wait: float = LEAST_LAG_WAIT,
) -> Verdict:
    """Judge a response.

    `now`: the time in seconds since 1970, for a Retry-After that is a date. `lag_wait`: the least
    seconds to wait if servers lag behind. Raises SourceError if asking again would not help: for
    403 and other refusals, unknown API errors, and warnings of unrecognised parameters, which mean
    that the answer is to another question.
    """
    wait = retry_after(headers, now)
    text = body[:SHOWN_LETTERS].decode("utf-8", "replace").strip()
    if status in BUSY:
        return Again(f"HTTP {status}", wait)
    if status in (413, 414):
        return TooLong(f"HTTP {status}")
    if status == 403:
        raise SourceError(
            "the server refuses this client (HTTP 403)",
            found=text,
            fix="check that --contact is a real address, as Wikimedia's User-Agent policy demands",
        )
    if status != 200:
        raise SourceError(f"the server answered HTTP {status}", expected="200", found=text)

    try:
        data = parse_json(body)
    except ValueError:  # such as the page of a proxy that is overloaded
        return Again(f"no JSON: {text[:60]!r}", wait)

    if not isinstance(data, dict):
        return Again(f"no JSON object: {text[:60]!r}", wait)

    if "error" in data:
        return _judge_error(data["error"], wait, lag_wait)
    return Good(data, _harmless(data))  # with the harmless warnings; raises for others


def retry_after(headers: Mapping[str, str], now: float) -> float:
    """Return the seconds of a Retry-After header, which may be an integer, a decimal or a date; 0
    if it is absent or invalid."""
    value = headers.get("Retry-After", "").strip()
    if re.fullmatch(r"\d+(\.\d+)?", value):
        return float(value)
    try:
        return max(0.0, email.utils.parsedate_to_datetime(value).timestamp() - now)
    except ValueError:
        return 0.0


def _judge_error(error: Mapping[str, Any], wait: float, lag_wait: float) -> Verdict:
    """Decide what to do after an error of the API: try again later, give up on this batch, or raise
    SourceError.

    `wait` is the number of seconds that the response asks for. `lag_wait` is the shortest wait for
    servers that lag behind.
    """
    code = str(error.get("code"))
    info = str(error.get("info", ""))
    if code == "maxlag":
        return Again(f"{code}: {info}", max(lag_wait, wait))
    if code in RETRIED_ERRORS or code.startswith(INTERNAL):
        return Again(f"{code}: {info}", wait)
    # one value of the batch is at fault: the others can be requested without it
    if code in BATCH_ERRORS:
        return Refused(f"{code}: {info}")
    raise SourceError(
        f"the API refuses the request: {code}",
        found=info or str(error.get("*", error.get("docref", ""))),
    )


def _harmless(data: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the harmless warnings of an answer. Raises SourceError for a warning that means that
    the answer is to another question."""
    blocks = data.get("warnings") or {}  # module -> {"warnings": text}, or {"*": text} in version 1
    warnings = tuple(str(text) for block in blocks.values() for text in block.values())
    grave = [text for text in warnings if "Unrecognized" in text]
    if grave:
        raise SourceError(
            "the API did not understand a parameter, so its answer is to another question",
            found="; ".join(grave),
        )
    return warnings
