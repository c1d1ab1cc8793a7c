"""A similarity says how raw vectors become float32 rows whose inner product ranks the gallery of any one query.

It is a function `(queries (Q, D), gallery (G, D)) -> (query rows, gallery rows)`. Rows are read where they are wanted,
so that a memory-mapped or float16 file is never converted as a whole.

>>> query_rows, gallery_rows = l2(np.array([[0.0, 1.0]]), np.array([[0.0, 3.0]]))
>>> float((query_rows.read(np.array([0])) @ gallery_rows.read(np.array([0])).T)[0, 0])  # q·g − |g|²/2
-1.5
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hbench.compiled import compiled, pays
from hbench.registry import Registry
from hbench.vectors import Selected, where

TILE = 512  # rows read and scaled at once: they stay in the second cache


@dataclass(frozen=True)
class Rows:
    """`vectors` (N, D), each row times its `scale` (N,), and `last` (N,) as one more dimension, if given."""

    vectors: NDArray[np.floating]
    scale: NDArray[np.floating] | None = None
    last: NDArray[np.floating] | None = None

    def __len__(self) -> int:
        return len(self.vectors)

    @property
    def width(self) -> int:
        return int(self.vectors.shape[1]) + (self.last is not None)

    @property
    def dtype(self) -> np.dtype[np.floating]:
        """float32, or float64 where the vectors are (the audit mode passes them so)."""
        return float_type(self.vectors)

    def read(self, positions: NDArray[np.int64], out: NDArray[np.floating] | None = None) -> NDArray[np.floating]:
        """The rows at these positions (n,), in `out` (n, width) if given."""
        out = np.empty((len(positions), self.width), self.dtype) if out is None else out
        dimensions = self.vectors.shape[1]
        if self.last is not None:
            out[:, dimensions] = self.last[positions]
        source, rows = where(self.vectors, positions)
        if pays(len(self) * self.width) and source.dtype in {out.dtype, np.dtype(np.float16)}:
            scale = np.ones(len(rows), out.dtype) if self.scale is None else self.scale[positions]
            if source.dtype == np.float16:
                read_halves(source.view(np.uint16), rows, scale, out)
            else:
                read_rows(source, rows, scale, out)
            return out
        for start in range(0, len(positions), TILE):
            at, tile = positions[start : start + TILE], out[start : start + TILE]
            tile[:, :dimensions] = self.vectors[at]
            if self.scale is not None:
                tile[:, :dimensions] *= self.scale[at, None]
        return out

    def same_as(self, other: Rows) -> bool:
        """Whether the other rows are these."""
        return self.vectors is other.vectors and self.scale is other.scale and self.last is other.last

    def settled(self, order: NDArray[np.int64]) -> Rows:
        """The same rows, scaled and moved into this order where they lie, if they may be: a run of them is then no copy."""
        vectors = self.vectors
        if not (
            isinstance(vectors, Selected) and vectors.movable and self.last is None and vectors.dtype == self.dtype
        ):
            return self
        moved = vectors.move(order)
        for start in range(0, len(order) if self.scale is not None else 0, TILE):
            at = slice(start, start + TILE)
            moved[at] *= self.scale[order[at], None]
        return Rows(vectors)

    def run(self, positions: NDArray[np.int64]) -> NDArray[np.floating] | None:
        """The rows at these positions where they lie, if they lie there one after another."""
        source, rows = where(self.vectors, positions)
        plain = self.scale is None and self.last is None and source.dtype == self.dtype
        if not plain or not len(rows) or (np.diff(rows) != 1).any():
            return None
        return source[rows[0] : rows[0] + len(rows)]


@compiled
def read_rows(
    vectors: NDArray[np.floating], rows: NDArray[np.int64], scale: NDArray[np.floating], out: NDArray[np.floating]
) -> None:
    """Write the rows (n,) of `vectors`, each times its scale (n,), to the first dimensions of `out`."""
    for n in range(len(rows)):
        # taken out of the loop, which then becomes vector instructions
        row, own, to = vectors[rows[n]], scale[n], out[n]
        for dimension in range(len(row)):
            to[dimension] = row[dimension] * own


@compiled
def read_halves(
    halves: NDArray[np.uint16], rows: NDArray[np.int64], scale: NDArray[np.float32], out: NDArray[np.float32]
) -> None:
    """What `read_rows` does, from the bits of finite float16 numbers, exactly; numpy converts them one by one.

    With the exponent moved by 127 − 15, the bits of |h| are those of its float32, but for subnormal h = m·2^−24, whose
    bits then read (1 + m·2^−10)·2^−15.
    """
    bits = np.empty(halves.shape[1], np.uint32)
    floats = bits.view(np.float32)
    smallest, implied, two = np.float32(2.0**-14), np.float32(2.0**-15), np.float32(2)
    for n in range(len(rows)):
        half = halves[rows[n]]
        for dimension in range(len(half)):
            bits[dimension] = (np.uint32(half[dimension] & np.uint16(0x7FFF)) << np.uint32(13)) + np.uint32(112 << 23)
        own, negated = scale[n], -scale[n]
        for dimension in range(len(half)):
            size = floats[dimension]
            size = size if size >= smallest else (size - implied) * two
            out[n, dimension] = size * (negated if half[dimension] & np.uint16(0x8000) else own)


Similarity = Callable[[NDArray[np.floating], NDArray[np.floating]], tuple[Rows, Rows]]
similarities: Registry[Similarity] = Registry("similarity")


@similarities.register("dot")
def dot(queries: NDArray[np.floating], gallery: NDArray[np.floating]) -> tuple[Rows, Rows]:
    """s = q·g."""
    return Rows(queries), Rows(gallery)


@similarities.register("cosine")
def cosine(queries: NDArray[np.floating], gallery: NDArray[np.floating]) -> tuple[Rows, Rows]:
    """s = q·g / |g|, which ranks as the cosine does: |q| is the same for the whole gallery of a query.

    A gallery whose norms are all equal is left as it is, since dividing would only round. Queries that are the gallery
    are divided by their norms, too: then s(i, j) = s(j, i).
    """
    norms = np.sqrt(squared_norms(gallery))
    if norms.min(initial=np.inf) == norms.max(initial=0):
        return dot(queries, gallery)
    rows = Rows(gallery, scale=(1 / norms).astype(float_type(gallery)))
    return rows if queries is gallery else Rows(queries), rows


@similarities.register("l2")
def l2(queries: NDArray[np.floating], gallery: NDArray[np.floating]) -> tuple[Rows, Rows]:
    """s = q·g − |g|²/2, which ranks as −|q − g| does; the second term rides along as one more dimension."""
    halves = squared_norms(gallery) / 2
    ones = np.ones(len(queries), float_type(queries))
    return Rows(queries, last=ones), Rows(gallery, last=-halves.astype(float_type(gallery)))


def squared_norms(vectors: NDArray[np.floating]) -> NDArray[np.float64]:
    """|v|² of every row in float64, read block by block."""
    result, rows = np.empty(len(vectors)), Rows(vectors)
    for start in range(0, len(vectors), TILE):
        block = rows.read(np.arange(start, min(start + TILE, len(vectors)))).astype(np.float64)
        result[start : start + TILE] = np.einsum("nd,nd->n", block, block)
    return result


def float_type(vectors: NDArray[np.floating]) -> np.dtype[np.floating]:
    """The type in which these vectors are multiplied."""
    return np.dtype(np.float64 if vectors.dtype == np.float64 else np.float32)
