"""The threshold whose promise holds for classes drawn anew."""

import math

import numpy as np
import pytest

from hbench.core.errors import UsageError
from hbench.metrics.significance import (
    UnitSums,
    bound_without_errors,
    mean_intervals,
    upper_bounds,
)
from hbench.trust.climbing import Climb
from hbench.trust.thresholds import said_at, threshold_for, units_needed


def drawn(classes, per_class, seed=0, spread=1.0):
    """Items of classes of their own difficulty, in a tree of two levels: climbs, what is right, and
    classes."""
    rng = np.random.default_rng(seed)
    units = np.repeat(np.arange(classes), per_class)
    hard = np.repeat(rng.exponential(spread, classes), per_class)
    fine = np.clip(rng.beta(4, 1 + hard), 0, 1)
    coarse = fine + (1 - fine) * rng.random(len(units))
    right_coarse = rng.random(len(units)) < coarse ** (1 + hard / 3)
    right_fine = right_coarse & (rng.random(len(units)) < fine ** (1 + hard / 3))
    climb = Climb(np.zeros((len(units), 2), np.int32), np.stack([coarse, fine], axis=1))
    return climb, np.stack([right_coarse, right_fine], axis=1).astype(float), units


def bound_by_loop(climb, right, units, threshold):
    """The bound of the share wrong among what is said, item by item."""
    wrong = 1 - said_at(climb, right, threshold)
    return upper_bounds(UnitSums.of(wrong[None], units))[0]


def test_the_threshold_is_bounded_and_the_next_ones_above_are_too():
    climb, right, units = drawn(300, 20)
    held = threshold_for(climb, right, units, 0.9)
    assert 0 < held.threshold < 0.95
    assert bound_by_loop(climb, right, units, held.threshold) <= 0.1
    for above in (held.threshold + 0.01, (held.threshold + 0.97) / 2):
        assert bound_by_loop(climb, right, units, above) <= 0.1


def test_a_higher_target_needs_a_higher_threshold():
    climb, right, units = drawn(300, 20)
    low, high = (threshold_for(climb, right, units, target).threshold for target in (0.85, 0.92))
    assert low < high


def test_few_classes_promise_nothing_however_many_items_they_have():
    climb, right, units = drawn(20, 500, spread=0.0)
    right[:] = 1
    held = threshold_for(climb, right, units, 0.95)
    assert held.threshold == math.inf
    assert (held.units, held.needed) == (20, 65)
    by_item = threshold_for(climb, right, np.arange(len(units)), 0.95)
    assert by_item.threshold == climb.reach.min()


def test_as_many_classes_as_needed_without_an_error_are_enough():
    needed = units_needed(0.9)
    climb = Climb(np.zeros((needed, 1), np.int32), np.full((needed, 1), 0.5))
    right = np.ones((needed, 1))
    assert threshold_for(climb, right, np.arange(needed), 0.9).threshold == 0.5
    fewer = climb.of(np.arange(needed - 1))
    assert threshold_for(fewer, right[1:], np.arange(needed - 1), 0.9).threshold == math.inf


def test_a_target_that_no_number_of_units_reaches_is_refused():
    assert units_needed(1 - 1e-6) > 10**6
    with pytest.raises(UsageError, match="no number of units"):
        units_needed(1 - 1e-9)


def test_items_of_unknown_truth_change_nothing():
    climb, right, units = drawn(200, 10)
    both = Climb(np.concatenate([climb.nodes] * 2), np.concatenate([climb.masses] * 2))
    unknown = np.concatenate([right, np.full(right.shape, np.nan)])
    held = threshold_for(both, unknown, np.concatenate([units, units]), 0.9)
    assert held.threshold == pytest.approx(
        threshold_for(climb, right, units, 0.9).threshold, abs=0.02
    )


def test_the_order_of_the_items_changes_nothing():
    climb, right, units = drawn(200, 10)
    order = np.random.default_rng(1).permutation(len(units))
    mixed = threshold_for(climb.of(order), right[order], units[order], 0.9)
    assert mixed == threshold_for(climb, right, units, 0.9)


def test_the_promise_holds_for_classes_drawn_anew():
    whole = drawn(4_000, 10, seed=5)
    rng = np.random.default_rng(6)
    target, missed, passed = 0.9, 0, 0
    for _ in range(100):
        classes = rng.choice(4_000, 150, replace=False)
        rows = (classes[:, None] * 10 + np.arange(10)).ravel()
        held = threshold_for(whole[0].of(rows), whole[1][rows], whole[2][rows], target)
        passed += math.isfinite(held.threshold)
        if math.isfinite(held.threshold):
            missed += np.nanmean(said_at(whole[0], whole[1], held.threshold)) < target
    assert passed > 50
    assert missed / 100 <= 0.065


def test_one_sided_bounds_are_the_ends_of_intervals_of_ninety_percent():
    rng = np.random.default_rng(0)
    wrong = (rng.random((1, 500)) < 0.1).astype(float)
    sums = UnitSums.of(wrong, np.repeat(np.arange(50), 10))
    assert sums.means[0] < upper_bounds(sums)[0] < mean_intervals(sums)[0, 1]


def test_the_bound_without_errors_falls_with_the_units():
    bounds = [bound_without_errors(units) for units in (1, 5, 20, 100, 1000)]
    assert bounds[0] == 1
    assert bounds == sorted(bounds, reverse=True)


def test_counts_give_the_sums_of_values():
    rng = np.random.default_rng(0)
    values = (rng.random((3, 300)) < 0.2).astype(float)
    values[rng.random(values.shape) < 0.3] = np.nan
    units = rng.integers(20, size=300)
    counts = np.stack([np.bincount(units, row, 20) for row in ~np.isnan(values)])
    ones = np.stack([np.bincount(units, np.nan_to_num(row), 20) for row in values])
    for found, expected in zip(
        UnitSums.of_counts(counts, ones), UnitSums.of(values, units), strict=True
    ):
        np.testing.assert_allclose(found, expected, atol=1e-12)
