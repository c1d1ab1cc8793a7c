"""The differences that may be chance: their constants come from the shipped runs, and hold for the intervals of these."""

from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from scipy.optimize import nnls

from hbench.evaluation.leaderboard import read
from hbench.evaluation.leaderboard.resolution import VARIATION, resolution, typical_difference
from hbench.metrics.significance import UnitSums, difference_intervals
from studies.values import read as read_values

VALUES, _ = read_values(Path(__file__).parents[2] / "leaderboards/glyphs-study.parquet")


def differences(metric):
    """The differences (C,) of every class between two losses of one seed, and the queries (C,) of every class."""
    for first, second in combinations(VALUES.values(), 2):
        for seed, other in zip(first[metric].values, second[metric].values, strict=True):
            yield seed - other, first[metric].queries


@pytest.mark.parametrize("metric", VARIATION)
def test_the_variation_is_that_of_the_shipped_runs(metric):
    fits = []
    for difference, queries in differences(metric):
        errors = (difference - np.average(difference, weights=queries)) ** 2
        weights = np.minimum(queries, 50)  # a class of hundreds of queries is still one class
        fits.append(nnls(np.stack([weights, weights / queries], axis=1), errors * weights)[0])
    np.testing.assert_allclose(VARIATION[metric], np.sqrt(np.median(fits, axis=0)), atol=5e-5)


@pytest.mark.parametrize("metric", VARIATION)
def test_it_is_about_the_interval_that_the_runs_have(metric):
    halves = []
    for difference, queries in differences(metric):
        values, units = np.repeat(difference, queries)[None], np.repeat(np.arange(len(queries)), queries)
        low, high = difference_intervals(UnitSums.of(values, units))[0]
        halves.append(100 * (high - low) / 2)
        effective = queries.sum() ** 2 / (queries**2).sum()
    expected = typical_difference(metric, classes=int(effective), queries=int(queries.sum()))
    assert 0.6 < expected / np.median(halves) < 1.5


def test_it_needs_the_size_of_the_test_and_a_metric_whose_variation_is_known():
    assert resolution(read("sop"), "R@1") == typical_difference("R@1", classes=11316, queries=60502)
    assert resolution(read("inshop"), "R@1") == typical_difference("R@1", classes=3985, queries=14218)
    assert resolution(read("sop"), "R@1000") is None
    assert resolution(read("dyml-animal"), "ASI") is None
