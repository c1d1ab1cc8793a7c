"""A real server on 127.0.0.1: it shows a folder, and answers nobody who calls it by another name."""

from __future__ import annotations

import os
import signal
import socket
import struct
import subprocess
import sys
import threading
from http.client import HTTPConnection

import pytest
from click.testing import CliRunner

from hbench.cli import group
from hbench.core.errors import UsageError
from hbench.look.pages.server import serving

PAGE = '<!doctype html><link rel="icon" href="data/icon.svg"><title>t</title><p>pages'


@pytest.fixture
def folder(tmp_path):
    pages = tmp_path / "pages"
    (pages / "data").mkdir(parents=True)
    (tmp_path / "secret.txt").write_text("of somebody else", encoding="utf-8")
    (pages / "index.html").write_text(PAGE, encoding="utf-8")
    (pages / "data" / "icon.svg").write_text('<svg xmlns="http://www.w3.org/2000/svg"/>', encoding="utf-8")
    (pages / "data" / "a.js").write_text("1", encoding="utf-8")
    (pages / ".hbench-report").touch()
    (pages / "link.txt").symlink_to(tmp_path / "secret.txt")
    return pages


@pytest.fixture
def server(folder):
    """The command as a process of its own."""
    command = [sys.executable, "-m", "hbench", "serve", str(folder), "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    address = process.stdout.readline().strip()
    yield process, int(address.rstrip("/").rpartition(":")[2])
    process.kill()
    process.communicate()


def ask(port, path="/", host=None, method="GET"):
    connection = HTTPConnection("127.0.0.1", port, timeout=20)
    connection.putrequest(method, path, skip_host=True)
    for each in [f"127.0.0.1:{port}"] if host is None else host:
        connection.putheader("Host", each)
    connection.endheaders()
    answer = connection.getresponse()
    return answer.status, answer.read().decode()


def test_it_shows_the_folder_and_only_to_who_names_it_right(server):
    process, port = server
    assert ask(port) == (200, PAGE)
    assert ask(port, host=[f"localhost:{port}"])[0] == 200
    assert ask(port, "/data/a.js") == (200, "1")
    assert ask(port, method="HEAD") == (200, "")
    refused = ([], ["evil.example"], [f"evil.example:{port}"], ["127.0.0.1"], [f"127.0.0.1:{port}", "evil.example"])
    for host in refused:
        for method in ("GET", "HEAD"):
            assert ask(port, host=host, method=method)[0] == 421
    for path in (
        "/data/",
        "/../secret.txt",
        "/%2e%2e/secret.txt",
        "/link.txt",
        "/.hbench-report",
        "/nothing",
        "/a%00b",
    ):
        assert ask(port, path)[0] == 404
    for method in ("POST", "PUT", "DELETE"):
        assert ask(port, method=method)[0] == 501
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=30)
    assert process.returncode == 0
    assert "Traceback" not in errors


def test_a_browser_that_goes_away_leaves_no_trace(folder, capfd):
    (folder / "large.js").write_bytes(b" " * (64 << 20))  # more than the buffers of two sockets hold
    with serving(folder, 0) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        gone = socket.create_connection(("127.0.0.1", server.server_port))
        gone.sendall(f"GET /large.js HTTP/1.0\r\nHost: 127.0.0.1:{server.server_port}\r\n\r\n".encode())
        gone.recv(1000)
        gone.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # a reset, not a farewell
        gone.close()
        assert ask(server.server_port) == (200, PAGE)
        server.shutdown()
    assert "Traceback" not in capfd.readouterr().err


def test_it_listens_on_this_machine_alone(folder):
    with serving(folder, 0) as server:
        assert server.server_address[0] == "127.0.0.1"
        assert server.socket.getsockname() == ("127.0.0.1", server.server_port)


def test_a_browser_opens_what_it_serves(opened, server):
    page = opened(f"http://127.0.0.1:{server[1]}/")
    assert page.locator("p").inner_text() == "pages"


def test_a_folder_without_pages_and_a_port_in_use_are_refused(folder, tmp_path):
    with pytest.raises(UsageError, match="holds no pages"), serving(tmp_path, 0):
        pass
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = CliRunner().invoke(group, ["serve", os.fspath(folder), "--port", str(port)])
    assert isinstance(done.exception, UsageError)
    assert f"port {port} cannot be used" in str(done.exception)
