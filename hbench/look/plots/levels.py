"""Draws AP and R@k at every level for several runs side by side. Each mark has its 95 % interval
below it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from hbench.core.errors import UnknownName, UsageError
from hbench.look.figures import (
    FAINT,
    GREY,
    Drawing,
    draw_figure,
    legend_above,
    legend_height,
    percent_axis,
    short,
)
from hbench.look.inputs import Run, runs_of
from hbench.look.palette import marker_of, series_color
from hbench.look.plots import PlotRequest, kind
from hbench.metrics.names import MetricName, factor_of
from hbench.records.report import Report

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

METRICS = ("AP", "R@1", "R@10")  # by default, those of them that the reports have
ROW = 0.16  # inches per run and level
# Percent, as all metrics with levels are: a larger value is printed on the left of its mark, where
# it takes 55 to 60 percent of the width of one of three panels. A smaller one would reach the names
# of the levels there.
LEFT_FROM = 60
NUMBERED = 3  # the largest number of runs for which values are printed next to the marks


def draw_levels(runs: Sequence[Run], metrics: Sequence[str]) -> Drawing:
    """Draw a panel per metric with a row per level and a mark per run. Without `metrics`, those of
    METRICS that any of the reports has are drawn.

    Raises UnknownName for a metric that has no values by level, UsageError for a metric that all
    reports lack.
    """
    shown = list(metrics) or [name for name in METRICS if _is_there(runs, name)]
    for name in shown:
        if "level" not in MetricName.parse(name).definition.takes:
            raise UnknownName("metric of levels", name, METRICS)
    missing = [name for name in shown if not _is_there(runs, name)]
    if not shown:  # none was requested, and the reports have none of the default ones
        missing = list(METRICS)
    if missing:
        raise UsageError(
            f"the reports have no {', '.join(missing)} at any level",
            found=", ".join(runs[0].document.scores),
            fix=f"hbench evaluate … --metrics {','.join(missing)}",
        )
    levels = runs[0].document.levels
    names = [short(run.name, 36) for run in runs]
    several = len(runs) > 1

    def paint(figure: Figure) -> None:
        """Draw the panels side by side with a common axis of levels, the coarsest on top."""
        panels = figure.subplots(1, len(shown), sharey=True, squeeze=False)[0]
        for panel, metric in zip(panels, shown, strict=True):
            _paint_panel(panel, runs, metric)
        panels[0].set_yticks(range(len(levels)), [short(level, 18) for level in levels])
        # reversed, so that row 0, the coarsest level, is on top
        panels[0].set_ylim(len(levels) - 0.5, -0.5)
        if several:
            legend_above(figure, names, panels[0].get_legend_handles_labels()[0])

    # in inches: title and axis, a row per level with space for the marks of all runs, and, if there
    # are several runs, the legend
    height = 0.75 + max(0.2, ROW * len(runs) + 0.1) * len(levels) + legend_height(names) * several
    return draw_figure(paint, height=height, about=runs[0].document.signature)


def _is_there(runs: Sequence[Run], metric: str) -> bool:
    """Whether any run has the metric at some level."""
    return any(_ends(run, metric, level) for run in runs for level in run.document.levels)


def _paint_panel(panel: Axes, runs: Sequence[Run], metric: str) -> None:
    """Draw one metric at every level: a mark for each run, with its interval below it."""
    panel.set_title(metric)
    if factor_of(metric) == 100:
        percent_axis(panel, "x")
        panel.set_xticks([0, 50, 100])
        panel.set_xlabel("percent")
    panel.tick_params(axis="y", length=0)
    for row in range(1, len(runs[0].document.levels)):
        panel.axhline(row - 0.5, color=FAINT, linewidth=0.5, zorder=0)
    # rows are 1 apart, and numbered from the top: the caller reverses the axis, so that a smaller
    # number is higher. The marks of the runs are spread around the middle of the row, slightly
    # above it.
    spread = np.linspace(-0.28, 0.22, len(runs)) if len(runs) > 1 else np.full(1, -0.05)
    # the interval is drawn below the mark, because the mark is often wider
    beside = min(0.18, 0.22 / max(1, len(runs) - 1))
    for number, (run, offset) in enumerate(zip(runs, spread.tolist(), strict=True)):
        levels = enumerate(run.document.levels)
        # the mark's vertical position -> (value, low, high), for the levels that have a score
        ends = {row + offset: ends for row, level in levels if (ends := _ends(run, metric, level))}
        value, low, high = np.array(list(ends.values())).reshape(-1, 3).T
        rows = np.array(list(ends))
        color = series_color(number, len(runs))
        panel.plot(
            value, rows, marker_of(number), color=color, label=run.name, markersize=3, clip_on=False
        )
        # widened where needed: after rounding, the value may be just outside its interval
        low = np.minimum(low, value)
        high = np.maximum(high, value)
        panel.hlines(rows + beside, low, high, color=color, linewidth=1.1, clip_on=False)
        if len(runs) <= NUMBERED:
            for row, of_level in ends.items():
                _write_value(panel, row, of_level)


def _ends(run: Run, metric: str, level: str) -> tuple[float, float, float] | None:
    """Return a score and the lower and upper end of its interval, as printed; None for a run
    without this score. `level` is the name of the level. Where a score has no interval, both ends
    are the score itself."""
    # the name as the report spells it: the metric's, with the level
    name = replace(MetricName.parse(metric), level=level).at(run.document.levels)
    score = run.document.scores.get(str(name))
    if score is None or score.value is None:
        return None
    low, high = (score.value if end is None else end for end in (score.low, score.high))
    factor = factor_of(metric)
    return factor * score.value, factor * low, factor * high


def _write_value(panel: Axes, row: float, ends: tuple[float, float, float]) -> None:
    """Write the value and half the width of its interval next to the mark, on the side with more
    space. `row` is the vertical position of the mark; `ends` are the value and the ends of its
    interval, as printed."""
    value, low, high = ends
    text = f"{value:.1f}"
    # at 100 percent nothing can be above the value, so that only the lower end says something
    if low < value == high == 100:
        text += f" (≥ {low:.1f})"
    elif high > low:
        text += f" ±{(high - low) / 2:.1f}"
    # at the height of the mark; the interval's line is a little lower
    space, side = (-3.5, "right") if value > LEFT_FROM else (3.5, "left")
    panel.annotate(
        text,
        (value, row),
        xytext=(space, 0),
        textcoords="offset points",
        ha=side,
        va="center",
        fontsize=5.5,
        color=GREY,
    )


def _of_report(report: Report, metrics: Sequence[str]) -> Drawing:
    """Draw the levels of one report in memory, without its values by query."""
    return draw_levels(
        [Run(name=report.document.method or "", document=report.document, by_query=None)], metrics
    )


@kind(
    "levels",
    about="AP and R@k at each level, several runs side by side",
    files="reports (.json)",
    options="metrics names",
    of_report=_of_report,
)
def _draw(request: PlotRequest) -> Drawing:
    """Draw the levels of reports by the requested metrics, by default METRICS."""
    return draw_levels(runs_of(request.files, request.names), request.metrics)
