"""Writes scores as people read them: at 0 and 100 % the interval is one-sided, and R@k that is 100 is shown at the smallest k.

>>> score = Score(value=1.0, low=0.984, high=1.0, queries=90, skipped=0)
>>> interval(score), margin(score), interval(score.model_copy(update={"value": 0.99}))
('≥ 98.40', '100.00 (≥ 98.40)', '98.40 … 100.00')
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from hbench.core.text import percent, percent_range, with_margin
from hbench.evaluation.reports.report import ROUNDED, Score
from hbench.metrics.names import MetricName

RECALL = "R"
LEFT_OUT = "of R@k that is 100 for all, only the smallest k is shown"


def interval(score: Score) -> str:
    """The ends of a score's interval in percent; one end where the score is 0 or 100, beyond which nothing lies."""
    return _bound(score) or percent_range(score.low, score.high)


def margin(score: Score) -> str:
    """A score in percent, ± half its interval, or with the one end of it."""
    bound = _bound(score)
    return f"{percent(score.value)} ({bound})" if bound else with_margin(score.value, score.low, score.high)


def beside(score: Score) -> str:
    """What stands behind a score on a page: ± half its interval, or the one end of it; empty without an interval."""
    if score.low is None or score.high is None:
        return ""
    return _bound(score) or f"±{percent((score.high - score.low) / 2)}"


def _bound(score: Score) -> str:
    """The only end of an interval that says something, where the score is 0 or 100; else empty."""
    value, low, high = score.value, score.low, score.high
    if value is None or low is None or high is None or high - low <= ROUNDED:
        return ""
    if abs(value - 1) <= ROUNDED and high <= 1 + ROUNDED:
        return f"≥ {percent(low)}"
    return f"≤ {percent(high)}" if abs(value) <= ROUNDED and low >= -ROUNDED else ""


def worth_showing(names: Sequence[str], models: Collection[Mapping[str, float | None]]) -> list[str]:
    """The metrics without those R@k that are 100 for all models already at a smaller k, at the same level.

    >>> worth_showing(["R@1", "R@10", "R@100", "AP"], [{"R@1": 0.5, "R@10": 1.0, "R@100": 1.0, "AP": 0.5}])
    ['R@1', 'R@10', 'AP']
    """
    by_level: dict[MetricName, list[tuple[int, str]]] = {}
    for name in names:
        parsed = MetricName.parse(name)
        full = all((value := model.get(name)) is not None and value >= 1 - ROUNDED for model in models)
        if parsed.base == RECALL and parsed.cut and full:
            by_level.setdefault(replace(parsed, cut=None), []).append((parsed.cut, name))
    idle = {name for full in by_level.values() for _, name in sorted(full)[1:]}
    return [name for name in names if name not in idle]


def values_of(scores: Mapping[str, Score]) -> dict[str, float | None]:
    """The values of scores, by metric."""
    return {name: score.value for name, score in scores.items()}
