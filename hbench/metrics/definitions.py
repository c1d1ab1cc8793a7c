"""A metric is a pure function of one query's level sequence.

Symbols: Ω the query's gallery, Ω^(l) its items at level l, P_l = ∪_{q≥l} Ω^(q) the positives at
level l, r_m the rank of the m-th positive. A metric that is not defined for a query (no positive)
is NaN, and that query is left out of the mean.

Ranked are a fine item, a distractor, a coarse item, a distractor:

>>> sequence = LevelSequence(np.array([1, 3]), np.array([2, 1], np.uint8), np.array([2, 1, 1]))
>>> ap(sequence, level=1) == (1 / 1 + 2 / 3) / 2
True
"""

import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hbench.core.registry import Registry
from hbench.metrics.level_sequence import LevelSequence
from hbench.metrics.relevance import Relevance, level_weights

NAN = float("nan")
LETTERS = "[A-Za-z][A-Za-z0-9-]*"  # the begin of a metric's name, before marks such as @ and /


class Definition(NamedTuple):
    """A registered metric.

    `function`: computes it from a level sequence. `takes`: the keyword arguments of the function,
    some of level, cut, relevance, weights and norm. `full`: whether it needs the whole ranking.
    `lower_is_better`: whether it is a distance, with 0 as its best value. `factor`: values are
    shown times this number: 100 for fractions, which are shown in percent, 1 for ranks and numbers
    of items.
    """

    function: Callable[..., float]
    takes: tuple[str, ...]
    full: bool = False
    lower_is_better: bool = False
    factor: int = 100


metrics: Registry[Definition] = Registry("metric", group="hbench.metrics", type=Definition)


def metric(
    name: str, *takes: str, full: bool = False, lower_is_better: bool = False, factor: int = 100
) -> Callable[[Callable[..., float]], Callable[..., float]]:
    """Return a decorator that registers a function of one query's level sequence as the metric
    `name`. Raises ValueError for a name that --metrics could not spell.

    A name ends in @, @R, # or / only where another metric has the same letters: "NDCG@" has a
    cut, "NDCG" has none; "P@R", "AP#" and "ASI/" are other metrics than "P", "AP" and "ASI".

    Args:
        name: of the metric, letters first, then digits and hyphens, and such an end or none.
        takes: the keyword arguments of the function: some of level, cut, relevance, weights, norm.
        full: whether the metric needs the whole ranking, and not only its first items.
        lower_is_better: whether it is a distance or a rank.
        factor: values are shown times this number: 100 for percent.
    """
    if not re.fullmatch(rf"{LETTERS}(@R|[@#/])?", name):
        raise ValueError(f"{name!r} is no name of a metric: letters first, then digits and hyphens")

    def add(function: Callable[..., float]) -> Callable[..., float]:
        """Register this function, and return it unchanged."""
        metrics.register(name)(Definition(function, takes, full, lower_is_better, factor))
        return function

    return add


@metric("AP", "level", full=True)
def ap(sequence: LevelSequence, *, level: int) -> float:
    """AP^(l) = 1/|P_l| Σ_m m / r_m over the full list, without interpolation. P_l are the items of
    level l or finer, r_m is the rank of the m-th of them (HAPPIER, Eq. 1)."""
    ranks = positives(sequence, level)
    return float((np.arange(1, len(ranks) + 1) / ranks).mean()) if len(ranks) else NAN


@metric("AP#", "level", full=True)
def ap_exclusive(sequence: LevelSequence, *, level: int) -> float:
    """AP whose positives are the items of exactly this level, 1 … L. Items of higher levels are
    removed from the list first (HAPPIER's evaluator)."""
    higher = sequence.levels > level  # (P,)
    # an item moves up by the number of removed items before it
    ranks = (sequence.ranks - np.cumsum(higher))[sequence.levels == level]
    return float((np.arange(1, len(ranks) + 1) / ranks).mean()) if len(ranks) else NAN


@metric("H-AP", "relevance", full=True)
def h_ap(sequence: LevelSequence, *, relevance: Relevance) -> float:
    """H-AP = Σ_{k∈Ω+} H-rank(k)/rank(k) / Σ_{k∈Ω+} rel(k), H-rank(k) = Σ_{j∈Ω+, rank(j)≤rank(k)}
    min(rel(k), rel(j)); Ω+ are the positives of all levels (HAPPIER, Eq. 2–3)."""
    return graded_ap(sequence, relevance(sequence.counts))


@metric("H-AP@R", "relevance", full=True)
def h_ap_at_r(sequence: LevelSequence, *, relevance: Relevance) -> float:
    """H-AP whose numerator sums only over the positives at ranks up to R = |Ω+|, the number of
    positives, as mAP@R does. The denominator is the relevance of all positives.
    """
    within = sequence.ranks <= len(sequence.ranks)
    return graded_ap(sequence, relevance(sequence.counts), first=int(within.sum()))


def graded_ap(sequence: LevelSequence, rel: NDArray[np.float64], first: int | None = None) -> float:
    """H-AP for given relevances `rel` (L+1,) of the levels 0 … L.

    `first`: sum over this number of positives only, the first in the ranking; None: all. The sum is
    divided by the relevance of all positives in either case. NaN if that relevance is 0.
    """
    total = rel[sequence.levels].sum()
    if not total:  # no positive, or none of a relevance above 0
        return NAN
    return float((h_ranks(sequence, rel, first) / sequence.ranks[:first]).sum() / total)


def h_ranks(
    sequence: LevelSequence, rel: NDArray[np.float64], first: int | None = None
) -> NDArray[np.float64]:
    """H-rank(k) = Σ_{j∈Ω+, rank(j)≤rank(k)} min(rel(k), rel(j)) of each positive k, (P,): a rank
    among the positives in which each counts by its relevance.

    `rel` (L+1,): the relevance of the levels 0 … L. `first`: return the values of this number of
    positives only, the first in the ranking; None: all.
    """
    levels = sequence.levels[:first, None]  # (P, 1)
    # (P, L+1): for each positive k, the number of positives of each level up to and including k
    so_far = np.cumsum(np.arange(len(rel)) == levels, axis=0)
    # each of them adds min(rel(k), rel of its own level)
    ranks: NDArray[np.float64] = (so_far * np.minimum(rel[levels], rel)).sum(axis=1)
    return ranks


def h_pr_curve(
    sequence: LevelSequence, rel: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return H-R@k and H-P@k at the rank k of every positive, two arrays (P,). `rel` (L+1,): the
    relevance of the levels 0 … L.

    They are recall and precision for graded labels: H-AP = Σ_k (H-R@k − H-R@(k−1))·H-P@k is the
    area under the curve (rank losses, Eq. 30–32). A positive of relevance 0 adds no recall, and so
    no area; its H-P is 0 here. Both arrays are empty if all positives have relevance 0.
    """
    gains = rel[sequence.levels]  # (P,): of each positive
    total = (rel * sequence.counts)[1:].sum()  # [1:] leaves out level 0, the distractors
    if not total:
        return np.zeros(0), np.zeros(0)
    precision = np.divide(
        h_ranks(sequence, rel), sequence.ranks * gains, out=np.zeros(len(gains)), where=gains > 0
    )
    return np.cumsum(gains) / total, precision


@metric("H-P", "relevance", "cut")
def h_p_at_k(sequence: LevelSequence, *, relevance: Relevance, cut: int) -> float:
    """H-P@k = Σ_{j≤k} min(rel(k), rel(j)) / (k·rel(k)) over the items at ranks j up to k, the `cut`
    (rank losses, Eq. 31). If the k-th item has relevance 0, as a distractor has, the formula is
    0/0; H-P@k is then the share of positives (level ≥ 1, even of relevance 0) among the first k.
    The reason: as rel(k) falls to 0, min(rel(k), rel(j))/rel(k) is 1 for every positive j. NaN for
    a query without positives."""
    if not sequence.counts[1:].any():
        return NAN
    first = sequence.ranks <= cut
    # relevance(counts) is the relevance of each level, (L+1,); rel that of the positives up to k
    rel = relevance(sequence.counts)[sequence.levels[first]]
    # the item at rank k is a positive with a relevance above 0
    if len(rel) and sequence.ranks[first][-1] == cut and rel[-1]:
        return float(np.minimum(rel, rel[-1]).sum() / (cut * rel[-1]))
    return len(rel) / cut


@metric("H-R", "relevance", "cut")
def h_r_at_k(sequence: LevelSequence, *, relevance: Relevance, cut: int) -> float:
    """H-R@k = Σ_{j≤k} rel(j) / Σ_{j∈Ω+} rel(j): the share of the positives' total relevance that is
    found among the first k items, k the `cut` (rank losses, Eq. 30). NaN if the total is 0."""
    rel = relevance(sequence.counts)
    total = (rel * sequence.counts)[1:].sum()
    return float(rel[sequence.levels[sequence.ranks <= cut]].sum() / total) if total else NAN


@metric("wAP", "weights", full=True)
def w_ap(sequence: LevelSequence, *, weights: Sequence[float] | None) -> float:
    """ΣwAP = Σ_l w_l·AP^(l), with the weights renormalised over the levels that have positives
    (rank losses, Property 1).
    """
    return weighted(
        [ap(sequence, level=level) for level in range(1, len(sequence.counts))], weights
    )


def weighted(values: Sequence[float], weights: Sequence[float] | None) -> float:
    """Weighted mean Σ_l w_l·v_l of one value per level, coarse to fine. Undefined values, NaN, are
    left out, and the weights of the others renormalised; NaN if all are undefined. `weights` None:
    equal weights.
    """
    of_level = level_weights(weights, len(values))  # (L,), with sum 1
    terms = [(w, value) for w, value in zip(of_level, values, strict=True) if not np.isnan(value)]
    total = sum(w for w, _ in terms)
    return sum(w * value for w, value in terms) / total if total else NAN


@metric("ASI", full=True)
def asi(sequence: LevelSequence) -> float:
    """ASI = 1/R Σ_{n≤R} 1/n Σ_{l≥1} min(#level l in the first n, #level l in the first n of the
    ideal order), R = |Ω+|: the mean overlap with the ideal order (rank losses, C-A1)."""
    return _set_intersection(sequence.ranks, sequence.levels, sequence.counts)


@metric("ASI/", "level", full=True)
def asi_binary(sequence: LevelSequence, *, level: int) -> float:
    """ASI, the mean overlap with the ideal order, for binary labels: items of level l or finer are
    the positives, all others are distractors."""
    ranks = positives(sequence, level)
    total = positive_count(sequence, level)
    return _set_intersection(
        ranks, np.ones(len(ranks), np.uint8), np.array([sequence.counts.sum() - total, total])
    )


def _set_intersection(
    ranks: NDArray[np.int64], levels: NDArray[np.uint8], counts: NDArray[np.int64]
) -> float:
    """Mean over n = 1 … |Ω+| of the overlap between the first n results and the first n of the
    ideal order, as a fraction of n. Items of the same level are interchangeable.

    `ranks`, `levels` (P,): of the positives. `counts` (L+1,): the number of items of each level.
    """
    total = int(counts[1:].sum())  # |Ω+|; level 0 are distractors
    if total == 0:
        return NAN
    depth = len(counts) - 1
    n = np.arange(1, total + 1)
    at_rank = np.zeros((total, depth))  # 1 where the item of this rank is of this level
    within = ranks <= total
    at_rank[ranks[within] - 1, levels[within] - 1] = 1
    # (L,): how many items are of a higher level than l, which come first in the ideal order.
    # counts[:0:-1] runs from the finest level down to level 1
    higher = np.cumsum(counts[:0:-1])[::-1] - counts[1:]
    # (total, L): how many items of each level are among the first n of the ideal order
    ideal = np.clip(n[:, None] - higher, 0, counts[1:])
    return float((np.minimum(at_rank.cumsum(axis=0), ideal).sum(axis=1) / n).mean())


@metric("NDCG", full=True)
def ndcg(sequence: LevelSequence) -> float:
    """NDCG = DCG / ideal DCG, DCG = Σ_k (2^l − 1)/log2(1 + rank(k)) over all items k of the
    gallery, l the level of item k. The ideal order has the finest levels first."""
    return ndcg_at_k(sequence, cut=int(sequence.counts.sum()))


@metric("NDCG@", "cut")
def ndcg_at_k(sequence: LevelSequence, *, cut: int) -> float:
    """NDCG@k = DCG / ideal DCG, DCG = Σ (2^l − 1)/log2(1 + rank) over the first k items, l the
    level of an item. The ideal order, finest levels first, is that of the whole gallery."""
    gains = 2.0 ** np.arange(len(sequence.counts)) - 1  # (L+1,): 2^l − 1
    # The gains in ideal order: the gain of each level, repeated for each of its items, finest
    # first. [:0:-1] runs from level L down to level 1; level 0 gains nothing.
    ideal = np.repeat(gains[:0:-1], sequence.counts[:0:-1])[:cut]
    if not len(ideal):
        return NAN
    first = sequence.ranks <= cut
    dcg = (gains[sequence.levels[first]] / np.log2(1 + sequence.ranks[first])).sum()
    ranks_and_one = np.arange(2, len(ideal) + 2)  # 1 + rank, for ranks 1, 2, …
    return float(dcg / (ideal / np.log2(ranks_and_one)).sum())


@metric("R", "cut", "level")
def r_at_k(sequence: LevelSequence, *, cut: int, level: int) -> float:
    """R@k = 1 if a positive, an item of this level (1 … L) or finer, is among the first k items, k
    the `cut`, else 0. A query without positives counts as 0 (RaMBO, Eq. 7–8).
    """
    return float((positives(sequence, level) <= cut).any())


@metric("TR", "cut", "level", "norm")
def tr_at_k(
    sequence: LevelSequence, *, cut: int, level: int, norm: Callable[[int, int], int]
) -> float:
    """TR@k = #positives among the first k / |P_l|, k the `cut`, P_l the items of level l or finer
    (rank losses, Eq. 14). `norm(k, |P_l|)` computes the divisor: |P_l| itself, or the smaller of
    the two under `norm=min` (Patel et al.)."""
    total = positive_count(sequence, level)
    return float((positives(sequence, level) <= cut).sum() / norm(cut, total)) if total else NAN


@metric("P", "cut", "level")
def p_at_k(sequence: LevelSequence, *, cut: int, level: int) -> float:
    """P@k = #positives among the first k / k, k the `cut`, even where the list is shorter than k.
    NaN for a query without items of this level or finer."""
    return (
        float((positives(sequence, level) <= cut).sum() / cut)
        if positive_count(sequence, level)
        else NAN
    )


@metric("mMP", "cut", "level")
def modified_mean_precision(sequence: LevelSequence, *, cut: int, level: int) -> float:
    """mMP@k = #positives among the first min(k, R) / min(k, R), R the number of positives, items of
    level l or finer. So a class of fewer than k items can still reach 1 (Ypsilantis et al. 2023,
    UnED)."""
    first = min(cut, positive_count(sequence, level))
    return float((positives(sequence, level) <= first).sum() / first) if first else NAN


@metric("P@R", "level", full=True)
def r_precision(sequence: LevelSequence, *, level: int) -> float:
    """P@R = #positives among the first R / R, R the number of positives, items of level l or finer:
    R-precision (Musgrave et al. 2020)."""
    total = positive_count(sequence, level)
    return float((positives(sequence, level) <= total).sum() / total) if total else NAN


@metric("consistency", "level", full=True)
def consistency(sequence: LevelSequence, *, level: int) -> float:
    """|first R ∩ P_{l−1}| / R, where R is the number of items in the query's class at level l: the
    share of the first R results that are in the parent class. NaN at the coarsest level."""
    total = positive_count(sequence, level)
    if level == 1 or not total:
        return NAN
    above = positives(sequence, level - 1)
    return float((above <= total).sum() / total)


@metric("MRR", "level", full=True)
def reciprocal_rank(sequence: LevelSequence, *, level: int) -> float:
    """1/r_1, r_1 the rank of the first positive, an item of this level or finer; 0 if a truncated
    list has no positive. The mean over queries is MRR.
    """
    ranks = positives(sequence, level)
    if not positive_count(sequence, level):
        return NAN
    return float(1 / ranks[0]) if len(ranks) else 0.0


@metric("mAP@R", "level", full=True)
def map_at_r(sequence: LevelSequence, *, level: int) -> float:
    """mAP@R = 1/R Σ_{i≤R} Prec(i)·1[i-th is positive], R the number of positives, items of level l
    or finer; Prec(i) their share of the first i (Musgrave et al. 2020)."""
    total = positive_count(sequence, level)
    return _precision_sum(positives(sequence, level), total) / total if total else NAN


@metric("mAP", "cut", "level")
def map_at_k(sequence: LevelSequence, *, cut: int, level: int) -> float:
    """mAP@k = 1/min(|P_l|, k) Σ_{i≤k} Prec(i)·1[i-th is positive], k the `cut`, P_l the positives,
    items of level l or finer, Prec(i) their share of the first i (Google Landmarks v2 with k =
    100).
    """
    total = positive_count(sequence, level)
    return _precision_sum(positives(sequence, level), cut) / min(total, cut) if total else NAN


def _precision_sum(ranks: NDArray[np.int64], cut: int) -> float:
    """Sum the precision m / r_m over the positives at ranks r_m ≤ `cut`. `ranks` (P,): the ranks of
    all positives, ascending."""
    first = ranks[ranks <= cut]
    return float((np.arange(1, len(first) + 1) / first).sum())


@metric("HD", "cut", lower_is_better=True)
def hierarchical_distance_at_k(sequence: LevelSequence, *, cut: int) -> float:
    """HD@k = 1/min(k, |Ω|) Σ_{i≤k} (L − l_i)/L, l_i the level of the i-th item, |Ω| the number of
    items: the mean height of the lowest common ancestor of the query and each of the first k items,
    divided by the height of the tree (Bertinetto et al. 2020, average hierarchical distance of
    top-k). Distractors have level 0 and add 1."""
    # without an item of the query's fine class no ranking could reach distance 0: undefined
    if not sequence.counts[-1]:
        return NAN
    depth = len(sequence.counts) - 1
    within = min(cut, int(sequence.counts.sum()))
    # int64, since numpy's default for a sum of uint8 depends on the platform
    return float(1 - sequence.levels[sequence.ranks <= cut].sum(dtype=np.int64) / (depth * within))


@metric("hops", "cut", lower_is_better=True, factor=1)
def hops_at_k(sequence: LevelSequence, *, cut: int) -> float:
    """hops@k = 2L · HD@k: the mean number of edges in the tree between the query's class and the
    classes of the first k items."""
    depth = len(sequence.counts) - 1
    return 2 * depth * hierarchical_distance_at_k(sequence, cut=cut)


@metric("HD-mistake", lower_is_better=True)
def distance_of_a_mistake(sequence: LevelSequence) -> float:
    """(L − l_1)/L, l_1 the level of the first item, for queries whose first item is of a wrong fine
    class; NaN for all others (Bertinetto et al. 2020, average hierarchical distance of a
    mistake)."""
    first = hierarchical_distance_at_k(sequence, cut=1)
    return first if first > 0 else NAN


@metric("HD-first-mistake", full=True, lower_is_better=True)
def distance_of_the_first_mistake(sequence: LevelSequence) -> float:
    """(L − l_n)/L, where n is the rank of the first item of a wrong fine class; NaN if no item is
    wrong.
    """
    depth = len(sequence.counts) - 1
    # undefined without an item of the query's class, as HD@k is, or without an item of another one
    if not sequence.counts[-1] or not sequence.counts[:-1].sum():
        return NAN
    right = positives(sequence, depth)  # the ranks of the right items, ascending
    # Count the right items before the first wrong one: they have the ranks 1, 2, …, n − 1. After a
    # wrong item the m-th right one has a rank above m
    n = int((right == np.arange(1, len(right) + 1)).sum()) + 1
    # The sum is over one level or none, as a sequence has the ranks of positives only. If n is not
    # among them, the item at rank n is a distractor, whose level is 0, like the sum over none.
    return float(1 - sequence.levels[sequence.ranks == n].sum() / depth)


def positives(sequence: LevelSequence, level: int) -> NDArray[np.int64]:
    """Return the ranks (P,), ascending from 1, of the items of this level, 1 … L, or a finer one. A
    truncated ranking has the ranks of the listed items only."""
    return sequence.ranks[sequence.levels >= level]


def positive_count(sequence: LevelSequence, level: int) -> int:
    """Count the items of this level, 1 … L, or a finer one in the query's whole gallery, even if a
    truncated ranking lists fewer of them."""
    return int(sequence.counts[level:].sum())
