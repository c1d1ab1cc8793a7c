"""Statistics of a tree, against values worked out by hand."""

import math

import numpy as np
import pytest

from hbench.tree import LabelTree
from hbench.tree.statistics import effective_number, items_of_level, statistics

pytestmark = pytest.mark.fast

ROWS = [("a", "u", "1"), ("a", "u", "2"), ("a", "v", "3"), ("b", "w", "4")]


def test_the_statistics_of_a_small_tree_are_those_worked_out_by_hand():
    tree, _ = LabelTree.from_names(ROWS, levels=("coarse", "middle", "fine"))
    coarse, middle, fine = statistics(tree, np.array([6, 2, 1, 3]))
    assert (coarse.level, coarse.nodes, coarse.branching) == ("coarse", 2, (2, 2.0, 2))
    assert (middle.nodes, middle.branching, middle.largest, middle.smallest) == (
        3,
        (1, 1.5, 2),
        ("u", 8),
        ("v", 1),
    )
    assert (fine.nodes, fine.branching, fine.largest, fine.smallest) == (
        4,
        (1, 1.0, 2),
        ("1", 6),
        ("3", 1),
    )
    entropy = -(9 / 12 * math.log(9 / 12) + 3 / 12 * math.log(3 / 12))
    assert coarse.effective == pytest.approx(math.exp(entropy), abs=1e-12)


def test_the_items_of_every_level_add_up():
    tree, labels = LabelTree.from_names(ROWS, levels=("coarse", "middle", "fine"))
    items = np.array([6, 2, 1, 3])
    repeated = np.repeat(tree.paths, items, axis=0)
    for depth, own in enumerate(tree.counts(repeated), start=1):
        assert items_of_level(tree, items, depth).tolist() == own.tolist()
    assert len(labels) == 4


def test_equal_classes_are_as_many_as_they_are_and_empty_ones_none():
    assert effective_number(np.array([7] * 5)) == pytest.approx(5, abs=1e-12)
    assert effective_number(np.array([3, 0, 0])) == 1.0
