"""Listed positives: scored by the list, not by the labels, from embeddings as from rankings."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hbench
from hbench.datasets import Dataset, Protocol, save
from hbench.datasets import manifest as manifests
from hbench.datasets.dataset import list_of
from hbench.metrics.level_sequence import LevelSequence
from hbench.metrics.protocols import p_at_last, trapezoid_ap
from hbench.records.report_tables import by_test
from hbench.submissions.embeddings import Embeddings
from hbench.submissions.rankings import files as run_files

pytestmark = pytest.mark.fast

QUERIES, GALLERY = ["q1", "q2", "q3"], [f"g{i}" for i in range(8)]


def made(pairs):
    items = [*QUERIES, *GALLERY]
    query = np.arange(len(items)) < len(QUERIES)
    rows = [("one",)] * len(items)  # the labels say that everything is alike
    test = manifests.from_names(items, rows, levels=["landmark"], query=query, gallery=~query)
    return Dataset("listed", "1", Protocol(), None, {"test": test}, lists={"test": list_of(pairs)})


def embeddings(seed):
    vectors = (
        np.random.default_rng(seed).normal(size=(len(QUERIES) + len(GALLERY), 4)).astype(np.float32)
    )
    return Embeddings(
        np.array([*QUERIES, *GALLERY], dtype=object), vectors, "", "made up", "float32"
    )


def expected_ap(submitted, pairs, *, cut=None):
    """The definition: left-out items are gone; precision at every positive, over the number of
    positives (or the cut).
    """
    unit = submitted.vectors / np.linalg.norm(submitted.vectors, axis=1, keepdims=True)
    level = {(query, item): value for query, item, value in pairs}
    values = []
    for row, query in enumerate(QUERIES):
        scores = unit[len(QUERIES) :] @ unit[row]
        order = [GALLERY[i] for i in np.argsort(-scores) if level.get((query, GALLERY[i]), 0) >= 0]
        positives = [level.get((query, item), 0) > 0 for item in order]
        number = min(sum(positives), cut or len(positives))
        total = sum(
            sum(positives[: k + 1]) / (k + 1)
            for k in range(cut or len(positives))
            if positives[k : k + 1] == [True]
        )
        values.append(total / number if number else np.nan)
    return values


PAIRS = st.dictionaries(
    st.tuples(st.sampled_from(QUERIES), st.sampled_from(GALLERY)),
    st.sampled_from([1, -1]),
    max_size=15,
)


@settings(max_examples=40, deadline=None)
@given(PAIRS.filter(lambda judgements: 1 in judgements.values()), st.integers(0, 5))
def test_ap_is_that_of_the_list(judgements, seed):
    pairs = [(*pair, level) for pair, level in judgements.items()]
    submitted = embeddings(seed)
    report = hbench.evaluate(submitted, made(pairs), metrics=["AP", "mAP@3"])
    np.testing.assert_allclose(report.per_query["AP"], expected_ap(submitted, pairs), atol=1e-12)
    np.testing.assert_allclose(
        report.per_query["mAP@3"], expected_ap(submitted, pairs, cut=3), atol=1e-12
    )


def test_a_ranking_is_scored_by_the_list_too(tmp_path):
    pairs = [("q1", "g0", 1), ("q1", "g1", 1), ("q1", "g2", -1), ("q2", "g3", 1), ("q3", "g4", 1)]
    (tmp_path / "run.csv").write_text("id,images\nq1,g2 g5 g0 g0 g1\nq2,g1 g2 g3\n")
    report = hbench.evaluate(
        run_files.read(tmp_path / "run.csv"), made(pairs), metrics=["mAP@5", "R@1", "R@2"]
    )
    # q1: g2 is left out, so g5 g0 (g0) g1: hits at 2 and 4, a repeat holds its rank; q2: a hit at
    # 3; q3: no list
    assert report.per_query["mAP@5"].tolist() == pytest.approx([(1 / 2 + 2 / 4) / 2, 1 / 3, 0.0])
    assert report.per_query["R@2"].tolist() == [1.0, 0.0, 0.0]


def test_embeddings_and_the_ranking_they_give_score_alike(tmp_path):
    pairs = [("q1", "g0", 1), ("q1", "g1", -1), ("q2", "g3", 1), ("q3", "g4", 1), ("q3", "g5", 1)]
    submitted = embeddings(3)
    unit = submitted.vectors / np.linalg.norm(submitted.vectors, axis=1, keepdims=True)
    orders = [np.argsort(-(unit[len(QUERIES) :] @ unit[row])) for row in range(len(QUERIES))]
    lines = [
        f"{query},{' '.join(GALLERY[i] for i in order)}"
        for query, order in zip(QUERIES, orders, strict=True)
    ]
    (tmp_path / "run.csv").write_text("id,images\n" + "\n".join(lines) + "\n")
    by_vectors = hbench.evaluate(submitted, made(pairs), metrics=["mAP@8", "R@1"])
    by_list = hbench.evaluate(
        run_files.read(tmp_path / "run.csv"), made(pairs), metrics=["mAP@8", "R@1"]
    )
    assert by_vectors.scores["mAP@8"] == pytest.approx(by_list.scores["mAP@8"], abs=1e-12)
    assert by_vectors.scores["R@1"] == by_list.scores["R@1"]


# The released evaluator of revisited Oxford and Paris, worked by hand


def sequence_of_ranks(ranks, *, positives, size):
    counts = np.array([size - positives, positives])
    return LevelSequence(np.array(ranks), np.ones(len(ranks), np.uint8), counts)


def test_the_trapezoid_rule_is_the_mean_of_the_precisions_before_and_at_each_positive():
    at_2_and_3 = sequence_of_ranks([2, 3], positives=2, size=5)
    assert trapezoid_ap(at_2_and_3, level=1) == pytest.approx(
        ((0 / 1 + 1 / 2) / 2 + (1 / 2 + 2 / 3) / 2) / 2
    )
    at_1_and_4 = sequence_of_ranks([1, 4], positives=2, size=5)
    assert trapezoid_ap(at_1_and_4, level=1) == pytest.approx(
        ((1 + 1 / 1) / 2 + (1 / 3 + 2 / 4) / 2) / 2
    )
    one_of_two_listed = sequence_of_ranks([1], positives=2, size=5)
    assert trapezoid_ap(one_of_two_listed, level=1) == pytest.approx(((1 + 1 / 1) / 2) / 2)
    assert np.isnan(trapezoid_ap(sequence_of_ranks([], positives=0, size=5), level=1))


def test_released_precision_ends_at_the_last_positive():
    sequence = sequence_of_ranks([1, 3], positives=2, size=20)
    assert [p_at_last(sequence, level=1, cut=cut) for cut in (1, 2, 5, 10)] == [
        1 / 1,
        1 / 2,
        2 / 3,
        2 / 3,
    ]
    assert p_at_last(sequence_of_ranks([], positives=2, size=20), level=1, cut=5) == 0
    assert np.isnan(p_at_last(sequence_of_ranks([], positives=0, size=20), level=1, cut=5))


def test_easy_medium_and_hard_are_scored_as_released(tmp_path):
    """One query; the gallery in ranked order: junk, easy, nothing, hard, easy, nothing."""
    items, parts = [f"g{i}" for i in range(6)], ["junk", "easy", None, "hard", "easy", None]
    roles = {
        "easy": {"easy": 1, "hard": -1, "junk": -1},
        "medium": {"easy": 1, "hard": 1, "junk": -1},
        "hard": {"easy": -1, "hard": 1, "junk": -1},
    }
    test = manifests.from_names(
        ["q", *items],
        [("one",)] * 7,
        levels=["landmark"],
        query=np.arange(7) == 0,
        gallery=np.arange(7) > 0,
    )
    lists = {
        name: list_of(
            ("q", item, role[part]) for item, part in zip(items, parts, strict=True) if part
        )
        for name, role in roles.items()
    }
    protocol = Protocol(metrics=("AP", "P@1", "P@5"), official="official-revisited")
    save(
        Dataset("revisited", "1", protocol, None, dict.fromkeys(roles, test), lists=lists),
        tmp_path / "revisited",
    )
    angles = np.array([0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6])
    vectors = np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)
    submitted = Embeddings(np.array(["q", *items], dtype=object), vectors, "", "made up", "float32")
    report = hbench.evaluate(
        submitted, tmp_path / "revisited", metrics=["AP", "P@1", "P@5"], protocol="official"
    )
    expected = {
        # easy, nothing, easy, nothing: positives at 1 and 3
        "easy": {"AP": ((1 + 1) / 2 + (1 / 2 + 2 / 3) / 2) / 2, "P@1": 1.0, "P@5": 2 / 3},
        # easy, nothing, hard, easy, nothing: positives at 1, 3 and 4
        "medium": {
            "AP": ((1 + 1) / 2 + (1 / 2 + 2 / 3) / 2 + (2 / 3 + 3 / 4) / 2) / 3,
            "P@1": 1.0,
            "P@5": 3 / 4,
        },
        # nothing, hard, nothing: a positive at 2
        "hard": {"AP": (0 + 1 / 2) / 2, "P@1": 0.0, "P@5": 1 / 2},
    }
    assert report.document.by_test == {
        name: pytest.approx(values) for name, values in expected.items()
    }
    assert report.scores["AP"] == pytest.approx(
        np.mean([values["AP"] for values in expected.values()])
    )
    paper = hbench.evaluate(submitted, tmp_path / "revisited", metrics=["AP"])
    assert paper.document.by_test["easy"]["AP"] == pytest.approx((1 / 1 + 2 / 3) / 2)
    cells = by_test(report.document).cells
    assert cells[0] == (
        "AP",
        f"{100 * expected['easy']['AP']:.2f}",
        f"{100 * expected['medium']['AP']:.2f}",
        "25.00",
    )
