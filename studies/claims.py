"""Tests the claims of a study over its seeds and classes: paired differences, intervals, and
p-values corrected for multiple tests.

A claim has a difference d_sc for every seed s of S and class c of C, the mean over the class's
queries; a class has the share w_c of all queries. Other seeds would have given other nets, other
classes other tests, so d = 1/S Σ_s Σ_c w_c d_sc has the variance

    V = 1/S² · S/(S−1) Σ_s (d_s − d)²  +  Σ_c w_c² (d_c − d)² / (1 − w_c),
    d_s = Σ_c w_c d_sc,  d_c = 1/S Σ_s d_sc,

the sum of what the seeds and what the classes say of it; what both share is counted twice, so that
intervals are rather too wide. Its interval is d ± t·√V, t of Student's distribution with
Satterthwaite's degrees of freedom, of S − 1 and 1/Σ w_c² − 1: classes of unequal size count as
fewer. Scores without classes, such as gaps, have the first part alone: Student's paired interval.

A claim that something is within ±w is tested against both ends (two one-sided tests). A claim that
several arms are each beaten has the largest p-value of its parts (an intersection–union test). The
p-values of a family of claims are corrected by Holm's method: a claim holds, or does not hold,
where its corrected p is at most .05. The family is all its claims, measured or not.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from hbench.metrics.significance import holm
from studies.study import Claim, Study
from studies.values import Scores, Values

CONFIDENCE = 0.975  # of each end of a 95 % interval
SIGNIFICANT = 0.05


class Interval(NamedTuple):
    """A mean over seeds and classes and its 95 % interval, infinite from one seed; its standard
    error and degrees of freedom.
    """

    mean: float
    low: float
    high: float
    error: float
    freedom: float


class Verdict(NamedTuple):
    """What the values say of a claim. `p`: of its test alone, `corrected` within its family;
    `word`: holds, does not hold, open, or not measured."""

    claim: Claim
    seeds: int
    difference: Interval
    p: float
    corrected: float
    word: str


def interval_of(scores: Scores) -> Interval:
    """Return the mean of the scores and its interval over seeds and classes.

    >>> from studies.values import whole
    >>> interval_of(whole(np.array([0.03, 0.01, 0.02]))).mean
    0.02
    """
    from scipy.stats import t

    # the letters of the module's docstring: w, d_s, d_c, and the two parts of V
    weights = scores.queries / scores.queries.sum()  # (C,)
    of_seeds = scores.of_seeds  # (S,)
    of_classes = scores.values.mean(axis=0)  # (C,)
    seeds = len(of_seeds)
    mean = float(of_seeds.mean())
    if seeds < 2:
        return Interval(mean, -np.inf, np.inf, np.inf, 0.0)

    variance = float(np.var(of_seeds, ddof=1)) / seeds
    denominator = variance**2 / (seeds - 1)  # of Satterthwaite's formula
    if len(weights) > 1:
        by_classes = float(((weights * (of_classes - mean)) ** 2 / (1 - weights)).sum())
        variance += by_classes
        denominator += by_classes**2 / max(1 / float((weights**2).sum()) - 1, 1)
    error = variance**0.5
    # without any spread each part's share is 0 / 0
    freedom = error**4 / denominator if denominator > 0 else float(seeds - 1)
    half = float(t.ppf(CONFIDENCE, freedom)) * error
    return Interval(mean, mean - half, mean + half, error, freedom)


def judged(study: Study, values: Values) -> list[Verdict]:
    """Judge every claim of a study by its paired test, with p corrected for the number of claims of
    its family, or say that it is not measured."""
    verdicts = [_tested(claim, values) for claim in study.claims]
    for family in {verdict.claim.family for verdict in verdicts}:
        members = [n for n, verdict in enumerate(verdicts) if verdict.claim.family == family]
        corrected = holm([verdicts[n].p for n in members]).tolist()
        for n, p in zip(members, corrected, strict=True):
            verdicts[n] = verdicts[n]._replace(corrected=p)
            is_measured = verdicts[n].seeds > 0
            if is_measured and p > SIGNIFICANT:  # neither that it holds nor that it does not
                verdicts[n] = verdicts[n]._replace(word="open")
    return verdicts


def _tested(claim: Claim, values: Values) -> Verdict:
    """Test a claim; of a claim that beats several arms, the part that is least sure."""
    needed = {(arm, claim.metric) for arm in claim.arms} | {
        (arm, claim.minus_metric or claim.metric) for arm in claim.minus
    }
    if any(metric not in values.get(arm, {}) for arm, metric in needed):
        nan = float("nan")
        return Verdict(claim, 0, Interval(nan, nan, nan, nan, nan), 1.0, 1.0, "not measured")
    parts = [_tested_part(claim, (*claim.minus, rival), values) for rival in claim.beats]
    return max(parts or [_tested_part(claim, claim.minus, values)], key=_doubt)


def _doubt(verdict: Verdict) -> tuple[bool, float]:
    """A sort key for the parts of a claim, the largest of which decides: parts that speak against
    it are above all that hold; of these the surest (the smallest p) is the largest, and of parts
    that hold the least sure.
    """
    holds = verdict.word == "holds"
    return not holds, verdict.p if holds else -verdict.p


def _tested_part(claim: Claim, minus: Sequence[str], values: Values) -> Verdict:
    """Test a claim with the arms `minus` subtracted; its p-value is not corrected yet."""
    difference = difference_of(
        [values[arm][claim.metric] for arm in claim.plus],
        [values[arm][claim.minus_metric or claim.metric] for arm in minus],
    )
    interval = interval_of(difference)
    word, p = _p_value(interval, claim.within)
    return Verdict(claim, len(difference.values), interval, p, p, word)


def difference_of(plus: Sequence[Scores], minus: Sequence[Scores]) -> Scores:
    """Return Σ plus − Σ minus of the scores of arms, seed by seed and class by class, of the first
    seeds, which all have. The tests are the same for all arms, so their queries are, too."""
    seeds = min(len(scores.values) for scores in (*plus, *minus))
    total = sum((scores.values[:seeds] for scores in plus), np.zeros_like(plus[0].values[:seeds]))
    total = total - sum((scores.values[:seeds] for scores in minus), np.zeros_like(total))
    return Scores(total, plus[0].queries, plus[0].units)


def p_value(difference: Interval) -> float:
    """The two-sided p-value of a mean difference being another than 0; 1 where no error is
    known."""
    return _p_value(difference, None)[1]


def _p_value(difference: Interval, within: float | None) -> tuple[str, float]:
    """Say what a mean difference says of a claim ("holds", "does not hold", or "open" where no
    error is known), and the two-sided p-value of saying so.

    `within`: the claim is that the difference is not farther from 0 than this; None: above 0.
    """
    from scipy.stats import t

    mean = difference.mean
    error = difference.error
    if not np.isfinite(error) or np.isnan(mean):
        return "open", 1.0
    distance = mean if within is None else within - abs(mean)  # above 0 where the claim is right
    word = "holds" if distance > 0 else "does not hold"
    if error == 0:  # all seeds and classes agree: sure, but where the difference is nothing
        return word, float(distance == 0)
    return word, 2 * float(t.sf(abs(distance) / error, difference.freedom))
