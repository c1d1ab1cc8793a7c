"""A real HTTP server on 127.0.0.1 that serves files with Range support, and misbehaves as set, one
fault per request."""

from __future__ import annotations

import contextlib
import hashlib
import re
import socket
import struct
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

Fault = Callable[["Handler", bytes], None]


@dataclass(repr=False)  # hypothesis prints it, with all its files
class FileServer:
    """`files` by path; `faults[path]` are used up, one per request; `asked`, `ended` and `sent`
    record what happened.
    """

    files: dict[str, bytes] = field(default_factory=dict)
    faults: dict[str, list[Fault]] = field(default_factory=lambda: defaultdict(list))
    ranges: bool = True
    etags: bool = True
    asked: list[tuple[str, str | None]] = field(default_factory=list)
    ended: list[str] = field(default_factory=list)
    sent: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    headers: list[dict[str, str]] = field(default_factory=list)
    chunk: int = 1 << 16
    pause: float = 0.0

    def __enter__(self) -> FileServer:
        self.closing = threading.Event()
        self.running = running(Handler, self)
        self.address = self.running.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self.closing.set()
        self.running.__exit__(None, None, None)

    def url(self, path: str = "") -> str:
        return f"{self.address}/{path}"


@contextlib.contextmanager
def running(kind: type[QuietHandler], told: object) -> Iterator[str]:
    """The address of a server whose handlers are of a kind and know `told`; it runs until the block
    ends.
    """
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("BoundHandler", (kind,), {"told": told}))
    server.daemon_threads = True
    threading.Thread(
        target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True
    ).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


class QuietHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        pass

    def answer(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)


class Handler(QuietHandler):
    told: FileServer

    def do_GET(self) -> None:
        path = self.path.lstrip("/").split("?")[0]
        self.told.asked.append((path, self.headers.get("Range")))
        self.told.headers.append(dict(self.headers))
        body = self.told.files.get(path)
        fault = self.told.faults[path].pop(0) if self.told.faults[path] else None
        with contextlib.suppress(ConnectionError):
            if fault is not None:
                fault(self, body or b"")
            elif body is None:
                self.answer(404, b"no such file")
            else:
                self.serve(body)
        self.told.ended.append(path)

    def serve(self, body: bytes, *, until: int | None = None) -> None:
        """The file, or the part of it asked for; nothing after `until` bytes of the file."""
        tag = f'"{hashlib.md5(body).hexdigest()}"'
        found = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
        start = int(found[1]) if found and self.told.ranges else 0
        if self.headers.get("If-Range") not in {None, tag}:
            start = 0
        if start >= len(body) > 0:
            self.answer(416, b"", {"Content-Range": f"bytes */{len(body)}"})
            return
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(len(body) - start))
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(body) - 1}/{len(body)}")
        if self.told.etags:
            self.send_header("ETag", tag)
        self.end_headers()
        self.write(body[start : len(body) if until is None else max(start, until)])

    def write(self, body: bytes) -> None:
        path = self.path.lstrip("/").split("?")[0]
        for position in range(0, len(body), self.told.chunk):
            block = body[position : position + self.told.chunk]
            self.told.sent[path] += len(block)  # first, for who has the last block may look at once
            self.wfile.write(block)
            if self.told.pause:
                self.told.closing.wait(self.told.pause)

    def reset(self) -> None:
        """End the connection with a TCP reset."""
        self.wfile.flush()
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.connection.close()
        self.close_connection = True


def reset_after(number: int) -> Fault:
    def fault(handler: Handler, body: bytes) -> None:
        handler.serve(body, until=number)
        handler.reset()

    return fault


def close_after(number: int) -> Fault:
    def fault(handler: Handler, body: bytes) -> None:
        handler.serve(body, until=number)
        handler.close_connection = True

    return fault


def stall_after(number: int) -> Fault:
    def fault(handler: Handler, body: bytes) -> None:
        handler.serve(body, until=number)
        handler.wfile.flush()
        handler.told.closing.wait(5)
        handler.close_connection = True

    return fault


def status(code: int, body: bytes = b"", **headers: str) -> Fault:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return lambda handler, _: handler.answer(code, body, named)


def instead(body: bytes, **headers: str) -> Fault:
    return status(200, body, **headers)


PAGE = (
    b"<!DOCTYPE html><html><head><title>Sign in to the "
    b"hotel</title></head><body>Welcome</body></html>"
)
