"""Ranking in torch, here on its processor device, against the ranking of the threads."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hbench.core.errors import SubmissionError, UsageError
from hbench.engine.executors import gpu
from hbench.engine.executors.gpu import descending, on_device
from hbench.engine.job import Job
from hbench.engine.ranker import Ranker, Side
from hbench.engine.similarity import dot
from hbench.engine.values.fast_metrics import FAST
from hbench.evaluation.measurement import measure
from hbench.metrics.level_sequence import optimistic, pessimistic
from hbench.metrics.protocols import Scorer
from tests.engine.test_rank_positives import every_scorer, random_sides
from tests.engine.ways import MIXED, go


@settings(max_examples=100, deadline=None)
@given(
    st.integers(0, 10**9),
    st.integers(1, 6),
    st.sampled_from([pessimistic, optimistic]),
    st.integers(1, 7),
)
def test_a_device_gives_the_values_of_the_threads(seed, depth, policy, lowest):
    rng = np.random.default_rng(seed)
    queries, gallery, own = random_sides(rng, depth)
    for side in (queries, gallery):  # products of whole numbers have no last bits to differ in
        if side is not None:
            side.vectors[:] = np.round(4 * side.vectors)
    ranker = Ranker(queries, gallery, self_rows=own, similarity=dot, tie_key=policy)
    scorers = every_scorer(depth, queries.labels, gallery is None)
    if lowest > 1:  # only sums over the ranks of higher levels: lower positives are not listed then
        fast = [each for each in scorers if isinstance(each, Scorer) and each.name.base in FAST]
        scorers = [each for each in fast if each.arguments.get("level", 1) >= lowest] or scorers
    job = Job(ranker, scorers)
    with pytest.MonkeyPatch.context() as patched:
        # the device takes the kernels' path, whose last bits are not those of the formulas
        go(patched, MIXED)
        expected, found = measure(job), measure(job, execute=on_device("cpu"))
    assert np.array_equal(found.values, expected.values, equal_nan=True)
    for name in ("first_level", "counts", "tied"):
        assert np.array_equal(getattr(found, name), getattr(expected, name)), name


def test_rows_that_do_not_fit_the_device_at_once_are_sorted_in_turn(monkeypatch):
    monkeypatch.setattr(gpu, "ROWS_BYTES", 1)
    go(monkeypatch, MIXED)
    rng = np.random.default_rng(3)
    labels = np.sort(rng.integers(5, size=(40, 1)), axis=0)
    ranker = Ranker(
        Side(rng.integers(-3, 4, size=(40, 3)).astype(np.float32), labels), similarity=dot
    )
    job = Job(ranker, every_scorer(1, labels, True))
    expected, found = measure(job), measure(job, execute=on_device("cpu"))
    assert np.array_equal(found.values, expected.values, equal_nan=True)


@given(st.lists(st.floats(width=32, allow_nan=False), min_size=2, max_size=20))
def test_keys_fall_as_scores_rise(numbers):
    scores = np.sort(np.array(numbers, np.float32))
    keys = descending(torch.from_numpy(scores)).numpy()
    assert np.array_equal(keys[1:] < keys[:-1], scores[1:] > scores[:-1])
    assert np.array_equal(keys[1:] == keys[:-1], scores[1:] == scores[:-1])
    assert keys.min() >= 0
    assert keys.max() < 2**32


def test_a_device_that_is_not_there_is_refused():
    if torch.cuda.is_available():
        pytest.skip("there is one here")
    with pytest.raises(UsageError, match="no device 'cuda'"):
        on_device("cuda")


LABELS = np.array([[0], [0], [1]])


@pytest.mark.parametrize(
    ("vectors", "error", "words"),
    [
        (np.random.default_rng(0).normal(size=(3, 2)), UsageError, "float32"),
        (np.array([[1e19, 0], [2e19, 0], [1, 1]], np.float32), SubmissionError, "overflow"),
    ],
)
def test_float64_and_products_that_overflow_on_a_device_are_refused(vectors, error, words):
    ranker = Ranker(Side(vectors, LABELS), similarity=dot)
    with pytest.raises(error, match=words):
        measure(Job(ranker, every_scorer(1, LABELS, True)), execute=on_device("cpu"))
