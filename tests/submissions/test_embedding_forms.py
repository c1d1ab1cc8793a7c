"""Embedding files as people have them: other names of keys, one vector under each id, wide tables,
text; read, and said.
"""

import gzip
import json
import pickle
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import safetensors.numpy
import torch

import hbench
from hbench.core.errors import HBenchError, SubmissionError
from hbench.submissions import embeddings

IDS = [f"im{row}.jpg" for row in range(6)]
VECTORS = np.random.default_rng(0).standard_normal((6, 4)).astype(np.float32)
LABELS = [0, 0, 1, 1, 2, 2]
CLASSES = ["x", "x", "y", "y", "z", "z"]


def assert_holds_all(path, **options):
    found = embeddings.read(path, **options)
    assert found.ids.tolist() == IDS
    np.testing.assert_allclose(found.vectors, VECTORS, rtol=1e-6)
    return found


def remark(found):
    return " ".join(str(problem) for problem in embeddings.problems(found, wanted=IDS, cosine=True))


KEYS = [
    ("features", "paths"),
    ("feats", "filenames"),
    ("emb", "image_id"),
    ("X", "names"),
    ("image_features", "whatever"),
]


@pytest.mark.parametrize(("vectors", "ids"), KEYS)
def test_a_torch_dictionary_of_other_keys_is_read_and_said(tmp_path, vectors, ids):
    held = {
        vectors: torch.from_numpy(VECTORS),
        ids: IDS,
        "labels": torch.tensor(LABELS),
        "classes": CLASSES,
        "epoch": 3,
    }
    torch.save(held, tmp_path / "emb.pt")
    assert (
        remark(assert_holds_all(tmp_path / "emb.pt"))
        == f"6 vectors, of {vectors}, with the ids of {ids}"
    )


ITEMS = list(zip(IDS, torch.from_numpy(VECTORS), strict=True))
TORCH = {
    "a tuple": (torch.from_numpy(VECTORS), IDS),
    "a tuple, ids first": (IDS, torch.from_numpy(VECTORS), torch.tensor(LABELS)),
    "pairs": ITEMS,
    "items": [{"path": name, "label": 3, "feat": row} for name, row in ITEMS],
    "items of one row": [{"id": name, "embedding": row[None]} for name, row in ITEMS],
    "a dictionary within": {"test": {"features": torch.from_numpy(VECTORS), "paths": IDS}},
    "logits beside": {
        "logits": torch.zeros(6, 9),
        "features": torch.from_numpy(VECTORS),
        "paths": IDS,
    },
}


@pytest.mark.parametrize("kind", TORCH)
def test_what_people_save_with_torch_is_read(tmp_path, kind):
    torch.save(TORCH[kind], tmp_path / "emb.pt")
    assert_holds_all(tmp_path / "emb.pt")


@pytest.mark.filterwarnings("ignore:.*sparse")
@pytest.mark.parametrize("name", ["features", "embeddings"])
def test_sparse_tensors_are_refused(tmp_path, name):
    torch.save({name: torch.eye(6).to_sparse(), "paths": IDS}, tmp_path / "emb.pt")
    with pytest.raises(SubmissionError, match=r"a dense tensor\n  found:    torch.sparse_coo"):
        embeddings.read(tmp_path / "emb.pt")


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
@pytest.mark.parametrize(("vectors", "ids"), KEYS)
def test_a_numpy_archive_of_other_keys_is_read_and_said(tmp_path, save, vectors, ids):
    save(
        tmp_path / "emb.npz",
        **{vectors: VECTORS, ids: np.array(IDS), "labels": LABELS, "classes": CLASSES},
    )
    assert (
        remark(assert_holds_all(tmp_path / "emb.npz"))
        == f"6 vectors, of {vectors}, with the ids of {ids}"
    )


def test_usual_names_need_no_remark(tmp_path):
    np.savez(tmp_path / "emb.npz", ids=np.array(IDS), vectors=VECTORS)
    assert remark(assert_holds_all(tmp_path / "emb.npz")) == ""


def test_whole_numbers_are_ids_where_they_differ(tmp_path):
    torch.save(
        {
            "feats": torch.from_numpy(VECTORS),
            "labels": torch.tensor(LABELS),
            "image_no": torch.arange(6) * 7,
        },
        tmp_path / "emb.pt",
    )
    assert embeddings.read(tmp_path / "emb.pt").ids.tolist() == ["0", "7", "14", "21", "28", "35"]


@pytest.mark.parametrize(
    ("held", "words"),
    [
        ({"a": VECTORS, "b": VECTORS, "paths": IDS}, "has more than one array of vectors"),
        ({"a": VECTORS, "one": IDS, "other": IDS[::-1]}, "has no ids"),
        ({"a": VECTORS, "labels": LABELS}, "has no ids"),
        ({"a": LABELS, "paths": IDS}, "has no array of vectors"),
    ],
)
def test_what_is_not_sure_is_refused_with_the_names_that_are_there(tmp_path, held, words):
    np.savez(tmp_path / "emb.npz", **held)
    with pytest.raises(SubmissionError, match=words) as caught:
        embeddings.read(tmp_path / "emb.npz")
    assert "has no ids" in words or "(6" in str(caught.value)


@pytest.mark.parametrize("shape", [(4,), (1, 4)])
def test_one_vector_under_each_id_is_read(tmp_path, shape):
    torch.save(
        {
            name: torch.from_numpy(row.reshape(shape))
            for name, row in zip(IDS, VECTORS, strict=True)
        },
        tmp_path / "emb.pt",
    )
    np.savez(
        tmp_path / "emb.npz",
        **{name: row.reshape(shape) for name, row in zip(IDS, VECTORS, strict=True)},
    )
    for name in ("emb.pt", "emb.npz"):
        assert remark(assert_holds_all(tmp_path / name)) == "6 vectors, one under each id"


def test_ids_with_folders_are_keys_of_an_archive(tmp_path):
    np.savez(
        tmp_path / "emb.npz", **{f"a/b/{name}": row for name, row in zip(IDS, VECTORS, strict=True)}
    )
    assert embeddings.read(tmp_path / "emb.npz").ids.tolist() == [f"a/b/{name}" for name in IDS]


def test_half_floats_of_torch_under_each_id_stay_what_they_are(tmp_path):
    torch.save(
        {name: torch.from_numpy(row).bfloat16() for name, row in zip(IDS, VECTORS, strict=True)},
        tmp_path / "emb.pt",
    )
    found = embeddings.read(tmp_path / "emb.pt")
    assert found.dtype == "bfloat16"
    np.testing.assert_array_equal(
        found.vectors, torch.from_numpy(VECTORS).bfloat16().float().numpy()
    )


def test_safetensors_of_another_key_are_read(tmp_path):
    tensors = {"image_features": VECTORS, "labels": np.array(LABELS)}
    safetensors.numpy.save_file(tensors, tmp_path / "emb.safetensors", {"paths": json.dumps(IDS)})
    assert (
        remark(assert_holds_all(tmp_path / "emb.safetensors"))
        == "6 vectors, of image_features, with the ids of paths"
    )


FAMILIES = [
    [f"f{n}" for n in range(4)],
    [f"dim_{n:03}" for n in range(1, 5)],
    ["0", "1", "2", "3"],
    [f"x.{n}" for n in range(4)],
]


@pytest.mark.parametrize("names", FAMILIES, ids=lambda names: names[0])
@pytest.mark.parametrize("of_ids", ["id", "filename", "image_path"])
@pytest.mark.parametrize("suffix", ["parquet", "feather", "csv", "tsv"])
def test_a_wide_table_is_read_in_the_order_of_its_numbers(tmp_path, names, of_ids, suffix):
    frame = pd.DataFrame(VECTORS[:, ::-1], columns=names[::-1])
    frame.insert(2, of_ids, IDS)
    frame["label"], frame["weight"] = LABELS, np.linspace(0, 1, 6)
    path = tmp_path / f"emb.{suffix}"
    if suffix == "parquet":
        frame.to_parquet(path)
    elif suffix == "feather":
        frame.to_feather(path)
    else:
        frame.to_csv(path, index=False, sep="\t" if suffix == "tsv" else ",")
    assert (
        remark(assert_holds_all(path))
        == f"6 vectors, of the columns {names[0]} … {names[3]}, with the ids of {of_ids}"
    )


def test_a_frame_whose_index_are_the_ids_is_read(tmp_path):
    frame = pd.DataFrame(VECTORS, columns=[f"f{n}" for n in range(4)], index=IDS)
    frame.to_parquet(tmp_path / "emb.parquet")
    frame.to_csv(tmp_path / "emb.csv")
    for name in ("emb.parquet", "emb.csv"):
        assert_holds_all(tmp_path / name)


@pytest.mark.parametrize(("vectors", "ids"), [("features", "path"), ("clip", "file_name")])
def test_a_table_with_lists_under_another_name_is_read(tmp_path, vectors, ids):
    pq.write_table(
        pa.table({ids: IDS, "label": LABELS, vectors: VECTORS.tolist()}), tmp_path / "emb.parquet"
    )
    assert f"of {vectors}, with the ids of {ids}" in remark(
        assert_holds_all(tmp_path / "emb.parquet")
    )


def csv_text(header, rows, between=","):
    return (
        "\n".join(between.join(map(str, row)) for row in ([header] if header else []) + rows) + "\n"
    )


ROWS = [[name, *map(repr, map(float, row))] for name, row in zip(IDS, VECTORS, strict=True)]


@pytest.mark.parametrize("between", [",", ";", "\t", "|"])
@pytest.mark.parametrize(
    "header",
    [None, ["id", "a", "b", "c", "d"], ["", "0", "1", "2", "3"], ["name", "v0", "v1", "v2", "v3"]],
)
def test_csv_is_read_with_and_without_a_header(tmp_path, between, header):
    (tmp_path / "emb.csv").write_text(csv_text(header, ROWS, between))
    found = assert_holds_all(tmp_path / "emb.csv")
    assert header is not None or "(without a header)" in remark(found)


def test_csv_may_be_compressed_and_have_decimal_commas(tmp_path):
    text = "sep=;\n" + csv_text(["id", "f0", "f1", "f2", "f3"], ROWS, ";").replace(
        ".", ","
    ).replace(",jpg", ".jpg")
    (tmp_path / "emb.csv.gz").write_bytes(gzip.compress(text.encode()))
    assert_holds_all(tmp_path / "emb.csv.gz")


def test_numbers_are_ids_of_a_csv_where_they_stand_first(tmp_path):
    (tmp_path / "emb.csv").write_text(
        csv_text(None, [[7 * n, *row[1:]] for n, row in enumerate(ROWS)])
    )
    assert embeddings.read(tmp_path / "emb.csv").ids.tolist() == ["0", "7", "14", "21", "28", "35"]


def test_lists_in_brackets_are_vectors_under_any_name(tmp_path):
    rows = [f'{name},"{row.tolist()}"' for name, row in zip(IDS, VECTORS, strict=True)]
    (tmp_path / "emb.csv").write_text("path,features\n" + "\n".join(rows) + "\n")
    assert (
        remark(assert_holds_all(tmp_path / "emb.csv"))
        == "6 vectors, of features, with the ids of path"
    )


@pytest.mark.parametrize("cell", ['"[{}]"', "{}"])
@pytest.mark.parametrize("between", [", ", " "])
def test_lists_in_the_cells_of_a_csv_are_read(tmp_path, cell, between):
    if cell == "{}" and between == ", ":
        cell = '"{}"'
    rows = [
        f"{name},{cell.format(between.join(map(repr, row.tolist())))}"
        for name, row in zip(IDS, VECTORS, strict=True)
    ]
    (tmp_path / "emb.csv").write_text("id,embedding\n" + "\n".join(rows) + "\n")
    assert_holds_all(tmp_path / "emb.csv")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("item,order,species\na,x,y\nb,x,z\n", "is no table of vectors"),
        ("item,order,species,query,gallery\na,x,y,0,1\nb,x,z,1,0\n", "is no table of vectors"),
        ("item,family,species\na,1,2\nb,1,3\n", "is no table of vectors"),
        ("item,order,lat,lon\na,x,1.5,2.5\nb,y,1.5,3.5\n", "is no table of vectors"),
        ("0.1,0.2,0.3\n0.4,0.5,0.6\n", "is no table of vectors"),
        ('id,note\n"[0.1, 0.2]",x\n"[0.3, 0.4]",y\n', "is no table of vectors"),
        ("id,f0,f1\na,1,2\nb,,3\n", r"1 empty cell inside its vectors[^$]*row 2 \(b\)"),
        ("id,f0,f1\na,1,2\nb,high,3\n", r"'high' in the column f0 of row 2 \(b\)"),
        ("id,f0,f1\na,1,2\nb,3,NA\n", r"'NA' in the column f1 of row 2 \(b\)"),
        ("id,f0,f1,f2\na,1,2,3\nb,3,4,NA\n", "'NA' in the column f2"),
        ("a,1.5,2.5\nb,abc,3.5\n", "'abc' in the column 2"),
        ("id,f0,f1\n", "and no row below them"),
        ("id,f0,f1\na,1,2\nb,3\n", "line 3: b,3"),
        (
            "id,f0,f1\n" + 1500 * "a,1,2\n" + "b,3,1.0x\n",
            r"'1.0x' in the column f1 of row 1,501 \(b\)",
        ),
        ("id,embedding\na,1 2\nb,1 2 3\n", r"3 in row 2 \(b\)"),
        ("\n\n", "holds no vectors"),
    ],
)
def test_a_csv_without_vectors_is_refused(tmp_path, text, words):
    (tmp_path / "emb.csv").write_text(text)
    with pytest.raises(SubmissionError, match=words):
        embeddings.read(tmp_path / "emb.csv")


def test_nan_in_a_csv_is_a_fault_of_its_vector(tmp_path):
    (tmp_path / "emb.csv").write_text("id,f0,f1\nim0.jpg,nan,1\nim1.jpg,2,3\n")
    found = embeddings.read(tmp_path / "emb.csv")
    assert "1 vectors with NaN (im0.jpg)" in remark(found)


@pytest.mark.parametrize(
    ("of_ids", "vectors"),
    [("id", "embedding"), ("image_id", "vector"), ("path", "features"), ("name", "clip")],
)
@pytest.mark.parametrize("suffix", ["jsonl", "ndjson", "jsonl.gz"])
def test_json_lines_are_read(tmp_path, of_ids, vectors, suffix):
    lines = [
        json.dumps({of_ids: name, "label": n % 2, vectors: row.tolist()})
        for n, (name, row) in enumerate(zip(IDS, VECTORS, strict=True))
    ]
    content = ("\n".join(lines) + "\n\n").encode()
    (tmp_path / f"emb.{suffix}").write_bytes(
        gzip.compress(content) if suffix.endswith("gz") else content
    )
    assert_holds_all(tmp_path / f"emb.{suffix}")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (
            '{"id": "a", "embedding": [1, 2]}\n{"id": "b", "embedding": [1]}\n',
            "differ in dimension",
        ),
        ('{"id": "a", "embedding": [1, 2]}\n[1]\n', "line 2 of .* is no JSON object"),
        ('{"id": "a", "embedding": [1, 2]}\n{"id": "b"\n', "cannot be read[^$]*line 2, column 11"),
        ('{"id": "a", "note": "x"}\n', "has no list of numbers"),
        ('{"embedding": [1, 2]}\n', "has no id in each line"),
        ('{"id": "a", "vector": {}}\n', "holds no vectors"),
        ('{"id": "a", "vector": {"x": [1], "y": [2]}}\n', "several vectors of each item"),
    ],
)
def test_broken_json_lines_are_refused(tmp_path, content, words):
    (tmp_path / "emb.jsonl").write_text(content)
    with pytest.raises(SubmissionError, match=words):
        embeddings.read(tmp_path / "emb.jsonl")


@pytest.mark.parametrize(
    "content",
    [
        IDS,
        [[name] for name in IDS],
        [[name, label] for name, label in zip(IDS, CLASSES, strict=True)],
        [{"id": name, "label": 1} for name in IDS],
        {"ids": IDS, "model": "x"},
        {name: row for row, name in reversed([*enumerate(IDS)])},
        {str(row): name for row, name in enumerate(IDS)},
    ],
)
@pytest.mark.parametrize("name", ["emb.ids.json", "ids.json"])
def test_a_numpy_array_beside_json_takes_its_ids(tmp_path, content, name):
    np.save(tmp_path / "emb.npy", VECTORS)
    (tmp_path / name).write_text(json.dumps(content))
    assert_holds_all(tmp_path / "emb.npy")


@pytest.mark.parametrize(
    "name", ["emb.json", "emb.txt", "emb_paths.json", "filenames.txt", "paths.json", "names.csv"]
)
def test_files_of_ids_of_other_names_are_found_and_said(tmp_path, name):
    np.save(tmp_path / "emb.npy", VECTORS)
    (tmp_path / name).write_text(json.dumps(IDS) if name.endswith("json") else "\n".join(IDS))
    assert remark(assert_holds_all(tmp_path / "emb.npy")) == f"6 vectors, with the ids of {name}"


def test_a_report_beside_vectors_is_not_taken_for_their_ids(tmp_path):
    np.save(tmp_path / "emb.npy", VECTORS)
    (tmp_path / "emb.json").write_text('{"scores": {}}')
    with pytest.raises(SubmissionError, match="has no ids"):
        embeddings.read(tmp_path / "emb.npy")


def test_what_was_understood_reaches_the_report(tmp_path):
    (tmp_path / "t.csv").write_text(
        "item,class\n"
        + "".join(f"{name},{label}\n" for name, label in zip(IDS, CLASSES, strict=True))
    )
    np.savez(tmp_path / "emb.npz", feats=VECTORS, paths=np.array(IDS))
    report = hbench.evaluate(tmp_path / "emb.npz", tmp_path / "t.csv", metrics="R@1")
    assert "6 vectors, of feats, with the ids of paths" in " ".join(report.remarks)


def converted(path):
    """What the program of a refusal makes of a file."""
    with pytest.raises(SubmissionError) as caught:
        embeddings.read(path)
    assert len(str(caught.value)) < 2000
    line = caught.value.fix.split("once: ", 1)[1]
    subprocess.run(
        shlex.quote(sys.executable) + line.removeprefix("python"),
        shell=True,
        check=True,
        capture_output=True,
    )
    return Path(shlex.split(line)[-1])


HELD = {
    "arrays": {"features": VECTORS, "paths": IDS, "labels": LABELS},
    "texts as an array": {"X": VECTORS, "image_id": np.array(IDS), "classes": CLASSES},
    "numbers": {"image_id": IDS, "other": [f"{name}.bak" for name in IDS], "emb": VECTORS},
    "one under each id": dict(zip(IDS, VECTORS, strict=True)),
    "rows under each id": {name: row[None] for name, row in zip(IDS, VECTORS, strict=True)},
    "lists under each id": {name: row.tolist() for name, row in zip(IDS, VECTORS, strict=True)},
    "pairs": list(zip(IDS, VECTORS, strict=True)),
    "a tuple": (VECTORS, IDS),
    "a frame": pd.DataFrame({"path": IDS, "vec": list(VECTORS), "label": LABELS}),
    "list of vectors": {"features": list(VECTORS), "names": IDS, "meta": {"model": "x"}},
}


@pytest.mark.parametrize("kind", HELD)
def test_the_program_for_pickles_finds_the_keys_of_this_file(tmp_path, kind):
    (tmp_path / "emb.pkl").write_bytes(pickle.dumps(HELD[kind]))
    assert_holds_all(converted(tmp_path / "emb.pkl"))


@pytest.mark.parametrize(
    "kind", ["arrays", "texts as an array", "numbers", "one under each id", "list of vectors"]
)
def test_the_program_for_torch_files_finds_the_keys_of_this_file(tmp_path, kind):
    held = {
        name: np.asarray(part) if isinstance(part, list) else part
        for name, part in HELD[kind].items()
    }
    held = {
        name: torch.from_numpy(part) if getattr(part, "dtype", None) == np.float32 else part
        for name, part in held.items()
    }
    torch.save(
        {**held, "more": np.array([{}])}
        if kind != "one under each id"
        else dict(zip(IDS, VECTORS, strict=True)),
        tmp_path / "emb.pt",
    )
    assert_holds_all(converted(tmp_path / "emb.pt"))


def test_the_program_for_pickled_archives_finds_the_keys_of_this_file(tmp_path):
    np.savez(tmp_path / "emb.npz", feats=VECTORS, paths=np.array(IDS, dtype=object), labels=LABELS)
    assert_holds_all(converted(tmp_path / "emb.npz"))


@pytest.mark.parametrize("form", ["keys", "groups", "one under each id"])
def test_the_program_for_hdf5_finds_the_keys_of_this_file(tmp_path, form):
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "emb.h5", "w") as file:
        if form == "one under each id":
            for name, row in zip(IDS, VECTORS, strict=True):
                file[name] = row
        else:
            group = file if form == "keys" else file.create_group("test")
            group["feats"], group["image_paths"], group["labels"] = VECTORS, IDS, LABELS
            group["pixels"] = np.zeros((6, 2, 2, 3))
    assert_holds_all(converted(tmp_path / "emb.h5"))
    with pytest.raises(HBenchError) as caught:
        embeddings.read(tmp_path / "emb.h5")
    assert form != "keys" or "feats (6, 4), image_paths (6,)" in caught.value.found


FAKE_H5PY = """
import numpy as np
class File(dict):
    def __init__(self, path):
        super().__init__(np.load(str(path) + ".held.npz"))
    def visititems(self, visit):
        for name, held in self.items():
            visit(name, Dataset(held))
class Dataset:
    def __init__(self, held):
        self.held, self.ndim = held, held.ndim
    def __getitem__(self, key):
        return self.held
"""


def test_the_program_for_hdf5_runs_with_what_h5py_gives(tmp_path, monkeypatch):
    """Where h5py is not installed, a module that hands out the same arrays, texts as bytes, stands
    for it.
    """
    (tmp_path / "h5py.py").write_text(FAKE_H5PY)
    (tmp_path / "emb.h5").write_bytes(b"\x89HDF")
    held = {
        "run/feats": VECTORS,
        "run/paths": np.array([name.encode() for name in IDS], dtype="S"),
        "labels": np.array(LABELS),
    }
    np.savez(tmp_path / "emb.h5.held.npz", **held)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert_holds_all(converted(tmp_path / "emb.h5"))
