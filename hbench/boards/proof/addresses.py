"""Fetches files from addresses that strangers name: from servers of the open internet alone, and
without anybody's passwords.

Rows of leaderboards come from pull requests. An address that leads into the network of whoever
verifies them, also by a redirect or a name, is refused before a byte is sent, and no password of
~/.netrc or proxy of the environment is used. HBENCH_TRUSTED_SERVERS=host:port, several separated by
commas, names servers that are asked all the same.

>>> [
...     is_open(text)
...     for text in (
...         "93.184.216.34",
...         "127.0.0.1",
...         "10.0.0.1",
...         "169.254.169.254",
...         "::1",
...         "::ffff:127.0.0.1",
...     )
... ]
[True, False, False, False, False, False]
"""

from __future__ import annotations

import ipaddress
import os
import socket
from typing import Any

import requests
from requests.adapters import HTTPAdapter
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool

from hbench.core.errors import SourceError
from hbench.datasets.download import Patience, Requester, session

# for one file: 8 GiB at 5 MB/s; what has come is kept, and resumed by the next run
SECONDS = 1800.0
TRUSTED = "HBENCH_TRUSTED_SERVERS"


def strangers_requester() -> Requester:
    """Return what sends requests to the addresses of rows."""
    return Requester(strangers_session(), Patience(total=SECONDS))


def strangers_session() -> requests.Session:
    """Make a session that reaches addresses of the open internet alone, and takes nothing from the
    environment.
    """
    made = session()
    made.trust_env = False
    made.max_redirects = 5
    for scheme in ("http://", "https://"):
        made.mount(scheme, OpenInternet())
    return made


def is_open(address: str) -> bool:
    """Whether an IP address is one of the open internet. An IPv6 address may only stand for an IPv4
    one (mapped, 6to4, Teredo, NAT64): then the inner one counts, which may be a private one."""
    found = ipaddress.ip_address(address.partition("%")[0])  # without the name of an interface
    if isinstance(found, ipaddress.IPv6Address):
        inner = found.ipv4_mapped or found.sixtofour
        if found.teredo is not None:
            _server, inner = found.teredo
        if found in ipaddress.ip_network("64:ff9b::/96"):  # NAT64: IPv4 in the last 32 bits
            inner = ipaddress.IPv4Address(int(found) & 0xFFFFFFFF)
        if inner is not None:
            found = inner
    return found.is_global and not found.is_multicast


def refuse_closed(host: str, port: int, addresses: list[str]) -> None:
    """Raise SourceError where a host has an address that is not of the open internet, unless the
    environment names it among trusted servers, as tests and closed networks do. One such address is
    enough: the connection may take any of them.
    """
    if f"{host}:{port}" in os.environ.get(TRUSTED, "").split(","):
        return
    closed = [address for address in addresses if not is_open(address)]
    if closed:
        raise SourceError(
            "the address does not lead to the open internet",
            expected="a public server",
            found=f"{host} is {closed[0]}",
        )


class CheckedHost:
    """What both kinds of connections do before they connect, and after, where the name was resolved
    once more.
    """

    def _new_conn(self: Any) -> socket.socket:
        """Connect to a public address. It is looked at once more after connecting, since a name may
        lead elsewhere when it is looked up again. urllib3 calls this, and looks the name up itself.
        """
        host = self._dns_host.strip("[]")  # the brackets of an IPv6 address are an URL's
        port = self.port
        try:
            resolved = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError):
            resolved = []  # the connection fails, and says why
        refuse_closed(host, port, [str(entry[4][0]) for entry in resolved])
        connected: socket.socket = super()._new_conn()  # type: ignore[misc]
        try:
            refuse_closed(host, port, [str(connected.getpeername()[0])])
        except SourceError:
            connected.close()
            raise
        return connected


class CheckedHTTP(CheckedHost, HTTPConnection):
    """A connection in the clear."""


class CheckedHTTPS(CheckedHost, HTTPSConnection):
    """An encrypted connection."""


class CheckedHTTPPool(HTTPConnectionPool):
    """Makes connections in the clear that are checked."""

    ConnectionCls = CheckedHTTP


class CheckedHTTPSPool(HTTPSConnectionPool):
    """Makes encrypted connections that are checked."""

    ConnectionCls = CheckedHTTPS


class OpenInternet(HTTPAdapter):
    """Connects to checked hosts alone; redirects come here, too."""

    def init_poolmanager(self, *words: Any, **options: Any) -> None:
        """Let the adapter of requests make its connections by the classes above; it calls this with
        arguments of its own when it is made."""
        super().init_poolmanager(*words, **options)
        self.poolmanager.pool_classes_by_scheme = {
            "http": CheckedHTTPPool,
            "https": CheckedHTTPSPool,
        }
