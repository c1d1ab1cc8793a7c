"""Opens connections that come to an end: a server that drips, or sends long pages with its refusals, is left.

| what a server does | what is done |
|---|---|
| fewer than 1,024 bytes a second over a minute, headers and framing included | the connection is taken for lost |
| no byte for the time to wait | the same |
| a refusal or a redirect with more than 64 KiB | the same, for its page would be read whole |
| more than 64 KiB of headers, or of "100 Continue", before the file | the same |

All bytes pass one place, the stream below http.client's parser: headers and the framing of chunks are read line by line
there, and would never reach the one who counts blocks of the body.
"""

from __future__ import annotations

import http.client
import io
import socket
import time
from typing import Any

import requests
import urllib3
from requests.adapters import HTTPAdapter
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool

from hbench.core.version import __version__

SLOWEST = (1024, 60.0)  # bytes a second, over so many seconds
LONGEST_REFUSAL = 1 << 16  # bytes of an answer that is not the file
FILE = (200, 206)


class PacedStream(io.RawIOBase):
    """The bytes of one answer, as long as enough of them come: ConnectionAbortedError otherwise."""

    def __init__(self, raw: io.RawIOBase) -> None:
        self.raw, self.came, self.since, self.left = raw, 0, time.monotonic(), -1

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        number = self.raw.readinto(buffer) or 0
        self._refuse_slowness(number)
        if 0 <= self.left < number:
            raise ConnectionAbortedError(f"more than {LONGEST_REFUSAL:,} bytes came instead of the file")
        self.left -= number if self.left >= 0 else 0
        return int(number)

    def _refuse_slowness(self, number: int) -> None:
        rate, seconds = SLOWEST
        self.came += number
        passed = time.monotonic() - self.since
        if number and passed >= seconds:
            if self.came < rate * passed:
                raise ConnectionAbortedError(f"only {self.came:,} bytes came in {passed:.0f} s")
            self.since, self.came = time.monotonic(), 0

    def close(self) -> None:
        self.raw.close()
        super().close()


class PacedResponse(http.client.HTTPResponse):
    """An answer whose status line, headers and body are read at a least pace; a refusal's page is short."""

    def __init__(self, sock: socket.socket, *arguments: Any, **named: Any) -> None:
        super().__init__(sock, *arguments, **named)
        self.stream = PacedStream(self.fp.detach())
        self.fp = io.BufferedReader(self.stream)

    def begin(self) -> None:
        self.stream.left = LONGEST_REFUSAL  # http.client would read one "100 Continue" after the other
        super().begin()
        self.stream.left = -1 if self.status in FILE else LONGEST_REFUSAL


class PacedHTTP(HTTPConnection):
    response_class = PacedResponse


class PacedHTTPS(HTTPSConnection):
    response_class = PacedResponse


class PacedHTTPPool(HTTPConnectionPool):
    ConnectionCls = PacedHTTP


class PacedHTTPSPool(HTTPSConnectionPool):
    ConnectionCls = PacedHTTPS


class PacedAdapter(HTTPAdapter):
    """Makes requests open its connections through the pools above, through a proxy too."""

    def init_poolmanager(self, *arguments: Any, **named: Any) -> None:
        super().init_poolmanager(*arguments, **named)
        self.poolmanager.pool_classes_by_scheme = {"http": PacedHTTPPool, "https": PacedHTTPSPool}

    def proxy_manager_for(self, *arguments: Any, **named: Any) -> Any:
        manager = super().proxy_manager_for(*arguments, **named)
        if isinstance(manager, urllib3.ProxyManager):
            manager.pool_classes_by_scheme = {"http": PacedHTTPPool, "https": PacedHTTPSPool}
        return manager


def session() -> requests.Session:
    """A session that says who asks, and wants files as they are."""
    own = requests.Session()
    own.headers["User-Agent"] = f"hbench/{__version__} (a benchmark toolkit; resumable downloads)"
    own.headers["Accept-Encoding"] = "identity"
    for scheme in ("http://", "https://"):
        own.mount(scheme, PacedAdapter())
    return own
