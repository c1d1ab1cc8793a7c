"""Intervals over classes hold the truth 95 times in 100, and two equal models are told apart 5
times, in simulated test sets.
"""

import pytest

from tests.metrics import coverage

pytestmark = pytest.mark.slow


def test_intervals_over_classes_hold_the_truth_and_those_over_queries_do_not():
    for (design, kind), (by_class, by_query) in coverage.coverage_of_classes().items():
        assert 0.935 <= by_class <= 0.97, (design, kind)
        assert by_query < 0.85, (design, kind)


def test_intervals_of_rates_near_one_do_not_collapse():
    found = coverage.coverage_of_rates()
    assert min(found[0.99, queries] for queries in (30, 100)) >= 0.93
    assert all(share >= 0.93 for share in found.values())


def test_intervals_hold_where_a_few_classes_make_most_mistakes():
    for case, share in coverage.coverage_near_one().items():
        assert share >= 0.935, case


def test_intervals_hold_where_a_few_large_classes_make_most_of_the_score():
    designs = dict(list(coverage.long_tails().items())[1:4])
    for case, share in coverage.coverage_on_long_tails(designs, (0.9, 0.99), 200).items():
        assert share >= 0.94, case


def test_equal_models_are_told_apart_as_often_as_the_level_says():
    for (design, kind), (level, holds_zero) in coverage.levels_of_the_test().items():
        assert 0.04 <= level <= 0.06, (design, kind)
        assert 0.935 <= holds_zero <= 0.97, (design, kind)
