"""Scores: the matrix product of queries and gallery in canonical order, in pieces whose shapes the data alone decide.

A block is a fixed number of queries, a chunk a fixed number of gallery items; a piece is one block times one chunk, by
one BLAS thread. So the scores, bit for bit, depend neither on the order of the items nor on the number of threads.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from hbench.similarity import Rows

BLOCK = 512  # queries multiplied at once: part of what defines the last bits of a score
CHUNK = 2048  # gallery items multiplied at once, likewise
SCORES = 200 << 20  # bytes of scores per block: a larger gallery gets fewer queries per block
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
        self.query_rows, self.gallery_rows, self.dtype = query_rows, gallery_rows, gallery_rows.dtype
        self.block_size = block_size(len(columns))
        size = len(columns) * gallery_rows.width * self.dtype.itemsize
        self.kept = gallery_rows.read(columns) if size <= COPY else None
        self.spare: list[NDArray[np.floating]] = []

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
        return self.query_rows.read(np.concatenate([rows, np.repeat(rows[-1:], self.block_size - len(rows))]))

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
        with self.chunk(start) as chunk:
            np.matmul(vectors, chunk.T, out=out[:, start : start + CHUNK])

    @contextmanager
    def chunk(self, start: int) -> Iterator[NDArray[np.floating]]:
        """The chunk of the gallery from a canonical position on, in an array that is used again."""
        if self.kept is not None:
            yield self.kept[start : start + CHUNK]
            return
        room = self.spare.pop() if self.spare else np.empty((CHUNK, self.gallery_rows.width), self.dtype)
        positions = self.columns[start : start + CHUNK]
        yield self.gallery_rows.read(positions, out=room[: len(positions)])
        self.spare.append(room)


def block_size(gallery: int) -> int:
    """How many queries a block has: BLOCK, or as many as SCORES allows, in whole sixteens, of a large gallery."""
    fitting = SCORES // (4 * gallery)
    return int(np.clip(fitting - fitting % 16 if fitting >= 16 else fitting, 1, BLOCK))
