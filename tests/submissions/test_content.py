"""The content of a submission: what its ids and vectors, or its lists, are, whatever file they lie
in.
"""

import hashlib
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hbench.submissions import content, embeddings
from hbench.submissions.rankings import files as rankings


def by_hand(ids, vectors):
    """The digest by the words of its definition, item by item."""
    pairs = sorted(zip(ids, vectors.tolist(), strict=True), key=lambda pair: pair[0].encode())
    dtype = vectors.dtype.newbyteorder("<")
    whole = f"hbench vectors {dtype.str} {vectors.shape[0]} {vectors.shape[1]}\n".encode()
    for start in range(0, len(pairs), 4096):
        some = pairs[start : start + 4096]
        names = json.dumps([name for name, _ in some]).encode()
        rows = b"".join(np.array(row, dtype).tobytes() for _, row in some)
        whole += hashlib.sha256(names + b"\0" + rows).digest()
    return hashlib.sha256(whole).hexdigest()


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", ">f4"])
def test_it_is_what_its_definition_says(dtype):
    rng = np.random.default_rng(0)
    ids = [f"é{n}" if n % 7 else f"z/{n}" for n in range(9000)]
    vectors = rng.normal(size=(9000, 3)).astype(dtype)
    assert content.of_vectors(ids, vectors) == by_hand(ids, vectors)


@given(st.permutations(range(6)))
def test_the_order_of_rows_changes_nothing(order):
    vectors = np.arange(12, dtype=np.float32).reshape(6, 2)
    ids = np.array(["b", "a", "é", "Z", "aa", "10"], dtype=object)
    assert content.of_vectors(ids[order], vectors[order]) == content.of_vectors(ids, vectors)


@pytest.mark.parametrize("suffix", [".npz", ".npy", ".parquet"])
def test_no_container_changes_it(tmp_path, suffix):
    vectors = np.random.default_rng(0).normal(size=(9, 4)).astype(np.float16)
    ids = [f"{n}.png" for n in range(9)]
    embeddings.write(tmp_path / f"a{suffix}", ids, vectors, metadata={"recipe": "any"})
    assert embeddings.read(tmp_path / f"a{suffix}").content == content.of_vectors(ids, vectors)


def test_a_number_an_id_and_a_type_change_it():
    vectors = np.eye(3, dtype=np.float32)
    found = {
        content.of_vectors(["a", "b", "c"], vectors),
        content.of_vectors(["a", "b", "d"], vectors),
        content.of_vectors(["b", "a", "c"], vectors),
        content.of_vectors(["a", "b", "c"], np.nextafter(vectors, np.float32(2))),
        content.of_vectors(["a", "b", "c"], vectors.astype(np.float16)),
        content.of_vectors(["a", "b", "c"], vectors.reshape(3, 3)[:, :2]),
    }
    assert len(found) == 6


def test_lists_are_the_same_in_any_order_of_queries_and_another_by_any_item(tmp_path):
    texts = {
        "a": "id,images\nq1,a b c\nq2,c a\n",
        "b": "id,images\nq2,c a\nq1,a b c\n",
        "c": "id,images\nq1,a c b\nq2,c a\n",
        "d": "query,item,score\nq1,a,3\nq1,b,2\nq1,c,1\nq2,c,2\nq2,a,1\n",
    }
    found = {}
    for name, text in texts.items():
        (tmp_path / f"{name}.csv").write_text(text)
        found[name] = rankings.read(tmp_path / f"{name}.csv").content
    assert found["a"] == found["b"]
    assert len(set(found.values())) == 3
