"""Draws the confusion of classes at one level of the tree: the class of a query against the class
of its first result."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from hbench.datasets.manifest import Manifest
from hbench.engine.top_k import NO_ITEM
from hbench.look.figures import Drawing, draw_figure, short
from hbench.look.inputs import dataset_of, ranked_test
from hbench.look.palette import text_color_on
from hbench.look.plots import PlotRequest, kind
from hbench.look.strips.retrievals import TopLists, first_results

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MAX_ROWS = 14  # with more classes, the smaller ones share the last row
NUMBERED = 14  # the largest number of classes for which shares are printed
REST = "other"
SHADES = ("#ffffff", "#7d8fb3", "#35456c", "#00224e")  # 0 … 100 percent


def confusion(manifest: Manifest, top: TopLists, level: int = 0) -> NDArray[np.int64]:
    """Count queries by their class (row) and the class of their first result (column): (C, C).
    Level 0 is the coarsest.

    `top` has the first results of all queries, in input order. Queries without results are left
    out.
    """
    # top.items is (Q, k): positions in the manifest
    some = top.items[:, 0] != NO_ITEM
    rows = manifest.labels[manifest.query, level][some].astype(np.int64)
    columns = manifest.labels[top.items[some, 0], level]
    number = len(manifest.tree.names[level])
    # a pair of classes as one number
    counts: NDArray[np.int64] = np.bincount(rows * number + columns, minlength=number**2).reshape(
        number, number
    )
    return counts


def largest_classes(
    names: Sequence[str], counts: NDArray[np.int64]
) -> tuple[list[str], NDArray[np.int64]]:
    """Return the names and counts (C, C) of the classes that occur. If there are more than
    MAX_ROWS, all but the MAX_ROWS − 1 classes with most queries are joined into one, the last."""
    shown = np.flatnonzero(counts.sum(axis=1) + counts.sum(axis=0))
    if len(shown) <= MAX_ROWS:
        return [names[node] for node in shown.tolist()], counts[np.ix_(shown, shown)]
    # the classes with most queries, in tree order
    kept = np.sort(shown[np.argsort(-counts.sum(axis=1)[shown], kind="stable")][: MAX_ROWS - 1])
    place = np.full(len(names), MAX_ROWS - 1)  # all other classes share the last row and column
    place[kept] = np.arange(MAX_ROWS - 1)
    merged = np.zeros((MAX_ROWS, MAX_ROWS), np.int64)
    # unlike `+=`, np.add.at adds all counts that go into the same cell
    np.add.at(merged, (place[:, None], place[None, :]), counts)
    return [*(names[node] for node in kept.tolist()), f"{len(shown) - MAX_ROWS + 1} {REST}"], merged


def draw_confusion(
    names: Sequence[str], counts: NDArray[np.int64], level: str, about: str
) -> Drawing:
    """Draw a cell for every pair of classes, darker for larger shares. The colour scale resolves
    small shares best.

    `names` are the classes; `counts` (C, C) the queries by their class and the class of their first
    result; `level` says what the classes are; `about` is the small print.
    """
    shares = 100 * counts / np.maximum(counts.sum(axis=1), 1)[:, None]
    words = [short(name, 16) for name in names]

    def paint(figure: Figure) -> None:
        """Draw a square of cells. Rows are the classes of queries, columns those of results."""
        panel = figure.subplots()
        _paint_cells(panel, shares)
        places = range(len(names))
        # of the font, in points: many names have less space each
        size = 7 if len(names) <= 8 else 5.5
        panel.set_xticks(
            places, words, rotation=40, ha="right", rotation_mode="anchor", fontsize=size
        )
        panel.set_yticks(places, words, fontsize=size)
        panel.tick_params(length=0)
        panel.set(xlabel=f"{level} of the first result", ylabel=f"{level} of the query")
        panel.spines[:].set_visible(False)

    return draw_figure(paint, height=2.9, about=f"{about}\npercent of the queries of a row")


def _paint_cells(panel: Axes, shares: NDArray[np.float64]) -> None:
    """Shade a square of shares in percent (query class, result class). The shares are printed if
    there are few enough classes to read them."""
    from matplotlib.colors import LinearSegmentedColormap, PowerNorm, to_hex

    shade = LinearSegmentedColormap.from_list("shares", SHADES)
    scale = PowerNorm(0.5, 0, 100)  # the square root makes small shares differ more
    edges = np.arange(len(shares) + 1) - 0.5
    panel.pcolormesh(
        edges, edges, shares, cmap=shade, norm=scale, edgecolors="white", linewidth=0.8
    )
    panel.invert_yaxis()  # row 0 on top
    if len(shares) > NUMBERED:
        return
    size = 7 if len(shares) <= 8 else 4.6  # points; more cells are smaller
    for (row, column), share in np.ndenumerate(shares):
        if share > 0:
            color = text_color_on(to_hex(shade(scale(share))))
            panel.text(
                column,
                row,
                _in_cell(share),
                ha="center",
                va="center_baseline",
                fontsize=size,
                color=color,
            )


def _in_cell(share: float) -> str:
    """A share in percent, short enough for a cell: with one decimal below 10."""
    if share >= 9.95:
        return f"{share:.0f}"
    return f"{share:.1f}" if share >= 0.05 else "<.1"


@kind(
    "confusion",
    about="which classes of a level are taken for which by the first result",
    files="an embedding file with --dataset",
    options="dataset test level",
)
def _draw(request: PlotRequest) -> Drawing:
    """Draw the confusion of a file's first results at the requested level."""
    ranked = ranked_test(request.files, dataset_of(request.dataset, "confusion"), request.test)
    manifest = ranked.manifest
    examined = ranked.examined
    level = request.level or manifest.levels[0]
    column = manifest.tree.level(level) - 1  # levels count from 1, columns of paths from 0
    queries = np.arange(int(manifest.query.sum()))  # all queries, by their input positions
    top = first_results(  # one result of each query
        manifest, examined.submission.embeddings("confusion"), queries, examined.conditions, 1
    )
    # counts (C, C): rows are classes of queries, columns those of their first results
    names, counts = largest_classes(manifest.tree.names[column], confusion(manifest, top, column))
    return draw_confusion(names, counts, level, ranked.signature)
