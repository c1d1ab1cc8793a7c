"""Compression: the same numbers whether or not the processor has the instruction."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hbench.engine.kernels.simd_compress import LANES, compress

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


def test_a_processor_without_the_instruction_finds_the_same(tmp_path):
    code = """if True:
        import numpy as np
        from hbench.engine.kernels.simd_compress import compress
        rng = np.random.default_rng(0)
        chosen = (rng.random(1000) < 0.4).astype(np.uint8)
        for kind in (np.uint8, np.int32):
            numbers = rng.integers(0, 100, 1000).astype(kind)
            found = int(compress(numbers, chosen, numbers))
            print(found, numbers[:found].tolist())
    """
    plain = {"NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": "", "NUMBA_CACHE_DIR": str(tmp_path)}
    found = [
        subprocess.run([sys.executable, "-c", code], env=os.environ | more, check=True, capture_output=True, text=True)
        for more in ({}, plain)
    ]
    assert found[0].stdout == found[1].stdout
    assert len(found[0].stdout) > 1000
