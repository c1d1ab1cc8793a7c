"""Scores: the matrix product of queries and gallery in canonical order, in pieces whose shapes the data alone decide.

A block is a fixed number of queries, a chunk a fixed number of gallery items; a piece is one block times one chunk, by
one BLAS thread. So the scores, bit for bit, depend neither on the order of the items nor on the number of threads.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from hbench.similarity import Rows

BLOCK = 256  # queries multiplied at once: part of what defines the last bits of a score
CHUNK = 8192  # gallery items multiplied at once, likewise
SCORES = 140 << 20  # bytes of scores per block: a larger gallery gets fewer queries per block
COPY = 128 << 20  # a gallery up to this many bytes is kept in canonical order instead of gathered for every block


def one_blas_thread() -> AbstractContextManager[object]:
    """Keep BLAS to one thread, in the whole process, while blocks are ranked: the threads are ours, one piece each."""
    limits: AbstractContextManager[object] = threadpool_limits(1, user_api="blas")
    return limits


class Scores:
    """Pieces of the scores (Q, G) of `queries` (Q,) against `columns` (G,), both input positions in canonical order."""

    def __init__(
        self, query_rows: Rows, gallery_rows: Rows, queries: NDArray[np.int64], columns: NDArray[np.int64]
    ) -> None:
        self.queries, self.columns = queries, columns
        self.query_rows, self.chunk = query_rows, _chunks(gallery_rows, columns)
        self.dtype = query_rows(queries[:1]).dtype
        self.block_size = int(np.clip(SCORES // (4 * len(columns)), 1, BLOCK))

    @property
    def blocks(self) -> int:
        """How many blocks the queries make."""
        return -(-len(self.queries) // self.block_size)

    @property
    def chunks(self) -> range:
        """Where the chunks of the gallery start."""
        return range(0, len(self.columns), CHUNK)

    def rows(self, block: int) -> NDArray[np.int64]:
        """The input positions of a block's queries."""
        return self.queries[block * self.block_size : (block + 1) * self.block_size]

    def block_vectors(self, block: int) -> NDArray[np.floating]:
        """The vectors (B, D) of a block; the last block is padded, so that its shape gives the same bits."""
        rows = self.rows(block)
        return self.query_rows(np.concatenate([rows, np.repeat(rows[-1:], self.block_size - len(rows))]))

    def buffer(self) -> NDArray[np.floating]:
        """Room for the scores (B, G) of one block."""
        return np.empty((self.block_size, len(self.columns)), self.dtype)

    def whole(self, block: int) -> NDArray[np.floating]:
        """The scores (n, G) of the n queries of one block."""
        vectors, out = self.block_vectors(block), self.buffer()
        for start in self.chunks:
            self.multiply(vectors, start, out)
        return out[: len(self.rows(block))]

    def multiply(self, vectors: NDArray[np.floating], start: int, out: NDArray[np.floating]) -> None:
        """Write the scores of a block's vectors against one chunk to their columns of `out` (B, G)."""
        np.matmul(vectors, self.chunk(start).T, out=out[:, start : start + CHUNK])


def _chunks(gallery_rows: Rows, columns: NDArray[np.int64]) -> Callable[[int], NDArray[np.floating]]:
    """The chunk of the gallery from a canonical position on: kept when the gallery is small, else gathered anew."""
    row_bytes = gallery_rows(columns[:1]).nbytes
    if row_bytes * len(columns) > COPY:
        return lambda start: gallery_rows(columns[start : start + CHUNK])
    kept = [gallery_rows(columns[start : start + CHUNK]) for start in range(0, len(columns), CHUNK)]
    return lambda start: kept[start // CHUNK]
