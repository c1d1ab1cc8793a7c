"""Metrics of two arrays: the values of the engine and of libraries that nobody here wrote, whatever
kind of array is given.
"""

import numpy as np
import pytest
import pytrec_eval
import torch
from hypothesis import given
from hypothesis import strategies as st

import hbench
from hbench.core.errors import UnknownName, UsageError
from hbench.metrics.definitions import metrics as registered
from tests.metrics.test_metrics import SPELLINGS

LEVELS = ("genus", "species")


def problem(seed, items=30):
    """Vectors of small integers, whose products are exact and often equal, labels of two levels,
    and levels of all pairs.
    """
    rng = np.random.default_rng(seed)
    vectors = rng.integers(-2, 3, (items, 4)).astype(np.float32)
    species = rng.integers(9, size=items)
    labels = np.stack([species // 3, species], axis=1)
    levels = np.cumprod(labels[:, None] == labels, axis=2).sum(axis=2)
    scores = vectors @ vectors.T
    np.fill_diagonal(scores, -np.inf)
    return vectors, labels, scores, levels


def of_numbers(name):
    """The spelling in which levels are numbers, coarse to fine."""
    for number, level in enumerate(LEVELS, start=1):
        name = name.replace(f"/{level}", f"/{number}").replace(f"#{level}", f"#{number}")
    return name


@given(st.integers(0, 10**6), st.sampled_from(["pessimistic", "optimistic"]))
def test_arrays_and_vectors_have_the_same_values(seed, ties):
    vectors, labels, scores, levels = problem(seed)
    report = hbench.score(
        vectors, labels, level_names=LEVELS, metrics=SPELLINGS, similarity="dot", ties=ties
    )
    found = hbench.metrics.evaluate(
        [of_numbers(name) for name in report.per_query], scores, levels, ties=ties, depth=2
    )
    for name, values in report.per_query.items():
        np.testing.assert_allclose(found[of_numbers(name)], values, atol=1e-12, err_msg=name)


def test_every_registered_metric_is_among_the_spellings():
    assert {hbench.MetricName.parse(name).base for name in SPELLINGS} == set(registered)


CALLS = {
    "H-AP": ("h_ap", (), {}), "H-AP(alpha=2)": ("h_ap", (), {"alpha": 2}),
    "wAP": ("w_ap", (), {}), "wAP(weights=0.25:0.75)": ("w_ap", (), {"weights": [0.25, 0.75]}),
    "ASI": ("asi", (), {}), "ASI/1": ("asi", (), {"level": 1}), "NDCG": ("ndcg", (), {}),
    "NDCG@5": ("ndcg", (), {"k": 5}),
    "AP": ("ap", (), {}), "AP/1": ("ap", (), {"level": 1}),
    "R@3/1": ("recall_at_k", (3,), {"level": 1}),
    "TR@4": ("true_recall_at_k", (4,), {}), "P@5": ("precision_at_k", (5,), {}),
    "P@R": ("r_precision", (), {}),
    "mAP@R/1": ("map_at_r", (), {"level": 1}), "mAP@7": ("map_at_k", (7,), {}),
    "MRR/2": ("reciprocal_rank", (), {"level": 2}),
    "HD@5": ("hierarchical_distance_at_k", (5,), {}),
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
def test_a_function_is_the_metric_of_its_name(name):
    _, _, scores, levels = problem(4)
    (expected,) = hbench.metrics.evaluate([name], scores, levels).values()
    function, arguments, options = CALLS[name]
    values = getattr(hbench.metrics, function)(scores, levels, *arguments, **options)
    assert np.array_equal(values, expected, equal_nan=True)
    assert expected.dtype == np.float64


@given(
    st.lists(
        st.tuples(st.integers(0, 50), st.integers(0, 1)),
        min_size=1,
        max_size=30,
        unique_by=lambda pair: pair[0],
    )
)
def test_trec_eval_agrees(items):
    scores, levels = np.array(items).T
    measures = {
        "map": "AP",
        "recip_rank": "MRR",
        "Rprec": "P@R",
        "P_5": "P@5",
        "recall_10": "TR@10",
    }
    run = {"q": {str(n): float(score) for n, score in enumerate(scores)}}
    judged = {"q": {str(n): int(level) for n, level in enumerate(levels)}}
    theirs = pytrec_eval.RelevanceEvaluator(judged, set(measures)).evaluate(run)["q"]
    ours = hbench.metrics.evaluate([*measures.values()], scores, levels, depth=1)
    for measure, name in measures.items():
        assert np.nan_to_num(ours[name][0]) == pytest.approx(theirs[measure], abs=1e-6)


@pytest.mark.parametrize(
    "kind",
    [np.asarray, torch.tensor, np.ndarray.tolist, lambda a: torch.tensor(a).to(torch.float64)],
)
def test_any_kind_of_array_is_taken(kind):
    _, _, scores, levels = problem(1)
    expected = hbench.metrics.h_ap(scores, levels)
    assert np.array_equal(hbench.metrics.h_ap(kind(scores), kind(levels)), expected, equal_nan=True)
    assert np.array_equal(
        hbench.metrics.h_ap(kind(scores[0]), kind(levels[0])), expected[:1], equal_nan=True
    )


@pytest.mark.parametrize(
    ("scores", "levels", "error"),
    [
        ([[1.0, 2.0]], [[1]], UsageError),
        ([[np.nan]], [[1]], UsageError),
        ([[1.0]], [[-1]], UsageError),
        ([[1.0]], [[0.5]], UsageError),
        ([[[1.0]]], [[[1]]], UsageError),
    ],
)
def test_arrays_that_do_not_fit_are_refused(scores, levels, error):
    with pytest.raises(error):
        hbench.metrics.ap(scores, levels)


def test_names_that_are_not_known_are_refused():
    with pytest.raises(UnknownName):
        hbench.metrics.evaluate("AP/7", [[1.0, 0.5]], [[1, 0]])
    with pytest.raises(UnknownName):
        hbench.metrics.ap([[1.0]], [[1]], ties="random")
    with pytest.raises(UnknownName):
        hbench.metrics.ndcg([[1.0]], [[1]], k=0)
    with pytest.raises(UnknownName):
        hbench.metrics.asi([[1.0]], [[1]], level=0)
    with pytest.raises(UsageError):
        hbench.metrics.ap([[1.0]], [[2]], depth=1)


@pytest.mark.parametrize("depth", [0, -1, 256, 10**9])
def test_a_depth_that_no_tree_has_is_refused(depth):
    with pytest.raises(UsageError, match=r"depth is no number of levels|above the highest level"):
        hbench.metrics.ap([[0.2, 0.1]], [[0, 1]], depth=depth)
