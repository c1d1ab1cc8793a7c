"""Reads vectors as the rows whose inner products rank: scaled, or one dimension longer, as the
similarity needs them.

Rows are converted when they are read, so a memory-mapped or float16 file is never converted as a
whole.
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
    """`vectors[rows]`, some rows (n,) of an array (N, D), which are copied only when they are read.
    Callers may index it like an array of `dtype` and `shape` (n, D).

    `movable`: whether the rows may be moved within the array, since nobody else uses it.
    """

    def __init__(
        self,
        vectors: NDArray[Any],
        rows: NDArray[np.int64],
        *,
        movable: bool = False,
        whole: Scan | None = None,
    ) -> None:
        """Select rows of an array.

        Args:
            vectors: (N, D), the array.
            rows: (n,), the positions of the selected rows.
            movable: whether the caller allows that rows are moved within the array, which saves a
                copy when they are needed in another order.
            whole: the scan of all N rows (the keys of their content and their squared lengths), if
                it has been made.
        """
        self.vectors = vectors
        self.rows = rows
        if whole is not None:
            # set here, the cached property `scan` is not computed, so that no row is read again
            self.scan = whole.of(rows)
        self.dtype = vectors.dtype
        self.shape = (len(rows), vectors.shape[1])
        # Rows are not moved in a mapped file, where each written page would take memory, nor in a
        # view, whose array belongs to others, nor if a row is selected twice and has two places.
        in_memory = vectors.flags.owndata and vectors.flags.writeable and vectors.flags.c_contiguous
        self.movable = movable and in_memory and len(np.unique(rows)) == len(rows)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: slice | NDArray[np.int64]) -> NDArray[Any]:
        """A copy of the vectors at these positions among the selected rows."""
        selected: NDArray[Any] = self.vectors[self.rows[index]]
        return selected

    def of(self, positions: NDArray[np.int64]) -> SelectedRows:
        """Select some of the selected rows; no vectors are copied."""
        some = SelectedRows(self.vectors, self.rows[positions])
        some.scan = self.scan.of(positions)  # so that the vectors are not read again
        return some

    @cached_property
    def scan(self) -> Scan:
        """The squared lengths and content keys (n,) of the selected rows, read at the first use."""
        return scan(self)

    def move(self, order: NDArray[np.int64]) -> NDArray[Any]:
        """Move the selected rows to the front of the array, in place, and sort them by `order`
        (n,), positions among the selected rows. Return the front (n, D) of the array.

        Positions among the selected rows keep their meaning, since `rows` is changed, too.
        """
        selected = self.rows[order]
        # the other rows of the array follow behind the selected ones
        others = np.ones(len(self.vectors), bool)
        others[selected] = False
        # (N,): the row that is moved to each place
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
    """Permute the N rows of `vectors` in place: row n becomes the former row `sources[n]`.

    The rows of each cycle of the permutation are moved one after another, so that only one row has
    to be copied. Permuting some columns at a time with numpy would take half a second for 60,000
    vectors.
    """
    moved = np.zeros(len(sources), np.bool_)
    for start in range(len(sources)):
        if not moved[start]:
            # each place of the cycle gets the row of the next place, and the last place the first
            # row
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
    """The array in which the vectors at these positions (n,) are stored, and their rows (n,) in
    that array. If `vectors` is a selection, or a selection of a selection, this is the array from
    which the rows were selected."""
    if isinstance(vectors, SelectedRows):
        return where(vectors.vectors, vectors.rows[positions])
    return np.asarray(vectors), positions


def _holds_arrays(array: NDArray[Any]) -> bool:
    """Whether the elements are arrays or lists, as in a pandas column of vectors."""
    return array.ndim == 1 and len(array) > 0 and isinstance(array.flat[0], np.ndarray | list)


def as_vectors(vectors: ArrayLike, what: str = "vectors") -> NDArray[np.floating]:
    """Check an array or a torch tensor, and return it as finite floats (N, D) in the processor's
    byte order.

    Floats of up to 64 bits keep their type. Integers become floats that hold them exactly, up to
    2⁵³. `what`: the name of the vectors in an error. Raises SubmissionError for other content.
    """
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
    # float32 holds integers of one or two bytes exactly; longer integers, and floats of more than
    # 64 bits, become float64
    if given.dtype.kind != "f" or given.dtype.itemsize > 8:
        kind = np.dtype(np.float32 if given.dtype.itemsize <= 2 else np.float64)
    array = given.astype(kind, copy=False)
    # some rows at a time, so that `isfinite` does not hold a flag for every number at once
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


FAR = 10.0  # vectors are far from 0 if their middle is at this many times their spread
TILE = 512  # rows read and scaled at once: they stay in the second-level cache


@dataclass(frozen=True)
class Rows:
    """Rows as they are multiplied, computed from `vectors` (N, D) when they are read.

    `shift` (D,) is subtracted from each vector, which is then multiplied by its `scale` (N,).
    `last` (N,) is appended as one more dimension, which is not scaled. Each may be None for none.
    """

    vectors: NDArray[np.floating]
    scale: NDArray[np.floating] | None = None
    last: NDArray[np.floating] | None = None
    shift: NDArray[np.floating] | None = None

    def __len__(self) -> int:
        return len(self.vectors)

    @property
    def width(self) -> int:
        """The number of dimensions of a row, with the additional one if there is one."""
        return int(self.vectors.shape[1]) + (self.last is not None)

    @property
    def dtype(self) -> np.dtype[np.floating]:
        """The type of a row: float64 if the vectors are float64, else float32."""
        return float_type(self.vectors)

    def read(
        self, positions: NDArray[np.int64], out: NDArray[np.floating] | None = None
    ) -> NDArray[np.floating]:
        """Compute the rows at these positions (n,), in `out` (n, width) if it is given: the vectors
        minus `shift` (D,), times their `scale` (N,), with `last` (N,) as one more dimension. A step
        whose attribute is None is left out. `width` is D, or D + 1 with one more dimension."""
        if out is None:
            out = np.empty((len(positions), self.width), self.dtype)
        dimensions = self.vectors.shape[1]
        if self.last is not None:
            out[:, dimensions] = self.last[positions]
        # the array in which the vectors are stored, and their rows in it
        source, rows = where(self.vectors, positions)
        # for float16 a compiled conversion, which takes a tenth of the time of numpy's, unless the
        # rows have so few numbers in all that loading numba would take longer
        if (
            self.shift is None
            and source.dtype == np.float16
            and compiling_pays(len(self) * self.width)
        ):
            scale = np.ones(len(rows), out.dtype) if self.scale is None else self.scale[positions]
            read_halves(source.view(np.uint16), rows, scale, out)  # writes the first D dimensions
            return out
        for start in range(0, len(positions), TILE):
            at = slice(start, start + TILE)
            tile = out[start : start + TILE, :dimensions]
            if tile.dtype == source.dtype and tile.flags.c_contiguous:
                # quicker than an assignment. With mode "clip" numpy needs no second copy of the
                # rows; nothing is clipped, as all positions are within the array.
                np.take(source, rows[at], axis=0, out=tile, mode="clip")
            else:
                tile[:] = source[rows[at]]
            if self.shift is not None:
                tile -= self.shift
            if self.scale is not None:
                tile *= self.scale[positions[at], None]
        return out

    def squared_norms(self, positions: NDArray[np.int64] | None = None) -> NDArray[np.float64]:
        """|v|² of the rows at these positions (n,), None for all rows; float64 (n,)."""
        wanted = np.arange(len(self)) if positions is None else positions
        result = np.empty(len(wanted))
        for start in range(0, len(wanted), TILE):
            # in float64, so that the sum of squares loses no digit of the float32 numbers
            block = self.read(wanted[start : start + TILE]).astype(np.float64)
            result[start : start + TILE] = np.einsum("nd,nd->n", block, block)
        return result

    def reordered_in_place(self, order: NDArray[np.int64]) -> Rows:
        """Scale the vectors and sort them by `order` (n,), positions of rows, in place, so that
        neighbouring rows can be read without a copy. Return the same rows, which need no scale
        then. Row i stays row i: only its place in memory is another, which `vectors` knows.

        Returns `self` unchanged if that is not possible: if the vectors may not be moved or are
        stored in another type, or if rows have a shift (`shift`) or one more dimension (`last`),
        since both are applied to each row when it is read.
        """
        vectors = self.vectors
        if not (
            isinstance(vectors, SelectedRows) and vectors.movable and vectors.dtype == self.dtype
        ):
            return self
        if self.last is not None or self.shift is not None:
            return self
        moved = vectors.move(order)  # (n, D), in the new order
        if self.scale is not None:
            # tile by tile, so that no second array of the size of the vectors is made
            for start in range(0, len(order), TILE):
                at = slice(start, start + TILE)
                moved[at] *= self.scale[order[at], None]
        return Rows(vectors)

    def run(self, positions: NDArray[np.int64]) -> NDArray[np.floating] | None:
        """A view of the rows at these positions (n,), if they are stored one after another and need
        no computation; else None, and `read` must copy or compute them."""
        # the array in which the vectors are stored, and their rows (n,) in it
        source, rows = where(self.vectors, positions)
        # nothing is to be subtracted, multiplied, appended or converted
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
    """Write those rows of `halves` (N, D) whose numbers are `rows` (n,), each times its `scale`
    (n,), to the first D dimensions of `out`. `halves` has the bits of finite float16 numbers. The
    conversion is exact; numpy converts numbers one by one, which takes ten times as long.

    If 127 − 15 is added to the exponent of |h|, its bits are those of the float32. Subnormal
    numbers h = m·2^−24 are the exception: they become (1 + m·2^−10)·2^−15 and have to be corrected.
    """
    bits = np.empty(halves.shape[1], np.uint32)
    floats = bits.view(np.float32)  # the same memory: bits are written, and read as floats
    smallest = np.float32(2.0**-14)  # the smallest float16 that is not subnormal
    # the correction: ((1 + m·2^−10)·2^−15 − 2^−15)·2 = m·2^−24
    implied = np.float32(2.0**-15)
    two = np.float32(2)

    for n in range(len(rows)):
        half = halves[rows[n]]
        for dimension in range(len(half)):
            # the bits without the sign. A shift by 13 makes 23 bits of fraction out of 10. 112 is
            # 127 − 15, the difference of the exponents' biases.
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
    """The squared lengths and content keys (N,) of vectors (N, D). Selected rows keep their scan,
    while an array is read anew at each call."""
    return vectors.scan if isinstance(vectors, SelectedRows) else scan(vectors)


def squared_norms(vectors: NDArray[np.floating]) -> NDArray[np.float64]:
    """|v|² of every row of `vectors` (N, D), in float64 (N,)."""
    return scan_of(vectors).squares


def float_type(vectors: NDArray[np.floating]) -> np.dtype[np.floating]:
    """The type in which these vectors are multiplied: float64 for float64, else float32, also for
    float16, since products of float16 are slow and inexact."""
    return np.dtype(np.float64 if vectors.dtype == np.float64 else np.float32)


def far_centre(vectors: NDArray[np.floating]) -> NDArray[np.floating] | None:
    """The centre (D,) of vectors (N, D) that are so far from 0 that float32 products would lose
    their differences: if its distance from 0 is more than `FAR` times their spread. Else None.

    The centre is the middle between the smallest and the largest value of each dimension. Unlike a
    mean, it has the same bits in any order of the rows.
    """
    low = np.full(vectors.shape[1], np.inf)
    high = np.full(vectors.shape[1], -np.inf)
    for start in range(0, len(vectors), ROWS_AT_ONCE):
        part = vectors[start : start + ROWS_AT_ONCE]
        low = np.minimum(low, part.min(axis=0))
        high = np.maximum(high, part.max(axis=0))
    middle = (low + high) / 2
    spread = (high - low) / 2
    is_far = middle @ middle > FAR**2 * (spread @ spread)  # squared lengths of both vectors
    return middle.astype(float_type(vectors)) if is_far else None
