"""What an audit says of certainty holds where mistakes are not random ones: classes that are taken
for one other class, mistakes that come with copies, and items far from everything.
"""

import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hbench.auditing.evidence import Evidence, Votes
from hbench.auditing.likelihood import Sample
from hbench.auditing.pool import Nearest
from hbench.auditing.repeats import votes_of
from hbench.auditing.strangeness import BORROWED, LEAST, MOST, Strangeness
from tests.auditing.test_audit import audited, paths_of, places, zoo


def with_flows(rows, pairs, share=0.3, seed=0):
    """The paths where classes lose a share of their items to one other class each."""
    rng = np.random.default_rng(seed)
    wrong, lost = list(rows), {}
    for source, target in pairs:
        of_source = [n for n, row in enumerate(rows) if row == source]
        lost[source, target] = rng.choice(of_source, round(share * len(of_source)), replace=False)
        for item in lost[source, target].tolist():
            wrong[item] = target
    return wrong, lost


@pytest.fixture(scope="module")
def taken_for_another():
    """An audit of classes of which two are often taken for a sibling, and two for a class of another
    order; the items that were lost, by pair."""
    vectors, rows = zoo(each_has=80)
    paths = paths_of()
    pairs = [
        (paths[0], paths[2]),
        (paths[20], paths[21]),
        (paths[30], paths[60]),
        (paths[50], paths[5]),
    ]
    wrong, lost = with_flows(rows, pairs)
    return audited(vectors, wrong), lost


def test_a_class_that_is_often_taken_for_one_other_is_one_group(taken_for_another):
    audit, lost = taken_for_another
    found = {}
    for group in audit.groups:
        pair = (audit.pool.paths[group.proposed], audit.pool.paths[group.label])
        found[pair] = set(group.items.tolist())
    assert set(found) == set(lost)
    for pair, items in lost.items():
        assert len(found[pair] & set(items.tolist())) >= 0.9 * len(items)
        assert len(found[pair] - set(items.tolist())) <= 0.1 * len(items)


def test_of_groups_no_sureness_is_said_and_they_come_before_what_is_likely_right(taken_for_another):
    audit, _lost = taken_for_another
    rows = audit.suspects.to_pylist()
    assert all(row["sureness"] is None for row in rows if row["group"])
    for kind in ("far", "near"):
        order = [
            bool(row["group"])
            for row in rows
            if row["list"] == kind and (row["sureness"] or 0) < 0.5
        ]
        assert order == sorted(order, reverse=True)


def test_groups_count_among_the_wrong_labels_at_most_not_at_least(taken_for_another):
    audit, _lost = taken_for_another
    far, near = audit.lists
    # 2 × 24 of 80; of batches of 5, relabelled on purpose, half are found
    assert 48 <= far.at_most <= 140
    assert 48 <= near.at_most <= 100
    assert far.at_least == near.at_least == 0


def test_numbers_and_words_tell_of_groups(taken_for_another):
    audit, _lost = taken_for_another
    groups = json.loads(json.dumps(audit.summary()))["groups"]
    assert len(groups) == 4
    assert {group["level"] for group in groups} == {"order", "species"}
    assert sum(len(group["items"]) for group in groups) == sum(
        bool(row["group"]) for row in audit.suspects.to_pylist()
    )
    assert "4 groups" in audit.in_words()


def test_classes_that_are_merely_alike_are_no_group():
    """Two siblings whose items lie in one place: each sends as many to the other."""
    vectors, rows = zoo(each_has=40)
    one, other = paths_of()[:2]
    rng = np.random.default_rng(0)
    mixed = [(one, other)[rng.integers(2)] if row in (one, other) else row for row in rows]
    assert audited(vectors, mixed).groups == ()


def test_a_mistake_that_comes_with_copies_is_found_and_sure():
    vectors, rows = zoo(each_has=40)
    paths = paths_of()
    rng = np.random.default_rng(1)
    first = rng.choice(len(rows), 12, replace=False)
    copies = np.repeat(first, 4)
    jitter = 0.01 * rng.normal(size=(len(copies), vectors.shape[1]))
    wrong = list(rows)
    for item in first.tolist():
        others = [path for path in paths if path[0] != rows[item][0]]
        wrong[item] = others[rng.integers(len(others))]
    planted = {*first.tolist(), *range(len(rows), len(rows) + len(copies))}
    found = audited(
        np.concatenate([vectors, vectors[copies] + jitter]).astype(np.float32),
        [*wrong, *(wrong[item] for item in copies.tolist())],
    )
    far = found.lists[0]
    assert set(places(found.suspects, "far")[: len(planted)]) == planted
    assert (far.sureness[: len(planted)] > 0.9).all()


@pytest.mark.parametrize("seed", [0, 1])
def test_items_far_from_everything_are_no_sure_suspects(seed):
    rng = np.random.default_rng(seed)
    vectors, rows = zoo(seed, each_has=80, noise=0.0)
    tails = 0.7 * rng.standard_t(3, size=vectors.shape)
    clean = audited((vectors + tails).astype(np.float32), rows)
    sure = [row for row in clean.suspects.to_pylist() if (row["sureness"] or 0) >= 0.9]
    assert len(sure) <= 3
    assert all(each.at_least <= 5 for each in clean.lists)


def test_a_copy_of_the_same_label_has_no_vote_and_copies_of_others_one():
    # items 0 and 1 are copies, 2 and 3 as well; 4 … 33 are no copies
    rng = np.random.default_rng(0)
    points = rng.normal(size=(34, 8))
    points[1], points[3] = points[0], points[2]
    unit = points / np.linalg.norm(points, axis=1, keepdims=True)
    cosines = unit @ unit.T - 2 * np.eye(34)
    order = np.argsort(-cosines, axis=1, kind="stable")[:, :12]
    nearest = Nearest(order, np.take_along_axis(cosines, order, axis=1))
    labelled = (np.array([[0]]), np.array([1]), np.zeros(34, np.int64))
    votes, distances = votes_of(labelled, nearest, 6)
    assert votes.weights[:5].tolist() == [0.5, 0.5, 0.5, 0.5, 1.0]
    assert not (votes.neighbours[0] == 1).any()
    assert not any({2, 3} <= set(row) for row in votes.neighbours.tolist())
    for item, row in enumerate(votes.neighbours.tolist()):
        assert distances[item] == pytest.approx(1 - cosines[item, row])


def test_an_item_of_a_copied_mistake_is_weighed_without_its_copies():
    """Three copies with one list of votes: the model of their class is that of all others."""
    paths = np.array([[0], [1]])
    classes = np.array([0, 0, 0, 0, 0, 1, 1, 1])
    neighbours = np.array([[5, 6]] * 3 + [[4, 0], [3, 1], [6, 7], [5, 7], [5, 6]])
    weights = np.array([1 / 3] * 3 + [1.0] * 5)
    votes = Votes(paths, np.ones(2, np.int64), classes, neighbours, weights)
    _, near = Evidence(votes).log_likelihood(np.array([0]), np.array([0]))
    # of the class 0 two other items with two votes each, none for class 1; w = 1, usual 3/8
    assert near[0] == pytest.approx(math.log((0 + 3 / 8) / (4 + 1)))


def test_strangeness_is_the_deviation_from_what_is_usual_in_the_class():
    rng = np.random.default_rng(0)
    paths = np.array([[0, 0], [0, 1], [1, 2]])
    classes = np.repeat([0, 1, 2], [30, 2, 20])
    distances = np.exp(rng.normal(classes[:, None] - 1.0, 0.5, size=(52, 4)))
    votes = Votes(paths, np.full(3, 2), classes, np.zeros((52, 4), np.int64), np.ones(52))
    found = Strangeness.of(votes, distances)
    logs = [float(np.mean([math.log(d) for d in row])) for row in distances]

    def usual(members, mean, spread):
        values = [logs[n] for n in range(52) if members(n)]
        middle = (sum(values) + BORROWED * mean) / (len(values) + BORROWED)
        squares = sum((value - middle) ** 2 for value in values) + BORROWED * spread**2
        return middle, math.sqrt(squares / (len(values) + BORROWED))

    everyone = (float(np.mean(logs)), float(np.std(logs)))
    for label in range(3):
        parent = usual(lambda n, of=label: paths[classes[n], 0] == paths[of, 0], *everyone)
        mean, spread = usual(lambda n, of=label: classes[n] == of, *parent)
        expected = [min(max((logs[n] - mean) / spread, LEAST), MOST) for n in range(52)]
        assert found.in_class(np.arange(52), np.full(52, label)) == pytest.approx(expected)


@settings(max_examples=30)
@given(st.integers(0, 10**6), st.floats(1e-6, 0.4))
def test_the_gradient_of_the_likelihood_is_its_slope(seed, share):
    rng = np.random.default_rng(seed)
    features = np.concatenate([np.ones((12, 1)), rng.normal(size=(12, 3))], axis=1)
    as_is, swapped = rng.integers(0, 9, size=(2, 12)).astype(float)
    sample = Sample(features, as_is, swapped, 0.5)
    line, step = rng.normal(size=4), 1e-6
    slope = sample.slope(line, share)
    for at in range(4):
        moved = [sample.cost(line + sign * step * np.eye(4)[at], share) for sign in (1, -1)]
        assert slope[at] == pytest.approx((moved[0] - moved[1]) / (2 * step), rel=1e-4, abs=1e-4)
