"""kNN accuracy and NMI: the formulas as loops, and scikit-learn's classifier where no votes are
equal.
"""

import math
from collections import Counter
from itertools import pairwise, permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.neighbors import KNeighborsClassifier

import hbench
from hbench.core.errors import UsageError

pytestmark = pytest.mark.fast


def vote(scores, classes, own, k):
    """Whether the class with the most of the first k items, the first of several, is `own` in every
    order of equal scores.
    """
    listed = [
        (score, name) for score, name in zip(scores, classes, strict=True) if score > -math.inf
    ]
    if own not in [name for _, name in listed]:
        return math.nan
    winners = set()
    for order in permutations(listed):
        if all(first[0] >= second[0] for first, second in pairwise(order)):
            counts = Counter(name for _, name in order[:k])
            winners.add(next(name for _, name in order if counts[name] == max(counts.values())))
    return float(winners == {own})


@settings(max_examples=40)
@given(st.integers(0, 10**6), st.integers(1, 6))
def test_the_class_of_most_of_the_nearest_wins(seed, k):
    rng = np.random.default_rng(seed)
    scores, classes = rng.integers(3, size=(4, 7)).astype(float), rng.integers(3, size=7)
    scores[rng.random(scores.shape) < 0.1] = -np.inf
    own = rng.integers(4, size=4)
    values = hbench.metrics.knn_accuracy(scores, classes, own, k)
    expected = [vote(row, classes.tolist(), name, k) for row, name in zip(scores, own, strict=True)]
    np.testing.assert_equal(values.tolist(), expected)
    names = np.array(list("abcde"))
    assert np.array_equal(
        values, hbench.metrics.knn_accuracy(scores, names[classes], names[own], k), equal_nan=True
    )


@pytest.mark.parametrize("k", [1, 5, 20])
def test_a_classifier_by_nearest_neighbours_is_right_as_often(k):
    rng = np.random.default_rng(k)
    classes = np.arange(300) % 2  # of two classes an odd number of votes is never equal
    vectors = np.eye(2)[classes] + rng.normal(size=(300, 2))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    gallery, queries = slice(100, None), slice(100)
    scores = vectors[queries] @ vectors[gallery].T
    k = k | 1
    values = hbench.metrics.knn_accuracy(scores, classes[gallery], classes[queries], k)
    theirs = (
        KNeighborsClassifier(k).fit(vectors[gallery], classes[gallery]).predict(vectors[queries])
    )
    assert np.array_equal(values, theirs == classes[queries])
    if k == 1:
        levels = (classes[queries][:, None] == classes[gallery]).astype(int)
        assert np.array_equal(values, hbench.metrics.recall_at_k(scores, levels, 1))


def test_nmi_is_the_mutual_information_over_the_mean_entropy():
    rng = np.random.default_rng(0)
    classes = np.arange(60) % 3
    apart = np.array([0.0, 10, 20])[classes] + rng.normal(size=60) * 0.1
    assert hbench.metrics.nmi(apart[:, None], classes) == pytest.approx(1)
    # two clusters, {0} and {1, 2}: I = H(K) = H(1/3, 2/3), H(C) = log 3
    near = np.where(classes == 0, 0.0, 10.0) + rng.normal(size=60) * 0.1
    of_clusters = -(math.log(1 / 3) / 3 + 2 * math.log(2 / 3) / 3)
    expected = 2 * of_clusters / (of_clusters + math.log(3))
    assert hbench.metrics.nmi(near[:, None], classes, clusters=2) == pytest.approx(expected)
    assert hbench.metrics.nmi(
        near[:, None], np.array(["a", "b", "c"])[classes], clusters=2
    ) == pytest.approx(expected)


@pytest.mark.parametrize(
    "call",
    [
        lambda: hbench.metrics.knn_accuracy([[1.0, 2.0]], [0], [0], 1),
        lambda: hbench.metrics.knn_accuracy([[1.0, np.nan]], [0, 1], [0], 1),
        lambda: hbench.metrics.knn_accuracy([[1.0, 2.0]], [0, 1], [0], 0),
        lambda: hbench.metrics.nmi([[1.0], [2.0]], [0]),
        lambda: hbench.metrics.nmi([[1.0], [np.nan]], [0, 1]),
        lambda: hbench.metrics.nmi([["1"], ["2"]], [0, 1]),
        lambda: hbench.metrics.nmi([[1.0], [2.0]], [0, 1], clusters=3),
    ],
)
def test_arrays_that_do_not_fit_are_refused(call):
    with pytest.raises(UsageError):
        call()
