"""The canonical order of labels: by path, in which the items that share a label with a query are one contiguous range.

>>> canonical_order(np.array([[1, 2], [0, 1], [0, 0]]), np.zeros(3, np.uint64))
array([2, 1, 0])
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hbench.tree import Labels


def canonical_order(labels: Labels, keys: NDArray[np.uint64]) -> NDArray[np.int64]:
    """The positions of the items (N,) ordered by their label at each level, coarse to fine, then by content key."""
    return np.lexsort((keys, *labels.T[::-1]))


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
