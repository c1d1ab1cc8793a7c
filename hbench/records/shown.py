"""Writes scores as people read them: at 0 and 100 % the interval is one-sided, and R@k that is 100
is shown at the smallest k.

>>> score = Score(value=1.0, low=0.984, high=1.0, queries=90, skipped=0)
>>> (
...     interval("AP", score),
...     margin("AP", score),
...     interval("AP", score.model_copy(update={"value": 0.99})),
... )
('≥ 98.40', '100.00 (≥ 98.40)', '98.40 … 100.00')
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from hbench.core.text import percent, percent_range, points, points_range
from hbench.metrics.names import MetricName, factor_of
from hbench.records.document import ROUNDED, Score

RECALL = "R"
# the share of half an interval that its middle may lie away from the score
UNEVEN = 0.25
LEFT_OUT = "of R@k that is 100 for all, only the smallest k is shown"


def shown(metric: str, value: float | None, digits: int = 2) -> str:
    """A value of a metric as people read it: in percent, or as it is where it is no fraction."""
    return percent(value, digits, factor_of(metric))


def shown_difference(metric: str, difference: float, digits: int = 2) -> str:
    """A difference of two values of a metric, fractions, with its sign: in points of percent, or as
    it is where the metric is no fraction."""
    return points(difference, digits, factor_of(metric))


def shown_difference_range(metric: str, low: float, high: float) -> str:
    """The ends of the interval of a difference of two values of a metric, fractions: in points of
    percent, or as they are where the metric is no fraction."""
    return points_range(low, high, factor_of(metric))


def interval(metric: str, score: Score) -> str:
    """The ends of a score's interval; one end where the score is 0 or 100 %, beyond which nothing
    lies.
    """
    return _one_sided_bound(metric, score) or percent_range(
        score.low, score.high, factor_of(metric)
    )


def margin(metric: str, score: Score) -> str:
    """A score and its interval: ± half of it; or, in brackets, both its ends where they are too
    uneven for one ±, or one end where a share is 0 or 100 %, beyond which nothing lies.

    >>> margin("AP", Score(value=0.9886, low=0.75, high=0.9996, queries=90, skipped=0))
    '98.86 (75.00 … 99.96)'
    """
    value = shown(metric, score.value)
    bound = _one_sided_bound(metric, score)
    if bound:
        return f"{value} ({bound})"
    if score.low is None or score.high is None:
        return value
    if half := _half_interval(metric, score):
        return f"{value} {half}"
    return f"{value} ({interval(metric, score)})"


def beside(metric: str, score: Score) -> str:
    """What stands behind a score on a page: the one end of its interval for a score of 0 or 100 %,
    else ± half the interval, or both its ends where they are uneven; empty without an interval.
    """
    if score.low is None or score.high is None:
        return ""
    return (
        _one_sided_bound(metric, score) or _half_interval(metric, score) or interval(metric, score)
    )


def _half_interval(metric: str, score: Score) -> str:
    """± half the interval of a score; empty without an interval, and where its sides are too uneven
    to be halved, as near 0 and 1."""
    if score.value is None or score.low is None or score.high is None:
        return ""
    half = (score.high - score.low) / 2
    middle = (score.high + score.low) / 2
    if abs(middle - score.value) > UNEVEN * half:
        return ""
    return f"±{shown(metric, half)}"


def _one_sided_bound(metric: str, score: Score) -> str:
    """The one end of a score's interval that says something, where the score is the largest or the
    smallest that a fraction can be: "≥ 98.40" for a score of 1, "≤ …" for one of 0. Empty for other
    scores, and without an interval or for one without width."""
    value = score.value
    low = score.low
    high = score.high
    if value is None or low is None or high is None or high - low <= ROUNDED:
        return ""
    if factor_of(metric) != 100:  # no fraction, such as a number of hops
        return ""
    if abs(value - 1) <= ROUNDED and high <= 1 + ROUNDED:
        return f"≥ {percent(low)}"
    if abs(value) <= ROUNDED and low >= -ROUNDED:
        return f"≤ {percent(high)}"
    return ""


def percent_note(metrics: Iterable[str]) -> str:
    """What the numbers of a table are, in words: percent, but for the metrics that are no
    fractions.
    """
    others = [metric for metric in metrics if factor_of(metric) != 100]
    return f"percent, but {', '.join(others)} as it is" if others else "percent"


def worth_showing(
    names: Sequence[str], models: Collection[Mapping[str, float | None]]
) -> list[str]:
    """The metrics without those R@k that are 100 for all models already at a smaller k, at the same
    level.

    >>> worth_showing(
    ...     ["R@1", "R@10", "R@100", "AP"], [{"R@1": 0.5, "R@10": 1.0, "R@100": 1.0, "AP": 0.5}]
    ... )
    ['R@1', 'R@10', 'AP']
    """
    # by metric without its cut: the cuts k, with the spellings, at which all models have 100
    by_level: dict[MetricName, list[tuple[int, str]]] = {}
    for name in names:
        parsed = MetricName.parse(name)
        full = all(
            (value := model.get(name)) is not None and value >= 1 - ROUNDED for model in models
        )
        if parsed.base == RECALL and parsed.cut and full:
            by_level.setdefault(replace(parsed, cut=None), []).append((parsed.cut, name))
    idle = {name for full in by_level.values() for _, name in sorted(full)[1:]}
    return [name for name in names if name not in idle]


def values_of(scores: Mapping[str, Score]) -> dict[str, float | None]:
    """The mean of every score, None where it is undefined, by metric."""
    return {name: score.value for name, score in scores.items()}
