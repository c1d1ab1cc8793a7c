"""Colours that stay apart for colour-blind readers: Paul Tol's bright scheme, an orange, a brown, and grey."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

PALETTE = ("#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377", "#ee8866", "#994f00")
SMALL_BRANCH = 0.015  # of the whole; smaller branches share the grey
GREY = "#bbbbbb"
INK = "#222222"


def branch_colours(sizes: NDArray[np.int64]) -> list[str]:
    """A colour per branch: its own for each of the largest, and grey, where these make up most of the tree; else the
    palette in turns."""
    largest = np.sort(np.argsort(-sizes, kind="stable")[: len(PALETTE)])
    if sizes[largest].sum() < 0.8 * sizes.sum():
        turns = [PALETTE[i % len(PALETTE)] for i in range(len(sizes))]
        if len(sizes) % len(PALETTE) == 1:  # the last one lies beside the first
            turns[-1] = PALETTE[len(PALETTE) // 2]
        return turns
    own = dict(zip(largest[sizes[largest] >= SMALL_BRANCH * sizes.sum()].tolist(), PALETTE, strict=False))
    return [own.get(i, GREY) for i in range(len(sizes))]


def mixed(colour: str, white: float) -> str:
    """A colour with a share of white.

    >>> mixed("#4477aa", 0.5)
    '#a2bbd4'
    """
    parts = [int(colour[i : i + 2], 16) for i in (1, 3, 5)]
    return "#" + "".join(f"{round(part + (255 - part) * white):02x}" for part in parts)


def ink_on(fill: str) -> str:
    """White for a dark ground, "" (the usual ink) for any other; by its relative luminance."""
    red, green, blue = (int(fill[i : i + 2], 16) / 255 for i in (1, 3, 5))
    return "#ffffff" if 0.2126 * red**2.2 + 0.7152 * green**2.2 + 0.0722 * blue**2.2 < 0.22 else ""
