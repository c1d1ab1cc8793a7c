"""The product: the sums of its definition, to the bit, in whatever block; and numpy's where BLAS has the instructions, too."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from threadpoolctl import threadpool_info

from hbench.core.compiled import SMALL, one_blas_thread
from hbench.core.errors import SubmissionError
from hbench.engine.kernels.simd_product import PANEL, ROWS, STRETCH, multiply, multiply_tile, stretches
from hbench.engine.score_blocks import Scores
from hbench.engine.similarity import Rows

native = pytest.mark.skipif(not multiply_tile.are_there, reason="needs AVX-512")
shapes = st.tuples(st.integers(1, 4), st.integers(1, 3 * PANEL), st.integers(1, 2 * STRETCH + 40))


def random(*shape):
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def product(vectors, items):
    out = np.full((len(vectors), len(items)), np.nan, np.float32)
    assert multiply(vectors, items, out)
    return out


def sums(vectors, items):
    """The definition, term by term: a product of two float32 is exact in longdouble, and a sum of it is rounded once."""
    scores, start = np.zeros((len(vectors), len(items)), np.float32), 0
    for stretch in stretches(vectors.shape[1]):
        inner = np.zeros_like(scores)
        for dimension in range(start, start + stretch):
            terms = vectors[:, dimension, None].astype(np.longdouble) * items[:, dimension]
            inner = (inner + terms).astype(np.float32)
        scores, start = scores + inner, start + stretch
    return scores


@native
@given(shapes)
def test_it_is_the_sums_to_the_bit(shape):
    rows, items, width = shape
    vectors, items = random(ROWS * rows, width), random(items, width)
    assert np.array_equal(product(vectors, items), sums(vectors, items))


@given(shapes)
def test_it_is_the_product(shape):
    rows, items, width = shape
    vectors, items = random(ROWS * rows, width), random(items, width)
    exact = vectors.astype(np.float64) @ items.T.astype(np.float64)
    sizes = np.abs(vectors.astype(np.float64)) @ np.abs(items.T.astype(np.float64))
    assert (np.abs(product(vectors, items) - exact) <= width * 2**-24 * sizes).all()


@pytest.mark.parametrize("width", [1, 64, 447, 448, 449, 512, 895, 896, 897, 1024, 2049])
def test_stretches_are_short_and_complete(width):
    lengths = stretches(width)
    assert lengths.sum() == width
    assert 0 < lengths.min() <= lengths.max() <= STRETCH


@native
@pytest.mark.skipif(
    all(each.get("architecture") != "SkylakeX" for each in threadpool_info()), reason="needs OpenBLAS for AVX-512"
)
@pytest.mark.parametrize("width", [1, 8, 100, 128, 300, 449, 512, 600, 768, 1024, 2048, 2049])
def test_numpy_has_the_same_bits(width):
    vectors, items = random(16 * ROWS, width), random(400, width)
    with one_blas_thread():
        assert np.array_equal(product(vectors, items), vectors @ items.T)


@given(first=st.integers(0, 5), item=st.integers(0, 199))
def test_a_score_depends_on_its_two_vectors_alone(first, item):
    vectors, items = random(6 * ROWS, 600), random(200, 600)
    some = slice(ROWS * first, ROWS * (first + 1))
    assert np.array_equal(product(vectors[some], items[item:]), product(vectors, items)[some, item:])


def test_it_is_symmetric_and_copies_have_one_score():
    vectors = random(25 * ROWS, 520)
    vectors[100:] = vectors[:100]
    scores = product(vectors, vectors)
    assert np.array_equal(scores, scores.T)
    assert np.array_equal(scores[:, :100], scores[:, 100:])


def test_it_writes_among_other_scores():
    vectors, items, out = random(ROWS, 20), random(50, 20), np.zeros((ROWS, 60), np.float32)
    assert multiply(vectors, items, out[:, 5:55])
    assert np.array_equal(out[:, 5:55], product(vectors, items))
    assert not out[:, :5].any()
    assert not out[:, 55:].any()


def test_what_might_overflow_is_left_to_numpy():
    vectors, out = random(ROWS, 20), np.zeros((ROWS, ROWS), np.float32)
    assert not multiply(vectors * np.float32(1e20), vectors * np.float32(1e20), out)
    assert multiply(vectors * np.float32(1e20), vectors, out)
    assert multiply(vectors * 0, vectors, out)
    assert not out.any()


def test_rows_whose_numbers_are_apart_are_left_to_numpy():
    vectors, items, out = random(ROWS, 20), random(50, 20), np.zeros((ROWS, 50), np.float32)
    for apart in (np.asfortranarray(items), np.repeat(items, 2, axis=1)[:, ::2]):
        assert not multiply(vectors, apart, out)
    assert not multiply(np.asfortranarray(vectors), items, out)
    assert not multiply(vectors, items, np.asfortranarray(out))
    assert multiply(vectors, np.repeat(items, 2, axis=1)[:, :20], out)  # rows may be apart


def scores_of(vectors):
    everything = np.arange(len(vectors))
    return Scores((Rows(vectors), Rows(vectors)), everything, everything)


def test_large_sets_are_multiplied_here_and_overflow_is_refused():
    vectors = random(3000, 8)
    assert len(vectors) ** 2 > SMALL
    scores = scores_of(vectors)
    assert scores.in_own_code == multiply_tile.are_there
    assert np.allclose(scores.whole(0), vectors[: scores.block_size] @ vectors.T, atol=1e-5)
    large = scores_of(vectors * np.float32(1e18))  # might overflow, and does not
    assert np.allclose(large.whole(0), 1e36 * scores.whole(0), rtol=1e-4, atol=1e31)
    with pytest.raises(SubmissionError, match="overflow"):
        scores_of(vectors * np.float32(1e19)).whole(0)


def test_small_sets_and_double_precision_are_left_to_numpy():
    assert not scores_of(random(100, 8)).in_own_code
    assert not scores_of(random(3000, 8).astype(np.float64)).in_own_code


def test_a_processor_without_the_instructions_finds_nearly_the_same(tmp_path):
    code = """if True:
        import json
        import numpy as np
        from hbench.engine.kernels.simd_product import multiply, multiply_tile
        vectors, items = (np.random.default_rng(0).standard_normal((n, 530)).astype(np.float32) for n in (16, 70))
        out = np.empty((16, 70), np.float32)
        assert multiply(vectors, items, out)
        print(json.dumps([multiply_tile.are_there, out.tolist()]))
    """
    plain = {"NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": "", "NUMBA_CACHE_DIR": str(tmp_path)}
    runs = [
        subprocess.run([sys.executable, "-c", code], env=os.environ | more, check=True, capture_output=True, text=True)
        for more in ({}, plain)
    ]
    (_, ours), (there, theirs) = (json.loads(run.stdout) for run in runs)
    assert not there
    assert np.allclose(ours, theirs, atol=1e-4)
