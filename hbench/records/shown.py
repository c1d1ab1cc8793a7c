"""Formats scores for people. At 0 and 100 % the interval is one-sided. If R@k is 100 for several k,
only that with the smallest k is shown.

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
# the interval counts as uneven if its middle is farther from the score than this share of its half
UNEVEN = 0.25
LEFT_OUT = "of R@k that is 100 for all, only the smallest k is shown"


def shown(metric: str, value: float | None, digits: int = 2) -> str:
    """A value of a metric as text: in percent, or as it is if the metric is no fraction."""
    return percent(value, digits, factor_of(metric))


def shown_difference(metric: str, difference: float, digits: int = 2) -> str:
    """A difference between two values of a metric, with its sign: in percentage points, or as it is
    if the metric is no fraction."""
    return points(difference, digits, factor_of(metric))


def shown_difference_range(metric: str, low: float, high: float) -> str:
    """The ends of the interval of a difference between two values of a metric: in percentage
    points, or as they are if the metric is no fraction."""
    return points_range(low, high, factor_of(metric))


def interval(metric: str, score: Score) -> str:
    """The ends of a score's interval as text. For a score of 0 or 100 % only one end is shown,
    since the score itself is the other bound."""
    return _one_sided_bound(metric, score) or percent_range(
        score.low, score.high, factor_of(metric)
    )


def margin(metric: str, score: Score) -> str:
    """A score with ± half its interval. If the interval is too uneven for one ±, its ends follow in
    brackets; for a score of 0 or 100 %, one end.

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
    """The text that follows a score on a page: ± half its interval; both ends if the interval is
    uneven; one end for a score of 0 or 100 %. Empty if there is no interval.
    """
    if score.low is None or score.high is None:
        return ""
    return (
        _one_sided_bound(metric, score) or _half_interval(metric, score) or interval(metric, score)
    )


def _half_interval(metric: str, score: Score) -> str:
    """± half the interval of a score. Empty if there is no interval, or if its two sides differ too
    much for one ±, as they do near 0 and 1."""
    if score.value is None or score.low is None or score.high is None:
        return ""
    half = (score.high - score.low) / 2
    middle = (score.high + score.low) / 2
    if abs(middle - score.value) > UNEVEN * half:  # the score is far from the middle
        return ""
    return f"±{shown(metric, half)}"


def _one_sided_bound(metric: str, score: Score) -> str:
    """The inner end of the interval of a score that is 0 or 1: "≥ 98.40" for a score of 1, "≤ …"
    for a score of 0. Empty for any other score, and if the interval is missing or has no width."""
    value = score.value
    low = score.low
    high = score.high
    if value is None or low is None or high is None or high - low <= ROUNDED:
        return ""
    if factor_of(metric) != 100:  # no fraction, such as a number of hops
        return ""
    # an interval beyond 0 or 1 has values outside of [0, 1], of which 0 and 1 are no bounds
    if abs(value - 1) <= ROUNDED and high <= 1 + ROUNDED:
        return f"≥ {percent(low)}"
    if abs(value) <= ROUNDED and low >= -ROUNDED:
        return f"≤ {percent(high)}"
    return ""


def percent_note(metrics: Iterable[str]) -> str:
    """The unit of the numbers in a table, in words: percent, except for metrics that are no
    fractions.
    """
    others = [metric for metric in metrics if factor_of(metric) != 100]
    return f"percent, but {', '.join(others)} as it is" if others else "percent"


def worth_showing(
    names: Sequence[str], models: Collection[Mapping[str, float | None]]
) -> list[str]:
    """The metrics `names`, without each R@k for which R at a smaller k and the same level is 100 %
    for all models already. `models`: for each model {metric: mean}, as fractions.

    >>> worth_showing(
    ...     ["R@1", "R@10", "R@100", "AP"], [{"R@1": 0.5, "R@10": 1.0, "R@100": 1.0, "AP": 0.5}]
    ... )
    ['R@1', 'R@10', 'AP']
    """
    # {R without its cut, one for each level: (k, name) of every R@k that is 100 % for all models}
    by_level: dict[MetricName, list[tuple[int, str]]] = {}
    for name in names:
        parsed = MetricName.parse(name)
        full = all(
            (value := model.get(name)) is not None and value >= 1 - ROUNDED for model in models
        )
        if parsed.base == RECALL and parsed.cut and full:
            by_level.setdefault(replace(parsed, cut=None), []).append((parsed.cut, name))
    # [1:]: the R@k of the smallest k is shown
    idle = {name for full in by_level.values() for _, name in sorted(full)[1:]}
    return [name for name in names if name not in idle]


def values_of(scores: Mapping[str, Score]) -> dict[str, float | None]:
    """The mean of every metric by its name; None where it is undefined."""
    return {name: score.value for name, score in scores.items()}
