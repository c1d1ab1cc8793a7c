"""Draws the hierarchical precision–recall curve, whose area is H-AP (rank losses, Eq. 30–32).

The curve of a query has a step for each of its positives, as wide as the positive adds to H-R and
as high as H-P there. The curve of a run is the mean of its queries' curves over the recall, here in
bins: the height of a bin is the mean precision in it, so that the area of the bins is exactly the
mean H-AP.
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
    """The mean precision of a run in every bin of recall, (BINS,), its 95 % interval, (BINS, 2),
    and the number of queries.
    """

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
    without positives.
    """
    recall, precision = h_pr_curve(sequence, relevance(sequence.counts))
    if not len(recall):
        return np.full(BINS, np.nan)
    # the area under the curve up to each recall, then up to each edge of a bin: the mean height in
    # a bin is its area over its width
    from_zero = np.append(0, recall)
    area = np.append(0, np.cumsum(np.diff(from_zero) * precision))
    edges = np.interp(np.linspace(0, 1, BINS + 1), from_zero, area)
    heights: NDArray[np.float64] = np.diff(edges) * BINS
    return heights


def mean_curve(name: str, by_query: NDArray[np.float64], units: NDArray[np.int64]) -> Curve:
    """Average the curves of a run's queries, (Q, BINS), with intervals over their units (Q,)."""
    # queries without positives have no curve: NaN in all bins
    queries = int((~np.isnan(by_query[:, 0])).sum())
    return Curve(
        name, np.nanmean(by_query, axis=0), mean_intervals(UnitSums.of(by_query.T, units)), queries
    )


def draw_curves(curves: Sequence[Curve], about: str) -> Drawing:
    """Draw a line per run with its interval; the legend states the area. `about`: small print."""
    labels = [f"{short(curve.name, 30)}   H-AP {100 * curve.area:.1f}" for curve in curves]

    def paint(figure: Figure) -> None:
        """A curve of steps for every run, within its interval: precision over classes of recall."""
        panel = figure.subplots()
        # of the BINS equal classes of recall, in percent
        edges = np.linspace(0, 100, BINS + 1)
        for number, curve in enumerate(curves):
            color = series_color(number, len(curves))
            # steps go on to the right: the last edge needs a height, too
            low, high = (100 * np.append(side, side[-1]) for side in curve.interval.T)
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
    "the hierarchical precision–recall curve, whose area is H-AP",
    "embedding files with --dataset",
    "dataset test names",
)
def _draw(request: PlotRequest) -> Drawing:
    """The curves of the files that are asked for, over the queries of one test."""
    ranked = ranked_tests(
        request.files, dataset_of(request.dataset, "h-pr"), request.test, request.names
    )
    relevance = ranked[0].examined.conditions.relevance
    # the unit of each query, by which the interval of the mean curve is drawn
    units = [units_of(queries_of(test.test, test.manifest)) for test in ranked]
    # (Q, BINS) of each file: the precision of each query by classes of recall
    rows = [
        trace_queries(test.job, lambda sequence: precision_by_recall(sequence, relevance), BINS)
        for test in ranked
    ]
    curves = [
        mean_curve(test.name, row, unit)
        for test, row, unit in zip(ranked, rows, units, strict=True)
    ]
    return draw_curves(curves, ranked[0].signature)
