"""Answers at a threshold: nodes, masses, verdicts, risk against coverage, against double loops."""

import numpy as np
import pytest

from hbench.tree import LabelTree
from hbench.tree.partial import ended_early
from hbench.trust.climbing import BELOW, Climb, Shares, climb_of, coverage_of, leaf_counts, verdicts
from hbench.trust.outcomes import JudgedClimb, area_under, curve_of, outcome_at, reliability_of
from tests.trust import problems


def climbed(problem):
    """The tree of a problem, and its climbs, judged."""
    levels = [f"level{number}" for number in range(len(problem.paths[0]))]
    tree, labels = LabelTree.from_names(problem.paths, levels=levels)
    climb = climb_of(Shares(*problems.rows_of(problem, labels)), len(problem.shares))
    place = {path: number for number, path in enumerate(problem.paths)}
    true = [
        (item, labels[place[path]], known)
        for item, paths in enumerate(problem.truths)
        for path, known in paths
    ]
    owners = np.array([item for item, _, _ in true])
    right = verdicts(
        climb.nodes,
        np.stack([path for _, path, _ in true]),
        owners,
        np.array([known for _, _, known in true]),
    )
    return tree, JudgedClimb(climb, right, coverage_of(tree, climb.nodes))


@pytest.mark.parametrize("block", range(8))
def test_answers_risk_coverage_and_area_are_those_of_double_loops(block):
    for seed in range(40 * block, 40 * block + 40):
        problem = problems.problem(seed)
        tree, judged = climbed(problem)
        curve = curve_of(judged)
        some = {
            *range(0, len(curve.thresholds), 1 + len(curve.thresholds) // 12),
            len(curve.thresholds) - 1,
        }
        for number in sorted(some):
            threshold = curve.thresholds[number]
            # a little below it: the sums of the loops are rounded otherwise
            at = threshold - 1e-9 if np.isfinite(threshold) else threshold
            risk, coverage = problems.risk_and_coverage(problem, at)
            later = curve.thresholds[number:] >= at
            last = number + int(later.sum()) - 1
            assert curve.risk[last] == pytest.approx(np.nan_to_num(risk), abs=1e-12)
            assert curve.coverage[last] == pytest.approx(coverage, abs=1e-12)
            found = outcome_at(judged, at)
            assert (found.risk, found.coverage) == pytest.approx(
                (risk, coverage), abs=1e-12, nan_ok=True
            )
            for item, level in enumerate(judged.climb.levels_at(at).tolist()):
                names = [
                    tree.names[depth][judged.climb.nodes[item, depth]] for depth in range(level)
                ]
                # equal names are told apart by their parents
                said = problems.answer(problem, item, at)
                assert [name.split(" (")[0] for name in names] == list(said)
                if level:
                    mass = problems.mass(problem, item, said)
                    assert judged.climb.masses[item, level - 1] == pytest.approx(mass, abs=1e-12)
        area = sum(
            (curve.coverage[n + 1] - curve.coverage[n]) * (curve.risk[n + 1] + curve.risk[n]) / 2
            for n in range(len(curve.risk) - 1)
        )
        assert area_under(curve) == pytest.approx(area, abs=1e-12)


def test_rows_of_one_path_count_together():
    paths = np.array([[0, 0], [0, 1], [0, 1]])
    climb = climb_of(Shares(np.zeros(3, np.int64), paths, np.array([0.4, 0.3, 0.3])), 1)
    assert climb.nodes.tolist() == [[0, 1]]
    assert climb.masses.tolist() == [pytest.approx([1.0, 0.6])]


def test_what_is_missing_to_one_stays_on_the_root():
    climb = climb_of(Shares(np.array([0]), np.array([[3, 5]]), np.array([0.7])), 1)
    assert climb.levels_at(0.7).tolist() == [2]
    assert climb.levels_at(0.8).tolist() == [0]


def test_a_path_that_ends_above_another_goes_on_along_it():
    paths = np.array([[0, BELOW], [0, 1], [1, 2]])
    climb = climb_of(Shares(np.zeros(3, np.int64), paths, np.array([0.5, 0.2, 0.3])), 1)
    assert climb.nodes.tolist() == [[0, 1]]
    assert climb.masses.tolist() == [pytest.approx([0.7, 0.2])]


def test_an_item_without_rows_says_nothing():
    climb = climb_of(Shares(np.array([1]), np.array([[0, 0]]), np.array([1.0])), 2)
    assert climb.levels_at(0.0).tolist() == [0, 2]


def test_a_deeper_node_of_more_mass_is_reached_first():
    climb = Climb(np.array([[0, 0, 1]]), np.array([[0.5, 0.9, 0.6]]))
    assert climb.levels_at(np.array([0.8])).tolist() == [2]
    assert climb.levels_at(0.6).tolist() == [3]


def test_an_answer_below_what_is_known_is_not_judged_unless_it_is_wrong_above():
    nodes = np.array([[0, 0], [1, 2]])
    right = verdicts(nodes, np.array([[0, 9], [0, 9]]), np.arange(2), np.array([1, 1]))
    np.testing.assert_array_equal(right, [[1, np.nan], [0, 0]])


def test_one_of_several_paths_is_enough():
    right = verdicts(
        np.array([[1, 2]]), np.array([[0, 0], [1, 2]]), np.array([0, 0]), np.array([2, 2])
    )
    assert right.tolist() == [[1, 1]]


def test_an_item_without_a_true_path_is_not_judged():
    right = verdicts(np.array([[0], [0]]), np.array([[0]]), np.array([0]), np.array([1]))
    np.testing.assert_array_equal(right, [[1], [np.nan]])


def test_what_marks_the_unknown_is_no_leaf():
    levels = ("order", "kind")
    rows = [
        ("Owls", "barn"),
        ("Owls", "bay"),
        ended_early(("Owls",), levels),
        ended_early(("Rails",), levels),
    ]
    tree, _ = LabelTree.from_names(rows, levels=levels)
    counts = dict(zip(tree.names[0], leaf_counts(tree)[0].tolist(), strict=True))
    assert counts == {"Owls": 2, "Rails": 1}
    owls = tree.names[0].index("Owls")
    assert coverage_of(tree, np.array([[owls, BELOW]])).tolist() == [
        [pytest.approx(1 - np.log2(2) / np.log2(3)), 0]
    ]


def test_reliability_sets_masses_beside_what_is_right():
    bins = reliability_of(np.array([0.95, 1.0, 0.05, 0.5]), np.array([1.0, 0.0, np.nan, 1.0]))
    assert [each.items for each in bins] == [0, 0, 0, 0, 0, 1, 0, 0, 0, 2]
    assert (bins[-1].mass, bins[-1].right) == (pytest.approx(0.975), 0.5)
