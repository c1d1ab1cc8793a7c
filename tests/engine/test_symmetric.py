"""Half of the products against all of them: the same values, bit for bit."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hbench.engine.executors import threads, triangle
from hbench.engine.job import Job
from hbench.engine.kernels import rank_positives
from hbench.engine.ranker import Ranker
from hbench.engine.settings import Settings
from hbench.engine.sides import Side
from hbench.engine.similarity import cosine, dot, l2
from hbench.engine.values import plan as plans
from hbench.evaluation.measurement import measure, scorers_of
from hbench.metrics.level_sequence import optimistic, pessimistic
from hbench.sheets.rows import default_levels
from hbench.tree import LabelTree
from tests.engine.ways import go, small_blocks


@pytest.fixture
def small(monkeypatch):
    """Many tiles of a small set, by compiled code."""
    small_blocks(monkeypatch)
    go(monkeypatch, (rank_positives.MAX_COMPARED, rank_positives.PORTION))


def random_job(
    rng, items, *, similarity=dot, policy=pessimistic, metrics=None, memory=None, whole=True
):
    """All pairs of vectors of 8 dimensions, with equal scores and copies; products of whole numbers
    are exact.
    """
    leaf = rng.integers(max(items // 6, 1), size=items)
    labels = LabelTree.from_labels(np.stack([leaf // 9, leaf // 3, leaf], axis=1))[1]
    vectors = rng.integers(-3, 4, size=(items, 8)).astype(np.float32)
    if not whole:
        vectors += rng.normal(size=vectors.shape).astype(np.float32)
    vectors[rng.random(items) < 0.1] = vectors[0]
    ranker = Ranker(Side(vectors, labels), similarity=similarity, tie_key=policy, memory=memory)
    chosen = Settings(metrics=metrics).resolve(default_levels(3))
    return Job(ranker, scorers_of(chosen, labels, keeps_last=True))


def is_symmetric(job):
    """Whether half of the products suffice."""
    made = triangle.triangle_of(job, plans.plan_of(job), range(job.ranker.blocks), 2)
    assert made is not None
    with threads._pool(1) as pool:
        return made.lists(pool) is not None


def by_rows(job):
    return measure(
        job, execute=lambda job, blocks: threads._by_rows(job, plans.plan_of(job), blocks, 2)
    )


def assert_equal(one, other):
    for name in ("values", "first_level", "counts", "tied", "canonical"):
        assert np.array_equal(
            getattr(one, name), getattr(other, name), equal_nan=name == "values"
        ), name


METRICS = st.sampled_from(
    [None, ["AP/level2", "P@5/level3", "ASI/level2"], ["AP/level3", "R@1/level3"]]
)


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    st.integers(0, 10**9),
    st.integers(2, 150),
    st.sampled_from([pessimistic, optimistic]),
    st.booleans(),
    METRICS,
    st.sampled_from([0, 4, 1000]),
)
def test_half_of_the_products_gives_the_values_of_all(
    small, monkeypatch, seed, items, policy, whole, metrics, few
):
    go(monkeypatch, (few, rank_positives.PORTION))
    rng = np.random.default_rng(seed)
    levels = default_levels(3)
    metrics = metrics and [
        name.replace("level2", levels[1]).replace("level3", levels[2]) for name in metrics
    ]
    similarity = dot if whole else cosine
    job = random_job(rng, items, policy=policy, similarity=similarity, metrics=metrics, whole=whole)
    assert is_symmetric(job) or not whole
    assert_equal(measure(job), by_rows(job))


def test_half_of_the_products_of_the_usual_sizes_do_where_they_are_symmetric_to_the_bit():
    rng = np.random.default_rng(3)
    labels = np.sort(rng.integers(1700, size=9000))[:, None] // np.array([100, 1])
    vectors = rng.normal(size=(9000, 480)).astype(np.float32)
    vectors[100:200] = vectors[4000:4100]
    job = Job(
        Ranker(Side(vectors, labels)),
        scorers_of(Settings(metrics=["AP/f"]).resolve(["c", "f"]), labels, keeps_last=True),
    )
    assert job.ranker.scores.blocks > 10
    assert len(job.ranker.scores.chunks) > 1
    assert_equal(measure(job), by_rows(job))
    if not is_symmetric(job):
        pytest.skip(
            "this processor's BLAS has products that are not symmetric: whole rows were taken"
        )


def test_scores_that_are_not_symmetric_are_taken_row_by_row(small):
    job = random_job(np.random.default_rng(1), 100, similarity=l2)
    assert not is_symmetric(job)
    assert_equal(measure(job), by_rows(job))


def test_some_blocks_and_a_gallery_of_its_own_are_taken_row_by_row(small):
    job = random_job(np.random.default_rng(1), 100)
    assert triangle.triangle_of(job, plans.plan_of(job), range(job.ranker.blocks), 2)
    assert triangle.triangle_of(job, plans.plan_of(job), range(job.ranker.blocks - 1), 2) is None
    side = Side(np.eye(100, dtype=np.float32), np.arange(100)[:, None] // np.array([20, 4]))
    other = Job(Ranker(side, side, self_rows=np.arange(100)), job.scorers)
    assert triangle.triangle_of(other, plans.plan_of(other), range(other.ranker.blocks), 2) is None


def test_with_too_many_positives_or_too_little_memory_rows_are_taken(small):
    labels = np.zeros((triangle.MAX_POSITIVES + 1, 1), np.int32)  # all of one class
    side = Side(np.eye(len(labels), 8, dtype=np.float32), labels)
    crowded = Job(
        Ranker(side, similarity=dot), scorers_of(Settings().resolve(["c"]), labels, keeps_last=True)
    )
    scarce = random_job(np.random.default_rng(1), 100, memory=1 << 20)
    for job in (crowded, scarce):
        assert triangle.triangle_of(job, plans.plan_of(job), range(job.ranker.blocks), 2) is None
    assert_equal(measure(scarce), by_rows(scarce))


def test_the_number_of_threads_changes_nothing(small):
    job = random_job(np.random.default_rng(5), 140)
    one, three = (
        measure(job, execute=lambda job, blocks, n=n: threads.on_threads(job, blocks, threads=n))
        for n in (1, 3)
    )
    assert_equal(one, three)
