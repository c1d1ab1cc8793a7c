"""A similarity says how raw vectors become float32 rows whose inner product ranks the gallery of any one query.

It is a function `(queries (Q, D), gallery (G, D)) -> (query rows, gallery rows)`; each of the two takes positions and
gives their rows, so that a memory-mapped or float16 file is read block by block and never converted as a whole.

>>> query_rows, gallery_rows = l2(np.array([[0.0, 1.0]]), np.array([[0.0, 3.0]]))
>>> float((query_rows(np.array([0])) @ gallery_rows(np.array([0])).T)[0, 0])  # q·g − |g|²/2
-1.5
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from hbench.registry import Registry

Rows = Callable[[NDArray[np.int64]], NDArray[np.floating]]
Similarity = Callable[[NDArray[np.floating], NDArray[np.floating]], tuple[Rows, Rows]]
similarities: Registry[Similarity] = Registry("similarity")
ROWS_AT_ONCE = 16384


@similarities.register("dot")
def dot(queries: NDArray[np.floating], gallery: NDArray[np.floating]) -> tuple[Rows, Rows]:
    """s = q·g."""
    return _plain(queries), _plain(gallery)


@similarities.register("cosine")
def cosine(queries: NDArray[np.floating], gallery: NDArray[np.floating]) -> tuple[Rows, Rows]:
    """s = q·g / |g|, which ranks as the cosine does: |q| is the same for the whole gallery of a query.

    A gallery whose norms are all equal is left as it is, since dividing would only round.
    """
    norms = np.sqrt(squared_norms(gallery))
    if norms.min(initial=np.inf) == norms.max(initial=0):
        return dot(queries, gallery)
    return _plain(queries), lambda rows: _floats(gallery, rows) * _column(gallery, 1 / norms[rows])


@similarities.register("l2")
def l2(queries: NDArray[np.floating], gallery: NDArray[np.floating]) -> tuple[Rows, Rows]:
    """s = q·g − |g|²/2, which ranks as −|q − g| does; the second term rides along as one more dimension."""
    halves = squared_norms(gallery) / 2

    def query_rows(rows: NDArray[np.int64]) -> NDArray[np.floating]:
        return np.column_stack([_floats(queries, rows), np.ones(len(rows), np.float32)])

    def gallery_rows(rows: NDArray[np.int64]) -> NDArray[np.floating]:
        return np.column_stack([_floats(gallery, rows), -_column(gallery, halves[rows])])

    return query_rows, gallery_rows


def squared_norms(vectors: NDArray[np.floating]) -> NDArray[np.float64]:
    """|v|² of every row in float64, read block by block."""
    result = np.empty(len(vectors))
    for start in range(0, len(vectors), ROWS_AT_ONCE):
        block = np.asarray(vectors[start : start + ROWS_AT_ONCE], np.float64)
        result[start : start + ROWS_AT_ONCE] = np.einsum("nd,nd->n", block, block)
    return result


def _plain(vectors: NDArray[np.floating]) -> Rows:
    return lambda rows: _floats(vectors, rows)


def _floats(vectors: NDArray[np.floating], rows: NDArray[np.int64]) -> NDArray[np.floating]:
    """Rows as float32, or as float64 where the vectors are (the audit mode passes them so)."""
    return vectors[rows].astype(np.float64 if vectors.dtype == np.float64 else np.float32, copy=False)


def _column(vectors: NDArray[np.floating], values: NDArray[np.float64]) -> NDArray[np.floating]:
    return values.astype(np.float64 if vectors.dtype == np.float64 else np.float32)[:, None]
