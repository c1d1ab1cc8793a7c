"""Measures of a grouping against hand-worked values, plain loops and scikit-learn."""

import math
from itertools import combinations

import numpy as np
import pytest
from hbench_hgldv2.curation import agreement
from hbench_hgldv2.curation.replay import Placed
from hbench_hgldv2.dataset.card import imbalance
from hbench_hgldv2.grouping import encode, quality
from hbench_hgldv2.grouping.fit import silhouettes
from hbench_hgldv2.labels.label import Label, head_noun
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import silhouette_samples

pytestmark = pytest.mark.fast

ids = st.lists(st.integers(0, 4), min_size=2, max_size=25)


def f1_by_pairs(found, reference, weights):
    """Pairwise F1 by looking at every pair of copies."""
    copies = [(f, r) for f, r, w in zip(found, reference, weights, strict=True) for _ in range(w)]
    together = [(a[0] == b[0], a[1] == b[1]) for a, b in combinations(copies, 2)]
    both, ours, theirs = (
        sum(map(test, together)) for test in (all, lambda t: t[0], lambda t: t[1])
    )
    return 1.0 if ours + theirs == 0 else 2 * both / (ours + theirs)


@given(st.data())
def test_weighted_measures_are_those_of_copies(data):
    found = data.draw(ids)
    reference = data.draw(st.lists(st.integers(0, 3), min_size=len(found), max_size=len(found)))
    weights = data.draw(st.lists(st.integers(1, 3), min_size=len(found), max_size=len(found)))
    measures = quality.agreement_with(found, reference, weights)
    copies = [pair for *pair, w in zip(found, reference, weights, strict=True) for _ in range(w)]
    assert measures == pytest.approx(quality.agreement_with(*zip(*copies, strict=True)))
    assert measures["pairwise_f1"] == pytest.approx(f1_by_pairs(found, reference, weights))
    swapped = quality.agreement_with(reference, found, weights)
    assert measures["purity"] == pytest.approx(swapped["inverse_purity"])
    assert measures["homogeneity"] == pytest.approx(swapped["completeness"])


def test_purity_effort_and_imbalance_are_the_hand_worked_ones():
    effective = pytest.approx(0.8**-0.8 * 0.1**-0.1 * 0.1**-0.1)
    assert imbalance([8, 1, 1]) == {"top1": 0.8, "top10": 1.0, "ratio": 8.0, "effective": effective}
    found, reference = [0, 0, 0, 1, 1, 2], ["a", "a", "b", "b", "b", "c"]
    measures = quality.agreement_with(found, reference)
    assert measures["purity"] == (2 + 2 + 1) / 6
    assert measures["inverse_purity"] == (2 + 2 + 1) / 6
    assert measures["effort"] == 2 * 4 - 3 - 3  # fragments 0a 0b 1b 2c
    assert (
        quality.agreement_with(found, reference, [10, 1, 1, 1, 1, 1])["purity"] == (11 + 2 + 1) / 15
    )
    assert quality.recalls(found, reference)[0] == quality.Recall("b", 3, 2 / 3, 2)


@given(st.integers(0, 1000))
def test_silhouettes_without_pairs_equal_those_of_scikit_learn(seed):
    rng = np.random.default_rng(seed)
    vectors = rng.normal(size=(30, 5))
    unit = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)
    clusters = np.concatenate([rng.integers(0, 4, 28), [4, 5]])
    expected = silhouette_samples(unit.astype(float), clusters, metric="cosine")
    assert silhouettes(unit, clusters.tolist()) == pytest.approx(expected, abs=1e-5)


def test_head_nouns_and_lexical_coherence_read_english_phrases():
    texts = ("fortress of Brazil", "elementary school in Japan", "château", "tower (12th c.)", "?")
    assert list(map(head_noun, texts)) == ["fortress", "school", "château", "tower", "?"]
    assert (
        quality.lexical_coherence(["stone bridge", "road bridge", "arch", "lake"], [0, 0, 0, 1])
        == 3 / 4
    )


def placed(class_id, group, status="group"):
    return Placed(class_id, class_id, status, group, "natural", "", "", (), ())


def test_cohens_kappa_is_the_hand_worked_one():
    labels = [
        Label(f"Q{i}", f"l{i}", weight, 0, 0, ()) for i, weight in enumerate([10, 1, 1, 1, 5])
    ]
    first = [
        placed("Q0", "a"),
        placed("Q1", "a"),
        placed("Q2", "b"),
        placed("Q3", "", "dropped"),
        placed("Q4", "a"),
    ]
    second = [first[0], placed("Q1", "b"), *first[2:4], placed("Q4", "", "unassigned")]
    found = agreement.compare(first, second, labels)
    chance = (2 / 4) * (1 / 4) + (1 / 4) * (2 / 4) + (1 / 4) * (1 / 4)
    assert found.labels == 4
    assert found.observed == 3 / 4
    assert found.kappa == pytest.approx((3 / 4 - chance) / (1 - chance))
    assert found.weighted_observed == 12 / 13
    assert found.queue == [agreement.Disagreement("Q1", "l1", 1, "'a'", "'b'")]


@given(st.integers(0, 10_000))
def test_how_sure_an_inconsistency_is_follows_the_formula(seed):
    rng = np.random.default_rng(seed)
    groups = [f"g{rng.integers(3)}" for _ in range(9)]
    labels = [f"n{n} {'house' if n % 2 else 'tower'}" for n in range(9)]
    vectors = encode.unit(rng.normal(size=(9, 4)))
    similar = {
        (i, j): float(vectors[i].astype(float) @ vectors[j].astype(float))
        for i in range(9)
        for j in range(9)
    }
    inside = {
        group: [
            similar[i, j] for i in range(9) for j in range(i) if groups[i] == groups[j] == group
        ]
        for group in set(groups)
    }
    every = [value for values in inside.values() for value in values]
    mean, variance = (np.mean(every), np.var(every)) if every else (0.0, 1.0)
    own = {group: (sum(values) + 3 * mean) / (len(values) + 3) for group, values in inside.items()}
    spread = {
        group: max(
            (sum((value - own[group]) ** 2 for value in values) + 3 * variance) / (len(values) + 3),
            1e-9,
        )
        for group, values in inside.items()
    }
    found = quality.inconsistencies(labels, groups, vectors)
    assert {frozenset((row.label, row.other)) for row in found} == {
        frozenset((labels[i], labels[j]))
        for i in range(9)
        for j in range(i)
        if groups[i] != groups[j] and (i % 2 == j % 2 or similar[i, j] >= 0.55)
    }
    for row in found:
        usual = (own[row.group] + own[row.other_group]) / 2
        width = math.sqrt((spread[row.group] + spread[row.other_group]) / 2)
        value = (similar[labels.index(row.label), labels.index(row.other)] - usual) / width
        assert row.sure == pytest.approx(value, abs=1e-4, rel=1e-4)
    fresh = [row for row in found if not row.repeats]
    assert found[: len(fresh)] == fresh
    assert [row.sure for row in fresh] == sorted((row.sure for row in fresh), reverse=True)
    asked = [q for row in fresh for q in ((row.label, row.other_group), (row.other, row.group))]
    assert len(asked) == len(set(asked))
