"""Checks the arrays of scores and levels that a user gives, and makes level sequences of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hbench.core.arguments import as_array
from hbench.core.errors import UsageError
from hbench.metrics.level_sequence import LevelSequence, level_sequence
from hbench.metrics.level_sequence import ties as ties_policies


def sequences_of(
    scores: NDArray[np.floating], levels: NDArray[np.integer], depth: int, ties: str
) -> Iterator[LevelSequence]:
    """Yield the level sequence of each query.

    `scores`, `levels` (Q, G): of the items; a score of −inf leaves an item out. `depth`: the number
    of levels. `ties`: "pessimistic" or "optimistic", the order of equal scores.
    """
    tie_key = ties_policies[ties](depth)  # (depth + 1,): lower comes first among equal scores
    for row, of_items in zip(scores, levels.astype(np.uint8), strict=True):
        listed = row > -np.inf  # (G,): the items in the query's list
        counts = np.bincount(of_items[listed], minlength=depth + 1).astype(np.int64)
        yield level_sequence(row[listed], of_items[listed], counts, tie_key)


def as_scores_and_levels(
    scores: ArrayLike, levels: ArrayLike
) -> tuple[NDArray[np.floating], NDArray[np.int64]]:
    """Convert scores and levels that a user gave to floats (Q, G) and integers (Q, G). One query,
    (G,), becomes (1, G). Raises UsageError for invalid arrays, or different shapes."""
    rows, of_items = np.atleast_2d(as_array(scores, "scores"), as_array(levels, "levels"))
    if rows.shape != of_items.shape or rows.ndim != 2:
        raise UsageError(
            "scores and levels do not fit together",
            expected="two arrays of one shape (queries, items)",
            found=f"{rows.shape} and {of_items.shape}",
        )

    # float32 is not converted: float64 would have the same order and take twice the memory
    real = rows if rows.dtype == np.float32 else real_scores(rows)
    if np.isnan(real).any():
        raise UsageError(
            "some scores are NaN", expected="numbers, or −inf for an item that is left out"
        )
    if of_items.dtype.kind not in "iufb":  # integers, floats and booleans
        raise UsageError(
            "the levels are not numbers",
            expected="0 for unrelated items, up to L for the finest class",
            found=str(of_items.dtype),
            fix="hbench.levels_of_pairs makes them from labels",
        )
    if (
        (of_items != of_items.astype(np.int64)).any()
        or of_items.min(initial=0) < 0
        or of_items.max(initial=0) > 255  # levels are stored as uint8
    ):
        raise UsageError(
            "some levels are not whole numbers from 0 to 255",
            expected="0 for unrelated items, up to L for the finest class",
            found=f"{of_items.dtype} from {of_items.min()} to {of_items.max()}",
        )

    return real, of_items.astype(np.int64)


def real_scores(scores: NDArray[Any]) -> NDArray[np.float64]:
    """Convert scores of any shape to float64. Raises UsageError if float64 cannot tell them apart,
    and for complex numbers.
    """
    if scores.dtype.kind not in "fiub":  # floats, integers, booleans
        raise UsageError(
            "the scores are not real numbers",
            expected="floats or integers",
            found=str(scores.dtype),
        )

    # float64 is exact for whole numbers up to 2^53 only: different larger ones may become equal
    rounded = scores.astype(np.float64)
    is_finer = scores.dtype.kind == "f" and scores.dtype.itemsize > 8  # such as float128
    if is_finer or (
        scores.dtype.kind in "iu"
        and scores.dtype.itemsize == 8
        and (np.abs(rounded) >= 2.0**53).any()
    ):
        raise UsageError(
            "float64 cannot tell these scores apart",
            expected="float64, or whole numbers below 2^53",
            found=str(scores.dtype),
            fix="give their ranks as scores: a higher number for a better item",
        )

    return rounded
