"""Intervals and tests: seeded, equal to the textbook on small cases, sane on random ones."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from scipy import stats

from hbench.core.errors import ComparisonError
from hbench.evaluation.arrays import score
from hbench.evaluation.reports.comparison import compare, refuse_other_conditions
from hbench.metrics.significance import bootstrap_means, mean_interval, mean_of_tests_interval, paired_difference


def test_an_interval_is_that_of_scipys_percentile_bootstrap_up_to_resampling_noise():
    values = np.random.default_rng(0).beta(2, 5, size=400)
    low, high = mean_interval(values[None])[0]
    theirs = stats.bootstrap(
        (values,), np.mean, n_resamples=2000, method="percentile", rng=np.random.default_rng(1)
    ).confidence_interval
    width = theirs.high - theirs.low
    assert low == pytest.approx(theirs.low, abs=0.08 * width)
    assert high == pytest.approx(theirs.high, abs=0.08 * width)


def test_an_interval_covers_the_true_mean_about_95_times_in_100():
    rng = np.random.default_rng(2)
    samples = rng.exponential(size=(300, 120))
    hits = [low <= 1 <= high for low, high in (mean_interval(row[None], resamples=400)[0] for row in samples)]
    assert 0.88 <= np.mean(hits) <= 0.99


def test_undefined_queries_are_left_out_and_metrics_share_their_resamples():
    values = np.array([[0.0, 1.0, np.nan, 0.5], [0.0, 1.0, 0.25, 0.5], [np.nan] * 4])
    means = bootstrap_means(values, resamples=50)
    assert np.isnan(means[:, 2]).all()
    assert np.nanmin(means[:, 0]) >= 0
    doubled = bootstrap_means(np.stack([values[1], 2 * values[1]]), resamples=50)
    assert np.allclose(doubled[:, 1], 2 * doubled[:, 0])
    assert np.isnan(mean_interval(values)[2]).all()


def test_the_same_values_give_the_same_bits():
    values = np.random.default_rng(3).random((3, 500))
    assert np.array_equal(mean_interval(values), mean_interval(values.copy()))


def test_the_interval_of_a_mean_over_tests_is_narrower_than_that_of_one():
    values = np.random.default_rng(4).random((1, 300))
    one = mean_interval(values)[0]
    three = mean_of_tests_interval([values, values, values])[0]
    assert three[1] - three[0] < 0.75 * (one[1] - one[0])


def test_the_sign_flip_test_is_exact_on_a_case_that_can_be_counted():
    # five differences of one sign: of the 32 sign patterns 2 are as far from 0, so p = 2/32
    difference, _, _, p = paired_difference(np.array([1.0, 2, 3, 4, 5]), np.zeros(5))
    assert difference == 3
    assert p == pytest.approx(2 / 32, abs=0.01)


def test_equal_submissions_differ_by_nothing_and_unequal_ones_surely():
    rng = np.random.default_rng(5)
    values = rng.random(1000)
    assert paired_difference(values, values) == (0, 0, 0, 1)
    assert paired_difference(values + 0.01 * rng.normal(size=1000) + 0.01, values)[3] < 0.001
    assert paired_difference(values + 0.01 * rng.normal(size=1000), values)[3] > 0.001
    assert all(np.isnan(paired_difference(np.array([np.nan, 1]), np.array([1, np.nan]))))


def test_a_comparison_joins_queries_by_name_and_refuses_others():
    first = pa.table({"query": ["a", "b", "c"], "test": ["test"] * 3, "AP": [1.0, 0.5, None], "R@1": [1.0, 0.0, 0.0]})
    second = pa.table({"query": ["c", "b", "a"], "test": ["test"] * 3, "AP": [0.5, 0.5, 0.5]})
    (ap,) = compare(first, second)
    assert (ap.metric, ap.queries, ap.first, ap.second) == ("AP", 2, 0.75, 0.5)
    with pytest.raises(ComparisonError, match="other queries"):
        compare(first, second.slice(1))
    with pytest.raises(ComparisonError, match="no metric in common"):
        compare(first.select(["query", "test", "R@1"]), second)


def test_reports_of_other_labels_are_not_compared():
    vectors = np.random.default_rng(6).normal(size=(20, 4))
    one = score(vectors, np.arange(20)[:, None] // 5).document
    other = score(vectors, np.arange(20)[:, None] // 4).document
    with pytest.raises(ComparisonError, match="digests differ"):
        refuse_other_conditions(one, other)


def test_metrics_that_no_query_defines_have_no_interval():
    assert np.isnan(mean_interval(np.full((2, 5), np.nan))).all()
