"""Intervals and tests for means over queries that are grouped in units, by default their finest
classes.

Queries of one class are often right or wrong together. A mean over 25 classes of 40 queries each is
hardly more certain than a mean over 25 queries. So intervals and tests treat the units, not the
queries, as the random sample.

>>> values, units = np.array([[1.0, 1.0, 0.0, 0.0, 1.0, 0.5]]), np.array([0, 0, 1, 1, 2, 2])
>>> sums = UnitSums.of(values, units)
>>> sums.means.round(4).tolist(), sums.parts.round(4).tolist()
([0.5833], [[0.3333, 0.0, 0.25]])
>>> holm([0.01, 0.04, 0.03]).tolist()
[0.03, 0.06, 0.06]
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hbench.metrics.significance.student_t import NORMAL, ONE_SIDED, t_quantile

FLIPS = 10_000  # random patterns of signs in a test
EXACT = 13  # up to so many units all patterns of signs are counted: 2^13 are fewer than FLIPS
AT_ONCE = 256  # patterns drawn at once
SEED = 20240101
MIN_UNITS = 12  # with fewer units no interval can be trusted
SMALLEST = 1e-30  # a variance up to this is nothing but rounding
ROUNDS = 3  # iterations of the weights in `_common`: the third changes no digit that is shown
ROUNDED = 1e-12  # a mean difference up to this is nothing but rounding

Values = NDArray[np.float64]
Units = NDArray[np.int64]


class UnitSums(NamedTuple):
    """The means of M metrics, and what each of G units contributes to them.

    Attributes:
        means: (M,).
        parts: (M, G), the contribution of each unit to the mean; a row sums to the mean.
        errors: (M, G), the part of a unit minus its share of the mean; a row sums to 0.
        shares: (M, G), the weight of each unit in the mean; a row sums to 1.
        trials: (M,), the number of independent trials that would determine the mean as precisely,
            under the assumption that large units are like small ones (`trials_of`).
    """

    means: Values
    parts: Values
    errors: Values
    shares: Values
    trials: Values

    @classmethod
    def of(cls, values: Values, units: Units, tests: Units | None = None) -> UnitSums:
        """Sum the values of queries by units, groups of queries such as a class. A dataset may have
        several tests, sets of queries with their galleries. The mean is taken over the queries of
        each test, and then over the tests; it is NaN if a test has no defined value.

        In the result, `parts` (M, G) are what each unit adds to the mean, `errors` the same of the
        values' differences from the mean of their test, `shares` the weight of each unit, and
        `trials` (M,) the number of independent trials that would be as precise as the mean.

        Args:
            values: (M, Q), NaN where undefined.
            units: (Q,), the unit of each query, 0 … G − 1.
            tests: (Q,), the test of each query, from 0; None: all queries are of one test.
        """
        of_tests = np.zeros_like(units) if tests is None else tests
        groups = int(units.max(initial=-1)) + 1  # 0 where there are no queries
        several = int(of_tests.max(initial=0)) + 1
        cell = of_tests * groups + units  # (Q,): the pair of a test and a unit, as one number
        defined = ~np.isnan(values)
        # (M, tests, G) each: the number of defined values of a unit in a test, and their sum
        counts = _summed(defined, cell, several, groups)
        sums = _summed(np.where(defined, values, 0), cell, several, groups)

        with np.errstate(divide="ignore", invalid="ignore"):
            # (M, tests, 1) each: every test has the same weight, split equally among its queries
            queries = counts.sum(axis=2, keepdims=True)
            means = sums.sum(axis=2, keepdims=True) / queries
            weight = 1 / (several * queries)
            # (M, G), as are `parts` and `errors`: sums over the tests
            shares = (counts * weight).sum(1)
            return cls(
                means=means.mean(axis=(1, 2)),
                parts=(sums * weight).sum(1),
                errors=((sums - counts * means) * weight).sum(1),
                shares=shares,
                trials=_trials(
                    values, units, shares=shares, counts=counts.sum(1), sums=sums.sum(1)
                ),
            )

    @classmethod
    def of_counts(cls, counts: Values, ones: Values) -> UnitSums:
        """Make the sums of values that are 0 or 1, all of the same weight. `counts` (M, G) are the
        number of values of each of M metrics in each of G units; `ones` (M, G) say how many of them
        are 1.

        >>> sums = UnitSums.of_counts(np.array([[2.0, 2.0]]), np.array([[2.0, 1.0]]))
        >>> sums.means.tolist(), sums.parts.tolist()
        ([0.75], [[0.5, 0.25]])
        """
        with np.errstate(divide="ignore", invalid="ignore"):
            weight = 1 / counts.sum(axis=1, keepdims=True)
            means = ones.sum(axis=1, keepdims=True) * weight
            shares = counts * weight
        # the effective number of independent trials, NaN where only one unit has values
        trials = np.full(len(counts), np.nan)
        for row, of_row in enumerate(counts):
            has = of_row > 0  # (G,): units that have values
            if has.sum() > 1:  # a single unit does not show how much units vary
                own = ones[row][has]  # also the sums of squares, since 0² = 0 and 1² = 1
                trials[row] = trials_of(shares[row][has], of_row[has], sums=own, squares=own)
        errors = (ones - counts * means) * weight  # each unit's part minus its share of the mean
        return cls(means[:, 0], parts=ones * weight, errors=errors, shares=shares, trials=trials)

    @property
    def units(self) -> Units:
        """The number of units that have values, (M,): those with a share above 0."""
        return np.asarray((self.shares > 0).sum(axis=1))

    @property
    def variance(self) -> Values:
        """The variance of each mean, (M,): Σ_g e_g² / (1 − s_g), with the errors e and the shares
        s of the units g.

        It is the sandwich estimator for a ratio of sums, with the correction CR2 for the leverage s
        (Bell and McCaffrey 2002).
        """
        return np.asarray(self._terms.sum(axis=1))

    @property
    def _terms(self) -> Values:
        """The term of each unit in the variance of the mean, (M, G). NaN for a unit of share 1: a
        single unit does not show a variance."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.asarray(self.errors**2 / (1 - self.shares))

    @property
    def freedom(self) -> Values:
        """The degrees of freedom of the variance, (M,): the number of effective units minus one,
        but at most 1.5 (Σ v_g)² / Σ v_g², and at least 1; v_g is unit g's term of the variance.

        Satterthwaite's (Σ v_g)² / Σ v_g² is the number of units that determine the variance: if a
        few units contribute nearly all of it, it is as uncertain as if only these existed. Observed
        v_g vary more than their expectations, so the formula gives too few (for equal units with
        normal errors a third of the number of units). The factor 1.5 makes the third a half; by
        simulation, intervals then still have their coverage (docs/intervals.md).
        """
        terms = self._terms  # (M, G): the v_g
        with np.errstate(divide="ignore", invalid="ignore"):
            determining = terms.sum(axis=1) ** 2 / (terms**2).sum(axis=1)
        # fmin and fmax ignore NaN: with a variance of 0 the effective units alone decide
        return np.asarray(np.fmax(np.fmin(self.effective_units - 1, 1.5 * determining), 1.0))

    @property
    def effective_units(self) -> Values:
        """The number of units of equal share that would be as informative, (M,): 1 / Σ_g s_g², s_g
        the share of unit g in the mean."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.asarray(1 / (self.shares**2).sum(axis=1))


def _summed(values: NDArray[Any], cell: Units, tests: int, groups: int) -> Values:
    """Sum the values (M, Q) by test and unit: (M, tests, groups). `cell` (Q,): the number of the
    test times `groups` plus the number of the unit."""
    rows = [np.bincount(cell, row, tests * groups) for row in values]
    return np.array(rows, np.float64).reshape(len(values), tests, groups)


def _trials(
    values: Values, units: Units, *, shares: Values, counts: Values, sums: Values
) -> Values:
    """Compute for each of M means the number of independent trials (values of 0 or 1) that would
    be as precise, (M,); NaN for a mean of fewer than two units.

    `trials_of` takes the variance of the values from the sums of their squares by unit.

    Args:
        values: (M, Q), of the queries, NaN where undefined.
        units: (Q,), the unit of each query.
        shares: (M, G), the weight of each unit in the mean.
        counts: (M, G), the number of values of each unit.
        sums: (M, G), the sum of the values of each unit.
    """
    found = np.full(len(values), np.nan)
    for row, of_queries in enumerate(np.where(np.isnan(values), 0, values) ** 2):
        has = counts[row] > 0  # (G,): units that have values
        # A single unit does not show how much units vary. Shares are NaN where a test has no
        # defined value of this metric.
        if has.sum() > 1 and not np.isnan(shares[row]).any():
            squares = np.bincount(units, of_queries, len(has))[has]
            own_shares, own_counts = shares[row][has], counts[row][has]
            found[row] = trials_of(own_shares, own_counts, sums=sums[row][has], squares=squares)
    return found


def trials_of(shares: Values, counts: Values, *, sums: Values, squares: Values) -> float:
    """Return how many independent trials (values of 0 or 1) would have a mean with the same
    variance as a mean over units: μ(1 − μ) divided by this variance, where μ is the mean.
    Infinite if the variance is 0.

    A mean may depend on a few large units among many small ones, too few to show how much
    units vary. So its variance is estimated from all units, on the assumption that the mean of a
    unit does not depend on its size: the mean of n_g values then has the variance τ² + σ²/n_g
    around a common μ, and the mean with the shares s_g has the variance Σ s_g² (τ² + σ²/n_g).

    >>> equal = np.full(2, 0.5), np.full(2, 3.0)
    >>> trials_of(*equal, sums=np.array([3.0, 0.0]), squares=np.array([3.0, 0.0]))
    1.0

    Args:
        shares: the weight of each unit in the mean, (G,), above 0, with sum 1.
        counts: the number of values of each unit, (G,).
        sums: the sum of the values of each unit, (G,).
        squares: the sum of the squared values of each unit, (G,).
    """
    means = sums / counts
    # σ², the pooled variance within units; rounding must not make it negative
    within = np.maximum(squares - sums * means, 0).sum() / max(counts.sum() - len(counts), 1)
    mean, between = _common(means, within / counts)  # μ, and τ²: the variance between units
    variance = float((shares**2 * (between + within / counts)).sum())
    return mean * (1 - mean) / variance if variance > SMALLEST else np.inf


def _common(means: Values, own: Values) -> tuple[float, float]:
    """Estimate μ and τ² for the means (G,) of units whose `own` variances (G,) are known: by the
    method of moments, with weights 1 / (τ² + own variance), iterated (DerSimonian and Kacker
    2007). Returns (μ, τ²)."""
    weights = np.ones(len(means))  # τ² is unknown at first, so all units weigh the same
    for _ in range(ROUNDS):
        weights = weights / weights.sum()
        # Σ w (m − μ)² is Σ w(1 − w)(τ² + own variance) in expectation: solved for τ², at least 0
        # sums, as the last bits of inner products depend on the number of threads
        mean = float((weights * means).sum())
        spread = (weights * (means - mean) ** 2).sum() - (weights * (1 - weights) * own).sum()
        between = max(float(spread / (weights * (1 - weights)).sum()), 0.0)
        weights = 1 / np.maximum(between + own, SMALLEST)
    return mean, between


def mean_intervals(sums: UnitSums) -> Values:
    """Compute 95 % intervals (M, 2) of M means of values in [0, 1], for the population of which the
    units are a sample; NaN with fewer than two units.

    The interval is Agresti and Coull's, p ± t √(p(1 − p)/n′) with n′ = n + t² and p = (n m +
    t²/2)/n′ for the mean m. In place of the number of trials it has the effective number n = m(1 −
    m)/variance, and Student's t with the degrees of freedom of the variance (Korn and Graubard
    1998; Dean and Pagano 2015). If all values are 0, or all 1, there is no variance, and n is the
    number of effective units (`UnitSums.effective_units`). In the middle of [0, 1] this is close to
    the t interval; near 0 and 1 it does not collapse. Values outside of [0, 1] have the t interval.

    If a few large units determine a mean and happen to be right, their variance is small, and the
    effective number n is far too large. So the interval is widened to contain the interval with n =
    `sums.trials`, which all units determine.
    """
    # the normal distribution's quantile for 95 %, which stands for the probability of Student's t
    return _intervals(sums, NORMAL)


def upper_bounds(sums: UnitSums) -> Values:
    """Compute one-sided upper 95 % bounds (M,) of means of values in [0, 1]: the upper ends of the
    intervals of `mean_intervals` with the quantile .95; NaN with fewer than two units."""
    return np.asarray(_intervals(sums, ONE_SIDED)[:, 1])


def bound_without_errors(units: float) -> float:
    """Return the one-sided upper 95 % bound of a mean over equal units whose values are all 0.

    `units`: their number. It may be a fraction: the effective number of unequal units. The interval
    is Agresti and Coull's, with the quantile of Student's t in place of the normal one, since there
    are few units. With fewer than 2 units the bound is 1: nothing is known.

    >>> round(bound_without_errors(60), 4)
    0.0533
    """
    if units < 2:
        return 1.0
    # [1]: the upper end of the interval of so many trials, all of value 0
    return _of_trials(0.0, units, t_quantile(units - 1, ONE_SIDED))[1]


def _intervals(sums: UnitSums, normal: float) -> Values:
    """Compute the intervals (M, 2), low and high, of the means of M metrics; NaN with fewer than
    two units. `sums`: what the units contribute to the means. `normal`: the quantile of the normal
    distribution, such as 1.96 for 95 %. Means of values beyond [0, 1] have the t interval, others
    Agresti and Coull's interval of a fraction of trials, of which there are an effective number."""
    low_high = np.full((len(sums.means), 2), np.nan)
    columns = zip(sums.means, sums.variance, sums.effective_units, sums.freedom, strict=True)
    for row, (mean, variance, units, freedom) in enumerate(columns):
        if sums.units[row] < 2 or np.isnan(mean):  # a single unit does not show a variance
            continue
        t = t_quantile(freedom, normal)
        inside = mean * (1 - mean)  # the variance of values that are 0 or 1
        # all values are 0, or all 1, up to rounding
        all_alike = variance <= SMALLEST and abs(inside) < 1e-9
        # values in [0, 1] with this mean have at most the variance `inside`, and their mean less.
        # An estimate from few units may be larger; one above twice that shows values outside of [0,
        # 1]
        if not all_alike and variance > 2 * inside:
            low_high[row] = mean - t * math.sqrt(variance), mean + t * math.sqrt(variance)
            continue
        n = units if all_alike else inside / max(variance, SMALLEST)
        low, high = _of_trials(mean, n, t)
        # n is from the observed variance, which depends on the few large units: if these happen to
        # be right, n is far too large. `trials` is the same number from a variance that is modelled
        # with all units, hence the normal quantile. The interval contains both. NaN: too few units
        if not all_alike and sums.trials[row] > 0:
            wider = _of_trials(mean, sums.trials[row], normal)
            low, high = min(low, wider[0]), max(high, wider[1])
        low_high[row] = low, high

    return low_high


def _of_trials(mean: float, n: float, t: float) -> tuple[float, float]:
    """Return Agresti and Coull's interval (low, high) for a `mean` of `n` trials, each 0 or 1.

    It adds t²/2 trials of value 0 and as many of value 1, so that it does not collapse at a mean of
    0 or 1, and extends `t` standard errors to each side. It is clipped to [0, 1], and widened if
    necessary to contain the mean itself.
    """
    if math.isinf(n):  # infinitely many trials: the mean is known exactly
        return mean, mean
    n_more = n + t**2
    p = (n * mean + t**2 / 2) / n_more
    half = t * math.sqrt(max(p * (1 - p), 0) / n_more)
    return min(max(p - half, 0), mean), max(min(p + half, 1), mean)


def difference_intervals(sums: UnitSums) -> Values:
    """Compute 95 % intervals (M, 2) of mean differences: mean ± t √variance, where the variance is
    that of the mean and t has one degree of freedom less than there are effective units.

    NaN with fewer than two units, and if all units differ by the same amount other than 0: then
    nothing shows how much units vary.
    """
    t = np.array([t_quantile(units - 1) for units in sums.effective_units])
    # if the mean difference is 0, too, nothing differs: the interval is 0 … 0
    all_alike = (sums.variance <= SMALLEST) & (np.abs(sums.means) > ROUNDED)
    half = np.where((sums.units > 1) & ~all_alike, t * np.sqrt(sums.variance), np.nan)
    return np.stack([sums.means - half, sums.means + half], axis=1)


def sign_flip_p(sums: UnitSums, *, seed: int = SEED) -> Values:
    """Compute two-sided p-values (M,) of mean differences by Fisher's randomisation test: how often
    the sum of the units' parts, each with a random sign, is at least as far from 0 as observed.

    Exact for up to EXACT units, by counting all patterns of signs. For more it is (b + 1)/(n + 1),
    where b of n = 10,000 random patterns are as far from 0, and so at least .0001 (Phipson and
    Smyth 2010). `seed`: of the random patterns, which all metrics share.
    """
    # (units, M), without the units whose parts are 0 in every metric: the sign of 0 has no effect
    parts = sums.parts[:, (np.nan_to_num(sums.parts) != 0).any(axis=0)].T
    # slightly reduced, so that sums that are smaller by rounding only count as equal
    observed = np.abs(parts.sum(axis=0)) * (1 - 1e-12)
    # (M,): how many patterns give a sum at least as far from 0
    extreme = np.zeros(len(sums.means))
    patterns = 0
    units = len(parts)
    exact = units <= EXACT

    for signs in _sign_patterns(units, seed):
        extreme += (np.abs(signs @ parts) >= observed).sum(axis=0)
        patterns += len(signs)

    p = extreme / patterns if exact else (extreme + 1) / (patterns + 1)
    return np.where(np.isnan(sums.means), np.nan, p)


def _sign_patterns(units: int, seed: int) -> Iterator[Values]:
    """Yield arrays of patterns of signs ±1, (n, units): all 2^units patterns for up to EXACT
    `units`, else FLIPS random ones, at most AT_ONCE in an array to save memory. `seed`: of the
    random patterns."""
    if units <= EXACT:
        yield np.array([*product((-1.0, 1.0), repeat=units)])
        return

    rng = np.random.default_rng(seed)
    for start in range(0, FLIPS, AT_ONCE):
        number = min(AT_ONCE, FLIPS - start)
        # one random bit per sign, eight in each byte; bits 0 and 1 become −1 and 1
        drawn = rng.integers(256, size=(number, -(-units // 8)), dtype=np.uint8)
        bits = np.unpackbits(drawn, axis=1)[:, :units]
        yield np.asarray(2.0 * bits - 1, np.float64)


def holm(p: Sequence[float]) -> Values:
    """Correct p-values for multiple tests by Holm's method: the k-th smallest of m is multiplied by
    m − k + 1. The results are at most 1, and a larger p-value never has a smaller result (Holm
    1979).
    """
    values = np.asarray(p, np.float64)
    order = np.argsort(values)
    steps = values[order] * np.arange(len(values), 0, -1)  # multiplied by m, m − 1, … 1
    result = np.empty(len(values))
    result[order] = np.minimum(np.maximum.accumulate(steps), 1)
    return result
