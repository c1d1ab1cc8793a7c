"""Draws leaderboards: one metric against another with the Pareto front, or the best score by
year."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from hbench import boards as leaderboard
from hbench.boards import Leaderboard, Row, as_one, joined
from hbench.core.errors import UsageError
from hbench.look.figures import FAINT, GREY, Drawing, draw_figure, short
from hbench.look.palette import color_at
from hbench.look.plots import PlotRequest, kind
from hbench.metrics.names import goodness, lower_is_better

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PARETO = ("AP", "H-AP")
BOARD = "the name or file of a leaderboard"
MAX_NAMED = 12  # points with a number and a name
FRONT = color_at(0.0)
PAPER = color_at(0.45)
RUN = color_at(0.72)


class BoardPoint(NamedTuple):
    """A row as a point. x and y are scores in percent, or x is a year. `goodness` holds two numbers
    for x and y, where higher is better."""

    x: float
    y: float
    row: Row
    goodness: tuple[float, float]


def points_of(board: Leaderboard, metrics: tuple[str, str]) -> list[BoardPoint]:
    """Make points from the comparable rows with both metrics, x and y. Rows that print the same
    result share one point.

    A row's `unranked` lists the metrics whose scores were made under other conditions. Raises
    UnknownName for a metric, UsageError if no row is left.
    """
    x, y = (board.key(metric) for metric in metrics)
    # `joined` groups the rows that print the same result, `as_one` makes one row of a group
    rows = [
        row
        for row in map(as_one, joined(board.rows))
        if {x, y} <= row.scores.keys() - row.unranked.keys()
    ]
    if not rows:
        expected = "two metrics of one row, such as --metric R@1 --metric R@10"
        found = ", ".join(board.metrics)
        raise UsageError(
            f"no row of {board.dataset} has {x} and {y}", expected=expected, found=found
        )
    scores = [(float(row.scores[x]), float(row.scores[y])) for row in rows]
    # higher goodness is better, also for a metric of which lower values are better
    return [
        BoardPoint(x=at_x, y=at_y, row=row, goodness=(goodness(x, at_x), goodness(y, at_y)))
        for (at_x, at_y), row in zip(scores, rows, strict=True)
    ]


def front_of(points: Sequence[BoardPoint]) -> list[BoardPoint]:
    """Select the Pareto front: the points that no other point beats in both metrics, sorted by x.
    Of equal points, the first is selected."""
    return _rising(sorted(points, key=lambda point: point.goodness, reverse=True))[::-1]


def records_of(points: Sequence[BoardPoint]) -> list[BoardPoint]:
    """Select the records by year: each is better than all points of earlier years and of its own
    year."""
    return _rising(sorted(points, key=lambda point: (point.x, -point.goodness[1])))


def _rising(points: Sequence[BoardPoint]) -> list[BoardPoint]:
    """Select the points whose y is better than that of all points before them. `goodness` holds
    numbers for x and y, where higher is better."""
    best = np.maximum.accumulate([-np.inf, *(point.goodness[1] for point in points)]).tolist()
    return [
        point for point, before in zip(points, best, strict=False) if point.goodness[1] > before
    ]


def lower_fence(values: Sequence[float]) -> float:
    """Compute Tukey's outer fence, first quartile − 3 · interquartile range; values below it are
    far out.

    >>> lower_fence([50, 51, 52, 53, 54, 0.1])
    42.75
    """
    first, third = np.quantile(values, [0.25, 0.75])
    return float(first - 3 * (third - first))


def draw_pareto(board: Leaderboard, metrics: tuple[str, str]) -> Drawing:
    """Draw every row by two metrics. The rows of the Pareto front are connected, numbered and
    named.

    Rows far worse than the others, such as random vectors, are left out of the picture and only
    counted.
    """
    points = points_of(board, metrics)
    front = front_of(points)
    # points with less goodness of x, or of y, than these fences are left out; more is better
    left = lower_fence([point.goodness[0] for point in points])
    low = lower_fence([point.goodness[1] for point in points])
    seen = [point for point in points if point.goodness[0] >= left and point.goodness[1] >= low]
    outside = len(points) - len(seen)

    def paint(figure: Figure) -> None:
        """Draw a mark for each row, and the front as a line that falls in steps."""
        panel = figure.subplots()
        # "pre": the line falls right after each point of the front, since further on in x, the best
        # y that any row reaches is that of the next point
        _paint_points(panel, seen, front, line=front, where="pre")
        _label_axes_by_metrics(panel, board, x=metrics[0], y=metrics[1])
        _number_and_name(figure, panel, front)

    more = f" · {outside} far below lie outside" if outside else ""
    return draw_figure(paint, height=_height(front), about=_about(board, len(points)) + more)


def draw_time(board: Leaderboard, metric: str) -> Drawing:
    """Draw every row that has a year by its year, with a line of the best score so far. Rows that
    set a record are numbered and named."""
    key = board.key(metric)
    # rows that print the same result share one point; rows that are not ranked by the metric are
    # left out, since they cannot set a record
    rows = [
        row
        for row in map(as_one, joined(board.rows))
        if key in row.scores and key not in row.unranked
    ]
    scores = [(row, float(row.scores[key])) for row in rows]
    # x is the year, and no year is better than another: only the goodness of the score counts
    points = [
        BoardPoint(x=row.year, y=score, row=row, goodness=(0, goodness(key, score)))
        for row, score in scores
        if row.year
    ]
    if not points:
        raise UsageError(
            f"no row of {board.dataset} has {key} and a year", found=", ".join(board.metrics)
        )
    best = records_of(points)  # the points of the rows that set a record, by year
    last = max(each.x for each in points)  # the year at the right edge

    def paint(figure: Figure) -> None:
        """Draw a mark for each row by year. A record lasts until the next one, the last record
        until the right edge."""
        panel = figure.subplots()
        # one more point, at the right edge, extends the line of records
        line = [*best, best[-1]._replace(x=last)]
        _paint_points(panel, points, best, line=line, where="post")
        years = range(int(min(each.x for each in points)), int(last) + 1)
        panel.set_xticks(list(years), [str(year) for year in years])
        panel.set_xlim(years[0] - 0.4, years[-1] + 0.4)
        panel.set(xlabel="year of the source")
        _label_axes_by_metrics(panel, board, y=key)
        _number_and_name(figure, panel, best)

    without = len(rows) - len(points)
    more = f" · {without} without a year left out" if without else ""
    return draw_figure(paint, height=_height(best), about=_about(board, len(points)) + more)


def _label_axes_by_metrics(
    panel: Axes, board: Leaderboard, *, y: str, x: str | None = None
) -> None:
    """Label the axes that show metrics. If lower values of a metric are better, its axis is
    inverted, so that better is always right and up.

    `x` and `y` are the metrics, in any spelling that `board.key` turns into the one of the rows;
    `x` is None where the axis shows something else.
    """
    for name, axis in ((x, panel.xaxis), (y, panel.yaxis)):
        if name is not None:
            lower = lower_is_better(board.key(name))
            unit = "%, lower is better" if lower else "%"
            axis.set_label_text(f"{board.key(name)} ({unit})")
            axis.set_inverted(lower)


def _paint_points(
    panel: Axes,
    points: Sequence[BoardPoint],
    best: Sequence[BoardPoint],
    *,
    line: Sequence[BoardPoint],
    where: Literal["pre", "post"],
) -> None:
    """Draw a line of steps through `line`, and the rows of papers and of runs as `points`. Those of
    the points that are in `best`, as the same objects, have the colour of the line.

    `where` says where the line steps to the height of the next point: "pre" right after a point,
    "post" only at the next point.
    """
    places = [each.x for each in line], [each.y for each in line]
    panel.step(*places, where=where, color=FRONT, linewidth=0.8, zorder=1)
    named = {id(each) for each in best}
    for label, marker, color, of_run in (
        ("of a paper", "o", PAPER, False),
        ("of a run", "D", RUN, True),
    ):
        own = [each for each in points if (each.row.run is not None) == of_run]
        if own:
            colors = [FRONT if id(each) in named else color for each in own]
            x = [each.x for each in own]
            y = [each.y for each in own]
            panel.scatter(
                x,
                y,
                s=10,
                marker=marker,
                c=colors,
                linewidths=0.3,
                edgecolors="white",
                label=label,
                zorder=2,
            )

    panel.margins(0.06, 0.08)
    panel.grid(color=FAINT, linewidth=0.5)
    panel.set_axisbelow(True)
    # a legend is needed only if there are both papers and runs
    if len({each.row.run is None for each in points}) > 1:
        panel.legend(fontsize=6, loc="lower right", handletextpad=0.1, borderaxespad=0.1)


def _number_and_name(figure: Figure, panel: Axes, best: Sequence[BoardPoint]) -> None:
    """Write a number next to each of the `best` points, which are sorted by x, and the points'
    names above the picture. Of many points, only the last MAX_NAMED, furthest to the right, get a
    number and a name."""
    from matplotlib.lines import Line2D

    words = []
    for number, point in enumerate(best[-MAX_NAMED:], start=1):
        place = (point.x, point.y)
        panel.annotate(
            str(number),
            place,
            xytext=(2, 1.5),
            textcoords="offset points",
            fontsize=5.5,
            color=GREY,
        )
        words.append(f"{number}  {_words(point.row)}")
    # the list of names is a legend without marks
    figure.legend(
        [Line2D([], [], linestyle="none") for _ in words],
        words,
        loc="outside upper left",
        ncols=2,
        fontsize=5.5,
        handlelength=0,
        handletextpad=0,
        columnspacing=1,
    )


def _words(row: Row) -> str:
    """The text for a row in the list of names: method, backbone and dimension."""
    setup = ", ".join(filter(None, (row.backbone, str(row.dim or ""))))
    return short(row.method + (f" ({setup})" if setup else ""), 36)


def _height(best: Sequence[BoardPoint]) -> float:
    """The height of the picture in inches: the panel, and the list of names above it in two
    columns."""
    return 2.35 + 0.105 * (-(-min(len(best), MAX_NAMED) // 2))


def _about(board: Leaderboard, results: int) -> str:
    """The small print: the leaderboard, the number of results drawn, and the command that lists
    their sources."""
    where = f"hbench leaderboard show {board.dataset}"
    return (
        f"{board.dataset}@{board.version} · protocol {board.protocol} · {results} results; "
        f"sources: {where}"
    )


def _board(request: PlotRequest, name: str) -> Leaderboard:
    """Load the single leaderboard of a request. Raises UsageError for several. `name` is the kind
    of picture."""
    if len(request.files) != 1:
        raise UsageError(f"plot {name} takes one leaderboard", found=", ".join(request.files))
    return leaderboard.read_board(request.files[0])


@kind(
    "pareto",
    about="a leaderboard by two metrics, fine AP against H-AP, with its front",
    files=BOARD,
    options="metrics",
)
def _draw_pareto(request: PlotRequest) -> Drawing:
    """Draw a leaderboard by the two requested metrics, by default those of PARETO."""
    metrics = request.metrics or PARETO
    if len(metrics) != 2:
        raise UsageError(
            "plot pareto takes two metrics", expected="--metric twice", found=", ".join(metrics)
        )
    return draw_pareto(_board(request, "pareto"), (metrics[0], metrics[1]))


@kind("time", about="a leaderboard by year, with the best so far", files=BOARD, options="metrics")
def _draw_time(request: PlotRequest) -> Drawing:
    """Draw a leaderboard by year and the requested metric, by default the leaderboard's own."""
    board = _board(request, "time")
    if len(request.metrics) > 1:
        raise UsageError("plot time takes one metric", found=", ".join(request.metrics))
    return draw_time(board, next(iter(request.metrics), board.metric))
