"""Draws which classes are taken for which, at one level of the tree: the query's class against that of its first result."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hbench.core.errors import UsageError
from hbench.datasets.manifest import Manifest
from hbench.look.figures import Drawing, drawn, short
from hbench.look.inputs import dataset_of, examined_embeddings, test_of
from hbench.look.palette import text_color_on
from hbench.look.plots import Kind, PlotRequest, kinds
from hbench.look.retrievals import Retrieved, retrieve

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST = 14  # classes with a row of their own; the smaller ones share one
NUMBERED = 14  # classes at most whose shares are printed
REST = "other"
SHADES = ("#ffffff", "#7d8fb3", "#35456c", "#00224e")  # 0 … 100 percent


class Confusion(NamedTuple):
    """`shares` (C, C): of the queries of class r those whose first result is of class c, in percent; rows sum to 100."""

    names: tuple[str, ...]
    shares: NDArray[np.float64]
    queries: NDArray[np.int64]


def confusion_of(manifest: Manifest, found: list[Retrieved], depth: int) -> Confusion:
    """The classes of queries and of their first results at a depth 1 … L of the tree; the largest, and the rest as one."""
    of_item = dict(zip(manifest.items.tolist(), manifest.labels[:, depth - 1].tolist(), strict=True))
    pairs = [(of_item[each.query], of_item[each.hits[0].item]) for each in found if each.hits]
    names = manifest.tree.names[depth - 1]
    counts = np.zeros((len(names), len(names)), np.int64)
    np.add.at(counts, tuple(np.array(pairs).reshape(-1, 2).T), 1)
    asked = np.flatnonzero(counts.sum(axis=1) + counts.sum(axis=0))
    if len(asked) > MOST:
        kept = np.sort(asked[np.argsort(-counts.sum(axis=1)[asked], kind="stable")][: MOST - 1])
        place = np.full(len(names), MOST - 1)
        place[kept] = np.arange(MOST - 1)
        merged = np.zeros((MOST, MOST), np.int64)
        np.add.at(merged, (place[:, None], place[None, :]), counts)
        counts, shown = merged, (*(names[i] for i in kept), f"{len(asked) - MOST + 1} {REST}")
    else:
        counts, shown = counts[np.ix_(asked, asked)], tuple(names[i] for i in asked)
    queries = counts.sum(axis=1)
    return Confusion(shown, 100 * counts / np.maximum(queries, 1)[:, None], queries)


def draw_confusion(found: Confusion, level: str, about: str) -> Drawing:
    """A cell per pair of classes, darker where more is confused; small shares are told apart best."""

    def paint(figure: Figure) -> None:
        panel = figure.subplots()
        _paint_cells(panel, found)
        places = range(len(found.names))
        size = 7 if len(found.names) <= 8 else 5.5
        panel.set_xticks(
            places,
            [short(name, 16) for name in found.names],
            rotation=40,
            ha="right",
            rotation_mode="anchor",
            fontsize=size,
        )
        panel.set_yticks(places, [short(name, 16) for name in found.names], fontsize=size)
        panel.tick_params(length=0)
        panel.set(xlabel=f"{level} of the first result", ylabel=f"{level} of the query")
        panel.spines[:].set_visible(False)

    return drawn(paint, height=2.9, about=f"{about}\npercent of the queries of a row")


def _paint_cells(panel: Axes, found: Confusion) -> None:
    from matplotlib.colors import LinearSegmentedColormap, PowerNorm, to_hex

    shade = LinearSegmentedColormap.from_list("shares", SHADES)
    scale = PowerNorm(0.5, 0, 100)
    edges = np.arange(len(found.names) + 1) - 0.5
    panel.pcolormesh(edges, edges, found.shares, cmap=shade, norm=scale, edgecolors="white", linewidth=0.8)
    panel.invert_yaxis()
    if len(found.names) > NUMBERED:
        return
    size = 7 if len(found.names) <= 8 else 4.6
    for (row, column), share in np.ndenumerate(found.shares):
        if share > 0:
            text = f"{share:.0f}" if share >= 9.95 else f"{share:.1f}" if share >= 0.05 else "<.1"
            color = text_color_on(to_hex(shade(scale(share))))
            panel.text(column, row, text, ha="center", va="center_baseline", fontsize=size, color=color)


def _draw(request: PlotRequest) -> Drawing:
    if len(request.files) != 1:
        raise UsageError("confusion is drawn of one embedding file", found=f"{len(request.files)} files")
    data = dataset_of(request.dataset, "confusion")
    test = test_of(data, request.test)
    examined = examined_embeddings(request.files[0], data)
    manifest = examined.data.tests[test]
    level = request.level or manifest.levels[0]
    depth = manifest.tree.level(level)
    asked = np.arange(int(manifest.query.sum()))
    found = retrieve(manifest, examined.submission.embeddings("confusion"), asked, examined.conditions, 1)
    return draw_confusion(confusion_of(manifest, found, depth), level, examined.signature([test]))


kinds.register("confusion")(
    Kind(
        "which classes of a level are taken for which by the first result",
        "an embedding file with --dataset",
        frozenset({"dataset", "test", "level"}),
        _draw,
    )
)
