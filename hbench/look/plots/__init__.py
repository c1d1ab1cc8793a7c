"""Draws plots. Every module in this folder registers one kind of plot or a small family of kinds.

A kind consists of its name, a description of its files and options, and a function that draws them.

>>> kinds["h-pr"].about
'the hierarchical precision–recall curve, whose area is H-AP'
"""

import importlib
import pkgutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from hbench.core.arguments import checked
from hbench.core.errors import UsageError, examples
from hbench.core.registry import Registry
from hbench.datasets import Dataset
from hbench.look.figures import Drawing
from hbench.records.report import Report, document_of


class PlotRequest(NamedTuple):
    """A request to draw files or names with options. Each kind of plot accepts some of the options.
    `dataset` is a name or a dataset."""

    files: tuple[str, ...]
    dataset: str | Dataset | None = None
    test: str | None = None
    names: tuple[str, ...] = ()
    metrics: tuple[str, ...] = ()
    level: str | None = None
    by_query: Path | None = None
    method: str | None = None


class Kind(NamedTuple):
    """A kind of plot.

    Attributes:
        draw: draws a request.
        about: what the plot shows.
        files: which files the plot takes.
        options: the fields of a request that the plot accepts.
        of_report: draws a report in memory, by metrics; None if a report alone does not suffice.
    """

    about: str
    files: str
    options: frozenset[str]
    draw: Callable[[PlotRequest], Drawing]
    of_report: Callable[[Report, Sequence[str]], Drawing] | None = None


kinds: Registry[Kind] = Registry("kind of plot")
Draw = Callable[[PlotRequest], Drawing]


def kind(
    name: str,
    about: str,
    files: str,
    options: str,
    of_report: Callable[[Report, Sequence[str]], Drawing] | None = None,
) -> Callable[[Draw], Draw]:
    """Register a function that draws requests as a kind of plot.

    Args:
        name: the name of the kind.
        about: what the plot shows, for the help.
        files: which files it takes, for the help.
        options: the fields of a request that it accepts, separated by spaces.
        of_report: draws a report in memory, by metrics, if a report alone suffices.
    """

    def register(function: Draw) -> Draw:
        """Register the function with the name, help texts (`about`, `files`), options, and drawing
        of a report in memory (`of_report`) that `kind` was given."""
        kinds.register(name)(
            Kind(
                about=about,
                files=files,
                options=frozenset(options.split()),
                draw=function,
                of_report=of_report,
            )
        )
        return function

    return register


def draw(kind: str, request: PlotRequest) -> Drawing:
    """Draw a request. Raises UnknownName for an unknown kind, UsageError for a request without
    files or with options that the kind does not accept."""
    chosen = kinds[kind]
    if not request.files:
        raise UsageError(f"plot {kind} needs files", expected=chosen.files)
    # the first field holds the files; all others are options, empty or None if not given
    given = [name for name in PlotRequest._fields[1:] if getattr(request, name)]
    if foreign := [_option(name) for name in given if name not in chosen.options]:
        taken = examples(sorted(map(_option, chosen.options)), most=9)
        raise UsageError(
            f"{kind} does not take {', '.join(foreign)}", expected=taken or "no option but --out"
        )
    return chosen.draw(request)


def _option(field: str) -> str:
    """Return the option of `hbench plot` for a field of a request, such as --metric for metrics."""
    return "--" + field.rstrip("s").replace("_", "-")


@checked
def plot(
    report: Report | str | Path, kind: str = "levels", metrics: str | Sequence[str] = ()
) -> Drawing:
    """Draw a report; a notebook shows the drawing.

    Args:
        report: what `hbench.evaluate` returns, or the path of its file (JSON).
        kind: "levels" (default), metrics by level, or "mistakes", the levels of first results.
        metrics: names of metrics by level, for "levels". Default: AP, R@1 and R@10.

    Returns:
        A Drawing; `drawing.write("levels.pdf")` saves it as .png, .svg or .pdf.

    Raises:
        UnknownName: a kind or metric that does not exist.
        UsageError: a kind that needs more than a report, or a metric that the report lacks.
        SubmissionError: a file that is no report.
    """
    chosen = kinds[kind]
    if chosen.of_report is None:
        raise UsageError(
            f"a report alone cannot be drawn as {kind}",
            expected=f"one of {', '.join(name for name in kinds if kinds[name].of_report)}",
            fix=f"hbench plot {kind}, which takes {chosen.files}",
        )
    if metrics and "metrics" not in chosen.options:
        raise UsageError(f"{kind} does not take metrics", fix="leave metrics out")
    document_of(report)  # raises for anything that is not a report
    drawn = report if isinstance(report, Report) else Report.read(report)
    # without metrics the kind takes its own defaults
    return chosen.of_report(drawn, metrics.split(",") if isinstance(metrics, str) else metrics)


for _module in pkgutil.iter_modules(
    __path__
):  # imported last, since the kinds import from this module
    importlib.import_module(f"{__name__}.{_module.name}")
