"""Arrow's many types: those that hold ids or vectors are read, the others are named, and none is
called damaged.
"""

import datetime
import uuid

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hbench.core.errors import SubmissionError
from hbench.submissions import embeddings
from hbench.submissions.rankings import files as run_files

pytestmark = pytest.mark.fast

UUIDS = [uuid.UUID(int=7**40 * number) for number in (1, 2, 3)]
VECTORS = np.arange(12, dtype=np.float32).reshape(3, 4)
FIXED = pa.FixedSizeListArray.from_arrays(pa.array(VECTORS.ravel()), 4)
NAMES = ["a", "b", "c"]


def stored(folder, name, ids=None, vectors=FIXED):
    table = pa.table({"id": pa.array(NAMES) if ids is None else ids, "embedding": vectors})
    path = folder / name
    if path.suffix == ".parquet":
        pq.write_table(table, path)
    else:
        with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table)
    return path


def tensor(kind, *shape):
    storage = pa.array(VECTORS.tolist(), pa.list_(kind, 4))
    return pa.ExtensionArray.from_storage(pa.fixed_shape_tensor(kind, shape), storage)


both_formats = pytest.mark.parametrize("name", ["e.parquet", "e.arrow"])


@both_formats
@pytest.mark.parametrize("kind", [pa.float16(), pa.float32(), pa.float64()])
@pytest.mark.parametrize("shape", [(4,), (1, 4), (2, 2)])
def test_tensors_of_a_fixed_shape_are_read_as_vectors(tmp_path, name, kind, shape):
    found = embeddings.read(stored(tmp_path, name, vectors=tensor(kind, *shape)))
    np.testing.assert_array_equal(found.vectors, VECTORS)
    assert found.dtype == str(np.dtype(kind.to_pandas_dtype()))


needs_uuid = pytest.mark.skipif(not hasattr(pa, "uuid"), reason="this pyarrow has no such type")


@needs_uuid
@both_formats
def test_ids_of_the_uuid_type_are_read_with_dashes(tmp_path, name):
    found = embeddings.read(
        stored(tmp_path, name, pa.array([each.bytes for each in UUIDS], pa.uuid()))
    )
    assert found.ids.tolist() == [str(each) for each in UUIDS]


@pytest.mark.parametrize(
    ("ids", "texts"),
    [
        (
            pa.ExtensionArray.from_storage(pa.json_(), pa.array(NAMES))
            if hasattr(pa, "json_")
            else pa.array(NAMES),
            NAMES,
        ),
        (pa.array([b"ab1", b"ab2", b"ab3"], pa.binary(3)), ["ab1", "ab2", "ab3"]),
        (pa.array(NAMES).dictionary_encode(), NAMES),
        (pa.array([5, 6, 7], pa.uint8()), ["5", "6", "7"]),
    ],
)
@both_formats
def test_other_types_of_texts_are_read(tmp_path, name, ids, texts):
    assert embeddings.read(stored(tmp_path, name, ids)).ids.tolist() == texts


@pytest.mark.parametrize(
    ("ids", "words"),
    [
        (pa.array([each.bytes for each in UUIDS], pa.binary(16)), "fixed_size_binary[16]"),
        (pa.array([b"\xff\xfe", b"b", b"c"]), "binary that is no UTF-8"),
        (pa.array([{"a": 1}] * 3), "struct<a: int64>"),
        (pa.array([True, False, True]), "bool"),
        (pa.array([1.5, 2.5, 3.5]), "double"),
        (pa.array([["a"], ["b"], ["c"]]), "list<"),
        (pa.array([(1, 2, 3)] * 3, pa.month_day_nano_interval()), "interval"),
    ],
)
@both_formats
def test_types_that_hold_no_ids_are_named(tmp_path, name, ids, words):
    if name == "e.parquet" and "interval" in words:
        pytest.skip("parquet has no such type")
    with pytest.raises(SubmissionError) as caught:
        embeddings.read(stored(tmp_path, name, ids))
    assert words in str(caught.value)
    assert "damaged" not in str(caught.value)


@pytest.mark.parametrize(
    ("vectors", "words"),
    [
        (pa.array([b"1234"] * 3), "are binary"),
        (pa.array(["[1, 2]"] * 3), "are string"),
        (pa.array([{"x": 1.0}] * 3), "are struct<x: double>"),
        (pa.array([[[1.0]]] * 3), "are list<"),
        (pa.array([[datetime.date(2020, 1, 1)]] * 3), "are list<"),
        (pa.array([1.0] * 3), "are double"),
        (pa.array([[("a", 1.0)]] * 3, pa.map_(pa.string(), pa.float64())), "are map<"),
    ],
)
@both_formats
def test_types_that_hold_no_vectors_are_named(tmp_path, name, vectors, words):
    with pytest.raises(SubmissionError) as caught:
        embeddings.read(stored(tmp_path, name, vectors=vectors))
    assert words in str(caught.value)
    assert "damaged" not in str(caught.value)


@needs_uuid
def test_a_file_of_ids_may_have_the_uuid_type(tmp_path):
    np.save(tmp_path / "emb.npy", VECTORS)
    pq.write_table(
        pa.table({"id": pa.array([each.bytes for each in UUIDS], pa.uuid())}),
        tmp_path / "ids.parquet",
    )
    assert embeddings.read(tmp_path / "emb.npy").ids.tolist() == [str(each) for each in UUIDS]


@needs_uuid
def test_a_ranking_may_have_the_uuid_type(tmp_path):
    ids = pa.array([each.bytes for each in UUIDS], pa.uuid())
    pq.write_table(
        pa.table({"query": ids, "item": ids, "score": [1.0, 2.0, 3.0]}), tmp_path / "r.parquet"
    )
    assert run_files.read(tmp_path / "r.parquet").queries.tolist() == [str(each) for each in UUIDS]
