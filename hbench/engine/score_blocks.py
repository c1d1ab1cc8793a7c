"""Computes the scores: the matrix product of queries and gallery in canonical order, piece by
piece.

A block is a fixed number of queries, and a chunk a fixed number of gallery items. A piece is the
product of one block and one chunk, computed by a single BLAS thread. How BLAS rounds depends on the
shapes alone, and the shapes follow from the data. So the scores, bit for bit, depend neither on
the order of the items nor on the number of threads.
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
from numpy.typing import NDArray

from hbench.core.compiled import available_threads
from hbench.core.errors import SubmissionError, UsageError
from hbench.engine.similarity import Rows

# the last bits of a score depend on these sizes
BLOCK = 864  # the most queries that are multiplied at once
BLOCK_STEP = 16  # the size of a block is a multiple of this
PANEL = 48  # the number of gallery items in a chunk is a multiple of this
# the most bytes of gallery items that are multiplied at once; half of it for blocks of up to TURNED
CHUNK = 8 << 20
CHUNKS = 32  # a smaller gallery is cut into this many chunks, so that threads end together
TURNED = 192  # queries in a block up to which BLAS is quicker with the gallery on the left
# BLAS packs the gallery once per block; that costs as much as scoring this many queries
PACKING = 84
# bytes of scores per block, unless more memory is allowed: a larger gallery gets fewer queries
SCORES = 208 << 20
MEMORY = 300 << 20  # bytes for scores, chunks and a copy of the gallery, unless a bound is given


class Scores:
    """Computes the scores (Q, G) of `queries` (Q,) against `columns` (G,) in pieces. Both arrays
    are input positions, in canonical order.

    `query_rows`, `gallery_rows`: the vectors as they are multiplied, in input order, float32 or
    float64 (`dtype`). `block_size`: the number of queries in a block. `kept` (G, D): the gallery's
    vectors in the order of the columns, either because they are stored in that order or as a copy,
    if memory allows one; None if every chunk is gathered when it is used. `copies`: whether `kept`
    is a copy. `spare`: buffers for gathered chunks that no thread uses at present. `memory`: how
    many bytes may be held.
    """

    def __init__(
        self,
        rows: tuple[Rows, Rows],
        queries: NDArray[np.int64],
        columns: NDArray[np.int64],
        memory: int | None,
    ) -> None:
        """Decide how many queries make a block, and whether the gallery is held in memory.

        Args:
            rows: the rows of the queries and of the gallery, both in input order.
            queries: (Q,), the input positions of the queries, in the order of the ranking.
            columns: (G,), the input positions of the gallery items, in the order of the columns.
            memory: the bytes that may be held, None for the default.
        """
        ample = max(MEMORY, available_threads() * MEMORY // 4)  # more than four threads get more
        self.queries = queries
        self.columns = columns
        self.memory = ample if memory is None else memory
        self.query_rows, self.gallery_rows = rows
        self.dtype = self.gallery_rows.dtype
        # the bytes left for a block, while two threads hold a chunk of the gallery each
        left = self.memory - 2 * min(CHUNK, self.gallery_bytes)
        # A gallery on disk is read once per block, so larger blocks are better: if the caller
        # allows more memory than usual, a block gets up to 3/5 of it. The rest is for the threads
        # and for a copy of the gallery.
        most = SCORES if memory is None else max(SCORES, memory * 3 // 5)
        self.block_size = block_size(
            len(columns) * self.dtype.itemsize, min(left, most), len(queries)
        )
        # (G, D). `run` returns a view if the rows are stored in this order and need no computation,
        # else None. Instead of None, `kept` becomes a copy if that fits in memory. If `kept` stays
        # None, each thread gathers its chunks
        self.kept = self.gallery_rows.run(columns)
        self.copies = self.kept is None and self.block_bytes + self.gallery_bytes <= self.memory
        if self.copies:
            self.kept = self.gallery_rows.read(columns)
        self.spare: list[NDArray[np.floating]] = []  # buffers for gathered chunks, to be used again

    @property
    def block_bytes(self) -> int:
        """Bytes of the scores of one block of queries against the whole gallery."""
        return self.block_size * len(self.columns) * self.dtype.itemsize

    @property
    def gallery_bytes(self) -> int:
        """Bytes of the gallery's vectors in the type in which they are multiplied."""
        return len(self.columns) * self.gallery_rows.width * self.dtype.itemsize

    @property
    def gallery_copy_bytes(self) -> int:
        """Bytes of the copy of the gallery, 0 if none is held."""
        return self.gallery_bytes if self.copies else 0

    @property
    def thread_chunk_bytes(self) -> int:
        """Bytes of the chunk of the gallery that each thread gathers; 0 where `kept` holds the
        gallery in the order of the columns, as chunks are then views."""
        items = min(len(self.columns), self.chunk_size) if self.kept is None else 0
        return items * self.gallery_rows.width * self.dtype.itemsize

    @property
    def chunk_size(self) -> int:
        """The number of gallery items that are multiplied at once, a multiple of PANEL, as BLAS
        works on panels of items. It follows from the data and the memory, not from the number of
        threads, because the last bits of a score depend on it."""
        # All sizes are in bytes. A chunk has at most CHUNK, which the cache holds. A small gallery
        # is cut into CHUNKS chunks, unless these become smaller than CHUNK // 4. In blocks of up to
        # TURNED queries the chunk is the left factor of the product, and CHUNK // 2 is fastest.
        most = CHUNK if self.block_size > TURNED else CHUNK // 2
        chunk = min(most, max(self.gallery_bytes // CHUNKS, CHUNK // 4))
        items = chunk // (self.gallery_rows.width * self.dtype.itemsize)
        return max(1, items // PANEL) * PANEL

    def fitting(self, threads: int, scratch: int) -> tuple[int, int]:
        """Return how many threads, and how many blocks of scores, fit in memory at once.

        At least one of each, since nothing could be computed without, and no more blocks than
        threads. Threads have priority over blocks: blocks get the memory that the threads leave.

        Args:
            threads: the most threads that may be used.
            scratch: the bytes that each thread needs besides its chunk of the gallery.
        """
        per_thread = scratch + self.thread_chunk_bytes
        left = self.memory - self.gallery_copy_bytes
        beside_one_block = left - self.block_bytes
        # max, because a thread without scratch whose chunks are views takes 0 bytes
        workers = int(np.clip(beside_one_block // max(per_thread, 1), 1, threads))
        at_once = int(np.clip((left - workers * per_thread) // self.block_bytes, 1, workers))
        return workers, at_once

    @property
    def blocks(self) -> int:
        """The number of blocks of queries; the last may be partly filled."""
        return -(-len(self.queries) // self.block_size)

    @property
    def chunks(self) -> range:
        """The positions in canonical order at which the gallery's chunks start."""
        return range(0, len(self.columns), self.chunk_size)

    def rows(self, block: int) -> NDArray[np.int64]:
        """The positions, in the order of the input, of the queries of block number `block`."""
        return self.queries[block * self.block_size : (block + 1) * self.block_size]

    def block_vectors(self, block: int) -> NDArray[np.floating]:
        """The vectors (B, D) of a block of `block_size` = B queries. The last block is filled up to
        B rows with copies of its last row, because BLAS may round differently in a product of
        another shape.
        """
        rows = self.rows(block)  # (n,), n ≤ B: the input positions of the queries
        return self.query_rows.read(
            np.concatenate([rows, np.repeat(rows[-1:], self.block_size - len(rows))])
        )

    def buffer(self) -> NDArray[np.floating]:
        """A buffer for the scores (B, G) of one block."""
        return np.empty((self.block_size, len(self.columns)), self.dtype)

    def whole(self, block: int) -> NDArray[np.floating]:
        """The scores (n, G) of the n queries of one block, without those of the padding rows."""
        vectors = self.block_vectors(block)
        out = self.buffer()
        for start in self.chunks:
            self.multiply(vectors, start, out)
        return out[: len(self.rows(block))]

    def multiply(
        self, vectors: NDArray[np.floating], start: int, out: NDArray[np.floating]
    ) -> None:
        """Write the scores of a block's `vectors` (B, D) against one chunk of the gallery, which
        begins at column `start`, to the chunk's columns of `out` (B, G).

        Raises SubmissionError if a score is beyond the largest float.
        """
        with self.chunk(start) as chunk:
            self.multiply_by(chunk, vectors, out[:, start : start + self.chunk_size])

    def multiply_by(
        self, chunk: NDArray[np.floating], vectors: NDArray[np.floating], out: NDArray[np.floating]
    ) -> None:
        """Write the scores of a block's `vectors` (B, D) against a `chunk` (n, D) to `out` (B, n).

        Raises SubmissionError if a score is beyond the largest float: it would become infinity and
        silently rank before all others.
        """
        try:
            with np.errstate(over="raise"):
                if self.block_size > TURNED:
                    np.matmul(vectors, chunk.T, out=out)
                else:  # for few queries BLAS is quicker with the longer side on the left
                    out[:] = np.matmul(chunk, vectors.T).T
        except FloatingPointError:
            raise overflow(vectors) from None

    @contextmanager
    def chunk(self, start: int) -> Iterator[NDArray[np.floating]]:
        """The vectors (n, D) of the gallery's chunk that begins at position `start` in canonical
        order. The array is valid only inside of `with`, as its memory is used again afterwards."""
        if self.kept is not None:  # the gallery is stored in this order: a view is enough
            yield self.kept[start : start + self.chunk_size]
            return
        try:
            buffer = self.spare.pop()
        except IndexError:  # no check before: another thread could take the last buffer meanwhile
            buffer = np.empty((self.chunk_size, self.gallery_rows.width), self.dtype)
        # the last chunk may have fewer items than the buffer has rows
        positions = self.columns[start : start + self.chunk_size]
        yield self.gallery_rows.read(positions, out=buffer[: len(positions)])
        self.spare.append(buffer)


def overflow(vectors: NDArray[np.floating]) -> SubmissionError:
    """The error for query vectors (n, D) some of whose scores are beyond the largest float."""
    return SubmissionError(
        "the products of these vectors overflow",
        expected=f"scores within ±{np.finfo(vectors.dtype).max:.1e}",
        found=f"queries of up to {np.abs(vectors).max():.1e}",
        fix="divide all vectors by one number: no ranking changes",
    )


def block_size(row: int, memory: int, queries: int) -> int:
    """Return the number of queries in a block: a multiple of BLOCK_STEP (16), at most BLOCK.

    Few blocks are good, because each block costs as much as PACKING queries in addition. A last
    block that is nearly full is good, because it is padded to the full size. Raises UsageError
    if not even one query fits; if fewer than 16 fit, the result is the number that fits.

    Args:
        row: the bytes of the scores of one query.
        memory: the bytes for the scores of one block.
        queries: the number of all queries.
    """
    fitting = memory // row  # queries
    if fitting < 1:
        raise UsageError(
            "the memory limit is too small for the scores of one query",
            expected=f"{row / 2**10:,.1f} KB at least",
            found=f"{max(memory, 0) / 2**10:,.1f} KB left for them",
            fix="give a limit (--max-memory, memory=) that is larger by "
            f"{math.ceil((row - memory) / 2**10):,} KB",
        )
    if fitting < BLOCK_STEP:  # slower than a multiple of 16, but better than an error
        return int(fitting)

    sixteens = max(-(-queries // BLOCK_STEP), 1)  # of all queries, rounded up
    most = min(fitting // BLOCK_STEP, BLOCK // BLOCK_STEP, sixteens)

    def cost(size: int) -> int:
        """The time that all queries take in blocks of `size` sixteens, with the padding of the last
        block and the packing of each, in units of one query's time."""
        blocks = -(-sixteens // size)
        return blocks * (size * BLOCK_STEP + PACKING)

    # sizes from the largest that fits down to half of it; min takes the first, that is the largest,
    # of equal costs
    return BLOCK_STEP * min(range(most, most // 2, -1), key=cost)
