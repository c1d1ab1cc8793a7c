"""Significance: intervals and tests on per-query values, seeded, the same on every machine.

>>> mean_interval(np.array([[1.0, 1.0, 1.0]])).tolist()
[[1.0, 1.0]]
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hbench.core.compiled import one_blas_thread

RESAMPLES = 2000
FLIPS = 10_000
SEED = 20240101
AT_ONCE = 32  # rows of signs drawn at once
SAMPLES = 16  # of queries drawn at once

Values = NDArray[np.float64]


def mean_interval(values: Values, *, resamples: int = RESAMPLES, seed: int = SEED) -> Values:
    """95 % percentile bootstrap intervals of the means over queries; (M, Q), NaN where undefined, -> (M, 2)."""
    return _interval(bootstrap_means(values, resamples=resamples, seed=seed))


def mean_of_tests_interval(tests: list[Values], *, resamples: int = RESAMPLES, seed: int = SEED) -> Values:
    """Likewise for the plain mean of the means of several independent tests, each (M, Q_t) -> (M, 2)."""
    means = [bootstrap_means(values, resamples=resamples, seed=seed + i) for i, values in enumerate(tests)]
    return _interval(np.mean(means, axis=0))


def bootstrap_means(values: Values, *, resamples: int = RESAMPLES, seed: int = SEED) -> Values:
    """The means of `resamples` samples of the queries with replacement; (M, Q) -> (resamples, M).

    A sample is a count per query, so that all metrics share it and their means are one matrix product.
    """
    queries, sizes = values.shape[1], [SAMPLES] * (resamples // SAMPLES) + [resamples % SAMPLES]
    rng, filled = np.random.default_rng(seed), Filled.of(values)
    with one_blas_thread(), ThreadPoolExecutor(1) as pool:  # which counts while the next samples are drawn
        futures = []
        for size in sizes:
            drawn = rng.integers(queries, size=(size, queries))
            futures.append(pool.submit(_means, drawn, filled))
            if len(futures) > 1:
                futures[-2].result()
        return np.concatenate([future.result() for future in futures])


class Filled(NamedTuple):
    """`values` (Q, M) with 0 where undefined; `partly` (M,): which metrics are, and where those are `defined` (Q, P)."""

    values: Values
    partly: NDArray[np.bool_]
    defined: Values

    @classmethod
    def of(cls, values: Values) -> Filled:
        """Of values (M, Q), NaN where undefined."""
        defined = ~np.isnan(values)
        partly: NDArray[np.bool_] = np.logical_not(defined.all(axis=1))
        return cls(np.where(defined, values, 0).T, partly, defined[partly].T.astype(np.float64))


def _means(drawn: NDArray[np.int64], filled: Filled) -> Values:
    """The means of samples, each a row of queries (S, Q), over the queries where a metric is defined."""
    queries, metrics = filled.values.shape
    counts = np.empty((len(drawn), queries))
    for sample, own in enumerate(drawn):
        counts[sample] = np.bincount(own, minlength=queries)
    total = np.full((len(drawn), metrics), float(queries))
    total[:, filled.partly] = counts @ filled.defined
    result = np.full(total.shape, np.nan)
    np.divide(counts @ filled.values, total, out=result, where=total > 0)
    return result


def paired_difference(first: Values, second: Values, *, seed: int = SEED) -> tuple[float, float, float, float]:
    """The mean of first − second over the queries where both are defined, its 95 % interval, and the p-value of a
    sign-flip test.

    The test asks how often random signs of the per-query differences (Q,) give a mean at least as far from 0;
    two-sided, (b+1)/(n+1).
    """
    difference = first - second
    difference = difference[~np.isnan(difference)]
    if not len(difference):
        return (float("nan"),) * 4
    low, high = mean_interval(difference[None], seed=seed)[0]
    rng = np.random.default_rng(seed)
    observed = abs(difference.mean())
    extreme = 0
    for start in range(0, FLIPS, AT_ONCE):
        signs = rng.integers(2, size=(min(AT_ONCE, FLIPS - start), len(difference)), dtype=np.int8)
        means = (2.0 * (signs @ difference) - difference.sum()) / len(difference)
        extreme += int((np.abs(means) >= observed * (1 - 1e-12)).sum())
    return float(difference.mean()), float(low), float(high), (extreme + 1) / (FLIPS + 1)


def _interval(means: Values) -> Values:
    with np.errstate(all="ignore"):
        defined = ~np.isnan(means).all(axis=0)
        result = np.full((means.shape[1], 2), np.nan)
        if defined.any():
            result[defined] = np.nanpercentile(means[:, defined], [2.5, 97.5], axis=0).T
    return result
