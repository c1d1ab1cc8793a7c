"""Draws the losses and the scores of training runs from their logs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hbench.core.errors import DataError, UnknownName
from hbench.core.untrusted import MAX_LIST_BYTES, parse_json, parse_toml, read_text
from hbench.look.figures import FAINT, Drawing, draw_figure, short
from hbench.look.inputs import shown_names
from hbench.look.palette import marker_of, series_color
from hbench.look.plots import PlotRequest, kind
from hbench.metrics.names import factor_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LOG = "log.jsonl"  # in the folder of a run
RECIPE = "recipe.toml"  # in the same folder
METRICS = ("H-AP", "AP", "R@1")
HELD_OUT = "held-out classes"
TESTS = "tests"
WIDE = 5  # the ratio of largest to smallest loss from which the axis is logarithmic
Floats = NDArray[np.float64]


class TrainingLog(NamedTuple):
    """The log of a run: (epoch, loss) of every logged step, in total and by term, and (epoch,
    score) of every validation or, without validation, of every test; each (n, 2).

    `scored` says what the scores are scores of. `dataset` is the dataset of the run, "" where it is
    unknown.
    """

    name: str
    loss: Floats
    terms: Mapping[str, Floats]
    scores: Mapping[str, Floats]
    scored: str
    dataset: str

    def scored_of(self, others: Sequence[TrainingLog]) -> str:
        """What the scores are scores of; the dataset is added where another run has a different
        one."""
        if not self.dataset or {other.dataset for other in others} == {self.dataset}:
            return self.scored
        return f"{self.scored} of {self.dataset}"


def read_log(path: Path, name: str) -> TrainingLog:
    """Read the log of a run, which errors and the picture call `name`. An incomplete last line is
    ignored. Raises DataError."""
    path = path / LOG if path.is_dir() else path
    try:
        text = read_text(path, most=MAX_LIST_BYTES)
        # each line is a JSON object; a run that still writes may have written only a part of the
        # last line
        lines = [parse_json(line) for line in text[: text.rfind("\n") + 1].splitlines() if line]
        steps = [line for line in lines if "loss" in line]  # other lines have scores or remarks
        if not steps:
            raise ValueError("no step is logged there")
        # the number of steps in an epoch, since points are drawn by epoch
        per_epoch = steps[0]["steps_per_epoch"]
        # `_points` makes (n, 2): the epoch of each line, and the value that is read from it
        loss = _points(steps, per_epoch, lambda line: line["loss"])
        named = steps[0]["terms"]
        terms = {
            term: _points(steps, per_epoch, lambda line, term=term: line["terms"][term])
            for term in named
        }
        # a run with held-out classes is validated on them and tested only at its end
        of = "validation" if any("validation" in line for line in lines) else "scores"
        tested = [line for line in lines if of in line]
        names = tested[-1][of] if tested else ()
        scores = {
            each: _points(tested, per_epoch, lambda line, each=each: line[of][each])
            for each in names
        }
    except (OSError, ValueError, KeyError, IndexError, TypeError) as error:
        raise _unreadable(path, error) from None

    scored = HELD_OUT if of == "validation" else TESTS
    # the recipe, which names the dataset, is in the folder of the log
    return TrainingLog(name, loss, terms, scores, scored, _dataset_of(path.parent))


def _unreadable(path: Path, error: Exception) -> DataError:
    """Return the refusal of a log. If its folder contains runs, as the trials of a sweep do, the
    advice is to draw these. `error` was raised when the log was read."""
    holds_runs = any(path.parent.glob(f"*/{LOG}"))
    return DataError(
        f"{path} cannot be drawn",
        expected=f"the folder of a run, or its {LOG}",
        found="nothing of this name" if isinstance(error, FileNotFoundError) else str(error),
        fix=f"{path.parent}/* draws the runs in it" if holds_runs else None,
    )


def _dataset_of(folder: Path) -> str:
    """The dataset in the recipe of the run in a folder; "" without a recipe."""
    try:
        return str(parse_toml(read_text(folder / RECIPE)).get("dataset", ""))
    except (OSError, ValueError):
        return ""


def _points(lines: Sequence[Any], per_epoch: int, value: Any) -> Floats:
    """Return (n, 2): the epoch of each line of a log, and the number that the function `value`
    reads from the line."""
    return np.array(
        [(line["step"] / per_epoch, value(line)) for line in lines], np.float64
    ).reshape(-1, 2)


def draw_training(logs: Sequence[TrainingLog], metrics: Sequence[str]) -> Drawing:
    """Draw the loss over epochs and, below it, the scores, if there are any.

    Losses with different terms cannot be compared, so each combination of terms has its own panel.
    `metrics` are the scores to draw, for any number of runs. If it is empty, they are those of
    METRICS that all logs with scores have or, if there are none, their first common score by name;
    for several runs, only the first of these is then drawn.
    """
    # runs that have not been scored yet, or were stopped before that, have only a loss
    scored = [log for log in logs if log.scores]
    common = set.intersection(*(set(log.scores) for log in scored)) if scored else set()
    for name in metrics:  # every log must have the requested metrics
        if name not in common:
            raise UnknownName("metric of these logs", name, sorted(common))
    usual = [name for name in METRICS if name in common] or sorted(common)[:1]
    shown = list(metrics or (usual if len(logs) == 1 else usual[:1]))
    tested = bool(shown)
    # the combinations of terms, such as those of a loss with two parts
    kinds_of_loss = list(dict.fromkeys(tuple(log.terms) for log in logs))

    def paint(figure: Figure) -> None:
        """Draw a panel for each combination of terms and, below, one for all scores, over the same
        epochs."""
        panels = figure.subplots(len(kinds_of_loss) + tested, 1, sharex=True, squeeze=False)[:, 0]
        # if there are scores, there is one more panel than kinds: the last, for the scores
        for panel, terms in zip(panels, kinds_of_loss, strict=False):
            _paint_losses(panel, logs, terms)
            if len(kinds_of_loss) > 1:
                panel.set_ylabel(short(" + ".join(terms), 24), fontsize=6.5)
        if tested:
            _paint_scores(panels[-1], logs, shown)
        panels[-1].set_xlabel("epoch")
        for panel in panels:
            panel.grid(axis="y", color=FAINT, linewidth=0.5)
            panel.legend(fontsize=6.5, loc="best")

    return draw_figure(
        paint,
        height=0.5 + 1.4 * (len(kinds_of_loss) + tested),
        about=" · ".join(log.name for log in logs),
    )


def _paint_losses(panel: Axes, logs: Sequence[TrainingLog], terms: Sequence[str]) -> None:
    """Draw the losses of the runs with these terms or, for a single run, all its terms. A run has
    the same colour as in the panel of scores."""
    # A single run has a single panel, which shows its terms, too, in thinner lines than their sum.
    # Of several runs only the total losses are drawn, each in the panel of the run's terms.
    lines = [(log.name, log.loss) for log in logs]
    if len(logs) == 1 and len(logs[0].terms) > 1:
        lines = [("loss", logs[0].loss), *logs[0].terms.items()]
    drawn_here = [
        number
        for number in range(len(lines))
        if len(logs) == 1 or tuple(logs[number].terms) == tuple(terms)
    ]
    for number in drawn_here:
        name, points = lines[number]
        width = 1.2 if len(logs) > 1 or number == 0 else 0.8  # terms are thinner than the loss
        panel.plot(
            *points.T,
            color=series_color(number, len(lines)),
            linewidth=width,
            marker="o" if len(points) == 1 else "",  # a single point makes no line
            markersize=3,
            label=short(name, 26),
        )
    # Losses fall fast at first, so a logarithmic axis shows more. It needs numbers above 0, and
    # within a factor of 5 it would have a single tick.
    values = np.concatenate([lines[number][1][:, 1] for number in drawn_here])
    if values.min() > 0 and values.max() > WIDE * values.min():
        panel.set_yscale("log")
        from matplotlib.ticker import LogLocator, NullFormatter, ScalarFormatter

        panel.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        panel.yaxis.set_major_formatter(ScalarFormatter())
        panel.yaxis.set_minor_formatter(NullFormatter())
    panel.set_ylabel("loss" if len(logs) > 1 or len(lines) == 1 else "loss and its terms")


def _paint_scores(panel: Axes, logs: Sequence[TrainingLog], metrics: Sequence[str]) -> None:
    """Draw the scores of validations and tests over the epochs, one line per log and metric."""
    # names of the sets of classes that were scored; `scored_of` compares the datasets of all logs,
    # and adds a log's dataset where another log has a different one
    scored_sets = list(dict.fromkeys(log.scored_of(logs) for log in logs if log.scores))
    # (name in the legend, points, place of the run) of each line
    lines = []
    for metric in metrics:
        for place, log in enumerate(logs):
            if not log.scores:
                continue
            # (n, 2): the epoch unchanged, the score as printed
            points = log.scores[metric] * (1, factor_of(metric))
            name = metric if len(logs) == 1 else short(log.name, 26)
            if len(logs) > 1 and len(metrics) > 1:
                name += f" {metric}"
            # scores on different classes cannot be compared, so the legend tells them apart
            if len(scored_sets) > 1:
                name += f" ({log.scored_of(logs)})"
            lines.append((name, points, place))

    for number, (name, points, place) in enumerate(lines):
        # Each line has its own marker. Of several runs, each has one colour for all of its lines,
        # the same as for its losses.
        color = (
            series_color(number, len(lines)) if len(logs) == 1 else series_color(place, len(logs))
        )
        marker = marker_of(number)
        panel.plot(
            points[:, 0],
            points[:, 1],
            marker,
            ls="-",
            color=color,
            markersize=3,
            label=short(name, 46),
        )

    what = "score" if len(logs) == 1 else ", ".join(metrics)
    if len(scored_sets) == 1:
        what += f", {scored_sets[0]}"
    panel.set_ylabel(f"{what} (%)" if all(factor_of(metric) == 100 for metric in metrics) else what)


@kind(
    "curves",
    about="loss and test scores over the epochs of training",
    files="folders of runs, or their log.jsonl",
    options="names metrics",
)
def _draw_curves(request: PlotRequest) -> Drawing:
    """Draw the curves of training runs. Each is given as its folder or a file in it, and is called
    by the folder's name unless another name is given."""
    paths = [Path(file) for file in request.files]
    folders = [path if path.is_dir() else path.parent for path in paths]
    names = shown_names(request.names, [folder.resolve().name for folder in folders], folders)
    return draw_training(
        [read_log(path, name) for path, name in zip(paths, names, strict=True)], request.metrics
    )
