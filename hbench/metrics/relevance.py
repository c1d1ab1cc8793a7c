"""Relevances: functions that compute the relevance of an item of each level from the level counts
of one query's gallery.

A relevance is a function `counts (…, L+1) -> (…, L+1)`, where `counts[l]` is |Ω^(l)|, the number of
items at level l. Level 0 (distractors) always has relevance 0. The functions use array operators
only, so they accept numpy arrays and torch tensors.

>>> import numpy as np
>>> alpha()(np.array([7, 4, 2])).tolist()  # 7 distractors, 4 coarse, 2 fine: 0, (1/2)/4, (2/2)/2
[0.0, 0.125, 0.5]
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hbench.core.arguments import checked
from hbench.core.errors import UsageError
from hbench.core.registry import Registry
from hbench.tree import levels_of_pairs

Relevance = Callable[[Any], Any]
relevances: Registry[Callable[..., Relevance]] = Registry("relevance")


@relevances.register("alpha")
def alpha(exponent: float = 1.0) -> Relevance:
    """rel_l = (l/L)^α / |Ω^(l)|, 0 for l = 0 (HAPPIER, Eq. 4). Raises UsageError unless α is
    positive and finite.
    """
    if not 0 < exponent < math.inf:
        raise UsageError(
            "the exponent of the relevance must be positive",
            expected="alpha > 0",
            found=f"{exponent:g}",
        )

    def relevance(counts: Any) -> Any:
        """Compute the relevance (…, L+1) of an item of each level from the level counts (…, L+1),
        of numpy or torch."""
        depth = counts.shape[-1] - 1
        weights = [0.0] + [(level / depth) ** exponent for level in range(1, depth + 1)]
        # _like makes an array of the kind of `counts`, numpy's or torch's. clip avoids a division
        # by 0; the relevance of a level without items is never used
        return _like(counts, weights) / counts.clip(1)

    return relevance


@relevances.register("sum_wap")
def sum_wap(weights: Sequence[float] | None = None) -> Relevance:
    """rel_l = Σ_{p≤l} w_p / |∪_{q≥p} Ω^(q)|. With this relevance H-AP equals ΣwAP =
    Σ_l w_l·AP^(l) / Σ w_l over the levels that have positives (rank losses, appendix B-B3,
    Property 1).

    `weights`: w_1 … w_L, coarse to fine, non-negative, with sum 1; None: 1/L each. Raises
    UsageError for another number or sum of weights.
    """

    def relevance(counts: Any) -> Any:
        """Compute the relevance (…, L+1) of an item of each level from the level counts (…, L+1),
        of numpy or torch."""
        depth = counts.shape[-1] - 1
        # (L+1,), an array of the kind of `counts`, numpy's or torch's
        per_level = _like(counts, [0.0, *level_weights(weights, depth)])
        at_least = counts.sum(-1)[..., None] - counts.cumsum(-1) + counts  # items of level ≥ p
        # clip avoids a division by 0, for levels without items, whose term is 0
        return (per_level * (at_least > 0) / at_least.clip(1)).cumsum(-1)

    return relevance


@relevances.register("exponential")
def exponential() -> Relevance:
    """rel_l = 2^l − 1, the gain of NDCG. It does not depend on the counts."""

    def relevance(counts: Any) -> Any:
        """Compute the relevance (…, L+1) of an item of each level from the level counts (…, L+1),
        of numpy or torch."""
        # adding 0 · counts broadcasts the values to a row for every query
        return _like(counts, [2.0**level - 1 for level in range(counts.shape[-1])]) + 0 * counts

    return relevance


@relevances.register("table")
def table(values: Sequence[float]) -> Relevance:
    """rel_l = values[l−1] for l = 1 … L, coarse to fine. It does not depend on the counts."""

    def relevance(counts: Any) -> Any:
        """Compute the relevance (…, L+1) of an item of each level from the level counts (…, L+1),
        of numpy or torch. `values` (L,): the relevance of the levels 1 … L."""
        if len(values) != counts.shape[-1] - 1:
            raise UsageError(
                "the relevance table does not fit the label tree",
                expected=f"{counts.shape[-1] - 1} values, one per level",
                found=f"{len(values)} values",
            )
        # adding 0 · counts broadcasts the values to a row for every query
        return _like(counts, [0.0, *values]) + 0 * counts

    return relevance


def named_relevance(name: str, exponent: float = 1.0) -> Relevance:
    """Return the relevance of this name; `exponent`: that of "alpha". Raises UnknownName, and
    UsageError for a relevance that needs more than its name.

    >>> named_relevance("table")
    Traceback (most recent call last):
    hbench.core.errors.UsageError: the relevance table needs more than its name
      expected: one of alpha, sum_wap, exponential
    """
    if name == "alpha":
        return alpha(exponent)
    try:
        return relevances[name]()
    except TypeError:  # its function requires an argument, such as the values of "table"
        raise UsageError(
            f"the relevance {name} needs more than its name",
            expected="one of alpha, sum_wap, exponential",
        ) from None


@checked
def relevance_of_pairs(
    queries: ArrayLike, gallery: ArrayLike, relevance: Relevance | None = None
) -> NDArray[np.float64]:
    """Compute the relevance of every item of a gallery for every query, from their labels.

    Every gallery item counts in |Ω^(l)|, so remove a query from its own gallery first.

    Args:
        queries: labels (Q, L), coarse to fine, numbers or names.
        gallery: labels (G, L).
        relevance: of level counts. Default: `alpha()`, (l/L)/|Ω^(l)|.

    Returns:
        float64 (Q, G).

    Raises:
        UsageError: a relevance that does not fit the number of levels.
        TreeError: labels of different levels.

    Source:
        HAPPIER, Eq. 4.

    Example:
        >>> pairs = relevance_of_pairs(np.array([[0, 0]]), np.array([[0, 0], [0, 1], [1, 2]]))
        >>> pairs.tolist()  # 1/1, (1/2)/1, 0
        [[1.0, 0.5, 0.0]]
    """
    levels = levels_of_pairs(queries, gallery)  # (Q, G)
    # labels of shape (N,) belong to a tree of one level
    depth = 1 if np.ndim(queries) == 1 else np.shape(queries)[-1]
    counts = np.stack([(levels == level).sum(axis=1) for level in range(depth + 1)], axis=1)
    # (Q, L+1): for each query the relevance of each level
    table: NDArray[np.float64] = (relevance or alpha())(counts)
    if np.shape(table) != counts.shape:
        raise UsageError(
            "relevance gives no number for each level of each query",
            expected=f"an array {counts.shape} of counts {counts.shape}",
            found=f"{table!r:.60}",
        )
    relevances: NDArray[np.float64] = np.take_along_axis(table, levels.astype(np.int64), axis=1)
    return relevances


def level_weights(weights: Sequence[float] | None, depth: int) -> list[float]:
    """Return the weights w_1 … w_L of ΣwAP for a tree of `depth` levels, coarse to fine; 1/L each
    for None. Raises UsageError unless they are non-negative and sum to 1, up to rounding."""
    if weights is None:
        return [1 / depth] * depth
    if len(weights) != depth or not (min(weights) >= 0 and abs(sum(weights) - 1) <= 1e-6):
        raise UsageError(
            "the weights of wAP do not fit the label tree",
            expected=f"{depth} non-negative weights, coarse to fine, that sum to 1",
            found=":".join(f"{w:g}" for w in weights),
        )
    return list(weights)


def has_inversion(relevance: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Find the queries, bool (Q,), whose relevance does not grow with the level. HAPPIER requires
    rel(k) > rel(k′) for level(k) > level(k′) (the constraint stated before Eq. 4).

    `relevance`, `counts` (Q, L+1): the relevance and the number of items of the levels 0 … L. Only
    levels that have items are compared.
    """
    violated = np.zeros(counts.shape[0], dtype=bool)
    highest = np.zeros(counts.shape[0])  # the highest relevance of the levels so far
    for level in range(1, counts.shape[1]):
        present = counts[:, level] > 0
        violated |= present & (relevance[:, level] <= highest)
        highest = np.where(present, np.maximum(highest, relevance[:, level]), highest)
    return violated


def _like(counts: Any, values: Sequence[float]) -> Any:
    """Convert `values`, one number per level, to an array like `counts`: float64 for numpy; for
    torch a tensor on the same device and, unless that holds integers, of the same type."""
    if isinstance(counts, np.ndarray):
        return np.asarray(values, dtype=np.float64)
    return counts.new_tensor(values, dtype=counts.dtype if counts.dtype.is_floating_point else None)
