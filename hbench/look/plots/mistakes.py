"""Draws the severity of mistakes: the level of the first wrong result, and the levels of the
results at ranks 1, 5 and 10."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from hbench.core.errors import UsageError
from hbench.look.figures import (
    Drawing,
    draw_figure,
    legend_above,
    legend_height,
    percent_axis,
    short,
)
from hbench.look.inputs import dataset_of, ranked_tests, runs_of, trace_queries
from hbench.look.palette import color_of, text_color_on
from hbench.look.plots import PlotRequest, kind
from hbench.look.strips.retrievals import legend_of
from hbench.metrics.definitions import distance_of_the_first_mistake
from hbench.metrics.level_sequence import LevelSequence
from hbench.records.document import Document
from hbench.records.report import Report

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

RANKS = (1, 5, 10)
FIRST_WRONG = "first wrong"
FIRST_MISTAKE = "HD-first-mistake"  # its values give the level of the first wrong result
HEADING = 0.85
LEGEND_POINTS = 6.5  # points of the legend
PRINTED = 7.5  # the smallest part of a bar, in percent, that has space for a number
Counts = NDArray[np.int64]  # (L+1,): queries whose result has the level 0 … L
Rows = Mapping[str, Counts]  # result ("rank 1", …, "first wrong") -> counts


class MistakeBar(NamedTuple):
    """A bar: its position from the top, the result whose levels it counts, and the name of the
    run."""

    place: float
    result: str
    name: str
    counts: Counts


def levels_at(sequence: LevelSequence) -> NDArray[np.float64]:
    """Return the levels of the items at the three RANKS and then of the first wrong item, (4,); NaN
    where there is no such item. An item is wrong if it is not of the query's finest class; without
    any item of that class, the last number is NaN, too."""
    depth = len(sequence.counts) - 1  # the counts are by level, 0 … L
    items = int(sequence.counts.sum())
    # rank -> level, for the positives; an item at any other rank has level 0
    listed = dict(zip(sequence.ranks.tolist(), sequence.levels.tolist(), strict=True))
    at_ranks = [float(listed.get(rank, 0)) if rank <= items else np.nan for rank in RANKS]
    # the level of the first wrong item from its hierarchical distance, 1 − level/depth
    return np.array([*at_ranks, depth * (1 - distance_of_the_first_mistake(sequence))])


def count_levels(levels: NDArray[np.float64], depth: int) -> Counts:
    """Count the values of each level 0 … L: (L+1,). NaN is not counted."""
    # levels computed from distances are whole numbers up to rounding
    defined = np.rint(levels[~np.isnan(levels)]).astype(np.int64)
    return np.bincount(defined, minlength=depth + 1)


def of_document(name: str, document: Document, distances: NDArray[np.float64] | None) -> Rows:
    """Count the levels of the results of a report: at rank 1 and, if `distances` (Q,) are given, of
    the first wrong result. The distances are the values of HD-first-mistake, 1 − level/L; NaN for a
    query without a value.

    `name` is the report's name, for the error. Returns, for each row of the picture, the counts (L
    + 1,) by level, from 0.
    """
    depth = len(document.levels)
    # `mistakes` are, for each test, the number of first results by level; all levels must be there
    is_complete = all(len(own) == depth + 1 for own in document.mistakes.values())
    if not (document.mistakes and is_complete):
        raise UsageError(
            f"the report of {name} does not say of what level the first results are",
            fix="evaluate again",
        )
    # summed over the tests. A report starts with the finest level, the counts here with level 0
    first = sum(np.array(list(own.values())[::-1]) for own in document.mistakes.values())
    rows = {"rank 1": np.asarray(first)}
    if distances is None:
        return rows
    return rows | {FIRST_WRONG: count_levels(depth * (1 - distances), depth)}


def draw_mistakes(
    names: Sequence[str], found: Sequence[Rows], levels: Sequence[str], about: str
) -> Drawing:
    """Draw a stacked bar per run and result: the shares of queries whose result has each level.

    `names` are the runs; `found` holds, for each run, {result, such as "rank 1": the counts
    (L + 1,) of queries by the level of that result}; `levels` are the names of the levels, coarse
    to fine; `about` is the small print.
    """
    several = len(found) > 1
    # the height of a group's heading, in heights of a bar; a single run needs no headings
    heading = HEADING * several
    # grouped by result: the bars of all runs are below each other
    bars = _bars(names, found, heading)
    legend = legend_of(levels)  # (level, mark, name) of each level, such as (1, "●○", "genus")
    words = [_in_legend(level, mark, name) for level, mark, name in legend]

    def paint(figure: Figure) -> None:
        """Draw a bar for every run and result. Its parts are the levels that the result shares with
        the query."""
        from matplotlib.patches import Patch

        panel = figure.subplots()
        for bar in bars:
            _paint_bar(panel, bar.place, bar.counts, len(levels))
        percent_axis(panel, "x")
        named = [short(bar.name, 18) if several else bar.result for bar in bars]
        panel.set_yticks([bar.place for bar in bars], named)
        panel.set_ylim(bars[-1].place + 0.5, -0.5 - heading)
        if several:
            _name_groups(panel, bars[:: len(found)])  # the first bar of each group
        panel.tick_params(axis="y", length=0)
        panel.set_xlabel("queries, percent")
        patches = [Patch(color=color_of(level, len(levels))) for level, _, _ in legend]
        legend_above(figure, words, patches, LEGEND_POINTS)

    # in inches: axis, legend, and .2 for each bar and each heading of a group
    height = (
        0.62 + legend_height(words, LEGEND_POINTS) + 0.2 * len(found[0]) * (len(found) + heading)
    )
    return draw_figure(paint, height=height, about=about)


def _bars(names: Sequence[str], found: Sequence[Rows], heading: float) -> list[MistakeBar]:
    """List the bars of all runs, grouped by result, with a heading above each group. Positions
    count from the top; `heading` is the height of a heading in heights of a bar.

    `names`: of the runs. `found`: for each run, {result, such as "rank 1": the counts (L + 1,) of
    queries by the level of that result}; all runs have the same results.
    """
    bars = []
    for group, result in enumerate(found[0]):
        for row, (name, rows) in enumerate(zip(names, found, strict=True)):
            place = group * (len(found) + heading) + row
            bars.append(MistakeBar(place, result, name, rows[result]))
    return bars


def _in_legend(level: int, mark: str, name: str) -> str:
    """The text of a level in the legend: "same …" for every level but the unrelated results."""
    return f"{mark} same {short(name, 20)}" if level else f"{mark} {short(name, 20)}"


def _name_groups(panel: Axes, tops: Sequence[MistakeBar]) -> None:
    """Write above the top bar of each group which result its bars describe."""
    for bar in tops:
        panel.annotate(
            bar.result,
            (0, bar.place - 0.5),  # the upper edge of its row: places count downwards
            xytext=(2, 1.5),
            textcoords="offset points",
            fontsize=6.5,
            va="bottom",
        )


def _paint_bar(panel: Axes, place: float, counts: Counts, depth: int) -> None:
    """Draw one bar with the finest level on the left and unrelated results on the right.

    `place` is the vertical position of the bar; `counts` (L + 1,) are the queries by level; `depth`
    is L.
    """
    total = max(1, int(counts.sum()))
    left = 0.0
    for level in range(depth, -1, -1):
        share = 100 * int(counts[level]) / total
        color = color_of(level, depth)
        panel.barh(
            place, share, left=left, height=0.8, color=color, edgecolor="white", linewidth=0.4
        )

        if share >= PRINTED:
            middle = left + share / 2
            ink = text_color_on(color)
            panel.text(
                middle,
                place,
                f"{share:.0f}",
                ha="center",
                va="center_baseline",
                fontsize=6.5,
                color=ink,
            )

        left += share


def _of_report(report: Report, _metrics: Sequence[str]) -> Drawing:
    """Draw the mistakes of one report in memory, as far as its results and values contain them."""
    document = report.document
    name = report.document.method or ""
    rows = of_document(name, document, report.values.get(FIRST_MISTAKE))
    return draw_mistakes([name], [rows], document.levels, report.signature)


@kind(
    "mistakes",
    about="the level of the first wrong result, and of the results at ranks 1, 5 and 10",
    files="embedding files with --dataset, or reports (.json; rank 1, and the first wrong result "
    f"by {FIRST_MISTAKE})",
    options="dataset test names",
    of_report=_of_report,
)
def _draw(request: PlotRequest) -> Drawing:
    """Draw the mistakes of reports, as far as all of these reports have them, or of embedding
    files, which are ranked here."""
    # reports already hold counts by level; embeddings have to be ranked
    if all(file.endswith(".json") for file in request.files):
        runs = runs_of(request.files, request.names)
        # the level of each query's first wrong result follows from the metric HD-first-mistake, its
        # distance in the tree, which is in the table of values by query, a file beside the report
        found = [of_document(run.name, run.document, _distances(run.by_query)) for run in runs]
        names = [run.name for run in runs]
        first = runs[0].document
        return draw_mistakes(names, _of_common_results(found), first.levels, first.signature)

    ranked = ranked_tests(
        request.files, dataset_of(request.dataset, "mistakes"), request.test, request.names
    )
    keys = [*(f"rank {rank}" for rank in RANKS), FIRST_WRONG]

    found = []
    for test in ranked:
        # (keys, Q): the level of the item at each of the ranks, and of the first wrong item
        columns = trace_queries(test.job, levels_at, len(keys)).T
        depth = test.manifest.tree.depth
        found.append(
            {key: count_levels(column, depth) for key, column in zip(keys, columns, strict=True)}
        )

    return draw_mistakes(
        [test.name for test in ranked], found, ranked[0].examined.data.levels, ranked[0].signature
    )


def _of_common_results(found: Sequence[Rows]) -> list[Rows]:
    """Keep the counts of the results that every run has. Some reports may contain fewer results
    than others, and bars are only drawn side by side where every run has one."""
    shared = set(found[0]).intersection(*found)
    common = [result for result in found[0] if result in shared]
    kept: list[Rows] = []
    for rows in found:
        kept.append({result: rows[result] for result in common})
    return kept


def _distances(by_query: pa.Table | None) -> NDArray[np.float64] | None:
    """The distance of every query's first mistake, (Q,), from a table of values by query; None
    without the table or without this metric."""
    if by_query is None or FIRST_MISTAKE not in by_query.column_names:
        return None
    return np.asarray(by_query[FIRST_MISTAKE].to_numpy(), np.float64)
