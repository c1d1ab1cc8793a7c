"""Keys of scores and levels: sorted, they are in the order of the scores, and of the tie keys where
scores are equal.
"""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hbench.engine.kernels import sort_keys

pytestmark = pytest.mark.fast

WIDTH = 40


def nested_parts(rng, depth, begin, size):
    """One part: the ranges of the levels, each within the one before, some of them empty."""
    starts, ends, start, end = [], [], begin, begin + size
    for _ in range(depth):
        starts.append(start)
        ends.append(end)
        start, end = np.sort(rng.integers(start, end + 1, size=2))
    columns = [np.array([each]) for each in (begin, 0, size)]
    return sort_keys.Parts(*columns, np.array([starts]), np.array([ends]), 1)


def levels_of(parts):
    levels = np.zeros(WIDTH, np.uint8)
    for level, (start, end) in enumerate(zip(parts.starts[0], parts.ends[0], strict=True), start=1):
        levels[start:end] = level
    return levels


def float32s(kind, rng):
    scores = {
        "of any size": rng.normal(size=WIDTH) * 2.0 ** rng.integers(-140, 120, size=WIDTH),
        "of like size": rng.normal(size=WIDTH),
        "few": rng.integers(-2, 3, size=WIDTH) / 4,
        "nothing but zero": np.zeros(WIDTH),
    }[kind].astype(np.float32)
    scores[rng.random(WIDTH) < 0.1] = rng.choice([0.0, -0.0])
    scores[rng.random(WIDTH) < 0.1] = -np.inf
    return scores[None]


@settings(max_examples=150, deadline=None)
@given(
    st.integers(0, 10**9),
    st.sampled_from(["of any size", "of like size", "few", "nothing but zero"]),
    st.integers(1, 20),
    st.booleans(),
)
def test_sorted_keys_are_in_the_order_of_scores_and_tie_keys(seed, kind, depth, whole):
    rng = np.random.default_rng(seed)
    rows, tie_key = float32s(kind, rng), rng.permutation(depth + 1).astype(np.uint8)
    begin, size = (0, WIDTH) if whole else (int(rng.integers(0, WIDTH)), 0)
    size = size or int(rng.integers(0, WIDTH - begin))
    parts = nested_parts(rng, depth, begin, size)
    to = sort_keys.empty(WIDTH + 1, rows.dtype, tie_key)
    sort_keys.sort(rows, parts, to)
    scores, ties = rows[0, begin : begin + size], tie_key[levels_of(parts)[begin : begin + size]]
    best_first = np.lexsort((ties, -scores))
    keys, bits = to.keys[:size], to.keys.dtype.type(to.coding.bits)
    assert np.array_equal(keys & to.keys.dtype.type((1 << to.coding.bits) - 1), ties[best_first])
    by_rank = scores[best_first]
    assert np.array_equal(np.diff(keys >> bits) != 0, by_rank[1:] != by_rank[:-1])
    assert np.array_equal(keys >> bits == 2 * to.coding.middle, by_rank == -np.inf)
    if not whole:
        assert np.array_equal(to.scores[: size + 1], np.append(by_rank, -np.inf))
        assert np.array_equal(to.levels[:size], levels_of(parts)[begin : begin + size][best_first])


@pytest.mark.parametrize(("smallest", "fits"), [(1.1 * 2.0**-32, True), (0.9 * 2.0**-32, False)])
def test_a_code_of_seven_levels_spans_thirty_two_powers_of_two(smallest, fits):
    rows = np.array([[1, -smallest, 0, -np.inf]], np.float32)
    parts = nested_parts(np.random.default_rng(0), 7, 0, 4)
    to = sort_keys.empty(5, rows.dtype, np.arange(8, dtype=np.uint8))
    assert to.keys.dtype == np.uint32
    assert sort_keys.write_keys(rows.view(np.uint32), parts, to.coding, to.keys) == fits


def test_rows_are_grouped_by_what_fits():
    sizes = np.array([3, 3, 9, 1, 0, 4])
    found = [(each.start, each.stop) for each in sort_keys.fitting(sizes, 6)]
    assert found == [(0, 2), (2, 3), (3, 6)]
    assert list(sort_keys.fitting(sizes[:0], 6)) == []
