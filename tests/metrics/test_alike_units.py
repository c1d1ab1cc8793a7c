"""How many trials a mean over units says as much as, by loops over the formula."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hbench.metrics.significance import UnitSums, mean_intervals, trials_of

UNITS = st.lists(st.lists(st.sampled_from([0.0, 0.25, 1.0]), min_size=1, max_size=6), min_size=2)


def looped(values_of_units):
    """μ(1 − μ)/Var of the mean of all values, τ² by moments, weights renewed three times."""
    number = sum(len(values) for values in values_of_units)
    means = [sum(values) / len(values) for values in values_of_units]
    squares = 0.0
    for values, mean in zip(values_of_units, means, strict=True):
        for value in values:
            squares += (value - mean) ** 2
    own = [squares / max(number - len(means), 1) / len(values) for values in values_of_units]
    weights = [1.0] * len(means)
    for _ in range(3):
        weights = [weight / sum(weights) for weight in weights]
        common = sum(weight * mean for weight, mean in zip(weights, means, strict=True))
        spread = expected = scale = 0.0
        for weight, mean, variance in zip(weights, means, own, strict=True):
            spread += weight * (mean - common) ** 2
            expected += weight * (1 - weight) * variance
            scale += weight * (1 - weight)
        between = max((spread - expected) / scale, 0)
        weights = [1 / max(between + variance, 1e-30) for variance in own]
    variance = 0.0
    for values, noise in zip(values_of_units, own, strict=True):
        variance += (len(values) / number) ** 2 * (between + noise)
    return common * (1 - common) / variance if variance > 1e-30 else np.inf


@given(UNITS)
def test_trials_are_those_of_the_formula(values_of_units):
    counts = np.array([len(values) for values in values_of_units], float)
    sums = np.array([sum(values) for values in values_of_units])
    squares = np.array([sum(value**2 for value in values) for values in values_of_units])
    found = trials_of(counts / counts.sum(), counts, sums=sums, squares=squares)
    assert found == pytest.approx(looped(values_of_units), rel=1e-6)


def test_a_large_class_without_a_mistake_does_not_hide_what_small_ones_say():
    """A class of 900 that is right, and 20 classes of 5 of which four are wrong."""
    units = np.concatenate([np.zeros(900, int), np.repeat(np.arange(1, 21), 5)])
    right = np.ones(1000)
    right[900:920] = 0
    sums = UnitSums.of(right[None], units)
    low, high = mean_intervals(sums)[0]
    # .98 of the sample; the large class might be one of the wrong ones
    assert sums.trials[0] < 10
    assert low < 0.7
    assert high >= 0.98


def test_equal_classes_have_the_interval_of_their_own_variance():
    units = np.repeat(np.arange(100), 5)
    rng = np.random.default_rng(3)
    values = rng.random((1, 100)).repeat(5, axis=1).round()
    sums = UnitSums.of(values, units)
    mean = float(values.mean())
    assert sums.trials[0] == pytest.approx(mean * (1 - mean) / sums.variance[0], rel=1e-9)
