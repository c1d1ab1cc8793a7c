"""Draws training: the curves of runs by their logs, and a study's metrics over one of its parameters."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hbench.core.errors import DataError, UnknownName, UsageError
from hbench.core.untrusted import LIST, parse_json, read_text
from hbench.evaluation import leaderboard
from hbench.look.figures import FAINT, Drawing, drawn, legend_above, legend_height, short
from hbench.look.inputs import shown_names
from hbench.look.palette import marker_of, series_color
from hbench.look.plots import Kind, PlotRequest, kinds
from hbench.look.plots.study import FILES, read_study
from hbench.train.records.log import FILE as LOG
from hbench.train.study.claims import Values, contrast

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

METRICS = ("H-AP", "AP", "R@1")
SWEPT = ("H-AP", "AP")
LEAST = 2.0  # percent that an axis spans at least, lest noise looks like an effect
NUMBER = r"-?\d+(?:\.\d+)?(?:e-?\d+)?"
Floats = NDArray[np.float64]


class TrainingLog(NamedTuple):
    """A run's log: (epoch, loss) of every logged step, of its terms, and (epoch, score) of every validation, or of
    the tests where there is none; each (n, 2)."""

    name: str
    loss: Floats
    terms: Mapping[str, Floats]
    scores: Mapping[str, Floats]


def read_log(path: Path, name: str) -> TrainingLog:
    """What a run has logged so far; a last line that a killed run left half-written is left out. Raises DataError."""
    path = path / LOG if path.is_dir() else path
    try:
        text = read_text(path, most=LIST)
        lines = [parse_json(line) for line in text[: text.rfind("\n") + 1].splitlines() if line]
        steps = [line for line in lines if "loss" in line]
        per_epoch = steps[0]["steps_per_epoch"]
        loss = _points(steps, per_epoch, lambda line: line["loss"])
        terms = {
            term: _points(steps, per_epoch, lambda line, term=term: line["terms"][term]) for term in steps[0]["terms"]
        }
        of = "validation" if any("validation" in line for line in lines) else "scores"
        tested = [line for line in lines if of in line]
        names = tested[-1][of] if tested else ()
        scores = {each: _points(tested, per_epoch, lambda line, each=each: line[of][each]) for each in names}
    except (OSError, ValueError, KeyError, IndexError, TypeError) as error:
        raise DataError(
            f"{path} cannot be drawn", expected=f"the folder of a run, or its {LOG}", found=str(error)
        ) from None
    return TrainingLog(name, loss, terms, scores)


def _points(lines: Sequence[Any], per_epoch: int, value: Any) -> Floats:
    return np.array([(line["step"] / per_epoch, value(line)) for line in lines], np.float64).reshape(-1, 2)


def draw_training(logs: Sequence[TrainingLog], metrics: Sequence[str]) -> Drawing:
    """The loss over epochs; below it, where the run was tested, the scores: of one run several, of several runs one."""
    tested = any(log.scores for log in logs)
    shown = list(metrics) or (
        [name for name in METRICS if name in logs[0].scores] if len(logs) == 1 else list(METRICS[:1])
    )
    for name in shown if tested else metrics:
        if not all(name in log.scores for log in logs):
            raise UnknownName(
                "metric of these logs", name, sorted(set.intersection(*(set(log.scores) for log in logs)))
            )

    def paint(figure: Figure) -> None:
        panels = figure.subplots(1 + tested, 1, sharex=True, squeeze=False)[:, 0]
        _paint_losses(panels[0], logs)
        if tested:
            _paint_scores(panels[1], logs, shown)
        panels[-1].set_xlabel("epoch")
        for panel in panels:
            panel.grid(axis="y", color=FAINT, linewidth=0.5)
            panel.legend(fontsize=6.5, loc="best")

    return drawn(paint, height=1.9 + 1.4 * tested, about=" · ".join(log.name for log in logs))


def _paint_losses(panel: Axes, logs: Sequence[TrainingLog]) -> None:
    lines = [(log.name, log.loss) for log in logs]
    if len(logs) == 1 and len(logs[0].terms) > 1:
        lines = [("loss", logs[0].loss), *logs[0].terms.items()]
    for number, (name, points) in enumerate(lines):
        width = 1.2 if len(logs) > 1 or number == 0 else 0.8
        panel.plot(*points.T, color=series_color(number, len(lines)), linewidth=width, label=short(name, 26))
    if all((points[:, 1] > 0).all() for _, points in lines):
        panel.set_yscale("log")
        from matplotlib.ticker import LogLocator, NullFormatter, ScalarFormatter

        panel.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        panel.yaxis.set_major_formatter(ScalarFormatter())
        panel.yaxis.set_minor_formatter(NullFormatter())
    panel.set_ylabel("loss" if len(logs) > 1 or len(lines) == 1 else "loss and its terms")


def _paint_scores(panel: Axes, logs: Sequence[TrainingLog], metrics: Sequence[str]) -> None:
    lines = [(metric if len(logs) == 1 else log.name, log.scores[metric]) for metric in metrics for log in logs]
    for number, (name, points) in enumerate(lines):
        panel.plot(
            points[:, 0],
            100 * points[:, 1],
            color=series_color(number, len(lines)),
            marker=marker_of(number),
            markersize=3,
            label=short(name, 26),
        )
    panel.set_ylabel("score (%)" if len(logs) == 1 else f"{', '.join(metrics)} (%)")


def _draw_curves(request: PlotRequest) -> Drawing:
    paths = [Path(file) for file in request.files]
    folders = [path if path.is_dir() else path.parent for path in paths]
    names = shown_names(request.names, [folder.resolve().name for folder in folders], folders)
    return draw_training([read_log(path, name) for path, name in zip(paths, names, strict=True)], request.metrics)


class Sweep(NamedTuple):
    """Lines of arms that differ in one parameter: arm -> its values, and metric -> the seeds' scores at each value."""

    parameter: str
    lines: Mapping[str, Mapping[float, Mapping[str, Floats]]]


def swept(values: Values, over: str | None) -> Sweep:
    """The arms named `NAME PARAMETER=VALUE`, by NAME. `over`: the parameter; with `=VALUE`, that of arms that name none.

    Raises UsageError where no arm, or arms of several parameters, would be drawn.
    """
    named = {arm: match for arm in values if (match := re.fullmatch(rf"(.+?),? (\S+?)=({NUMBER})", arm))}
    parameter, _, default = (over or "").partition("=")
    known = list(dict.fromkeys(match[2] for match in named.values()))
    if not parameter and len(known) == 1:
        parameter = known[0]
    if parameter not in known:
        raise UsageError(
            f"no arm has a parameter {parameter}" if parameter else "which parameter is along the axis?",
            expected=f"--over {' or '.join(known)}" if known else "arms named as 'HAPPIER α=2'",
            found=", ".join(values),
        )
    lines: dict[str, dict[float, Mapping[str, Floats]]] = {}
    for arm, match in named.items():
        if match[2] == parameter:
            lines.setdefault(match[1], {})[float(match[3])] = values[arm]
    for arm in lines.keys() & values.keys() if default else ():
        lines[arm][_number(default)] = values[arm]
    return Sweep(parameter, {arm: dict(sorted(line.items())) for arm, line in lines.items()})


def _number(text: str) -> float:
    if not re.fullmatch(NUMBER, text):
        raise UsageError("--over takes a parameter and a number", expected="as α=1", found=text)
    return float(text)


def draw_sweep(found: Sweep, metrics: Sequence[str], about: str) -> Drawing:
    """A panel per metric, a line per arm: means over seeds with 95 % intervals."""
    scores = [scores for line in found.lines.values() for scores in line.values()]
    for name in metrics:
        if not all(name in each for each in scores):
            raise UnknownName("metric of these arms", name, sorted(set.intersection(*(set(each) for each in scores))))
    names = [short(arm, 30) for arm in found.lines]
    points = sorted({value for line in found.lines.values() for value in line})

    def paint(figure: Figure) -> None:
        panels = figure.subplots(1, len(metrics), squeeze=False)[0]
        for panel, metric in zip(panels, metrics, strict=True):
            for number, (arm, line) in enumerate(found.lines.items()):
                _paint_line(panel, line, metric, (arm, number, len(found.lines)))
            if points[0] > 0 and points[-1] / points[0] >= 8:
                panel.set_xscale("log")
            panel.set_xticks(points, [f"{value:g}" for value in points], fontsize=6)
            panel.minorticks_off()
            panel.set(title=metric, xlabel=found.parameter)
            panel.grid(axis="y", color=FAINT, linewidth=0.5)
            low, high = panel.get_ylim()
            panel.set_ylim(min(low, (low + high - LEAST) / 2), max(high, (low + high + LEAST) / 2))
        panels[0].set_ylabel("percent")
        if len(found.lines) > 1:
            legend_above(figure, names, panels[0].get_legend_handles_labels()[0])

    return drawn(paint, height=1.8 + legend_height(names) * (len(names) > 1), about=about)


def _paint_line(
    panel: Axes, line: Mapping[float, Mapping[str, Floats]], metric: str, arm: tuple[str, int, int]
) -> None:
    name, number, of = arm
    means = {value: contrast(100 * scores[metric]) for value, scores in line.items()}
    mean = np.array([each.mean for each in means.values()])
    ends = np.array([(each.mean - each.low, each.high - each.mean) for each in means.values()]).T
    panel.errorbar(
        list(means),
        mean,
        yerr=np.where(np.isfinite(ends), ends, 0) if np.isfinite(ends).any() else None,
        color=series_color(number, of),
        marker=marker_of(number),
        markersize=3,
        capsize=1.6,
        elinewidth=0.8,
        capthick=0.8,
        label=name,
    )


def _draw_sweep(request: PlotRequest) -> Drawing:
    if len(request.files) != 1:
        raise UsageError("a sweep is drawn of one study", found=f"{len(request.files)} files")
    (source,) = request.files
    if source in leaderboard.names() or source.endswith(".toml"):
        board = leaderboard.read(source)
        rows = {
            row.method: {key: np.array([float(score) / 100]) for key, score in row.scores.items()} for row in board.rows
        }
        values: Values = rows
        about = f"{board.dataset}@{board.version} · protocol {board.protocol} · leaderboard"
    else:
        values, about = read_study(source)
    found = swept(values, request.over)
    return draw_sweep(found, request.metrics or SWEPT, about)


kinds.register("curves")(
    Kind(
        "loss and test scores over the epochs of training",
        "folders of runs, or their log.jsonl",
        frozenset({"names", "metrics"}),
        _draw_curves,
    )
)
kinds.register("sweep")(
    Kind(
        "metrics over a parameter of a study (--over α, or --over α=1 for arms that do not name it)",
        f"{FILES}, or a leaderboard",
        frozenset({"metrics", "over"}),
        _draw_sweep,
    )
)
