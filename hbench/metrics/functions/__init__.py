"""Metrics as functions of two arrays: the scores by which the items are ranked for each query, and
the level of each item for each query.

    scores (Q, G)   higher is better; −inf leaves an item out of the list, such as the query itself
    levels (Q, G)   0 for an item unrelated to the query, up to L for one of its finest class

Both may be numpy arrays, torch tensors or nested lists; one query may be given as (G,). Each
function returns float64 (Q,), a fraction in [0, 1] for each query, NaN where the metric is
undefined: for queries without a positive. The mean over the others, `np.nanmean`, is what reports
show. Formulas are those of hbench.metrics.definitions; there is no other implementation.

All functions share two options. `ties`: what comes first among equal scores, "pessimistic" (the
lower level, so that a constant score earns nothing) or "optimistic". `depth`: the number of levels
L, by default the highest level that occurs. They raise UsageError for arrays of different shapes,
scores that are NaN, and levels that are not whole numbers from 0 on.

>>> scores = [[0.9, 0.8, 0.7, 0.1], [0.2, 0.9, 0.6, 0.3]]
>>> levels = [[2, 0, 1, 0], [0, 1, 2, 0]]
>>> ap(scores, levels).tolist(), ap(scores, levels, level=1).tolist()
([1.0, 0.5], [0.8333333333333333, 1.0])
>>> evaluate(["H-AP", "R@1/1"], scores, levels)["R@1/1"].tolist()
[1.0, 1.0]
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hbench.core.arguments import checked
from hbench.core.errors import UsageError
from hbench.metrics.functions.arrays import as_scores_and_levels, sequences_of
from hbench.metrics.level_sequence import LevelSequence
from hbench.metrics.names import parse_metrics
from hbench.metrics.relevance import named_relevance
from hbench.tree import MOST_LEVELS

Values = NDArray[np.float64]
Level = int | None  # 1 (coarse) … L


@checked
def evaluate(
    metrics: str | Sequence[str],
    scores: ArrayLike,
    levels: ArrayLike,
    *,
    relevance: str = "alpha",
    alpha: float = 1.0,
    ties: str = "pessimistic",
    depth: Level = None,
) -> dict[str, Values]:
    """Compute several metrics of every query, and return them by name.

    Args:
        metrics: names such as "H-AP", "AP", "AP/2", "R@10" or "NDCG@100" (docs/metrics.md lists
            them), as a list or a text with commas; levels are named 1 (coarse) … L (fine).
        scores: (Q, G), higher is better; −inf leaves an item out of the list, such as the query
            itself. (G,) for one query.
        levels: (Q, G), 0 for an item that is unrelated to the query, up to L for one of its finest
            class.
        relevance: of an item of level l: "alpha" (default), (l/L)^alpha / |Ω^(l)| with the items
            Ω^(l) of level l, "sum_wap" or "exponential" (docs/metrics.md).
        alpha: the exponent of the relevance "alpha". Default: 1.
        ties: what comes first among equal scores: "pessimistic" (default), the lower level, or
            "optimistic".
        depth: the number of levels L. Default: the highest level that occurs.

    Returns:
        float64 (Q,) by name, NaN where a metric is undefined.

    Raises:
        UsageError: arrays that do not fit together, or hold NaN or other levels than 0 … L.
        UnknownName: a metric, a relevance or an order of ties that does not exist.
    """
    rows, of_items = as_scores_and_levels(scores, levels)  # (Q, G) each
    # max of no levels, or of zeros alone: a tree has one level at least
    highest = int(of_items.max(initial=1))
    if depth is not None and not 0 < depth <= MOST_LEVELS:
        raise UsageError(
            "depth is no number of levels", expected=f"1 … {MOST_LEVELS}", found=f"{depth}"
        )
    if depth is not None and depth < highest:
        raise UsageError(
            "some items are above the highest level",
            expected=f"levels 0 … {depth}",
            found=f"{highest}",
        )

    names = [str(level) for level in range(1, (depth or highest) + 1)]
    graded = named_relevance(relevance, alpha)
    chosen = parse_metrics(metrics, names)
    functions = {str(name): name.bind(names, graded) for name in chosen}  # of one sequence
    sequences = list(sequences_of(rows, of_items, len(names), ties))
    return {name: _of_each(function, sequences) for name, function in functions.items()}


@checked
def h_ap(
    scores: ArrayLike,
    levels: ArrayLike,
    *,
    relevance: str = "alpha",
    alpha: float = 1.0,
    ties: str = "pessimistic",
    depth: Level = None,
) -> Values:
    """H-AP = Σ_{k∈Ω+} H-rank(k)/rank(k) / Σ_{k∈Ω+} rel(k), average precision graded by level
    (HAPPIER, Eq. 2 to 4).

    Args:
        scores: (Q, G), higher is better; −inf leaves an item out of the list, such as the query
            itself. (G,) for one query.
        levels: (Q, G), 0 for an item that is unrelated to the query, up to L for one of its finest
            class.
        relevance: of an item of level l: "alpha" (default), (l/L)^alpha / |Ω^(l)|, "sum_wap" or
            "exponential" (docs/metrics.md).
        alpha: the exponent of the relevance "alpha". Default: 1.
        ties: what comes first among equal scores: "pessimistic" (default), the lower level, or
            "optimistic".
        depth: the number of levels L. Default: the highest level that occurs.

    Returns:
        float64 (Q,), a fraction in [0, 1] for each query, NaN for those without a positive.

    Raises:
        UsageError: arrays that do not fit together, or hold NaN or other levels than 0 … L.
    """
    (values,) = evaluate(
        "H-AP", scores, levels, relevance=relevance, alpha=alpha, ties=ties, depth=depth
    ).values()
    return values


@checked
def ap(
    scores: ArrayLike,
    levels: ArrayLike,
    *,
    level: Level = None,
    ties: str = "pessimistic",
    depth: Level = None,
) -> Values:
    """AP = 1/|P_l| Σ_m m/r_m, r_m the rank of the m-th of the positives P_l (HAPPIER, Eq. 1).

    Args:
        scores: (Q, G), higher is better; −inf leaves an item out of the list, such as the query
            itself. (G,) for one query.
        levels: (Q, G), 0 for an item that is unrelated to the query, up to L for one of its finest
            class.
        level: 1 (coarse) … L: items of this level and finer ones are the positives. Default: L.
        ties: what comes first among equal scores: "pessimistic" (default), the lower level, or
            "optimistic".
        depth: the number of levels L. Default: the highest level that occurs.

    Returns:
        float64 (Q,), a fraction in [0, 1] for each query, NaN for those without a positive.

    Raises:
        UsageError: arrays that do not fit together, or hold NaN or other levels than 0 … L.
    """
    return _one(f"AP{_at(level)}", scores, levels, ties, depth)


@checked
def w_ap(
    scores: ArrayLike,
    levels: ArrayLike,
    *,
    weights: Sequence[float] | None = None,
    ties: str = "pessimistic",
    depth: Level = None,
) -> Values:
    """ΣwAP = Σ_l w_l·AP^(l), the weighted mean of the APs of all levels (rank losses, Property 1).

    Args:
        scores: (Q, G), higher is better; −inf leaves an item out of the list, such as the query
            itself. (G,) for one query.
        levels: (Q, G), 0 for an item that is unrelated to the query, up to L for one of its finest
            class.
        weights: (L,), coarse to fine, which sum to 1. Default: 1/L each.
        ties: what comes first among equal scores: "pessimistic" (default), the lower level, or
            "optimistic".
        depth: the number of levels L. Default: the highest level that occurs.

    Returns:
        float64 (Q,), a fraction in [0, 1] for each query, NaN for those without a positive.

    Raises:
        UsageError: arrays that do not fit together, or hold NaN or other levels than 0 … L.
    """
    parameters = "" if weights is None else f"(weights={':'.join(map(repr, map(float, weights)))})"
    return _one(f"wAP{parameters}", scores, levels, ties, depth)


@checked
def asi(
    scores: ArrayLike,
    levels: ArrayLike,
    *,
    level: Level = None,
    ties: str = "pessimistic",
    depth: Level = None,
) -> Values:
    """ASI: the mean overlap of the first n items with those of the ideal order, n = 1 … |Ω+| (rank
    losses, C-A1).

    Args:
        scores: (Q, G), higher is better; −inf leaves an item out of the list, such as the query
            itself. (G,) for one query.
        levels: (Q, G), 0 for an item that is unrelated to the query, up to L for one of its finest
            class.
        level: items of this level or finer are all alike, others distractors. Default: all levels.
        ties: what comes first among equal scores: "pessimistic" (default), the lower level, or
            "optimistic".
        depth: the number of levels L. Default: the highest level that occurs.

    Returns:
        float64 (Q,), a fraction in [0, 1] for each query, NaN for those without a positive.

    Raises:
        UsageError: arrays that do not fit together, or hold NaN or other levels than 0 … L.
    """
    return _one(f"ASI{_at(level)}", scores, levels, ties, depth)


@checked
def ndcg(
    scores: ArrayLike,
    levels: ArrayLike,
    *,
    k: int | None = None,
    ties: str = "pessimistic",
    depth: Level = None,
) -> Values:
    """NDCG = DCG / ideal DCG, DCG = Σ (2^l − 1)/log2(1 + rank) over the items, with their levels l.

    Args:
        scores: (Q, G), higher is better; −inf leaves an item out of the list, such as the query
            itself. (G,) for one query.
        levels: (Q, G), 0 for an item that is unrelated to the query, up to L for one of its finest
            class.
        k: sum over the first k items only. Default: over the whole list.
        ties: what comes first among equal scores: "pessimistic" (default), the lower level, or
            "optimistic".
        depth: the number of levels L. Default: the highest level that occurs.

    Returns:
        float64 (Q,), a fraction in [0, 1] for each query, NaN for those without a positive.

    Raises:
        UsageError: arrays that do not fit together, or hold NaN or other levels than 0 … L.
    """
    return _one("NDCG" if k is None else f"NDCG@{k}", scores, levels, ties, depth)


@checked
def recall_at_k(
    scores: ArrayLike,
    levels: ArrayLike,
    k: int,
    *,
    level: Level = None,
    ties: str = "pessimistic",
    depth: Level = None,
) -> Values:
    """R@k of metric learning: 1 if some positive is among the first k items, else 0 (RaMBO, Eq. 7).

    Args:
        scores: (Q, G), higher is better; −inf leaves an item out of the list, such as the query
            itself. (G,) for one query.
        levels: (Q, G), 0 for an item that is unrelated to the query, up to L for one of its finest
            class.
        k: how many items of the list count, 1 or more.
        level: 1 (coarse) … L: items of this level and finer ones are the positives. Default: L.
        ties: what comes first among equal scores: "pessimistic" (default), the lower level, or
            "optimistic".
        depth: the number of levels L. Default: the highest level that occurs.

    Returns:
        float64 (Q,), a fraction in [0, 1] for each query, 0 for those without a positive.

    Raises:
        UsageError: arrays that do not fit together, or hold NaN or other levels than 0 … L.
    """
    return _one(f"R@{k}{_at(level)}", scores, levels, ties, depth)


@checked
def true_recall_at_k(
    scores: ArrayLike,
    levels: ArrayLike,
    k: int,
    *,
    level: Level = None,
    ties: str = "pessimistic",
    depth: Level = None,
) -> Values:
    """Recall of information retrieval: the share of the positives that are among the first k items
    (rank losses, Eq. 14).

    Args:
        scores: (Q, G), higher is better; −inf leaves an item out of the list, such as the query
            itself. (G,) for one query.
        levels: (Q, G), 0 for an item that is unrelated to the query, up to L for one of its finest
            class.
        k: how many items of the list count, 1 or more.
        level: 1 (coarse) … L: items of this level and finer ones are the positives. Default: L.
        ties: what comes first among equal scores: "pessimistic" (default), the lower level, or
            "optimistic".
        depth: the number of levels L. Default: the highest level that occurs.

    Returns:
        float64 (Q,), a fraction in [0, 1] for each query, NaN for those without a positive.

    Raises:
        UsageError: arrays that do not fit together, or hold NaN or other levels than 0 … L.
    """
    return _one(f"TR@{k}{_at(level)}", scores, levels, ties, depth)


@checked
def precision_at_k(
    scores: ArrayLike,
    levels: ArrayLike,
    k: int,
    *,
    level: Level = None,
    ties: str = "pessimistic",
    depth: Level = None,
) -> Values:
    """P@k: the share of positives among the first k items.

    Args:
        scores: (Q, G), higher is better; −inf leaves an item out of the list, such as the query
            itself. (G,) for one query.
        levels: (Q, G), 0 for an item that is unrelated to the query, up to L for one of its finest
            class.
        k: how many items of the list count, 1 or more.
        level: 1 (coarse) … L: items of this level and finer ones are the positives. Default: L.
        ties: what comes first among equal scores: "pessimistic" (default), the lower level, or
            "optimistic".
        depth: the number of levels L. Default: the highest level that occurs.

    Returns:
        float64 (Q,), a fraction in [0, 1] for each query, NaN for those without a positive.

    Raises:
        UsageError: arrays that do not fit together, or hold NaN or other levels than 0 … L.
    """
    return _one(f"P@{k}{_at(level)}", scores, levels, ties, depth)


@checked
def r_precision(
    scores: ArrayLike,
    levels: ArrayLike,
    *,
    level: Level = None,
    ties: str = "pessimistic",
    depth: Level = None,
) -> Values:
    """P@R: the share of positives in the first R, R the number of positives (Musgrave et al. 2020).

    Args:
        scores: (Q, G), higher is better; −inf leaves an item out of the list, such as the query
            itself. (G,) for one query.
        levels: (Q, G), 0 for an item that is unrelated to the query, up to L for one of its finest
            class.
        level: 1 (coarse) … L: items of this level and finer ones are the positives. Default: L.
        ties: what comes first among equal scores: "pessimistic" (default), the lower level, or
            "optimistic".
        depth: the number of levels L. Default: the highest level that occurs.

    Returns:
        float64 (Q,), a fraction in [0, 1] for each query, NaN for those without a positive.

    Raises:
        UsageError: arrays that do not fit together, or hold NaN or other levels than 0 … L.
    """
    return _one(f"P@R{_at(level)}", scores, levels, ties, depth)


@checked
def map_at_r(
    scores: ArrayLike,
    levels: ArrayLike,
    *,
    level: Level = None,
    ties: str = "pessimistic",
    depth: Level = None,
) -> Values:
    """mAP@R = 1/R Σ_{i≤R} P@i·[i-th is positive], R the number of positives (Musgrave et al. 2020).

    Args:
        scores: (Q, G), higher is better; −inf leaves an item out of the list, such as the query
            itself. (G,) for one query.
        levels: (Q, G), 0 for an item that is unrelated to the query, up to L for one of its finest
            class.
        level: 1 (coarse) … L: items of this level and finer ones are the positives. Default: L.
        ties: what comes first among equal scores: "pessimistic" (default), the lower level, or
            "optimistic".
        depth: the number of levels L. Default: the highest level that occurs.

    Returns:
        float64 (Q,), a fraction in [0, 1] for each query, NaN for those without a positive.

    Raises:
        UsageError: arrays that do not fit together, or hold NaN or other levels than 0 … L.
    """
    return _one(f"mAP@R{_at(level)}", scores, levels, ties, depth)


@checked
def map_at_k(
    scores: ArrayLike,
    levels: ArrayLike,
    k: int,
    *,
    level: Level = None,
    ties: str = "pessimistic",
    depth: Level = None,
) -> Values:
    """mAP@k = 1/min(k, |P_l|) Σ_{i≤k} P@i·[item i is a positive], P_l the positives (Google
    Landmarks v2 with k = 100).

    Args:
        scores: (Q, G), higher is better; −inf leaves an item out of the list, such as the query
            itself. (G,) for one query.
        levels: (Q, G), 0 for an item that is unrelated to the query, up to L for one of its finest
            class.
        k: how many items of the list count, 1 or more.
        level: 1 (coarse) … L: items of this level and finer ones are the positives. Default: L.
        ties: what comes first among equal scores: "pessimistic" (default), the lower level, or
            "optimistic".
        depth: the number of levels L. Default: the highest level that occurs.

    Returns:
        float64 (Q,), a fraction in [0, 1] for each query, NaN for those without a positive.

    Raises:
        UsageError: arrays that do not fit together, or hold NaN or other levels than 0 … L.
    """
    return _one(f"mAP@{k}{_at(level)}", scores, levels, ties, depth)


@checked
def reciprocal_rank(
    scores: ArrayLike,
    levels: ArrayLike,
    *,
    level: Level = None,
    ties: str = "pessimistic",
    depth: Level = None,
) -> Values:
    """1/r_1, r_1 the rank of the first positive; its mean over queries is MRR.

    Args:
        scores: (Q, G), higher is better; −inf leaves an item out of the list, such as the query
            itself. (G,) for one query.
        levels: (Q, G), 0 for an item that is unrelated to the query, up to L for one of its finest
            class.
        level: 1 (coarse) … L: items of this level and finer ones are the positives. Default: L.
        ties: what comes first among equal scores: "pessimistic" (default), the lower level, or
            "optimistic".
        depth: the number of levels L. Default: the highest level that occurs.

    Returns:
        float64 (Q,), a fraction in [0, 1] for each query, NaN for those without a positive.

    Raises:
        UsageError: arrays that do not fit together, or hold NaN or other levels than 0 … L.
    """
    return _one(f"MRR{_at(level)}", scores, levels, ties, depth)


@checked
def hierarchical_distance_at_k(
    scores: ArrayLike, levels: ArrayLike, k: int, *, ties: str = "pessimistic", depth: Level = None
) -> Values:
    """HD@k: the mean of (L − l)/L over the first k items, or all of fewer; lower is better
    (Bertinetto et al. 2020). NaN without an item of level L: no ranking could reach 0.

    Args:
        scores: (Q, G), higher is better; −inf leaves an item out of the list, such as the query
            itself. (G,) for one query.
        levels: (Q, G), 0 for an item that is unrelated to the query, up to L for one of its finest
            class.
        k: how many items of the list count, 1 or more.
        ties: what comes first among equal scores: "pessimistic" (default), the lower level, or
            "optimistic".
        depth: the number of levels L. Default: the highest level that occurs.

    Returns:
        float64 (Q,), a fraction in [0, 1] for each query, or NaN.

    Raises:
        UsageError: arrays that do not fit together, or hold NaN or other levels than 0 … L.
    """
    return _one(f"HD@{k}", scores, levels, ties, depth)


def _of_each(
    metric: Callable[[LevelSequence], float], sequences: Iterable[LevelSequence]
) -> Values:
    """Compute a metric for the level sequence of each query: (Q,)."""
    return np.array([metric(one) for one in sequences], float)


def _one(name: str, scores: ArrayLike, levels: ArrayLike, ties: str, depth: int | None) -> Values:
    """Compute a single metric by its name, such as "R@1/2": (Q,). The other arguments are those of
    `evaluate`."""
    (values,) = evaluate([name], scores, levels, ties=ties, depth=depth).values()
    return values


def _at(level: int | None) -> str:
    """Return the end of a metric's name that states the level, such as "/2"; "" for None, the
    finest level."""
    return "" if level is None else f"/{level}"
