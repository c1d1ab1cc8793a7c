"""The decomposability gap against lists ranked one by one, and its bounds against every order of a
few items.
"""

import json
import math
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hbench.core.errors import HBenchError
from hbench.datasets import Dataset, Protocol, manifest, save
from hbench.engine.settings import Settings
from hbench.engine.sides import Side
from hbench.evaluation.gap import gap_of, largest_gap, random_batches, sampled
from hbench.evaluation.measurement import Retrieval
from hbench.submissions import embeddings
from tests import oracle
from tests.command_line import call

pytestmark = pytest.mark.fast

batches_of_counts = st.lists(
    st.tuples(st.integers(0, 2), st.integers(0, 2)), min_size=1, max_size=3
).filter(lambda drawn: any(positive for positive, _ in drawn))


def problem(seed, items=40):
    rng = np.random.default_rng(seed)
    fine = rng.integers(8, size=items)
    labels = np.stack([fine // 4, fine], axis=1)
    vectors = rng.normal(size=(items, 3)) + 0.8 * rng.normal(size=(8, 3))[fine]
    ids = np.array([str(item) for item in range(items)], dtype=object)
    return Retrieval(Side(vectors, labels), None, None, ids)


def ranked(test, query, items):
    others = [item for item in items if item != query]
    vectors, labels = test.queries.vectors, test.queries.labels
    scores = [float(vectors[query] @ vectors[i]) / math.dist(vectors[i], [0, 0, 0]) for i in others]
    return oracle.rank_levels(scores, [oracle.level_of(labels[query], labels[i]) for i in others])


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 10**6))
def test_the_gap_is_that_of_the_definition(seed):
    test, batches = problem(seed), random_batches(40, 9, seed)
    found = gap_of(test, Settings(metrics=["AP", "R@1"]).resolve(["coarse", "fine"]), batches)
    measures = (lambda levels: oracle.ap_at(levels, 2), lambda levels: oracle.recall(levels, 2, 1))
    for row, measure in enumerate(measures):
        inside, whole = [], []
        for query in range(40):
            lists = [ranked(test, query, batch) for batch in batches]
            own = [measure(levels) for levels in lists if 2 in levels]
            if own:
                inside.append(sum(own) / len(own))
                whole.append(measure(ranked(test, query, range(40))))
        assert found.inside[row] == pytest.approx(sum(inside) / len(inside))
        assert found.whole[row] == pytest.approx(sum(whole) / len(whole))
        assert found.queries[row] == len(inside)


@settings(max_examples=40, deadline=None)
@given(batches_of_counts)
def test_no_order_that_is_perfect_inside_every_batch_has_a_larger_gap(drawn):
    items = [
        (batch, kind) for batch, (p, n) in enumerate(drawn) for kind in [True] * p + [False] * n
    ]
    worst = 0.0
    for order in set(permutations(items)) if len(items) <= 6 else {tuple(items)}:
        lists = [[kind for batch, kind in order if batch == own] for own in range(len(drawn))]
        if all(each == sorted(each, reverse=True) for each in lists):
            worst = max(worst, 1 - oracle.ap([kind for _, kind in order]))
    positives, negatives = np.array(drawn).T
    assert worst <= largest_gap(positives, negatives) + 1e-12


@given(st.integers(1, 5), st.integers(0, 9), st.integers(1, 6))
def test_the_bound_is_no_tighter_than_the_papers_for_equal_batches(positives, negatives, batches):
    joined = [
        (batch, j + batch * positives) for batch in range(batches) for j in range(1, positives + 1)
    ]
    paper = 1 - np.mean([rank / (rank + batch * negatives) for batch, rank in joined])
    found = largest_gap(np.full(batches, positives), np.full(batches, negatives))
    assert found >= paper - 1e-12
    if positives == 1:
        assert found == pytest.approx(paper)


def test_calibrated_scores_have_a_smaller_bound():
    p, n = np.array([1, 1]), np.array([0, 2])
    # both positives above α, one negative above β: it alone can come before the second positive
    assert largest_gap(p, n, good_positives=p, bad_negatives=np.array([0, 1])) == pytest.approx(
        1 - (1 + 2 / 3) / 2
    )
    assert largest_gap(p, n, good_positives=p, bad_negatives=0 * n) == 0
    assert largest_gap(p, n, good_positives=0 * p, bad_negatives=n) == largest_gap(p, n)


def test_a_sample_of_the_queries_has_the_values_that_they_have_among_all():
    test, batches, chosen = (
        problem(3),
        random_batches(40, 9, 3),
        Settings(metrics=["AP"]).resolve(["coarse", "fine"]),
    )
    some = sampled(test, 12, 0)
    rows = [int(item) for item in some.ids]
    whole = [oracle.ap_at(ranked(test, query, range(40)), 2) for query in rows]
    found = gap_of(some, chosen, batches)
    assert found.queries[0] == 12
    assert found.whole[0] == pytest.approx(sum(whole) / len(whole))


def test_a_gallery_without_own_rows_has_none_of_the_queries():
    test = problem(0)
    half = Side(test.queries.vectors[:9], test.queries.labels[:9])
    chosen = Settings(metrics=["AP"]).resolve(["coarse", "fine"])
    gaps = [
        gap_of(Retrieval(half, test.queries, rows, test.ids[:9]), chosen, random_batches(40, 20, 0))
        for rows in (None, np.full(9, -1))
    ]
    assert gaps[0].inside.tolist() == gaps[1].inside.tolist()
    assert gaps[0].calibrated_bound == gaps[1].calibrated_bound


def test_a_gap_can_be_negative():
    # two batches: one has a query's three neighbours in ideal order, the other its far positive
    # behind a distractor
    vectors = np.array([[0.0], [1], [2], [3], [50], [49]])
    labels = np.array([[0], [0], [0], [0], [0], [1]])
    first = Retrieval(
        Side(vectors[:1], labels[:1]),
        Side(vectors[1:], labels[1:]),
        np.array([-1]),
        np.array(["q"], object),
    )
    found = gap_of(
        first,
        Settings(metrics=["AP"], similarity="l2").resolve(["class"]),
        [np.array([0, 1, 2]), np.array([3, 4])],
    )
    assert found.inside[0] == pytest.approx((1 + 1 / 2) / 2)
    assert found.whole[0] == pytest.approx((3 + 4 / 5) / 4)
    assert found.inside[0] < found.whole[0]
    assert found.calibrated_bound is None


def test_the_verb_shows_the_gap_and_refuses_one_batch(tmp_path):
    labels = tmp_path / "own.csv"
    lines = [f"{item},{item % 6 // 3},{item % 6},test" for item in range(40)]
    labels.write_text("\n".join(["item,coarse,fine,split", *lines]) + "\n")
    vectors = np.random.default_rng(0).normal(size=(40, 4)).astype(np.float32)
    embeddings.write(tmp_path / "mine.parquet", [str(item) for item in range(40)], vectors)
    gap = ("gap", tmp_path / "mine.parquet", "--dataset", labels, "--json", "--batch")
    shown = json.loads(call(*gap, 10).stdout)
    assert shown["metrics"]["AP"]["gap"] <= shown["calibrated_bound"] + 1
    assert shown["signature"].endswith("|queries:40|batch:10|seed:0")
    with pytest.raises(HBenchError):
        call(*gap, 21)
    ids = [str(item) for item in range(39)]
    embeddings.write(tmp_path / "less.parquet", ids, vectors[:39], left_out=["39"])
    shown = json.loads(call("gap", tmp_path / "less.parquet", *gap[2:], 10).stdout)
    assert "|left-out:1(" in shown["signature"]
    assert shown["signature"].endswith("|queries:39|batch:10|seed:0")


def test_several_tests_are_one_document(tmp_path):
    rows = [(f"g{n % 6 // 3}", f"s{n % 6}") for n in range(40)]
    test = manifest.from_names([str(n) for n in range(40)], rows, levels=["genus", "species"])
    save(Dataset("two", "1", Protocol(), None, {"a": test, "b": test}), tmp_path / "two")
    embeddings.write(
        tmp_path / "e.npz", test.items.tolist(), np.random.default_rng(0).normal(size=(40, 4))
    )
    shown = json.loads(
        call("gap", tmp_path / "e.npz", "-d", tmp_path / "two", "--batch", 10, "--json").stdout
    )
    assert [each["signature"].split("|")[1] for each in shown] == ["a", "b"]
