"""Fetches files from addresses that strangers name, only from servers on the open internet, and
without using any passwords.

Rows of leaderboards come from pull requests. An address that leads into the network of the machine
that verifies them is refused before a byte is sent, even if it does so by a redirect or a host
name. Passwords in ~/.netrc and proxies of the environment are not used. Servers that are named in
HBENCH_TRUSTED_SERVERS, as host:port, several separated by commas, are allowed anyway.

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

# time for one file, 8 GiB at 5 MB/s; a later run resumes an unfinished download
SECONDS = 1800.0
TRUSTED = "HBENCH_TRUSTED_SERVERS"


def strangers_requester() -> Requester:
    """Return the requester for the addresses in rows."""
    return Requester(strangers_session(), Patience(total=SECONDS))


def strangers_session() -> requests.Session:
    """Return a session for addresses that strangers name. Every connection that it makes, also for
    a redirect, is to an address on the open internet, and neither passwords nor proxies of the
    environment are used."""
    made = session()
    made.trust_env = False  # requests would else read ~/.netrc and the proxies
    made.max_redirects = 5
    for scheme in ("http://", "https://"):
        made.mount(scheme, OpenInternet())  # checks the address of each connection
    return made


def is_open(address: str) -> bool:
    """Whether an IP address is on the open internet. If an IPv6 address embeds an IPv4 address
    (mapped, 6to4, Teredo, NAT64), the embedded one is tested, since it may be private."""
    found = ipaddress.ip_address(address.partition("%")[0])  # without the name of an interface
    if isinstance(found, ipaddress.IPv6Address):
        inner = found.ipv4_mapped or found.sixtofour
        if found.teredo is not None:
            _server, inner = found.teredo  # the addresses of the Teredo server and of the client
        if found in ipaddress.ip_network("64:ff9b::/96"):  # NAT64: IPv4 in the last 32 bits
            inner = ipaddress.IPv4Address(int(found) & 0xFFFFFFFF)
        if inner is not None:
            found = inner
    return found.is_global and not found.is_multicast


def refuse_closed(host: str, port: int, addresses: list[str]) -> None:
    """Raise SourceError if one of a host's addresses is not on the open internet. One is enough,
    since the connection may use any of them.

    A host and port are allowed anyway if the environment variable TRUSTED names them, as in
    "localhost:8000,host:80", for tests and closed networks.
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
    """A mixin for connections that checks a host's addresses before and after connecting."""

    def _new_conn(self: Any) -> socket.socket:
        """Return a socket that is connected to a public address. urllib3 calls this; the class is
        mixed into urllib3's connections.

        The addresses of the host are checked before connecting, so that a server that is not on the
        open internet receives nothing. But urllib3 resolves the host name again when it connects,
        and the result may differ. So the address of the connection is checked as well.
        """
        host = self._dns_host.strip("[]")  # an IPv6 address has brackets in a URL
        port = self.port
        try:
            resolved = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError):
            resolved = []  # connecting fails below, with a better error
        # the last of an entry's five values is the address and the port
        refuse_closed(host, port, [str(entry[4][0]) for entry in resolved])
        connected: socket.socket = super()._new_conn()  # type: ignore[misc]
        try:
            refuse_closed(host, port, [str(connected.getpeername()[0])])
        except SourceError:
            connected.close()
            raise
        return connected


class CheckedHTTP(CheckedHost, HTTPConnection):
    """An unencrypted connection with checked addresses."""


class CheckedHTTPS(CheckedHost, HTTPSConnection):
    """An encrypted connection with checked addresses."""


class CheckedHTTPPool(HTTPConnectionPool):
    """A pool of unencrypted connections with checked addresses."""

    ConnectionCls = CheckedHTTP


class CheckedHTTPSPool(HTTPSConnectionPool):
    """A pool of encrypted connections with checked addresses."""

    ConnectionCls = CheckedHTTPS


class OpenInternet(HTTPAdapter):
    """An adapter that only makes checked connections; redirects use it, too."""

    def init_poolmanager(self, *words: Any, **options: Any) -> None:
        """Make the adapter use the pools above. requests calls this with its own arguments when the
        adapter is created."""
        super().init_poolmanager(*words, **options)
        self.poolmanager.pool_classes_by_scheme = {
            "http": CheckedHTTPPool,
            "https": CheckedHTTPSPool,
        }
