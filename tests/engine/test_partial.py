"""Partial labels in the engine: every path of it against double loops over all pairs, and against
whole labels.
"""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hbench.core.errors import TreeError
from hbench.engine.executors import threads, triangle
from hbench.engine.job import Job
from hbench.engine.ranker import Ranker
from hbench.engine.settings import Settings
from hbench.engine.sides import Side
from hbench.engine.similarity import dot
from hbench.engine.values import plan as plans
from hbench.evaluation.measurement import measure, scorers_of
from hbench.metrics.level_sequence import optimistic, pessimistic
from hbench.metrics.partial_lists import partial_scorers
from hbench.metrics.protocols import Setting
from hbench.metrics.relevance import alpha
from hbench.tree import LabelTree
from hbench.tree.partial import ended_early, known_levels
from tests import oracle_partial as oracle
from tests.engine.ways import MIXED, WAYS, go, small_blocks


def levels_of(depth):
    return [f"level{level}" for level in range(1, depth + 1)]


def random_paths(rng, items, depth, share):
    """Nested paths of names; of a share of them only the first levels are known."""
    columns = np.minimum(rng.geometric(0.5, size=(items, depth)), 3)
    paths = [
        tuple("/".join(map(str, row[: level + 1])) for level in range(depth))
        for row in columns.tolist()
    ]
    ends = np.where(rng.random(items) < share, rng.integers(1, depth + 1, items), depth)
    return [path[:end] for path, end in zip(paths, ends.tolist(), strict=True)]


def labelled(paths, depth):
    tree, labels = LabelTree.from_names(
        [ended_early(path, levels_of(depth)) for path in paths], levels=levels_of(depth)
    )
    return labels, known_levels(tree)[labels[:, -1]]


def random_problem(rng, depth, share=0.5):
    """Queries, gallery (None: the queries), the rows of the queries in the gallery, ignore groups,
    and all paths.
    """
    items = int(rng.integers(2, 40))
    paths = random_paths(rng, items, depth, share)
    labels, known = labelled(paths, depth)
    spread = int(rng.integers(1, 5))
    vectors = rng.integers(-spread, spread + 1, size=(items, 3)).astype(np.float32)
    vectors[:: int(rng.integers(1, 9))] = vectors[0]
    ignore = rng.integers(-1, 4, size=items) if rng.random() < 0.3 else None
    if rng.random() < 0.5:
        return Side(vectors, labels, ignore, known), None, None, paths
    part = int(rng.integers(1, items))
    groups = (None, None) if ignore is None else (ignore[:part], ignore)
    own = np.where(rng.random(part) < 0.5, np.arange(part), -1)
    asked = Side(vectors[:part], labels[:part], groups[0], known[:part])
    return asked, Side(vectors, labels, groups[1], known), own, paths


def expected_of(query, problem, depth, worst):
    """The list of one query by double loops."""
    queries, gallery, own, paths = problem
    ranked = gallery or queries
    itself = query if gallery is None else own[query]
    group = -1 if queries.ignore is None else queries.ignore[query]
    listed = [
        item
        for item in range(len(ranked.labels))
        if item != itself and not (group >= 0 and ranked.ignore[item] == group)
    ]
    scores = [float(queries.vectors[query] @ ranked.vectors[item]) for item in listed]
    return oracle.ranked_bounds(
        scores, [paths[item] for item in listed], paths[query], depth, pessimistic=worst
    )


def names_of(depth):
    return [
        *oracle.GRADED,
        *(oracle.spelled(base, level) for base in oracle.OF_LEVEL for level in levels_of(depth)),
    ]


def scorers(depth, labels):
    chosen = Settings(metrics=names_of(depth)).resolve(levels_of(depth), partial=True)
    return partial_scorers(chosen.metrics, Setting(levels_of(depth), alpha(), 1.0, labels, True))


def expected_values(ranked, asked, depth):
    of_level = [
        oracle.of_level(base, ranked, level, asked)
        for base in oracle.OF_LEVEL
        for level in range(1, depth + 1)
    ]
    exact = [oracle.graded(name, oracle.known(ranked), depth) for name in oracle.GRADED]
    bounds = [
        oracle.graded(name, read(ranked), depth)
        for read in (oracle.wrong, oracle.right)
        for name in oracle.GRADED
    ]
    return [*exact, *of_level, *bounds]


@settings(
    max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.integers(0, 10**9), st.integers(1, 8), st.booleans(), st.sampled_from(WAYS))
def test_every_way_equals_double_loops_over_all_pairs(monkeypatch, seed, depth, worst, way):
    go(monkeypatch, way)
    rng = np.random.default_rng(seed)
    problem = random_problem(rng, depth)
    queries, gallery, own, paths = problem
    policy = pessimistic if worst else optimistic
    ranker = Ranker(queries, gallery, self_rows=own, similarity=dot, tie_key=policy)
    found = measure(Job(ranker, scorers(depth, queries.labels)))
    for query in range(len(queries.labels)):
        ranked = expected_of(query, problem, depth, worst)
        slow = expected_values(ranked, len(paths[query]), depth)
        np.testing.assert_allclose(found.values[:, query], slow, rtol=1e-11, atol=1e-14)
        known = oracle.known(ranked)
        assert found.counts[query].tolist() == [known.count(level) for level in range(depth + 1)]
        assert found.first_level[query] == (known[0] if known else 0)


@settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.integers(0, 10**9), st.integers(1, 8), st.booleans())
def test_whole_labels_read_as_partial_ones_have_the_same_values(monkeypatch, seed, depth, worst):
    go(monkeypatch, MIXED)
    queries, gallery, own, _paths = random_problem(np.random.default_rng(seed), depth, share=0)
    policy = pessimistic if worst else optimistic
    chosen = Settings(metrics=names_of(depth)).resolve(levels_of(depth))
    whole = scorers_of(chosen, queries.labels, keeps_last=gallery is None)
    sides = [side and replace(side, known=None) for side in (queries, gallery)]
    plain = measure(Job(Ranker(*sides, self_rows=own, similarity=dot, tie_key=policy), whole))
    ranker = Ranker(queries, gallery, self_rows=own, similarity=dot, tie_key=policy)
    found = measure(Job(ranker, scorers(depth, queries.labels)))
    graded, every = len(oracle.GRADED), len(whole)
    # sums may be split at other cuts
    np.testing.assert_allclose(found.values[:every], plain.values, rtol=1e-12)
    for bound in (found.values[every : every + graded], found.values[every + graded :]):
        np.testing.assert_allclose(bound, plain.values[:graded], rtol=1e-12)
    assert np.array_equal(found.first_level, plain.first_level)
    assert np.array_equal(found.tied, plain.tied)


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.integers(0, 10**9), st.integers(20, 120), st.booleans())
def test_half_of_the_products_and_a_device_give_the_values_of_whole_rows(
    monkeypatch, seed, items, worst
):
    go(monkeypatch, (4, 10**4))
    small_blocks(monkeypatch)
    rng = np.random.default_rng(seed)
    labels, known = labelled(random_paths(rng, items, 3, 0.5), 3)
    side = Side(rng.integers(-3, 4, size=(items, 8)).astype(np.float32), labels, None, known)
    job = Job(
        Ranker(side, similarity=dot, tie_key=pessimistic if worst else optimistic),
        scorers(3, labels),
    )

    def by_rows(job, blocks):
        return threads._by_rows(job, plans.plan_of(job), blocks, 2)

    expected = measure(job, execute=by_rows)
    assert triangle.triangle_of(job, plans.plan_of(job), range(job.ranker.blocks), 2)
    found = measure(job)
    for name in ("values", "first_level", "counts", "tied"):
        assert np.array_equal(
            getattr(found, name), getattr(expected, name), equal_nan=name == "values"
        ), name


def test_items_of_another_order_have_the_same_bits():
    rng = np.random.default_rng(4)
    paths = random_paths(rng, 300, 4, 0.4)
    vectors = rng.normal(size=(300, 16)).astype(np.float32)
    found = []
    for order in (np.arange(300), rng.permutation(300)):
        labels, known = labelled([paths[item] for item in order], 4)
        job = Job(Ranker(Side(vectors[order], labels, None, known)), scorers(4, labels))
        values = np.empty((len(job.scorers), 300))
        values[:, order] = measure(job).values
        found.append((values, job.digest))
    assert np.array_equal(found[0][0], found[1][0], equal_nan=True)
    assert found[0][1] == found[1][1]


def test_a_tree_too_deep_for_codes_of_a_byte_is_refused():
    labels = np.zeros((2, 129), np.int32)
    side = Side(np.eye(2, dtype=np.float32), labels, None, np.full(2, 129, np.uint8))
    with pytest.raises(TreeError, match="too deep for partial labels"):
        Ranker(side)
