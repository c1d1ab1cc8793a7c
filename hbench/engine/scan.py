"""Reads vectors once, in pieces, for all that is asked of single rows: their squared lengths, and
keys of their content.

The checks for NaN, for zero vectors and for copies, and the ranking itself, use this scan.

>>> found = scan(np.array([[1, 0.0], [2, 1], [1, -0.0]], np.float32))
>>> found.squares.tolist(), bool(found.keys[0] == found.keys[2]), len(set(found.keys.tolist()))
([1.0, 5.0, 1.0], True, 2)
"""

import hashlib
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

ROWS_AT_ONCE = 512  # a few megabytes, which stay in the second cache
SEED = 20220710


class Scan(NamedTuple):
    """A scan of rows (N, D): `squares` float64 (N,), |v|², infinite or NaN where a number is;
    `keys` uint64 (N,), equal for equal rows and, but for a chance of 2^-64, for no others."""

    squares: NDArray[np.float64]
    keys: NDArray[np.uint64]

    def of(self, rows: NDArray[np.int64]) -> "Scan":
        """The squared lengths and keys of the rows (n,) at these positions."""
        return Scan(self.squares[rows], self.keys[rows])


def scan(vectors: Any) -> Scan:
    """Read `vectors` (N, D), an array of floats or what is indexed like one, once, for two numbers
    of each row: its squared length, and a key (64 bits) that equal rows share.

    Fast keys are Σ_d word_d · factor_d modulo 2^64, over words of at most 32 bits (the halves of a
    float64) and fixed random odd factors. They lose what lies in the top bits of all words: of rows
    of ±1 about 2^33 are told apart. So rows that share a fast key and are not equal get a
    cryptographic hash of their bytes instead.
    """
    squares = np.empty(len(vectors))
    keys = np.empty(len(vectors), np.uint64)
    for start in range(0, len(vectors), ROWS_AT_ONCE):
        rows = np.ascontiguousarray(vectors[start : start + ROWS_AT_ONCE])
        at = slice(start, start + ROWS_AT_ONCE)
        floats = rows.astype(np.float64)
        keys[at] = _fast_keys(rows)
        # NaN and infinity are told by the squares, without a warning
        with np.errstate(over="ignore", invalid="ignore"):
            squares[at] = np.einsum("nd,nd->n", floats, floats)

    # in the order of the keys, the places of rows whose next row has the same key; (n,)
    by_key = np.argsort(keys, kind="stable")
    shared = np.flatnonzero(keys[by_key][1:] == keys[by_key][:-1])
    is_copy = equal_rows(vectors, by_key[shared], by_key[shared + 1])
    collisions = by_key[shared[~is_copy]]
    # where different rows share a key, all rows with it get a hash, so that equal ones still agree
    for key in np.unique(keys[collisions]).tolist():
        for row in np.flatnonzero(keys == np.uint64(key)).tolist():
            # + 0: −0.0 becomes 0.0, which equals it
            content = (np.asarray(vectors[row : row + 1]) + vectors.dtype.type(0)).tobytes()
            keys[row] = int.from_bytes(hashlib.blake2b(content, digest_size=8).digest(), "little")
    return Scan(squares, keys)


def _fast_keys(rows: NDArray[np.floating]) -> NDArray[np.uint64]:
    """The fast keys (n,) of rows (n, D): Σ_d word_d · factor_d modulo 2^64, which uint64 products
    wrap by themselves. Equal rows have equal keys, and so −0.0 counts as 0.0.

    Words are the bits of a number as an integer. A product is cut at 2^64, so the upper bits of a
    word reach only the upper bits of the key: the sign of a number changes 33 bits of it where the
    word has 32 bits, but one alone where the word has 64. Hence a float64 is two words. Odd factors
    lose no bit of a word.
    """
    if rows.dtype == np.float64:
        words: Any = (rows + 0.0).view(np.uint32)  # −0.0 + 0.0 is 0.0
    else:
        words = rows.view(f"u{rows.dtype.itemsize}")  # float32 or float16: one word a number
        sign = words.dtype.type(1 << (8 * words.itemsize - 1))  # alone, it is −0.0
        words = np.where(words == sign, words.dtype.type(0), words)
    # one factor for each word of a row, the same ones at every call: of 63 random bits, and a last
    # bit of 1
    factors: Any = np.random.default_rng(SEED).integers(2**63, size=words.shape[1], dtype=np.uint64)
    odd_factors = factors * np.uint64(2) + np.uint64(1)
    keys: NDArray[np.uint64] = words.astype(np.uint64) @ odd_factors
    return keys


def equal_rows(
    vectors: Any, first: NDArray[np.int64], second: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """Whether the rows of `vectors` (N, D) at the positions `first` and `second`, both (n,), are
    equal, pair by pair; (n,). Some pairs at a time, so that few rows are gathered at once."""
    parts = [slice(start, start + ROWS_AT_ONCE) for start in range(0, len(first), ROWS_AT_ONCE)]
    same = [np.equal(vectors[first[part]], vectors[second[part]]).all(axis=1) for part in parts]
    return np.concatenate([*same, np.zeros(0, bool)])  # concatenate refuses an empty list
