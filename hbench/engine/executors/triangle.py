"""Ranks all items against each other from half of the products, since s(i, j) = s(j, i): only the
upper triangle of the scores is computed.

This is for galleries where every item is a query with few positives. The positives are scored and
sorted first. Then the upper triangle is computed in tiles, the pieces of
hbench/engine/score_blocks.py. The scores of a tile are counted in the lists of positives of the
queries in its rows and in its columns; the tile is then dropped, so whole rows of scores are never
stored. Chunks are taken from the last to the first: after each chunk, the queries in it are done.

The values are those from whole rows, to the bit, if products are symmetric to the bit. BLAS does
not guarantee that. So the products of every block with itself are checked first, and those of the
first block with the last. If one is not symmetric, whole rows are computed instead
(hbench/engine/executors/threads.py).
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

# numbers in the gallery's vectors (items × dimensions), from which it is quicker to save half of
# the products, although each tile is counted twice
MIN_TRIANGLE = 1 << 22
# positives of a query, itself included, up to which it is quicker, although the table of its
# positives is built again for each tile
MAX_POSITIVES = 432


class Triangle:
    """Scores each pair of items once, where the queries are the gallery: s(i, j) = s(j, i), so one
    product serves both items as queries.

    `plan`: the metrics. `ranker`: the queries, with the ranges of their positives. `scores`: the
    vectors, in blocks of queries and chunks of the gallery. `parts`: for each query, in canonical
    order, the columns of its positives and of itself, and the place of its list in flat arrays of
    all queries. `threads`: how many threads fit in memory, 0 if not even one. `spare`: flat
    buffers for scores that no thread uses at present.
    """

    def __init__(self, plan: MetricPlan, threads: int) -> None:
        """`plan`: the metrics to compute; `threads`: the most threads to use, of which fewer are
        used if the memory is small."""
        self.plan = plan
        self.ranker = plan.ranker
        self.scores = plan.ranker.scores
        # the positives of all queries, as every tile counts for the queries of its rows and columns
        self.parts = plan.parts(0, len(self.ranker.queries))
        # Both numbers of bytes depend on the attributes above. 0 if not even one thread fits: then
        # `triangle_of` returns None in place of the triangle.
        self.threads = int(
            np.clip((self.scores.memory - self.shared_bytes) // self.thread_bytes, 0, threads)
        )
        # flat buffers for the scores of a tile that no thread uses at present
        self.spare: list[NDArray[np.floating]] = []

    @property
    def shared_bytes(self) -> int:
        """Bytes that all threads share: the copy of the gallery, or the current chunk, and the
        lists of all queries' positives with their counts (SortedPositives and Counts)."""
        # one of the two is 0: a chunk is gathered only where no copy is held
        gallery = self.scores.gallery_copy_bytes + self.scores.thread_chunk_bytes
        items = (self.parts.sizes + 1).sum()  # a score of −inf follows each list
        itemsize = self.scores.dtype.itemsize
        # of an item: its score and level, and the int32 count of the scores before it
        lists = itemsize + 1
        counts = 4
        # of a query: three int64 of the parts (begin, offset, size); the best score of each level
        # from 0 to `depth`, and of all levels; a flag for ties
        of_query = 3 * 8 + itemsize * (self.ranker.depth + 2) + 1
        return int(gallery + items * (lists + counts) + len(self.parts.sizes) * of_query)

    @property
    def thread_bytes(self) -> int:
        """Bytes of each thread: the vectors of one block, one tile of scores, the counts for the
        tile's columns, a chunk while positives are sorted, and the plan's workspace."""
        vectors = self.scores.gallery_rows.width
        # for each query of a block: its scores in the tile, and as many numbers again, since the
        # counts for the tile's columns take at most that many
        scores = 2 * self.scores.chunk_size
        tile = self.scores.block_size * (vectors + scores) * self.scores.dtype.itemsize
        return int(tile + self.scores.thread_chunk_bytes) + self.plan.workspace_bytes

    def lists(self, pool: Executor) -> SortedPositives | None:
        """The sorted positives of all queries, in flat arrays. None if products are not symmetric
        to the bit, so that s(i, j) cannot be used for s(j, i)."""
        items = int((self.parts.sizes + 1).sum())  # −inf takes one more place behind each list
        lists = SortedPositives(
            ordered=np.empty(items, self.scores.dtype),
            levels=np.empty(items, np.uint8),
            parts=self.parts,
        )
        # fills the lists of one block, and returns whether that block's products are symmetric
        sort = partial(self._sort, lists)
        # `sort` sees only products of a block with itself. Products with the last chunk, which has
        # another shape, may be rounded differently: `_ends_are_alike` compares some of these.
        if not self._ends_are_alike() or not all(pool.map(sort, range(self.scores.blocks))):
            return None
        return lists

    def values(self, lists: SortedPositives, pool: Executor) -> Iterator[tuple[int, Values]]:
        """Yield the number and the values of each block, from the last block to the first.
        `lists`: the sorted positives of all queries.

        Each pair of items is multiplied once and counted for both. Chunks are taken from the last
        to the first. Each chunk is multiplied with the queries of all blocks from the first to the
        one at the chunk's end. After a chunk, the blocks that begin in it are finished: as rows,
        their queries have met the items of this chunk and of later ones, and as columns, the items
        of earlier chunks.
        """
        counts = Counts.zeros(lists)
        left = self.scores.blocks  # blocks 0 … left − 1 are not finished
        for start in reversed(self.scores.chunks):
            with self.scores.chunk(start) as chunk:
                self._count_chunk(chunk, start, pool, lists=lists, counts=counts)
            # block `left` − 1, the last that is not finished, begins in this chunk
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
        """Count, for all queries up to the end of one chunk, how many scores of the chunk's tiles
        come before each positive, and add that to `counts`.

        A tile is the scores of one block of queries against this chunk. It is counted for the
        queries in its rows and, since s(i, j) = s(j, i), for those in its columns. Of a row or a
        column, `count_tile` takes only the scores of pairs above the diagonal (i < j), so a pair
        that a tile holds twice, as (i, j) and as (j, i), is counted once for each of its queries.

        Args:
            chunk: the vectors (n, D) of the chunk.
            start: the position of the chunk's first item in canonical order.
            pool: the threads.
            lists: the sorted positives of all queries.
            counts: the counts of all queries.
        """
        items = slice(start, start + len(chunk))
        columns = lists.of(items)
        # Each block has its own rows, but all blocks share the columns of the chunk. So each thread
        # counts for the columns in its own arrays, which are added up at the end.
        by_thread = [Counts.zeros(columns) for _ in range(self.threads)]
        free = by_thread.copy()  # the Counts that no thread uses at present

        def count(block: int) -> None:
            """Multiply one block with the chunk. Each row and each column of this tile belongs to a
            query: count how many distractors come before each of its positives, and find which
            item is first."""
            # the block's queries, with views of their lists and counts
            rows = self._side(block, lists, counts)
            of_columns = free.pop()  # never empty: there is one for each thread of the pool
            with self._buffer(len(chunk)) as tile:
                self.scores.multiply_by(chunk, self.scores.block_vectors(block), tile)
                side = TileSide(first=start, lists=columns, counts=of_columns)
                most = self.plan.most_positives
                # `counts.top` has the best score of each query so far; the last block may have
                # fewer queries than the buffer has rows
                count_tile(tile[: len(rows.counts.top)], rows, side, self.plan.rule, most)
            free.append(of_columns)

        # the upper triangle: blocks from the first to the one that holds the chunk's last item;
        # `list` waits for all of them and raises an error that one had
        list(pool.map(count, range(-(-items.stop // self.scores.block_size))))
        # `of` returns views, so this adds to `counts` itself; `flat_range`: the places of the
        # chunk's lists in flat arrays of all queries
        for of_columns in by_thread:
            counts.of(items, flat_range(self.parts, items)).add(of_columns)

    @contextmanager
    def _buffer(self, columns: int) -> Iterator[NDArray[np.floating]]:
        """An array (B, columns) for the scores of a block of B queries. Its memory is used again
        afterwards (`spare`), since to get new memory pages takes as long as the product.
        """
        size = self.scores.block_size * columns
        try:
            spare = self.spare.pop()
        except IndexError:  # no check before: another thread could take the last one meanwhile
            spare = np.empty(0, self.scores.dtype)
        buffer = spare if len(spare) >= size else np.empty(size, self.scores.dtype)
        yield buffer[:size].reshape(-1, columns)
        self.spare.append(buffer)

    def _side(self, block: int, lists: SortedPositives, counts: Counts) -> TileSide:
        """The lists and counts of one block's queries, as views into those of all queries."""
        queries = self._queries(block)
        return TileSide(
            first=queries.start,
            lists=lists.of(queries),
            counts=counts.of(queries, flat_range(self.parts, queries)),
        )

    def _queries(self, block: int) -> slice:
        """The positions of one block's queries in canonical order."""
        first = block * self.scores.block_size
        return slice(first, first + len(self.scores.rows(block)))

    def _ends_are_alike(self) -> bool:
        """Whether the products of the first block with the last chunk equal those of the last block
        with the first chunk, to the bit.

        The last chunk has another shape, for which BLAS may round differently. Then s(i, j) and
        s(j, i) would differ in their last bits.
        """
        last = self.scores.blocks - 1
        chunk = self.scores.chunks[-1]  # the position at which the last chunk starts
        of_first = self._queries(0)
        of_last = self._queries(last)
        # Both products have the pairs of the first `shared` items, which are in the first block and
        # in the first chunk, with the items from `start` on, which are in the last block and in the
        # last chunk. `_queries` gives slices of the canonical order.
        shared = min(of_first.stop, self.scores.chunk_size)
        start = max(of_last.start, chunk)
        # `_rows` takes the starts of chunks: range(chunk, chunk + 1) is the last chunk alone, and
        # range(1) the first one
        with self._rows(0, range(chunk, chunk + 1)) as first, self._rows(last, range(1)) as other:
            # column 0 of `first` is the item at `chunk`, row 0 of `other` that at `of_last.start`
            of_first_block = first[:shared, start - chunk : of_last.stop - chunk]
            of_last_block = other[start - of_last.start :, :shared]
            return np.array_equal(of_first_block, of_last_block.T)

    def _sort(self, lists: SortedPositives, block: int) -> bool:
        """Score and sort the positives of a block's queries, and write them to `lists`, the lists
        of all queries. Return whether the products of the block with itself are symmetric to the
        bit."""
        queries = self._queries(block)  # a slice of the canonical order
        chunks = self._chunks_of_positives(queries)
        parts = self._parts_in(chunks, queries)
        # views, so that writing to them fills `lists`; places count from the block's first list
        of_block = lists.of(queries)

        with self._rows(block, chunks) as rows, self.plan.workspace() as workspace:
            # (n, n), since the queries' own columns are among the columns of their positives
            square = rows[:, queries.start - chunks.start : queries.stop - chunks.start]
            symmetric = np.array_equal(square, square.T)
            # a query is no positive of its own: with −∞ it is sorted to the end of its list, where
            # it still takes a place
            np.fill_diagonal(square, -np.inf)
            by_score = workspace.by_score
            # as many queries at once as fit in the workspace; + 1, since in `by_score` each list is
            # followed by one more place, to which `sort` writes −inf; `lists` has this place, too
            for some in fitting(parts.sizes + 1, len(by_score.keys)):
                sort(rows[some], parts.of(some), by_score)  # writes scores and levels to `by_score`
                flat = flat_range(parts, some)  # the places of their lists within the block's
                size = flat.stop - flat.start
                of_block.ordered[flat] = by_score.scores[:size]
                of_block.levels[flat] = by_score.levels[:size]

        return symmetric

    def _chunks_of_positives(self, queries: slice) -> range:
        """The starts of the chunks of the gallery from the first to the last that has positives of
        these queries: only these chunks are multiplied to sort the positives."""
        parts = self.parts.of(queries)
        size = self.scores.chunk_size
        first = int(parts.begins.min()) // size * size  # the start of that column's chunk
        return range(first, int((parts.begins + parts.sizes).max()), size)

    def _parts_in(self, chunks: range, queries: slice) -> Parts:
        """The parts of n queries for rows that have the scores of these chunks alone, while
        `self.parts` are for rows of the whole gallery. `chunks`: the columns at which they start.

        `begins`, `sizes` (n,): the columns of all positives of a query, counted from the start of
        the first chunk. `starts`, `ends` (n, K): the columns of the items of each level or finer,
        or under partial labels of each code. `offsets` (n,): where a query's list begins in flat
        arrays of these n queries; `Parts.of` counts them from the first of these lists.
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
        """The scores (n, items) of a block's n queries against neighbouring chunks of the gallery.
        `chunks`: the positions where they start; column 0 is the first item of the first chunk. If
        the last chunk is shorter than the others, the columns behind it belong to no item, and
        their values are undefined."""
        size = self.scores.chunk_size
        vectors = self.scores.block_vectors(block)
        with self._buffer(len(chunks) * size) as rows:
            for start in chunks:
                with self.scores.chunk(start) as chunk:
                    at = start - chunks.start
                    self.scores.multiply_by(chunk, vectors, rows[:, at : at + len(chunk)])
            # only rows of queries: `block_vectors` fills up the last block with copies of its last
            # query
            yield rows[: len(self.scores.rows(block))]

    def _finish(self, block: int, lists: SortedPositives, counts: Counts) -> Values:
        """The values of a block, once all items have been compared with its queries: ranks are
        computed from the counts of distractors between neighbouring positives, and metrics from the
        ranks. `block`: its number. `lists`, `counts`: the sorted positives and what has been
        counted, of all queries."""
        only = Block(self.ranker, range(block, block + 1), self.plan.metrics)  # this block alone
        side = self._side(block, lists, counts)  # the lists and counts of its queries alone
        fast = FastColumns(only, self.plan)
        positives = side.lists.parts.sizes - 1  # (n,): a part also holds the query itself
        # in the flat ranks, a query's positives end where the next query's positives begin
        ends = np.cumsum(positives)

        with self.plan.workspace() as workspace:
            ranked = RankedPositives(
                workspace.ranks, workspace.levels, ends - positives, ends, only.values.tied
            )
            # Writes the ranks and levels to the workspace, through `ranked`, and to the values of
            # the block: which queries have ties (`ranked.tied`), and the level of each query's
            # first item.
            rank_counted(
                side.lists,
                side.counts,
                self.plan.rule.pessimistic,
                ranked,
                only.values.first_level,
            )
            fast.add_ranked(ranked, slice(0, len(positives)), workspace)

        return only.finish()


def triangle_of(
    job: Job, plan: MetricPlan | None, blocks: Sequence[int], threads: int
) -> Triangle | None:
    """The triangle of a job, which computes only half of the symmetric product; None where whole
    rows of scores are needed or quicker.

    It is used if the job compares all items with each other, products take most of the time, each
    query has few positives, nobody needs whole rows of scores, all blocks are requested, and the
    memory is enough.

    Args:
        job: the job.
        plan: computes metrics as sums; None if formulas compute them.
        blocks: the numbers of the requested blocks.
        threads: the most threads to use.
    """
    # values by name, first results and other labels are computed from whole rows of scores
    whole_rows = job.by_name is not None or job.top is not None or bool(job.others)
    # items × dimensions: with small vectors, products do not take most of the time
    size = len(job.ranker.columns) * job.ranker.scores.gallery_rows.width
    if plan is None or whole_rows or not job.ranker.mutual or size < MIN_TRIANGLE:
        return None
    # A tile serves the queries of its rows and those of its columns. If only some blocks are
    # requested, such as one share of several, the queries of most columns are not. With many
    # positives, making the table of them for each tile takes longer than the saved product.
    if len(set(blocks)) < job.ranker.blocks or plan.most_positives > MAX_POSITIVES:
        return None
    triangle = Triangle(plan, threads)
    # no threads: the memory is too small even for one
    return triangle if triangle.threads else None
