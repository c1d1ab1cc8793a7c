"""Computes the scores: the matrix product of queries and gallery in canonical order, in pieces
whose shapes the data decide.

A block is a fixed number of queries, a chunk a fixed number of gallery items; a piece is one block
times one chunk, by one thread of BLAS, whose bits depend on the shapes alone. So the scores, bit
for bit, depend neither on the order of the items nor on the number of threads.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
from numpy.typing import NDArray

from hbench.core.compiled import available_threads
from hbench.core.errors import SubmissionError, UsageError
from hbench.engine.similarity import Rows

BLOCK = 864  # queries multiplied at once, at most: part of what defines the last bits of a score
BLOCK_STEP = 16  # queries of which blocks are made
PANEL = 48  # gallery items of which chunks are made
# bytes of the gallery items multiplied at once, likewise; half of it by blocks that are TURNED
CHUNK = 8 << 20
CHUNKS = 32  # that a smaller gallery has, so that threads end together
TURNED = 192  # queries in a block up to which BLAS is quicker with the gallery on the left
# BLAS packs the gallery once per block; that costs as much as scoring this many queries
PACKING = 84
# bytes of scores per block, unless more memory is allowed: a larger gallery gets fewer queries
SCORES = 208 << 20
MEMORY = 300 << 20  # bytes of all that is held here, unless another bound is given


class Scores:
    """Pieces of the scores (Q, G) of `queries` (Q,) against `columns` (G,), both input positions in
    canonical order.

    `query_rows`, `gallery_rows`: the vectors as they are multiplied, in input order, float32 or
    float64 (`dtype`). `block_size`: the queries of a block. `kept` (G, D): the gallery's vectors in
    the order of the columns, where they lie there already or are copied, since memory allows it;
    None where every chunk is gathered anew. `copies`: whether `kept` is such a copy. `spare`:
    buffers for gathered chunks that no thread uses at present. `memory`: bytes of all that is held.
    """

    def __init__(
        self,
        rows: tuple[Rows, Rows],
        queries: NDArray[np.int64],
        columns: NDArray[np.int64],
        memory: int | None,
    ) -> None:
        """Decide how many queries make a block, and whether the gallery is held in memory.

        `rows`: those of the queries and of the gallery, both in input order; `queries` (Q,) and
        `columns` (G,): their positions there, in the order in which they are ranked; `memory`: the
        bytes that may be held, None for the default.
        """
        ample = max(MEMORY, available_threads() * MEMORY // 4)  # more than four threads get more
        self.queries = queries
        self.columns = columns
        self.memory = ample if memory is None else memory
        self.query_rows, self.gallery_rows = rows
        self.dtype = self.gallery_rows.dtype
        # what is left for a block beside the chunks of the gallery that two threads hold
        left = self.memory - 2 * min(CHUNK, self.gallery_bytes)
        # more memory than usual makes larger blocks, of 3/5 of it, for a gallery on disk is read
        # once per block; the rest is for threads and a copy of the gallery
        most = SCORES if memory is None else max(SCORES, memory * 3 // 5)
        self.block_size = block_size(
            len(columns) * self.dtype.itemsize, min(left, most), len(queries)
        )
        # without a copy, if the rows lie in this order already; else a copy, if it fits
        self.kept = self.gallery_rows.run(columns)
        self.copies = self.kept is None and self.block_bytes + self.gallery_bytes <= self.memory
        if self.copies:
            self.kept = self.gallery_rows.read(columns)
        self.spare: list[NDArray[np.floating]] = []

    @property
    def block_bytes(self) -> int:
        """Bytes of the scores of one block of queries against the whole gallery."""
        return self.block_size * len(self.columns) * self.dtype.itemsize

    @property
    def gallery_bytes(self) -> int:
        """Bytes of the gallery's vectors, as they are multiplied."""
        return len(self.columns) * self.gallery_rows.width * self.dtype.itemsize

    @property
    def gallery_copy_bytes(self) -> int:
        """Bytes of the copy of the gallery, if one is held here."""
        return self.gallery_bytes if self.copies else 0

    @property
    def thread_chunk_bytes(self) -> int:
        """Bytes of the chunk of the gallery that each thread gathers; 0 where the gallery lies in
        order already, and chunks are views of it."""
        items = min(len(self.columns), self.chunk_size) if self.kept is None else 0
        return items * self.gallery_rows.width * self.dtype.itemsize

    @property
    def chunk_size(self) -> int:
        """The number of gallery items that are multiplied at once, a multiple of PANEL. The data
        alone decide, for it is part of what defines the last bits of a score. `block_size`: the
        queries of a block; `width`: the numbers of a vector."""
        # bytes: at most what the cache holds; a small gallery is cut into CHUNKS, but not too
        # small. With few queries the chunk is the left side of the product, and half of it is best
        most = CHUNK if self.block_size > TURNED else CHUNK // 2
        chunk = min(most, max(self.gallery_bytes // CHUNKS, CHUNK // 4))
        items = chunk // (self.gallery_rows.width * self.dtype.itemsize)
        return max(1, items // PANEL) * PANEL

    def fitting(self, threads: int, scratch: int) -> tuple[int, int]:
        """Return how many of `threads`, each with `scratch` bytes of its own, and how many blocks
        of scores fit in memory at once: one of each at least, since nothing could be computed
        without; no more blocks than threads. Threads go first: what they leave is for blocks.
        """
        per_thread = scratch + self.thread_chunk_bytes
        left = self.memory - self.gallery_copy_bytes
        beside_one_block = left - self.block_bytes
        # max: views of a kept gallery, with no scratch, take 0 bytes
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
        """The vectors (B, D) of a block of `block_size` = B queries. The last one is padded with
        copies of its last row: BLAS rounds a product of another shape in other places.
        """
        rows = self.rows(block)  # (n,), n ≤ B
        return self.query_rows.read(
            np.concatenate([rows, np.repeat(rows[-1:], self.block_size - len(rows))])
        )

    def buffer(self) -> NDArray[np.floating]:
        """A buffer for the scores (B, G) of one block."""
        return np.empty((self.block_size, len(self.columns)), self.dtype)

    def whole(self, block: int) -> NDArray[np.floating]:
        """The scores (n, G) of the n queries of one block, without those of the padding. `chunks`:
        where pieces of the gallery begin, of which each product is written to its columns of a
        buffer."""
        vectors = self.block_vectors(block)
        out = self.buffer()
        for start in self.chunks:
            self.multiply(vectors, start, out)
        return out[: len(self.rows(block))]

    def multiply(
        self, vectors: NDArray[np.floating], start: int, out: NDArray[np.floating]
    ) -> None:
        """Write the scores of a block's `vectors` (B, D) against one chunk of the gallery, that
        from column `start` on, to its columns of `out` (B, G).

        Raises SubmissionError where one is beyond the largest float.
        """
        with self.chunk(start) as chunk:
            self.multiply_by(chunk, vectors, out[:, start : start + self.chunk_size])

    def multiply_by(
        self, chunk: NDArray[np.floating], vectors: NDArray[np.floating], out: NDArray[np.floating]
    ) -> None:
        """Write the scores of a block's `vectors` (B, D) against a `chunk` (n, D) to `out` (B, n).

        Raises SubmissionError where one is beyond the largest float: as infinity it would rank
        before all others without a word.
        """
        try:
            with np.errstate(over="raise"):
                if self.block_size > TURNED:
                    np.matmul(vectors, chunk.T, out=out)
                else:  # BLAS is quicker with the longer side on the left
                    out[:] = np.matmul(chunk, vectors.T).T
        except FloatingPointError:
            raise overflow(vectors) from None

    @contextmanager
    def chunk(self, start: int) -> Iterator[NDArray[np.floating]]:
        """The vectors (n, D) of the gallery's chunk that begins at position `start` in canonical
        order; valid only inside of `with`, for the array is used again afterwards (`spare`).
        `kept`: the gallery in the order of `columns`, None where it must be gathered."""
        if self.kept is not None:  # the gallery lies in this order: a view is enough
            yield self.kept[start : start + self.chunk_size]
            return
        try:
            buffer = self.spare.pop()
        except IndexError:  # rather than looking first, for another thread may take it meanwhile
            buffer = np.empty((self.chunk_size, self.gallery_rows.width), self.dtype)
        positions = self.columns[start : start + self.chunk_size]
        yield self.gallery_rows.read(positions, out=buffer[: len(positions)])
        self.spare.append(buffer)


def overflow(vectors: NDArray[np.floating]) -> SubmissionError:
    """The refusal of queries' vectors (n, D) some of whose scores are beyond the largest float."""
    return SubmissionError(
        "the products of these vectors overflow",
        expected=f"scores within ±{np.finfo(vectors.dtype).max:.1e}",
        found=f"queries of up to {np.abs(vectors).max():.1e}",
        fix="divide all vectors by one number: no ranking changes",
    )


def block_size(row: int, memory: int, queries: int) -> int:
    """Return the number of queries of a block, whose scores take `row` bytes each.

    At most BLOCK and as many as the memory for them allows, in whole sixteens. Few blocks are good,
    for each takes the time of PACKING queries more, and so is a last one that is nearly full, for
    it is padded. Raises UsageError where one query does not fit.
    """
    fitting = memory // row  # queries
    if fitting < 1:
        raise UsageError(
            "the memory limit is too small for the scores of one query",
            expected=f"{row / 2**10:,.1f} KB at least",
            found=f"{max(memory, 0) / 2**10:,.1f} KB left for them",
            fix="give a larger --max-memory",
        )
    if fitting < BLOCK_STEP:  # not one sixteen: slower, but better than a refusal
        return int(fitting)

    sixteens = max(-(-queries // BLOCK_STEP), 1)  # of all queries, rounded up
    most = min(fitting // BLOCK_STEP, BLOCK // BLOCK_STEP, sixteens)

    def cost(size: int) -> int:
        """The time that all queries take in blocks of `size` sixteens, with the padding of the last
        block and the packing of each, in units of one query's time."""
        blocks = -(-sixteens // size)
        return blocks * (size * BLOCK_STEP + PACKING)

    # from the largest that fits to half of it; among equal costs the larger comes first
    return BLOCK_STEP * min(range(most, most // 2, -1), key=cost)
