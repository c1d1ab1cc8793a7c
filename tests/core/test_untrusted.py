"""The one door for bytes from outside: what it bounds, and that nobody goes around it."""

import ast
import gzip
import io
import json
import tomllib
import zipfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import yaml
from PIL import Image

from hbench.core import untrusted

pytestmark = pytest.mark.fast

ROOT = Path(__file__).parents[2]
DOORS = {
    "hbench/core/untrusted.py",
    "hbench/datasets/download/archives.py",
}  # the latter unpacks, with its own bounds
BARE = {
    "json": {"load", "loads"},
    "yaml": {"load", "safe_load", "full_load", "unsafe_load", "load_all", "safe_load_all"},
    "tomllib": {"load", "loads"},
    "np": {"load"},
    "numpy": {"load"},
    "zipfile": {"ZipFile"},
    "tarfile": {"open"},
    "gzip": {"open", "decompress"},
    "Image": {"open"},
    "torch": {"load"},
    "ipc": {"open_file", "open_stream"},
    "pq": {"read_table", "read_schema", "ParquetFile", "read_metadata", "read_pandas"},
    "pickle": {"load", "loads"},
}


def bare_calls(source):
    """`module.function` of every forbidden call in a text of Python."""
    calls = [node.func for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)]
    owners = [
        (owner.attr if isinstance(owner, ast.Attribute) else getattr(owner, "id", ""), call.attr)
        for call in calls
        if isinstance(call, ast.Attribute)
        for owner in [call.value]
    ]
    return [f"{module}.{name}" for module, name in owners if name in BARE.get(module, ())]


def test_nobody_goes_around_the_door():
    files = [path for folder in ("hbench", "pipelines") for path in (ROOT / folder).rglob("*.py")]
    found = {
        path.relative_to(ROOT).as_posix(): calls
        for path in files
        if (calls := bare_calls(path.read_text("utf-8")))
    }
    assert {path: calls for path, calls in found.items() if path not in DOORS} == {}
    assert set(found) == DOORS  # the test does see such calls


def test_texts_are_utf8_and_bounded(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes(b"\xef\xbb\xbfabc")
    assert untrusted.read_text(path, most=6) == "abc"
    with pytest.raises(ValueError, match="larger"):
        untrusted.read_text(path, most=5)
    path.write_bytes(b"\xff")
    with pytest.raises(UnicodeDecodeError):
        untrusted.read_text(path)


@pytest.mark.parametrize(
    "text", ["[" * 101 + "]" * 101, "[" * 100_000, '{"a":' * 101 + "1" + "}" * 101]
)
def test_deep_json_is_refused(text):
    with pytest.raises(ValueError, match=r"deep|Expecting"):
        untrusted.parse_json(text)


def test_wide_json_and_brackets_in_texts_are_read():
    wide = [["[" * 300, '\\"[[[']] * 500
    assert untrusted.parse_json(json.dumps(wide)) == wide
    assert untrusted.parse_json("[" * 100 + "]" * 100)


def test_half_a_surrogate_pair_is_refused_and_a_whole_one_read():
    assert untrusted.parse_json('"\\ud83d\\ude00"') == "😀"
    with pytest.raises(UnicodeEncodeError):
        untrusted.parse_json('["\\ud800"]')


@pytest.mark.parametrize(
    "text", ["a = " + "[" * 5_000, "a = 2024-13-45", "a = " + "9" * 5_000, "a = {b = " * 3_000]
)
def test_broken_toml_has_one_error(text):
    import tomllib

    with pytest.raises(tomllib.TOMLDecodeError):
        untrusted.parse_toml(text)


@pytest.mark.parametrize(
    "text",
    [
        "[" * 50_000,
        "{a: " * 50_000,
        "- " * 50_000,
        "? " * 5_000,
        "a: 2024-13-45",
        "a: &x [1]\nb: *x",
        "a: !!int x",
        "{[1]: 2}",
        "!!python/object/apply:os.system [ls]",
        "%YAML 9.9\n--- a",
        "\x00",
    ],
)
def test_broken_yaml_has_one_error(text):
    for loader in (yaml.SafeLoader, getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
        with pytest.raises(yaml.YAMLError):
            untrusted.parse_yaml(text, loader)


def test_what_unpacks_to_too_much_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(untrusted, "ALWAYS_UNPACKED", 1 << 20)
    packed = tmp_path / "a.csv.gz"
    packed.write_bytes(gzip.compress(bytes(2 << 20)))
    with pytest.raises(ValueError, match="unpacks to more than"):
        untrusted.read_gzip(packed)
    packed.write_bytes(gzip.compress(b"abc"))
    assert untrusted.read_gzip(packed) == b"abc"
    packed.write_bytes(gzip.compress(b"abc")[:-2])
    with pytest.raises(ValueError, match=r"ended before|truncated"):
        untrusted.read_gzip(packed)
    whole = bytearray(gzip.compress(b"abc"))
    whole[-8] ^= 1  # of the checksum
    packed.write_bytes(whole)
    with pytest.raises(ValueError, match="CRC"):
        untrusted.read_gzip(packed)

    arrays = tmp_path / "a.npz"
    np.savez_compressed(arrays, vectors=np.zeros((1000, 512), np.float32))
    with pytest.raises(ValueError, match="unpacks to more than"):
        untrusted.read_arrays(arrays)
    np.savez_compressed(arrays, vectors=np.ones((10, 5), np.float32))
    assert untrusted.read_arrays(arrays)["vectors"].shape == (10, 5)


def test_zips_with_locks_odd_methods_or_too_many_members_are_refused(tmp_path):
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_LZMA) as archive:
        archive.writestr("a", "a")
    with pytest.raises(ValueError, match="deflate"), untrusted.open_zip(path):
        pass
    with zipfile.ZipFile(path, "w") as archive:
        for number in range(untrusted.MAX_MEMBERS + 1):
            archive.writestr(str(number), "")
    with pytest.raises(ValueError, match="10,001 members"), untrusted.open_zip(path):
        pass
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a", "a")
    content = bytearray(path.read_bytes())
    content[content.index(b"PK\x01\x02") + 8] |= 1
    path.write_bytes(content)
    with pytest.raises(ValueError, match="encrypted"), untrusted.open_zip(path):
        pass


def test_headers_of_arrays_that_make_no_sense_are_refused(tmp_path):
    path = tmp_path / "a.npy"
    for header in (
        "(" * 4_000,
        "{'descr': '<f4', 'fortran_order': False, 'shape': (-1, 4)}",
        "{'descr': 1}",
        "[" * 900,
    ):
        text = header.encode() + b"\n"
        path.write_bytes(b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text)
        with pytest.raises(ValueError, match=r"header|[Hh]eader|shape|descr"):
            untrusted.read_array(path)
    np.save(path, np.arange(3))
    assert untrusted.read_array(path).tolist() == [0, 1, 2]
    np.save(path, np.array([{}], dtype=object), allow_pickle=True)
    with pytest.raises(ValueError, match=r"[Oo]bject"):
        untrusted.read_array(path)


def test_arrow_offsets_outside_of_their_buffer_are_refused(tmp_path):
    for name, writer in (("a.arrow", pa.ipc.new_file), ("a.arrows", pa.ipc.new_stream)):
        path = tmp_path / name
        with writer(str(path), pa.schema({"id": pa.string()})) as out:
            out.write_batch(pa.record_batch({"id": pa.array(["ab", "cd"])}))
        (good,) = untrusted.arrow_batches(path)
        assert good.column(0).to_pylist() == ["ab", "cd"]
        content = path.read_bytes()
        wrong = content.replace(
            np.array([0, 2, 4], "<i4").tobytes(), np.array([0, 2, 10_000_000], "<i4").tobytes()
        )
        assert wrong != content
        path.write_bytes(wrong)
        with pytest.raises(pa.ArrowInvalid):
            list(untrusted.arrow_batches(path))


def test_pictures_are_of_listed_formats(tmp_path):
    made = {}
    for kind in ("PNG", "JPEG", "GIF", "BMP", "PPM", "TIFF", "WEBP"):
        stream = io.BytesIO()
        Image.new("RGB", (4, 3), "red").save(stream, kind)
        made[kind] = stream.getvalue()
        assert untrusted.load_picture(io.BytesIO(made[kind])).size == (4, 3)
    postscript = tmp_path / "x.jpg"
    postscript.write_bytes(
        b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\nshowpage\n"
    )
    with pytest.raises(OSError, match="cannot identify"):
        untrusted.load_picture(postscript)
    with pytest.raises(OSError, match="ValueError"):
        untrusted.load_picture(io.BytesIO(b"P6\n4 x\n255\n" + bytes(36)))
    for kind, content in made.items():
        for cut in range(0, len(content), max(1, len(content) // 25)):
            flipped = bytearray(content)
            flipped[cut] ^= 0x55
            try:
                untrusted.load_picture(io.BytesIO(bytes(flipped)))
            except OSError:
                continue
            except BaseException as error:  # pragma: no cover
                pytest.fail(f"{kind} with byte {cut} flipped raised {error!r}")


@pytest.mark.parametrize("line", ["{} = 1", "[{}]", "[[{}]]", '"x".{} = 2'])
def test_a_key_with_more_dots_than_tables_may_be_deep_is_refused_by_its_line(line):
    text = "a = 1\n" + line.format(".".join(["k"] * 5000)) + "\n"
    with pytest.raises(tomllib.TOMLDecodeError, match="line 2: it is nested more than 100 deep"):
        untrusted.parse_toml(text)


def test_dots_in_texts_and_a_few_in_keys_are_read():
    dots = "." * 500
    assert untrusted.parse_toml(f'a.b.c = "{dots}"\n[d.e]\nf = 1\n') == {
        "a": {"b": {"c": dots}},
        "d": {"e": {"f": 1}},
    }
