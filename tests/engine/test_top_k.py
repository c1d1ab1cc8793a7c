"""The first results kept in the pass of the metrics: those of a full sort, and the metrics are what
they are without them.
"""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hbench.engine.settings import Settings
from hbench.engine.sides import Side
from hbench.engine.top_k import NO_ITEM, STRIPES, TopResults, candidates
from hbench.evaluation.measurement import Retrieval, job_of, measure

pytestmark = pytest.mark.fast


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 2**32),
    st.sampled_from([1, 5, 40, STRIPES]),
    st.sampled_from([3, 600, 2 * STRIPES, 3 * STRIPES + 77]),
)
def test_the_best_columns_are_the_first_of_a_full_sort(seed, k, items):
    rng = np.random.default_rng(seed)
    rows = rng.integers(0, rng.choice([3, 10_000]), (4, items)).astype(np.float32)
    rows[
        rng.random(rows.shape) < rng.choice([0.3, 1.0], (4, 1))
    ] = -np.inf  # of some rows nothing is left
    keys = rng.integers(0, 3, rows.shape)
    of_row, place, column, _ = candidates(rows, k).best(k, lambda row, column: keys[row, column])
    for number, (row, own) in enumerate(zip(rows, keys, strict=True)):
        order = np.lexsort((np.arange(items), own, -row))
        expected = [column for column in order.tolist() if row[column] > -np.inf][:k]
        assert column[of_row == number].tolist() == expected
        assert place[of_row == number].tolist() == list(range(len(expected)))


@pytest.mark.parametrize("k", [1, STRIPES - 1, STRIPES, STRIPES + 1])
def test_not_all_items_are_candidates(k):
    rows = np.random.default_rng(0).random((3, 8 * STRIPES), np.float32)
    assert len(candidates(rows, k).rows) < 0.6 * rows.size


def retrieval(seed, *, split):
    """Integer vectors with many ties, of two levels; queries that are the gallery, or half of the
    items asking the others.
    """
    rng = np.random.default_rng(seed)
    fine = rng.integers(0, 12, 90)
    labels = np.stack([fine // 4, fine], axis=1).astype(np.int32)
    vectors = rng.integers(-2, 3, (90, 4)).astype(np.float32)
    vectors[:, 0] += 3  # no vector of length 0
    sides = [Side(vectors[part], labels[part]) for part in (slice(0, 45), slice(45, 90))]
    ids = np.arange(90).astype(str).astype(object)
    if split:
        return Retrieval(sides[0], sides[1], None, ids[:45])
    return Retrieval(Side(vectors, labels), None, None, ids)


@pytest.mark.parametrize("split", [False, True])
@pytest.mark.parametrize("similarity", ["cosine", "dot", "l2"])
@pytest.mark.parametrize("ties", ["pessimistic", "optimistic"])
def test_results_are_those_of_brute_force_and_no_metric_moves(split, similarity, ties):
    test = retrieval(3, split=split)
    chosen = Settings(metrics=["H-AP", "R@1", "AP"], similarity=similarity, ties=ties).resolve(
        ("genus", "species")
    )
    gallery = test.gallery or test.queries
    queries, ranked = (
        test.queries.vectors.astype(np.float64).copy(),
        gallery.vectors.astype(np.float64).copy(),
    )
    levels = (test.queries.labels[:, None] == gallery.labels[None]).sum(axis=2)
    alone = measure(job_of(test, chosen))
    top = TopResults(len(queries), 100)
    job = replace(job_of(retrieval(3, split=split), chosen), top=top)
    np.testing.assert_array_equal(measure(job).values, alone.values)
    assert top.kept.all()
    products = queries @ ranked.T
    exact = {
        "dot": products,
        "cosine": products
        / np.linalg.norm(queries, axis=1)[:, None]
        / np.linalg.norm(ranked, axis=1),
        "l2": -np.linalg.norm(queries[:, None] - ranked[None], axis=2),
    }[similarity]
    found = top.similarities(job.ranker, similarity)
    for query in range(len(queries)):
        listed = top.items[query] != NO_ITEM
        items = top.items[query][listed]
        assert sorted(items) == [item for item in range(len(ranked)) if split or item != query]
        np.testing.assert_allclose(found[query][listed], exact[query][items], atol=2e-3)
        assert (np.diff(found[query][listed]) <= 1e-6).all()
        np.testing.assert_array_equal(top.levels[query][listed], levels[query][items])
        pairs = zip(top.scores[query][listed], top.levels[query][listed].astype(int), strict=True)
        keys = [(-score, level if ties == "pessimistic" else -level) for score, level in pairs]
        assert keys == sorted(keys)
