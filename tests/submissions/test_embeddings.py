"""Embeddings: round trips of every format, joining by id, and every problem reported at once."""

import hashlib
import subprocess
import tempfile
import tracemalloc
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from hbench.core.errors import SubmissionError, UsageError
from hbench.submissions import embeddings
from hbench.submissions.embeddings.arrow_files import BLOCK_BYTES
from hbench.submissions.embeddings.spellings import likely_cause
from hbench.submissions.problems import in_a_line, refuse
from tests.embedding_formats import (
    FORMATS,
    MAPPED,
    arrow_batches,
    npy_txt,
    npz,
    parquet,
    parquet_parts,
    saved_dataset,
)

NAMES = st.text(st.characters(codec="utf-8", exclude_characters="\0\n\r\ufeff"), max_size=30)
FLOATS = st.sampled_from([np.float16, np.float32, np.float64])


@st.composite
def stored(draw):
    ids = draw(st.lists(NAMES, min_size=1, max_size=12, unique=True))
    dtype = draw(FLOATS)
    values = st.floats(-8, 8, width=16)
    return ids, draw(arrays(dtype, (len(ids), draw(st.integers(1, 5))), elements=values))


def numbers(rows=7, dim=4, dtype=np.float32, seed=0):
    vectors = np.random.default_rng(seed).standard_normal((rows, dim)).astype(dtype)
    return [f"cat/{row}.png" for row in range(rows)], vectors


def made(ids, vectors, dtype=None):
    return embeddings.Embeddings(
        np.array(ids, dtype=object), vectors, "0" * 64, "emb.npz", dtype or str(vectors.dtype)
    )


def kinds(found):
    return {problem.kind: problem.count for problem in found}


@pytest.mark.parametrize("write", FORMATS, ids=lambda write: write.__name__)
@settings(max_examples=25, deadline=None)
@given(stored(), st.randoms(use_true_random=False))
def test_every_format_gives_back_the_ids_and_the_very_bits_in_any_order_of_the_rows(
    write, content, random
):
    ids, vectors = content
    order = random.sample(range(len(ids)), len(ids))
    with tempfile.TemporaryDirectory() as folder:
        found = embeddings.read(write(Path(folder), [ids[row] for row in order], vectors[order]))
        assert found.ids.tolist() == [ids[row] for row in order]
        assert (found.vectors.dtype, found.dtype) == (vectors.dtype, str(vectors.dtype))
        np.testing.assert_array_equal(found.vectors, vectors[order])
        np.testing.assert_array_equal(found.vectors[embeddings.align(found, ids)], vectors)


@pytest.mark.parametrize("suffix", [".parquet", ".npz", ".npy"])
@settings(max_examples=25, deadline=None)
@given(content=stored())
def test_what_is_written_is_read_back(suffix, content):
    ids, vectors = content
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"emb{suffix}"
        embeddings.write(path, ids, vectors)
        found = embeddings.read(path)
        assert found.ids.tolist() == ids
        assert found.vectors.dtype == vectors.dtype
        np.testing.assert_array_equal(found.vectors, vectors)


@pytest.mark.parametrize("write", MAPPED, ids=lambda write: write.__name__)
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_the_vectors_stay_in_the_mapped_file(tmp_path, write, dtype):
    ids, vectors = numbers(2000, 64, dtype)
    path = write(tmp_path, ids, vectors)
    found = embeddings.read(path)
    assert file_that_holds(found.vectors) == path.resolve()
    np.testing.assert_array_equal(found.vectors, vectors)
    with pytest.raises(ValueError, match="read-only"):
        found.vectors[0, 0] = 1


def file_that_holds(array):
    """The file whose memory map has the array's first byte, by the kernel's own table."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        start, end = (int(bound, 16) for bound in line.split()[0].split("-"))
        if start <= array.ctypes.data < end and "/" in line:
            return Path(line[line.index("/") :])
    return None


def test_bfloat16_becomes_float32_without_a_bit_lost(tmp_path):
    import safetensors.torch
    import torch

    ids, vectors = numbers()
    tensor = torch.from_numpy(vectors).to(torch.bfloat16)
    safetensors.torch.save_file({"embeddings": tensor}, tmp_path / "emb.safetensors")
    torch.save({"embeddings": tensor, "ids": ids}, tmp_path / "emb.pt")
    (tmp_path / "ids.txt").write_text("\n".join(ids))
    for name in ("emb.safetensors", "emb.pt"):
        found = embeddings.read(tmp_path / name)
        assert (found.dtype, found.vectors.dtype) == ("bfloat16", np.float32)
        np.testing.assert_array_equal(found.vectors, tensor.float().numpy())


@pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.int16, np.int32, np.int64, np.bool_])
def test_integer_vectors_are_widened_exactly_and_remarked(tmp_path, dtype):
    vectors = np.random.default_rng(0).integers(0, 2, (5, 8)).astype(dtype)
    found = embeddings.read(npz(tmp_path, list("abcde"), vectors))
    assert found.vectors.dtype == (np.float32 if np.dtype(dtype).itemsize <= 2 else np.float64)
    np.testing.assert_array_equal(found.vectors, vectors.astype(float))
    (remark,) = [
        p for p in embeddings.problems(found, wanted=list("abcde"), cosine=False) if not p.fatal
    ]
    assert remark.kind == f"{np.dtype(dtype)} vectors"


def test_other_byte_orders_are_read(tmp_path):
    ids, vectors = numbers(dtype=">f4")
    found = embeddings.read(npy_txt(tmp_path, ids, vectors))
    assert found.vectors.dtype.isnative
    np.testing.assert_array_equal(found.vectors, vectors)


@pytest.mark.parametrize("dtype", [np.complex64, np.longdouble, "U3", "M8[s]"])
def test_vectors_of_other_types_are_refused(tmp_path, dtype):
    with pytest.raises(SubmissionError, match=r"are .*\n  expected: float16"):
        embeddings.read(npz(tmp_path, ["a"], np.ones((1, 2)).astype(dtype)))


@pytest.mark.parametrize(
    "write", [parquet, arrow_batches, saved_dataset], ids=lambda write: write.__name__
)
def test_vectors_in_parts_are_copied_once_and_never_inflated(tmp_path, write):
    ids, vectors = numbers(3000, 64, np.float16)
    path = write(tmp_path, ids, vectors)
    before = pa.total_allocated_bytes()
    tracemalloc.start()
    found = embeddings.read(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak + pa.total_allocated_bytes() - before < vectors.nbytes + 1_500_000
    assert found.vectors.nbytes == vectors.nbytes


def test_ids_may_be_integers(tmp_path):
    np.savez(tmp_path / "emb.npz", ids=np.array([30, 4]), vectors=np.eye(2))
    found = embeddings.read(tmp_path / "emb.npz")
    assert embeddings.align(found, ["4", "30"]).tolist() == [1, 0]


def test_the_digest_is_what_sha256sum_prints_and_covers_the_file_of_ids(tmp_path):
    ids, vectors = numbers()
    whole = parquet(tmp_path, ids, vectors)
    assert embeddings.read(whole).sha256 == hashlib.sha256(whole.read_bytes()).hexdigest()
    parts = parquet_parts(tmp_path, ids, vectors)
    line = "sha256sum *.parquet | sha256sum"
    printed = subprocess.run(
        line, shell=True, cwd=parts, capture_output=True, text=True, check=True
    ).stdout
    assert embeddings.read(parts).sha256 == printed.split()[0]
    first = embeddings.read(npy_txt(tmp_path, ids, vectors))
    second = embeddings.read(npy_txt(tmp_path, ids[::-1], vectors))
    assert first.sha256 != second.sha256
    assert first.source == "emb.npy, emb.ids.txt"


def test_metadata_is_kept_in_parquet(tmp_path):
    import pyarrow.parquet as pq

    embeddings.write(
        tmp_path / "emb.parquet",
        ["a"],
        np.ones((1, 3), np.float16),
        metadata={"model": "deit_small"},
    )
    schema = pq.read_schema(tmp_path / "emb.parquet")
    assert schema.metadata == {b"hbench.dim": b"3", b"hbench.model": b"deit_small"}
    assert str(schema.field("embedding").type) == "fixed_size_list<element: halffloat>[3]"


def test_nothing_is_left_behind_when_writing_fails(tmp_path):
    class Failing(np.ndarray):
        def __getitem__(self, index):
            raise OSError("the disk is full")

    vectors = np.ones((2, 3), np.float32).view(Failing)
    with pytest.raises(OSError, match="full"):
        embeddings.write(tmp_path / "emb.parquet", ["a", "b"], vectors)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "ids", "vectors"),
    [
        ("emb.h5", ["a"], np.ones((1, 2), np.float32)),
        ("emb.npz", ["a", "b"], np.ones((1, 2), np.float32)),
        ("emb.npz", ["a"], np.ones(2, np.float32)),
        ("emb.npz", ["a"], np.ones((1, 2), np.int64)),
    ],
)
def test_only_embeddings_are_written(tmp_path, name, ids, vectors):
    with pytest.raises(UsageError):
        embeddings.write(tmp_path / name, ids, vectors)
    assert list(tmp_path.iterdir()) == []


def test_align_names_what_is_missing():
    with pytest.raises(SubmissionError, match=r"1 missing ids \(cat/9.png\)"):
        embeddings.align(made(*numbers()), ["cat/1.png", "cat/9.png"])


def test_all_problems_are_reported_at_once():
    ids, vectors = numbers(8)
    assert embeddings.problems(made(ids, vectors), wanted=ids, cosine=True) == []
    vectors[0, 1], vectors[1, 2], vectors[2], vectors[4] = np.nan, -np.inf, 0, 1e30
    ids[3], ids[5] = ids[6], "stranger"
    found = embeddings.problems(
        made(ids, vectors), wanted=[*numbers(8)[0], "cat/8.png"], known=["other"], cosine=True
    )
    assert kinds(found) == {
        "missing ids": 3,
        "unknown ids": 1,
        "duplicate ids": 1,
        "vectors with NaN": 1,
        "vectors with Inf": 1,
        "zero vectors": 1,
        "vectors whose length leaves float32": 1,
    }
    assert all(problem.fatal for problem in found)
    with pytest.raises(SubmissionError) as refusal:
        refuse("made", embeddings.problems(made(ids, vectors), wanted=numbers(8)[0], cosine=True))
    assert refusal.value.exit_code == 3
    assert all(
        text in str(refusal.value)
        for text in ("cat/3.png, cat/5.png", "(stranger)", "(cat/6.png)", "(cat/0.png)")
    )


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_bad_rows_are_found_in_every_block(dtype):
    step, dim = 256, BLOCK_BYTES // (4 * 256)
    ids, vectors = numbers(2 * step + 1, 1, dtype)
    vectors = np.repeat(vectors, dim, axis=1)
    bad = [0, step - 1, step, step + 1, 2 * step]
    vectors[bad, 1] = np.nan
    (problem,) = embeddings.problems(made(ids, vectors), wanted=ids, cosine=True)
    assert problem.examples == tuple(ids[row] for row in bad)


@pytest.mark.parametrize(
    ("vectors", "cosine", "found"),
    [
        ([[0, 0.0], [1, 1]], True, {"zero vectors": ("a",)}),
        ([[0, 0.0], [1, 1]], False, {}),
        ([[1e-30, 0.0], [1, 1]], False, {}),
        (
            [[1e200, 1.0], [1e-200, 0], [1.0, 1.0]],
            True,
            {"vectors whose length leaves float32": ("a", "b")},
        ),
    ],
)
def test_zero_and_huge_vectors_are_faults_only_under_cosine(vectors, cosine, found):
    ids = list("abc"[: len(vectors)])
    problems = embeddings.problems(made(ids, np.array(vectors)), wanted=ids, cosine=cosine)
    assert {problem.kind: problem.examples for problem in problems} == found


def test_items_of_other_splits_are_a_remark():
    ids, vectors = numbers()
    found = embeddings.problems(made(ids, vectors), wanted=ids[:3], known=ids[3:6], cosine=True)
    assert kinds(found) == {"unknown ids": 1, "ids of the dataset that its test leaves out": 3}
    assert [problem.fatal for problem in found] == [True, False]


@pytest.mark.parametrize(
    ("change", "cause"),
    [
        (lambda name: name.removesuffix(".png"), "ids lack the ending '.png'"),
        (lambda name: name + ".npy", "ids have an extra ending '.npy'"),
        (
            lambda name: name.replace(".png", ".jpg"),
            "ids differ by the suffix: 'cat/0.jpg' should be 'cat/0.png'",
        ),
        (lambda name: name.removeprefix("cat/"), "ids lack the beginning 'cat/'"),
        (lambda name: "/data/" + name, "ids have an extra beginning '/data/'"),
        (lambda name: name.replace("/", "\\"), r"ids differ by backslashes"),
        (lambda name: "C:\\data\\" + name.replace("/", "\\"), "ids differ by the leading folder"),
        (str.upper, "ids differ by letter case"),
        (lambda name: f" {name}\t", "ids differ by blanks"),
        (
            lambda name: Path(name).stem,
            "ids differ by the leading folder and the suffix: '0' should be 'cat/0.png'",
        ),
        (
            lambda name: name.replace("cat", "ca\u0301t"),
            "ids differ by the Unicode normal form: 'ca\u0301t/0.png' (NFD) should be 'c\u00e1t/0.png' (NFC)",
        ),
        (lambda name: str(1000 + int(Path(name).stem)), "ids look like row numbers"),
        (
            lambda name: f"x{Path(name).stem}",
            "embed these items as well",
        ),  # letters that cannot be seen
    ],
)
def test_ids_spelt_otherwise_are_explained(change, cause):
    ids = (
        [name.replace("cat", "cát") for name in numbers(40)[0]]
        if "Unicode" in cause
        else numbers(40)[0]
    )
    missing, unknown = embeddings.problems(
        made([change(name.replace("á", "a")) for name in ids], numbers(40)[1]),
        wanted=ids,
        cosine=True,
    )
    assert (missing.count, unknown.count) == (40, 40)
    assert missing.fix.startswith(cause)


HOSTILE = [
    "../../etc/passwd",
    "a\nb",
    "\x1b[31mred",
    "\u202eoverride",
    "x" * 100_000,
    "",
    " ",
    "'; --",
    "$(id)",
    "é",
    "👩‍👩‍👧",
]


def test_hostile_ids_stay_on_their_line():
    ids, vectors = numbers(len(HOSTILE))
    found = embeddings.problems(made(HOSTILE, vectors), wanted=ids, cosine=True)
    for problem in found:
        assert all(name.isprintable() and len(name) < 200 for name in problem.examples)
    rows = embeddings.align(made(HOSTILE, vectors), HOSTILE[::-1])
    assert rows.tolist() == list(range(len(HOSTILE)))[::-1]


def test_query_and_gallery_must_have_one_dimension():
    (problem,) = embeddings.problems_between(made(*numbers(3, 4)), made(*numbers(3, 5)))
    assert problem.fatal
    assert str(problem).startswith("2 dimensions, 4 in emb.npz and 5 in emb.npz")


def test_an_id_in_both_files_must_have_one_vector():
    ids, vectors = numbers(9)
    query, gallery = made(ids[:6], vectors[:6]), made(ids[3:], vectors[3:].copy())
    assert embeddings.problems_between(query, gallery) == []
    gallery.vectors[0, 0] += 1
    gallery.vectors[2, 3] += 1
    half = query.vectors.astype(np.float16)
    assert (
        embeddings.problems_between(made(ids[:6], half), made(ids[:6], half.astype(np.float32)))
        == []
    )
    (problem,) = embeddings.problems_between(query, gallery)
    assert (problem.count, problem.examples) == (2, ("cat/3.png", "cat/5.png"))


def test_an_extra_folder_is_seen_where_names_repeat_in_other_folders():
    wanted = [f"{animal}/{i}.png" for animal in ("cat", "dog") for i in range(20)]
    assert likely_cause(wanted, [f"data/{name}" for name in wanted]).startswith(
        "ids have an extra beginning 'data/'"
    )
    assert likely_cause([f"data/{name}" for name in wanted], wanted).startswith(
        "ids lack the beginning 'data/'"
    )


@given(st.text())
def test_any_name_fits_a_line(name):
    assert in_a_line(name).isprintable()
    assert 0 < len(in_a_line(name)) <= 81


@given(st.lists(st.text(max_size=5), max_size=5), st.lists(st.text(max_size=5), max_size=5))
def test_a_cause_quotes_one_of_each_side(wanted, unknown):
    cause = likely_cause(wanted, unknown)
    if cause is not None and not cause.startswith("ids look like row numbers"):
        assert any(repr(name) in cause for name in wanted)
        assert any(repr(name) in cause for name in unknown)
    if not wanted or not unknown:
        assert cause is None


@pytest.mark.parametrize("longer", ["wanted", "unknown"])
def test_half_of_the_shorter_list_must_be_explained(longer):
    few = [f"cat/{i}.png" for i in range(10)]
    many = [f"cat/{i}" for i in range(5)] + [f"dog {i}" for i in range(3000)]
    sides = (many, few) if longer == "wanted" else (few, many)
    assert likely_cause(*sides) is not None
    assert likely_cause(*[side[1:] if side is many else side for side in sides]) is None
