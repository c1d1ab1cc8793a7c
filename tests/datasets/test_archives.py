"""Unpacking: every kind of archive comes out whole; hostile and damaged ones are refused, and leave
nothing outside.
"""

import gzip
import os
import struct
import tarfile
import threading
import zipfile
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hbench.core.errors import IntegrityError
from hbench.datasets.download import DownloadInterrupted
from hbench.datasets.download.archives import not_unpacked, safe_path, unpack
from tests.raw_folders import tar_of

FILES = {
    "set/a/1.jpg": b"one" * 1000,
    "set/a/2.jpg": b"",
    "set/b/ñ 3.jpg": os.urandom(5000),
    "readme.txt": b"hello",
}
LEAVING = [
    "/etc/cron.d/x", "../x", "set/../../x", "set\\..\\..\\x", "C:\\x", "c:x", "set/new\nline",
    "set/\x1b[2J", "a" * 250,
    "é" * 130, "//server/share", "set/..", "..",
]  # fmt: skip
RECORDS = [
    ".hbench/NAME.json",
    "set/.HBench/x.json",
    ".hbench-unpacked",
    "adopted.txt",
    "set/Adopted.txt",
]
LINKS = [
    (tarfile.SYMTYPE, "/etc/passwd"),
    (tarfile.SYMTYPE, "inside"),
    (tarfile.LNKTYPE, "/etc/passwd"),
]


def make_zip(path, files):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("set/", b"")
        for name, body in files.items():
            archive.writestr(name, body)
    return path


def make_tar(path, files, mode="w:gz"):
    path.write_bytes(tar_of(files, mode))
    return path


MODES = {"tgz": "w:gz", "tar": "w", "tar.bz2": "w:bz2", "tar.xz": "w:xz"}
MAKERS = {"zip": make_zip} | {kind: partial(make_tar, mode=mode) for kind, mode in MODES.items()}


@pytest.fixture(params=MAKERS)
def archive(request, tmp_path):
    return MAKERS[request.param](tmp_path / f"data.{request.param}", FILES)


def content_of(folder):
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def reason_against(archive, folder):
    """Why an archive is refused, after which whatever was unpacked is whole, and no temporary file
    is left.
    """
    with pytest.raises(IntegrityError, match=f"{archive.name} cannot be unpacked") as refusal:
        unpack(archive, folder)
    assert all(FILES.get(name, body) == body for name, body in content_of(folder).items())
    assert not list(folder.glob(".*.unpacking"))
    return refusal.value.found


def test_every_kind_is_unpacked_by_its_content_not_its_name_and_what_is_missing_or_different_is_listed(
    archive, tmp_path
):
    progress = []
    assert (
        unpack(archive.rename(tmp_path / "download"), tmp_path / "out", on_progress=progress.append)
        == 4
    )
    assert content_of(tmp_path / "out") == FILES
    assert sum(progress) == 4
    assert not_unpacked(tmp_path / "download", tmp_path / "out") == []
    (tmp_path / "out" / "readme.txt").write_bytes(b"HELLO")
    (tmp_path / "out" / "set" / "a" / "1.jpg").unlink()
    assert sorted(not_unpacked(tmp_path / "download", tmp_path / "out")) == [
        "readme.txt",
        "set/a/1.jpg",
    ]


def test_unpacking_that_was_stopped_or_killed_is_done_again(archive, tmp_path):
    stop = threading.Event()
    with pytest.raises(DownloadInterrupted):
        unpack(archive, tmp_path / "out", on_progress=lambda _: stop.set(), stop=stop)
    assert content_of(tmp_path / "out") == {"set/a/1.jpg": FILES["set/a/1.jpg"]}
    (tmp_path / "out" / "readme.txt").write_bytes(b"of another archive")
    (tmp_path / "out" / f".{archive.name}.unpacking").write_bytes(b"left by a killed process")
    unpack(archive, tmp_path / "out")
    assert content_of(tmp_path / "out") == FILES


@pytest.mark.parametrize("name", [*LEAVING, *RECORDS])
@pytest.mark.parametrize("kind", ["zip", "tgz"])
def test_a_hostile_name_is_refused(tmp_path, kind, name):
    archive = MAKERS[kind](tmp_path / f"evil.{kind}", {"set/ok.jpg": b"fine", name: b"evil"})
    reason = reason_against(archive, tmp_path / "deep" / "out")
    assert ("only hbench's own records have" if name in RECORDS else "is not safe") in reason
    assert set(content_of(tmp_path)) <= {archive.name, "deep/out/set/ok.jpg"}


@settings(max_examples=50, deadline=None)
@given(st.text())
def test_a_name_is_safe_or_refused(tmp_path_factory, name):
    folder = tmp_path_factory.getbasetemp()
    try:
        path = safe_path(name)
    except ValueError:
        return
    assert (folder / path).resolve().is_relative_to(folder.resolve())
    assert (folder / path) != folder


@pytest.mark.parametrize(
    ("kind", "target"), [*LINKS, (tarfile.CHRTYPE, ""), (tarfile.FIFOTYPE, "")]
)
def test_links_and_devices_in_a_tar_are_refused(tmp_path, kind, target):
    with tarfile.open(tmp_path / "evil.tar", "w") as archive:
        info = tarfile.TarInfo("set/x")
        info.type, info.linkname = kind, target
        archive.addfile(info)
    assert (
        reason_against(tmp_path / "evil.tar", tmp_path / "out")
        == "set/x is a link, a device or a sparse file"
    )
    assert list((tmp_path / "out").iterdir()) == []


@pytest.mark.parametrize("place", ["set", "readme.txt"])
def test_a_link_that_lies_in_the_way_is_not_followed(archive, tmp_path, place):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / place).symlink_to(
        tmp_path / "elsewhere" / ("" if place == "set" else place)
    )
    assert "leads out of" in reason_against(archive, tmp_path / "out")
    assert content_of(tmp_path / "elsewhere") == {}


def changed(path, *changes):
    """The archive with bytes replaced: each change is the place of a byte and what it becomes."""
    content = bytearray(path.read_bytes())
    for place, new in changes:
        start = place(content) if callable(place) else place
        content[start : start + len(new)] = new
    path.write_bytes(content)
    return path


def behind_last(signature, offset):
    return lambda content: content.rindex(signature) + offset


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ([(b"PK\x01\x02", 24, struct.pack("<I", 10))], "Bad CRC"),
        ([(b"PK\x01\x02", 24, struct.pack("<I", 1 << 30))], "unpacks to more than the 256 MiB"),
        (
            [(b"PK\x03\x04", 6, b"\x01"), (b"PK\x01\x02", 8, b"\x01")],
            "a.bin is encrypted: unpack it yourself",
        ),
        ([(b"PK\x01\x02", 38, struct.pack("<I", 0o120777 << 16))], "a.bin is a link"),
    ],
    ids=["size too small", "size too large", "encrypted", "link"],
)
def test_a_zip_whose_directory_lies_is_locked_or_links_is_refused(tmp_path, changes, reason):
    archive = make_zip(tmp_path / "lie.zip", {"a.bin": bytes(100_000)})
    changed(archive, *((behind_last(signature, offset), new) for signature, offset, new in changes))
    assert reason in reason_against(archive, tmp_path / "out")
    assert content_of(tmp_path / "out") == {}


def test_a_tar_that_expands_beyond_reason_is_refused(tmp_path):
    packed = gzip.compress(
        make_tar(tmp_path / "a.tar", {"x": b"y"}, "w").read_bytes() + bytes(257 << 20), 1
    )
    (tmp_path / "a.tgz").write_bytes(packed)
    assert "what follows its last file unpacks to more than" in reason_against(
        tmp_path / "a.tgz", tmp_path / "out"
    )
    info = tarfile.TarInfo("bomb")
    info.size = 1 << 30
    (tmp_path / "b.tar").write_bytes(info.tobuf() + bytes(10_240))
    assert "unpacks to more than the 256 MiB" in reason_against(
        tmp_path / "b.tar", tmp_path / "out"
    )
    make_tar(tmp_path / "c.tgz", {f"set/{number}": b"" for number in range(10_001)})
    assert "more than 10,000 files" in reason_against(tmp_path / "c.tgz", tmp_path / "out")


@pytest.mark.parametrize("share", [0.0, 0.3, 0.6])
def test_a_truncated_archive_is_refused(archive, tmp_path, share):
    whole = archive.read_bytes()
    archive.write_bytes(whole[: int(share * len(whole))])
    assert reason_against(archive, tmp_path / "out")
    archive.write_bytes(b"<html>not found</html>")
    assert reason_against(archive, tmp_path / "out")


def test_damaged_bytes_are_found_out_by_their_checksum(tmp_path):
    body = os.urandom(50_000)
    archive = make_zip(tmp_path / "data.zip", {"a.bin": body})
    changed(archive, (lambda content: content.index(body[:50]), bytes([body[0] ^ 1])))
    assert "Bad CRC" in reason_against(archive, tmp_path / "out")
    archive = make_tar(tmp_path / "a.tar.bz2", {"a": os.urandom(3_000_000)}, "w:bz2")
    reason_against(changed(archive, (2_000_000, bytes(100))), tmp_path / "out")
    for place in (-1, -5, -8):  # the trailer of a gzip: four bytes of checksum, four of length
        archive = make_tar(tmp_path / "a.tgz", FILES)
        packed = archive.read_bytes()
        other = bytes([packed[place] ^ 0xFF])
        reason_against(changed(archive, (len(packed) + place, other)), tmp_path / "out")


@pytest.mark.parametrize(
    ("kind", "size"),
    [
        (tarfile.XHDTYPE, 2_500_000_000),
        (tarfile.GNUTYPE_LONGNAME, 1 << 31),
        (tarfile.GNUTYPE_LONGLINK, 2 << 20),
    ],
)
def test_a_header_of_gigabytes_or_of_negative_size_is_refused_before_it_is_read(
    tmp_path, kind, size
):
    info = tarfile.TarInfo("x")
    info.type, info.size = kind, size
    header = info.tobuf(tarfile.GNU_FORMAT)
    negative = checked(header[:124] + b"\xff" * 12 + header[136:])
    for block, stated in ((header, size), (negative, -1)):
        (tmp_path / "a.tar").write_bytes(block + bytes(10_240))
        assert f"a header of {stated:,} bytes" in reason_against(
            tmp_path / "a.tar", tmp_path / "out"
        )


def checked(header):
    """A header of a tar with its checksum made right."""
    return (
        header[:148]
        + b"%06o\0 " % (sum(header[:148]) + 8 * 32 + sum(header[156:512]))
        + header[156:512]
    )


def test_names_that_are_not_utf8_are_refused(tmp_path):
    path = make_zip(tmp_path / "a.zip", {"caf\u00e9.txt": b"x"})
    path.write_bytes(path.read_bytes().replace("caf\u00e9".encode(), b"caf\xff\xfe"))
    reason_against(path, tmp_path / "out")
    path = make_tar(tmp_path / "b.tar", {"cafxx.txt": b"x"}, "w")
    content = path.read_bytes().replace(b"cafxx", b"caf\xff\xfe")
    start = content.index(b"caf\xff")
    path.write_bytes(
        content[:start] + checked(content[start : start + 512]) + content[start + 512 :]
    )
    assert "is not safe" in reason_against(path, tmp_path / "out")


@pytest.mark.parametrize(
    "files",
    [
        {"a": b"1", "a/b": b"2"},
        {"a/b": b"2", "a": b"1"},
        {"/".join([200 * "d"] * 40): b"1"},
        {"A/../c": b""},
    ],
)
@pytest.mark.parametrize("kind", ["zip", "tar"])
def test_paths_that_cannot_be_are_the_fault_of_the_archive(tmp_path, files, kind):
    assert reason_against(MAKERS[kind](tmp_path / f"a.{kind}", files), tmp_path / "out")
