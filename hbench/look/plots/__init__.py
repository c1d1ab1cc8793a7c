"""Draws the kinds of plots: one module per kind or small family on this shelf, each registering what it draws.

A kind says what its files are, which options it takes, and how they become a drawing.

>>> kinds["h-pr"].about
'the hierarchical precision–recall curve, whose area is H-AP'
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from hbench.core.errors import UsageError, examples
from hbench.core.registry import Registry
from hbench.evaluation.reports.report import Report
from hbench.look.figures import Drawing


class PlotRequest(NamedTuple):
    """What is to be drawn: files or names, and what was said of them; every kind takes some of the options."""

    files: tuple[str, ...]
    dataset: str | None = None
    test: str | None = None
    names: tuple[str, ...] = ()
    metrics: tuple[str, ...] = ()
    level: str | None = None
    by_query: Path | None = None
    method: str | None = None


class Kind(NamedTuple):
    """A kind of plot. `about`: what one sees; `files`: what is to be given; `options`: fields of the request it takes.

    `of_report`: the same from a report in memory, by the metrics that are asked for, where a report alone suffices.
    """

    about: str
    files: str
    options: frozenset[str]
    draw: Callable[[PlotRequest], Drawing]
    of_report: Callable[[Report, Sequence[str]], Drawing] | None = None


kinds: Registry[Kind] = Registry("kind of plot")


def draw(kind: str, request: PlotRequest) -> Drawing:
    """The drawing of a kind. Raises UnknownName for the kind, UsageError for options that it does not take."""
    chosen = kinds[kind]
    if not request.files:
        raise UsageError(f"nothing is given to plot {kind} of", expected=chosen.files)
    given = [name for name in PlotRequest._fields[1:] if getattr(request, name)]
    if foreign := [_option(name) for name in given if name not in chosen.options]:
        taken = examples(sorted(map(_option, chosen.options)), most=9)
        raise UsageError(f"{kind} does not take {', '.join(foreign)}", expected=taken or "no option but --out")
    return chosen.draw(request)


def _option(field: str) -> str:
    return "--" + field.rstrip("s").replace("_", "-")


def plot(report: Report, kind: str = "levels", metrics: Sequence[str] = ()) -> Drawing:
    """The picture of a report, which a notebook shows and `.write(path)` keeps. Raises UnknownName for the kind."""
    chosen = kinds[kind]
    if chosen.of_report is None:
        raise UsageError(
            f"a report alone cannot be drawn as {kind}",
            expected=f"one of {', '.join(name for name in kinds if kinds[name].of_report)}",
            fix=f"hbench plot {kind}, which takes {chosen.files}",
        )
    return chosen.of_report(report, metrics)


for _module in pkgutil.iter_modules(__path__):  # last, since they use what is defined above
    importlib.import_module(f"{__name__}.{_module.name}")
