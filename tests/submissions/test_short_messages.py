"""No message floods a screen, whatever ids, columns and keys are called; five of a list are shown,
and an empty name is seen.
"""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import hbench
from hbench.core.errors import HBenchError
from hbench.submissions import embeddings

pytestmark = pytest.mark.fast

LONG = "x" * 50_000
NAMES = [f"{LONG}{number}" for number in range(60)]
BAD = np.ones((60, 3), np.float32)
BAD[5:12], BAD[12:20], BAD[20:30] = np.nan, np.inf, 0


def parquet(folder, columns):
    pq.write_table(pa.table(columns), folder / "e.parquet")
    return folder / "e.parquet"


def text(name, content):
    def write(folder):
        (folder / name).write_text(content, encoding="utf-8")
        return folder / name

    return write


def archive(folder, arrays):
    np.savez(folder / "e.npz", **arrays)
    return folder / "e.npz"


def beside(folder, content):
    (folder / "ids.csv").write_text(content)
    np.save(folder / "e.npy", BAD)
    return folder / "e.npy"


WIDE = {f"{LONG}{number}": [1.0, 2.0] for number in range(600)}
MAKERS = {
    "many faults of long ids": lambda folder: archive(
        folder, {"ids": np.array([*NAMES[:58], NAMES[0], NAMES[1]]), "vectors": BAD}
    ),
    "ids that differ by case": lambda folder: archive(
        folder, {"ids": np.array([name.upper() for name in NAMES]), "vectors": BAD}
    ),
    "columns of long names": lambda folder: parquet(folder, {"id": ["a", "b"], **WIDE}),
    "no id among long names": lambda folder: parquet(folder, WIDE),
    "arrays of long names": lambda folder: archive(
        folder, {f"{'y' * 99}{number}": BAD for number in range(99)}
    ),
    "ids with a NUL": lambda folder: parquet(
        folder, {"id": [f"a\0{name}" for name in NAMES], "embedding": BAD.tolist()}
    ),
    "columns of ids": lambda folder: beside(folder, ",".join(NAMES) + "\n" + ",".join(NAMES)),
    "a long line of CSV": text("e.csv", f"id,f0,f1\na,1,2\nb,{LONG},3\n"),
    "a CSV with a longer row": text("e.csv", f"id,f0,f1\na,1,2\n{','.join(NAMES)}\n"),
    "a CSV of names": text("e.csv", ",".join(NAMES) + "\n" + ",".join(NAMES) + "\n"),
    "JSON lines of names": text("e.jsonl", json.dumps(dict.fromkeys(NAMES, 1)) + "\n"),
    "JSON lines of a text": text("e.jsonl", json.dumps(LONG) + "\n"),
    "a run of long fields": text("e.trec", " ".join(NAMES[:5]) + "\n"),
    "a run with a long score": text("e.trec", f"q Q0 a 1 {LONG} t\n"),
    "lists of doubled queries": text(
        "e.csv", "id,images\n" + f"{NAMES[0]},a b\n" * 9 + f"{NAMES[1]},a b\n" * 9
    ),
    "lists of unknown items": text(
        "e.csv", "id,images\n" + "".join(f"{name},{NAMES[0]}z {NAMES[1]}z\n" for name in NAMES)
    ),
    "lists without a header": text("e.csv", f"{LONG},a b {LONG}\nq,c d\n"),
    "rows without a score": text("e.csv", f"query,item,{LONG}\nq,a,1\n"),
}


@pytest.mark.parametrize("kind", MAKERS)
def test_no_message_is_longer_than_two_thousand_letters(tmp_path, kind):
    rows = "".join(f"{name},{'ab'[number % 2]}\n" for number, name in enumerate(NAMES))
    (tmp_path / "t.csv").write_text(f"item,class\n{rows}")
    path = MAKERS[kind](tmp_path)
    with pytest.raises(HBenchError) as caught:
        hbench.evaluate(path, tmp_path / "t.csv")
    assert len(str(caught.value)) <= 2000


def test_five_ids_of_a_list_are_shown(tmp_path):
    found = embeddings.read(
        archive(tmp_path, {"ids": np.array([f"a{n}" for n in range(60)]), "vectors": BAD})
    )
    for problem in embeddings.problems(found, wanted=[f"b{n}" for n in range(60)], cosine=True):
        assert len(problem.examples) == 5
        assert problem.count == 60 or "vectors" in problem.kind
        assert ", …)" in str(problem)


def test_an_empty_name_is_seen(tmp_path):
    (tmp_path / "t.csv").write_text("item,class\na,x\nb,x\nc,y\nd,y\n")
    names = np.array(["a", "b", "c", ""])
    with pytest.raises(HBenchError, match=r"1 unknown ids \(\(empty\)\)"):
        hbench.evaluate(archive(tmp_path, {"ids": names, "vectors": np.eye(4)}), tmp_path / "t.csv")


def test_a_name_of_blanks_is_quoted(tmp_path):
    (tmp_path / "t.csv").write_text("item,class\na,x\nb,x\nc,y\nd,y\n")
    names = np.array(["a", "b", "c", "  "])
    with pytest.raises(HBenchError, match=r"1 unknown ids \('  '\)"):
        hbench.evaluate(archive(tmp_path, {"ids": names, "vectors": np.eye(4)}), tmp_path / "t.csv")
