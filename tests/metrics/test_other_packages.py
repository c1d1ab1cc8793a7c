"""What "Coming from" says of other packages, computed by both."""

import numpy as np
import pytest
import pytrec_eval
import torch
from pytorch_metric_learning.utils.accuracy_calculator import AccuracyCalculator
from torchmetrics.functional.retrieval import (
    retrieval_normalized_dcg,
    retrieval_r_precision,
    retrieval_reciprocal_rank,
)

import hbench

pytestmark = pytest.mark.fast

RNG = np.random.default_rng(0)
SCORES, LEVELS = RNG.random((20, 12)), RNG.integers(0, 3, size=(20, 12))
LEVELS[:, 0] = 2  # every query has a positive


def rowwise(function, targets):
    rows = zip(torch.from_numpy(SCORES), torch.from_numpy(targets), strict=True)
    return np.array([float(function(scores, target)) for scores, target in rows])


def test_ndcg_of_torchmetrics_has_the_target_as_gain_and_is_equal_where_the_targets_are_the_gain():
    ours = hbench.metrics.ndcg(SCORES, LEVELS)
    np.testing.assert_allclose(rowwise(retrieval_normalized_dcg, 2**LEVELS - 1), ours, rtol=1e-6)
    assert np.abs(rowwise(retrieval_normalized_dcg, LEVELS) - ours).max() > 0.01


def test_mrr_and_r_precision_of_torchmetrics_are_the_same():
    fine = (LEVELS == 2).astype(int)
    np.testing.assert_allclose(
        rowwise(retrieval_reciprocal_rank, fine), hbench.metrics.reciprocal_rank(SCORES, LEVELS)
    )
    np.testing.assert_allclose(
        rowwise(retrieval_r_precision, fine), hbench.metrics.r_precision(SCORES, LEVELS), rtol=1e-6
    )


def test_ndcg_of_trec_eval_has_the_relevance_as_gain():
    names = [f"d{item}" for item in range(12)]
    run = {f"q{q}": dict(zip(names, map(float, row), strict=True)) for q, row in enumerate(SCORES)}

    def theirs(gains):
        qrels = {
            f"q{q}": dict(zip(names, map(int, row), strict=True)) for q, row in enumerate(gains)
        }
        found = pytrec_eval.RelevanceEvaluator(qrels, {"ndcg"}).evaluate(run)
        return np.array([found[f"q{q}"]["ndcg"] for q in range(len(gains))])

    ours = hbench.metrics.ndcg(SCORES, LEVELS)
    np.testing.assert_allclose(theirs(2**LEVELS - 1), ours, rtol=1e-9)
    assert np.abs(theirs(LEVELS) - ours).max() > 0.01


@pytest.fixture
def lone():
    """Vectors and labels of which two have no other item of their class."""
    labels = np.array([0, 0, 1, 2, 2, 2, 3])
    return RNG.normal(size=(7, 4)), labels


def test_precision_at_1_of_pytorch_metric_learning_leaves_out_what_recall_counts_as_0(lone):
    vectors, labels = lone
    unit = torch.from_numpy(vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).float()
    found = AccuracyCalculator(
        include=("precision_at_1",), k="max_bin_count", device=torch.device("cpu")
    ).get_accuracy(unit, torch.from_numpy(labels))
    report = hbench.score(vectors, labels, metrics=["P@1", "R@1"])
    assert found["precision_at_1"] == pytest.approx(report.scores["P@1"])
    assert report.scores["R@1"] == pytest.approx(report.scores["P@1"] * 5 / 7)
