"""Answers of a hostile HTTP server, drawn at random: a download ends with the right bytes, or with
a message and nothing kept.
"""

import hashlib
import random
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hbench.core.errors import HBenchError
from hbench.datasets.download import Patience, Requester, fetch, session
from hbench.datasets.spec import RemoteFile
from tests.file_server import FileServer

pytestmark = pytest.mark.fast

BODY = random.Random(0).randbytes(40_000)
SHA256 = hashlib.sha256(BODY).hexdigest()
BODIES = st.sampled_from(
    [
        b"",
        b"\0" * 10,
        BODY,
        BODY[:999],
        BODY + b"more",
        BODY[::-1],
        b"<html>sign in",
        b"\x1f\x8b\x08" + BODY,
    ]
)
VALUES = st.sampled_from(
    [
        "0",
        "-1",
        "40000",
        "39999",
        "99999999999999999999",
        "1e3",
        "",
        " ",
        "a\x1b[31m",
        "bytes 0-39999/40000",
        "bytes 5-4/40000",
        "bytes */40000",
        "bytes 999-39999/*",
        "gzip",
        "chunked",
        "identity",
        "close",
        '"other"',
        'W/"x"',
        "http://127.0.0.1:1/",
        "/data.bin",
        "//",
        "ftp://x/y",
        "file:///etc/passwd",
        "text/html",
        "x" * 20_000,
    ]
)
NAMES = st.sampled_from(
    [
        "Content-Length",
        "Content-Range",
        "Content-Encoding",
        "Content-Type",
        "Transfer-Encoding",
        "ETag",
        "Retry-After",
        "Location",
        "Connection",
        "Last-Modified",
        "Accept-Ranges",
    ]
)
STATUS = st.sampled_from(
    [
        100,
        200,
        200,
        200,
        204,
        206,
        206,
        301,
        302,
        304,
        307,
        400,
        401,
        403,
        404,
        416,
        429,
        500,
        503,
        520,
        599,
        999,
    ]
)


@st.composite
def answers(draw):
    """The bytes of one answer: a status line, some headers, a body; sometimes no HTTP at all, or
    cut off anywhere.
    """
    if draw(st.integers(0, 9)) == 0:
        return draw(
            st.sampled_from([b"", b"\r\n\r\n", b"SSH-2.0-x\r\n", b"HTTP/9.9 200\r\n\r\n", BODY])
        )
    headers = draw(st.lists(st.tuples(NAMES, VALUES), max_size=4))
    head = f"HTTP/1.1 {draw(STATUS)} {draw(st.sampled_from(['OK', '', 'a' * 200]))}\r\n"
    head += "".join(f"{name}: {value}\r\n" for name, value in headers)
    whole = head.encode("latin-1") + b"\r\n" + draw(BODIES)
    return whole[: draw(st.integers(0, len(whole)))] if draw(st.booleans()) else whole


def raw(content):
    def fault(handler, _body):
        handler.wfile.write(content)
        handler.close_connection = True

    return fault


def test_any_answers_end_in_the_right_bytes_or_in_a_message(tmp_path_factory):
    patience = Patience(connect=2, silence=1, pause=0.001, busy=0.001)
    ends = set()

    @settings(
        derandomize=True,
        max_examples=120,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        database=None,
    )
    @given(st.lists(answers(), min_size=1, max_size=5), st.booleans())
    def ends_well(told, is_known):
        folder: Path = tmp_path_factory.mktemp("get")
        with FileServer(files={"data.bin": BODY}) as server, session() as own:
            server.faults["data.bin"] = [raw(content) for content in told]
            known = {"sha256": SHA256, "size": len(BODY)} if is_known else {}
            source = RemoteFile("data.bin", (server.url("data.bin"),), **known)
            failure = None
            try:
                fetch(source, folder / "data.bin", Requester(own, patience))
            except HBenchError as error:
                failure = str(error)
        file = folder / "data.bin"
        assert failure or not is_known or file.read_bytes() == BODY
        assert failure != ""
        assert file.exists() == (failure is None)
        ends.add((failure is None, is_known))
        assert {path.name for path in folder.iterdir()} <= {
            "data.bin",
            ".data.bin.part",
            ".data.bin.part.json",
        }

    ends_well()
    assert len(ends) == 4
