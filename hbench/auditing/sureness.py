"""Says how sure it is that a label is wrong, calibrated by labels that are made wrong on purpose.

Labels of some items are swapped, one at a time, and the evidence against the swapped label is
taken: its density is f₁. That of the labels as they are is f = (1 − π) f₀ + π f₁, where π is the
unknown share of wrong ones. The log-odds of f₁ against f₀ grow with the evidence s as a + b·s, so

    f₁(s) / f(s) = 1 / (π + (1 − π) e^−(a + b·s)),

which saturates at 1 / π: that is how π is known. a, b and π are those of the highest likelihood of
telling swapped labels from those as they are; of all π that are hardly less likely, the smallest.
The sureness is π f₁(s) / f(s).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from hbench.auditing.evidence import Evidence, Indices
from hbench.auditing.swaps import swapped

Floats = NDArray[np.float64]
FEWEST = 100  # swapped labels, below which nothing is said
BINS = 200
SHARES = np.concatenate([[1e-6], np.geomspace(2e-4, 0.4, 30)])  # π that are tried
HARDLY_LESS = 1.35  # of the log-likelihood: the 90 % interval of one parameter
# nats a level of evidence against swapped labels: below them classes overlap so much that the odds
# are no line, and sureness was too high (synthetic sets, Omniglot by two nets)
TENTH_OF_FAR = 3.0  # that nine of ten far ones reach
MEDIAN_OF_NEAR = 0.7
ITEMS_FOR_NEAR = 5_000  # siblings overlap: of fewer items their tail is not known well enough


class Sureness(NamedTuple):
    """A curve from evidence to sureness. `share`: π, of labels that are wrong in this way; `start`
    and `slope`: a and b; `is_trusted`: whether swapped labels stand out enough."""

    share: float
    start: float
    slope: float
    is_trusted: bool

    def of(self, evidence: Floats) -> Floats:
        """The sureness (N,) of evidence (N,); 0 without evidence, NaN where it is not trusted."""
        if not self.is_trusted:
            return np.full(len(evidence), np.nan)
        has_some = np.isfinite(evidence)
        odds = np.clip(self.start + self.slope * np.where(has_some, evidence, 0), -50, 50)
        sureness = self.share / (self.share + (1 - self.share) * np.exp(-odds))
        return np.where(has_some, sureness, 0.0)


def calibrated(evidence: Evidence, observed: Floats, *, is_far: bool, seed: int = 0) -> Sureness:
    """Fit the sureness of far or near suspects to the evidence against the labels as they are,
    (N,), −inf where there is none."""
    votes = evidence.votes
    swaps = swapped(votes, np.random.default_rng(seed), is_far=is_far)
    of_swaps = evidence.alternatives(*swaps)
    scores = (of_swaps.far if is_far else of_swaps.near).evidence
    scores = scores[np.isfinite(scores)]
    observed = observed[np.isfinite(observed)]
    is_enough = min(len(scores), len(observed)) >= FEWEST
    if not is_far:
        is_enough = is_enough and len(votes.classes) >= ITEMS_FOR_NEAR
    if not is_enough or not _stand_out(scores / votes.depth, is_far=is_far):
        return Sureness(0.0, 0.0, 0.0, is_trusted=False)
    return Sureness(*_fitted(Densities.of(observed, scores)), is_trusted=True)


def _stand_out(scores: Floats, *, is_far: bool) -> bool:
    """Whether the evidence against swapped labels, in nats a level, is strong enough."""
    if is_far:
        return bool(np.quantile(scores, 0.1) >= TENTH_OF_FAR)
    return bool(np.median(scores) >= MEDIAN_OF_NEAR)


class Densities(NamedTuple):
    """Evidence in bins: `middle` (B,) of each in standard units, how many labels are in it as they
    are, and how many swapped; `ratio`: of swapped labels to others; `center`, `width`: the units.
    """

    middle: Floats
    as_is: Indices
    swapped: Indices
    ratio: float
    center: float
    width: float

    @classmethod
    def of(cls, observed: Floats, of_swaps: Floats) -> Densities:
        """The densities in the upper half of what is observed."""
        lowest = np.median(observed)
        both = [each[each > lowest] for each in (observed, of_swaps)]
        whole = np.sort(np.concatenate(both))
        edges = np.unique(np.quantile(whole, np.linspace(0, 1, BINS + 1)))
        as_is, swapped = (np.histogram(each, edges)[0] for each in both)
        sums = np.histogram(whole, edges, weights=whole)[0]
        center = float(np.median(whole))
        width = float(whole.std()) or 1.0
        middle = (sums / np.maximum(as_is + swapped, 1) - center) / width
        return cls(middle, as_is, swapped, len(of_swaps) / len(observed), center, width)

    def cost(self, line: Floats, share: float) -> float:
        """The negative log-likelihood of which labels are swapped, by a line of log-odds (its
        height, and the logarithm of its slope) and the share of wrong labels."""
        odds = np.clip(line[0] + np.exp(line[1]) * self.middle, -50, 50)
        seen = share + (1 - share) * np.exp(-odds)
        chance = self.ratio / (self.ratio + seen)
        likely = self.swapped * np.log(chance) + self.as_is * np.log1p(-chance)
        return -float(likely.sum())


def _fitted(densities: Densities) -> tuple[float, float, float]:
    """The share π, and a and b, of the highest likelihood; of shares that are hardly less likely,
    the smallest."""
    line = np.zeros(2)
    lines = []
    costs = []
    for share in SHARES:
        starts = (line, np.zeros(2))
        found = [
            minimize(densities.cost, start, (share,), method="Nelder-Mead") for start in starts
        ]
        best = min(found, key=lambda fit: float(fit.fun))
        line = best.x
        lines.append(line)
        costs.append(float(best.fun))

    at = int(np.flatnonzero(np.array(costs) <= min(costs) + HARDLY_LESS)[0])
    slope = float(np.exp(lines[at][1])) / densities.width
    return float(SHARES[at]), float(lines[at][0]) - slope * densities.center, slope
