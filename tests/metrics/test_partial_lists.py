"""What all unknown wrong and all unknown right say of the truth: every assignment of levels on
short lists.
"""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hbench.metrics.level_sequence import LevelSequence
from hbench.metrics.names import MetricName
from hbench.metrics.partial_lists import is_graded
from hbench.metrics.readings import at_level, known, right, wrong
from tests import oracle_partial as oracle

pytestmark = pytest.mark.fast

DEPTH = 2


def coded(ranked, depth):
    """A list of bounds as ranks and codes."""
    codes = np.array(
        [2 * low if low < high else max(2 * low - 1, 0) for low, high in ranked], np.uint8
    )
    listed = np.flatnonzero(codes)
    return LevelSequence(listed + 1, codes[listed], np.bincount(codes, minlength=2 * depth))


def levels_in(reading, ranked, depth):
    """The levels of a list after a reading, distractors written out."""
    sequence = reading.of(coded(ranked, depth))
    levels = np.zeros(sequence.counts.sum(), np.int64)
    levels[sequence.ranks - 1] = sequence.levels
    assert np.bincount(levels, minlength=len(sequence.counts)).tolist() == sequence.counts.tolist()
    return levels.tolist()


def lists(depth):
    known = st.integers(0, depth).map(lambda level: (level, level))
    unknown = st.integers(1, max(depth - 1, 1)).map(lambda level: (level, depth))
    return st.lists(known if depth == 1 else known | unknown, min_size=1, max_size=7)


@given(st.data(), st.integers(1, 4))
def test_a_reading_gives_the_list_of_the_double_loops(data, depth):
    ranked = data.draw(lists(depth))
    for reading, loops in ((known, oracle.known), (wrong, oracle.wrong), (right, oracle.right)):
        assert levels_in(reading(depth), ranked, depth) == loops(ranked)
    for level in range(1, depth + 1):
        assert levels_in(at_level(depth, level), ranked, depth) == oracle.at_level(ranked, level)


def assignments(ranked):
    return list(itertools.product(*(range(low, high + 1) for low, high in ranked)))


@given(lists(DEPTH), st.integers(1, 4))
def test_hd_at_k_lies_between_all_right_and_all_wrong_for_every_assignment(ranked, cut):
    if (DEPTH, DEPTH) not in ranked:
        return
    low, high = (
        oracle.oracle.hierarchical_distance(read(ranked), DEPTH, cut)
        for read in (oracle.right, oracle.wrong)
    )
    values = [
        oracle.oracle.hierarchical_distance(levels, DEPTH, cut) for levels in assignments(ranked)
    ]
    assert min(values) == pytest.approx(low)
    assert max(values) == pytest.approx(high)


@pytest.mark.parametrize("name", ["H-AP", "wAP", "ASI", "NDCG"])
def test_of_other_metrics_some_assignment_lies_beyond_all_wrong_and_all_right(name):
    """Why the docs call them so, and not bounds."""
    beyond = set()
    for ranked in itertools.product([(0, 0), (1, 1), (2, 2), (1, 2)], repeat=5):
        if (2, 2) not in ranked or (1, 2) not in ranked:
            continue
        ends = [oracle.graded(name, read(ranked), DEPTH) for read in (oracle.wrong, oracle.right)]
        values = [oracle.graded(name, list(levels), DEPTH) for levels in assignments(ranked)]
        assert not any(map(math.isnan, [*ends, *values]))
        beyond |= {"above"} if max(values) > max(ends) + 1e-9 else set()
        beyond |= {"below"} if min(values) < min(ends) - 1e-9 else set()
        beyond |= {"turned round"} if ends[1] < ends[0] - 1e-9 else set()
    assert "turned round" in beyond
    assert beyond & {"above", "below"}


def test_the_first_mistake_may_be_worse_than_with_all_wrong_and_with_all_right():
    ranked = [(2, 3), (1, 3), (2, 2), (3, 3)]
    assert oracle.graded("HD-first-mistake", oracle.wrong(ranked), 3) == pytest.approx(1 / 3)
    assert oracle.graded("HD-first-mistake", oracle.right(ranked), 3) == pytest.approx(1 / 3)
    assert oracle.graded("HD-first-mistake", [3, 1, 2, 3], 3) == pytest.approx(2 / 3)


def test_metrics_of_a_level_have_one_value():
    assert [
        name
        for name in ("H-AP", "AP", "NDCG@3", "R@1", "AP#a", "ASI", "ASI/a")
        if is_graded(MetricName.parse(name))
    ] == [
        "H-AP",
        "NDCG@3",
        "ASI",
    ]
