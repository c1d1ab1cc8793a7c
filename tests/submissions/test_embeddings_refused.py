"""Bad files get one clear message, the right exit code, and nothing is written or run."""

import json
import os
import pickle
import shlex
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import safetensors.numpy
import torch

from hbench.core.errors import SubmissionError, UsageError
from hbench.submissions import embeddings
from tests.command_line import python
from tests.embedding_formats import (
    FORMATS,
    arrow_file,
    npy,
    npy_txt,
    npz,
    parquet,
    safetensors_metadata,
)

IDS = [f"cat/{row}.png" for row in range(200)]
VECTORS = np.random.default_rng(0).standard_normal((200, 16)).astype(np.float32)


def refusal(path, kind=SubmissionError, **options):
    """The error that reading raises: of exactly this kind, one problem, and no trace in the
    folder."""
    before = sorted(path.parent.rglob("*"))
    with pytest.raises(kind) as caught:
        embeddings.read(path, **options)
    assert type(caught.value) is kind
    assert sorted(path.parent.rglob("*")) == before
    assert any(
        file.name in str(caught.value) for file in [path, *options.values(), *path.parent.iterdir()]
    )
    return caught.value


@pytest.mark.parametrize("write", FORMATS, ids=lambda write: write.__name__)
@pytest.mark.parametrize("kept", [0, 1, 7, 0.05, 0.5, 0.9, -1])
def test_a_file_that_was_cut_off_is_refused(tmp_path, write, kept):
    path = write(tmp_path, IDS, VECTORS)
    victim = sorted(path.iterdir())[-1 if path.suffix != "" else 1] if path.is_dir() else path
    if victim.suffix == ".json":
        victim = next(path.glob("data-*1-*.arrow"))
    size = victim.stat().st_size
    os.truncate(
        victim, int(size * kept) if isinstance(kept, float) else size - 1 if kept < 0 else kept
    )
    assert refusal(path).exit_code == 3


@pytest.mark.parametrize("write", FORMATS, ids=lambda write: write.__name__)
def test_a_file_of_noise_is_refused(tmp_path, write):
    path = write(tmp_path, IDS, VECTORS)
    victim = max(path.iterdir(), key=lambda file: file.stat().st_size) if path.is_dir() else path
    victim.write_bytes(np.random.default_rng(1).bytes(5000))
    assert any(words in refusal(path).problem for words in ("cannot be read", "pickled"))


def written(path, content=b""):
    """A file of these bytes, in a folder that may not be there yet."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def parts_of_two_dimensions(folder):
    (folder / "parts").mkdir()
    for dim in (3, 4):
        embeddings.write(
            folder / "parts" / f"part-{dim}.parquet", [f"id{dim}"], np.ones((1, dim), np.float32)
        )
    return folder / "parts"


def folder_of_splits(folder):
    return written(folder / "folder" / "test" / "data-00000-of-00001.arrow").parents[1]


def saved_selection(folder):
    written(folder / "saved" / "data.arrow")
    state = {"_data_files": [], "_indices_files": [{"filename": "i"}]}
    return written(folder / "saved" / "state.json", json.dumps(state)).parent


def foreign_safetensors(folder, code):
    header = json.dumps(
        {"embeddings": {"dtype": code, "shape": [1, 2], "data_offsets": [0, 2]}}
    ).encode()
    written(folder / "ids.txt", "a\n")
    return written(folder / "emb.safetensors", len(header).to_bytes(8, "little") + header + b"\0\0")


def overlapping_safetensors(folder):
    safetensors.numpy.save_file(
        {"embeddings": VECTORS, "other": VECTORS}, folder / "emb.safetensors"
    )
    size, content = VECTORS.nbytes, (folder / "emb.safetensors").read_bytes()
    return written(
        folder / "emb.safetensors",
        content.replace(f"[{size},{2 * size}]".encode(), f"[0,{size}]".encode()),
    )


def promising_header(folder):
    """An archive whose header promises four petabytes."""
    header = b"{'descr': '<f4', 'fortran_order': False, 'shape': (1000000000, 1000000), }"
    with zipfile.ZipFile(folder / "emb.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("ids.npy", b"")
        archive.writestr(
            "vectors.npy", b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header
        )
    return folder / "emb.npz"


def list_of_tensors(folder):
    torch.save({"ids": ["a"], "embeddings": [torch.ones(2)]}, folder / "emb.pt")
    return folder / "emb.pt"


def without_rows(write, dim=4):
    return lambda folder: write(folder, [], np.zeros((0, dim), np.float32))


def of_shape(*shape):
    return lambda folder: npz(folder, list("abcd"), np.ones(shape, np.float32))


def of_ids(number):
    return lambda folder: npy_txt(folder, [f"id{row}" for row in range(number)], VECTORS)


def table(**columns):
    def write(folder):
        pq.write_table(pa.table(columns), folder / "emb.parquet")
        return folder / "emb.parquet"

    return write


@pytest.mark.parametrize(
    ("make", "words"),
    [
        *(
            (lambda folder, suffix=suffix: written(folder / f"emb{suffix}"), "is empty")
            for suffix in (
                ".npz",
                ".npy",
                ".parquet",
                ".safetensors",
                ".arrow",
                ".feather",
                ".pt",
                ".csv",
                ".csv.gz",
            )
        ),
        (lambda folder: folder / "emb.npz", "does not exist"),
        *(
            (without_rows(write), "shape (0, ")
            for write in (npz, npy_txt, parquet, safetensors_metadata, arrow_file)
        ),
        *((without_rows(write, 0), "shape (0, ") for write in (npz, npy_txt, safetensors_metadata)),
        *((of_shape(*shape), f"shape {shape}") for shape in [(4,), (4, 2, 2), (4, 0), ()]),
        (of_ids(199), "expected: 200 ids, one per vector\n  found:    199"),
        (of_ids(201), "expected: 200 ids, one per vector\n  found:    201"),
        (lambda folder: npy(folder, VECTORS), "emb.ids.txt"),
        (lambda folder: npy(folder, VECTORS), "--ids"),
        (table(id=["a"], embedding=[None]), "null"),
        (
            table(id=["a", "b"], embedding=[[1.0], None]),
            "has 1 row without a vector\n  found:    row 2",
        ),
        (
            table(id=["a", None], embedding=[[1.0], [2.0]]),
            "has 1 row without an id\n  found:    row 2",
        ),
        (table(id=["a"], embedding=[[1.0, None]]), "1 null inside its vectors"),
        (table(id=["a", "b"], embedding=[[1.0, 2.0], [3.0]]), "1 in row 2"),
        (table(id=["a"], embedding=[["1", "2"]]), "lists of numbers"),
        (table(id=["a"], embedding=[1.0]), "lists of numbers"),
        (table(id=[1.5], embedding=[[1.0]]), "emb.parquet are double"),
        (table(name=["a"], embedding=[[1.0]]), "has no id column"),
        (table(id=["a"], feature=[[1.0]]), "has no column of vectors"),
        (table(id=["a"], embedding=[[1.0]], vector=[[1.0]]), "has more than one column of vectors"),
        (parts_of_two_dimensions, "float32 of dimension 4 at row 1"),
        (lambda folder: written(folder / "folder" / "x").parent, "neither"),
        (folder_of_splits, "the splits test"),
        (folder_of_splits, "folder/test"),
        (saved_selection, "flatten_indices"),
        (lambda folder: foreign_safetensors(folder, "F8_E4M3"), "are F8_E4M3"),
        (lambda folder: foreign_safetensors(folder, "BOOL"), "are BOOL"),
        (overlapping_safetensors, "emb.safetensors"),
        (promising_header, "needs 4,000,000,000,000,000"),
        (list_of_tensors, "not a tensor"),
        (lambda folder: npz(folder, IDS, VECTORS.T), "vectors.T"),
    ],
)
def test_what_holds_no_embeddings_is_refused(tmp_path, make, words):
    assert words in str(refusal(make(tmp_path)))


def test_an_unknown_suffix_lists_the_known_ones(tmp_path):
    error = refusal(written(tmp_path / "emb.xyz", "?"), UsageError)
    assert error.exit_code == 2
    assert ".parquet" in error.expected


def test_two_sources_of_ids_are_a_choice_for_the_user(tmp_path):
    path, other = (
        npy_txt(tmp_path, IDS, VECTORS),
        written(tmp_path / "emb.ids.json", json.dumps(IDS)),
    )
    assert refusal(path, UsageError).found == "emb.ids.txt, emb.ids.json"
    assert embeddings.read(path, ids=other).ids.tolist() == IDS
    assert "own ids" in refusal(npz(tmp_path, IDS, VECTORS), UsageError, ids=other).problem


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("ids.txt", None),
        ("ids.txt", b"\xff\xfe\x00"),
        ("ids.json", '{"a": 1}'),
        ("ids.json", '["a", '),
        ("ids.json", '["a", 1.5]'),
        ("ids.json", '["a", true]'),
        ("ids.json", '["a", "\\ud800"]'),
        ("ids.json", '["a", "b\\u0000"]'),
        ("ids.csv", "split,name\ntest,a\ntest,b\n"),
        ("ids.csv", "id,image_id\na,a\nb,b\n"),
        ("ids.csv", "id,split\na,test\nb\n"),
        ("ids.csv", 'id\n"a\nb'),
        ("ids.npy", b"\x93NUMPY nothing"),
        ("ids.parquet", b"PAR1"),
        ("ids.docx", "a\nb\n"),
    ],
)
def test_missing_and_broken_files_of_ids_are_refused(tmp_path, name, content):
    vectors = npy(tmp_path, np.ones((2, 3), np.float32))
    if content is not None:
        written(tmp_path / name, content)
    kind = UsageError if name == "ids.docx" else SubmissionError
    assert name in str(refusal(vectors, kind, ids=tmp_path / name))


def test_ids_without_header_and_ids_with_separators_survive_csv(tmp_path):
    written(tmp_path / "emb.ids.csv", '"a, ""b"".png"\nc.png\n')
    assert embeddings.read(npy(tmp_path, np.ones((2, 3), np.float32))).ids.tolist() == [
        'a, "b".png',
        "c.png",
    ]


class Trap:
    """Unpickling it leaves a file."""

    def __init__(self, path):
        self.path = str(path)

    def __reduce__(self):
        return (open, (self.path, "w"))


def trapped(folder, name):
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


@pytest.mark.parametrize(
    "name", ["emb.pkl", "emb.pickle", "emb.joblib", "emb.npy", "emb.npz", "emb.pt", "emb.pth"]
)
def test_pickles_are_refused_and_never_opened(tmp_path, name):
    path = trapped(tmp_path, name)
    error = refusal(path)
    assert "pickled" in error.problem
    assert error.fix.startswith("if you trust who made it, convert it once: python -c ")
    assert not (tmp_path / "sprung").exists()


def converted(path):
    """The file that the line of a refusal makes, after running it."""
    line = refusal(path).fix.split("once: ", 1)[1]
    program = shlex.quote(sys.executable) + line.removeprefix("python")
    subprocess.run(program, shell=True, check=True, capture_output=True)
    return Path(shlex.split(line)[-1])


def test_pickled_ids_are_refused_too(tmp_path):
    np.save(tmp_path / "other.npy", VECTORS)
    np.save(tmp_path / "ids.npy", np.array(IDS, dtype=object), allow_pickle=True)
    plain = converted(tmp_path / "other.npy")
    assert plain.name == "ids.plain.npy"
    assert embeddings.read(tmp_path / "other.npy", ids=plain).ids.tolist() == IDS


def pickled_dict(path):
    path.write_bytes(pickle.dumps({"ids": IDS, "embeddings": VECTORS}))


def pickled_mapping(path):
    path.write_bytes(pickle.dumps(dict(zip(IDS, VECTORS, strict=True))))


def object_archive(path):
    np.savez(path, ids=np.array(IDS, dtype=object), embeddings=VECTORS)


def archive_of_objects(path):
    np.savez(path, ids=np.array(IDS), embeddings=VECTORS.astype(object))


def object_array(path):
    rows = np.empty(len(VECTORS), dtype=object)
    rows[:] = list(VECTORS)
    np.save(path, rows, allow_pickle=True)
    path.with_name("ids.txt").write_text("\n".join(IDS))


def torch_arrays(path):
    torch.save({"ids": np.array(IDS, dtype=object), "embeddings": VECTORS}, path)


@pytest.mark.parametrize(
    ("name", "write"),
    [
        ("emb.pkl", pickled_dict),
        ("it's $(emb).pkl", pickled_mapping),
        ("emb.npz", object_archive),
        ("emb.npz", archive_of_objects),
        ("emb.npy", object_array),
        ("emb.pt", torch_arrays),
    ],
)
def test_the_line_that_converts_a_file_does(tmp_path, name, write):
    write(tmp_path / name)
    found = embeddings.read(converted(tmp_path / name))
    assert found.ids.tolist() == IDS
    np.testing.assert_allclose(found.vectors, VECTORS, rtol=1e-6)


@pytest.mark.parametrize(
    ("name", "library"), [("emb.h5", "h5py"), ("emb.hdf5", "h5py"), ("e.tfrecord", "tensorflow")]
)
def test_foreign_formats_come_with_a_recipe(tmp_path, name, library):
    (tmp_path / name).write_bytes(b"\x89HDF")
    fix = refusal(tmp_path / name).fix
    assert library in fix
    compile(shlex.split(fix.split("once: ", 1)[1])[2], "recipe", "exec")


def test_torch_files_without_torch_say_what_to_install(tmp_path):
    torch.save({"ids": IDS, "embeddings": torch.from_numpy(VECTORS)}, tmp_path / "emb.pt")
    program = (
        "import sys; sys.modules['torch'] = None\n"
        "from pathlib import Path; from hbench.submissions import embeddings\n"
        f"embeddings.read(Path({str(tmp_path / 'emb.pt')!r}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert "needs torch to be read" in done.stderr


def test_reading_loads_no_torch(tmp_path):
    path = safetensors_metadata(tmp_path, IDS, VECTORS)
    program = (
        "import sys; from pathlib import Path; from hbench.submissions import embeddings as "
        f"e; e.read(Path({str(path)!r}))"
    )
    check = "; assert not {'torch', 'sklearn', 'numba'} & set(sys.modules), sorted(sys.modules)"
    python(program + check)
