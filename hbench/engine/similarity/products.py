"""Matrix products whose bits do not depend on the number of threads.

BLAS splits a product among its threads, and the last bits go by the shapes of the parts: here they
are fixed.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hbench.core.compiled import available_threads, one_blas_thread

PIECE = 8192  # columns of a product that a thread computes at once


def product_of(rows: NDArray[Any], others: NDArray[Any]) -> NDArray[Any]:
    """Multiply rows (N, D) by others (M, D), each by each: (N, M), of the type of both. All threads
    share the pieces of PIECE others; since the size of a piece is fixed, the bits do not depend on
    the number of threads.

    >>> product_of(np.eye(2), np.array([[3.0, 4.0]]))
    array([[3.],
           [4.]])
    """
    products = np.empty((len(rows), len(others)), np.result_type(rows, others))

    def multiply(piece: slice) -> None:
        """Write the products with the others of one piece."""
        products[:, piece] = rows @ others[piece].T

    # one thread of BLAS for each thread of the pool: more threads than cores would be slower
    with one_blas_thread(), ThreadPoolExecutor(available_threads()) as pool:
        list(pool.map(multiply, slices(len(others), PIECE)))
    return products


def slices(number: int, at_once: int) -> Iterator[slice]:
    """Yield slices of `at_once` elements, at least 1, that cover 0 … number − 1; the last slice may
    be shorter."""
    step = max(1, at_once)
    for start in range(0, number, step):
        yield slice(start, min(number, start + step))
