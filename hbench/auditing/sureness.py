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

from hbench.auditing.evidence import Evidence, Indices, Votes

Floats = NDArray[np.float64]
SWAPS = 4_000
FEWEST = 100  # swapped labels, below which nothing is said
SMALLEST = 3  # items of a class, below which its votes say too little
BINS = 200
SHARES = np.concatenate([[1e-6], np.geomspace(2e-4, 0.4, 30)])  # π that are tried
HARDLY_LESS = 1.35  # of the log-likelihood: the 90 % interval of one parameter
# nats a level of evidence against swapped labels, measured on synthetic sets: below them classes
# overlap so much that the odds are no line, and sureness would be too high
TENTH_OF_FAR = 2.0  # that nine of ten far ones reach
MEDIAN_OF_NEAR = 0.7


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


class Swaps(NamedTuple):
    """Items (m,) and the wrong classes (m,) that they are given."""

    items: Indices
    classes: Indices


def calibrated(evidence: Evidence, observed: Floats, *, is_far: bool, seed: int = 0) -> Sureness:
    """Fit the sureness of far or near suspects to the evidence against the labels as they are,
    (N,), −inf where there is none."""
    votes = evidence.votes
    swaps = swapped(votes, np.random.default_rng(seed), is_far=is_far)
    of_swaps = evidence.alternatives(*swaps)
    scores = (of_swaps.far if is_far else of_swaps.near).evidence
    scores = scores[np.isfinite(scores)]
    observed = observed[np.isfinite(observed)]
    if min(len(scores), len(observed)) < FEWEST:
        return Sureness(0.0, 0.0, 0.0, is_trusted=False)

    weakest = np.quantile(scores, 0.1) if is_far else np.median(scores)
    needed = TENTH_OF_FAR if is_far else MEDIAN_OF_NEAR
    share, start, slope = _fitted(observed, scores)
    return Sureness(share, start, slope, is_trusted=bool(weakest >= needed * votes.depth))


def swapped(votes: Votes, rng: np.random.Generator, *, is_far: bool) -> Swaps:
    """Draw items, and for each the class of another item: one with its parent, or one that leaves
    its path at a level above, each as often. Items without such another are left out.
    """
    number = min(SWAPS, 2 * len(votes.classes))
    order = np.argsort(votes.classes, kind="stable")
    ranked = votes.classes[order]
    items = rng.integers(0, len(ranked), number)
    own = votes.classes[items]
    known = votes.known[own]
    leaves = rng.integers(0, np.maximum(known - 1, 1)) if is_far else known - 1

    # the classes of a node lie side by side in the tree, and so do the items sorted by class
    first_above, last_above = _range_of(votes, ranked, own, leaves - 1)
    first, last = _range_of(votes, ranked, own, leaves)
    others = (last_above - first_above) - (last - first)
    place = first_above + (rng.random(number) * others).astype(np.int64)
    place = np.where(place >= first, place + (last - first), place)
    drawn = ranked[np.minimum(place, len(ranked) - 1)]

    sizes = np.bincount(votes.classes, minlength=len(votes.paths))
    is_deep = known > 1 if is_far else known > 0
    kept = (others > 0) & is_deep & (sizes[drawn] >= SMALLEST - 1)
    kept &= votes.known[drawn] > leaves
    return Swaps(items[kept], drawn[kept])


def _range_of(
    votes: Votes, ranked: Indices, classes: Indices, level: Indices
) -> tuple[Indices, Indices]:
    """Where the items of the node of each class at a level lie among all items sorted by class; the
    level −1 is the root."""
    first = np.zeros(len(classes), np.int64)
    last = np.full(len(classes), len(ranked), np.int64)
    for at in range(votes.depth):
        here = level == at
        nodes = votes.paths[:, at]
        first[here] = np.searchsorted(nodes[ranked], nodes[classes[here]], side="left")
        last[here] = np.searchsorted(nodes[ranked], nodes[classes[here]], side="right")
    return first, last


def _fitted(observed: Floats, of_swaps: Floats) -> tuple[float, float, float]:
    """The share π, and a and b, of the highest likelihood, by the upper half of the observed."""
    lowest = np.median(observed)
    both = [each[each > lowest] for each in (observed, of_swaps)]
    whole = np.sort(np.concatenate(both))
    edges = np.unique(np.quantile(whole, np.linspace(0, 1, BINS + 1)))
    as_is, swapped_ones = (np.histogram(each, edges)[0] for each in both)
    sums = np.histogram(whole, edges, weights=whole)[0]
    middle = sums / np.maximum(as_is + swapped_ones, 1)
    center = float(np.median(whole))
    width = float(whole.std()) or 1.0
    ratio = len(of_swaps) / len(observed)

    def cost(line: Floats, share: float) -> float:
        odds = np.clip(line[0] + np.exp(line[1]) * (middle - center) / width, -50, 50)
        seen = share + (1 - share) * np.exp(-odds)
        chance = ratio / (ratio + seen)
        likely = swapped_ones * np.log(chance) + as_is * np.log1p(-chance)
        return -float(likely.sum())

    line = np.zeros(2)
    fits = []
    for share in SHARES:
        starts = (line, np.zeros(2))
        found = [minimize(cost, start, (share,), method="Nelder-Mead") for start in starts]
        best = min(found, key=lambda fit: float(fit.fun))
        line = best.x
        fits.append((float(best.fun), line))

    costs = np.array([fit for fit, _ in fits])
    at = int(np.flatnonzero(costs <= costs.min() + HARDLY_LESS)[0])
    slope = float(np.exp(fits[at][1][1])) / width
    return float(SHARES[at]), float(fits[at][1][0]) - slope * center, slope
