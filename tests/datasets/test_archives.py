"""Unpacking: hostile and damaged archives are refused, what was interrupted goes on, what is there stays."""

import gzip
import io
import os
import struct
import tarfile
import threading
import zipfile

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hbench.core.errors import IntegrityError
from hbench.datasets.download import DownloadInterrupted
from hbench.datasets.download.archives import not_unpacked, safe_path, unpack

FILES = {"set/a/1.jpg": b"one" * 1000, "set/a/2.jpg": b"", "set/b/ñ 3.jpg": os.urandom(5000), "readme.txt": b"hello"}


def make_zip(path, files):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("set/", b"")
        for name, body in files.items():
            archive.writestr(name, body)
    return path


def make_tar(path, files, mode="w:gz"):
    with tarfile.open(path, mode) as archive:
        folder = tarfile.TarInfo("./set")
        folder.type = tarfile.DIRTYPE
        archive.addfile(folder)
        for name, body in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(body)
            archive.addfile(info, io.BytesIO(body))
    return path


def special_tar(path, **attributes):
    with tarfile.open(path, "w") as archive:
        info = tarfile.TarInfo(attributes.pop("name", "set/x"))
        for name, value in attributes.items():
            setattr(info, name, value)
        archive.addfile(info)
    return path


MAKERS = {
    "zip": make_zip,
    "tgz": make_tar,
    "tar": lambda path, files: make_tar(path, files, "w"),
    "tar.bz2": lambda path, files: make_tar(path, files, "w:bz2"),
    "tar.xz": lambda path, files: make_tar(path, files, "w:xz"),
}


@pytest.fixture(params=MAKERS)
def archive(request, tmp_path):
    return MAKERS[request.param](tmp_path / f"data.{request.param}", FILES)


def found(folder):
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_every_kind_of_archive_is_unpacked(archive, tmp_path):
    seen = []
    assert unpack(archive, tmp_path / "out", on_progress=seen.append) == 4
    assert found(tmp_path / "out") == FILES
    assert sum(seen) == 4


def test_an_archive_is_known_by_its_content_not_its_name(archive, tmp_path):
    assert unpack(archive.rename(tmp_path / "download"), tmp_path / "out") == 4


def test_unpacking_goes_on_where_it_was_stopped(archive, tmp_path):
    stop = threading.Event()
    with pytest.raises(DownloadInterrupted):
        unpack(archive, tmp_path / "out", on_progress=lambda _: stop.set(), stop=stop)
    first = tmp_path / "out" / "set" / "a" / "1.jpg"
    assert found(tmp_path / "out") == {"set/a/1.jpg": FILES["set/a/1.jpg"]}
    written = first.stat().st_mtime_ns
    (tmp_path / "out" / f".{archive.name}.unpacking").write_bytes(b"left by a killed process")
    unpack(archive, tmp_path / "out")
    assert found(tmp_path / "out") == FILES
    assert first.stat().st_mtime_ns == written


def test_what_is_missing_or_different_is_found(archive, tmp_path):
    unpack(archive, tmp_path)
    assert not_unpacked(archive, tmp_path) == []
    (tmp_path / "readme.txt").write_bytes(b"HELLO")
    (tmp_path / "set" / "a" / "1.jpg").unlink()
    assert sorted(not_unpacked(archive, tmp_path)) == ["readme.txt", "set/a/1.jpg"]


HOSTILE = [
    "/etc/cron.d/x",
    "../x",
    "set/../../x",
    "set\\..\\..\\x",
    "C:\\x",
    "c:x",
    "set/new\nline",
    "set/\x1b[2J",
    "a" * 250,
    "é" * 130,
    "//server/share",
    "set/..",
    "..",
]


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("kind", ["zip", "tgz"])
def test_a_hostile_name_is_refused(tmp_path, kind, name):
    archive = MAKERS[kind](tmp_path / f"evil.{kind}", {"set/ok.jpg": b"fine", name: b"evil"})
    inside = tmp_path / "deep" / "out"
    with pytest.raises(IntegrityError, match=r"evil\.\w+ is not safe to unpack"):
        unpack(archive, inside)
    assert set(found(tmp_path)) <= {archive.name, "deep/out/set/ok.jpg"}
    if kind == "zip":
        assert found(inside) == {}


@settings(max_examples=50, deadline=None)
@given(st.text())
def test_a_name_is_safe_or_refused(tmp_path_factory, name):
    folder = tmp_path_factory.getbasetemp()
    try:
        path = safe_path(name, folder / "x.zip")
    except IntegrityError:
        return
    assert (folder / path).resolve().is_relative_to(folder.resolve())
    assert (folder / path) != folder


@pytest.mark.parametrize(
    "attributes",
    [
        {"type": tarfile.SYMTYPE, "linkname": "/etc/passwd"},
        {"type": tarfile.SYMTYPE, "linkname": "../../outside"},
        {"type": tarfile.LNKTYPE, "linkname": "/etc/passwd"},
        {"type": tarfile.SYMTYPE, "linkname": "inside"},
        {"type": tarfile.CHRTYPE},
        {"type": tarfile.FIFOTYPE},
    ],
)
def test_links_and_devices_in_a_tar_are_refused(tmp_path, attributes):
    archive = special_tar(tmp_path / "evil.tar", **attributes)
    with pytest.raises(IntegrityError, match="not safe to unpack"):
        unpack(archive, tmp_path / "out")
    assert list((tmp_path / "out").iterdir()) == []


def test_links_in_a_zip_are_refused(tmp_path):
    with zipfile.ZipFile(tmp_path / "evil.zip", "w") as archive:
        info = zipfile.ZipInfo("link")
        info.external_attr = 0o120777 << 16
        archive.writestr(info, "/etc/passwd")
    with pytest.raises(IntegrityError, match="the link link"):
        unpack(tmp_path / "evil.zip", tmp_path / "out")


def test_a_link_that_lies_in_the_way_is_not_followed(archive, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "set").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(IntegrityError, match="leads out of"):
        unpack(archive, tmp_path / "out")
    assert found(tmp_path / "elsewhere") == {}


def test_bombs_are_refused(tmp_path):
    zeros = {f"{i}.bin": bytes(10_000_000) for i in range(8)}
    for kind in ("zip", "tgz"):
        archive = MAKERS[kind](tmp_path / f"bomb.{kind}", zeros)
        with pytest.raises(IntegrityError, match=r"more than 67,108,864 bytes in \d\d,\d\d\d"):
            unpack(archive, tmp_path / kind)
    assert found(tmp_path / "zip") == {}
    assert len(found(tmp_path / "tgz")) <= 6


def test_a_zip_that_lies_about_a_size_is_refused(tmp_path):
    archive = make_zip(tmp_path / "lie.zip", {"a.bin": bytes(100_000)})
    blob = bytearray(archive.read_bytes())
    place = blob.rindex(b"PK\x01\x02")
    blob[place + 24 : place + 28] = struct.pack("<I", 10)
    archive.write_bytes(blob)
    with pytest.raises(IntegrityError, match="damaged"):
        unpack(archive, tmp_path / "out")
    assert "a.bin" not in found(tmp_path / "out")


def test_an_encrypted_zip_says_what_to_do(tmp_path):
    archive = make_zip(tmp_path / "locked.zip", {"a.bin": b"x"})
    blob = bytearray(archive.read_bytes())
    for signature, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        blob[blob.rindex(signature) + offset] |= 1
    archive.write_bytes(blob)
    with pytest.raises(IntegrityError, match=r"(?s)is encrypted.*--adopt"):
        unpack(archive, tmp_path / "out")


@pytest.mark.parametrize("share", [0.0, 0.3, 0.6])
def test_a_truncated_archive_is_refused(archive, tmp_path, share):
    whole = archive.read_bytes()
    archive.write_bytes(whole[: int(share * len(whole))])
    with pytest.raises(IntegrityError, match="damaged or no archive"):
        unpack(archive, tmp_path / "out")
    for name, body in found(tmp_path / "out").items():
        assert name.endswith(".unpacking") or FILES[name] == body


def test_a_file_that_is_no_archive_is_refused(tmp_path):
    (tmp_path / "page.zip").write_bytes(b"<html>not found</html>")
    with pytest.raises(IntegrityError, match=r"page\.zip is damaged or no archive"):
        unpack(tmp_path / "page.zip", tmp_path / "out")


def test_damaged_bytes_are_found_by_their_checksum(tmp_path):
    body = os.urandom(50_000)
    archive = make_zip(tmp_path / "data.zip", {"a.bin": body})
    blob = bytearray(archive.read_bytes())
    blob[blob.index(body[:50])] ^= 1
    archive.write_bytes(blob)
    with pytest.raises(IntegrityError, match="damaged"):
        unpack(archive, tmp_path / "out")
    assert "a.bin" not in found(tmp_path / "out")


@pytest.mark.parametrize(
    "name", [".hbench/NAME.json", "set/.HBench/x.json", ".hbench-unpacked", "adopted.txt", "set/Adopted.txt"]
)
@pytest.mark.parametrize("kind", ["zip", "tgz"])
def test_an_archive_cannot_say_what_was_checked_or_adopted(tmp_path, kind, name):
    archive = MAKERS[kind](tmp_path / "a", {"set/fine.txt": b"x", name: b"{}"})
    with pytest.raises(IntegrityError, match="only hbench's own records have"):
        unpack(archive, tmp_path / "raw")
    assert not (tmp_path / "raw" / name).exists()


@pytest.mark.parametrize("at", [-1, -5, -8])
def test_a_gzip_whose_checksum_or_length_is_wrong_is_refused(tmp_path, at):
    archive = make_tar(tmp_path / "a.tgz", FILES)
    data = bytearray(archive.read_bytes())
    data[at] ^= 0x10  # the trailer: four bytes of checksum, four of length
    archive.write_bytes(data)
    with pytest.raises(IntegrityError, match="is damaged"):
        unpack(archive, tmp_path / "out")


def test_what_follows_the_last_file_without_end_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("hbench.datasets.download.archives.ALWAYS_ALLOWED", 1 << 22)
    monkeypatch.setattr("hbench.datasets.download.archives.MOST_EXPANSION", 10**6)
    archive = make_tar(tmp_path / "a.tar", {"x": b"y"}, "w")
    packed = gzip.compress(archive.read_bytes() + bytes(3 << 22))
    (tmp_path / "a.tgz").write_bytes(packed)
    with pytest.raises(IntegrityError, match="after its last file"):
        unpack(tmp_path / "a.tgz", tmp_path / "out")


@pytest.mark.parametrize(
    ("kind", "size"),
    [(tarfile.XHDTYPE, 2_500_000_000), (tarfile.GNUTYPE_LONGNAME, 1 << 31), (tarfile.GNUTYPE_LONGLINK, 2 << 20)],
)
def test_a_header_of_gigabytes_is_refused_before_it_is_read(tmp_path, kind, size):
    info = tarfile.TarInfo("x")
    info.type, info.size = kind, size
    path = tmp_path / "a.tar"
    path.write_bytes(info.tobuf(tarfile.GNU_FORMAT) + bytes(10_240))
    with pytest.raises(IntegrityError, match="a header of"):
        unpack(path, tmp_path / "out")


def test_a_header_of_negative_size_is_refused(tmp_path):
    block = bytearray(tarfile.TarInfo("x").tobuf())
    block[124:136] = b"\xff" * 12
    block[148:156] = b"%06o\0 " % (sum(block[:148]) + 8 * 32 + sum(block[156:512]))
    path = tmp_path / "a.tar"
    path.write_bytes(bytes(block) + bytes(10_240))
    with pytest.raises(IntegrityError, match="damaged"):
        unpack(path, tmp_path / "out")


def test_a_flood_of_empty_files_is_refused(tmp_path):
    path = tmp_path / "a.tgz"
    with tarfile.open(path, "w:gz") as archive:
        for number in range(10_001):
            archive.addfile(tarfile.TarInfo(f"set/{number}"))
    with pytest.raises(IntegrityError, match="more than 10,000 files"):
        unpack(path, tmp_path / "out")


def test_names_that_are_not_utf8_are_refused(tmp_path):
    path = make_zip(tmp_path / "a.zip", {"caf\u00e9.txt": b"x"})
    path.write_bytes(path.read_bytes().replace("caf\u00e9".encode(), b"caf\xff\xfe"))
    with pytest.raises(IntegrityError, match="damaged"):
        unpack(path, tmp_path / "out")
    tar = tmp_path / "a.tar"
    tar.write_bytes(make_tar(tmp_path / "b.tar", {"cafxx.txt": b"x"}, "w").read_bytes())
    block = tar.read_bytes().replace(b"cafxx", b"caf\xff\xfe")
    start = block.index(b"caf\xff")
    header = bytearray(block[start : start + 512])
    header[148:156] = b"%06o\0 " % (sum(header[:148]) + 8 * 32 + sum(header[156:512]))
    tar.write_bytes(block[:start] + bytes(header) + block[start + 512 :])
    with pytest.raises(IntegrityError, match="not safe to unpack"):
        unpack(tar, tmp_path / "out")


@pytest.mark.parametrize(
    "files",
    [
        {"a": b"1", "a/b": b"2"},
        {"a/b": b"2", "a": b"1"},
        {"/".join([200 * "d"] * 40): b"1"},
        {"a/b": b"1", "A/../c": b""},
    ],
)
@pytest.mark.parametrize("kind", ["zip", "tar"])
def test_paths_that_cannot_be_are_the_fault_of_the_archive(tmp_path, files, kind):
    with pytest.raises(IntegrityError):
        unpack(MAKERS[kind](tmp_path / f"a.{kind}", files), tmp_path / "out")


def test_bzip2_that_is_damaged_behind_its_first_block_is_refused(tmp_path):
    archive = make_tar(tmp_path / "a.tar.bz2", {"a": os.urandom(3_000_000)}, "w:bz2")
    content = bytearray(archive.read_bytes())
    content[2_000_000:2_000_100] = bytes(100)
    archive.write_bytes(content)
    with pytest.raises(IntegrityError, match="damaged"):
        unpack(archive, tmp_path / "out")
