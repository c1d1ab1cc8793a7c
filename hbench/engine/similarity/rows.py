"""Reads vectors as the float32 rows whose inner products rank: scaled, and one dimension longer,
where they are wanted.

A memory-mapped or float16 file is never converted as a whole.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hbench.core.arguments import as_array
from hbench.core.compiled import compiled, compiling_pays
from hbench.core.errors import SubmissionError, examples
from hbench.engine.scan import Scan, scan

ROWS_AT_ONCE = 16384


class SelectedRows:
    """`vectors[rows]`, rows (n,) of an array (N, D), gathered when they are read: an array of
    `dtype` and `shape` (n, D) to the caller. `movable`: whether the rows may be moved within the
    array, since nobody else looks at them. `scan`: of the selected rows."""

    def __init__(
        self,
        vectors: NDArray[Any],
        rows: NDArray[np.int64],
        *,
        movable: bool = False,
        whole: Scan | None = None,
    ) -> None:
        """`vectors` (N, D), of which `rows` (n,) are selected, by position. `movable`: whether the
        caller lets them be moved within the array; `whole`: the scan of all N, where it is known.
        """
        self.vectors = vectors
        self.rows = rows
        if whole is not None:
            self.scan = whole.of(rows)  # in place of the cached property, which would read again
        self.dtype = vectors.dtype
        self.shape = (len(rows), vectors.shape[1])
        # of a mapped file every page that is written to would become memory; of a view the array
        # belongs to another one, which must not change; a row that is selected twice has two places
        in_memory = vectors.flags.owndata and vectors.flags.writeable and vectors.flags.c_contiguous
        self.movable = movable and in_memory and len(np.unique(rows)) == len(rows)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: slice | NDArray[np.int64]) -> NDArray[Any]:
        """A copy of the vectors at these positions among the selected rows."""
        selected: NDArray[Any] = self.vectors[self.rows[index]]
        return selected

    def of(self, positions: NDArray[np.int64]) -> SelectedRows:
        """Some of the selected rows; nothing is copied."""
        some = SelectedRows(self.vectors, self.rows[positions])
        some.scan = self.scan.of(positions)  # so the vectors are not read again
        return some

    @cached_property
    def scan(self) -> Scan:
        """The squared lengths and content keys (n,) of the selected rows, read at the first use."""
        return scan(self)

    def move(self, order: NDArray[np.int64]) -> NDArray[Any]:
        """Move the selected rows to the front of the array, in place, in this `order` (n,) of their
        positions, and return that front (n, D). A position still stands for the same row: `rows`
        says where it lies now."""
        selected = self.rows[order]
        # rows that nobody selected follow, so that all rows of the array have a place
        others = np.ones(len(self.vectors), bool)
        others[selected] = False
        # (N,): which row comes to stand at each place
        sources = np.concatenate([selected, np.flatnonzero(others)])
        if compiling_pays(self.vectors.size):
            move_rows(self.vectors, sources)
        else:
            self.vectors[:] = self.vectors[sources]
        self.rows = np.empty_like(self.rows)
        self.rows[order] = np.arange(len(order))
        moved: NDArray[Any] = self.vectors[: len(order)]
        return moved


@compiled
def move_rows(vectors: NDArray[np.floating], sources: NDArray[np.int64]) -> None:
    """Put row `sources[n]` in place of row n, for all N rows at once, in place: one after another,
    each cycle of rows that take one another's places.

    Only one row is held twice; numpy, some columns at a time, would take half a second for 60,000
    vectors.
    """
    moved = np.zeros(len(sources), np.bool_)
    for start in range(len(sources)):
        if not moved[start]:
            # a cycle: each place gets the row of the next place, the last one the row of the first
            first = vectors[start].copy()
            row = start
            while sources[row] != start:
                vectors[row] = vectors[sources[row]]
                moved[row] = True
                row = sources[row]
            vectors[row] = first
            moved[row] = True


def where(
    vectors: NDArray[Any] | SelectedRows, positions: NDArray[np.int64]
) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """The array that holds the vectors at these positions (n,), and the rows (n,) of that array
    that they are: a selection, or one of a selection, is followed to what it selects from."""
    if isinstance(vectors, SelectedRows):
        return where(vectors.vectors, vectors.rows[positions])
    return np.asarray(vectors), positions


def _holds_arrays(array: NDArray[Any]) -> bool:
    """Whether each element is an array or list, as in a column of vectors of pandas."""
    return array.ndim == 1 and len(array) > 0 and isinstance(array.flat[0], np.ndarray | list)


def as_vectors(vectors: ArrayLike, what: str = "vectors") -> NDArray[np.floating]:
    """Finite floats (N, D), in the processor's byte order, from an array or a torch tensor; floats
    up to 64 bits keep their type, integers become one that holds them exactly, up to 2⁵³. `what`
    names them in an error. Raises SubmissionError for anything else."""
    if isinstance(vectors, np.ma.MaskedArray) and np.ma.is_masked(vectors):
        masked = f"{int(np.ma.getmaskarray(vectors).sum()):,} masked"
        raise SubmissionError(
            f"the {what} hold masked numbers", expected="a number in every place", found=masked
        )

    given = np.asarray(as_array(vectors, what))
    if given.ndim != 2 or not given.size or given.dtype.kind not in "fiu":
        raise SubmissionError(
            f"the {what} cannot be ranked",
            expected="numbers of shape (items, dimensions)",
            found=f"{given.dtype} of shape {given.shape}",
            fix=f"stack the rows of arrays: np.stack({what})" if _holds_arrays(given) else None,
        )

    kind = given.dtype.newbyteorder("=")
    # float32 holds integers of one or two bytes exactly; longer ones and float128 become float64
    if given.dtype.kind != "f" or given.dtype.itemsize > 8:
        kind = np.dtype(np.float32 if given.dtype.itemsize <= 2 else np.float64)
    array = given.astype(kind, copy=False)
    # some rows at a time, so that the flags of all numbers take no memory at once
    parts = [array[start : start + ROWS_AT_ONCE] for start in range(0, len(array), ROWS_AT_ONCE)]
    bad = np.flatnonzero(~np.concatenate([np.isfinite(part).all(axis=1) for part in parts]))
    if len(bad):
        raise SubmissionError(
            f"{len(bad)} of the {what} hold NaN or Inf",
            expected="finite numbers",
            found=f"rows {examples(bad)}",
            fix="look at the model's output for these rows: overflow under float16 is the usual "
            "cause",
        )

    return array


FAR = 10.0
TILE = 512  # rows read and scaled at once: they stay in the second cache


@dataclass(frozen=True)
class Rows:
    """Rows as they are multiplied: `vectors` (N, D) less a `shift` (D,), each row times its `scale`
    (N,), and `last` (N,) as one more dimension behind, not scaled; None: none of it.
    """

    vectors: NDArray[np.floating]
    scale: NDArray[np.floating] | None = None
    last: NDArray[np.floating] | None = None
    shift: NDArray[np.floating] | None = None

    def __len__(self) -> int:
        return len(self.vectors)

    @property
    def width(self) -> int:
        """The dimensions of a row as it is multiplied, with the additional one."""
        return int(self.vectors.shape[1]) + (self.last is not None)

    @property
    def dtype(self) -> np.dtype[np.floating]:
        """float32, or float64 where the vectors are (the audit mode passes them so)."""
        return float_type(self.vectors)

    def read(
        self, positions: NDArray[np.int64], out: NDArray[np.floating] | None = None
    ) -> NDArray[np.floating]:
        """The rows at these positions (n,), in `out` (n, width) if given; float32 or float64,
        `width` is D, or D + 1 where there is one more dimension."""
        if out is None:
            out = np.empty((len(positions), self.width), self.dtype)
        dimensions = self.vectors.shape[1]
        if self.last is not None:  # one more dimension, behind those of the vectors
            out[:, dimensions] = self.last[positions]
        # the array that holds them, and their rows in it
        source, rows = where(self.vectors, positions)
        # float16: a compiled conversion, which takes a tenth of the time of numpy's
        if (
            self.shift is None
            and source.dtype == np.float16
            and compiling_pays(len(self) * self.width)
        ):
            scale = np.ones(len(rows), out.dtype) if self.scale is None else self.scale[positions]
            read_halves(source.view(np.uint16), rows, scale, out)
            return out
        for start in range(0, len(positions), TILE):
            at = slice(start, start + TILE)
            tile = out[start : start + TILE, :dimensions]
            if tile.dtype == source.dtype and tile.flags.c_contiguous:
                # quicker than an assignment; other modes hold the rows twice. "clip" changes no
                # position: all are in the array
                np.take(source, rows[at], axis=0, out=tile, mode="clip")
            else:
                tile[:] = source[rows[at]]
            if self.shift is not None:
                tile -= self.shift
            if self.scale is not None:
                tile *= self.scale[positions[at], None]
        return out

    def squared_norms(self, positions: NDArray[np.int64] | None = None) -> NDArray[np.float64]:
        """|v|² of the rows at these positions (n,), by default of all, in float64 (n,), read TILE
        rows at a time."""
        wanted = np.arange(len(self)) if positions is None else positions
        result = np.empty(len(wanted))
        for start in range(0, len(wanted), TILE):
            # in float64, so that the sum of squares loses no digit of the float32 numbers
            block = self.read(wanted[start : start + TILE]).astype(np.float64)
            result[start : start + TILE] = np.einsum("nd,nd->n", block, block)
        return result

    def reordered_in_place(self, order: NDArray[np.int64]) -> Rows:
        """The same rows, scaled and moved into this order (n,) of their positions in place, so that
        a run of them is read without a copy; unchanged where that is not possible: nobody allowed
        to move them, they would change their type, or have a shift or one more dimension.
        """
        vectors = self.vectors
        if not (
            isinstance(vectors, SelectedRows) and vectors.movable and vectors.dtype == self.dtype
        ):
            return self
        if self.last is not None or self.shift is not None:
            return self
        moved = vectors.move(order)  # (n, D): in the new order; a position still means the same row
        for start in range(0, len(order) if self.scale is not None else 0, TILE):
            at = slice(start, start + TILE)
            moved[at] *= self.scale[order[at], None]
        return Rows(vectors)  # without a scale: it is in the numbers now

    def run(self, positions: NDArray[np.int64]) -> NDArray[np.floating] | None:
        """A view of the rows at these positions (n,), if they lie in memory one after another as
        they are multiplied; None where `read` must copy or compute them."""
        # the array that holds them, and their rows (n,) in it
        source, rows = where(self.vectors, positions)
        plain = (
            self.scale is None
            and self.last is None
            and self.shift is None
            and source.dtype == self.dtype
        )
        if not plain or not len(rows) or (np.diff(rows) != 1).any():
            return None
        return source[rows[0] : rows[0] + len(rows)]


@compiled
def read_halves(
    halves: NDArray[np.uint16],
    rows: NDArray[np.int64],
    scale: NDArray[np.float32],
    out: NDArray[np.float32],
) -> None:
    """Write some rows (n,) of finite float16 numbers, `halves` (N, D) given by their bits, each
    times its scale (n,), to the first D dimensions of `out`, exactly; numpy would convert them one
    by one, which takes ten times as long.

    With the exponent moved by 127 − 15, the bits of |h| are those of its float32, but for subnormal
    h = m·2^−24, whose bits then read (1 + m·2^−10)·2^−15.
    """
    bits = np.empty(halves.shape[1], np.uint32)
    floats = bits.view(np.float32)  # the same memory: bits that are written are read as floats
    smallest = np.float32(2.0**-14)  # of the float16 that are not subnormal
    # (1 + m·2^−10)·2^−15, less 2^−15, times 2, is m·2^−24
    implied = np.float32(2.0**-15)
    two = np.float32(2)

    for n in range(len(rows)):
        half = halves[rows[n]]
        for dimension in range(len(half)):
            # all but the sign; 10 bits of fraction become 23; 112 is 127 − 15
            bits[dimension] = (
                np.uint32(half[dimension] & np.uint16(0x7FFF)) << np.uint32(13)
            ) + np.uint32(112 << 23)
        factor = scale[n]
        negated = -scale[n]
        for dimension in range(len(half)):
            size = floats[dimension]
            size = size if size >= smallest else (size - implied) * two
            out[n, dimension] = size * (negated if half[dimension] & np.uint16(0x8000) else factor)


def scan_of(vectors: NDArray[np.floating] | SelectedRows) -> Scan:
    """The squared lengths and content keys (N,) of vectors (N, D); selected rows remember theirs,
    others are read anew at each call."""
    return vectors.scan if isinstance(vectors, SelectedRows) else scan(vectors)


def squared_norms(vectors: NDArray[np.floating]) -> NDArray[np.float64]:
    """|v|² of every row of `vectors` (N, D), in float64 (N,)."""
    return scan_of(vectors).squares


def float_type(vectors: NDArray[np.floating]) -> np.dtype[np.floating]:
    """The type in which these vectors are multiplied: float64 if they are, else float32, also for
    float16, since products of float16 are slow and inexact."""
    return np.dtype(np.float64 if vectors.dtype == np.float64 else np.float32)


def far_centre(vectors: NDArray[np.floating]) -> NDArray[np.floating] | None:
    """The middle (D,) between the smallest and the largest value of each dimension, where the
    vectors (N, D) lie `FAR` times their spread from 0, so that float32 products would lose their
    differences; else None. Unlike a mean, it has the same bits whatever the order of the rows."""
    low = np.full(vectors.shape[1], np.inf)
    high = np.full(vectors.shape[1], -np.inf)
    for start in range(0, len(vectors), ROWS_AT_ONCE):
        part = vectors[start : start + ROWS_AT_ONCE]
        low = np.minimum(low, part.min(axis=0))
        high = np.maximum(high, part.max(axis=0))
    middle = (low + high) / 2
    spread = (high - low) / 2
    is_far = middle @ middle > FAR**2 * (spread @ spread)  # lengths in space, both squared
    return middle.astype(float_type(vectors)) if is_far else None
