"""The canonical order of items: by path, then by vector content, so that nothing depends on the order they came in.

In it the items that share a label with a query, at any level, are one contiguous range.

>>> canonical_order(np.array([[1, 2], [0, 1], [0, 0]]), np.zeros(3, np.uint64))
array([2, 1, 0])
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from hbench.compiled import Scalar, compiled, pays
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


def canonical_order(labels: Labels, keys: NDArray[np.uint64]) -> NDArray[np.int64]:
    """The positions of the items (N,) ordered by their label at each level, coarse to fine, then by content key."""
    return np.lexsort((keys, *labels.T[::-1]))


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


def level_ranges(queries: Labels, gallery: Labels) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Where in the canonical gallery (G, L) the items of level ≥ l of every query (Q, L) start and end; two (Q, L)
    arrays."""
    starts = np.zeros(queries.shape, np.int64)
    ends = np.zeros(queries.shape, np.int64)
    for level in range(queries.shape[1]):
        labels = gallery[:, level]
        first = np.flatnonzero(np.diff(labels, prepend=labels[:1] - 1))
        of_label = np.argsort(labels[first])
        found = np.searchsorted(labels[first], queries[:, level], sorter=of_label)
        run = of_label[np.minimum(found, len(first) - 1)]
        present = labels[first][run] == queries[:, level]
        starts[:, level] = np.where(present, first[run], 0)
        ends[:, level] = np.where(present, np.append(first[1:], len(labels))[run], 0)
    return starts, ends
