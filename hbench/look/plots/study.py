"""Draws a study's arms with their intervals over seeds: two metrics against each other, and AP inside batches by their size."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from hbench.core.errors import UnknownName, UsageError
from hbench.evaluation import leaderboard
from hbench.look.figures import FAINT, Drawing, drawn, legend_above, legend_height, short
from hbench.look.palette import marker_of, series_color
from hbench.look.plots import Kind, PlotRequest, kinds
from hbench.train.study.claims import Interval, Values, contrast, read_values

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FILES = "a study's folder or values.parquet, or glyphs-study"
INSIDE = re.compile(r"AP in (\d+)")


def read_study(source: str) -> tuple[Values, str]:
    """The scores of a study's arms by its folder or its values.parquet, and a line about them. Raises DataError."""
    shipped = leaderboard.study_values(source)
    path = shipped or (Path(source) / "values.parquet" if Path(source).is_dir() else Path(source))
    values = read_values(path)
    seeds = max((len(scores) for arm in values.values() for scores in arm.values()), default=0)
    return (
        values,
        f"{source if shipped else path.resolve().parent.name} · means of {seeds} seeds, 95 % intervals (Student)",
    )


def is_study(source: str) -> bool:
    """Whether a name is that of a study's folder or values, and not of a leaderboard."""
    return source.endswith(".parquet") or Path(source).is_dir() or leaderboard.study_values(source) is not None


def draw_arms(values: Values, metrics: tuple[str, str], about: str) -> Drawing:
    """Every arm by two metrics, with the interval of each. Raises UnknownName for a metric that an arm lacks."""
    arms = {arm: [_percent(scores, metric) for metric in metrics] for arm, scores in values.items()}
    names = [short(arm, 30) for arm in arms]

    def paint(figure: Figure) -> None:
        panel = figure.subplots()
        for number, (x, y) in enumerate(arms.values()):
            _paint_point(panel, (x, y), number, len(arms))
        panel.set(xlabel=f"{metrics[0]} (%)", ylabel=f"{metrics[1]} (%)")
        panel.grid(color=FAINT, linewidth=0.5)
        panel.set_axisbelow(True)
        legend_above(figure, names, panel.containers)

    return drawn(paint, height=2.2 + legend_height(names), about=about)


def draw_gap(values: Values, about: str) -> Drawing:
    """AP inside random batches by their size, and on the whole gallery (RaMBO, Fig. 2): the distance is the decomposability gap."""
    sizes = sorted(
        {int(found[1]) for scores in values.values() for name in scores if (found := INSIDE.fullmatch(name))}
    )
    arms = {arm: scores for arm, scores in values.items() if {f"AP in {size}" for size in sizes} <= scores.keys()}
    if not sizes or not arms:
        raise UsageError("no arm of this study has a gap", expected="gaps = [32, 256] in the study's file")
    names = [short(arm, 30) for arm in arms]
    ticks = [*map(str, sizes), "all"]

    def paint(figure: Figure) -> None:
        panel = figure.subplots()
        for number, scores in enumerate(arms.values()):
            inside = [_percent(scores, f"AP in {size}") for size in sizes]
            whole = contrast(100 * (scores[f"AP in {sizes[0]}"] - scores[f"gap@{sizes[0]}"]))  # over the same queries
            shift = (number - (len(arms) - 1) / 2) * 0.03  # so that the intervals of arms stand side by side
            _paint_line(panel, [*inside, whole], shift, (number, len(arms)))
        panel.set_xticks(range(len(ticks)), ticks)
        panel.set(xlabel="items in a batch", ylabel="AP inside (%)")
        panel.grid(axis="y", color=FAINT, linewidth=0.5)
        legend_above(figure, names, panel.containers)

    return drawn(paint, height=2.0 + legend_height(names), about=about)


def _percent(scores: Mapping[str, NDArray[np.float64]], metric: str) -> Interval:
    if metric not in scores:
        raise UnknownName("metric of this study", metric, sorted(scores))
    return contrast(100 * scores[metric])


def _half(interval: Interval) -> float:
    """Half of an interval's width; 0 from one seed, whose interval is infinite."""
    half = (interval.high - interval.low) / 2
    return half if np.isfinite(half) else 0.0


def _paint_point(panel: Axes, at: tuple[Interval, Interval], number: int, of: int) -> None:
    x, y = at
    panel.errorbar(
        [x.mean], [y.mean], xerr=[_half(x)], yerr=[_half(y)], color=series_color(number, of), marker=marker_of(number),
        markersize=3.5, linestyle="none", capsize=1.6, elinewidth=0.8, capthick=0.8,
    )  # fmt: skip


def _paint_line(panel: Axes, line: Sequence[Interval], shift: float, series: tuple[int, int]) -> None:
    number, of = series
    panel.errorbar(
        np.arange(len(line)) + shift, [each.mean for each in line], yerr=[_half(each) for each in line],
        color=series_color(number, of), marker=marker_of(number), markersize=3, capsize=1.6, elinewidth=0.8, capthick=0.8,
    )  # fmt: skip


def _draw_gap(request: PlotRequest) -> Drawing:
    if len(request.files) != 1:
        raise UsageError("a gap is drawn of one study", found=f"{len(request.files)} files")
    return draw_gap(*read_study(request.files[0]))


kinds.register("gap")(Kind("AP inside batches by their size: the decomposability gap", FILES, frozenset(), _draw_gap))
