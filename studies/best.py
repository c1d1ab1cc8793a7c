"""Says which arms of a study are best by a metric: the first, and those that may be as good.

An arm may be as good as the first one unless the paired difference over seeds and classes
(studies.claims) excludes it, with p-values that are corrected by Holm's method over all arms of the
study. So the list is long where a study cannot tell its arms apart.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from hbench.metrics.significance import holm
from studies.claims import SIGNIFICANT, Interval, difference_of, interval_of, p_value
from studies.page import shown
from studies.values import Values

MOST_NAMED = 3  # a longer list says that the study cannot tell its arms apart


class Best(NamedTuple):
    """The arm with the highest mean of a metric, its score, and the arms that may be as good, the
    better first. All others are worse by the corrected test."""

    arm: str
    score: Interval
    as_good: tuple[str, ...]

    def in_words(self) -> str:
        """Write, in Markdown, the best arm with its score, and behind it the first of those that
        may be as good."""
        named = list(self.as_good[:MOST_NAMED])
        if more := len(self.as_good) - len(named):
            named.append(f"{more} more")
        text = f"**{self.arm}** {shown(self.score)}"
        return f"{text}; perhaps {', '.join(named)}" if named else text


def best_arms(values: Values, metric: str) -> Best | None:
    """Find the best arms of a study by a metric; None where fewer than two arms have it."""
    scores = {arm: metrics[metric] for arm, metrics in values.items() if metric in metrics}
    if len(scores) < 2:
        return None

    by_mean = sorted(scores, key=lambda arm: -interval_of(scores[arm]).mean)
    first, *others = by_mean
    # each arm is compared with the first one; p-values are corrected for their number
    differences = [interval_of(difference_of([scores[first]], [scores[arm]])) for arm in others]
    corrected = holm([p_value(difference) for difference in differences])
    as_good = [arm for arm, p in zip(others, corrected, strict=True) if p > SIGNIFICANT]
    return Best(first, interval_of(scores[first]), tuple(as_good))


def table(studies: Mapping[str, Values], metrics: Sequence[str]) -> list[str]:
    """List the lines of a table in Markdown: a line per metric, a column per study, by its name,
    and the best arms in every cell."""
    lines = [f"| by | {' | '.join(studies)} |", "|---" * (len(studies) + 1) + "|"]
    for metric in metrics:
        found = [best_arms(values, metric) for values in studies.values()]
        cells = ["" if best is None else best.in_words() for best in found]
        lines.append(f"| {metric} | {' | '.join(cells)} |")
    return lines
