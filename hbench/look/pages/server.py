"""Serves a folder of pages to this machine alone.

It listens on 127.0.0.1, and answers only requests that name it so: a page of the web that has its own name point to
127.0.0.1 (DNS rebinding) is refused. It reads files inside of the folder, follows no link out of it, and lists no folder.
"""

from __future__ import annotations

import errno
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http import HTTPStatus
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from hbench.core.errors import UsageError

HOST = "127.0.0.1"


class PageServer(ThreadingHTTPServer):
    """A server on 127.0.0.1; `address`: what a browser opens."""

    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of a browser that went away before it had its answer."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)

    @property
    def address(self) -> str:
        return f"http://{HOST}:{self.server_port}/"


class PageHandler(SimpleHTTPRequestHandler):
    """Answers GET and HEAD for files of one folder."""

    server_version = "hbench"
    sys_version = ""

    def do_GET(self) -> None:
        if self._allowed():
            super().do_GET()

    def do_HEAD(self) -> None:
        if self._allowed():
            super().do_HEAD()

    def _allowed(self) -> bool:
        """Whether the request names this machine, and a file inside of the folder; else it has been answered."""
        assert isinstance(self.server, PageServer)
        port = self.server.server_port
        if self.headers.get_all("Host") not in ([f"{HOST}:{port}"], [f"localhost:{port}"]):
            self.send_error(
                HTTPStatus.MISDIRECTED_REQUEST, f"This server is {HOST}:{port}, and answers to no other name"
            )
            return False
        if _inside(Path(self.directory), self.translate_path(self.path)):
            return True
        self.send_error(HTTPStatus.NOT_FOUND)
        return False

    def list_directory(self, path: Any) -> None:
        self.send_error(HTTPStatus.NOT_FOUND)

    def end_headers(self) -> None:
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Cache-Control", "no-cache")
        self.send_header("Referrer-Policy", "no-referrer")
        self.send_header("Cross-Origin-Resource-Policy", "same-origin")
        super().end_headers()

    def log_message(self, *_args: Any) -> None:
        """Says nothing: what was opened is the user's business."""


def _inside(folder: Path, name: str) -> bool:
    """Whether a name leads to something inside of a folder that is not hidden there, links followed."""
    try:
        path, root = Path(name).resolve(), folder.resolve()
    except ValueError:  # no name of a file, as with a zero byte
        return False
    return path.is_relative_to(root) and not any(part.startswith(".") for part in path.relative_to(root).parts)


@contextmanager
def serving(folder: Path, port: int) -> Iterator[PageServer]:
    """A server of a folder, closed when the block ends; Ctrl-C ends it well.

    Raises UsageError for a folder without pages and for a port that is taken.
    """
    if not (folder / "index.html").is_file():
        raise UsageError(f"{folder} holds no pages", expected="a folder with index.html", fix="hbench report … -o DIR")
    try:
        server = PageServer((HOST, port), partial(PageHandler, directory=str(folder)))
    except OSError as error:
        if error.errno not in {errno.EADDRINUSE, errno.EACCES}:
            raise
        raise UsageError(f"port {port} cannot be used", found=error.strerror or "", fix="add --port 0") from None
    try:
        yield server
    finally:
        server.server_close()
