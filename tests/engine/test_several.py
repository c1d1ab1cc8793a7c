"""Items of several right paths in the engine: every way against double loops over all pairs of
paths.
"""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hbench.engine.executors.gpu import on_devices
from hbench.engine.executors.kept_blocks import kept_in
from hbench.engine.executors.threads import on_threads
from hbench.engine.job import Job
from hbench.engine.ranker import Ranker
from hbench.engine.sides import Side
from hbench.engine.similarity import dot
from hbench.engine.top_k import TopResults
from hbench.evaluation.measurement import measure
from hbench.metrics.level_sequence import optimistic, pessimistic
from hbench.metrics.names import MetricName
from hbench.metrics.protocols import Setting, paper
from hbench.metrics.relevance import alpha
from hbench.tree.several import MorePaths, Paths, split_first_paths
from tests import oracle
from tests import oracle_partial as bounds
from tests.engine.test_partial import expected_values, labelled, levels_of, random_paths, scorers
from tests.engine.ways import MIXED, WAYS, go, small_blocks

METRICS = (
    "H-AP",
    "wAP",
    "ASI",
    "NDCG",
    "NDCG@3",
    "HD@2",
    "AP",
    "AP/level1",
    "R@1",
    "R@4/level1",
    "mAP@R",
    "MRR",
)


def sides(rng, depth, share):
    """Queries, gallery (None: the queries), the queries' own rows, and the paths of every item;
    scores tie, and some items are copies, distractors or of one ignore group."""
    items = int(rng.integers(2, 40))
    numbers = np.minimum(rng.geometric(0.6, items), 3)
    flat = random_paths(rng, int(numbers.sum()), depth, share)
    starts = np.cumsum(numbers) - numbers
    paths = [flat[start : start + number] for start, number in zip(starts, numbers, strict=True)]
    for item in np.flatnonzero(rng.random(items) < 0.15).tolist():
        paths[item] = [(f"none {item}",) * depth]  # relevant to no other
    first, further, owners = split_first_paths(paths)
    labels, known = labelled([*first, *further], depth)
    more = MorePaths(owners, labels[items:], known[items:] if share else None)

    spread = int(rng.integers(1, 5))
    vectors = rng.integers(-spread, spread + 1, size=(items, 3)).astype(np.float32)
    vectors[:: int(rng.integers(1, 9))] = vectors[0]
    ignore = rng.integers(-1, 4, size=items) if rng.random() < 0.3 else None
    everyone = Side(vectors, labels[:items], ignore, known[:items] if share else None, more)
    if rng.random() < 0.5:
        return everyone, None, None, paths
    asked = everyone.of(np.arange(int(rng.integers(1, items))))
    own = np.where(rng.random(len(asked.labels)) < 0.5, np.arange(len(asked.labels)), -1)
    return asked, everyone, own, paths


def listed_of(query, problem):
    """The items of one query's list, with their scores."""
    queries, gallery, own, _ = problem
    ranked = gallery or queries
    itself = query if gallery is None else own[query]
    group = -1 if queries.ignore is None else queries.ignore[query]
    items = [
        item
        for item in range(len(ranked.labels))
        if item != itself and not (group >= 0 and ranked.ignore[item] == group)
    ]
    return items, [float(queries.vectors[query] @ ranked.vectors[item]) for item in items]


def whole(metrics, depth, labels):
    setting = Setting(levels_of(depth), alpha(), 1.0, labels, True)
    return [paper(MetricName.parse(name), setting) for name in metrics]


def by_loops(levels, depth):
    """METRICS of a ranked list of levels."""
    fine = [level == depth for level in levels]
    return [
        oracle.h_ap(levels, oracle.alpha_relevance(levels, depth)),
        oracle.w_ap(levels, [1 / depth] * depth),
        oracle.asi(levels, depth),
        oracle.ndcg(levels),
        oracle.ndcg(levels, 3),
        oracle.hierarchical_distance(levels, depth, 2),
        oracle.ap_at(levels, depth),
        oracle.ap_at(levels, 1),
        oracle.recall(levels, depth, 1),
        oracle.recall(levels, 1, 4),
        oracle.map_at(levels, depth, sum(fine), lambda total: total),
        1 / (1 + fine.index(True)) if any(fine) else oracle.NAN,
    ]


@settings(
    max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.integers(0, 10**9), st.integers(1, 5), st.booleans(), st.sampled_from(WAYS))
def test_the_level_of_a_pair_is_the_largest_over_its_paths(monkeypatch, seed, depth, worst, way):
    go(monkeypatch, way)
    problem = sides(np.random.default_rng(seed), depth, 0)
    queries, gallery, own, paths = problem
    policy = pessimistic if worst else optimistic
    ranker = Ranker(queries, gallery, self_rows=own, similarity=dot, tie_key=policy)
    found = measure(Job(ranker, whole(METRICS, depth, queries.labels)))
    for query in range(len(queries.labels)):
        items, scores = listed_of(query, problem)
        levels = [
            max(
                oracle.level_of(a, b) if len(a) == len(b) else 0
                for a in paths[query]
                for b in paths[item]
            )
            for item in items
        ]
        ranked = oracle.rank_levels(scores, levels, pessimistic=worst)
        np.testing.assert_allclose(
            found.values[:, query], by_loops(ranked, depth), rtol=1e-12, atol=1e-14
        )
        assert found.counts[query].tolist() == [ranked.count(level) for level in range(depth + 1)]
        assert found.first_level[query] == (ranked[0] if ranked else 0)


@settings(
    max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.integers(0, 10**9), st.integers(1, 5), st.booleans(), st.sampled_from(WAYS))
def test_paths_that_end_early_leave_the_level_between_the_largest_bounds(
    monkeypatch, seed, depth, worst, way
):
    go(monkeypatch, way)
    problem = sides(np.random.default_rng(seed), depth, 0.5)
    queries, gallery, own, paths = problem
    policy = pessimistic if worst else optimistic
    ranker = Ranker(queries, gallery, self_rows=own, similarity=dot, tie_key=policy)
    found = measure(Job(ranker, scorers(depth, queries.labels)))
    for query in range(len(queries.labels)):
        items, scores = listed_of(query, problem)
        pairs = [
            [bounds.bounds(a, b, depth) for a in paths[query] for b in paths[item]]
            for item in items
        ]
        levels = [(max(low for low, _ in each), max(high for _, high in each)) for each in pairs]
        sign = 1 if worst else -1
        order = sorted(
            zip(scores, levels, strict=True),
            key=lambda p: (-p[0], sign * p[1][0], sign * (p[1][1] - p[1][0])),
        )
        ranked = [pair for _, pair in order]
        slow = expected_values(ranked, max(map(len, paths[query])), depth)
        np.testing.assert_allclose(found.values[:, query], slow, rtol=1e-11, atol=1e-14)


def large():
    """A problem that goes by the kernels, in several blocks."""
    rng = np.random.default_rng(0)
    labels, _ = labelled(random_paths(rng, 2 * 3000, 3, 0), 3)
    owners = np.sort(rng.choice(3000, 300, replace=False))
    vectors = rng.integers(-9, 10, (3000, 4)).astype(np.float32)
    side = Side(vectors, labels[:3000], None, None, MorePaths(owners, labels[3000:3300]))
    return side, Paths(side.labels, side.more)


def test_every_executor_gives_the_same_values(monkeypatch, tmp_path):
    small_blocks(monkeypatch)
    side, _ = large()
    asked = side.of(np.arange(200))
    job = Job(Ranker(asked, side, similarity=dot), whole(METRICS, 3, asked.labels))
    found = measure(job)
    np.testing.assert_array_equal(
        measure(job, execute=lambda j, b: on_threads(j, b, threads=1)).values, found.values
    )
    for _ in range(2):
        np.testing.assert_array_equal(
            measure(job, execute=kept_in(tmp_path, on_threads)).values, found.values
        )


def test_a_card_gives_the_same_values(monkeypatch):
    go(monkeypatch, MIXED)
    side, _ = large()
    asked, gallery = side.of(np.arange(0, 3000, 500)), side.of(np.arange(0, 3000, 20))
    job = Job(Ranker(asked, gallery, similarity=dot), whole(METRICS, 3, asked.labels)[::3])
    found, on_card = measure(job), measure(job, execute=on_devices("cpu"))
    np.testing.assert_allclose(on_card.values, found.values, atol=1e-12)
    np.testing.assert_array_equal(on_card.first_level, found.first_level)


def test_the_order_of_items_and_of_paths_changes_no_bit():
    side, _ = large()
    job = Job(Ranker(side, similarity=dot), whole(METRICS, 3, side.labels))
    order = np.random.default_rng(1).permutation(3000)
    turned = side.of(order)
    again = measure(Job(Ranker(turned, similarity=dot), whole(METRICS, 3, turned.labels)))
    np.testing.assert_array_equal(again.values, measure(job).values[:, order])


def test_first_results_have_the_largest_level():
    side, paths = large()
    job = Job(Ranker(side, similarity=dot), whole(["R@1"], 3, side.labels))
    top = TopResults(3000, 5)
    measure(replace(job, top=top))
    queries = np.repeat(np.arange(3000), 5)
    np.testing.assert_array_equal(
        top.levels.reshape(-1), paths.levels(queries, top.items.reshape(-1).astype(np.int64))
    )
    assert (top.items != np.arange(3000)[:, None]).all()


def test_other_paths_are_another_evaluation():
    side, _ = large()
    assert side.more is not None
    other = replace(side, more=side.more._replace(labels=side.more.labels[::-1].copy()))
    assert Ranker(side).digest == Ranker(replace(side)).digest
    assert Ranker(side).digest != Ranker(other).digest


@pytest.mark.parametrize("number", [1, 2, 3])
def test_paths_of_an_item_are_found_whatever_their_number(number):
    labels = np.arange(8).reshape(4, 2)
    more = MorePaths(
        np.repeat([1, 3], number - 1), np.arange(100, 100 + 4 * (number - 1)).reshape(-1, 2)
    )
    paths = Paths(labels, more)
    assert len(paths.of_item(1)) == number
    assert len(paths.of_item(0)) == 1
    assert paths.most == number
