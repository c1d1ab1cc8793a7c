"""Quantiles of Student's t distribution, for intervals from the variance of few units.

>>> round(t_quantile(11), 3), round(t_quantile(1), 3), round(t_quantile(1e9), 3)
(2.201, 12.706, 1.96)
"""

import math
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.float64]

# quantiles of the normal distribution
NORMAL = 1.959963984540054  # the quantile .975
ONE_SIDED = 1.6448536269514722  # the quantile .95
# the probability between the median, 0, and each of these quantiles
BESIDE_MEDIAN = {NORMAL: 0.475, ONE_SIDED: 0.45}
SERIES_FROM = 5.0  # with so many degrees of freedom the series is accurate to three digits


def t_quantile(freedom: float, normal: float = NORMAL) -> float:
    """Return the quantile of Student's t with `freedom` degrees of freedom, .975 or .95. `normal`
    tells which: it is the same quantile of the normal distribution, NORMAL or ONE_SIDED.

    From 5 degrees of freedom on it is the series of Abramowitz and Stegun (1964, 26.7.5).
    """
    z = normal
    nu = max(freedom, 1.0)  # below 1 the quantile would grow without bound
    # the series is inaccurate for few degrees of freedom: solve the integral, which takes longer
    if nu < SERIES_FROM:
        return _small_t_quantile(nu, BESIDE_MEDIAN[normal])
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    return z + sum(term / nu**power for power, term in enumerate(terms, start=1))


# cached, since the nodes take two thirds of the time of a quantile, and thresholds need thousands
@lru_cache(maxsize=1)
def _gauss_legendre(number: int) -> tuple[Values, Values]:
    """Return `number` nodes in (−1, 1) and their weights for Gauss–Legendre quadrature."""
    nodes, weights = np.polynomial.legendre.leggauss(number)
    return nodes, weights


def _small_t_quantile(nu: float, probability: float) -> float:
    """Return t > 0 with P(0 < T < t) = `probability` for Student's T with few degrees of freedom,
    ν = `nu`.

    With t = √ν tan θ, P(0 < T < t) = Γ((ν+1)/2)/(√π Γ(ν/2)) ∫₀^θ cos^(ν−1) u du. The integral is
    computed by Gauss–Legendre quadrature with 64 nodes, and θ by 60 bisections. Both are as
    accurate as a float.
    """
    nodes, weights = _gauss_legendre(64)
    scale = math.exp(math.lgamma((nu + 1) / 2) - math.lgamma(nu / 2)) / math.sqrt(math.pi)
    low = 0.0
    high = math.pi / 2
    for _ in range(60):
        theta = (low + high) / 2
        # theta/2 (nodes + 1) are the nodes in (0, θ), and the weights are scaled by θ/2
        within = scale * theta / 2 * float(weights @ np.cos(theta / 2 * (nodes + 1)) ** (nu - 1))
        low, high = (theta, high) if within < probability else (low, theta)
    return math.sqrt(nu) * math.tan(low)
