"""Compares the first run with the other runs: paired differences, the classes that gain and lose
most, and the queries that change most."""

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

CLASSES = 12  # most classes in each of the lists of losses and gains
CHANGED = 4
SURE = 0.05


class ComparisonView(NamedTuple):
    """The first run compared with another run.

    Attributes:
        run: the number of the other run.
        name: the name of the other run.
        differences: the differences that the page shows, first run minus other run.
        tested: for how many metrics p is corrected.
        scales: for each metric, the value of a full bar.
        verdict: the difference by the leading metric, in a sentence.
        balance: the numbers of queries for which the first run is better, for which the other run
            is better, and for which both are equal; None without values or dataset.
        lost: the classes in which the first run is worse, the largest loss first.
        gained: the classes in which the first run is better, the largest gain first.
        chapters: the queries that change most in either direction.
        sizes: how the images of the runs differ, in a sentence; "" if they do not.
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
    """Compare the first run with every other run that has a file of values by query; none are
    compared if the first run has no such file."""
    first = reported.runs[0]
    if first.by_query is None:
        return []
    views = [
        _compare_with(reported, number, run)
        for number, run in enumerate(reported.runs)
        if number and run.by_query  # the first run is not compared with itself
    ]
    # p-values are corrected for all metrics of all runs together, before a page leaves some out;
    # the list has a family of differences for each compared run
    corrected = corrected_together([view.differences for view in views])
    return [
        view._replace(differences=_differences_on_page(reported, family), tested=len(family))
        for view, family in zip(views, corrected, strict=True)
    ]


def _compare_with(reported: Reported, number: int, other: ReportedRun) -> ComparisonView:
    """Compare the first run with another one: paired differences of all metrics and, if the dataset
    is on this disk, the classes and queries that lost and gained most.

    `number` is the other run's number among the report's runs. Both runs have the table
    `by_query`; only with the dataset they also have `values`, in the order of its queries.
    """
    first = reported.runs[0]
    differences = differences_of(first.by_query, other.by_query, unit=reported.document.unit)
    # the metric of the report, or the first common metric if the runs do not share it
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
        # a sentence if the runs' images were embedded at different sizes, else ""
        sizes=sizes_in_words(first.document, other.document),
        # the rest needs the dataset, and the report's metric in `values` of both runs: see below
        balance=None,
        lost=[],
        gained=[],
        chapters=[],
    )
    if (
        reported.manifest is None
        or reported.by not in first.values
        or reported.by not in other.values
    ):
        return view

    # (Q,), positive where the first run is better, also for metrics whose lower values are better
    change = goodness(reported.by, first.values[reported.by] - other.values[reported.by])
    balance = (int((change > 0).sum()), int((change < 0).sum()), int((change == 0).sum()))
    pair = [first.values[reported.by], other.values[reported.by]]
    # the finest level; levels are counted from 0 here
    classes = class_means(
        reported.manifest, pair, reported.manifest.tree.depth - 1, metric=reported.by
    )
    # what the first run (means[0]) gains over the other one (means[1]), for each class
    gains = {mean.node: goodness(reported.by, mean.means[0] - mean.means[1]) for mean in classes}
    # the largest loss first, so that the gains are at the end
    classes.sort(key=lambda mean: gains[mean.node])
    lost = [mean for mean in classes[:CLASSES] if gains[mean.node] < 0]
    gained = [mean for mean in reversed(classes[-CLASSES:]) if gains[mean.node] > 0]

    # chapters: the queries that changed most, those better in the first run and in the other one
    return view._replace(
        balance=balance,
        lost=lost,
        gained=gained,
        chapters=_chapters_of_changes(reported, change, (first, other)),
    )


def _differences_on_page(reported: Reported, differences: Sequence[Difference]) -> list[Difference]:
    """Select the differences of one compared run that the page shows: those of the headline metrics
    and of AP at every level, or all if the reports have none of these metrics.

    Metrics that are not shown were tested too, so that p is corrected for as many tests as by
    `hbench compare`.
    """
    levels = reported.document.levels
    # each metric once, in this order, as the reports spell it ("AP" is AP at the finest level)
    wanted = dict.fromkeys(
        [*headline(reported), *(str(MetricName("AP", level=level).at(levels)) for level in levels)]
    )
    by_metric = {difference.metric: difference for difference in differences}
    return [by_metric[name] for name in wanted if name in by_metric] or list(differences)


def _scales_of_bars(differences: Sequence[Difference]) -> dict[str, float]:
    """Return for each metric the value of a full bar: the largest end of an interval among the
    metrics of the same unit (percent, or ranks), so that the bars of these metrics can be compared.
    """
    by_factor: dict[int, float] = {}
    for difference in differences:
        factor = factor_of(difference.metric)
        ends = np.nan_to_num(np.abs([difference.low, difference.high])).tolist()
        # above 0, since the lengths of bars are divided by it
        by_factor[factor] = max(by_factor.get(factor, 1e-9), *ends)
    return {
        difference.metric: by_factor[factor_of(difference.metric)] for difference in differences
    }


def _verdict(difference: Difference, first: str, other: str, unit: str) -> str:
    """Describe the difference by the leading metric in a sentence. The difference is called sure if
    its interval excludes 0 and p is at most SURE. An interval of NaN makes it unsure.

    Args:
        difference: the difference, `first` minus `other`.
        first: the name of the first run.
        other: the name of the other run.
        unit: the unit of interval and test, such as the level whose classes are the units.
    """
    points = f"{shown(difference.metric, abs(difference.difference))} points of {difference.metric}"
    over = units_in_words(unit, difference.units)
    # comparisons with NaN are false, so that an interval of NaN does not exclude 0
    excludes_0 = difference.low > 0 or difference.high < 0
    if not excludes_0 or difference.p > SURE:
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
    """Choose the queries that changed most in either direction: one chapter of queries that the
    first of `runs` answers better, and one of those that the second answers better.

    Without the dataset or the results of both runs, and without any change, there are no chapters.

    `change` (Q,) is the goodness of the first run's value minus that of the second run: above 0
    where the first run is better, NaN where either has no value.
    """
    manifest = reported.manifest
    if manifest is None or any(run.top is None for run in runs):
        return []

    fine = manifest.labels[manifest.query, -1]  # (Q,): the finest class of each query
    chapters = []
    # Each chapter's run, with its loss (Q,), which is below 0 where this run is the better one. The
    # keys are from the view of the first run: what the second run answers better is a loss.
    for key, run, loss in (("wins", runs[0], -change), ("losses", runs[1], change)):
        order = worst_first(loss)  # lowest first, so the largest gain is first; without NaN
        order = order[loss[order] < 0]
        strips = strips_of(reported, one_per_class(order, fine, CHANGED))
        words = (
            "One query of each class, the largest difference first: look for what this model "
            "sees and the other does not."
        )
        chapters.append(
            Chapter(
                key=f"{key}-{run.name}",
                heading=f"Queries that {run.name} answers better",
                words=words,
                strips=strips,
            )
        )

    return [chapter for chapter in chapters if chapter.strips]
