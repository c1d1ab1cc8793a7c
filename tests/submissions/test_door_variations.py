"""Rankings and vectors written in ways that nobody listed: whatever tool wrote them, they are read
as what they were.
"""

import csv
import gzip
import io
import json
import random
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hbench.core.errors import HBenchError
from hbench.submissions import embeddings
from hbench.submissions.rankings import files as run_files
from tests.hostile.corpus import mutated

NAME = st.text("abcXYZ019_-./é#:", min_size=1, max_size=8).filter(
    lambda name: name != "-1" and name.strip("[](){}'\"")
)
LISTS = st.dictionaries(
    NAME, st.lists(NAME, min_size=2, max_size=6, unique=True), min_size=2, max_size=5
)
QUERY = st.sampled_from(["query", "query_id", "qid", "q_id", "Query", "QID", "queryid"])
ITEM = st.sampled_from(
    ["item", "docno", "doc_id", "document_id", "docid", "item_id", "DocNo", "gallery_id"]
)
VALUE = st.sampled_from(["score", "rank", "distance", "similarity", "Score", "dist", "position"])
ENDS = st.sampled_from(["\n", "\r\n"])


def rows_of(lists):
    return [
        (query, item, rank) for query, items in lists.items() for rank, item in enumerate(items)
    ]


def value_of(name, rank):
    """Scores fall with the rank; ranks and distances grow."""
    return {"s": 0.9 - rank / 10, "r": rank + 1, "p": rank, "d": rank * 1.5}[name[0].lower()]


def as_lists(ranking):
    bounds = zip(ranking.offsets[:-1], ranking.offsets[1:], strict=True)
    lists = [ranking.names[ranking.items[start:end]].tolist() for start, end in bounds]
    return dict(zip(ranking.queries.tolist(), lists, strict=True))


def read_back(name, content):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
        assert run_files.kind_of(path) == "ranking"
        return run_files.read(path)


def counts(lists):
    return f"{len(lists)} queries, {sum(map(len, lists.values()))} items listed"


@settings(max_examples=200, deadline=None)
@given(st.data(), LISTS)
def test_runs_of_any_layout_are_read(data, lists):
    between = data.draw(st.sampled_from([" ", "\t", "  ", " \t "]))
    lines = [
        between.join([q, "Q0", i, str(rank + 1), repr(0.9 - rank / 10), "tag"])
        for q, i, rank in rows_of(lists)
    ]
    lines = data.draw(st.permutations(lines))
    before = data.draw(st.lists(st.sampled_from(["", " ", "\t"]), max_size=3))
    header = data.draw(
        st.sampled_from(
            [[], ["qid Q0 docno rank score tag"], ["query_id iter doc_id rank score run"]]
        )
    )
    end = data.draw(ENDS)
    text = (
        data.draw(st.sampled_from(["", "\ufeff"]))
        + end.join([*before, *header, *lines])
        + data.draw(st.sampled_from(["", end, end * 3]))
    )
    name = data.draw(
        st.sampled_from(["r.trec", "r.run", "r.res", "r.txt", "r", "r.trec.gz", "r.txt.gz", "r.gz"])
    )
    found = read_back(name, text.encode())
    assert as_lists(found) == {query: lists[query] for query in found.queries}
    assert len(found) == len(lists)
    assert counts(lists) in found.understood[0]
    assert found.remarks == ()


def sheet(header, rows, delimiter, quoting, end):
    text = io.StringIO()
    writer = csv.writer(text, delimiter=delimiter, quoting=quoting, lineterminator=end)
    writer.writerows([header, *rows])
    return text.getvalue()


@settings(max_examples=300, deadline=None)
@given(st.data(), LISTS, QUERY, ITEM, VALUE)
def test_tables_of_rows_are_read_whatever_their_delimiter_order_and_further_columns(
    data, lists, query, item, value
):
    columns = {query: 0, item: 1, value: 2}
    extra = data.draw(
        st.lists(
            st.sampled_from(["", "iter", "tag", "Usage", "Unnamed: 0"]), max_size=2, unique=True
        )
    )
    header = data.draw(st.permutations([*columns, *extra]))
    rows = [
        [{query: q, item: i, value: value_of(value, rank)}.get(name, number) for name in header]
        for number, (q, i, rank) in enumerate(rows_of(lists))
    ]
    delimiter = data.draw(st.sampled_from([",", ";", "\t", "|"]))
    text = sheet(
        header,
        rows,
        delimiter,
        data.draw(st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL, csv.QUOTE_NONNUMERIC])),
        data.draw(ENDS),
    )
    if delimiter == ";" and data.draw(st.booleans()):
        text = "sep=;\n" + text
    name = data.draw(st.sampled_from(["r.csv", "r.tsv", "r.txt", "r", "r.csv.gz"]))
    found = read_back(name, text.encode())
    assert as_lists(found) == lists
    assert counts(lists) in found.understood[0]
    assert all(f"column {name or '(empty)'}" in found.understood[0] for name in extra)


@settings(max_examples=200, deadline=None)
@given(st.data(), LISTS, QUERY, ITEM, VALUE)
def test_parquet_rows_are_read_whatever_their_names_and_types(data, lists, query, item, value):
    rows = rows_of(lists)
    texts = st.sampled_from(
        [pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string()), pa.string_view()]
    )
    numbers = st.sampled_from(
        [pa.float64(), pa.float32(), pa.float16()]
        if value[0].lower() in "sd"
        else [pa.int64(), pa.int32(), pa.uint8()]
    )
    columns = {
        query: pa.array([q for q, *_ in rows], data.draw(texts)),
        item: pa.array([i for _, i, _ in rows], data.draw(texts)),
        value: pa.array(np.array([value_of(value, rank) for *_, rank in rows]), pa.float64()).cast(
            data.draw(numbers), safe=False
        ),
        "more": pa.array(range(len(rows))),
    }
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "r.parquet"
        pq.write_table(
            pa.table({name: columns[name] for name in data.draw(st.permutations(sorted(columns)))}),
            path,
        )
        assert run_files.kind_of(path) == "ranking"
        assert as_lists(run_files.read(path)) == lists


PLAIN = st.text("abcXYZ01_-./", min_size=1, max_size=8).filter(
    lambda name: name != "-1" and not name.replace(".", "").isdigit()
)
PLAIN_LISTS = st.dictionaries(
    PLAIN, st.lists(PLAIN, min_size=2, max_size=6, unique=True), min_size=2, max_size=5
)
MARKS = {"blanks": " ".join, "two blanks": "  ".join, "commas": ",".join, "bars": "|".join, "semicolons": "; ".join, "a list": repr,
         "an array": lambda items: f"[{' '.join(map(repr, items))}]",
         "JSON": json.dumps}  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(st.data(), PLAIN_LISTS, st.sampled_from(sorted(MARKS)))
def test_lists_are_read_whatever_stands_between_their_items_and_beside_them(data, lists, marks):
    own = data.draw(
        st.sampled_from(
            [
                ("id", "images"),
                ("Id", "Images"),
                ("query_id", "results"),
                ("image", "predictions"),
                ("qid", "docs"),
            ]
        )
    )
    first = data.draw(st.sampled_from([[], [""], ["Unnamed: 0"], ["index"]]))
    last = data.draw(st.sampled_from([[], ["Usage"]]))
    rows = [
        [*[number] * len(first), query, MARKS[marks](items), *["Public"] * len(last)]
        for number, (query, items) in enumerate(lists.items())
    ]
    delimiter = data.draw(st.sampled_from([",", "\t"]))
    quoting = data.draw(st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]))
    text = sheet([*first, *own, *last], rows, delimiter, quoting, data.draw(ENDS))
    if marks in ("commas", "bars") and own[0].casefold() != "id":
        return  # cells without blanks show no lists under another header
    found = read_back(data.draw(st.sampled_from(["s.csv", "s.csv.gz"])), text.encode())
    assert as_lists(found) == lists
    assert (found.scores, counts(lists) in found.understood[0]) == (None, True)


@settings(max_examples=100, deadline=None)
@given(LISTS, st.sampled_from([0, 1]), st.sampled_from([1, -1]))
def test_distances_are_seen_in_any_lists_and_scores_are_not_taken_for_them(lists, start, sign):
    lines = [
        f"{q} Q0 {i} {rank + start} {-sign * (rank + 0.5)} t\n" for q, i, rank in rows_of(lists)
    ]
    told = " ".join(map(str, read_back("r.trec", "".join(lines).encode()).remarks))
    assert ("are these distances" in told) == (sign == -1)


IDS = st.lists(
    st.text("abcXYZ./_- é", min_size=1, max_size=9).map(lambda name: f"k{name.strip()}"),
    min_size=3,
    max_size=9,
    unique=True,
)
VECTOR_KEYS = st.sampled_from(
    ["features", "feats", "emb", "X", "z", "image_embeds", "embeddings", "Vectors"]
)
ID_KEYS = st.sampled_from(
    ["paths", "filenames", "image_id", "names", "keys_of_images", "ids", "Id"]
)


def vectors_for(ids, dim=4, seed=0):
    return np.random.default_rng(seed).standard_normal((len(ids), dim)).astype(np.float32)


def npz_of_other_names(folder, data, ids, vectors):
    held = {
        data.draw(VECTOR_KEYS): vectors,
        data.draw(ID_KEYS): np.array(ids),
        "labels": np.zeros(len(ids), int),
    }
    np.savez(
        folder / "e.npz", **{name: held[name] for name in data.draw(st.permutations(sorted(held)))}
    )
    return folder / "e.npz"


def torch_of_other_names(folder, data, ids, vectors):
    held = {
        data.draw(VECTOR_KEYS): torch.from_numpy(vectors),
        data.draw(ID_KEYS): list(ids),
        "labels": torch.zeros(len(ids)).long(),
    }
    torch.save(
        {name: held[name] for name in data.draw(st.permutations(sorted(held)))}, folder / "e.pt"
    )
    return folder / "e.pt"


def one_under_each_id(folder, data, ids, vectors):
    torch.save(dict(zip(ids, torch.from_numpy(vectors), strict=True)), folder / "e.pt")
    return folder / "e.pt"


def wide_columns(data, ids, vectors):
    prefix, start = (
        data.draw(st.sampled_from(["f", "dim_", "emb.", "v", "feature "])),
        data.draw(st.sampled_from([0, 1])),
    )
    columns = {
        f"{prefix}{start + place:0{data.draw(st.sampled_from([1, 3]))}}": column.tolist()
        for place, column in enumerate(vectors.T)
    }
    columns |= {
        data.draw(st.sampled_from(["id", "image_id", "filename", "path"])): list(ids),
        "label": [7] * len(ids),
    }
    return {name: columns[name] for name in data.draw(st.permutations(sorted(columns)))}


def wide_parquet(folder, data, ids, vectors):
    pq.write_table(pa.table(wide_columns(data, ids, vectors)), folder / "e.parquet")
    return folder / "e.parquet"


def wide_csv(folder, data, ids, vectors):
    columns = wide_columns(data, ids, vectors)
    delimiter = data.draw(st.sampled_from([",", ";", "\t", "|"]))
    text = sheet(
        [*columns],
        zip(*columns.values(), strict=True),
        delimiter,
        data.draw(st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL])),
        data.draw(ENDS),
    )
    (folder / "e.csv").write_text(text, encoding="utf-8", newline="")
    return folder / "e.csv"


def csv_without_a_header(folder, data, ids, vectors):
    rows = [[name, *row.tolist()] for name, row in zip(ids, vectors, strict=True)]
    delimiter = data.draw(st.sampled_from([",", ";", "\t", "|"]))
    (folder / "e.csv").write_text(
        sheet(rows[0], rows[1:], delimiter, csv.QUOTE_MINIMAL, data.draw(ENDS)),
        encoding="utf-8",
        newline="",
    )
    return folder / "e.csv"


def json_lines(folder, data, ids, vectors):
    keys = data.draw(
        st.sampled_from(
            [("id", "embedding"), ("path", "features"), ("name", "x"), ("image_id", "vec")]
        )
    )
    lines = [
        json.dumps(
            {keys[0]: name, "n": 1, keys[1]: row.tolist()}, ensure_ascii=data.draw(st.booleans())
        )
        for name, row in zip(ids, vectors, strict=True)
    ]
    (folder / "e.jsonl").write_text("\n".join(lines), encoding="utf-8")
    return folder / "e.jsonl"


def array_beside_json(folder, data, ids, vectors):
    np.save(folder / "e.npy", vectors)
    content = data.draw(
        st.sampled_from(
            [list(ids), [[name] for name in ids], {name: row for row, name in enumerate(ids)}]
        )
    )
    (
        folder / data.draw(st.sampled_from(["e.ids.json", "e_ids.json", "ids.json", "paths.json"]))
    ).write_text(json.dumps(content))
    return folder / "e.npy"


FORMS = [
    npz_of_other_names,
    torch_of_other_names,
    one_under_each_id,
    wide_parquet,
    wide_csv,
    csv_without_a_header,
    json_lines,
    array_beside_json,
]


@pytest.mark.parametrize("write", FORMS, ids=lambda write: write.__name__)
@settings(max_examples=60, deadline=None)
@given(data=st.data(), ids=IDS)
def test_vectors_are_read_in_the_forms_that_people_have(write, data, ids):
    vectors = vectors_for(ids)
    with tempfile.TemporaryDirectory() as folder:
        found = embeddings.read(write(Path(folder), data, ids, vectors))
    assert found.ids.tolist() == ids
    np.testing.assert_allclose(found.vectors, vectors, rtol=1e-6)


SOUND = {
    "e.csv": b"id,f0,f1,f2\n"
    + b"".join(b"im%d.jpg,%d,0.5,-1e-3\n" % (row, row) for row in range(9)),
    "n.csv": b"".join(b"im%d.jpg;%d,5;0,5\n" % (row, row) for row in range(9)),
    "l.csv": b'id,embedding\na,"[0.1, 0.2]"\nb,"[0.3, 0.4]"\n',
    "e.jsonl": b'{"id": "a", "embedding": [0.1, 0.2]}\n{"id": "b", "embedding": [0.3, 0.4]}\n',
    "r.csv": b"query,item,rank,score\nq,a,1,0.9\nq,b,2,0.8\nr,a,1,0.9\n",
    "s.csv": b",id,images,Usage\n0,q,a b c,Public\n1,r,d e,Private\n",
    "b.csv": b"qid\tdocs\nq\t['a', 'b']\nr\t['c']\n",
    "r.trec": b"\nq Q0 a 1 0.9 t\nq Q0 b 2 0.8 t\n",
    "r.trec.gz": gzip.compress(b"q Q0 a 1 0.9 t\nq Q0 b 2 0.8 t\n"),
}


@pytest.mark.parametrize("name", SOUND)
def test_damaged_texts_are_read_or_refused_in_words(tmp_path, name):
    draws, told = random.Random(name), []
    path = tmp_path / name
    for _ in range(300):
        path.write_bytes(mutated(SOUND[name], draws))
        for read in (embeddings.read, run_files.read, run_files.kind_of):
            try:
                read(path)
            except HBenchError as error:
                told.append(str(error))
    assert 0 < max(map(len, told)) < 2000
