"""Files that keep their format and hold what no sane writer puts in: other types, doubled and missing parts, odd numbers.

Flipped bits (tests/hostile/campaign.py) mostly break the format itself; these get past the parser, to the code that trusts
a schema.
`altered(sample)` draws such files for each format of the corpus.
"""

import csv
import gzip
import io
import json
import re
import tomllib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import tomli_w
import torch
import yaml
from hypothesis import strategies as st
from PIL import Image
from safetensors.numpy import load, save_file

from tests.hostile.corpus import Sample, saved

NESTED: Any = []
for _ in range(30):
    NESTED = [NESTED]
TEXTS = [
    "", " ", "a", "\x00", "\x1b[31mred", "../../etc/passwd", "/etc/passwd", "x" * 5000, "1e999", "-1", "=1+1",
    "\N{RIGHT-TO-LEFT OVERRIDE}",
]  # fmt: skip
PLAIN = st.sampled_from([None, True, False, -1, 0, 1, 2**31, 2**63, -(10**30), 0.5, -1e308, 1e308, *TEXTS])
VALUES = st.one_of(
    PLAIN,
    st.sampled_from([[], {}, NESTED, [[]], [None], [1, "a"], {"a": 1}, {"": None}, float("nan"), float("inf")]),
    st.lists(PLAIN, max_size=3),
    st.dictionaries(st.sampled_from(["name", "id", "a", ""]), PLAIN, max_size=2),
)


def altered(sample: Sample) -> st.SearchStrategy[bytes]:
    """Files of a sample's format, alike and wrong."""
    return MAKERS[sample.name.partition(".")[2]](sample)


def places(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The way to every part of a document."""
    yield at
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, child in children:
        yield from places(child, (*at, key))


def put(value: Any, at: Sequence[Any], change: Callable[[Any], Any]) -> Any:
    """The document with another part at one place."""
    if not at:
        return change(value)
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[at[0]] = put(copy[at[0]], at[1:], change)
    return copy


@st.composite
def documents(draw: st.DrawFn, sound: Any) -> Any:
    """The document after one to three parts were replaced, taken out, doubled or added."""
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.sampled_from(list(places(sound))))
        kind = draw(st.sampled_from(["replace", "replace", "drop", "add", "double"]))
        odd = draw(VALUES)
        sound = put(sound, at, lambda part, kind=kind, odd=odd: _changed(part, kind, odd))
    return sound


def _changed(part: Any, kind: str, odd: Any) -> Any:
    if kind == "drop" and isinstance(part, dict | list) and part:
        return dict(list(part.items())[1:]) if isinstance(part, dict) else part[1:]
    if kind == "add" and isinstance(part, dict):
        return {**part, "unheard": odd}
    if kind == "add" and isinstance(part, list):
        return [*part, odd]
    return part * 2 if kind == "double" and isinstance(part, list | str) else odd


def _json(sample: Sample) -> st.SearchStrategy[bytes]:
    return documents(json.loads(saved(sample.name, sample.make))).map(lambda value: json.dumps(value).encode())


def _yaml(sample: Sample) -> st.SearchStrategy[bytes]:
    return documents(yaml.safe_load(saved(sample.name, sample.make))).map(
        lambda value: yaml.safe_dump(value, allow_unicode=True).encode()
    )


def _toml(sample: Sample) -> st.SearchStrategy[bytes]:
    def told(value: Any) -> bytes:
        try:
            return tomli_w.dumps(value if isinstance(value, dict) else {"value": value}).encode()
        except (TypeError, ValueError, AttributeError):  # TOML has no null
            return b"a = 1\n"

    return documents(tomllib.loads(saved(sample.name, sample.make).decode())).map(told)


def _lines(delimiter: str) -> Callable[[Sample], st.SearchStrategy[bytes]]:
    """Tables of texts: cells, rows and columns replaced, taken out and doubled."""

    def strategy(sample: Sample) -> st.SearchStrategy[bytes]:
        raw = saved(sample.name, sample.make)
        packed = sample.name.endswith(".gz")
        sound = list(csv.reader(io.StringIO((gzip.decompress(raw) if packed else raw).decode()), delimiter=delimiter))

        def told(rows: Any) -> bytes:
            out = io.StringIO()
            kept = [row if isinstance(row, list) else [row] for row in rows] if isinstance(rows, list) else [[rows]]
            csv.writer(out, delimiter=delimiter).writerows([[str(cell) for cell in row] for row in kept])
            text = out.getvalue().encode()
            return gzip.compress(text) if packed else text

        return documents(sound).map(told)

    return strategy


def _text(sample: Sample) -> st.SearchStrategy[bytes]:
    """Texts of other grammars: pieces between their marks replaced, taken out and doubled."""
    text = saved(sample.name, sample.make).decode()
    pieces = [piece for piece in re.split(r"([()<>,;:\s\"=/])", text) if piece]
    return documents(pieces).map(
        lambda parts: "".join(map(str, parts if isinstance(parts, list) else [parts])).encode()
    )


def _table(write: Callable[[pa.Table, Path], object]) -> Callable[[Sample], st.SearchStrategy[bytes]]:
    def strategy(sample: Sample) -> st.SearchStrategy[bytes]:
        sound = saved_table(sample)
        return tables(sound).map(lambda table: saved(sample.name, lambda path: write(table, path)))

    return strategy


def saved_table(sample: Sample) -> pa.Table:
    raw = saved(sample.name, sample.make)
    if sample.name.endswith(".parquet"):
        return pq.read_table(io.BytesIO(raw))
    opener = pa.ipc.open_file if raw[:6] == b"ARROW1" else pa.ipc.open_stream
    return opener(pa.BufferReader(raw)).read_all()


@st.composite
def tables(draw: st.DrawFn, sound: pa.Table) -> pa.Table:
    """The table with a column of another type, of nulls, doubled, renamed or taken out; or with rows doubled or none."""
    names, columns = list(sound.column_names), list(sound.columns)
    for _ in range(draw(st.integers(1, 2))):
        if not columns:
            break
        place = draw(st.integers(0, len(columns) - 1))
        rows = len(columns[0])
        kind = draw(st.sampled_from(["type", "type", "nulls", "double", "drop", "name", "empty", "repeat"]))
        if kind == "type":
            columns[place] = pa.chunked_array([draw(st.sampled_from(_odd_columns(rows)))])
        elif kind == "nulls":
            columns[place] = pa.chunked_array([pa.nulls(rows, columns[place].type)])
        elif kind == "double":
            names.append(names[place])
            columns.append(columns[place])
        elif kind == "drop":
            del names[place], columns[place]
        elif kind == "name":
            names[place] = draw(st.sampled_from(TEXTS))
        else:
            picked = (
                pa.array([], pa.int64()) if kind == "empty" else pa.array([0] * rows + list(range(rows)), pa.int64())
            )
            columns = [each.take(picked) for each in columns]
    return pa.Table.from_arrays(columns, names=names).replace_schema_metadata(sound.schema.metadata)


def _odd_columns(rows: int) -> list[pa.Array]:
    """Columns that a careless writer, or a foul one, may leave."""
    return [
        pa.array([True] * rows),
        pa.array([2**63 - 1] * rows),
        pa.array([-1.5] * rows),
        pa.array([float("nan")] * rows),
        pa.array([b"\xff"] * rows),
        pa.array(["a"] * rows),
        pa.array(["a"] * rows).dictionary_encode(),
        pa.array([[1.0] * (number % 3) for number in range(rows)], pa.list_(pa.float64())),
        pa.array([["a"]] * rows),
        pa.array([{"x": 1}] * rows),
        pa.array([0] * rows, pa.timestamp("us")),
        pa.array([None] * rows, pa.null()),
        pa.array([1] * rows, pa.decimal128(5, 2)),
    ]


ARRAYS = [
    np.zeros(0), np.zeros((0, 4), np.float32), np.ones((20, 0), np.float32), np.ones((1, 1, 1)), np.float32(1), np.ones((3, 4)),
    np.full((20, 4), np.nan), np.full((20, 4), np.inf, np.float16), np.ones((20, 4), np.int64), np.ones((20, 4), bool),
    np.ones((20, 4), np.complex64), np.array(["a"] * 20), np.array([b"\xff"] * 20), np.ones((20, 4), ">f8"),
    np.zeros(20, [("a", "i4")]), np.zeros(20, "M8[s]"), np.ones((4, 20), np.float32).T,
]  # fmt: skip


def _arrays(
    load: Callable[[bytes], dict[str, Any]], write: Callable[[Path, dict[str, Any]], object]
) -> Callable[[Sample], st.SearchStrategy[bytes]]:
    """Archives of arrays: one replaced, renamed, taken out or added."""

    def strategy(sample: Sample) -> st.SearchStrategy[bytes]:
        sound = load(saved(sample.name, sample.make))

        @st.composite
        def changed(draw: st.DrawFn) -> bytes:
            members = dict(sound)
            name = draw(st.sampled_from(sorted(members)))
            array = draw(st.sampled_from(ARRAYS))
            kind = draw(st.sampled_from(["replace", "replace", "rename", "drop", "add"]))
            if kind == "replace":
                members[name] = array
            elif kind == "add":
                members[draw(st.sampled_from(["more", "ids ", "vectors2"]))] = array
            else:
                own = members.pop(name)
                members |= {} if kind == "drop" else {draw(st.sampled_from(["x", "IDS", "embedding "])): own}
            return saved(sample.name, lambda path: write(path, members))

        return changed()

    return strategy


def _npy(sample: Sample) -> st.SearchStrategy[bytes]:
    return st.sampled_from(ARRAYS).map(lambda array: saved(sample.name, lambda path: np.save(path, array)))


def _write_safetensors(path: Path, members: dict[str, Any]) -> None:
    plain = {
        name: np.ascontiguousarray(each) for name, each in members.items() if np.asarray(each).dtype.kind in "fiub"
    }
    save_file({name: each.astype(each.dtype.newbyteorder("=")) for name, each in plain.items()}, path)


def _write_pt(path: Path, members: dict[str, Any]) -> None:
    arrays = (np.ndarray, np.generic)
    torch.save({name: each.tolist() if isinstance(each, arrays) else each for name, each in members.items()}, path)


def _picture(sample: Sample) -> st.SearchStrategy[bytes]:
    modes = ["1", "L", "RGB", "CMYK"] if sample.name.endswith("jpg") else ["1", "L", "LA", "P", "RGB", "RGBA", "I;16"]
    sizes = st.tuples(st.sampled_from([1, 2, 300]), st.sampled_from([1, 3, 2000]))
    made = st.builds(lambda mode, size: Image.new(mode, size), st.sampled_from(modes), sizes)
    kinds = {"jpg": "JPEG", "png": "PNG"}

    def told(image: Image.Image) -> bytes:
        out = io.BytesIO()
        image.save(out, kinds[sample.name.rpartition(".")[2]])
        return out.getvalue()

    return made.map(told)


def _write_ipc(table: pa.Table, path: Path) -> None:
    with pa.ipc.new_file(str(path), table.schema) as out:
        out.write_table(table)


MAKERS: dict[str, Callable[[Sample], st.SearchStrategy[bytes]]] = {
    "json": _json, "yaml": _yaml, "toml": _toml, "csv": _lines(","), "csv.gz": _lines(","), "tsv": _lines("\t"),
    "trec": _lines(" "), "nwk": _text, "graphml": _text, "parquet": _table(pq.write_table), "arrow": _table(_write_ipc),
    "npz": _arrays(lambda raw: dict(np.load(io.BytesIO(raw))), lambda path, members: np.savez(path, **members)), "npy": _npy,
    "safetensors": _arrays(load, _write_safetensors),
    "pt": _arrays(lambda raw: dict(torch.load(io.BytesIO(raw), weights_only=True)), _write_pt),
    "png": _picture, "jpg": _picture,
}  # fmt: skip
