"""Draws a study's arms with their intervals over seeds and classes: two metrics against each other,
AP inside batches by their size, and metrics over a parameter in which arms differ."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from hbench import boards as leaderboard
from hbench.core.errors import UnknownName, UsageError
from hbench.look.figures import FAINT, Drawing, draw_figure, legend_above, legend_height, short
from hbench.look.palette import marker_of, series_color
from studies.claims import Interval, difference_of, interval_of
from studies.page import kept_of
from studies.values import Scores, Values, read, whole

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# metrics that are drawn where none are named
ARMS = ("AP", "H-AP")
SWEPT = ("H-AP", "AP")
LEAST = 2.0  # percent that an axis spans at least, so that noise does not look like an effect
NUMBER = r"-?\d+(?:\.\d+)?(?:e-?\d+)?"
INSIDE = re.compile(r"AP in (\d+)")


def draw(kind: str, source: str, metrics: tuple[str, ...] = (), over: str | None = None) -> Drawing:
    """Draw a picture of a study: `kind` is "arms", "gap" or "sweep".

    `source`: its folder, its values.parquet, or a study of leaderboards/; of a sweep also a
    leaderboard. `over`: the parameter of a sweep. Raises UsageError, UnknownName, DataError."""
    if kind == "sweep":
        return draw_sweep(swept(*_arms_of(source), over), metrics or SWEPT)
    values, about = read_study(source)
    if kind == "gap":
        return draw_gap(values, about)
    metrics = metrics or ARMS
    if len(metrics) != 2:
        raise UsageError(
            "the picture of arms has two axes", expected="--metric twice", found=", ".join(metrics)
        )
    return draw_arms(values, metrics, about)


def read_study(source: str) -> tuple[Values, str]:
    """The scores of a study's arms, and a line about them. Raises DataError."""
    path = kept_of(source)
    values, about = read(path)
    counts = {len(scores.values) for arm in values.values() for scores in arm.values()}
    seeds = " to ".join(map(str, sorted({min(counts), max(counts)})))
    name = source if path.stem == source else path.resolve().parent.name
    return (
        values,
        f"{name} · means of {seeds} seeds, 95 % intervals over seeds and classes ({about.unit})",
    )


def _arms_of(source: str) -> tuple[Values, str]:
    """The scores of a study's arms, or of a leaderboard's rows as arms of one seed; and a line
    about them.
    """
    if source not in leaderboard.board_names() and not source.endswith(".toml"):
        return read_study(source)
    board = leaderboard.read_board(source)
    rows = {row.method: _as_one_seed(row.scores) for row in board.rows}
    return rows, f"{board.dataset}@{board.version} · protocol {board.protocol} · leaderboard"


def _as_one_seed(scores: Mapping[str, Decimal]) -> dict[str, Scores]:
    """The scores of a leaderboard's row, which are in percent, as those of one seed."""
    return {key: whole(np.array([float(score) / 100])) for key, score in scores.items()}


def draw_arms(values: Values, metrics: Sequence[str], about: str) -> Drawing:
    """Every arm by two metrics, across and up, with the interval of each. Raises UnknownName for a
    metric that an arm lacks.
    """
    names = [short(arm, 30) for arm in values]
    across, up = metrics
    points = [(_percent(scores, across), _percent(scores, up)) for scores in values.values()]

    def paint(figure: Figure) -> None:
        """Fill the figure: a point per arm with the intervals of both metrics."""
        panel = figure.subplots()
        for number, (x, y) in enumerate(points):
            _paint_point(panel, x, y, number, len(points))
        panel.set(xlabel=f"{across} (%)", ylabel=f"{up} (%)")
        panel.grid(color=FAINT, linewidth=0.5)
        panel.set_axisbelow(True)
        legend_above(figure, names, panel.containers)

    return draw_figure(paint, height=2.2 + legend_height(names), about=about)


def draw_gap(values: Values, about: str) -> Drawing:
    """Draw AP inside random batches by their size, and on the whole gallery (RaMBO, Fig. 2): the
    distance is the decomposability gap. Raises UsageError where no arm has been measured so.
    """
    sizes = sorted(
        {
            int(found[1])
            for scores in values.values()
            for name in scores
            if (found := INSIDE.fullmatch(name))
        }
    )
    measured_inside = {f"AP in {size}" for size in sizes}
    arms = {arm: scores for arm, scores in values.items() if measured_inside <= scores.keys()}
    if not sizes or not arms:
        raise UsageError(
            "no arm of this study has a gap", expected="gaps = [32, 256] in the study's file"
        )
    names = [short(arm, 30) for arm in arms]
    ticks = [*map(str, sizes), "all"]

    def paint(figure: Figure) -> None:
        """Fill the figure: a line per arm over the sizes, which ends at the whole gallery."""
        panel = figure.subplots()
        for number, scores in enumerate(arms.values()):
            inside = [_percent(scores, f"AP in {size}") for size in sizes]
            # AP on the whole is AP inside minus the gap: so it is over the same queries as these
            difference = difference_of([scores[f"AP in {sizes[0]}"]], [scores[f"gap@{sizes[0]}"]])
            on_all = _in_percent(difference)
            # so that the intervals of arms stand side by side
            shift = (number - (len(arms) - 1) / 2) * 0.03
            _paint_line(panel, [*inside, on_all], shift, number, len(arms))
        panel.set_xticks(range(len(ticks)), ticks)
        panel.set(xlabel="items in a batch", ylabel="AP inside (%)")
        panel.grid(axis="y", color=FAINT, linewidth=0.5)
        legend_above(figure, names, panel.containers)

    return draw_figure(paint, height=2.0 + legend_height(names), about=about)


def _percent(scores: Mapping[str, Scores], metric: str) -> Interval:
    """The mean and interval of an arm's metric, in percent; raises UnknownName where it has
    none."""
    if metric not in scores:
        raise UnknownName("metric of this study", metric, sorted(scores))
    return _in_percent(scores[metric])


def _in_percent(scores: Scores) -> Interval:
    """The mean of scores, which are fractions, and its interval over seeds and classes, in
    percent."""
    return interval_of(Scores(100 * scores.values, scores.queries, scores.units))


def _half(interval: Interval) -> float:
    """Half of an interval's width; 0 from one seed, whose interval is infinite."""
    half = (interval.high - interval.low) / 2
    return half if np.isfinite(half) else 0.0


def _paint_point(panel: Axes, x: Interval, y: Interval, number: int, of: int) -> None:
    """Draw an arm by two metrics; `number` of `of` arms chooses its colour and marker."""
    panel.errorbar(
        [x.mean],
        [y.mean],
        xerr=[_half(x)],
        yerr=[_half(y)],
        color=series_color(number, of),
        marker=marker_of(number),
        markersize=3.5,
        linestyle="none",
        capsize=1.6,
        elinewidth=0.8,
        capthick=0.8,
    )


def _paint_line(panel: Axes, line: Sequence[Interval], shift: float, number: int, of: int) -> None:
    """Draw an arm over ticks 0, 1 …, `shift` ticks to the right, as number `number` of `of`."""
    panel.errorbar(
        np.arange(len(line)) + shift,
        [each.mean for each in line],
        yerr=[_half(each) for each in line],
        color=series_color(number, of),
        marker=marker_of(number),
        markersize=3,
        capsize=1.6,
        elinewidth=0.8,
        capthick=0.8,
    )


class Sweep(NamedTuple):
    """Lines of arms that differ in one parameter: arm -> its values, and metric -> the seeds'
    scores at each value.
    """

    parameter: str
    lines: Mapping[str, Mapping[float, Mapping[str, Scores]]]
    about: str


def swept(values: Values, about: str, over: str | None) -> Sweep:
    """Gather the arms named `NAME PARAMETER=VALUE` to a line for each NAME.

    `over`: the parameter, such as "α", None for the only one; with `=VALUE`, an arm with the bare
    NAME has this value. Raises UsageError where no arm, or arms of several parameters, would be
    drawn.
    """
    named = {
        arm: match for arm in values if (match := re.fullmatch(rf"(.+?),? (\S+?)=({NUMBER})", arm))
    }
    parameter, _, default = (over or "").partition("=")
    # of a match: 1 the arm without its parameter, 2 the parameter, 3 its value
    known = list(dict.fromkeys(match[2] for match in named.values()))
    if not parameter and len(known) == 1:
        parameter = known[0]
    if parameter not in known:
        raise UsageError(
            f"no arm has a parameter {parameter}"
            if parameter
            else "which parameter is along the axis?",
            expected=f"--over {' or '.join(known)}" if known else "arms named as 'HAPPIER α=2'",
            found=", ".join(values),
        )

    lines: dict[str, dict[float, Mapping[str, Scores]]] = {}
    for arm, match in named.items():
        if match[2] == parameter:
            lines.setdefault(match[1], {})[float(match[3])] = values[arm]

    if default:
        for arm in lines.keys() & values.keys():
            lines[arm][_number(default)] = values[arm]
    return Sweep(parameter, {arm: dict(sorted(line.items())) for arm, line in lines.items()}, about)


def _number(text: str) -> float:
    """Read the value behind a parameter, such as the 1 of "α=1"; raises UsageError for no
    number."""
    if not re.fullmatch(NUMBER, text):
        raise UsageError("--over takes a parameter and a number", expected="as α=1", found=text)
    return float(text)


def draw_sweep(sweep: Sweep, metrics: Sequence[str]) -> Drawing:
    """A panel per metric, a line per arm: means over seeds with 95 % intervals."""
    scores = [scores for line in sweep.lines.values() for scores in line.values()]
    for name in metrics:
        if not all(name in each for each in scores):
            raise UnknownName(
                "metric of these arms",
                name,
                sorted(set.intersection(*(set(each) for each in scores))),
            )
    names = [short(arm, 30) for arm in sweep.lines]
    points = sorted({value for line in sweep.lines.values() for value in line})

    def paint(figure: Figure) -> None:
        """Fill the figure: panels side by side; values that span a factor of 8 on a log scale."""
        panels = figure.subplots(1, len(metrics), squeeze=False)[0]
        for panel, metric in zip(panels, metrics, strict=True):
            for number, (arm, line) in enumerate(sweep.lines.items()):
                means = {value: _in_percent(scores[metric]) for value, scores in line.items()}
                _paint_sweep(panel, means, arm, number, len(sweep.lines))
            if points[0] > 0 and points[-1] / points[0] >= 8:
                panel.set_xscale("log")
            panel.set_xticks(points, [f"{value:g}" for value in points], fontsize=6)
            panel.minorticks_off()
            panel.set(title=metric, xlabel=sweep.parameter)
            panel.grid(axis="y", color=FAINT, linewidth=0.5)
            _widen(panel)

        panels[0].set_ylabel("percent")
        if len(sweep.lines) > 1:
            legend_above(figure, names, panels[0].get_legend_handles_labels()[0])

    legend = legend_height(names) if len(names) > 1 else 0
    return draw_figure(paint, height=1.8 + legend, about=sweep.about)


def _widen(panel: Axes) -> None:
    """Let the scale of scores span LEAST points at least, so that chance does not look large."""
    low, high = panel.get_ylim()
    centre = (low + high) / 2
    panel.set_ylim(min(low, centre - LEAST / 2), max(high, centre + LEAST / 2))


def _paint_sweep(
    panel: Axes, line: Mapping[float, Interval], name: str, number: int, of: int
) -> None:
    """Draw an arm, by value of the parameter, as number `number` of `of`; without intervals where
    all are of one seed."""
    halves = [_half(interval) for interval in line.values()]
    panel.errorbar(
        list(line),
        [interval.mean for interval in line.values()],
        yerr=halves if any(halves) else None,
        color=series_color(number, of),
        marker=marker_of(number),
        markersize=3,
        capsize=1.6,
        elinewidth=0.8,
        capthick=0.8,
        label=name,
    )
