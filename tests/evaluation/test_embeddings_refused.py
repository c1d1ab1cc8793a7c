"""Bad files get one clear message, the right exit code, and nothing is written or run."""

from __future__ import annotations

import json
import os
import pickle
import shlex
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import safetensors.numpy
import torch

from hbench.core.errors import HBenchError, SubmissionError, UsageError
from hbench.evaluation import embeddings
from tests.embedding_formats import FORMATS, arrow_file, npy_txt, npz, parquet, safetensors_metadata

IDS = [f"cat/{row}.png" for row in range(200)]
VECTORS = np.random.default_rng(0).standard_normal((200, 16)).astype(np.float32)


def refusal(path: Path, kind: type[HBenchError] = SubmissionError, **options: Path) -> HBenchError:
    """The error that reading raises: of exactly this kind, one problem, and no trace in the folder."""
    before = sorted(path.parent.rglob("*"))
    with pytest.raises(kind) as caught:
        embeddings.read(path, **options)
    assert type(caught.value) is kind
    assert sorted(path.parent.rglob("*")) == before
    assert any(file.name in str(caught.value) for file in [path, *options.values(), *path.parent.iterdir()])
    return caught.value


@pytest.mark.parametrize("write", FORMATS, ids=lambda write: write.__name__)
@pytest.mark.parametrize("kept", [0, 1, 7, 0.05, 0.5, 0.9, -1])
def test_a_file_that_was_cut_off_is_refused(tmp_path, write, kept):
    path = write(tmp_path, IDS, VECTORS)
    victim = sorted(path.iterdir())[-1 if path.suffix != "" else 1] if path.is_dir() else path
    if victim.suffix == ".json":
        victim = next(path.glob("data-*1-*.arrow"))
    size = victim.stat().st_size
    os.truncate(victim, int(size * kept) if isinstance(kept, float) else size - 1 if kept < 0 else kept)
    assert refusal(path).exit_code == 3


@pytest.mark.parametrize("write", FORMATS, ids=lambda write: write.__name__)
def test_a_file_of_noise_is_refused(tmp_path, write):
    path = write(tmp_path, IDS, VECTORS)
    victim = max(path.iterdir(), key=lambda file: file.stat().st_size) if path.is_dir() else path
    victim.write_bytes(np.random.default_rng(1).bytes(5000))
    assert any(words in refusal(path).problem for words in ("cannot be read", "pickled"))


def test_every_format_says_that_it_is_empty(tmp_path):
    for suffix in (".npz", ".npy", ".parquet", ".safetensors", ".arrow", ".feather", ".pt"):
        (tmp_path / f"emb{suffix}").touch()
        assert refusal(tmp_path / f"emb{suffix}").problem.endswith("is empty")


@pytest.mark.parametrize("write", [npz, npy_txt, parquet, safetensors_metadata, arrow_file])
@pytest.mark.parametrize("shape", [(0, 4), (0, 0)])
def test_a_file_without_rows_is_refused(tmp_path, write, shape):
    if write in (parquet, arrow_file) and shape[1] == 0:
        shape = (0, 1)
    found = refusal(write(tmp_path, [], np.zeros(shape, np.float32))).found
    assert found.startswith("shape (0, ")


@pytest.mark.parametrize("shape", [(4,), (4, 2, 2), (4, 0), ()])
def test_vectors_that_are_no_table_are_refused(tmp_path, shape):
    error = refusal(npz(tmp_path, list("abcd"), np.ones(shape, np.float32)))
    assert error.found == f"shape {shape}"


@pytest.mark.parametrize("more", [-1, 1])
def test_another_number_of_ids_is_refused(tmp_path, more):
    error = refusal(npy_txt(tmp_path, [f"id{row}" for row in range(200 + more)], VECTORS))
    assert (error.expected, error.found) == ("200 ids, one per vector", f"{200 + more}")


def test_a_missing_file_is_refused(tmp_path):
    assert refusal(tmp_path / "emb.npz").problem.endswith("does not exist")


def test_an_unknown_suffix_lists_the_known_ones(tmp_path):
    (tmp_path / "emb.xyz").write_text("?")
    error = refusal(tmp_path / "emb.xyz", UsageError)
    assert error.exit_code == 2
    assert ".parquet" in error.expected


def test_vectors_without_ids_ask_for_them(tmp_path):
    np.save(tmp_path / "emb.npy", VECTORS)
    error = refusal(tmp_path / "emb.npy")
    assert "emb.ids.txt" in error.expected
    assert "--ids" in error.fix


def test_two_files_of_ids_are_a_choice_for_the_user(tmp_path):
    path = npy_txt(tmp_path, IDS, VECTORS)
    (tmp_path / "emb.ids.json").write_text(json.dumps(IDS))
    assert refusal(path, UsageError).found == "emb.ids.txt, emb.ids.json"
    assert embeddings.read(path, ids=tmp_path / "emb.ids.json").ids.tolist() == IDS


def test_ids_given_twice_are_refused(tmp_path):
    path = npz(tmp_path, IDS, VECTORS)
    (tmp_path / "other.txt").write_text("\n".join(IDS))
    assert "own ids" in refusal(path, UsageError, ids=tmp_path / "other.txt").problem


@pytest.mark.parametrize(
    ("name", "content", "kind"),
    [
        ("ids.txt", b"\xff\xfe\x00", SubmissionError),
        ("ids.json", b'{"a": 1}', SubmissionError),
        ("ids.json", b'["a", ', SubmissionError),
        ("ids.json", b'["a", 1.5]', SubmissionError),
        ("ids.json", b'["a", true]', SubmissionError),
        ("ids.json", b'["a", "\\ud800"]', SubmissionError),
        ("ids.json", b'["a", "b\\u0000"]', SubmissionError),
        ("ids.csv", b"split,name\ntest,a\ntest,b\n", SubmissionError),
        ("ids.csv", b"id,image_id\na,a\nb,b\n", SubmissionError),
        ("ids.csv", b"id,split\na,test\nb\n", SubmissionError),
        ("ids.csv", b'id\n"a\nb', SubmissionError),
        ("ids.npy", b"\x93NUMPY nothing", SubmissionError),
        ("ids.parquet", b"PAR1", SubmissionError),
        ("ids.docx", b"a\nb\n", UsageError),
    ],
)
def test_broken_files_of_ids_are_refused(tmp_path, name, content, kind):
    np.save(tmp_path / "emb.npy", np.ones((2, 3), np.float32))
    (tmp_path / name).write_bytes(content)
    assert name in str(refusal(tmp_path / "emb.npy", kind, ids=tmp_path / name))


def test_a_missing_file_of_ids_is_refused(tmp_path):
    np.save(tmp_path / "emb.npy", VECTORS)
    assert "ids.txt does not exist" in refusal(tmp_path / "emb.npy", ids=tmp_path / "ids.txt").problem


def test_ids_without_header_and_ids_with_separators_survive_csv(tmp_path):
    np.save(tmp_path / "emb.npy", np.ones((2, 3), np.float32))
    (tmp_path / "emb.ids.csv").write_text('"a, ""b"".png"\nc.png\n')
    assert embeddings.read(tmp_path / "emb.npy").ids.tolist() == ['a, "b".png', "c.png"]


def columns(**arrays):
    return pa.table(arrays)


@pytest.mark.parametrize(
    ("table", "words"),
    [
        (columns(id=["a"], embedding=[None]), "null"),
        (columns(id=["a", "b"], embedding=[[1.0], None]), "1 rows without a vector"),
        (columns(id=["a", None], embedding=[[1.0], [2.0]]), "1 rows without an id"),
        (columns(id=["a"], embedding=[[1.0, None]]), "1 nulls inside its vectors"),
        (columns(id=["a", "b"], embedding=[[1.0, 2.0], [3.0]]), "differ in dimension"),
        (columns(id=["a"], embedding=[["1", "2"]]), "lists of numbers"),
        (columns(id=["a"], embedding=[1.0]), "lists of numbers"),
        (columns(id=[1.5], embedding=[[1.0]]), "ids in emb.parquet are double"),
        (columns(name=["a"], embedding=[[1.0]]), "has no id column"),
        (columns(id=["a"], feature=[[1.0]]), "has no column of vectors"),
        (columns(id=["a"], embedding=[[1.0]], vector=[[1.0]]), "has several column of vectors"),
    ],
)
def test_parquet_tables_that_are_no_embeddings_are_refused(tmp_path, table, words):
    pq.write_table(table, tmp_path / "emb.parquet")
    assert words in str(refusal(tmp_path / "emb.parquet")).replace(str(tmp_path) + "/", "")


def test_parts_of_another_dimension_are_refused(tmp_path):
    (tmp_path / "parts").mkdir()
    for dim in (3, 4):
        embeddings.write(tmp_path / "parts" / f"part-{dim}.parquet", [f"id{dim}"], np.ones((1, dim), np.float32))
    error = refusal(tmp_path / "parts")
    assert (error.expected, error.found) == (
        "float32 of dimension 3 as in row 0",
        "float32 of dimension 4 at row 1",
    )


def test_a_folder_of_anything_else_is_refused(tmp_path):
    (tmp_path / "folder" / "test").mkdir(parents=True)
    assert refusal(tmp_path / "folder").found == "neither"
    (tmp_path / "folder" / "test" / "data-00000-of-00001.arrow").touch()
    error = refusal(tmp_path / "folder")
    assert error.found == "the splits test"
    assert error.fix.endswith("folder/test")


def test_a_saved_selection_says_how_to_make_it_whole(tmp_path):
    (tmp_path / "saved").mkdir()
    (tmp_path / "saved" / "data.arrow").touch()
    (tmp_path / "saved" / "state.json").write_text(
        json.dumps({"_data_files": [], "_indices_files": [{"filename": "i"}]})
    )
    assert "flatten_indices" in refusal(tmp_path / "saved").fix


@pytest.mark.parametrize("code", ["F8_E4M3", "BOOL"])
def test_foreign_safetensors_types_are_refused(tmp_path, code):
    header = json.dumps({"embeddings": {"dtype": code, "shape": [1, 2], "data_offsets": [0, 2]}}).encode()
    (tmp_path / "emb.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + b"\0\0")
    (tmp_path / "ids.txt").write_text("a\n")
    assert refusal(tmp_path / "emb.safetensors").problem.endswith(f"are {code}")


def test_a_header_that_promises_more_than_there_is_is_refused(tmp_path):
    path = npz(tmp_path, IDS, VECTORS)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("ids.npy", b"")
        header = b"{'descr': '<f4', 'fortran_order': False, 'shape': (1000000000, 1000000), }"
        archive.writestr("vectors.npy", b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header)
    assert "needs 4,000,000,000,000,000" in refusal(path).found


def test_a_list_of_tensors_is_no_tensor(tmp_path):
    torch.save({"ids": ["a"], "embeddings": [torch.ones(2)]}, tmp_path / "emb.pt")
    assert refusal(tmp_path / "emb.pt").problem.endswith("no tensor")


class Trap:
    """Unpickling it leaves a file."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)

    def __reduce__(self):
        return (open, (self.path, "w"))


def trapped(folder: Path, name: str) -> Path:
    path, trap = folder / name, np.array([Trap(folder / "sprung")], dtype=object)
    if path.suffix in (".pkl", ".pickle", ".joblib"):
        path.write_bytes(pickle.dumps(trap))
    elif path.suffix == ".npy":
        np.save(path, trap, allow_pickle=True)
    elif path.suffix == ".npz":
        np.savez(path, ids=np.array(["a"]), vectors=trap)
    else:
        torch.save({"ids": ["a"], "embeddings": torch.ones(1, 2), "more": trap}, path)
    return path


@pytest.mark.parametrize("name", ["emb.pkl", "emb.pickle", "emb.joblib", "emb.npy", "emb.npz", "emb.pt", "emb.pth"])
def test_pickles_are_refused_and_never_opened(tmp_path, name):
    path = trapped(tmp_path, name)
    error = refusal(path)
    assert "pickled" in error.problem
    assert error.fix.startswith("if you trust who made it, convert it once: python -c ")
    assert not (tmp_path / "sprung").exists()


def test_pickled_ids_are_refused_too(tmp_path):
    np.savez(tmp_path / "emb.npz", ids=np.array(IDS, dtype=object), vectors=VECTORS)
    assert "pickled" in refusal(tmp_path / "emb.npz").problem
    np.save(tmp_path / "other.npy", VECTORS)
    np.save(tmp_path / "ids.npy", np.array(IDS, dtype=object), allow_pickle=True)
    line = refusal(tmp_path / "other.npy").fix.split("once: ", 1)[1]
    subprocess.run(shlex.quote(sys.executable) + line.removeprefix("python"), shell=True, check=True)
    assert embeddings.read(tmp_path / "other.npy", ids=tmp_path / "ids.plain.npy").ids.tolist() == IDS


def pickled_dict(path):
    path.write_bytes(pickle.dumps({"ids": IDS, "embeddings": VECTORS}))


def pickled_mapping(path):
    path.write_bytes(pickle.dumps(dict(zip(IDS, VECTORS, strict=True))))


def object_archive(path):
    np.savez(path, ids=np.array(IDS, dtype=object), embeddings=VECTORS)


def object_array(path):
    rows = np.empty(len(VECTORS), dtype=object)
    rows[:] = list(VECTORS)
    np.save(path, rows, allow_pickle=True)
    path.with_name("ids.txt").write_text("\n".join(IDS))


def torch_arrays(path):
    torch.save({"ids": np.array(IDS, dtype=object), "embeddings": VECTORS}, path)


def numbers_as_text(path):
    pd.DataFrame(VECTORS, index=pd.Index(IDS, name="id")).to_csv(path)


@pytest.mark.parametrize(
    ("name", "write"),
    [
        ("emb.pkl", pickled_dict),
        ("it's $(emb).pkl", pickled_mapping),
        ("emb.npz", object_archive),
        ("emb.npy", object_array),
        ("emb.pt", torch_arrays),
        ("emb.csv", numbers_as_text),
    ],
)
def test_the_line_that_converts_a_file_does(tmp_path, name, write):
    write(tmp_path / name)
    line = refusal(tmp_path / name).fix.split("once: ", 1)[1]
    program = shlex.quote(sys.executable) + line.removeprefix("python")
    subprocess.run(program, shell=True, check=True, capture_output=True)
    converted = Path(shlex.split(line)[-1])
    found = embeddings.read(converted)
    assert found.ids.tolist() == IDS
    np.testing.assert_allclose(found.vectors, VECTORS, rtol=1e-6)


@pytest.mark.parametrize(("name", "library"), [("emb.h5", "h5py"), ("emb.hdf5", "h5py"), ("e.tfrecord", "tensorflow")])
def test_foreign_formats_come_with_a_recipe(tmp_path, name, library):
    (tmp_path / name).write_bytes(b"\x89HDF")
    fix = refusal(tmp_path / name).fix
    assert library in fix
    compile(shlex.split(fix.split("once: ", 1)[1])[2], "recipe", "exec")


def test_torch_files_without_torch_say_what_to_install(tmp_path, monkeypatch):
    torch.save({"ids": IDS, "embeddings": torch.from_numpy(VECTORS)}, tmp_path / "emb.pt")
    program = (
        "import sys; sys.modules['torch'] = None\n"
        "from pathlib import Path; from hbench.evaluation import embeddings\n"
        f"embeddings.read(Path({str(tmp_path / 'emb.pt')!r}))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert "needs torch to be read" in done.stderr


def test_reading_loads_no_torch(tmp_path):
    path = safetensors_metadata(tmp_path, IDS, VECTORS)
    program = f"import sys; from pathlib import Path; from hbench.evaluation import embeddings as e; e.read(Path({str(path)!r}))"
    check = "; assert not {'torch', 'sklearn', 'numba'} & set(sys.modules), sorted(sys.modules)"
    subprocess.run([sys.executable, "-c", program + check], check=True)


def test_a_safetensors_file_whose_tensors_overlap_is_refused(tmp_path):
    safetensors.numpy.save_file({"embeddings": VECTORS, "other": VECTORS}, tmp_path / "emb.safetensors")
    content = (tmp_path / "emb.safetensors").read_bytes()
    size = VECTORS.nbytes
    (tmp_path / "emb.safetensors").write_bytes(content.replace(f"[{size},{2 * size}]".encode(), f"[0,{size}]".encode()))
    assert "emb.safetensors" in str(refusal(tmp_path / "emb.safetensors"))
