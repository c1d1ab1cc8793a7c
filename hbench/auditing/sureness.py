"""Says how sure it is that a label is wrong, calibrated by labels that are made wrong on purpose.

Labels of some items are swapped, one at a time, and what is seen of them is taken: the evidence s
against the swapped label, and how strange z the item would be in the class that its neighbours
propose. Its density is f₁. That of the labels as they are is f = (1 − π) f₀ + π f₁, where π is the
unknown share of wrong ones. The log-odds of f₁ against f₀ are taken as

    o = a + b·s + c·log(1 + s⁺) + d·z·min(s⁺/m, 1),    m the median evidence of swapped labels,

and f₁/f = 1 / (π + (1 − π) e^−o) saturates at 1 / π: that is how π is known. The coefficients and π
are those of the highest likelihood of telling swapped labels from those as they are; of all π that
are hardly less likely the smallest gives the sureness π f₁/f, and both ends the numbers of wrong
labels at least and at most. The bend c is for heavy tails, whose odds grow ever more slowly. Where
next to nothing lies between right labels and swapped ones it cannot be known, and is left out.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hbench.auditing.evidence import Best, Evidence, Indices
from hbench.auditing.likelihood import Sample, line_of
from hbench.auditing.strangeness import Strangeness
from hbench.auditing.swaps import draw_swaps

Floats = NDArray[np.float64]
FEWEST = 100  # swapped labels, below which nothing is said
BINS = 200
SHARES = np.concatenate([[1e-6], np.geomspace(1e-4, 0.4, 84)])  # π that are tried
# of the log-likelihood of the smallest and the largest π: the 98 and the 90 % interval of one
# parameter; a false alarm is worse than a miss
HARDLY_LESS = (2.7, 1.35)
# nats a level of evidence against swapped labels: below them classes overlap so much that the odds
# are no line, and sureness was too high (synthetic sets, Omniglot by two nets)
TENTH_OF_FAR = 3.0  # that nine of ten far ones reach
MEDIAN_OF_NEAR = 0.7
ITEMS_FOR_NEAR = 5_000  # siblings overlap: of fewer items their tail is not known well enough
APART = 0.1  # as many suspects below the weakest swapped labels as above, or fewer: nothing between
WEAKEST = 0.05  # quantile of swapped labels


class Seen(NamedTuple):
    """What is seen of labels: the `evidence` (m,) against them, and how strange (m,) items would be
    in the proposed classes."""

    evidence: Floats
    strange: Floats

    @classmethod
    def of(cls, items: Indices, best: Best, strangeness: Strangeness) -> Seen:
        """Of the best alternatives (m,) of items (m,)."""
        return cls(best.evidence, strangeness.in_class(items, best.classes))

    def at(self, chosen: NDArray[np.bool_]) -> Seen:
        """What is seen of some labels; `chosen`: a mask (m,)."""
        return Seen(self.evidence[chosen], self.strange[chosen])

    def features(self, middle: float) -> Floats:
        """What the log-odds are a sum of, (m, 3). Evidence s, strangeness that counts the more, the
        nearer s comes to `middle`, and log(1 + s⁺); evidence below 0 counts only as s."""
        against = np.maximum(self.evidence, 0)
        strange = self.strange * np.minimum(against / middle, 1)
        return np.stack([self.evidence, strange, np.log1p(against)], axis=1)


class Sureness(NamedTuple):
    """From what is seen to sureness. `share`: π, of labels that are wrong in this way; `line`: the
    height and the coefficients (4,); `middle`: m; `is_trusted`: whether swapped labels stand out
    enough; `most`: the largest π that is hardly less likely; `is_apart`: whether next to nothing
    lies between right and swapped labels."""

    share: float
    line: Floats
    middle: float
    is_trusted: bool
    most: float
    is_apart: bool

    def odds(self, seen: Seen) -> Floats:
        """The log-odds (m,) that order suspects; the evidence where nothing is trusted.

        o = a + b·s + c·log(1 + s⁺) + d·z·min(s⁺/m, 1) of the evidence s and the strangeness z:
        `line` has a, b, c and d, and `middle` is m, the median evidence of swapped labels.
        """
        if not self.is_trusted:
            return seen.evidence
        return line_of(self.line, [np.ones(len(seen.evidence)), *seen.features(self.middle).T])

    def of(self, seen: Seen) -> Floats:
        """The sureness (m,), NaN where it is not trusted. `share`: π, of labels that are wrong in
        this way: with it the odds, a ratio of likelihoods, become a probability."""
        if not self.is_trusted:
            return np.full(len(seen.evidence), np.nan)
        # exp of more would overflow, and is 0 or 1 for anybody
        odds = np.clip(self.odds(seen), -50, 50)
        return self.share / (self.share + (1 - self.share) * np.exp(-odds))


NOT_TRUSTED = Sureness(0.0, np.zeros(4), 1.0, is_trusted=False, most=1.0, is_apart=False)


def calibrate_sureness(
    evidence: Evidence, strangeness: Strangeness, observed: Seen, *, is_far: bool
) -> Sureness:
    """Fit the sureness of far or near suspects to what is `observed` of the labels as they are,
    without those that have no alternative. NOT_TRUSTED where swapped labels are too few, or do not
    stand out. `evidence`, `strangeness`: what is seen of any item under any class."""
    votes = evidence.votes
    swaps = draw_swaps(votes, np.random.default_rng(0), is_far=is_far)
    found = evidence.alternatives(*swaps)
    best = found.far if is_far else found.near
    has_some = np.isfinite(best.evidence)
    if min(int(has_some.sum()), len(observed.evidence)) < FEWEST:
        return NOT_TRUSTED
    of_swaps = Seen.of(swaps.items, best, strangeness).at(has_some)
    # siblings overlap: of fewer items the tail of right labels among wrong ones is not known
    if not is_far and len(votes.classes) < ITEMS_FOR_NEAR:
        return NOT_TRUSTED
    if not _stand_out(of_swaps.evidence / votes.depth, is_far=is_far):  # nats for each level
        return NOT_TRUSTED
    ratio = len(of_swaps.evidence) / len(votes.classes)
    return _fit_curve(observed, of_swaps, ratio)


def _stand_out(scores: Floats, *, is_far: bool) -> bool:
    """Whether the evidence against swapped labels, in nats a level, is strong enough."""
    if is_far:
        return bool(np.quantile(scores, 1 - 0.9) >= TENTH_OF_FAR)
    return bool(np.median(scores) >= MEDIAN_OF_NEAR)


class Ends(NamedTuple):
    """The smallest and the largest π that are hardly less likely than any, and the line of the
    smallest."""

    least: float
    most: float
    line: Floats


def _fit_curve(observed: Seen, of_swaps: Seen, ratio: float) -> Sureness:
    """Fit the curve that turns what is seen into sureness, by the highest likelihood; of all shares
    π of wrong labels that are hardly less likely the smallest counts.

    `observed`: what is seen of the labels as they are; `of_swaps`: of those that were swapped on
    purpose; `ratio`: of swapped labels to all items."""
    middle = max(float(np.median(of_swaps.evidence)), 1e-6)  # it divides, so it is not 0
    are_apart = _are_apart(observed, of_swaps)
    # the third feature bends the line; with nothing between right and swapped it is unknown
    columns = 2 if are_apart else 3

    # left out of the fit: items with less evidence, whose neighbours plainly agree with the label
    lowest = min(float(np.median(observed.evidence)), 0.0)
    both = [each.at(each.evidence > lowest) for each in (observed, of_swaps)]
    features = [each.features(middle)[:, :columns] for each in both]
    center = features[1].mean(axis=0)
    width = features[1].std(axis=0) + 1e-9
    sample = _sample(both, [(each - center) / width for each in features], ratio)

    # back from standard units to those of the features
    found = _likely_shares(sample)
    slopes = np.zeros(3)
    slopes[:columns] = found.line[1:] / width
    height = found.line[0] - slopes[:columns] @ center
    line = np.array([height, *slopes])
    return Sureness(found.least, line, middle, True, found.most, are_apart)


def _are_apart(observed: Seen, of_swaps: Seen) -> bool:
    """Whether next to nothing lies between right labels and swapped ones. `of_swaps`: what would be
    seen of labels that were swapped on purpose."""
    weakest = np.quantile(of_swaps.evidence, WEAKEST)
    # labels with some evidence against them, but less than nearly all swapped ones have
    between = int(((observed.evidence > 0) & (observed.evidence < weakest)).sum())
    return between <= APART * int((observed.evidence >= weakest).sum())


def _likely_shares(sample: Sample) -> Ends:
    """Find the smallest and the largest share π of wrong labels that is hardly less likely than the
    likeliest: each of SHARES is tried, with the line that fits it best.
    """
    lines = []
    costs = []
    line = np.zeros(sample.features.shape[1])
    for share in SHARES:
        line, cost = sample.fit(line, share)
        lines.append(line)
        costs.append(cost)
    above = np.array(costs) - min(costs)
    # by nats of log-likelihood below the best: at the low end the limit is the looser one, for a
    # false alarm is worse than a miss
    least = int(np.flatnonzero(above <= HARDLY_LESS[0])[0])
    most = int(np.flatnonzero(above <= HARDLY_LESS[1])[-1])
    return Ends(float(SHARES[least]), float(SHARES[most]), lines[least])


def _sample(both: list[Seen], features: list[Floats], ratio: float) -> Sample:
    """Make the sample of labels as they are and swapped ones (`both`), with their `features`
    (m, p) each, of which the first is the evidence. Labels without evidence against them, nearly
    all, differ in the first feature alone: they are counted in bins, for speed; all others are
    taken one by one. `ratio`: of the number of swapped labels to that of all items.
    """
    is_low = [each.evidence <= 0 for each in both]
    low = [each[some] for each, some in zip(features, is_low, strict=True)]
    whole = np.sort(np.concatenate(low)[:, 0])
    # bins of equal numbers; equal values may leave fewer bins, or none
    edges = np.unique(np.quantile(whole, np.linspace(0, 1, BINS + 1))) if len(whole) else whole
    # a row per bin: any label's, whose first feature is replaced by the middle of the bin
    binned = np.repeat(np.concatenate([*low, features[1]])[:1], max(len(edges) - 1, 0), axis=0)
    counts = [np.zeros(0), np.zeros(0)]
    if len(edges) > 1:
        binned[:, 0] = (edges[1:] + edges[:-1]) / 2
        counts = [np.histogram(each[:, 0], edges)[0].astype(float) for each in low]
    high = [each[~some] for each, some in zip(features, is_low, strict=True)]
    ones = [np.ones(len(each)) for each in high]
    rows = np.concatenate([binned, *high])
    # how often each row is seen: of labels as they are, and of swapped ones
    return Sample(
        np.concatenate([np.ones((len(rows), 1)), rows], axis=1),
        np.concatenate([counts[0], ones[0], 0 * ones[1]]),
        np.concatenate([counts[1], 0 * ones[0], ones[1]]),
        ratio,
    )
