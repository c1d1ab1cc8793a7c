"""Draws the hierarchical precision–recall curve, whose area is H-AP (rank losses, Eq. 30–32).

The curve of a query has a step for each of its positives, as wide as the positive's contribution to
H-R and as high as H-P at that positive. The curve of a run is the mean of its queries' curves, here
in bins of recall. The height of a bin is the mean precision in it, so the total area of the bins is
exactly the mean H-AP.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hbench.look.figures import (
    Drawing,
    draw_figure,
    legend_above,
    legend_height,
    percent_axis,
    short,
)
from hbench.look.inputs import dataset_of, ranked_tests, trace_queries
from hbench.look.palette import series_color
from hbench.look.plots import PlotRequest, kind
from hbench.metrics.definitions import h_pr_curve
from hbench.metrics.level_sequence import LevelSequence
from hbench.metrics.relevance import Relevance
from hbench.metrics.significance import UnitSums, mean_intervals
from hbench.records.queries import queries_of, units_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BINS = 50
DASHES = ("-", (0, (4, 1.2)), (0, (1.2, 1.2)), (0, (5, 1, 1, 1)))


class Curve(NamedTuple):
    """The curve of a run: its mean precision in every bin of recall (BINS,), the 95 % intervals
    (BINS, 2), and the number of queries."""

    name: str
    precision: NDArray[np.float64]
    interval: NDArray[np.float64]
    queries: int

    @property
    def area(self) -> float:
        """The mean H-AP of these queries."""
        return float(self.precision.mean())


def precision_by_recall(sequence: LevelSequence, relevance: Relevance) -> NDArray[np.float64]:
    """Compute the mean precision of one query in every bin of recall, (BINS,); NaN for a query
    without positives."""
    recall, precision = h_pr_curve(sequence, relevance(sequence.counts))
    if not len(recall):
        return np.full(BINS, np.nan)
    # the curve has a step for each positive, from the recall before it to its own, as high as its
    # precision. Take the area under the curve up to each recall, then up to each edge of a bin; the
    # mean height in a bin is the area in it divided by its width
    from_zero = np.append(0, recall)
    area = np.append(0, np.cumsum(np.diff(from_zero) * precision))
    edges = np.interp(np.linspace(0, 1, BINS + 1), from_zero, area)
    heights: NDArray[np.float64] = np.diff(edges) * BINS
    return heights


def mean_curve(name: str, by_query: NDArray[np.float64], units: NDArray[np.int64]) -> Curve:
    """Average the curves of a run's queries, (Q, BINS). The intervals are over the queries' units
    (Q,)."""
    # a query without positives has no curve: its bins are NaN
    queries = int((~np.isnan(by_query[:, 0])).sum())
    return Curve(
        name=name,
        precision=np.nanmean(by_query, axis=0),
        interval=mean_intervals(UnitSums.of(by_query.T, units)),
        queries=queries,
    )


def draw_curves(curves: Sequence[Curve], about: str) -> Drawing:
    """Draw a line per run with its interval; the legend gives the area. `about` is the small
    print."""
    labels = [f"{short(curve.name, 30)}   H-AP {100 * curve.area:.1f}" for curve in curves]

    def paint(figure: Figure) -> None:
        """Draw a step curve with its interval for every run: precision over bins of recall."""
        panel = figure.subplots()
        # the edges of the BINS equal bins of recall, in percent
        edges = np.linspace(0, 100, BINS + 1)
        for number, curve in enumerate(curves):
            color = series_color(number, len(curves))
            # interval.T: the lower and the upper ends, (BINS,) each. A step extends to the right,
            # so the last edge needs a height, too
            low, high = (100 * np.append(end, end[-1]) for end in curve.interval.T)
            panel.fill_between(edges, low, high, step="post", color=color, alpha=0.2, linewidth=0)
            panel.stairs(
                100 * curve.precision,
                edges,
                baseline=None,
                color=color,
                linestyle=DASHES[number % len(DASHES)],
                linewidth=1.2,
                label=labels[number],
            )

        percent_axis(panel)
        panel.set_xlim(0, 100)
        panel.set(xlabel="hierarchical recall (%)", ylabel="hierarchical precision (%)")
        legend_above(figure, labels, panel.get_legend_handles_labels()[0])

    about += "\nthe area under a curve is H-AP; bands: 95 % intervals over the finest classes"
    return draw_figure(paint, height=2.35 + legend_height(labels), about=about)


@kind(
    "h-pr",
    about="the hierarchical precision–recall curve, whose area is H-AP",
    files="embedding files with --dataset",
    options="dataset test names",
)
def _draw(request: PlotRequest) -> Drawing:
    """Draw the curves of the requested files over the queries of one test."""
    ranked = ranked_tests(
        request.files, dataset_of(request.dataset, "h-pr"), request.test, request.names
    )
    # `ranked_tests` examines all files under the same conditions: the first one's are those of all
    relevance = ranked[0].examined.conditions.relevance
    # (Q,) for each file: the units over which the interval of the mean curve is taken
    units = [units_of(queries_of(test.test, test.manifest)) for test in ranked]
    # (Q, BINS) for each file: the precision of every query in every bin of recall
    rows = [
        trace_queries(test.job, lambda sequence: precision_by_recall(sequence, relevance), BINS)
        for test in ranked
    ]
    curves = [
        mean_curve(test.name, row, unit)
        for test, row, unit in zip(ranked, rows, units, strict=True)
    ]
    return draw_curves(curves, ranked[0].signature)
