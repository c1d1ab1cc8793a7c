"""Positives by list: arranged rows are ranked as the definition says, by every executor alike."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hbench
from hbench.engine.executors.gpu import on_devices
from hbench.engine.executors.kept_blocks import kept_in
from hbench.engine.executors.threads import on_threads
from hbench.engine.job import Job
from hbench.engine.lists.pairs import QueryLists
from hbench.engine.ranker import Ranker
from hbench.engine.sides import Side
from hbench.engine.similarity import dot
from hbench.evaluation.measurement import measure
from hbench.metrics.level_sequence import optimistic, pessimistic
from hbench.metrics.names import MetricName
from hbench.metrics.protocols import Setting, paper
from hbench.metrics.relevance import alpha
from tests.engine.ways import MIXED, go

METRICS = ("H-AP", "wAP", "ASI", "NDCG", "AP", "AP/coarse", "R@1", "R@5/coarse", "mAP@R", "MRR")
LEVELS = ("coarse", "fine")


def problem(queries, gallery, seed, *, ties=pessimistic):
    """Vectors whose scores tie, with copies, and lists of up to a third of the gallery; a job of
    all metrics.
    """
    rng = np.random.default_rng(seed)
    asked = rng.integers(-2, 3, (queries, 3)).astype(np.float32)
    ranked = rng.integers(-2, 3, (gallery, 3)).astype(np.float32)
    levels = rng.choice([-1, 0, 0, 1, 2], (queries, gallery)).astype(np.int8)
    levels[:, gallery // 3 :] = 0
    levels[0] = 0  # a query without a list
    listed = [np.flatnonzero(row) for row in levels]
    bounds = np.concatenate([[0], np.cumsum([len(rows) for rows in listed])]).astype(np.int64)
    lists = QueryLists(bounds, np.concatenate(listed), levels[levels != 0])

    one = np.zeros((1, 2), np.int64)
    ranker = Ranker(
        Side(asked, one.repeat(queries, axis=0)),
        Side(ranked, one.repeat(gallery, axis=0)),
        similarity=dot,
        tie_key=ties,
    )
    setting = Setting(LEVELS, alpha(), 1.0, one.repeat(queries, axis=0), keeps_last=True)
    scorers = [paper(MetricName.parse(name), setting) for name in METRICS]
    return Job(ranker.of_lists(lists), scorers, "lists"), asked @ ranked.T, levels


def expected(scores, levels, ties):
    """The metrics of the lists, on arrays, what is left out at −inf."""
    scores = np.where(levels < 0, -np.inf, scores)
    names = [name.replace("coarse", "1") for name in METRICS]
    found = hbench.metrics.evaluate(names, scores, np.maximum(levels, 0), ties=ties, depth=2)
    return np.array(list(found.values()))


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 12), st.integers(3, 40), st.integers(0, 10_000), st.booleans())
def test_small_problems_are_the_definition(queries, gallery, seed, is_pessimistic):
    job, scores, levels = problem(
        queries, gallery, seed, ties=pessimistic if is_pessimistic else optimistic
    )
    values = measure(job).values
    by_definition = expected(scores, levels, "pessimistic" if is_pessimistic else "optimistic")
    np.testing.assert_allclose(values, by_definition, atol=1e-12)


@pytest.mark.parametrize("seed", range(3))
def test_large_problems_go_by_the_kernels_and_are_the_definition(seed):
    job, scores, levels = problem(300, 5000, seed)
    measured = measure(job)
    np.testing.assert_allclose(measured.values, expected(scores, levels, "pessimistic"), atol=1e-12)
    left_out = (levels < 0).sum(axis=1)
    assert (measured.counts.sum(axis=1) == 5000 - left_out).all()
    assert (measured.counts[:, 2] == (levels == 2).sum(axis=1)).all()


def test_every_executor_gives_the_same_values(tmp_path):
    job, _, _ = problem(300, 5000, 5)
    whole = measure(job)
    alone = measure(job, execute=lambda job, blocks: on_threads(job, blocks, threads=1))
    kept = measure(job, execute=kept_in(tmp_path, on_threads))
    again = measure(job, execute=kept_in(tmp_path, on_threads))
    for other in (alone, kept, again):
        for field in dataclasses.fields(whole):
            np.testing.assert_array_equal(getattr(other, field.name), getattr(whole, field.name))


def test_a_card_gives_the_same_values(monkeypatch):
    go(monkeypatch, MIXED)
    job, _, _ = problem(6, 90, 5)
    whole, on_card = measure(job), measure(job, execute=on_devices("cpu"))
    np.testing.assert_allclose(on_card.values, whole.values, atol=1e-12)
    np.testing.assert_array_equal(on_card.first_level, whole.first_level)
    np.testing.assert_array_equal(on_card.tied, whole.tied)


def test_other_lists_are_another_evaluation():
    job, _, _ = problem(20, 50, 1)
    again, _, _ = problem(20, 50, 1)
    assert job.digest == again.digest
    one = QueryLists(np.minimum(np.arange(21), 1), np.array([4]), np.array([2], np.int8))
    # of a ranker whose digest was taken
    other = dataclasses.replace(again, ranker=again.ranker.of_lists(one))
    assert job.digest != other.digest


@pytest.mark.parametrize(
    ("rows", "levels"), [([4, 4], [1, 1]), ([3, 1, 3], [2, 1, 1]), ([4, 4], [1, -1]), ([4], [3])]
)
def test_a_pair_listed_twice_and_a_level_above_the_tree_are_refused(rows, levels):
    job, _, _ = problem(20, 50, 1)
    lists = QueryLists(
        np.minimum(np.arange(21), 1) * len(rows), np.array(rows), np.array(levels, np.int8)
    )
    with pytest.raises(hbench.DataError, match="cannot be used"):
        job.ranker.of_lists(lists)
