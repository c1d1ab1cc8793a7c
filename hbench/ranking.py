"""Ranking: vectors and labels become one level sequence per query, the one heavy step of every evaluation.

The gallery has one canonical order (path, then vector content), query blocks and gallery chunks have one shape, and
every block is multiplied by one BLAS thread (`one_blas_thread`): so the scores, bit for bit, depend neither on the
order of the items nor on the number of threads. Items whose vectors are exactly equal share one score, whatever BLAS
makes of them.

>>> vectors = np.array([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0]])
>>> ranker = Ranker(Side(vectors, np.array([[0, 0], [0, 1], [1, 2]])))
>>> [(sequence.ranks.tolist(), sequence.levels.tolist()) for sequence in ranker.block(0)]  # no positive for the third
[([1], [1]), ([1], [1]), ([], [])]
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from hbench.canonical import canonical_order, content_keys, duplicates, level_ranges
from hbench.registry import Registry
from hbench.similarity import Rows, Similarity, cosine
from hbench.tree import Labels

BLOCK = 256  # queries multiplied at once: part of what defines the last bits of a score
CHUNK = 8192  # gallery items multiplied at once, likewise
SCORES = 64 << 20  # bytes of scores per block: a large gallery gets fewer queries per block
COPY = 128 << 20  # a gallery up to this many bytes is kept in canonical order instead of gathered for every block


class LevelSequence(NamedTuple):
    """What one query's ranking says about its positives: all that any metric needs.

    `ranks`: int64 (P,), 1-based, increasing. `levels`: uint8 (P,), 1 … L. `counts`: int64 (L+1,), the items per level
    in the query's whole gallery, the query itself excluded. `tied`: whether another order of equal scores would give
    other levels.
    """

    ranks: NDArray[np.int64]
    levels: NDArray[np.uint8]
    counts: NDArray[np.int64]
    tied: bool = False


Ties = Callable[[int], NDArray[np.uint8]]
ties: Registry[Ties] = Registry("ties policy")


@ties.register("pessimistic")
def pessimistic(depth: int) -> NDArray[np.uint8]:
    """Among equal scores the item of lower level comes first: a constant embedding gets the worst score its ties
    allow."""
    return np.arange(depth + 1, dtype=np.uint8)


@ties.register("optimistic")
def optimistic(depth: int) -> NDArray[np.uint8]:
    """Among equal scores the item of higher level comes first."""
    return np.arange(depth, -1, -1, dtype=np.uint8)


@dataclass(frozen=True)
class Side:
    """Vectors (N, D) and labels (N, L), coarse to fine, of the queries or of the gallery.

    `ignore` (N,): a gallery item is left out of the list of every query of its own group; -1 is no group.
    """

    vectors: NDArray[np.floating]
    labels: Labels
    ignore: NDArray[np.int64] | None = None


def one_blas_thread() -> AbstractContextManager[object]:
    """Keep BLAS to one thread, in the whole process, while blocks are ranked: the threads are ours, one block each."""
    return threadpool_limits(1, user_api="blas")


class Ranker:
    """Ranks queries against a gallery, block by block in canonical order.

    Without a gallery the queries are ranked among themselves. `self_rows` (Q,) is the gallery row that is the query
    itself, left out of its list; -1 for none.
    """

    def __init__(
        self,
        queries: Side,
        gallery: Side | None = None,
        *,
        self_rows: NDArray[np.int64] | None = None,
        similarity: Similarity = cosine,
        tie_key: Ties = pessimistic,
    ) -> None:
        if gallery is None:
            gallery, self_rows = queries, np.arange(len(queries.labels))
        self.depth = queries.labels.shape[1]
        self.tie_key = tie_key(self.depth)
        keys = content_keys(gallery.vectors)
        self.columns = canonical_order(gallery.labels, keys)
        self.queries = (
            self.columns if gallery is queries else canonical_order(queries.labels, content_keys(queries.vectors))
        )
        self.copies, self.originals = duplicates(gallery.vectors, self.columns, keys)
        self.starts, self.ends = level_ranges(queries.labels[self.queries], gallery.labels[self.columns])
        self.excluded = _excluded(self.queries, self.columns, self_rows, (queries.ignore, gallery.ignore))
        self.query_rows, gallery_rows = similarity(queries.vectors, gallery.vectors)
        self.gallery_chunk = _chunks(gallery_rows, self.columns)
        self.block_size = int(np.clip(SCORES // (4 * len(self.columns)), 1, BLOCK))

    @property
    def blocks(self) -> int:
        """How many blocks the queries make."""
        return -(-len(self.queries) // self.block_size)

    def rows(self, block: int) -> NDArray[np.int64]:
        """The input positions of a block's queries."""
        return self.queries[block * self.block_size : (block + 1) * self.block_size]

    def block(self, block: int) -> Iterator[LevelSequence]:
        """The level sequences of one block's queries, in the order of `rows(block)`."""
        first = block * self.block_size
        scores = self.scores(block)
        for query in range(first, first + len(self.rows(block))):
            levels = self.levels(query)
            left_out = self.excluded(query)
            counts = np.bincount(levels, minlength=self.depth + 1) - np.bincount(
                levels[left_out], minlength=self.depth + 1
            )
            levels[left_out], scores[query - first, left_out] = 0, -np.inf
            yield level_sequence(scores[query - first], levels, counts, self.tie_key)

    def scores(self, block: int) -> NDArray[np.floating]:
        """Scores (B, G) of one block in canonical order; the last block is padded, so that its shape gives the same
        bits."""
        rows = self.rows(block)
        queries = self.query_rows(np.concatenate([rows, np.repeat(rows[-1:], self.block_size - len(rows))]))
        scores = np.empty((self.block_size, len(self.columns)), queries.dtype)
        for start in range(0, len(self.columns), CHUNK):
            np.matmul(queries, self.gallery_chunk(start).T, out=scores[:, start : start + CHUNK])
        scores[:, self.copies] = scores[:, self.originals]
        return scores

    def levels(self, query: int) -> NDArray[np.uint8]:
        """The level of every gallery item for a query, both in canonical order; (G,)."""
        levels = np.zeros(len(self.columns), np.uint8)
        for level, (start, end) in enumerate(zip(self.starts[query], self.ends[query], strict=True), start=1):
            levels[start:end] = level
        return levels


def level_sequence(
    scores: NDArray[np.floating], levels: NDArray[np.uint8], counts: NDArray[np.int64], tie_key: NDArray[np.uint8]
) -> LevelSequence:
    """The level sequence of one row of scores (G,) with the items' levels (G,).

    Every item becomes one integer, score first and tie key last, so that one sort of integers gives ranks and levels.
    """
    if scores.dtype == np.float64:
        return _level_sequence_float64(scores, levels, counts, tie_key)
    keys = np.sort(descending(scores) << np.uint64(8) | tie_key[levels])
    of_key = np.argsort(tie_key).astype(np.uint8)
    sorted_levels = of_key[(keys & np.uint64(0xFF)).astype(np.intp)]
    at = np.flatnonzero(sorted_levels)
    return LevelSequence(at + 1, sorted_levels[at], counts, _tied(keys >> np.uint64(8), sorted_levels, at))


def _level_sequence_float64(
    scores: NDArray[np.float64], levels: NDArray[np.uint8], counts: NDArray[np.int64], tie_key: NDArray[np.uint8]
) -> LevelSequence:
    """The audit mode: a float64 score leaves no room for the level in its key."""
    order = np.lexsort((tie_key[levels], -scores))
    at = np.flatnonzero(levels[order])
    return LevelSequence(at + 1, levels[order][at], counts, _tied(scores[order], levels[order], at))


def descending(scores: NDArray[np.float32]) -> NDArray[np.uint64]:
    """Integers whose ascending order is the descending order of float32 scores; equal scores, also ±0, give equal
    integers."""
    bits = (scores + np.float32(0)).view(np.int32)
    ascending = np.where(bits < 0, ~bits, bits | np.int32(-(2**31))).view(np.uint32)
    return (~ascending).astype(np.uint64)


def _tied(scores: NDArray[np.generic], levels: NDArray[np.uint8], positives: NDArray[np.int64]) -> bool:
    """Whether an item of another level has the same score as a positive; scores and levels in ranked order."""
    before, after = positives[positives > 0], positives[positives < len(scores) - 1]
    return bool(
        ((scores[before] == scores[before - 1]) & (levels[before] != levels[before - 1])).any()
        or ((scores[after] == scores[after + 1]) & (levels[after] != levels[after + 1])).any()
    )


def _chunks(gallery_rows: Rows, columns: NDArray[np.int64]) -> Callable[[int], NDArray[np.floating]]:
    """The chunk of the gallery that starts at a canonical position: kept when the gallery is small, else gathered each
    time."""
    row_bytes = gallery_rows(columns[:1]).nbytes
    if row_bytes * len(columns) > COPY:
        return lambda start: gallery_rows(columns[start : start + CHUNK])
    kept = [gallery_rows(columns[start : start + CHUNK]) for start in range(0, len(columns), CHUNK)]
    return lambda start: kept[start // CHUNK]


def _excluded(
    queries: NDArray[np.int64],
    columns: NDArray[np.int64],
    self_rows: NDArray[np.int64] | None,
    ignore: tuple[NDArray[np.int64] | None, NDArray[np.int64] | None],
) -> Callable[[int], NDArray[np.int64]]:
    """For a query in canonical order, the canonical columns left out of its list: itself, and its ignore group."""
    column_of = np.full(len(columns) + 1, -1)
    column_of[columns] = np.arange(len(columns))
    own = np.full(len(queries), -1) if self_rows is None else column_of[self_rows[queries]]
    groups, members = np.full(len(queries), -1), np.full(len(columns), -1)
    if ignore[0] is not None and ignore[1] is not None:
        groups, members = ignore[0][queries], ignore[1][columns]

    def excluded(query: int) -> NDArray[np.int64]:
        ignored = np.flatnonzero(members == groups[query]) if groups[query] >= 0 else members[:0]
        return np.unique(np.append(ignored, own[query : query + 1][own[query] >= 0]))

    return excluded
