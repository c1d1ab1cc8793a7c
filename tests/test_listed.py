"""Listed positives: scored by the list, not by the labels, from embeddings as from rankings."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hbench
from hbench import manifest as manifests
from hbench.datasets import Dataset, Protocol
from hbench.datasets.lists import list_of
from hbench.embeddings import Embeddings
from hbench.runs import files as run_files

QUERIES, GALLERY = ["q1", "q2", "q3"], [f"g{i}" for i in range(8)]


def made(pairs):
    items = [*QUERIES, *GALLERY]
    query = np.arange(len(items)) < len(QUERIES)
    rows = [("one",)] * len(items)  # the labels say that everything is alike
    test = manifests.from_names(items, rows, levels=["landmark"], query=query, gallery=~query)
    return Dataset("listed", "1", Protocol(), None, {"test": test}, lists={"test": list_of(pairs)})


def embeddings(seed):
    vectors = np.random.default_rng(seed).normal(size=(len(QUERIES) + len(GALLERY), 4)).astype(np.float32)
    return Embeddings(np.array([*QUERIES, *GALLERY], dtype=object), vectors, "", "made up", "float32")


def expected_ap(submitted, pairs, *, cut=None):
    """The definition: left-out items are gone; precision at every positive, over the number of positives (or the cut)."""
    unit = submitted.vectors / np.linalg.norm(submitted.vectors, axis=1, keepdims=True)
    level = {(query, item): value for query, item, value in pairs}
    values = []
    for row, query in enumerate(QUERIES):
        scores = unit[len(QUERIES) :] @ unit[row]
        order = [GALLERY[i] for i in np.argsort(-scores) if level.get((query, GALLERY[i]), 0) >= 0]
        positives = [level.get((query, item), 0) > 0 for item in order]
        number = min(sum(positives), cut or len(positives))
        total = sum(
            sum(positives[: k + 1]) / (k + 1) for k in range(cut or len(positives)) if positives[k : k + 1] == [True]
        )
        values.append(total / number if number else np.nan)
    return values


PAIRS = st.dictionaries(
    st.tuples(st.sampled_from(QUERIES), st.sampled_from(GALLERY)), st.sampled_from([1, -1]), max_size=15
)


@settings(max_examples=40, deadline=None)
@given(PAIRS.filter(lambda judgements: 1 in judgements.values()), st.integers(0, 5))
def test_ap_is_that_of_the_list(judgements, seed):
    pairs = [(*pair, level) for pair, level in judgements.items()]
    submitted = embeddings(seed)
    report = hbench.evaluate(submitted, made(pairs), metrics=["AP", "mAP@3"])
    np.testing.assert_allclose(report.per_query["AP"], expected_ap(submitted, pairs), atol=1e-12)
    np.testing.assert_allclose(report.per_query["mAP@3"], expected_ap(submitted, pairs, cut=3), atol=1e-12)


def test_a_ranking_is_scored_by_the_list_too(tmp_path):
    pairs = [("q1", "g0", 1), ("q1", "g1", 1), ("q1", "g2", -1), ("q2", "g3", 1), ("q3", "g4", 1)]
    (tmp_path / "run.csv").write_text("id,images\nq1,g2 g5 g0 g0 g1\nq2,g1 g2 g3\n")
    report = hbench.evaluate(run_files.read(tmp_path / "run.csv"), made(pairs), metrics=["mAP@5", "R@1", "R@2"])
    # q1: g2 is left out, so g5 g0 (g0) g1: hits at 2 and 4, a repeat holds its rank; q2: a hit at 3; q3: no list
    assert report.per_query["mAP@5"].tolist() == pytest.approx([(1 / 2 + 2 / 4) / 2, 1 / 3, 0.0])
    assert report.per_query["R@2"].tolist() == [1.0, 0.0, 0.0]


def test_embeddings_and_the_ranking_they_give_score_alike(tmp_path):
    pairs = [("q1", "g0", 1), ("q1", "g1", -1), ("q2", "g3", 1), ("q3", "g4", 1), ("q3", "g5", 1)]
    submitted = embeddings(3)
    unit = submitted.vectors / np.linalg.norm(submitted.vectors, axis=1, keepdims=True)
    orders = [np.argsort(-(unit[len(QUERIES) :] @ unit[row])) for row in range(len(QUERIES))]
    lines = [f"{query},{' '.join(GALLERY[i] for i in order)}" for query, order in zip(QUERIES, orders, strict=True)]
    (tmp_path / "run.csv").write_text("id,images\n" + "\n".join(lines) + "\n")
    by_vectors = hbench.evaluate(submitted, made(pairs), metrics=["mAP@8", "R@1"])
    by_list = hbench.evaluate(run_files.read(tmp_path / "run.csv"), made(pairs), metrics=["mAP@8", "R@1"])
    assert by_vectors.scores["mAP@8"] == pytest.approx(by_list.scores["mAP@8"], abs=1e-12)
    assert by_vectors.scores["R@1"] == by_list.scores["R@1"]
