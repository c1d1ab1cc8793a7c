"""Computes metrics from sums over the ranks of a batch of queries: the fast twins of those in
hbench.metrics.definitions.

A fast metric takes a batch of Q queries and the same keywords as its twin, and gives float64 (Q,),
NaN where undefined.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hbench.engine.kernels.rank_sums import SumRequest, Sums
from hbench.metrics.relevance import level_weights

Floats = NDArray[np.float64]
# the columns of the sums at R = |P_l| and of the whole list
R = -2
ALL = -1


FAST: dict[
    str, Callable[..., Floats]
] = {}  # by the base of a metric's name; the only place that says which are fast
NEEDS: dict[
    str, str
] = {}  # what the metric of a base name needs summed besides hits and precisions


def fast(base: str, needs: str = "") -> Callable[[Callable[..., Floats]], Callable[..., Floats]]:
    """A decorator that registers a function as the fast twin of the metric of this base name.

    `needs`: what must be summed beside hits and precisions: "graded", sums weighted by relevance;
    "binary", the intersections of the binary labels of every level; "gain"; or "overlap", with the
    ideal order.
    """

    def add(value: Callable[..., Floats]) -> Callable[..., Floats]:
        """Register this function, and return it unchanged."""
        FAST[base], NEEDS[base] = value, needs
        return value

    return add


@dataclass(frozen=True)
class Batch:
    """The sums of Q queries and what they were taken of.

    `request`: `counts` (Q, L + 1), the items of each list by level, from 0; `cuts` (C,), ascending;
    `relevance`, `weight` (Q, H, L + 1) of H graded sums; tables by rank. `sums`: `hits`,
    `precision`, `gain` (Q, L, C + 2): column l − 1 is level l; the last axis has the C cuts, then
    R, the number of positives, then the whole list. `graded` (Q, H); `intersection` (Q, 1 + L).
    """

    request: SumRequest
    sums: Sums

    @classmethod
    def empty(cls, request: SumRequest) -> Batch:
        """A batch for the queries of a request before anything is summed: sums of 0, which a query
        without positives keeps."""
        queries, graded, levels = request.relevance.shape  # levels from 0 to L
        # the cuts, then R, the number of positives, then the whole list
        columns = len(request.cuts) + 2
        shape = (queries, levels - 1, columns)  # nothing is summed at level 0, of distractors
        hits = np.zeros(shape, np.int64)
        precision = np.zeros(shape)
        gain = np.zeros(shape)
        # of the intersections the first one is that of all levels, then one for each level from 1
        intersection = np.zeros((queries, levels))
        sums = Sums(hits, precision, gain, np.zeros((queries, graded)), intersection)
        return cls(request, sums)

    @property
    def depth(self) -> int:
        """L, the number of levels of the tree; counts have one column more, for level 0."""
        return int(self.request.counts.shape[1]) - 1

    def positives(self, level: int) -> NDArray[np.int64]:
        """|P_l| (Q,): how many items of each query's list are of this level, from 1, or a finer
        one."""
        total: NDArray[np.int64] = self.request.counts[:, level:].sum(axis=1)
        return total

    def at_cut(self, sums: NDArray[Any], level: int, cut: int) -> NDArray[Any]:
        """The sums (Q,), out of (Q, L, C + 2), of a level, from 1, up to one of the cuts. `cuts`,
        of the request, ascend; behind the sums up to each of the C cuts stand those up to R, and of
        the whole list."""
        at: NDArray[Any] = sums[:, level - 1, int(np.searchsorted(self.request.cuts, cut))]
        return at


@fast("AP")
def ap(batch: Batch, *, level: int) -> Floats:
    """Average precision of each query (Q,) at a level, from 1: the mean, over its positives, of the
    precision at their ranks; NaN without positives."""
    return ratio(batch.sums.precision[:, level - 1, ALL], batch.positives(level))


@fast("P@R")
def r_precision(batch: Batch, *, level: int) -> Floats:
    """The share of positives at a level, from 1, among the first R items of each query (Q,), R the
    number of its positives; NaN without positives."""
    return ratio(batch.sums.hits[:, level - 1, R], batch.positives(level))


@fast("mAP@R")
def map_at_r(batch: Batch, *, level: int) -> Floats:
    """The precisions at the positives among the first R items of each query (Q,), summed and
    divided by R, the number of its positives at a level, from 1; NaN without positives."""
    return ratio(batch.sums.precision[:, level - 1, R], batch.positives(level))


@fast("mAP")
def map_at_k(batch: Batch, *, cut: int, level: int) -> Floats:
    """The precisions at the positives among the first `cut` items of each query (Q,), summed and
    divided by as many positives at a level, from 1, as these can hold; NaN without positives."""
    precision = batch.at_cut(batch.sums.precision, level, cut)
    return ratio(precision, np.minimum(batch.positives(level), cut))


@fast("R")
def r_at_k(batch: Batch, *, cut: int, level: int) -> Floats:
    """1 for each query (Q,) with a positive at a level, from 1, among its first `cut` items, else
    0, also without positives: recall as metric learning means it."""
    return (batch.at_cut(batch.sums.hits, level, cut) > 0).astype(np.float64)


@fast("TR")
def tr_at_k(batch: Batch, *, cut: int, level: int, norm: Callable[[int, int], int]) -> Floats:
    """The positives at a level, from 1, among the first `cut` items of each query (Q,), divided by
    norm(cut, number of positives), which conventions take differently; NaN where that is 0."""
    total = np.array([norm(cut, positives) for positives in batch.positives(level).tolist()])
    return ratio(batch.at_cut(batch.sums.hits, level, cut), total)


@fast("P")
def p_at_k(batch: Batch, *, cut: int, level: int) -> Floats:
    """The share of positives at a level, from 1, among the first `cut` items of each query (Q,);
    NaN without positives. A list that is shorter than the cut is divided by the cut all the same.
    """
    hits = batch.at_cut(batch.sums.hits, level, cut)
    return np.where(batch.positives(level) > 0, hits / cut, np.nan)


@fast("HD")
def hierarchical_distance_at_k(batch: Batch, *, cut: int) -> Floats:
    """The mean distance in the tree, from 0 (the same finest class) to 1 (nothing in common), of
    the first `cut` items of each query (Q,); NaN without a positive at the finest level.

    An item of level l is among the positives of the levels 1 … l: so the levels of the first items
    sum to their hits, summed over all levels.
    """
    levels = np.sum(
        [batch.at_cut(batch.sums.hits, level, cut) for level in range(1, batch.depth + 1)], axis=0
    )
    # all of the finest level; a list may be shorter than the cut
    most = np.minimum(batch.request.counts.sum(axis=1), cut) * batch.depth
    return np.where(batch.positives(batch.depth) > 0, 1 - ratio(levels, most), np.nan)


@fast("wAP")
def w_ap(batch: Batch, *, weights: Sequence[float] | None) -> Floats:
    """The weighted mean of the APs of all levels of each query (Q,); a level at which the query has
    no positives is left out of its mean, and NaN is where it has none at any.

    `weights`: one per level, coarse to fine; None: equal ones.
    """
    depth = batch.depth
    terms = np.stack([ap(batch, level=level) for level in range(1, depth + 1)])  # (L, Q)
    defined = ~np.isnan(terms)
    of_level = np.array(level_weights(weights, depth))[:, None]  # (L, 1)
    # the weights of the levels that count for a query, which is what the sum is divided by
    return ratio(
        np.where(defined, of_level * terms, 0).sum(axis=0), (of_level * defined).sum(axis=0)
    )


@fast("ASI", "overlap")
def asi(batch: Batch) -> Floats:
    """Average set intersection of each query (Q,): how much of the ideal order's first k items its
    own first k have, averaged over k; NaN without positives. Column 0 has it for all levels."""
    share = np.minimum(batch.sums.intersection[:, 0], 1)  # sums round to 1 + 2e-16
    return np.where(batch.positives(1) > 0, share, np.nan)


@fast("ASI/", "binary")
def asi_binary(batch: Batch, *, level: int) -> Floats:
    """Average set intersection of each query (Q,) where the labels of a level, from 1, alone say
    what is right; NaN without positives there."""
    share = np.minimum(batch.sums.intersection[:, level], 1)  # sums round to 1 + 2e-16
    return np.where(batch.positives(level) > 0, share, np.nan)


@fast("NDCG", "gain")
def ndcg(batch: Batch) -> Floats:
    """NDCG of the whole list of each query (Q,)."""
    longest = int(batch.request.counts.sum(axis=1).max())  # a cut that cuts no list
    return _ndcg(batch, ALL, longest)


@fast("NDCG@", "gain")
def ndcg_at_k(batch: Batch, *, cut: int) -> Floats:
    """NDCG of the first `cut` items of each query (Q,)."""
    return _ndcg(batch, int(np.searchsorted(batch.request.cuts, cut)), cut)


def _ndcg(batch: Batch, column: int, cut: int) -> Floats:
    """NDCG of each query (Q,) up to rank `cut`, whose sums are in this `column`: the DCG divided by
    that of the ideal order, best levels first.

    DCG = Σ_l (g_l − g_{l−1})·gain(P_l): an item of level l has the gain g_l = 2^l − 1, and is among
    the positives P_1 … P_l. In the ideal order P_l has the ranks 1 … |P_l|.
    """
    dcg = np.zeros(len(batch.request.counts))
    ideal = np.zeros(len(batch.request.counts))
    # `sums.gain` (Q, L, C + 2) has level l at l − 1; `discount_sum[n]` is the gain of ranks 1 … n
    for level in range(1, batch.depth + 1):
        step = 2.0 ** (level - 1)  # g_l − g_{l−1}
        dcg += step * batch.sums.gain[:, level - 1, column]
        ideal += step * batch.request.tables.discount_sum[np.minimum(batch.positives(level), cut)]
    # the two are summed in other orders, so an ideal list may come out a little above 1
    return np.minimum(ratio(dcg, ideal), 1)


@fast("H-AP", "graded")
def h_ap(batch: Batch, *, graded: int) -> Floats:
    """Hierarchical AP of each query (Q,): the graded sum divided by the relevance of all positives;
    NaN without positives.

    `graded`: the number of the graded sum, as there is one per relevance that metrics ask for.
    """
    # relevance (Q, H, L + 1) and counts (Q, L + 1) are by level; level 0 is no positive
    total = (batch.request.relevance[:, graded] * batch.request.counts)[:, 1:].sum(axis=1)
    return ratio(batch.sums.graded[:, graded], total)


def ratio(part: NDArray[Any], whole: NDArray[Any]) -> Floats:
    """part / whole, both (Q,), NaN where whole is 0: a query with nothing to be found has no
    value."""
    result = np.full(len(part), np.nan)
    np.divide(part, whole, out=result, where=whole > 0)
    return result
