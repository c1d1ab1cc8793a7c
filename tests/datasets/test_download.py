"""Fetching one file from servers that fail in every way they can: whole and right at the end,
nothing fetched twice.
"""

import hashlib
import json
import random
import threading
from contextlib import suppress
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hbench.core.errors import IntegrityError, SourceError
from hbench.datasets.download import DownloadInterrupted, Patience, Requester, fetch, session
from hbench.datasets.spec import RemoteFile
from tests.file_server import (
    PAGE,
    FileServer,
    close_after,
    instead,
    reset_after,
    stall_after,
    status,
)

BODY = random.Random(0).randbytes(1_000_000)
MD5 = hashlib.md5(BODY).hexdigest()
SHA256 = hashlib.sha256(BODY).hexdigest()
NOWHERE = ("http://[", "http://\x00", "gopher://x", "http://a:99999999/")
QUICK = Patience(connect=2, silence=1, pause=0.01, busy=0.01)


@pytest.fixture(scope="module")
def shared_session():
    with session() as own:
        yield own


@pytest.fixture
def server():
    with FileServer(files={"data.bin": BODY}) as own:
        yield own


@pytest.fixture
def get(server, tmp_path, shared_session):
    moved = []

    def get(*, urls=None, patience=QUICK, **known):
        """The bytes that were fetched; also told are their checksums and how many came."""
        source, target = (
            RemoteFile("data.bin", tuple(urls or [server.url("data.bin")]), **known),
            tmp_path / "data.bin",
        )
        get.sums = fetch(
            source, target, Requester(shared_session, patience), on_progress=moved.append
        )
        get.moved = sum(moved)
        return target.read_bytes()

    return get


def left(folder):
    return sorted(path.name for path in folder.iterdir())


def test_a_file_comes_whole_with_its_checksums_uncompressed(get, server, tmp_path):
    assert get(size=len(BODY), md5=MD5, sha256=SHA256) == BODY
    assert get.sums == {"md5": MD5, "sha256": SHA256}
    assert left(tmp_path) == ["data.bin"]
    assert get.moved == len(BODY)
    assert server.headers[0]["User-Agent"].startswith("hbench/")
    assert server.headers[0]["Accept-Encoding"] == "identity"


def test_a_file_above_its_limit_is_not_kept(get, server, tmp_path):
    for served in (BODY, BODY + BODY):
        server.files["data.bin"] = served
        with pytest.raises(SourceError, match="too large"):
            get(most=len(BODY) - 1)
        assert left(tmp_path) == []
    server.files["data.bin"] = BODY
    assert get(most=len(BODY)) == BODY


@pytest.mark.parametrize("fault", [reset_after, close_after])
def test_a_lost_connection_is_resumed_where_it_was_lost(get, server, fault):
    server.faults["data.bin"] = [fault(300_000), fault(700_000)]
    assert get(md5=MD5) == BODY
    assert len(server.asked) == 3
    starts = [int(asked.removeprefix("bytes=").rstrip("-")) for _, asked in server.asked[1:]]
    assert 0 < starts[0] <= 300_000
    assert starts[0] < starts[1] <= 700_000
    assert get.moved == len(BODY)


def test_a_stalled_connection_is_given_up_and_resumed(get, server):
    server.faults["data.bin"] = [stall_after(500_000)]
    assert get(md5=MD5, patience=replace(QUICK, silence=0.3)) == BODY
    assert server.asked[1] == ("data.bin", "bytes=500000-")


@settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(cuts=st.lists(st.integers(0, len(BODY) - 1), max_size=4))
def test_any_sequence_of_cuts_gives_the_same_bytes(server, shared_session, tmp_path_factory, cuts):
    target = tmp_path_factory.mktemp("cuts") / "data.bin"
    server.faults["data.bin"] = [close_after(cut) for cut in cuts]
    server.sent["data.bin"] = 0
    fetch(
        RemoteFile("data.bin", (server.url("data.bin"),), md5=MD5),
        target,
        Requester(shared_session),
    )
    assert target.read_bytes() == BODY
    assert server.sent["data.bin"] == len(BODY)


def test_a_later_run_resumes_from_what_is_there(get, server, tmp_path):
    server.faults["data.bin"] = [close_after(400_000)] + [status(404)] * 9
    with pytest.raises(SourceError, match="404"):
        get(md5=MD5)
    assert left(tmp_path) == [".data.bin.part", ".data.bin.part.json"]
    server.faults["data.bin"] = []
    get(md5=MD5)
    assert server.asked[-1] == ("data.bin", "bytes=400000-")
    assert server.sent["data.bin"] == len(BODY)
    assert left(tmp_path) == ["data.bin"]


def test_a_file_that_changed_in_between_is_fetched_from_its_beginning(get, server):
    server.faults["data.bin"] = [close_after(400_000)] + [status(404)] * 9
    with pytest.raises(SourceError):
        get()
    server.faults["data.bin"] = []
    server.files["data.bin"] = BODY[::-1]
    assert get() == BODY[::-1]


@pytest.mark.parametrize(("server_has", "known"), [("ranges", {}), ("etags", {"md5": MD5})])
def test_without_ranges_or_anything_that_tells_a_change_all_is_sent_again(
    get, server, server_has, known
):
    server.etags, server.ranges = server_has == "etags", server_has == "ranges"
    server.faults["data.bin"] = [close_after(400_000)]
    assert get(**known) == BODY
    assert server.sent["data.bin"] == 400_000 + len(BODY)
    assert get.moved == len(BODY)


@pytest.mark.parametrize("part", [b"x" * 1000, BODY + b"more"])
def test_bytes_of_another_file_are_found_out_and_all_is_fetched_again(get, server, tmp_path, part):
    (tmp_path / ".data.bin.part").write_bytes(part)
    assert get(md5=MD5) == BODY
    assert [start for _, start in server.asked] == [f"bytes={len(part)}-", None]


def test_a_part_that_is_already_whole_is_only_renamed(get, server, tmp_path):
    (tmp_path / ".data.bin.part").write_bytes(BODY)
    get(size=len(BODY), md5=MD5)
    assert server.asked == []
    (tmp_path / "data.bin").rename(tmp_path / ".data.bin.part")
    get(md5=MD5)  # without a size the server is asked for more, and has none
    assert server.asked == [("data.bin", f"bytes={len(BODY)}-")]


def test_a_busy_server_is_asked_again_after_the_time_it_says_which_is_logged(get, server, caplog):
    server.faults["data.bin"] = [status(429, Retry_After="2"), status(503, Retry_After="0")]
    get(md5=MD5)
    assert len(server.asked) == 3
    assert "asking again in 2 s" in caplog.text


def endless(handler, body):
    handler.send_response(200)
    handler.end_headers()
    for _ in range(10_000):
        handler.wfile.write(bytes(1 << 14))


def test_a_body_that_is_longer_than_the_file_is_stopped(get, server, tmp_path):
    server.faults["data.bin"] = [endless]
    with pytest.raises(SourceError, match="sends more than the file"):
        get(size=len(BODY))
    assert all((tmp_path / name).stat().st_size <= len(BODY) for name in left(tmp_path))


def test_a_body_without_end_leaves_bytes_free_on_the_disk(server, shared_session, small_disk):
    server.faults["data.bin"] = [endless]
    with pytest.raises(SourceError) as refusal:
        fetch(
            RemoteFile("x", (server.url("data.bin"),)),
            small_disk / "x",
            Requester(shared_session, QUICK),
        )
    assert "nearly fills the disk" in refusal.value.found


@pytest.mark.parametrize("head", ["Content-Length: 1000000", "Transfer-Encoding: chunked"])
def test_a_body_that_drips_has_one_time_for_all(get, server, head):
    def dripping(handler, body):
        drop = b"x" if "Length" in head else b"1\r\nx\r\n"
        handler.wfile.write(f"HTTP/1.1 200 OK\r\n{head}\r\n\r\n".encode())
        with suppress(OSError):
            while not handler.told.closing.wait(0.01):  # until nobody listens
                handler.wfile.write(drop)
        handler.close_connection = True

    server.faults["data.bin"] = [dripping] * 9
    with pytest.raises(SourceError) as refusal:
        get(md5=MD5, patience=replace(QUICK, total=0.2))
    assert "is too slow: more than 0 s" in refusal.value.found
    assert len(server.asked) == 1


def test_the_page_of_a_redirect_is_not_read(get, server):
    def redirecting(handler, body):
        handler.wfile.write(b"HTTP/1.1 302 Found\r\nLocation: /data.bin\r\n\r\n")
        with suppress(OSError):
            while not handler.told.closing.is_set():  # until nobody listens
                handler.wfile.write(bytes(1 << 16))
        handler.close_connection = True

    server.faults["data.bin"] = [redirecting]
    assert get(md5=MD5) == BODY


@pytest.mark.parametrize(
    ("faults", "patience", "requests", "said"),
    [
        ([reset_after(0)] * 10, {"drops": 3}, 3, "could not be read"),  # no byte
        (
            [status(302, Location="/data.bin")] * 100,
            {"drops": 1},
            31,
            "could not be read",
        ),  # redirects in a circle
        (
            [status(429, Retry_After="100000")],
            {},
            1,
            "Retry-After 100000",
        ),  # more than a minute is not waited for
        *(
            ([status(302, Location=place)] * 9, {"drops": 1}, 1, "could not be fetched")
            for place in NOWHERE
        ),
    ],
)
def test_a_mirror_that_sends_nothing_is_given_up(get, server, faults, patience, requests, said):
    server.faults["data.bin"] = faults
    with pytest.raises(SourceError, match=said):
        get(md5=MD5, patience=replace(QUICK, **patience))
    assert len(server.asked) == requests


def test_no_second_checksum_is_made_where_a_sha256_is_published(get):
    assert get(sha256=SHA256) == BODY
    assert get.sums == {"sha256": SHA256}


def test_connections_that_bring_a_byte_each_have_one_time_for_all(get, server):
    server.faults["data.bin"] = [close_after(number) for number in range(1, 1000)]
    with pytest.raises(SourceError, match=r"could not be read|is too slow"):
        get(md5=MD5, patience=replace(QUICK, total=0.3))


def test_a_server_without_ranges_that_always_fails_is_given_up(get, server):
    server.ranges = False
    server.faults["data.bin"] = [close_after(n) for n in (500, 300, 400, 100, 450, 200)]
    with pytest.raises(SourceError, match="could not be read"):
        get(md5=MD5, patience=replace(QUICK, drops=3))


@pytest.mark.parametrize(
    ("faults", "start"),
    [
        ([status(403)], None),
        ([instead(BODY[:-1] + b"?")], None),
        ([close_after(600_000), *[status(404)] * 9], "bytes=600000-"),
        ([reset_after(0)] * 9, None),
    ],
    ids=["refusal", "wrong checksum", "death in the middle", "no connection"],
)
def test_the_next_mirror_continues_where_one_fails(get, server, faults, start):
    server.files["mirror/data.bin"] = BODY
    server.faults["data.bin"] = faults
    addresses = [server.url("data.bin"), server.url("mirror/data.bin")]
    assert get(urls=addresses, sha256=SHA256, patience=replace(QUICK, drops=2)) == BODY
    assert server.asked[-1] == ("mirror/data.bin", start)


@pytest.mark.parametrize(
    "fault",
    [
        instead(PAGE, Content_Type="text/html; charset=utf-8"),
        instead(b"\n  " + PAGE),
        instead(PAGE.lower()),
    ],
)
def test_a_web_page_is_recognised_and_never_kept(get, server, tmp_path, fault):
    server.faults["data.bin"] = [fault]
    with pytest.raises(SourceError, match="web page instead of the file: a page, perhaps"):
        get()
    assert not (tmp_path / "data.bin").exists()
    assert (tmp_path / ".data.bin.part").exists() is False or not (
        tmp_path / ".data.bin.part"
    ).read_bytes()


def test_a_wrong_checksum_or_size_leaves_nothing(get, server, tmp_path):
    server.files["data.bin"] = BODY[:-1] + b"?"
    with pytest.raises(IntegrityError, match=f"(?s)wrong sha256: {'[0-9a-f]' * 64}"):
        get(sha256=SHA256)
    assert left(tmp_path) == []
    with pytest.raises(SourceError, match="another size: 1,000,000 bytes"):
        get(size=999)
    assert left(tmp_path) == []


def test_a_part_other_than_asked_for_is_refused(get, server, tmp_path):
    (tmp_path / ".data.bin.part").write_bytes(BODY[:1000])
    server.faults["data.bin"] = [status(206, BODY, Content_Range="bytes 0-999999/1000000")]
    with pytest.raises(SourceError, match="another part than requested"):
        get(md5=MD5)
    assert (tmp_path / ".data.bin.part").read_bytes() == BODY[:1000]


def test_stopping_keeps_what_came(server, tmp_path, shared_session):
    stop = threading.Event()
    server.pause, server.chunk = 0.01, 1 << 12
    source = RemoteFile("data.bin", (server.url("data.bin"),), md5=MD5)
    with pytest.raises(DownloadInterrupted):
        fetch(
            source,
            tmp_path / "data.bin",
            Requester(shared_session, QUICK, stop),
            on_progress=lambda _: stop.set(),
        )
    here = (tmp_path / ".data.bin.part").read_bytes()
    assert 0 < len(here) < len(BODY)
    assert BODY.startswith(here)


def test_a_broken_note_is_not_used_as_a_validator(get, server, tmp_path):
    (tmp_path / ".data.bin.part").write_bytes(BODY[:1000])
    (tmp_path / ".data.bin.part.json").write_text("{")
    get(md5=MD5)
    assert "If-Range" not in server.headers[0]
    (tmp_path / "data.bin").unlink()
    (tmp_path / ".data.bin.part").write_bytes(BODY[:1000])
    (tmp_path / ".data.bin.part.json").write_text(
        json.dumps({"url": server.url("data.bin"), "validator": f'"{MD5}"'})
    )
    get(md5=MD5)
    assert server.headers[1]["If-Range"] == f'"{MD5}"'
