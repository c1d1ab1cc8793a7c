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
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hbench.core.compiled import Scalar, compiled, pays
from hbench.engine.score_blocks import Scores
from hbench.engine.similarity import Similarity, cosine
from hbench.metrics.label_order import canonical_order, level_ranges
from hbench.metrics.level_sequence import LevelSequence, Ties, level_sequence, pessimistic
from hbench.tree import Labels

ROWS_AT_ONCE = 512  # a few megabytes, which stay in the second cache
SEED = 20220710
Words = NDArray[np.unsignedinteger]


def content_keys(vectors: NDArray[np.floating]) -> NDArray[np.uint64]:
    """One integer per row of (N, D), equal for equal rows: the words of the row times fixed random odd numbers, modulo
    2^64."""
    word = np.dtype(f"u{vectors.dtype.itemsize}")
    factors: Any = np.random.default_rng(SEED).integers(2**63, size=vectors.shape[1], dtype=np.uint64)
    factors = factors * np.uint64(2) + np.uint64(1)
    minus_zero = word.type(1 << (8 * word.itemsize - 1))
    products = _products_compiled if pays(len(vectors) * vectors.shape[1]) else _products
    keys = np.empty(len(vectors), np.uint64)
    for start in range(0, len(vectors), ROWS_AT_ONCE):
        words: Any = np.ascontiguousarray(vectors[start : start + ROWS_AT_ONCE]).view(word)
        keys[start : start + ROWS_AT_ONCE] = products(words, factors, minus_zero)
    return keys


def _products(words: Words, factors: NDArray[np.uint64], minus_zero: Scalar) -> NDArray[np.uint64]:
    """Σ_d words[n, d]·factors[d], with −0.0 taken as 0.0."""
    large = np.where(words == minus_zero, words.dtype.type(0), words).astype(np.uint64)
    large *= factors
    keys: NDArray[np.uint64] = large.sum(axis=1)
    return keys


@compiled
def _products_compiled(words: Words, factors: NDArray[np.uint64], minus_zero: Scalar) -> NDArray[np.uint64]:
    keys = np.zeros(len(words), np.uint64)
    for n in range(len(words)):
        for dimension in range(len(factors)):
            word = words[n, dimension]
            keys[n] += np.uint64(word != minus_zero) * np.uint64(word) * factors[dimension]
    return keys


def duplicates(
    vectors: NDArray[np.floating], order: NDArray[np.int64], keys: NDArray[np.uint64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Canonical positions of the copies and, for each, of the first item with exactly the same vector."""
    sorted_keys = keys[order]
    by_key = np.argsort(sorted_keys, kind="stable")
    starts = np.flatnonzero(np.diff(sorted_keys[by_key], prepend=~sorted_keys[by_key[:1]]))
    first = by_key[np.repeat(starts, np.diff(starts, append=len(by_key)))]
    copies, originals = by_key[first != by_key], first[first != by_key]
    pairs = range(0, len(copies), ROWS_AT_ONCE)
    parts = [(order[copies[i : i + ROWS_AT_ONCE]], order[originals[i : i + ROWS_AT_ONCE]]) for i in pairs]
    same = [np.equal(vectors[copy], vectors[original]).all(axis=1) for copy, original in parts]
    equal = np.concatenate([*same, np.zeros(0, bool)])
    return copies[equal], originals[equal]


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
