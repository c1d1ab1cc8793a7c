"""Copies: items whose image files have the same bytes, which a protocol may leave out of each other's lists."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray


def same_content(root: Path, items: Sequence[str]) -> NDArray[np.int64] | None:
    """One number per group of items with the same bytes, -1 for an item without a copy or without a file; None
    without copies.

    Only files of equal size are read.
    """
    by_size: dict[int, list[int]] = defaultdict(list)
    for place, item in enumerate(items):
        file = root / item
        if file.is_file():
            by_size[file.stat().st_size].append(place)
    by_content: dict[str, list[int]] = defaultdict(list)
    for places in by_size.values():
        for place in places if len(places) > 1 else []:
            by_content[hashlib.sha256((root / items[place]).read_bytes()).hexdigest()].append(place)
    groups = np.full(len(items), -1, dtype=np.int64)
    for group in by_content.values():
        groups[group] = group[0] if len(group) > 1 else -1
    return groups if (groups >= 0).any() else None
