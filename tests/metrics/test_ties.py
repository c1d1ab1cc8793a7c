"""Which values other orders of equal scores can have: what the documentation says of ties, searched
over all orders.
"""

import itertools

import numpy as np
import pytest

from hbench.metrics import evaluate
from hbench.metrics.relevance import alpha, has_inversion

pytestmark = pytest.mark.fast

BOUNDED = ["AP", "NDCG", "NDCG@3", "ASI", "R@2", "P@3", "mAP@R", "mAP@3", "wAP", "MRR", "TR@2"]
BY_RELEVANCE = ["H-AP", "H-AP@R", "H-R@3"]


def problem(seed):
    """Levels (6,) of three kinds, and scores (6,) with many ties."""
    rng = np.random.default_rng(seed)
    return rng.integers(0, 3, size=6), rng.integers(0, 3, size=6).astype(float)


def is_inverted(levels):
    counts = np.bincount(levels, minlength=3)[None]
    return bool(has_inversion(alpha(1)(counts), counts)[0])


def values_of_all_orders(metrics, levels, scores):
    """The values (orders, M) under every order of equal scores."""
    found = set()
    for order in itertools.permutations(range(6)):
        broken = scores - 1e-3 * np.argsort(order)
        found.add(tuple(levels[np.argsort(-broken)].tolist()))
    rows = np.array(sorted(found))
    values = evaluate(metrics, np.tile(-np.arange(6.0), (len(rows), 1)), rows, depth=2)
    return np.stack([values[name] for name in values], axis=1)


def bounds(metrics, levels, scores):
    ends = [
        evaluate(metrics, scores, levels, ties=ties, depth=2)
        for ties in ("pessimistic", "optimistic")
    ]
    return [np.array([each[name][0] for name in each]) for each in ends]


def is_within(metrics, seed):
    levels, scores = problem(seed)
    low, high = bounds(metrics, levels, scores)
    values = values_of_all_orders(metrics, levels, scores)
    defined = ~np.isnan(low)
    return bool(
        (values[:, defined] >= low[defined] - 1e-12).all()
        and (values[:, defined] <= high[defined] + 1e-12).all()
    )


@pytest.mark.parametrize("seed", range(60))
def test_the_two_ties_policies_are_bounds_for_metrics_that_rise_with_the_level(seed):
    assert is_within(BOUNDED, seed)


@pytest.mark.parametrize("seed", range(60))
def test_they_are_bounds_for_relevance_without_an_inversion(seed):
    assert is_inverted(problem(seed)[0]) or is_within(BY_RELEVANCE, seed)


def test_an_inversion_can_lie_outside_of_them_as_the_documentation_says():
    inversions = [seed for seed in range(200) if is_inverted(problem(seed)[0])]
    assert len(inversions) > 5
    assert not all(is_within(BY_RELEVANCE, seed) for seed in inversions)


def test_precision_by_relevance_can_lie_outside_of_them_as_the_documentation_says():
    assert not all(is_within(["H-P@3"], seed) for seed in range(100))
