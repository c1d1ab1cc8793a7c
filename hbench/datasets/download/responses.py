"""Interprets a server's response: which part of the file it holds, and whether it is the file at all."""

import re
from contextlib import suppress
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

import requests

from hbench.core.errors import SourceError

BUSY = (429, 500, 502, 503, 504)
ATTEMPTS = 4  # further requests to a busy server
LONGEST_WAIT = 60.0  # seconds that a server's Retry-After may ask for


def placed(answer: requests.Response, here: int) -> tuple[int, int | None]:
    """Return where in the file the response's body starts, and the file's length if stated; raises SourceError."""
    length = answer.headers.get("Content-Length", "")
    if answer.status_code == 200:
        return 0, int(length) if re.fullmatch("[0-9]{1,18}", length) else None
    if answer.status_code == 206:
        sent = answer.headers.get("Content-Range", "no Content-Range")
        place = re.fullmatch(r"bytes ([0-9]{1,18})-[0-9]{1,18}/([0-9]{1,18}|\*)", sent)
        if place and int(place[1]) == here:
            return here, int(place[2]) if place[2] != "*" else None
        raise SourceError(f"{answer.url} sent another part than requested", expected=f"bytes from {here}", found=sent)
    wait = answer.headers.get("Retry-After")
    raise SourceError(
        f"{answer.url} refused the request",
        found=f"{answer.status_code} {answer.reason}" + (f", Retry-After {wait}" if wait else ""),
    )


def pause_of(answer: requests.Response, attempt: int, shortest: float) -> float | None:
    """Return the seconds to wait before asking a busy server again; None where it should not be asked again.

    The wait is its Retry-After, else `shortest`, doubled with each attempt. It is None for a server that is not busy, after
    the last attempt, and for a Retry-After of more than a minute.
    """
    if answer.status_code not in BUSY or attempt >= ATTEMPTS:
        return None
    after = answer.headers.get("Retry-After", "")
    if not after:
        return shortest * 2.0**attempt
    with suppress(ValueError, OverflowError, TypeError):
        is_number = re.fullmatch("[0-9]{1,9}", after)
        wait = float(after) if is_number else (parsedate_to_datetime(after) - datetime.now(UTC)).total_seconds()
        return max(wait, 0.0) if wait <= LONGEST_WAIT else None
    return None


def refuse_wrong_kind(answer: requests.Response, url: str, total: int | None, size: int | None) -> None:
    """Raise SourceError for a web page, and for a file of another size than `size`."""
    if answer.headers.get("Content-Type", "").startswith("text/html"):
        beginning = answer.raw.read(4096, decode_content=True)
        raise SourceError(f"{url} gave a web page instead of the file", found=title_of(beginning))
    if size is not None and total is not None and total != size:
        raise SourceError(f"{url} has a file of another size", expected=f"{size:,} bytes", found=f"{total:,} bytes")


def reason_of(error: Exception) -> str:
    """Say why a connection failed, in the words of the innermost error."""
    while isinstance(inner := getattr(error, "reason", error.args[0] if error.args else None), Exception):
        error = inner
    return f"{type(error).__name__}: {str(error).rpartition('): ')[2]}"


def validator_of(answer: requests.Response) -> str | None:
    """Return what identifies the server's version of the file: a strong ETag, else the date of its last change."""
    tag = answer.headers.get("ETag", "")
    return tag if tag and not tag.startswith("W/") else answer.headers.get("Last-Modified")


def looks_like_page(block: bytes) -> bool:
    """Whether a file begins like HTML, such as a login page, a quota notice or a captive portal."""
    return block.lstrip()[:64].lower().startswith((b"<!doctype html", b"<html", b"<head"))


def title_of(page: bytes) -> str:
    """Describe a web page by its title, for a message."""
    title = re.search(rb"<title[^>]*>(.*?)</title>", page, re.IGNORECASE | re.DOTALL)
    words = " ".join(title[1].decode("utf-8", "replace").split())[:80] if title else "no title"
    return f"a page ({words}), perhaps a login, a quota notice or a captive portal"
