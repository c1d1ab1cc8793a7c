"""Sorting by radix gives what numpy's sort gives, whatever the keys."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hbench.engine.kernels.sort_keys import MIN_RADIX_KEYS, sort_parts

pytestmark = pytest.mark.fast

KINDS = [
    "any",
    "few values",
    "equal",
    "both ends",
    "almost equal, but for one",
    "ascending",
    "descending",
    "clusters",
]
SIZES = [1, 2, MIN_RADIX_KEYS, MIN_RADIX_KEYS + 1, 4_000, 12_000]


def keys_of(kind, size, seed=0):
    rng = np.random.default_rng(seed)
    made = {
        "any": rng.integers(2**32, size=size),
        "few values": rng.integers(3, size=size) * 1_000_003,
        "equal": np.full(size, 2**32 - 1),
        "both ends": rng.integers(2, size=size) * (2**32 - 1),
        "almost equal, but for one": np.append(2**31 + rng.integers(700, size=size - 1), 0),
        "ascending": np.sort(rng.integers(2**32, size=size)),
        "descending": np.sort(rng.integers(2**32, size=size))[::-1],
        "clusters": (np.arange(size) % 40) * 2**26 + np.arange(size)[::-1],
    }[kind]
    return made.astype(np.uint32)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("kind", KINDS)
def test_parts_are_sorted_and_nothing_else_is_touched(kind, size):
    keys = keys_of(kind, size)
    flat = np.concatenate([[9, 8], keys, [7], keys[::-1], [6, 5]]).astype(np.uint32)
    sort_parts(flat, np.array([2, size + 3]), np.array([size, size]))
    expected = np.concatenate([[9, 8], np.sort(keys), [7], np.sort(keys), [6, 5]])
    assert np.array_equal(flat, expected)


@given(
    seed=st.integers(0, 2**32),
    size=st.integers(MIN_RADIX_KEYS, 3 * MIN_RADIX_KEYS),
    low=st.integers(0, 31),
    high=st.integers(0, 31),
)
def test_keys_of_any_range_are_sorted(seed, size, low, high):
    keys = np.random.default_rng(seed).integers(
        2 ** min(low, high), 2 ** (max(low, high) + 1), size=size
    )
    flat = keys.astype(np.uint32)
    sort_parts(flat, np.array([0]), np.array([size]))
    assert np.array_equal(flat, np.sort(keys))
