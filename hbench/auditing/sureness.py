"""Computes how sure it is that a label is wrong, calibrated with labels that are made wrong on
purpose.

Labels of some items are swapped, one at a time, and two values are observed: the evidence s against
the swapped label, and how strange z the item would be in the class that its neighbours propose.
Their density is f₁ for swapped labels. For the labels as they are, it is f = (1 − π) f₀ + π f₁,
where π is the unknown share of wrong labels. The log-odds of f₁ against f₀ are modelled as

    o = a + b·s + c·log(1 + s⁺) + d·z·min(s⁺/m, 1),    m the median evidence of swapped labels.

The ratio f₁/f = 1 / (π + (1 − π) e^−o) saturates at 1 / π, which reveals π. The coefficients and π
are those that best distinguish swapped labels from the labels as they are, by maximum likelihood.
Of all π that are hardly less likely, the smallest gives the sureness π f₁/f; the smallest and the
largest give the bounds on the number of wrong labels. The term with c bends the line for heavy
tails, whose odds grow ever more slowly. It is left out if there are hardly any labels between right
and swapped ones, since c cannot be estimated then.
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
FEWEST = 100  # with fewer swapped labels, no sureness is stated
BINS = 200
SHARES = np.concatenate([[1e-6], np.geomspace(1e-4, 0.4, 84)])  # the values of π that are tried
# how much lower the log-likelihood of the smallest and of the largest π may be, as in 98 % and 90 %
# intervals of one parameter; the first is wider, since a false alarm is worse than a miss
HARDLY_LESS = (2.7, 1.35)
# smallest evidence against swapped labels, in nats per level; below it, classes overlap so much
# that the log-odds are no line, and sureness was too high (synthetic sets, Omniglot by two nets)
TENTH_OF_FAR = 3.0  # reached by nine of ten far swapped labels
MEDIAN_OF_NEAR = 0.7  # of near swapped labels
ITEMS_FOR_NEAR = 5_000  # with fewer items, the tail of overlapping siblings is not known well
APART = 0.1  # largest ratio of suspects below the weakest swapped labels to suspects above
WEAKEST = 0.05  # the quantile of swapped labels that counts as the weakest


class Seen(NamedTuple):
    """The observed values of m labels."""

    evidence: Floats  # against the label, (m,)
    strange: Floats  # how strange the item would be in the proposed class, (m,)

    @classmethod
    def of(cls, items: Indices, best: Best, strangeness: Strangeness) -> Seen:
        """The observed values of items (m,) with their best alternatives."""
        return cls(best.evidence, strangeness.in_class(items, best.classes))

    def at(self, chosen: NDArray[np.bool_]) -> Seen:
        """The observed values of some labels; `chosen` is a mask (m,)."""
        return Seen(self.evidence[chosen], self.strange[chosen])

    def features(self, middle: float) -> Floats:
        """The features of the log-odds, (m, 3): s, z·min(s⁺/m, 1) and log(1 + s⁺), where s is the
        evidence, s⁺ its positive part, z the strangeness, and m is `middle`. So strangeness counts
        more as the evidence grows, up to m."""
        against = np.maximum(self.evidence, 0)
        strange = self.strange * np.minimum(against / middle, 1)
        return np.stack([self.evidence, strange, np.log1p(against)], axis=1)


class Sureness(NamedTuple):
    """A fitted curve from observed values to sureness."""

    share: float  # π, the share of labels that are wrong in this way
    line: Floats  # the intercept and the coefficients of the features, (4,)
    middle: float  # m, the median evidence of swapped labels
    is_trusted: bool  # whether swapped labels stand out enough
    most: float  # the largest π that is hardly less likely
    is_apart: bool  # whether there are hardly any labels between right and swapped ones

    def odds(self, seen: Seen) -> Floats:
        """The log-odds that each label is wrong, (n,), by which suspects are ordered; the evidence
        itself if the curve is not trusted. `seen`: the evidence and the strangeness of n labels.

        They are a + b·s + d·z·min(s⁺/m, 1) + c·log(1 + s⁺), with a, b, d and c from `line`. Here s
        is the evidence against a label, s⁺ its positive part, z how strange the item would be in
        the proposed class, and m is `middle`: strangeness counts more as the evidence grows.
        """
        if not self.is_trusted:
            return seen.evidence
        return line_of(self.line, [np.ones(len(seen.evidence)), *seen.features(self.middle).T])

    def of(self, seen: Seen) -> Floats:
        """The sureness (m,), the probability that each label is wrong; NaN if the curve is not
        trusted. By Bayes' rule, it follows from the odds and the prior probability π."""
        if not self.is_trusted:
            return np.full(len(seen.evidence), np.nan)
        # clipped, since exp would overflow; beyond, the result is 0 or 1 anyway
        odds = np.clip(self.odds(seen), -50, 50)
        return self.share / (self.share + (1 - self.share) * np.exp(-odds))


NOT_TRUSTED = Sureness(0.0, np.zeros(4), 1.0, is_trusted=False, most=1.0, is_apart=False)


def calibrate_sureness(
    evidence: Evidence, strangeness: Strangeness, observed: Seen, *, is_far: bool
) -> Sureness:
    """Fit the curve from the evidence against a label, and the strangeness of its item, to the
    sureness, the probability that the label is wrong: for far suspects (the proposed class has
    another parent than the label) or near ones (a sibling). Labels are swapped on purpose for it.
    Return NOT_TRUSTED if there are too few swapped labels, or if they do not stand out.

    Args:
        evidence: computes the alternatives of swapped labels.
        strangeness: computes how strange an item would be in a class.
        observed: evidence and strangeness of the labels as they are, of items that have an
            alternative of this kind (far or near).
        is_far: whether to fit the curve for far suspects, or for near ones.
    """
    votes = evidence.votes
    swaps = draw_swaps(votes, np.random.default_rng(0), is_far=is_far)
    found = evidence.alternatives(*swaps)  # of the drawn items, with their wrong classes
    best = found.far if is_far else found.near
    has_some = np.isfinite(best.evidence)
    if min(int(has_some.sum()), len(observed.evidence)) < FEWEST:
        return NOT_TRUSTED
    of_swaps = Seen.of(swaps.items, best, strangeness).at(has_some)
    # Siblings look alike, so right and swapped labels overlap. With few items it cannot be told how
    # many right labels have as much evidence against them as swapped ones.
    if not is_far and len(votes.classes) < ITEMS_FOR_NEAR:
        return NOT_TRUSTED
    # evidence is a sum over levels, and is judged per level
    if not _stand_out(of_swaps.evidence / votes.depth, is_far=is_far):
        return NOT_TRUSTED
    # swapped labels for each item; the fit needs it, since how many are swapped was chosen here and
    # says nothing about how many labels are wrong
    ratio = len(of_swaps.evidence) / len(votes.classes)
    return _fit_curve(observed, of_swaps, ratio)


def _stand_out(scores: Floats, *, is_far: bool) -> bool:
    """Whether the evidence against swapped labels is strong enough. `scores` (m,) is this evidence
    in nats per level."""
    if is_far:
        return bool(np.quantile(scores, 1 - 0.9) >= TENTH_OF_FAR)
    return bool(np.median(scores) >= MEDIAN_OF_NEAR)


class Ends(NamedTuple):
    """The range of likely shares π of wrong labels."""

    least: float  # the smallest π that is hardly less likely than the likeliest
    most: float  # the largest such π
    line: Floats  # the line that fits best with the smallest


def _fit_curve(observed: Seen, of_swaps: Seen, ratio: float) -> Sureness:
    """Fit the curve from observed values to sureness by maximum likelihood. A swapped label stands
    for a wrong one, of which it is known that it is wrong.

    The curve is a line in three features: the evidence against a label, how strange its item is,
    and a term that bends the line. The result has the smallest and the largest likely share of
    wrong labels (`share`, `most`), and the curve that fits best with the smallest. Callers have
    tested already that swapped labels stand out, so the curve is trusted.

    Args:
        observed: the values of the labels as they are.
        of_swaps: the values of labels that were swapped on purpose.
        ratio: the number of swapped labels to that of all items.
    """
    # the evidence against a typical wrong label, a divisor in the features, so it must not be 0
    middle = max(float(np.median(of_swaps.evidence)), 1e-6)
    are_apart = _are_apart(observed, of_swaps)
    # the third feature bends the line between right and swapped labels, so it is used only if some
    # labels are in between
    columns = 2 if are_apart else 3

    # labels with less evidence are not used, since the neighbours clearly agree with them
    lowest = min(float(np.median(observed.evidence)), 0.0)
    both = [each.at(each.evidence > lowest) for each in (observed, of_swaps)]
    features = [each.features(middle)[:, :columns] for each in both]
    # (columns,): mean and deviation of the swapped labels' features, by which all are standardised
    center = features[1].mean(axis=0)
    width = features[1].std(axis=0) + 1e-9  # a divisor, so it must not be 0
    sample = _sample(both, [(each - center) / width for each in features], ratio)

    # convert the coefficients of standardised features to those of the features themselves; a
    # feature that was not used gets 0
    found = _likely_shares(sample)
    slopes = np.zeros(3)
    slopes[:columns] = found.line[1:] / width
    intercept = found.line[0] - slopes[:columns] @ center
    line = np.array([intercept, *slopes])
    return Sureness(
        share=found.least,
        line=line,
        middle=middle,
        is_trusted=True,
        most=found.most,
        is_apart=are_apart,
    )


def _are_apart(observed: Seen, of_swaps: Seen) -> bool:
    """Whether there are hardly any labels between right and swapped ones. `observed`: the values of
    the labels as they are. `of_swaps`: the values of labels that were swapped on purpose."""
    weakest = np.quantile(of_swaps.evidence, WEAKEST)
    # labels with some evidence against them, but less than nearly all swapped labels have
    between = int(((observed.evidence > 0) & (observed.evidence < weakest)).sum())
    return between <= APART * int((observed.evidence >= weakest).sum())


def _likely_shares(sample: Sample) -> Ends:
    """Find the smallest and the largest share π of wrong labels that are hardly less likely than
    the likeliest share. Return them with the line that fits best with the smallest.

    Each of SHARES is tried with the line that fits best with it, the coefficients (p,) of the
    log-odds of "wrong" by the sample's p features. The smallest share gives the lowest sureness.
    HARDLY_LESS has two limits, by how much the smallest and the largest share may be less likely.
    The first is wider, as a false alarm is worse than a miss.
    """
    lines = []
    costs = []
    line = np.zeros(sample.features.shape[1])
    for share in SHARES:
        # the line of the share before is close to this one, so the fit starts from it
        line, cost = sample.fit(line, share)
        lines.append(line)
        costs.append(cost)
    above = np.array(costs) - min(costs)
    # in nats of log-likelihood, like HARDLY_LESS
    least = int(np.flatnonzero(above <= HARDLY_LESS[0])[0])
    most = int(np.flatnonzero(above <= HARDLY_LESS[1])[-1])
    return Ends(least=float(SHARES[least]), most=float(SHARES[most]), line=lines[least])


def _sample(both: list[Seen], features: list[Floats], ratio: float) -> Sample:
    """Make the sample of labels as they are and of swapped labels.

    Most labels have no evidence against them, and differ in the first feature only, as the others
    depend on the positive part of the evidence. They are counted in bins of the first feature, for
    speed; all other labels are used one by one.

    Args:
        both: the observed values of labels as they are, and of swapped labels.
        features: the standardised features of each, (m, p). The first one is the evidence.
        ratio: the number of swapped labels to that of all items.
    """
    is_low = [each.evidence <= 0 for each in both]
    low = [each[some] for each, some in zip(features, is_low, strict=True)]
    whole = np.sort(np.concatenate(low)[:, 0])  # the evidence of both, standardised
    # The edges of bins with equal numbers of labels. Equal edges become one, so there may be fewer
    # bins. If all labels have the same value, there is no bin, and all of them are left out.
    edges = np.unique(np.quantile(whole, np.linspace(0, 1, BINS + 1))) if len(whole) else whole
    # a row per bin: copies of the first label's row, since labels in bins differ in nothing but the
    # first feature, which becomes the middle of the bin
    binned = np.repeat(np.concatenate(low)[:1], max(len(edges) - 1, 0), axis=0)
    counts = [np.zeros(0), np.zeros(0)]
    if len(edges) > 1:
        binned[:, 0] = (edges[1:] + edges[:-1]) / 2
        counts = [np.histogram(each[:, 0], edges)[0].astype(float) for each in low]
    high = [each[~some] for each, some in zip(features, is_low, strict=True)]
    ones = [np.ones(len(each)) for each in high]
    rows = np.concatenate([binned, *high])
    # with each row, its number of labels as they are, and of swapped labels; a row that is no bin
    # is one label, and counts as 1 of its own kind and 0 of the other
    return Sample(
        features=np.concatenate([np.ones((len(rows), 1)), rows], axis=1),
        as_is=np.concatenate([counts[0], ones[0], 0 * ones[1]]),
        swapped=np.concatenate([counts[1], 0 * ones[0], ones[1]]),
        ratio=ratio,
    )
