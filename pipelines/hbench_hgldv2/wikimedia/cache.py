"""The response cache: every answer a Wikimedia server gave, kept for good in one sqlite file, so that a run replays
offline.

An answer is committed before it is used: a killed run loses at most the request in flight.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from hbench.core.errors import DataError
from hbench.core.untrusted import parse_json

KEPT_HEADERS = ("ETag", "Age", "Date", "Content-Type", "MediaWiki-API-Error")


class Answer(NamedTuple):
    """A response as it came: HTTP status, the headers worth keeping, the body, and when (UTC, ISO)."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    fetched: str


class Cache:
    """Answers by request, in a sqlite file that is made when missing; raises DataError when it is no such file."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path
        try:
            self._db = sqlite3.connect(path, isolation_level=None)
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.execute(
                "CREATE TABLE IF NOT EXISTS answers"
                " (key TEXT PRIMARY KEY, request TEXT, status INTEGER, headers TEXT, body BLOB, fetched TEXT)"
            )
        except sqlite3.DatabaseError as error:
            raise DataError(
                f"{path} is no response cache", found=str(error), fix="give another path, or move the file away"
            ) from None

    def __enter__(self) -> Cache:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __len__(self) -> int:
        (count,) = self._db.execute("SELECT count(*) FROM answers").fetchone()
        return int(count)

    def get(self, request: str) -> Answer | None:
        """The answer to a canonical request, or None."""
        row = self._db.execute(
            "SELECT status, headers, body, fetched FROM answers WHERE key = ?", (_key(request),)
        ).fetchone()
        return None if row is None else Answer(row[0], parse_json(row[1]), zlib.decompress(row[2]), row[3])

    def put(self, request: str, answer: Answer) -> None:
        """Keep an answer; on return it is in the file."""
        headers = {name: answer.headers[name] for name in KEPT_HEADERS if name in answer.headers}
        self._db.execute(
            "INSERT OR REPLACE INTO answers VALUES (?, ?, ?, ?, ?, ?)",
            (_key(request), request, answer.status, json.dumps(headers), zlib.compress(answer.body), answer.fetched),
        )

    def close(self) -> None:
        self._db.close()


def canonical(endpoint: str, params: Mapping[str, str]) -> str:
    """A request as text that does not depend on the method, the order of parameters, or how patient the client is
    (maxlag).
    """
    return json.dumps([endpoint, sorted((k, v) for k, v in params.items() if k != "maxlag")], ensure_ascii=False)


def _key(request: str) -> str:
    return hashlib.sha256(request.encode()).hexdigest()
