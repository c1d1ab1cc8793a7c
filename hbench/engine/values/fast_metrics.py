"""Fast metrics: the metrics of hbench.metrics.definitions, computed for a batch of queries from
sums over the ranks of their positives.

A fast metric takes a batch of Q queries and the same keywords as its twin in
hbench.metrics.definitions. It returns float64 (Q,), NaN where undefined.
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
# columns of the sums: up to rank R = |P_l|, and over the whole list
R = -2
ALL = -1


# the fast metrics, by the base of a metric's name; a metric is fast if it is here
FAST: dict[str, Callable[..., Floats]] = {}
# what each fast metric needs summed besides hits and precisions, by the same names
NEEDS: dict[str, str] = {}


def fast(base: str, needs: str = "") -> Callable[[Callable[..., Floats]], Callable[..., Floats]]:
    """A decorator that registers a function as the fast twin of the metric with this base name: it
    computes the metric's values from sums.

    `needs`: what must be summed besides hits and precisions: "graded", sums weighted by relevance;
    "binary", the ASI of each level's binary labels; "gain", the discounts of NDCG; "overlap", the
    ASI of all levels; or "", nothing else.
    """

    def add(value: Callable[..., Floats]) -> Callable[..., Floats]:
        """Register this function, and return it unchanged."""
        FAST[base], NEEDS[base] = value, needs
        return value

    return add


@dataclass(frozen=True)
class Batch:
    """The sums of Q queries, and the request for which they were computed.

    `request`: `counts` (Q, L + 1), the items of each list by level, from 0; `cuts` (C,), ascending;
    `relevance`, `weight` (Q, H, L + 1) of H graded sums; tables by rank.

    `sums`: `hits`, `precision`, `gain` (Q, L, C + 2): level l is in column l − 1; the last axis has
    the sums up to each of the C cuts, up to R, the number of positives, and of the whole list.
    `graded` (Q, H). `intersection` (Q, 1 + L): the ASI of all levels, then of each level alone.
    """

    request: SumRequest
    sums: Sums

    @classmethod
    def empty(cls, request: SumRequest) -> Batch:
        """A batch for the queries of a request, with sums of 0. A query without positives keeps
        these."""
        # (n, H, L + 1): H graded sums, such as that of H-AP; levels from 0 to L
        queries, graded, levels = request.relevance.shape
        # the cuts, then R, the number of positives, then the whole list
        columns = len(request.cuts) + 2
        shape = (queries, levels - 1, columns)  # nothing is summed at level 0, of distractors
        hits = np.zeros(shape, np.int64)
        precision = np.zeros(shape)
        gain = np.zeros(shape)
        # column 0: all levels; column l: level l
        intersection = np.zeros((queries, levels))
        graded_sums = np.zeros((queries, graded))
        sums = Sums(hits, precision, gain, graded_sums, intersection)
        return cls(request, sums)

    @property
    def depth(self) -> int:
        """L, the number of levels of the tree; counts have one column more, for level 0."""
        return int(self.request.counts.shape[1]) - 1

    def positives(self, level: int) -> NDArray[np.int64]:
        """|P_l| (Q,): how many items of each query's list are of this level (from 1) or finer."""
        total: NDArray[np.int64] = self.request.counts[:, level:].sum(axis=1)
        return total

    def at_cut(self, sums: NDArray[Any], level: int, cut: int) -> NDArray[Any]:
        """Select the sums (Q,) of a level (from 1) up to one of the request's cuts, out of `sums`
        (Q, L, C + 2)."""
        at: NDArray[Any] = sums[:, level - 1, int(np.searchsorted(self.request.cuts, cut))]
        return at


@fast("AP")
def ap(batch: Batch, *, level: int) -> Floats:
    """Average precision of each query (Q,) at a level (from 1): the mean of the precisions at the
    ranks of its positives; NaN without positives."""
    return ratio(batch.sums.precision[:, level - 1, ALL], batch.positives(level))


@fast("P@R")
def r_precision(batch: Batch, *, level: int) -> Floats:
    """The share of positives at a level (from 1) among the first R items of each query (Q,), where
    R is the number of its positives; NaN without positives."""
    return ratio(batch.sums.hits[:, level - 1, R], batch.positives(level))


@fast("mAP@R")
def map_at_r(batch: Batch, *, level: int) -> Floats:
    """The sum of the precisions at the positives among the first R items of each query (Q,),
    divided by R, the number of its positives at a level (from 1); NaN without positives."""
    return ratio(batch.sums.precision[:, level - 1, R], batch.positives(level))


@fast("mAP")
def map_at_k(batch: Batch, *, cut: int, level: int) -> Floats:
    """The sum of the precisions at the positives among the first `cut` items of each query (Q,),
    divided by the most positives at a level (from 1) that these items can have; NaN without
    positives."""
    precision = batch.at_cut(batch.sums.precision, level, cut)
    return ratio(precision, np.minimum(batch.positives(level), cut))


@fast("R")
def r_at_k(batch: Batch, *, cut: int, level: int) -> Floats:
    """1 for each query (Q,) with a positive at a level (from 1) among its first `cut` items, else
    0, also for a query without positives. This is recall as metric learning defines it."""
    return (batch.at_cut(batch.sums.hits, level, cut) > 0).astype(np.float64)


@fast("TR")
def tr_at_k(batch: Batch, *, cut: int, level: int, norm: Callable[[int, int], int]) -> Floats:
    """The number of positives at a level (from 1) among the first `cut` items of each query (Q,),
    divided by `norm(cut, number of positives)`, which differs between conventions; NaN where the
    norm is 0."""
    total = np.array([norm(cut, positives) for positives in batch.positives(level).tolist()])
    return ratio(batch.at_cut(batch.sums.hits, level, cut), total)


@fast("P")
def p_at_k(batch: Batch, *, cut: int, level: int) -> Floats:
    """The number of positives at a level (from 1) among the first `cut` items of each query (Q,),
    divided by `cut`, also where the list is shorter; NaN without positives."""
    hits = batch.at_cut(batch.sums.hits, level, cut)
    return np.where(batch.positives(level) > 0, hits / cut, np.nan)


@fast("HD")
def hierarchical_distance_at_k(batch: Batch, *, cut: int) -> Floats:
    """The mean distance in the tree, from 0 (the same finest class) to 1 (nothing in common), of
    the first `cut` items of each query (Q,); NaN without a positive at the finest level, since no
    ranking could then reach 0.

    An item of level l is a hit at each of the levels 1 … l. So the sum of the first items' levels
    is the number of their hits, summed over all levels.
    """
    # (Q,): the sum of the levels of each query's first items
    levels = np.sum(
        [batch.at_cut(batch.sums.hits, level, cut) for level in range(1, batch.depth + 1)], axis=0
    )
    # the sum if all of these items were of the finest level; a list, whose items of all levels from
    # 0 are in `counts`, may be shorter than the cut
    most = np.minimum(batch.request.counts.sum(axis=1), cut) * batch.depth
    return np.where(batch.positives(batch.depth) > 0, 1 - ratio(levels, most), np.nan)


@fast("wAP")
def w_ap(batch: Batch, *, weights: Sequence[float] | None) -> Floats:
    """The weighted mean of the APs of all levels, for each query (Q,). A level at which the query
    has no positives is left out of its mean; NaN if it has no positives at any level.

    `weights`: one per level, coarse to fine; None for equal weights.
    """
    depth = batch.depth
    terms = np.stack([ap(batch, level=level) for level in range(1, depth + 1)])  # (L, Q)
    defined = ~np.isnan(terms)
    of_level = np.array(level_weights(weights, depth))[:, None]  # (L, 1)
    weighted = np.where(defined, of_level * terms, 0)
    # divided by the weights of the levels at which the query has positives
    return ratio(weighted.sum(axis=0), (of_level * defined).sum(axis=0))


@fast("ASI", "overlap")
def asi(batch: Batch) -> Floats:
    """Average set intersection of each query (Q,): the share of the ideal order's first k items
    that are among its own first k items, averaged over k; NaN without positives."""
    share = np.minimum(batch.sums.intersection[:, 0], 1)  # sums round to 1 + 2e-16
    return np.where(batch.positives(1) > 0, share, np.nan)


@fast("ASI/", "binary")
def asi_binary(batch: Batch, *, level: int) -> Floats:
    """Average set intersection of each query (Q,), where the right items are the positives at one
    level (from 1) alone; NaN without positives at this level."""
    share = np.minimum(batch.sums.intersection[:, level], 1)  # sums round to 1 + 2e-16
    return np.where(batch.positives(level) > 0, share, np.nan)


@fast("NDCG", "gain")
def ndcg(batch: Batch) -> Floats:
    """NDCG of the whole list of each query (Q,)."""
    longest = int(batch.request.counts.sum(axis=1).max())  # a cut behind the end of every list
    return _ndcg(batch, ALL, longest)


@fast("NDCG@", "gain")
def ndcg_at_k(batch: Batch, *, cut: int) -> Floats:
    """NDCG of the first `cut` items of each query (Q,)."""
    return _ndcg(batch, int(np.searchsorted(batch.request.cuts, cut)), cut)


def _ndcg(batch: Batch, column: int, cut: int) -> Floats:
    """NDCG of each query (Q,) up to rank `cut`: the DCG divided by that of the ideal order, which
    has the finest levels first. `column`: the column of the sums up to this cut.

    DCG = Σ_l (g_l − g_{l−1})·gain(P_l): an item of level l has the gain g_l = 2^l − 1, and is among
    the positives P_1 … P_l. In the ideal order P_l has the ranks 1 … |P_l|.
    """
    dcg = np.zeros(len(batch.request.counts))
    ideal = np.zeros(len(batch.request.counts))
    # `discount_sum[n]` is the gain of ranks 1 … n
    for level in range(1, batch.depth + 1):
        step = 2.0 ** (level - 1)  # g_l − g_{l−1}
        dcg += step * batch.sums.gain[:, level - 1, column]
        ideal += step * batch.request.tables.discount_sum[np.minimum(batch.positives(level), cut)]
    # the two are summed in different orders, so the ratio of an ideal list may be a little above 1
    return np.minimum(ratio(dcg, ideal), 1)


@fast("H-AP", "graded")
def h_ap(batch: Batch, *, graded: int) -> Floats:
    """Hierarchical AP of each query (Q,): the graded sum divided by the relevance of all positives;
    NaN without positives.

    `graded`: the index of the metric's graded sum, as there is one for each relevance.
    """
    # products (Q, L + 1), by level; [:, 1:] leaves out level 0, the distractors
    total = (batch.request.relevance[:, graded] * batch.request.counts)[:, 1:].sum(axis=1)
    return ratio(batch.sums.graded[:, graded], total)


def ratio(part: NDArray[Any], whole: NDArray[Any]) -> Floats:
    """part / whole, both (Q,); NaN where whole is 0, as a query without positives has no value."""
    result = np.full(len(part), np.nan)
    np.divide(part, whole, out=result, where=whole > 0)
    return result
