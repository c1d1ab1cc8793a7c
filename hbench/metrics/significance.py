"""Intervals and tests of means over queries that come in units, by default their finest classes.

Queries of one class are often right or wrong together: a mean over 25 classes of 40 queries is
known about as well as a mean over 25 queries. So intervals and tests take the classes, not the
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
from functools import lru_cache
from itertools import product
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

FLIPS = 10_000
EXACT = 13  # units, up to which all patterns of signs are counted: 2^13 are fewer than FLIPS
AT_ONCE = 256  # patterns drawn at once
SEED = 20240101
MIN_UNITS = 12  # units, below which no interval can be trusted
NORMAL = 1.959963984540054  # the quantile .975
ONE_SIDED = 1.6448536269514722  # the quantile .95
BESIDE_MEDIAN = {NORMAL: 0.475, ONE_SIDED: 0.45}  # the probability between 0 and each of them
SMALLEST = 1e-30  # a variance that is rounding alone
ROUNDS = 3  # of weighing units by what they say: the third changes no digit that is shown
ROUNDED = 1e-12  # a mean difference that is rounding alone

Values = NDArray[np.float64]
Units = NDArray[np.int64]


class UnitSums(NamedTuple):
    """Means (M,) and what each of G units adds to them.

    `parts` (M, G) sum to the mean, `errors` (M, G) to 0: a unit's part less the mean's share of it;
    `shares` (M, G) of the weight sum to 1. `trials` (M,): how many independent ones say as much as
    the mean, where large units are like small ones.
    """

    means: Values
    parts: Values
    errors: Values
    shares: Values
    trials: Values

    @classmethod
    def of(cls, values: Values, units: Units, tests: Units | None = None) -> UnitSums:
        """Sum the values (M, Q), NaN where undefined, by the units (Q,), 0 … G − 1. The mean is
        over the queries of a test, then over the tests (Q,); NaN where a test defines none."""
        of_tests = np.zeros_like(units) if tests is None else tests
        groups = int(units.max(initial=-1)) + 1  # 0 where there are no queries
        several = int(of_tests.max(initial=0)) + 1
        cell = of_tests * groups + units  # (Q,): the pair of a test and a unit
        defined = ~np.isnan(values)
        # (M, tests, G): how many values a unit has in a test, and their sum
        counts = _summed(defined, cell, several, groups)
        sums = _summed(np.where(defined, values, 0), cell, several, groups)

        with np.errstate(divide="ignore", invalid="ignore"):
            # (M, tests, 1): every test has the same weight, and its queries share it
            queries = counts.sum(axis=2, keepdims=True)
            means = sums.sum(axis=2, keepdims=True) / queries
            weight = 1 / (several * queries)
            shares = (counts * weight).sum(1)  # (M, G), like the others: summed over the tests
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
        """The means of values 0 and 1, of which every unit has `counts` (M, G), `ones` (M, G) of
        them 1; all values weigh the same. The square of such a value is the value itself.

        >>> sums = UnitSums.of_counts(np.array([[2.0, 2.0]]), np.array([[2.0, 1.0]]))
        >>> sums.means.tolist(), sums.parts.tolist()
        ([0.75], [[0.5, 0.25]])
        """
        with np.errstate(divide="ignore", invalid="ignore"):
            weight = 1 / counts.sum(axis=1, keepdims=True)
            means = ones.sum(axis=1, keepdims=True) * weight
            shares = counts * weight
        trials = np.full(len(counts), np.nan)
        for row, of_row in enumerate(counts):
            has = of_row > 0  # (G,): units that have values
            if has.sum() > 1:  # of one unit nothing tells how much units vary
                own = ones[row][has]
                trials[row] = trials_of(shares[row][has], of_row[has], sums=own, squares=own)
        errors = (ones - counts * means) * weight
        return cls(means[:, 0], parts=ones * weight, errors=errors, shares=shares, trials=trials)

    @property
    def units(self) -> Units:
        """The number of units, (M,), that each mean has values of: their share of it is not 0."""
        return np.asarray((self.shares > 0).sum(axis=1))

    @property
    def variance(self) -> Values:
        """The variance of each mean (M,), linearised by units: Σ_g e_g² / (1 − s_g) with the errors
        e and shares s.

        It is the sandwich estimate for a ratio of sums with the correction CR2 for the leverage s
        (Bell and McCaffrey 2002).
        """
        return np.asarray(self._terms.sum(axis=1))

    @property
    def _terms(self) -> Values:
        """What each unit adds to the variance of the mean, (M, G); a unit that is all of the mean
        has share 1, and no variance can be told (NaN)."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.asarray(self.errors**2 / (1 - self.shares))

    @property
    def freedom(self) -> Values:
        """Degrees of freedom of the variance (M,): one less than the effective units, but at most
        1.5 (Σ v_g)² / Σ v_g², where unit g adds v_g to the variance.

        Satterthwaite's (Σ v_g)² / Σ v_g² is the number of units that the variance rests on: where a
        few units make nearly all of it, it is known as badly as of these alone. Observed v are more
        uneven than their expectations (equal units of normal errors rest on a third of themselves),
        so half as many again are taken (docs/intervals.md).
        """
        terms = self._terms
        with np.errstate(divide="ignore", invalid="ignore"):
            resting_on = terms.sum(axis=1) ** 2 / (terms**2).sum(axis=1)
        # fmin, fmax: where no variance tells `resting_on`, the effective units alone decide
        return np.asarray(np.fmax(np.fmin(self.effective_units - 1, 1.5 * resting_on), 1.0))

    @property
    def effective_units(self) -> Values:
        """1 / Σ_g s_g² (M,), s_g the share of unit g in the mean: how many units of equal share say
        as much."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.asarray(1 / (self.shares**2).sum(axis=1))


def _summed(values: NDArray[Any], cell: Units, tests: int, groups: int) -> Values:
    """Sum the values (M, Q) by `cell` (Q,), the number of a test times `groups` and that of a unit:
    (M, tests, groups)."""
    rows = [np.bincount(cell, row, tests * groups) for row in values]
    return np.array(rows, np.float64).reshape(len(values), tests, groups)


def _trials(
    values: Values, units: Units, *, shares: Values, counts: Values, sums: Values
) -> Values:
    """How many independent trials say as much as each mean over units (M,), by `trials_of`; NaN for
    a mean of fewer than two units.

    `values` (M, Q): of the queries, NaN where undefined; `units` (Q,): the unit of each query, such
    as its class; `shares`, `counts`, `sums` (M, G): of the units, each unit's weight in the mean,
    its number of values and their sum.
    """
    found = np.full(len(values), np.nan)
    for row, of_queries in enumerate(np.where(np.isnan(values), 0, values) ** 2):
        has = counts[row] > 0  # (G,): units that have values
        # of one unit nothing tells how much units vary; NaN: a test defines no value of this metric
        if has.sum() > 1 and not np.isnan(shares[row]).any():
            squares = np.bincount(units, of_queries, len(has))[has]
            own = shares[row][has], counts[row][has]  # of the units that have values
            found[row] = trials_of(*own, sums=sums[row][has], squares=squares)
    return found


def trials_of(shares: Values, counts: Values, *, sums: Values, squares: Values) -> float:
    """How many independent trials say as much as a mean over units, where large units are like
    small ones: μ(1 − μ) over its variance; infinite where all values are alike.

    The variance of a mean over a few large units and many small ones rests on the few, whose values
    hardly tell how much units vary. All units together do, if the mean of a unit has nothing to do
    with its size: that of n_g values has the variance τ² + σ²/n_g around a common μ, and the mean
    with the shares s_g the variance Σ s_g² (τ² + σ²/n_g).

    >>> equal = np.full(2, 0.5), np.full(2, 3.0)
    >>> trials_of(*equal, sums=np.array([3.0, 0.0]), squares=np.array([3.0, 0.0]))
    1.0

    Args:
        shares: of the units in the weight, (G,), above 0, with the sum 1.
        counts: how many values each has, (G,).
        sums: of the values of each, (G,).
        squares: of the squared values of each, (G,).
    """
    means = sums / counts
    # σ², the variance within units, pooled; the maximum keeps rounding from making it negative
    within = np.maximum(squares - sums * means, 0).sum() / max(counts.sum() - len(counts), 1)
    mean, between = _common(means, within / counts)
    variance = float((shares**2 * (between + within / counts)).sum())
    return mean * (1 - mean) / variance if variance > SMALLEST else np.inf


def _common(means: Values, own: Values) -> tuple[float, float]:
    """μ and τ² of means (G,) whose own variances (G,) are known: by moments, each unit weighed by
    what it says (DerSimonian and Kacker 2007)."""
    weights = np.ones(len(means))
    for _ in range(ROUNDS):
        weights = weights / weights.sum()
        # Σ w (m − μ)² is Σ w(1 − w)(τ² + own variance) in expectation: solved for τ², at least 0
        mean = float(weights @ means)
        spread = weights @ (means - mean) ** 2 - (weights * (1 - weights)) @ own
        between = max(float(spread / (weights @ (1 - weights))), 0.0)
        weights = 1 / np.maximum(between + own, SMALLEST)
    return mean, between


def mean_intervals(sums: UnitSums) -> Values:
    """95 % intervals (M, 2) of means of values in [0, 1], which hold of other units like these; NaN
    with fewer than two units.

    The Agresti–Coull interval p ± t √(p(1 − p)/n′), n′ = n + t², p = (n m + t²/2)/n′, around the
    mean m, with the effective number n = m(1 − m)/variance in place of the number of trials and
    Student's t with the variance's degrees of freedom (Korn and Graubard 1998; Dean and Pagano
    2015). Where all values are 0 or all 1, n is the effective units. In the middle it is the t
    interval; near 0 and 1 it does not collapse. Means outside of [0, 1] have the t interval.

    That n rests on the large units, and is far too large where these happen to be right: so the
    interval also holds the one of `trials`, to which all units testify.
    """
    return _intervals(sums, NORMAL)


def upper_bounds(sums: UnitSums) -> Values:
    """The one-sided 95 % bounds (M,) above means of values in [0, 1]: the upper ends of the same
    intervals by the quantile .95; NaN with fewer than two units."""
    return np.asarray(_intervals(sums, ONE_SIDED)[:, 1])


def bound_without_errors(units: float) -> float:
    """The one-sided 95 % bound above the mean of `units` equal units, all of whose values are 0.

    The number is an effective one and may be a fraction: unequal units say as much as fewer equal
    ones. The interval is that of a share of right answers, with the quantile of t in place of the
    normal one, since there are few units; of fewer than 2 nothing is known.

    >>> round(bound_without_errors(60), 4)
    0.0533
    """
    if units < 2:
        return 1.0
    return _of_trials(0.0, units, _t_quantile(units - 1, ONE_SIDED))[1]


def _intervals(sums: UnitSums, normal: float) -> Values:
    """The intervals (M, 2) of the means of M metrics, as `mean_intervals` explains them, by a
    `normal` quantile, such as 1.96 for 95 %: of Student's t around the mean, or, for means of
    fractions, which this would let reach beyond 0 and 1, those of shares of trials."""
    low_high = np.full((len(sums.means), 2), np.nan)
    columns = zip(sums.means, sums.variance, sums.effective_units, sums.freedom, strict=True)
    for row, (mean, variance, units, freedom) in enumerate(columns):
        if sums.units[row] < 2 or np.isnan(mean):  # nothing tells how much units vary
            continue
        t = _t_quantile(freedom, normal)
        inside = mean * (1 - mean)  # the variance of a value that is 0 or 1
        all_alike = variance <= SMALLEST and abs(inside) < 1e-9  # all 0 or all 1, but for rounding
        # fractions with this mean have a variance of `inside` at most, their mean even less: twice
        # as much shows values outside of [0, 1]
        if not (all_alike or variance <= 2 * inside):
            low_high[row] = mean - t * math.sqrt(variance), mean + t * math.sqrt(variance)
            continue
        n = units if all_alike else inside / max(variance, SMALLEST)
        low, high = _of_trials(mean, n, t)
        if not all_alike and sums.trials[row] > 0:  # not NaN, where too few units tell
            wider = _of_trials(mean, sums.trials[row], normal)
            low, high = min(low, wider[0]), max(high, wider[1])
        low_high[row] = low, high

    return low_high


def _of_trials(mean: float, n: float, t: float) -> tuple[float, float]:
    """Agresti and Coull's interval, low and high, of a mean of n trials of 0 or 1, `t` standard
    errors wide on each side: cut to [0, 1], and widened to hold the mean itself. As if t²/2 trials
    of each kind were added, so that it does not collapse at a mean of 0 or 1."""
    if math.isinf(n):  # of trials without end the mean is known
        return mean, mean
    n_more = n + t**2
    p = (n * mean + t**2 / 2) / n_more
    half = t * math.sqrt(max(p * (1 - p), 0) / n_more)
    return min(max(p - half, 0), mean), max(min(p + half, 1), mean)


def difference_intervals(sums: UnitSums) -> Values:
    """95 % intervals (M, 2) of mean differences: mean ± t √variance, t of one less than the
    effective units.

    NaN with fewer than two units, and where all units differ by the same amount: how much units
    vary is not known then.
    """
    t = np.array([_t_quantile(units - 1) for units in sums.effective_units])
    # where nothing differs at all, the interval is 0 … 0
    all_alike = (sums.variance <= SMALLEST) & (np.abs(sums.means) > ROUNDED)
    half = np.where((sums.units > 1) & ~all_alike, t * np.sqrt(sums.variance), np.nan)
    return np.stack([sums.means - half, sums.means + half], axis=1)


def sign_flip_p(sums: UnitSums, *, seed: int = SEED) -> Values:
    """The two-sided p-values (M,) of mean differences: how often a random sign for each unit's part
    gives a sum as far from 0.

    Exact for up to 13 units; else (b + 1)/(n + 1) for b of n = 10,000 random patterns, which the
    `seed` decides, so at least .0001 (Fisher's randomisation test; Phipson and Smyth 2010). All
    metrics share the patterns.
    """
    # (units, M), without units that differ nowhere: the sign of 0 changes nothing
    parts = sums.parts[:, (np.nan_to_num(sums.parts) != 0).any(axis=0)].T
    # sums that differ by rounding alone count as equal
    observed = np.abs(parts.sum(axis=0)) * (1 - 1e-12)
    # (M,): how many patterns give a sum as far from 0
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
    """Yield patterns of signs ±1 for so many `units`, (n, units): all that there are for up to
    EXACT units, else FLIPS random ones, which the `seed` decides, AT_ONCE at a time so that few are
    held."""
    if units <= EXACT:
        yield np.array([*product((-1.0, 1.0), repeat=units)])
        return

    rng = np.random.default_rng(seed)
    for start in range(0, FLIPS, AT_ONCE):
        number = min(AT_ONCE, FLIPS - start)
        # one bit a sign, so one random byte gives eight; bits 0 and 1 become −1 and 1
        drawn = rng.integers(256, size=(number, -(-units // 8)), dtype=np.uint8)
        bits = np.unpackbits(drawn, axis=1)[:, :units]
        yield np.asarray(2.0 * bits - 1, np.float64)


def holm(p: Sequence[float]) -> Values:
    """Holm-corrected p-values: the k-th smallest of m times m − k + 1, never falling, at most 1
    (Holm 1979).
    """
    values = np.asarray(p, np.float64)
    order = np.argsort(values)
    steps = values[order] * np.arange(len(values), 0, -1)  # times m, m − 1, … 1
    result = np.empty(len(values))
    result[order] = np.minimum(np.maximum.accumulate(steps), 1)
    return result


SERIES_FROM = 5.0  # degrees of freedom from which the series holds to three digits


def _t_quantile(freedom: float, normal: float = NORMAL) -> float:
    """The quantile of Student's t with `freedom` degrees of freedom, of the same probability as
    `normal`, NORMAL or ONE_SIDED, is a quantile of the normal distribution: 1.96 is that of .975.

    By the series of Abramowitz and Stegun (1964, 26.7.5), from 5 degrees of freedom on.
    """
    z = normal
    nu = max(freedom, 1.0)  # below 1 the quantile would explode
    # of few degrees the series is wrong: the integral itself, which takes longer
    if nu < SERIES_FROM:
        return _small_t_quantile(nu, BESIDE_MEDIAN[normal])
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    return z + sum(term / nu**power for power, term in enumerate(terms, start=1))


# made once: they are two thirds of the time of a quantile, of which thresholds take thousands
@lru_cache(maxsize=1)
def _gauss_legendre(number: int) -> tuple[Values, Values]:
    """The nodes in (−1, 1) and the weights of Gauss and Legendre's rule, `number` of each."""
    nodes, weights = np.polynomial.legendre.leggauss(number)
    return nodes, weights


def _small_t_quantile(nu: float, probability: float) -> float:
    """The t above 0 with P(0 < T < t) = `probability` for Student's T with ν, few, degrees of
    freedom: with t = √ν tan θ, P(0 < T < t) = Γ((ν+1)/2)/(√π Γ(ν/2)) ∫₀^θ cos^(ν−1) u du. The
    integral by 64 nodes of Gauss and Legendre, θ by 60 halvings, both to the digits of a float."""
    nodes, weights = _gauss_legendre(64)
    scale = math.exp(math.lgamma((nu + 1) / 2) - math.lgamma(nu / 2)) / math.sqrt(math.pi)
    low = 0.0
    high = math.pi / 2
    for _ in range(60):
        theta = (low + high) / 2
        within = scale * theta / 2 * float(weights @ np.cos(theta / 2 * (nodes + 1)) ** (nu - 1))
        low, high = (theta, high) if within < probability else (low, theta)
    return math.sqrt(nu) * math.tan(low)
