"""Picking the chosen numbers of a row gives them in order, also within the row's own array."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hbench.engine.kernels.compress import LANES, compress

KINDS = [np.uint8, np.int32]
choices = st.lists(st.booleans(), max_size=5 * LANES).map(lambda chosen: np.array(chosen, np.uint8))


@pytest.mark.parametrize("kind", KINDS)
@given(chosen=choices)
def test_the_chosen_numbers_are_side_by_side(kind, chosen):
    numbers = np.arange(len(chosen)).astype(kind)
    out = np.empty(len(chosen) + LANES, kind)
    found = int(compress(numbers, chosen, out))
    assert out[:found].tolist() == numbers[chosen == 1].tolist()


@pytest.mark.parametrize("kind", KINDS)
@given(chosen=choices, ahead=st.integers(0, 2 * LANES))
def test_numbers_may_be_compressed_within_their_array(kind, chosen, ahead):
    room = np.arange(ahead + len(chosen)).astype(kind)
    expected = room[ahead:][chosen == 1].tolist()
    found = int(compress(room[ahead:], chosen, room))
    assert room[:found].tolist() == expected
