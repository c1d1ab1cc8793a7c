"""Matrix products have the same bits whatever the number of threads."""

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from hbench.engine.similarity.products import PIECE, product_of, slices

pytestmark = pytest.mark.fast


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_the_bits_do_not_depend_on_the_number_of_threads(kind):
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(146, 515)).astype(kind)
    others = rng.normal(size=(PIECE + 637, 515)).astype(kind)
    found = []
    for threads in (1, 2):
        with threadpool_limits(threads, user_api="blas"):
            found.append(product_of(rows, others))
    np.testing.assert_array_equal(*found)
    assert found[0].dtype == kind
    np.testing.assert_allclose(found[0], rows @ others.T, rtol=0, atol=1e-4)


def test_no_others_give_no_columns():
    assert product_of(np.ones((3, 2)), np.ones((0, 2))).shape == (3, 0)


def test_slices_cover_all_and_the_last_may_be_shorter():
    assert list(slices(5, 2)) == [slice(0, 2), slice(2, 4), slice(4, 5)]
    assert list(slices(2, 0)) == [slice(0, 1), slice(1, 2)]
    assert list(slices(0, 3)) == []
