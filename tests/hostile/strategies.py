"""Files that keep their format and hold what no sane writer puts in: other types, doubled and
missing parts, odd numbers.

Flipped bits (tests/hostile/campaign.py) mostly break the format itself; these get past the parser,
to the code that trusts a schema. `altered(sample)` draws such files for each format of the corpus.
"""

import csv
import gzip
import io
import json
import re
import tomllib

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import tomli_w
import torch
import yaml
from hypothesis import strategies as st
from PIL import Image
from safetensors.numpy import load, save_file

from tests.hostile.corpus import saved

NESTED = []
for _ in range(30):
    NESTED = [NESTED]
TEXTS = [
    "", " ", "a", "\x00", "\x1b[31mred", "../../etc/passwd", "/etc/passwd", "x" * 5000, "1e999",
    "-1", "=1+1",
    "\N{RIGHT-TO-LEFT OVERRIDE}",
]  # fmt: skip
PLAIN = st.sampled_from(
    [None, True, False, -1, 0, 1, 2**31, 2**63, -(10**30), 0.5, -1e308, 1e308, *TEXTS]
)
VALUES = st.one_of(
    PLAIN,
    st.sampled_from(
        [[], {}, NESTED, [[]], [None], [1, "a"], {"a": 1}, {"": None}, float("nan"), float("inf")]
    ),
    st.lists(PLAIN, max_size=3),
    st.dictionaries(st.sampled_from(["name", "id", "a", ""]), PLAIN, max_size=2),
)


def altered(sample):
    """Bytes of files of a sample's format, alike and wrong."""
    return MAKERS[sample.name.partition(".")[2]](sample)


def places(value, at=()):
    """The way to every part of a document."""
    yield at
    children = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    for key, child in children:
        yield from places(child, (*at, key))


def put(value, at, change):
    """The document with another part at one place."""
    if not at:
        return change(value)
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[at[0]] = put(copy[at[0]], at[1:], change)
    return copy


@st.composite
def documents(draw, sound):
    """The document after one to three parts were replaced, taken out, doubled or added."""
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.sampled_from(list(places(sound))))
        kind = draw(st.sampled_from(["replace", "replace", "drop", "add", "double"]))
        odd = draw(VALUES)
        sound = put(sound, at, lambda part, kind=kind, odd=odd: _changed(part, kind, odd))
    return sound


def _changed(part, kind, odd):
    if kind == "drop" and isinstance(part, dict | list) and part:
        return dict(list(part.items())[1:]) if isinstance(part, dict) else part[1:]
    if kind == "add" and isinstance(part, dict):
        return {**part, "unheard": odd}
    if kind == "add" and isinstance(part, list):
        return [*part, odd]
    return part * 2 if kind == "double" and isinstance(part, list | str) else odd


def _texts(read, write):
    """Documents of a text format: `read` makes lists and dicts of a text, `write` a text of
    whatever became of them.
    """
    return lambda sample: documents(read(saved(sample.name, sample.make).decode())).map(
        lambda value: write(value).encode()
    )


def _toml(value):
    try:
        return tomli_w.dumps(value if isinstance(value, dict) else {"value": value})
    except (TypeError, ValueError, AttributeError):  # TOML has no null
        return "a = 1\n"


def _cells(delimiter):
    """Tables of texts: cells, rows and columns replaced, taken out and doubled."""

    def write(rows):
        out = io.StringIO()
        kept = (
            [row if isinstance(row, list) else [row] for row in rows]
            if isinstance(rows, list)
            else [[rows]]
        )
        csv.writer(out, delimiter=delimiter).writerows(
            [[str(cell) for cell in row] for row in kept]
        )
        return out.getvalue()

    return (lambda text: list(csv.reader(io.StringIO(text), delimiter=delimiter))), write


def _packed(sample):
    read, write = _cells(",")
    sound = read(gzip.decompress(saved(sample.name, sample.make)).decode())
    return documents(sound).map(lambda rows: gzip.compress(write(rows).encode()))


# texts of other grammars: pieces between their marks replaced, taken out and doubled
_pieces = _texts(
    lambda text: [piece for piece in re.split(r"([()<>,;:\s\"=/])", text) if piece],
    lambda parts: "".join(map(str, parts if isinstance(parts, list) else [parts])),
)


def _table(write):
    return lambda sample: tables(saved_table(sample)).map(
        lambda table: saved(sample.name, lambda path: write(table, path))
    )


def saved_table(sample):
    raw = saved(sample.name, sample.make)
    if sample.name.endswith(".parquet"):
        return pq.read_table(io.BytesIO(raw))
    opener = pa.ipc.open_file if raw[:6] == b"ARROW1" else pa.ipc.open_stream
    return opener(pa.BufferReader(raw)).read_all()


@st.composite
def tables(draw, sound):
    """The table with a column of another type, of nulls, doubled, renamed or taken out; or with
    rows doubled or none.
    """
    names, columns = list(sound.column_names), list(sound.columns)
    for _ in range(draw(st.integers(1, 2))):
        if not columns:
            break
        place = draw(st.integers(0, len(columns) - 1))
        rows = len(columns[0])
        kind = draw(
            st.sampled_from(["type", "type", "nulls", "double", "drop", "name", "empty", "repeat"])
        )
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
            picked = pa.array([] if kind == "empty" else [*[0] * rows, *range(rows)], pa.int64())
            columns = [each.take(picked) for each in columns]
    return pa.Table.from_arrays(columns, names=names).replace_schema_metadata(sound.schema.metadata)


def _odd_columns(rows):
    """Columns that a careless writer, or a foul one, may leave."""
    typed = [(0, pa.timestamp("us")), (None, pa.null()), (1, pa.decimal128(5, 2))]
    plain = [True, 2**63 - 1, -1.5, float("nan"), b"\xff", "a", ["a"], {"x": 1}]
    return [
        *(
            pa.array([value] * rows, kind)
            for value, kind in (*typed, *((value, None) for value in plain))
        ),
        pa.array(["a"] * rows).dictionary_encode(),
        pa.array([[1.0] * (number % 3) for number in range(rows)], pa.list_(pa.float64())),
    ]


ARRAYS = [
    np.zeros(0), np.zeros((0, 4), np.float32), np.ones((20, 0), np.float32), np.ones((1, 1, 1)),
    np.float32(1), np.ones((3, 4)),
    np.full((20, 4), np.nan), np.full((20, 4), np.inf, np.float16), np.ones((20, 4), np.int64),
    np.ones((20, 4), bool),
    np.ones((20, 4), np.complex64), np.array(["a"] * 20), np.array([b"\xff"] * 20),
    np.ones((20, 4), ">f8"),
    np.zeros(20, [("a", "i4")]), np.zeros(20, "M8[s]"), np.ones((4, 20), np.float32).T,
]  # fmt: skip


def _arrays(read, write):
    """Archives of arrays: one replaced, renamed, taken out or added."""

    @st.composite
    def changed(draw, sample):
        members = read(saved(sample.name, sample.make))
        name = draw(st.sampled_from(sorted(members)))
        array = draw(st.sampled_from(ARRAYS))
        kind = draw(st.sampled_from(["replace", "replace", "rename", "drop", "add"]))
        if kind == "replace":
            members[name] = array
        elif kind == "add":
            members[draw(st.sampled_from(["more", "ids ", "vectors2"]))] = array
        else:
            own = members.pop(name)
            members |= (
                {} if kind == "drop" else {draw(st.sampled_from(["x", "IDS", "embedding "])): own}
            )
        return saved(sample.name, lambda path: write(path, members))

    return changed


def _npy(sample):
    return st.sampled_from(ARRAYS).map(
        lambda array: saved(sample.name, lambda path: np.save(path, array))
    )


def _write_safetensors(path, members):
    plain = {
        name: np.ascontiguousarray(a)
        for name, a in members.items()
        if np.asarray(a).dtype.kind in "fiub"
    }
    save_file(
        {name: each.astype(each.dtype.newbyteorder("=")) for name, each in plain.items()}, path
    )


def _write_pt(path, members):
    arrays = (np.ndarray, np.generic)
    torch.save(
        {
            name: each.tolist() if isinstance(each, arrays) else each
            for name, each in members.items()
        },
        path,
    )


def _picture(sample):
    modes = (
        ["1", "L", "RGB", "CMYK"]
        if sample.name.endswith("jpg")
        else ["1", "L", "LA", "P", "RGB", "RGBA", "I;16"]
    )
    sizes = st.tuples(st.sampled_from([1, 2, 300]), st.sampled_from([1, 3, 2000]))
    made = st.builds(Image.new, st.sampled_from(modes), sizes)
    return made.map(lambda image: saved(sample.name, image.save))


def _write_ipc(table, path):
    with pa.ipc.new_file(str(path), table.schema) as out:
        out.write_table(table)


MAKERS = {
    "json": _texts(json.loads, json.dumps),
    "yaml": _texts(yaml.safe_load, lambda value: yaml.safe_dump(value, allow_unicode=True)),
    "toml": _texts(tomllib.loads, _toml),
    "csv": _texts(*_cells(",")), "csv.gz": _packed, "tsv": _texts(*_cells("\t")),
    "trec": _texts(*_cells(" ")),
    "nwk": _pieces, "graphml": _pieces, "parquet": _table(pq.write_table),
    "arrow": _table(_write_ipc),
    "npz": _arrays(lambda raw: dict(np.load(io.BytesIO(raw))), lambda path, members: np.savez(path, **members)), "npy": _npy,
    "safetensors": _arrays(load, _write_safetensors),
    "pt": _arrays(lambda raw: dict(torch.load(io.BytesIO(raw), weights_only=True)), _write_pt),
    "png": _picture, "jpg": _picture,
}  # fmt: skip
