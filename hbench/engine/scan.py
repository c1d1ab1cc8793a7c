"""Reads all vectors once, in pieces, and computes two numbers for each row: its squared length, and
a key of its content.

The checks for NaN, for zero vectors and for copies, and the ranking itself, use this scan.

>>> found = scan(np.array([[1, 0.0], [2, 1], [1, -0.0]], np.float32))
>>> found.squares.tolist(), bool(found.keys[0] == found.keys[2]), len(set(found.keys.tolist()))
([1.0, 5.0, 1.0], True, 2)
"""

import hashlib
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

ROWS_AT_ONCE = 512  # a few megabytes, which stay in the second-level cache
SEED = 20220710


class Scan(NamedTuple):
    """What a scan of rows (N, D) found.

    `squares` float64 (N,): |v|² of each row, infinite or NaN if one of its numbers is. `keys`
    uint64 (N,): equal for equal rows; rows that differ share a key with a chance of 2^-64 only.
    """

    squares: NDArray[np.float64]
    keys: NDArray[np.uint64]

    def of(self, rows: NDArray[np.int64]) -> "Scan":
        """The squared lengths and keys of the rows (n,) at these positions."""
        return Scan(self.squares[rows], self.keys[rows])


def scan(vectors: Any) -> Scan:
    """Read all rows once, and compute each row's squared length and a 64-bit key of its content,
    which equal rows share.

    `vectors` (N, D): an array of floats, or an object that is indexed like one.

    Fast keys are Σ_d word_d · factor_d modulo 2^64, where the words have at most 32 bits (a float64
    makes two of them) and the factors are fixed random odd numbers. Differences in the top bits of
    words are partly lost in such a sum: rows of ±1, for instance, have only about 2^33 different
    keys. So rows that share a fast key without being equal get a cryptographic hash of their bytes
    instead.
    """
    squares = np.empty(len(vectors))
    keys = np.empty(len(vectors), np.uint64)
    for start in range(0, len(vectors), ROWS_AT_ONCE):
        rows = np.ascontiguousarray(vectors[start : start + ROWS_AT_ONCE])
        at = slice(start, start + ROWS_AT_ONCE)
        floats = rows.astype(np.float64)
        keys[at] = _fast_keys(rows)
        # callers find NaN and infinity in the squares, so numpy need not warn of them
        with np.errstate(over="ignore", invalid="ignore"):
            squares[at] = np.einsum("nd,nd->n", floats, floats)

    # Sorted by key, rows that share a key are neighbours. `by_key`: the rows in this order.
    # `shared`: the places in this order at which the next row has the same key.
    by_key = np.argsort(keys, kind="stable")
    shared = np.flatnonzero(keys[by_key][1:] == keys[by_key][:-1])
    is_copy = equal_rows(vectors, by_key[shared], by_key[shared + 1])
    collisions = by_key[shared[~is_copy]]
    # where different rows share a key, every row with that key gets a hash, so that equal rows
    # among them still have equal keys
    for key in np.unique(keys[collisions]).tolist():
        for row in np.flatnonzero(keys == np.uint64(key)).tolist():
            # + 0 turns −0.0 into 0.0: the two numbers are equal, but their bytes differ
            content = (np.asarray(vectors[row : row + 1]) + vectors.dtype.type(0)).tobytes()
            keys[row] = int.from_bytes(hashlib.blake2b(content, digest_size=8).digest(), "little")
    return Scan(squares, keys)


def _fast_keys(rows: NDArray[np.floating]) -> NDArray[np.uint64]:
    """The fast keys (n,) of rows (n, D): Σ_d word_d · factor_d modulo 2^64. uint64 arithmetic wraps
    around at 2^64 by itself. Equal rows have equal keys, and so −0.0 counts as 0.0.

    A word is the bits of a number, read as an integer. Since products are cut off at 2^64, a bit of
    a word affects only this bit of the key and higher ones. The sign is the top bit of a word: in a
    word of 32 bits, bit 31, it affects 33 bits of the key; in a word of 64 bits it would affect one
    alone. So a float64 is split into two words of 32 bits. The factors are odd because a product
    with an odd factor modulo 2^64 loses no bit of the word.
    """
    if rows.dtype == np.float64:
        words: Any = (rows + 0.0).view(np.uint32)  # −0.0 + 0.0 is 0.0
    else:
        words = rows.view(f"u{rows.dtype.itemsize}")  # float32 or float16: one word a number
        sign = words.dtype.type(1 << (8 * words.itemsize - 1))  # a sign bit without others: −0.0
        words = np.where(words == sign, words.dtype.type(0), words)
    # one factor for each word of a row, the same at every call: 63 random bits, and a last bit of 1
    # that makes the factor odd
    factors: Any = np.random.default_rng(SEED).integers(2**63, size=words.shape[1], dtype=np.uint64)
    odd_factors = factors * np.uint64(2) + np.uint64(1)
    keys: NDArray[np.uint64] = words.astype(np.uint64) @ odd_factors
    return keys


def equal_rows(
    vectors: Any, first: NDArray[np.int64], second: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """Whether two rows of `vectors` (N, D) are equal, for each of n pairs; (n,). `first` and
    `second` (n,): the positions of the two rows of each pair."""
    # some pairs at a time, since the rows of the pairs are copied to be compared
    parts = [slice(start, start + ROWS_AT_ONCE) for start in range(0, len(first), ROWS_AT_ONCE)]
    same = [np.equal(vectors[first[part]], vectors[second[part]]).all(axis=1) for part in parts]
    return np.concatenate([*same, np.zeros(0, bool)])  # concatenate refuses an empty list
