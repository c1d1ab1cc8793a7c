"""Ranking: vectors and labels become one level sequence per query, the one heavy step of every evaluation.

The gallery has one canonical order (path, then vector content), and so have the queries; items whose vectors are
exactly equal share one score, whatever BLAS makes of them. So a level sequence does not depend on the order of the
items.

>>> vectors = np.array([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0]])
>>> ranker = Ranker(Side(vectors, np.array([[0, 0], [0, 1], [1, 2]])))
>>> [(sequence.ranks.tolist(), sequence.levels.tolist()) for sequence in ranker.block(0)]  # no positive for the third
[([1], [1]), ([1], [1]), ([], [])]
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hbench.canonical import canonical_order, content_keys, duplicates, level_ranges
from hbench.registry import Registry
from hbench.scores import Scores
from hbench.similarity import Similarity, cosine
from hbench.tree import Labels


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


LeftOut = Callable[[int, int], tuple[NDArray[np.int64], NDArray[np.int64]]]


class Ranker:
    """Ranks queries against a gallery, block by block in canonical order.

    Without a gallery the queries are ranked among themselves. `self_rows` (Q,) is the gallery row that is the query
    itself, left out of its list; -1 for none. `mutual`: whether the queries are the gallery, and only each itself is left
    out of its list. `memory` bounds what is held beyond the vectors and labels, in bytes.
    """

    def __init__(
        self,
        queries: Side,
        gallery: Side | None = None,
        *,
        self_rows: NDArray[np.int64] | None = None,
        similarity: Similarity = cosine,
        tie_key: Ties = pessimistic,
        memory: int | None = None,
    ) -> None:
        self.mutual = gallery is None and queries.ignore is None
        if gallery is None:
            gallery, self_rows = queries, np.arange(len(queries.labels))
        self.depth = queries.labels.shape[1]
        self.tie_key = tie_key(self.depth)
        keys = content_keys(gallery.vectors)
        query_keys = keys if gallery is queries else content_keys(queries.vectors)
        self.columns = canonical_order(gallery.labels, keys)
        self.queries = self.columns if gallery is queries else canonical_order(queries.labels, query_keys)
        self.copies, self.originals = duplicates(gallery.vectors, self.columns, keys)
        self.starts, self.ends = level_ranges(queries.labels[self.queries], gallery.labels[self.columns])
        self.left_out = _left_out(self.queries, self.columns, self_rows, (queries.ignore, gallery.ignore))
        tables = 40 * (len(self.queries) + len(self.columns)) + self.starts.nbytes + self.ends.nbytes
        rows = similarity(queries.vectors, gallery.vectors)
        if gallery is queries and rows[0].same_as(rows[1]):
            settled = rows[1].settled(self.columns)
            rows = settled, settled
        left = None if memory is None else memory - tables
        self.scores = Scores(rows, self.queries, self.columns, memory=left)
        self.digest = _digest(keys[self.columns], query_keys[self.queries], self)

    @property
    def blocks(self) -> int:
        """How many blocks the queries make."""
        return self.scores.blocks

    @property
    def pessimistic(self) -> bool | None:
        """Whether among equal scores the lower level comes first, or the higher one; None for any other order."""
        steps = np.diff(self.tie_key.astype(np.int64))
        return True if (steps > 0).all() else False if (steps < 0).all() else None

    def rows(self, block: int) -> NDArray[np.int64]:
        """The input positions of a block's queries."""
        return self.scores.rows(block)

    def counts(self, first: int, last: int) -> NDArray[np.int64]:
        """The level counts (n, L+1) of the lists of a range of the canonical queries."""
        rows, columns = self.left_out(first, last)
        starts, ends = self.starts[first:last], self.ends[first:last]
        at_least = np.zeros((last - first, self.depth + 2), np.int64)
        at_least[:, 0], at_least[:, 1:-1] = len(self.columns), ends - starts
        counts: NDArray[np.int64] = at_least[:, :-1] - at_least[:, 1:]
        inside = (starts[rows] <= columns[:, None]) & (columns[:, None] < ends[rows])
        np.subtract.at(counts, (rows, inside.sum(axis=1)), 1)
        return counts

    def mask(self, scores: NDArray[np.floating], first: int) -> None:
        """Finish rows of scores (n, G), of the canonical queries from `first` on: copies get the score of their
        original, what is left out of a query's list −inf."""
        if len(self.copies):
            scores[:, self.copies] = scores[:, self.originals]
        scores[self.left_out(first, first + len(scores))] = -np.inf

    def sequences(self, scores: NDArray[np.floating], first: int) -> Iterator[LevelSequence]:
        """The level sequences of the canonical queries from `first` on, from their masked rows of scores (n, G)."""
        for query, (row, counts) in enumerate(zip(scores, self.counts(first, first + len(scores)), strict=True), first):
            levels = self.levels(query)
            levels[self.left_out(query, query + 1)[1]] = 0
            yield level_sequence(row, levels, counts, self.tie_key)

    def block(self, block: int) -> Iterator[LevelSequence]:
        """The level sequences of one block's queries, in the order of `rows(block)`."""
        scores, first = self.scores.whole(block), block * self.scores.block_size
        self.mask(scores, first)
        return self.sequences(scores, first)

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
    scores: NDArray[np.floating], levels: NDArray[np.uint8], counts: NDArray[np.int64], tie_key: NDArray[np.uint8]
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


def _digest(gallery: NDArray[np.uint64], queries: NDArray[np.uint64], ranker: Ranker) -> str:
    """sha256 of the vectors by their keys, the label tree, what is left out, the ties policy, and the shapes of blocks."""
    digest = hashlib.sha256(f"{ranker.scores.block_size} {ranker.tie_key.tolist()}".encode())
    for array in (gallery, queries, ranker.starts, ranker.ends, *ranker.left_out(0, len(queries))):
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


def _left_out(
    queries: NDArray[np.int64],
    columns: NDArray[np.int64],
    self_rows: NDArray[np.int64] | None,
    ignore: tuple[NDArray[np.int64] | None, NDArray[np.int64] | None],
) -> LeftOut:
    """For a range of queries in canonical order, what is left out of their lists: itself, and its ignore group."""
    column_of = np.full(len(columns) + 1, -1)
    column_of[columns] = np.arange(len(columns))
    own = np.full(len(queries), -1) if self_rows is None else column_of[self_rows[queries]]

    def itself(first: int, last: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        rows = np.flatnonzero(own[first:last] >= 0)
        return rows, own[first:last][rows]

    if ignore[0] is None or ignore[1] is None:
        return itself
    groups, members = ignore[0][queries], ignore[1][columns]
    by_group = np.argsort(members, kind="stable")
    starts, ends = (np.searchsorted(members[by_group], groups, side=side) for side in ("left", "right"))

    def with_group(first: int, last: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        found = [by_group[starts[q] : ends[q]] if groups[q] >= 0 else by_group[:0] for q in range(first, last)]
        found = [np.unique(np.append(group, own[q : q + 1])) for q, group in enumerate(found, start=first)]
        found = [each[each >= 0] for each in found]
        return np.repeat(np.arange(last - first), list(map(len, found))), np.concatenate(found)

    return with_group
