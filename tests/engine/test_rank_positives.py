"""The fast paths against the functions of one level sequence: random trees, ties, duplicates,
ignore groups.
"""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hbench.engine.job import Job
from hbench.engine.ranker import Ranker
from hbench.engine.sides import Side
from hbench.engine.similarity import dot
from hbench.evaluation.measurement import measure
from hbench.metrics.level_sequence import optimistic, pessimistic
from hbench.metrics.names import MetricName
from hbench.metrics.protocols import Scorer, Setting, protocols
from hbench.metrics.relevance import alpha
from hbench.tree import LabelTree
from tests.command_line import python
from tests.engine.ways import ALL_COMPARED, ALL_LOOKED_UP, BY_PORTIONS, FORMULAS, MIXED, WAYS, go


def random_sides(rng, depth):
    """Queries and gallery with uneven classes, singletons, small-integer vectors (ties), copies and
    ignore groups.
    """
    items = int(rng.integers(2, 60))
    columns = np.minimum(rng.geometric(0.4, size=(items, depth)), 4)
    paths = np.stack(
        [columns[:, : level + 1] @ 5 ** np.arange(level + 1) for level in range(depth)], axis=1
    )
    labels = LabelTree.from_labels(paths)[1]
    spread = int(rng.integers(1, 5))
    vectors = rng.integers(-spread, spread + 1, size=(items, 3)).astype(np.float32)
    if rng.random() < 0.5:
        vectors += rng.normal(size=vectors.shape).astype(np.float32)
    vectors[:: int(rng.integers(1, 9))] = vectors[0]
    ignore = rng.integers(-1, 4, size=items) if rng.random() < 0.3 else None
    if rng.random() < 0.5:
        return Side(vectors, labels, ignore), None, None
    part = int(rng.integers(1, items))
    groups = [None, None] if ignore is None else [ignore[:part], ignore]
    own = np.where(rng.random(part) < 0.5, np.arange(part), -1)
    return Side(vectors[:part], labels[:part], groups[0]), Side(vectors, labels, groups[1]), own


def every_scorer(depth, labels, keeps_last):
    levels = [f"level{level}" for level in range(1, depth + 1)]
    weights = ":".join(str(2 * level / (depth * (depth + 1))) for level in range(1, depth + 1))
    names = [
        *[
            "H-AP",
            "wAP",
            "ASI",
            "NDCG",
            "NDCG@3",
            "NDCG@100",
            "H-AP@R",
            "H-P@3",
            "H-R@4",
            "HD@1",
            "HD@10",
            "HD-mistake",
        ],
        *("H-AP(relevance=exponential)", "H-AP(alpha=3)", "TR(norm=min)@5"),
        *(f"{base}(weights={weights})" for base in ("wAP", "H-AP")),
        *(f"AP#{level}" for level in levels),
    ]
    for base in ("AP", "mAP@R", "mAP@3", "mAP@100", "R@1", "R@10", "P@5", "TR@4", "ASI"):
        names += [f"{base}/{level}" for level in levels]
    setting = Setting(levels, alpha(), 1.0, labels, keeps_last)
    chosen = [MetricName.parse(name) for name in names]
    return [
        protocol(name, setting)
        for protocol in map(protocols.__getitem__, protocols)
        for name in chosen
    ]


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    st.integers(0, 10**9),
    st.integers(1, 8),
    st.sampled_from([pessimistic, optimistic]),
    st.sampled_from(WAYS),
)
def test_every_way_equals_the_functions_of_one_level_sequence(
    monkeypatch, seed, depth, policy, way
):
    go(monkeypatch, way)
    rng = np.random.default_rng(seed)
    queries, gallery, own = random_sides(rng, depth)
    ranker = Ranker(queries, gallery, self_rows=own, similarity=dot, tie_key=policy)
    scorers = every_scorer(depth, queries.labels, gallery is None)
    fast = measure(Job(ranker, scorers))
    for block in range(ranker.blocks):
        for query, sequence in zip(ranker.rows(block).tolist(), ranker.block(block), strict=True):
            assert fast.counts[query].tolist() == sequence.counts.tolist()
            assert fast.tied[query] == sequence.tied
            first = sequence.levels[0] if len(sequence.ranks) and sequence.ranks[0] == 1 else 0
            assert fast.first_level[query] == first
            slow = [scorer(query, sequence) for scorer in scorers]
            np.testing.assert_allclose(fast.values[:, query], slow, rtol=1e-12, atol=1e-15)


@settings(
    max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    st.integers(0, 10**9),
    st.integers(2, 6),
    st.sampled_from([pessimistic, optimistic]),
    st.sampled_from(WAYS),
)
def test_metrics_of_the_finer_levels_alone_have_the_values_they_have_among_all(
    monkeypatch, seed, depth, policy, way
):
    go(monkeypatch, way)
    rng = np.random.default_rng(seed)
    queries, gallery, own = random_sides(rng, depth)
    ranker = Ranker(queries, gallery, self_rows=own, similarity=dot, tie_key=policy)
    scorers = every_scorer(depth, queries.labels, gallery is None)
    lowest = int(rng.integers(2, depth + 1))
    known = {row: each for row, each in enumerate(scorers) if isinstance(each, Scorer)}
    rows = [row for row, each in known.items() if each.arguments.get("level", 1) >= lowest]
    every, some = (
        measure(Job(ranker, scorers)),
        measure(Job(ranker, [scorers[row] for row in rows])),
    )
    assert np.array_equal(some.values, every.values[rows], equal_nan=True)
    assert np.array_equal(some.first_level, every.first_level)
    assert np.array_equal(some.counts, every.counts)


@pytest.mark.parametrize("way", [FORMULAS, MIXED])
def test_a_list_from_which_everything_is_left_out_has_no_values(monkeypatch, way):
    go(monkeypatch, way)
    query = Side(np.ones((1, 2), np.float32), np.array([[0, 0]]), np.array([1]))
    gallery = Side(np.eye(2, dtype=np.float32), np.array([[0, 0], [1, 1]]), np.array([1, 1]))
    ranker = Ranker(query, gallery, similarity=dot)
    sequence = next(ranker.block(0))
    scorers = every_scorer(2, query.labels, False)
    assert sequence.counts.sum() == 0
    np.testing.assert_array_equal(
        measure(Job(ranker, scorers)).values[:, 0], [scorer(0, sequence) for scorer in scorers]
    )


@pytest.mark.parametrize("way", [FORMULAS, ALL_COMPARED, ALL_LOOKED_UP, BY_PORTIONS])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("crowd", ["constant", "one far away", "two heaps", "infinite"])
def test_scores_that_crowd_into_one_bucket_are_ranked_all_the_same(monkeypatch, way, dtype, crowd):
    go(monkeypatch, way)
    rng = np.random.default_rng(1)
    scores = {
        "constant": np.zeros(500),
        "one far away": np.append(rng.normal(size=499) * 1e-6, 1e6),
        "two heaps": np.append(rng.normal(size=250) * 1e-30, 1 + rng.integers(3, size=250)),
        "infinite": np.append(rng.normal(size=498), [3e38, -3e38]),
    }[crowd]
    labels = np.sort(rng.integers(3, size=(500, 1)), axis=0)
    fine = labels * 4 + rng.integers(4, size=(500, 1))
    vectors = rng.permutation(scores)[:, None].astype(dtype)
    one = Side(np.ones((1, 1), dtype), np.array([[1, 6]]))
    ranker = Ranker(one, Side(vectors, np.column_stack([labels, fine])), similarity=dot)
    scorers = every_scorer(2, one.labels, False)
    fast = measure(Job(ranker, scorers))
    sequence = next(ranker.block(0))
    np.testing.assert_allclose(
        fast.values[:, 0], [scorer(0, sequence) for scorer in scorers], rtol=1e-12
    )


@pytest.mark.parametrize("policy", [pessimistic, optimistic])
@pytest.mark.parametrize("way", [FORMULAS, ALL_LOOKED_UP, BY_PORTIONS])
def test_thousands_of_positives_are_ranked_and_summed_up_tile_by_tile(monkeypatch, way, policy):
    go(monkeypatch, way)
    rng = np.random.default_rng(7)
    classes = np.sort(rng.integers(40, size=7000))
    labels = LabelTree.from_labels(np.column_stack([classes // 20, classes // 5, classes]))[1]
    vectors = rng.normal(size=(len(labels), 2)).astype(np.float32).round(2)  # some scores are equal
    rows = [0, 3600, 6999]
    ranker = Ranker(
        Side(vectors[rows], labels[rows]), Side(vectors, labels), similarity=dot, tie_key=policy
    )
    scorers = every_scorer(3, labels[rows], False)
    fast = measure(Job(ranker, scorers))
    for query, sequence in zip(ranker.rows(0).tolist(), ranker.block(0), strict=True):
        assert len(sequence.ranks) > 3000
        assert fast.tied[query] == sequence.tied
        slow = [scorer(query, sequence) for scorer in scorers]
        np.testing.assert_allclose(fast.values[:, query], slow, rtol=1e-12, atol=1e-15)


def test_code_that_was_just_compiled_and_code_that_was_kept_give_the_same_bits(tmp_path):
    code = """
import numpy as np
from hbench.core import compiled
compiled.SMALL = -1
from hbench.evaluation.arrays import score
from hbench.engine.values.blocks import kernels_are_compiled
labels = np.arange(3000)[:, None] // np.array([1000, 200, 4])
vectors = np.random.default_rng(0).normal(size=(3000, 8)).astype(np.float32)
for name, each in score(vectors, labels).document.scores.items():
    print(name, float(each.value).hex())
print("nothing is left to compile" if kernels_are_compiled() else "something is")
"""
    first, again = (python(code, NUMBA_CACHE_DIR=tmp_path) for _ in range(2))
    assert first == again
    # what no query needed is not asked for in vain each time
    assert first.endswith("nothing is left to compile\n")
    assert list(tmp_path.rglob("*.nbi"))
