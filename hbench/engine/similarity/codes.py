"""Ranks binary codes by their Hamming distance, with the same matrix product as everything else."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hbench.core.errors import SubmissionError, examples
from hbench.engine.similarity.rows import TILE, Rows


def hamming(queries: NDArray[np.floating], gallery: NDArray[np.floating]) -> tuple[Rows, Rows]:
    """s = Σ_i (±1)(±1) = B − 2·(bits that differ), for packed codes of B = 8 D bits (N, D), as `numpy.packbits` makes them.

    Exact: the sums are integers below 2²⁴. The bits are held as float16. Raises SubmissionError where an entry is not a byte.
    Codes of ±1, one entry a bit, are ranked so by `dot` as they are.
    """
    rows = Rows(unpacked(queries, "queries"))
    return rows, rows if queries is gallery else Rows(unpacked(gallery, "gallery"))


def unpacked(packed: NDArray[np.floating], what: str) -> NDArray[np.float16]:
    """The bits (N, 8 D) of bytes (N, D) as +1 and −1."""
    bits = np.empty((len(packed), 8 * packed.shape[1]), np.float16)
    for start in range(0, len(packed), TILE):
        part = packed[start : start + TILE]
        codes = np.clip(part, 0, 255).astype(np.uint8)
        bad = np.flatnonzero((codes != part).any(axis=1))
        if len(bad):
            raise SubmissionError(
                f"the {what} are not packed binary codes",
                expected="integers of 0 to 255, eight bits each (numpy.packbits)",
                found=f"other numbers in rows {examples(start + bad)}",
                fix="pack them with numpy.packbits(bits, axis=1); for codes of ±1 use --similarity dot",
            )
        bits[start : start + TILE] = 2 * np.unpackbits(codes, axis=1).astype(np.int8) - 1
    return bits
