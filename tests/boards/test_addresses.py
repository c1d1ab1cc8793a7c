"""Where the files of rows are fetched from: the open internet alone, and with nobody's
passwords."""

import pytest

from hbench.boards.proof.addresses import (
    TRUSTED,
    is_open,
    refuse_closed,
    strangers_requester,
    strangers_session,
)
from hbench.core.errors import SourceError
from hbench.datasets.download import Patience, Requester, fetch
from hbench.datasets.spec import RemoteFile
from tests.file_server import FileServer, status

pytestmark = pytest.mark.fast

CLOSED = (
    "127.0.0.1", "127.8.8.8", "0.0.0.0", "10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.169.254",
    "100.64.0.1", "224.0.0.1",
    "255.255.255.255", "::1", "::", "fe80::1", "fe80::1%eth0", "fc00::1", "ff02::1",
    "::ffff:127.0.0.1", "::ffff:10.0.0.1",
    "2002:7f00:1::", "2002:a00:1::", "64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe",
)  # fmt: skip
OPEN = ("93.184.216.34", "1.1.1.1", "2606:4700:4700::1111", "::ffff:1.1.1.1", "64:ff9b::101:101")


@pytest.fixture
def server():
    with FileServer() as running:
        running.files["a.npz"] = b"content"
        yield running


@pytest.mark.parametrize("address", CLOSED)
def test_an_address_of_somebodys_network_is_closed(address):
    assert not is_open(address)
    with pytest.raises(SourceError, match="open internet"):
        refuse_closed("example.org", 80, ["1.1.1.1", address])


@pytest.mark.parametrize("address", OPEN)
def test_an_address_of_the_internet_is_open(address):
    assert is_open(address)
    refuse_closed("example.org", 80, [address])


def get(tmp_path, url):
    requester = Requester(strangers_session(), Patience(connect=2, silence=1, drops=1, pause=0.01))
    fetch(RemoteFile("a.npz", (url,)), tmp_path / "a.npz", requester)
    return (tmp_path / "a.npz").read_bytes()


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1", "localhost", "[::1]", "127.1", "2130706433", "0x7f.1", "[::ffff:127.0.0.1]"],
)
def test_a_closed_address_is_refused_however_it_is_written_and_not_asked(
    tmp_path, server, monkeypatch, host
):
    monkeypatch.setenv(TRUSTED, "127.0.0.1:1")  # another port
    port = server.address.rpartition(":")[2]
    for scheme in ("http", "https"):
        with pytest.raises(SourceError):
            get(tmp_path, f"{scheme}://{host}:{port}/a.npz")
    assert not server.asked


def test_a_redirect_to_a_closed_address_is_refused(tmp_path, server, monkeypatch):
    monkeypatch.setenv(TRUSTED, server.address.removeprefix("http://"))
    with FileServer() as other:
        other.files["a.npz"] = b"secret"
        server.faults["a.npz"] = [status(302, Location=other.url("a.npz"))]
        with pytest.raises(SourceError, match="does not lead to the open internet"):
            get(tmp_path, server.url("a.npz"))
        assert not other.asked
    assert get(tmp_path, server.url("a.npz")) == b"content"


def test_no_password_and_no_proxy_of_the_environment_is_used(tmp_path, server, monkeypatch):
    (tmp_path / "netrc").write_text("machine 127.0.0.1 login me password secret\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv(TRUSTED, server.address.removeprefix("http://"))
    assert get(tmp_path, server.url("a.npz")) == b"content"
    assert not [
        name for headers in server.headers for name in headers if name.lower() == "authorization"
    ]
    assert 0 < strangers_requester().patience.total <= 3600
