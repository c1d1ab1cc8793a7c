"""One small sound file per format that hbench reads, each made by a function, and the reader that
takes it.
"""

import gzip
import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import networkx as nx
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from hbench_hgldv2.artefact import record_of
from hbench_hgldv2.curation import decisions_file
from PIL import Image
from safetensors.numpy import save_file

import hbench
from hbench import boards as leaderboard
from hbench.core import files as kept_files
from hbench.datasets import manifest as manifests
from hbench.datasets import pictures
from hbench.datasets.own import data as own_data
from hbench.records import document as reports
from hbench.sheets.sheet import read_table
from hbench.submissions import embeddings
from hbench.submissions.embeddings import ids as id_files
from hbench.submissions.rankings import files as ranking_files
from hbench.train.recipes import files as recipes
from hbench.tree import LabelTree
from hbench.tree import files as tree_files
from studies import values as study_values

BOARD = Path(__file__).parents[2] / "leaderboards" / "cub200.toml"
IDS = [f"item {number}" for number in range(20)]
VECTORS = np.arange(80, dtype=np.float32).reshape(20, 4)
RANKING = pa.table({"query": ["a", "a"], "item": ["b", "c"], "score": [0.5, 0.4]})
NAMED = {"ids": json.dumps(IDS)}
TABLE = "item,family,species\na,x,x1\nb,x,x2\nc,y,y1\nd,y,y2\n"
DECISIONS = """schema: 1
groups: {church: {kind: human-made}}
decisions:
- {id: d1, op: move, labels: [Q16970], to: church}
"""


class Sample(NamedTuple):
    """How a sound file of a format is made, and who reads it."""

    name: str
    make: Callable[[Path], object]
    read: Callable[[Path], object]


def saved(name: str, write: Callable[[Path], object]) -> bytes:
    """What a writer puts into a file of that name."""
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder) / name)
        return (Path(folder) / name).read_bytes()


def _embeddings(path: Path) -> None:
    """Every value is looked at, as an evaluation does."""
    stored = embeddings.read(path)
    with np.errstate(all="ignore"):  # a flipped bit may make any number of any number
        np.asarray(stored.vectors[:]).astype(np.float64).sum()
    [str(name) for name in stored.ids]


def _rows() -> pa.Table:
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(VECTORS.reshape(-1)), 4)
    return pa.table({"id": IDS, "embedding": vectors})


def _lists() -> pa.Table:
    return pa.table({"id": IDS, "embedding": pa.array(VECTORS.tolist(), pa.list_(pa.float32()))})


def _ipc(path: Path, table: pa.Table, writer: Callable[[str, pa.Schema], Any]) -> None:
    with writer(str(path), table.schema) as out:
        out.write_table(table)


def _tree(path: Path) -> None:
    rows = [["x", "x1"], ["x", "x2"], ["y", "y1"]]
    tree, _ = LabelTree.from_names(rows, levels=["family", "species"])
    path.write_text(tree_files.write(tree, path.suffix), encoding="utf-8")


def _graphml(path: Path) -> None:
    tree, _ = LabelTree.from_names([["x", "x1"], ["x", "x2"], ["y", "y1"]], levels=["f", "s"])
    nx.write_graphml_xml(nx.relabel_nodes(tree.graph(), str), path)


def _manifest(path: Path) -> None:
    manifests.from_names(
        list("abcd"), [["x", "1"], ["x", "2"], ["y", "3"], ["y", "4"]], levels=["f", "s"]
    ).write(path)


def _report(path: Path) -> None:
    (path.parent / "own.csv").write_text(TABLE, encoding="utf-8")
    np.savez(path.parent / "e.npz", ids=np.array(list("abcd")), vectors=np.eye(4, dtype=np.float32))
    hbench.evaluate(path.parent / "e.npz", str(path.parent / "own.csv")).write(path)


def _step_record(path: Path) -> None:
    record = {
        "step": "clean",
        "inputs": {"a.csv": "00"},
        "settings": {"k": 1},
        "counts": {"kept": 2},
        "sha256": "00",
    }
    path.write_text(json.dumps(record), encoding="utf-8")


def _noise(path: Path) -> None:
    Image.effect_noise((9, 7), 30).save(path)


def _picture(path: Path) -> None:
    pictures.open_picture(path.parent, path.name)


def _study(path: Path) -> None:
    about = study_values.About(dataset="glyphs", dataset_digest="00", hbench="0.1", unit="base")
    study_values.write({"a": {"H-AP": study_values.whole(np.array([0.5, 0.6]))}}, about, path)


def _texts(text: str) -> Callable[[Path], object]:
    return lambda path: path.write_text(text, encoding="utf-8")


SAMPLES = (
    Sample("a.arrow", lambda path: _ipc(path, _lists(), pa.ipc.new_file), _embeddings),
    Sample("b.arrow", lambda path: _ipc(path, _lists(), pa.ipc.new_stream), _embeddings),
    Sample("c.arrow", lambda path: _ipc(path, _rows(), pa.ipc.new_file), _embeddings),
    Sample("a.parquet", lambda path: pq.write_table(_rows(), path), _embeddings),
    Sample("b.parquet", lambda path: pq.write_table(RANKING, path), ranking_files.read),
    Sample("c.parquet", _manifest, manifests.read),
    Sample("d.parquet", lambda path: pq.write_table(pa.table({"id": IDS}), path), id_files.read),
    Sample("e.parquet", _study, study_values.read),
    Sample("a.npz", lambda path: np.savez(path, ids=np.array(IDS), vectors=VECTORS), _embeddings),
    Sample(
        "b.npz",
        lambda path: np.savez_compressed(path, ids=np.array(IDS), vectors=VECTORS),
        _embeddings,
    ),
    Sample(
        "c.npz", lambda path: kept_files.write(path, {"a": 1}, {"x": np.arange(5)}), kept_files.read
    ),
    Sample(
        "a.safetensors", lambda path: save_file({"embeddings": VECTORS}, path, NAMED), _embeddings
    ),
    Sample(
        "a.pt",
        lambda path: torch.save({"ids": IDS, "embeddings": torch.ones(20, 4)}, path),
        _embeddings,
    ),
    Sample("a.npy", lambda path: np.save(path, np.array(IDS)), id_files.read),
    Sample("a.json", _texts(json.dumps(IDS)), id_files.read),
    Sample("b.json", _tree, tree_files.read),
    Sample("c.json", _report, reports.read),
    Sample("d.json", _step_record, lambda path: record_of(path.with_suffix(""))),
    Sample("a.csv", _texts(TABLE), own_data.read_single),
    Sample("b.csv", _texts("id,images\na,b c\nb,a d\n"), ranking_files.read),
    Sample("c.csv", _texts("id\na\nb\n"), id_files.read),
    Sample("a.csv.gz", lambda path: path.write_bytes(gzip.compress(TABLE.encode())), read_table),
    Sample("a.tsv", _tree, tree_files.read),
    Sample("a.nwk", _tree, tree_files.read),
    Sample("a.graphml", _graphml, tree_files.read),
    Sample("a.trec", _texts("a Q0 b 1 0.5 x\na Q0 c 2 0.4 x\n"), ranking_files.read),
    Sample(
        "a.toml",
        _texts('extends = "sop"\n[optimizer]\nlr = 1e-5\n'),
        lambda path: recipes.values_of(str(path)),
    ),
    Sample(
        "b.toml", lambda path: path.write_bytes(BOARD.read_bytes()), leaderboard.read_board_file
    ),
    Sample("a.yaml", _texts(DECISIONS), decisions_file.load),
    Sample("a.png", _noise, _picture),
    Sample("a.jpg", _noise, _picture),
)

PIECES = (
    b"[", b"{", b"null", b"-1", b"1e999", b"\0", b"\xff", b"\xed\xa0\x80", b"\\ud800", b"9" * 20,
    b"true", b"''", b"\r\n",
)  # fmt: skip


def mutated(content: bytes, random: Any) -> bytes:
    """The bytes after one to eight changes: a byte replaced, some cut out, some repeated, a
    troublesome piece put in.
    """
    changed = bytearray(content)
    for _ in range(random.choice([1, 1, 2, 8])):
        place, kind = random.randrange(len(changed) + 1), random.random()
        if kind < 0.5 and place < len(changed):
            changed[place] = random.randrange(256)
        elif kind < 0.7:
            del changed[place : place + random.randrange(1, 9)]
        elif kind < 0.9:
            changed[place:place] = changed[place : place + random.randrange(1, 9)] * random.choice(
                [1, 2, 50]
            )
        else:
            changed[place:place] = random.choice(PIECES)
    return bytes(changed)
