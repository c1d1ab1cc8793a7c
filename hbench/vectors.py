"""Selected rows of a vector file, read when asked for: an array (N, D) as far as ranking needs one, and never a copy of
the file. Where nobody else looks at the array, its rows may be moved instead, into the order they are wanted in."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hbench.compiled import SMALL, compiled
from hbench.errors import SubmissionError, examples

ROWS_AT_ONCE = 16384


class Selected:
    """`vectors[rows]`, gathered block by block; `movable`: whether the rows may be moved, since nobody else looks at them."""

    def __init__(self, vectors: NDArray[Any], rows: NDArray[np.int64], *, movable: bool = False) -> None:
        self.vectors, self.rows = vectors, rows
        self.dtype, self.shape = vectors.dtype, (len(rows), vectors.shape[1])
        self.movable = movable and _may_be_moved(vectors) and len(np.unique(rows)) == len(rows)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: slice | NDArray[np.int64]) -> NDArray[Any]:
        selected: NDArray[Any] = self.vectors[self.rows[index]]
        return selected

    def move(self, order: NDArray[np.int64]) -> NDArray[Any]:
        """Move the selected rows to the front of the array, in this order of their positions (n,), and give them. A position
        still stands for the same row."""
        sources = self.rows[order]
        others = np.ones(len(self.vectors), bool)
        others[sources] = False
        sources = np.concatenate([sources, np.flatnonzero(others)])
        if self.vectors.size <= SMALL:
            self.vectors[:] = self.vectors[sources]
        else:
            move_rows(self.vectors, sources)
        self.rows = np.empty_like(self.rows)
        self.rows[order] = np.arange(len(order))
        moved: NDArray[Any] = self.vectors[: len(order)]
        return moved


def _may_be_moved(vectors: NDArray[Any]) -> bool:
    """Whether this is all of an array in memory; of a mapped file every page that is written to would become memory."""
    return vectors.flags.owndata and vectors.flags.writeable and vectors.flags.c_contiguous


@compiled
def move_rows(vectors: NDArray[np.floating], sources: NDArray[np.int64]) -> None:
    """Put row `sources[n]` in place of row n, for all rows (N,) at once: round by round of those that change places."""
    moved = np.zeros(len(sources), np.bool_)
    for start in range(len(sources)):
        if not moved[start]:
            first, row = vectors[start].copy(), start
            while sources[row] != start:
                vectors[row] = vectors[sources[row]]
                moved[row] = True
                row = sources[row]
            vectors[row] = first
            moved[row] = True


def where(vectors: NDArray[Any] | Selected, positions: NDArray[np.int64]) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """The array that holds the vectors at these positions, and its rows that they are."""
    if isinstance(vectors, Selected):
        return where(vectors.vectors, vectors.rows[positions])
    return np.asarray(vectors), positions


def as_vectors(vectors: ArrayLike, what: str = "vectors") -> NDArray[np.floating]:
    """Finite floats (N, D) from an array or a torch tensor; integers become float32. Raises SubmissionError
    otherwise."""
    if hasattr(vectors, "detach"):
        tensor: Any = vectors.detach().cpu()
        vectors = tensor.float().numpy() if str(tensor.dtype) == "torch.bfloat16" else tensor.numpy()
    array = np.asarray(vectors)
    if array.ndim != 2 or not array.size or array.dtype.kind not in "fiu":
        raise SubmissionError(
            f"the {what} cannot be ranked",
            expected="numbers of shape (items, dimensions)",
            found=f"{array.dtype} of shape {array.shape}",
        )
    if array.dtype.kind != "f" or array.dtype.itemsize > 8:
        array = array.astype(np.float32 if array.dtype.kind != "f" else np.float64)
    bad = np.concatenate([start + rows for start, rows in _not_finite(array)] or [np.zeros(0, int)])
    if len(bad):
        raise SubmissionError(
            f"{len(bad)} of the {what} hold NaN or Inf",
            expected="finite numbers",
            found=f"rows {examples(bad)}",
            fix="look at the model's output there: overflow under float16 is the usual cause",
        )
    return array


def _not_finite(array: NDArray[np.floating]) -> Iterator[tuple[int, NDArray[np.int64]]]:
    for start in range(0, len(array), ROWS_AT_ONCE):
        bad = np.flatnonzero(~np.isfinite(array[start : start + ROWS_AT_ONCE]).all(axis=1))
        if len(bad):
            yield start, bad
