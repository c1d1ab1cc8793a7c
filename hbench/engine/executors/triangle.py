"""Ranks all pairs of items from half of the products, since s(i, j) = s(j, i): the triangle.

Where every item is a query and each has few positives, these are scored and sorted first. Then each
tile of the upper triangle of the scores, a piece as in hbench/engine/score_blocks.py, is counted in
the lists of its rows' and of its columns' queries and forgotten, so that there are no rows of
scores to be kept. Chunks are taken from the last to the first: after each, the queries in it are
done.

The values are those of whole rows, to the bit, if products are symmetric to the bit. BLAS does not
promise that, so the square of every block with itself is looked at first, and the first block's
with the last; where one is not, whole rows are taken (hbench/engine/executors/threads.py).
"""

from collections.abc import Iterator, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager
from functools import partial

import numpy as np
from numpy.typing import NDArray

from hbench.engine.job import Job, Values
from hbench.engine.kernels.rank_positives import RankedPositives
from hbench.engine.kernels.sort_keys import Parts, fitting, sort
from hbench.engine.kernels.symmetric_tiles import (
    Counts,
    SortedPositives,
    TileSide,
    count_tile,
    flat_range,
    rank_counted,
)
from hbench.engine.values.blocks import Block, FastColumns
from hbench.engine.values.plan import MetricPlan

# numbers in the gallery's vectors, from which half of the products pay for counting every tile
# twice
MIN_TRIANGLE = 1 << 22
# positives of a query, itself counted, up to which it pays to build its table again for every tile
MAX_POSITIVES = 432


class Triangle:
    """Scores every pair of items once, where the queries are the gallery: s(i, j) = s(j, i), so one
    product serves both as queries.

    `plan`: the metrics; `ranker`: the queries, with the ranges of their positives; `scores`: the
    vectors, in blocks of queries and chunks of the gallery. `parts`: of every query, in canonical
    order, the columns in which its positives lie, itself among them, and where these lie in flat
    arrays of all queries. `threads`: how many of the given threads fit in memory (0: none).
    `spare`: buffers for scores that no thread uses at present.
    """

    def __init__(self, plan: MetricPlan, threads: int) -> None:
        """`plan`: the metrics to compute; `threads`: the most to be used, fewer where memory is
        small, 0 where it holds not even one."""
        self.plan = plan
        self.ranker = plan.ranker
        self.scores = plan.ranker.scores
        # of each query the columns in which its positives lie, and their places in flat arrays
        self.parts = plan.parts(0, len(self.ranker.queries))
        # the bytes of both kinds go by what is set above
        self.threads = int(
            np.clip((self.scores.memory - self.shared_bytes) // self.thread_bytes, 0, threads)
        )
        self.spare: list[NDArray[np.floating]] = []  # flat arrays for scores, to be used again

    @property
    def shared_bytes(self) -> int:
        """Bytes that all threads share: the copy of the gallery, or the chunk at work, and the
        sorted lists of all queries' positives with the counts beside them (SortedPositives and
        Counts)."""
        # one of these is 0: a chunk is gathered only where no copy is held
        gallery = self.scores.gallery_copy_bytes + self.scores.thread_chunk_bytes
        items = (self.parts.sizes + 1).sum()  # a score of −inf follows each list
        itemsize = self.scores.dtype.itemsize
        # of an item: its score and level; how many come before it
        lists = itemsize + 1
        counts = 4
        # of a query: three int64 of the parts (begin, offset, size); the best score of each level
        # from 0 to `depth`, and of all levels together; a flag, whether scores tie
        of_query = 3 * 8 + itemsize * (self.ranker.depth + 2) + 1
        return int(gallery + items * (lists + counts) + len(self.parts.sizes) * of_query)

    @property
    def thread_bytes(self) -> int:
        """Bytes that each thread takes: the vectors of one block, one tile of scores, the counts
        for the tile's columns, a chunk while positives are sorted, and the plan's workspace."""
        vectors = self.scores.gallery_rows.width
        # numbers of each query: its scores in the tile, and as many again for the counts, which
        # take less
        scores = 2 * self.scores.chunk_size
        tile = self.scores.block_size * (vectors + scores) * self.scores.dtype.itemsize
        return int(tile + self.scores.thread_chunk_bytes) + self.plan.workspace_bytes

    def lists(self, pool: Executor) -> SortedPositives | None:
        """The sorted positives of all queries, in flat arrays; None where products are not
        symmetric to the bit, s(i, j) ≠ s(j, i), so that one cannot stand for the other."""
        items = int((self.parts.sizes + 1).sum())  # one place more behind each query's, for −inf
        lists = SortedPositives(
            np.empty(items, self.scores.dtype), np.empty(items, np.uint8), self.parts
        )
        # fills the lists of one block, and tells whether that block's products are symmetric
        sort = partial(self._sort, lists)
        if not self._ends_are_alike() or not all(pool.map(sort, range(self.scores.blocks))):
            return None
        return lists

    def values(self, lists: SortedPositives, pool: Executor) -> Iterator[tuple[int, Values]]:
        """The values of every block's queries, from the last block to the first, with its number.
        `lists`: the sorted positives of all queries.

        Each pair of items is multiplied once and counted for both. Chunks are taken from the last
        to the first, each with all blocks up to it: a block that begins at the start of a chunk or
        behind it has then met all items, and is finished.
        """
        counts = Counts.zeros(lists)
        left = self.scores.blocks  # blocks whose values are still to be given: 0 … left − 1
        for start in reversed(self.scores.chunks):
            with self.scores.chunk(start) as chunk:
                self._count_chunk(chunk, start, pool, lists=lists, counts=counts)
            while left and (left - 1) * self.scores.block_size >= start:
                left -= 1
                yield left, self._finish(left, lists, counts)

    def _count_chunk(
        self,
        chunk: NDArray[np.floating],
        start: int,
        pool: Executor,
        *,
        lists: SortedPositives,
        counts: Counts,
    ) -> None:
        """Count how many scores of this chunk (n, D) come before each positive, of all queries up
        to the chunk's end, and add that to `counts`, which are of all queries, as `lists` are.

        `start`: the position of the chunk's first item in canonical order. A tile is one block of
        queries × this chunk: it is counted for its rows, and turned for its columns, since
        s(i, j) = s(j, i).
        """
        items = slice(start, start + len(chunk))
        columns = lists.of(items)
        # A thread writes the rows of its own block alone, but all blocks meet in the columns: each
        # thread counts those into an array of its own, and they are added up at the end.
        by_thread = [Counts.zeros(columns) for _ in range(self.threads)]
        free = by_thread.copy()  # those that no thread uses at present

        def count(block: int) -> None:
            """Count one block of queries × this chunk of the gallery: for the block's own queries,
            and, turned, for those of the chunk, in an array that no other thread uses meanwhile.
            The last block fills its tile partly."""
            # the lists and counts of the block's queries
            rows = self._side(block, lists, counts)
            of_columns = free.pop()  # never empty: one array for each thread of the pool
            with self._buffer(len(chunk)) as tile:
                self.scores.multiply_by(chunk, self.scores.block_vectors(block), tile)
                side = TileSide(start, columns, of_columns)
                most = self.plan.most_positives
                count_tile(tile[: len(rows.counts.top)], rows, side, self.plan.rule, most)
            free.append(of_columns)

        # blocks from the first to the one that holds the chunk's last item: the upper triangle.
        list(pool.map(count, range(-(-items.stop // self.scores.block_size))))
        for of_columns in by_thread:  # `of` gives views, so this adds to `counts` itself
            counts.of(items, flat_range(self.parts, items)).add(of_columns)

    @contextmanager
    def _buffer(self, columns: int) -> Iterator[NDArray[np.floating]]:
        """An array (B, columns) for the scores of a block of B queries, in memory that is used
        again (`spare`, flat arrays): fresh pages take as long as the product.
        """
        size = self.scores.block_size * columns
        try:
            spare = self.spare.pop()
        except IndexError:  # rather than looking first: another thread may take it meanwhile
            spare = np.empty(0, self.scores.dtype)
        buffer = spare if len(spare) >= size else np.empty(size, self.scores.dtype)
        yield buffer[:size].reshape(-1, columns)
        self.spare.append(buffer)

    def _side(self, block: int, lists: SortedPositives, counts: Counts) -> TileSide:
        """The lists and counts of one block's queries, views of those of all queries."""
        queries = self._queries(block)
        return TileSide(
            queries.start, lists.of(queries), counts.of(queries, flat_range(self.parts, queries))
        )

    def _queries(self, block: int) -> slice:
        """The positions of one block's queries in canonical order."""
        first = block * self.scores.block_size
        return slice(first, first + len(self.scores.rows(block)))

    def _ends_are_alike(self) -> bool:
        """Whether the products of the first block with the last chunk, which has another shape, are
        those of the last block with the first.

        BLAS may round a product otherwise under another shape; then s(i, j) and s(j, i) differ in
        their last bits, and one cannot stand for the other.
        """
        last = self.scores.blocks - 1
        chunk = self.scores.chunks[-1]  # the position at which the last chunk starts
        of_first = self._queries(0)
        of_last = self._queries(last)
        # The pairs that both products hold: of the first items, those of the first block that are
        # in the first chunk, `met` of them; of the last items, those from `start` on, which are in
        # the last block and in the last chunk
        met = min(of_first.stop, self.scores.chunk_size)
        start = max(of_last.start, chunk)
        # each range holds the start of one chunk: of the last one, and of the first one, 0
        with self._rows(0, range(chunk, chunk + 1)) as first, self._rows(last, range(1)) as other:
            ours = first[:met, start - chunk : of_last.stop - chunk]
            theirs = other[start - of_last.start :, :met]
            return np.array_equal(ours, theirs.T)

    def _sort(self, lists: SortedPositives, block: int) -> bool:
        """Score and sort the positives of a block's queries, and write them to `lists`, which are
        of all queries; return whether the products of the block with itself are symmetric to the
        bit."""
        queries = self._queries(block)
        chunks = self._chunks_of_positives(queries)
        parts = self._parts_in(chunks, queries)
        # views, written in place of `lists`; their places count from the block's first list
        of_block = lists.of(queries)

        with self._rows(block, chunks) as rows, self.plan.workspace() as workspace:
            # queries are items, so their own columns are among those of their positives
            square = rows[:, queries.start - chunks.start : queries.stop - chunks.start]
            symmetric = np.array_equal(square, square.T)
            np.fill_diagonal(square, -np.inf)  # a query is not in its own list
            by_score = workspace.by_score
            # as many queries at once as the workspace has room for, each with one place more, −inf
            for some in fitting(parts.sizes + 1, len(by_score.keys)):
                sort(rows[some], parts.of(some), by_score)
                flat = flat_range(parts, some)  # where their lists lie in those of the block
                size = flat.stop - flat.start
                of_block.ordered[flat] = by_score.scores[:size]
                of_block.levels[flat] = by_score.levels[:size]

        return symmetric

    def _chunks_of_positives(self, queries: slice) -> range:
        """The positions at which the chunks of the gallery start in which the positives of these
        queries lie, and all chunks between: only these are multiplied to sort them."""
        parts = self.parts.of(queries)
        size = self.scores.chunk_size
        first = int(parts.begins.min()) // size * size  # the start of the chunk that holds it
        return range(first, int((parts.begins + parts.sizes).max()), size)

    def _parts_in(self, chunks: range, queries: slice) -> Parts:
        """Where the positives of n queries lie in rows that hold the scores of these chunks alone;
        `parts` says so of all queries, for rows of the whole gallery.

        `begins`, `sizes` (n,): the columns of all positives of a query, counted from the first
        chunk. `starts`, `ends` (n, K): inside of these the columns of each level or finer, or under
        partial labels of each of two codes per level, by which an item gets its level. `offsets`
        (n,): where a query's list lies in flat arrays of these queries.
        """
        by_level = self.parts.of(queries)
        by_code = self.plan.coded(by_level, queries.start, queries.stop)
        first = chunks.start
        begins, starts, ends = (
            columns - first for columns in (by_code.begins, by_code.starts, by_code.ends)
        )
        return by_code._replace(begins=begins, starts=starts, ends=ends)

    @contextmanager
    def _rows(self, block: int, chunks: range) -> Iterator[NDArray[np.floating]]:
        """The scores (n, items) of a block's n queries against neighbouring chunks of the gallery,
        given by the positions where they start; column 0 is the first item of the first chunk.
        Where the last chunk is shorter than others, the columns behind it are of no item, and hold
        anything."""
        size = self.scores.chunk_size
        vectors = self.scores.block_vectors(block)
        with self._buffer(len(chunks) * size) as rows:
            for start in chunks:
                with self.scores.chunk(start) as chunk:
                    at = start - chunks.start
                    self.scores.multiply_by(chunk, vectors, rows[:, at : at + len(chunk)])
            # without the rows of the padding, which fills the last block up
            yield rows[: len(self.scores.rows(block))]

    def _finish(self, block: int, lists: SortedPositives, counts: Counts) -> Values:
        """The values of a block, once every item has been counted for its queries: the counts
        become ranks, and these the metrics. `lists`, `counts`: of all queries."""
        values = Block(self.ranker, range(block, block + 1), self.plan.metrics)
        side = self._side(block, lists, counts)
        fast = FastColumns(values, self.plan)
        positives = side.lists.parts.sizes - 1  # (n,): without the query itself
        # one query's positives end in the flat ranks where the next one's begin
        ends = np.cumsum(positives)

        with self.plan.workspace() as workspace:
            ranked = RankedPositives(
                workspace.ranks, workspace.levels, ends - positives, ends, values.values.tied
            )
            # writes the ranks to the workspace, and two results to the block: which queries have
            # ties, and the level of each first item
            rank_counted(
                side.lists,
                side.counts,
                self.plan.rule.pessimistic,
                ranked,
                values.values.first_level,
            )
            fast.add_ranked(ranked, slice(0, len(positives)), workspace)

        return values.finish()


def triangle_of(
    job: Job, plan: MetricPlan | None, blocks: Sequence[int], threads: int
) -> Triangle | None:
    """The triangle of a job, which multiplies each pair of items once, as s(i, j) = s(j, i); None
    where it does not fit: unless the job compares all pairs, products take most of its time, every
    query has few positives, nobody needs whole rows of scores, all blocks are asked for (`blocks`,
    their numbers), and the memory is enough for so many `threads`.

    `plan`: of metrics that are sums, None where the job has none.
    """
    # values by name, first results and other labels are taken from whole rows of scores
    whole_rows = job.by_name is not None or job.top is not None or bool(job.others)
    numbers = len(job.ranker.columns) * job.ranker.scores.gallery_rows.width
    if plan is None or whole_rows or not job.ranker.mutual or numbers < MIN_TRIANGLE:
        return None
    # of fewer blocks, such as one share of several, most tiles would serve one side alone; a table
    # of many positives, made again for every tile, takes longer than the product that is saved
    if len(set(blocks)) < job.ranker.blocks or plan.most_positives > MAX_POSITIVES:
        return None
    triangle = Triangle(plan, threads)
    # `threads`: as many as memory holds the tables of, 0 where it is too small for a single one
    return triangle if triangle.threads else None
