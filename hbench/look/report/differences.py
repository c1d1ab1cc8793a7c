"""Compares the first run with others: paired differences, the classes that gain and lose most, and
the changed queries.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from hbench.look.report.classes import ClassMean, class_means
from hbench.look.report.overview import headline
from hbench.look.report.queries import Chapter, one_per_class, strips_of
from hbench.look.report.runs import Floats, Reported, ReportedRun
from hbench.look.strips.retrievals import worst_first
from hbench.metrics.names import MetricName, factor_of, goodness
from hbench.records.comparison import sizes_in_words
from hbench.records.differences import Difference, corrected_together, differences_of
from hbench.records.queries import units_in_words
from hbench.records.shown import shown

CLASSES = 12  # shown of either run
CHANGED = 4
SURE = 0.05


class ComparisonView(NamedTuple):
    """The first run against another.

    `tested`: for how many metrics p is corrected; `scales`: by metric, the largest end of an
    interval, which scales the bars, that of all fractions alike; `balance`: the numbers of queries
    for which the first run is better, the other is, and both are equal; `sizes`: what differs in
    the images, in a sentence.
    """

    run: int
    name: str
    differences: list[Difference]
    tested: int
    scales: Mapping[str, float]
    verdict: str
    balance: tuple[int, int, int] | None
    lost: list[ClassMean]
    gained: list[ClassMean]
    chapters: list[Chapter]
    sizes: str = ""


def comparisons_of(reported: Reported) -> list[ComparisonView]:
    """Compare the first run with each of the other runs with values by query."""
    first = reported.runs[0]
    if first.by_query is None:
        return []
    views = [
        _compare_with(reported, number, run)
        for number, run in enumerate(reported.runs)
        if number and run.by_query  # not the first with itself
    ]
    # p-values are corrected for all metrics of all runs together
    corrected = corrected_together([view.differences for view in views])
    return [
        view._replace(differences=_differences_on_page(reported, family), tested=len(family))
        for view, family in zip(views, corrected, strict=True)
    ]


def _compare_with(reported: Reported, number: int, other: ReportedRun) -> ComparisonView:
    """The first run beside another one: paired differences of all metrics and, where the dataset is
    here, the classes that lost and gained most. `number`: the place of the other run."""
    first = reported.runs[0]
    differences = differences_of(first.by_query, other.by_query, unit=reported.document.unit)
    # the verdict goes by the metric of the report, or by the first that both have
    by_metric = {difference.metric: difference for difference in differences}
    leading = by_metric.get(reported.by, differences[0])
    verdict = _verdict(leading, first.name, other.name, reported.document.unit)
    view = ComparisonView(
        run=number,
        name=other.name,
        differences=differences,
        tested=len(differences),
        scales=_scales_of_bars(differences),
        verdict=verdict,
        # what the dataset's classes are needed for
        balance=None,
        lost=[],
        gained=[],
        chapters=[],
        sizes=sizes_in_words(first.document, other.document),
    )
    if (
        reported.manifest is None
        or reported.by not in first.values
        or reported.by not in other.values
    ):
        return view

    # (Q,): above 0 where the first run is better
    change = goodness(reported.by, first.values[reported.by] - other.values[reported.by])
    balance = (int((change > 0).sum()), int((change < 0).sum()), int((change == 0).sum()))
    pair = [first.values[reported.by], other.values[reported.by]]
    # of the finest level, which is counted from 0 here
    classes = class_means(
        reported.manifest, pair, reported.manifest.tree.depth - 1, metric=reported.by
    )
    gains = {mean.node: goodness(reported.by, mean.means[0] - mean.means[1]) for mean in classes}
    # most lost first, so that the gains are at the end
    classes.sort(key=lambda mean: gains[mean.node])
    lost = [mean for mean in classes[:CLASSES] if gains[mean.node] < 0]
    gained = [mean for mean in reversed(classes[-CLASSES:]) if gains[mean.node] > 0]

    return view._replace(
        balance=balance,
        lost=lost,
        gained=gained,
        chapters=_chapters_of_changes(reported, change, (first, other)),
    )


def _differences_on_page(reported: Reported, differences: Sequence[Difference]) -> list[Difference]:
    """The differences that the page shows: those of the headline metrics and of AP at every level,
    or all where the reports have none of these. All were tested, also those that are not shown, so
    that p is corrected for as many tests as by `hbench compare`."""
    levels = reported.document.levels
    wanted = dict.fromkeys(
        [*headline(reported), *(str(MetricName("AP", level=level).at(levels)) for level in levels)]
    )
    by_metric = {difference.metric: difference for difference in differences}
    return [by_metric[name] for name in wanted if name in by_metric] or list(differences)


def _scales_of_bars(differences: Sequence[Difference]) -> dict[str, float]:
    """By metric, the value of a full bar: the largest end of an interval among metrics of the same
    unit (percent, or ranks), so that their bars can be compared."""
    by_factor: dict[int, float] = {}
    for difference in differences:
        factor = factor_of(difference.metric)
        ends = np.nan_to_num(np.abs([difference.low, difference.high])).tolist()
        # above 0, since lengths are divided by it
        by_factor[factor] = max(by_factor.get(factor, 1e-9), *ends)
    return {
        difference.metric: by_factor[factor_of(difference.metric)] for difference in differences
    }


def _verdict(difference: Difference, first: str, other: str, unit: str) -> str:
    """Describe the difference by the leading metric in a sentence: it is sure where the interval,
    over classes or other units, does not hold 0 and p is small; NaN is not sure.

    `first`, `other`: the names of the runs, of which the second is taken off; `unit`: what the
    interval goes over.
    """
    points = f"{shown(difference.metric, abs(difference.difference))} points of {difference.metric}"
    over = units_in_words(unit, difference.units)
    if not (difference.low > 0 or difference.high < 0) or difference.p > SURE:
        return (
            f"{first} and {other} differ by {points}, which may be luck: over {over} the "
            "interval holds 0, or p is above 0.05."
        )
    better, worse = (
        (first, other) if goodness(difference.metric, difference.difference) > 0 else (other, first)
    )
    doubt = f"{over} leave little doubt (p-value {difference.p_in_words})"
    return f"{better} is better than {worse} by {points}, and {doubt}."


def _chapters_of_changes(
    reported: Reported, change: Floats, runs: tuple[ReportedRun, ReportedRun]
) -> list[Chapter]:
    """Choose the queries that changed most in either direction; none without results.

    `change` (Q,): the first run's value less the other's, above 0 where the first is better.
    """
    manifest = reported.manifest
    if manifest is None or any(run.top is None for run in runs):
        return []

    fine = manifest.labels[manifest.query, -1]
    chapters = []
    for key, run, values in (("wins", runs[0], -change), ("losses", runs[1], change)):
        # both times the largest gain is the lowest number, and only gains are shown
        order = worst_first(values)
        order = order[values[order] < 0]
        strips = strips_of(reported, one_per_class(order, fine, CHANGED))
        words = (
            "One query of each class, the largest difference first: look for what this model "
            "sees and the other does not."
        )
        chapters.append(
            Chapter(f"{key}-{run.name}", f"Queries that {run.name} answers better", words, strips)
        )

    return [chapter for chapter in chapters if chapter.strips]
