"""A batch: the sums of several queries, and the metrics as functions of them, fast twins of those in hbench.metrics.

A fast metric takes a batch of Q queries and the same keywords as its twin, and gives float64 (Q,), NaN where undefined.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hbench.relevance import level_weights
from hbench.sums import Sums, Tables

Floats = NDArray[np.float64]
Graded = tuple[Floats, NDArray[np.int64]]
FastMetric = Callable[..., Floats]
R, ALL = -2, -1  # the columns of the sums at R = |P_l| and of the whole list


@dataclass(frozen=True)
class Batch:
    """`counts` (Q, L+1): items per level. `cuts` (C,): the first columns of the sums, which have one more axis (Q, …).

    Of H graded sums, `relevance` and `weight` (Q, H, L+1).
    """

    counts: NDArray[np.int64]
    cuts: tuple[int, ...]
    relevance: Floats
    weight: NDArray[np.int64]
    sums: Sums
    tables: Tables

    @classmethod
    def empty(cls, counts: NDArray[np.int64], cuts: tuple[int, ...], grades: Sequence[Graded], tables: Tables) -> Batch:
        """Sums of 0, which is what a query without positives keeps."""
        queries, levels, graded = counts.shape[0], counts.shape[1] - 1, len(grades)
        shape = (queries, levels, len(cuts) + 2)
        relevance, weight = np.zeros((queries, graded, levels + 1)), np.ones((queries, graded, levels + 1), np.int64)
        for place, (of_levels, counted) in enumerate(grades):
            relevance[:, place], weight[:, place] = of_levels, counted
        hits, precision, gain = np.zeros(shape, np.int64), np.zeros(shape), np.zeros(shape)
        sums = Sums(hits, precision, gain, np.zeros((queries, graded)), np.zeros((queries, levels + 1)))
        return cls(counts, cuts, relevance, weight, sums, tables)

    def out(self, query: int) -> Sums:
        """Where the sums of one query are kept."""
        return Sums(*(array[query] for array in self.sums))

    def positives(self, level: int) -> NDArray[np.int64]:
        """|P_l| (Q,)."""
        total: NDArray[np.int64] = self.counts[:, level:].sum(axis=1)
        return total

    def at(self, sums: NDArray[Any], level: int, column: int) -> NDArray[Any]:
        """One column of the sums of a level (Q,)."""
        at: NDArray[Any] = sums[:, level - 1, column]
        return at


def ap(batch: Batch, *, level: int) -> Floats:
    return ratio(batch.at(batch.sums.precision, level, ALL), batch.positives(level))


def map_at_r(batch: Batch, *, level: int) -> Floats:
    return ratio(batch.at(batch.sums.precision, level, R), batch.positives(level))


def map_at_k(batch: Batch, *, cut: int, level: int) -> Floats:
    precision = batch.at(batch.sums.precision, level, batch.cuts.index(cut))
    return ratio(precision, np.minimum(batch.positives(level), cut))


def r_at_k(batch: Batch, *, cut: int, level: int) -> Floats:
    return (batch.at(batch.sums.hits, level, batch.cuts.index(cut)) > 0).astype(np.float64)


def tr_at_k(batch: Batch, *, cut: int, level: int, norm: Callable[[int, int], int]) -> Floats:
    total = np.array([norm(cut, each) for each in batch.positives(level).tolist()])
    return ratio(batch.at(batch.sums.hits, level, batch.cuts.index(cut)), total)


def p_at_k(batch: Batch, *, cut: int, level: int) -> Floats:
    hits = batch.at(batch.sums.hits, level, batch.cuts.index(cut))
    return np.where(batch.positives(level) > 0, hits / cut, np.nan)


def w_ap(batch: Batch, *, weights: Sequence[float] | None) -> Floats:
    depth = batch.counts.shape[1] - 1
    terms = np.stack([ap(batch, level=level) for level in range(1, depth + 1)])
    defined = ~np.isnan(terms)
    of_level = np.array(level_weights(weights, depth))[:, None]
    return ratio(np.where(defined, of_level * terms, 0).sum(axis=0), (of_level * defined).sum(axis=0))


def asi(batch: Batch) -> Floats:
    return np.where(batch.positives(1) > 0, batch.sums.intersection[:, 0], np.nan)


def asi_binary(batch: Batch, *, level: int) -> Floats:
    return np.where(batch.positives(level) > 0, batch.sums.intersection[:, level], np.nan)


def ndcg(batch: Batch) -> Floats:
    return _ndcg(batch, ALL, int(batch.counts.sum(axis=1).max()))


def ndcg_at_k(batch: Batch, *, cut: int) -> Floats:
    return _ndcg(batch, batch.cuts.index(cut), cut)


def _ndcg(batch: Batch, column: int, cut: int) -> Floats:
    """DCG = Σ_l (g_l − g_{l−1})·gain(P_l), g_l = 2^l − 1; in the ideal order P_l has the ranks 1 … |P_l|."""
    depth = batch.counts.shape[1] - 1
    dcg, ideal = np.zeros(len(batch.counts)), np.zeros(len(batch.counts))
    for level in range(1, depth + 1):
        step = 2.0 ** (level - 1)
        dcg += step * batch.at(batch.sums.gain, level, column)
        ideal += step * batch.tables.discount_sum[np.minimum(batch.positives(level), cut)]
    return ratio(dcg, ideal)


def h_ap(batch: Batch, *, graded: int) -> Floats:
    """`graded`: which of the graded sums."""
    return ratio(batch.sums.graded[:, graded], (batch.relevance[:, graded] * batch.counts)[:, 1:].sum(axis=1))


FAST: dict[str, FastMetric] = {
    "AP": ap,
    "mAP@R": map_at_r,
    "mAP": map_at_k,
    "R": r_at_k,
    "TR": tr_at_k,
    "P": p_at_k,
    "wAP": w_ap,
    "ASI": asi,
    "ASI/": asi_binary,
    "NDCG": ndcg,
    "NDCG@": ndcg_at_k,
    "H-AP": h_ap,
}


def ratio(part: NDArray[Any], whole: NDArray[Any]) -> Floats:
    """part / whole, NaN where whole is 0."""
    result = np.full(len(part), np.nan)
    np.divide(part, whole, out=result, where=whole > 0)
    return result
