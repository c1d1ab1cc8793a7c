"""Draws a label tree as an icicle: one column per level, the coarsest on the left, in which the
height of a node is proportional to its items.

The colour of a node shows its coarsest branch, or the mean of a metric over its queries.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from hbench.core.errors import SubmissionError, UnknownName, UsageError
from hbench.core.text import first_line
from hbench.core.untrusted import parquet_table
from hbench.datasets import Dataset, load
from hbench.datasets.manifest import Manifest
from hbench.look.figures import COLUMN, Drawing, draw_figure, short, text_width
from hbench.look.inputs import test_of
from hbench.look.palette import OTHER, color_at, group_color, mixed_with_white, text_color_on
from hbench.look.plots import PlotRequest, kind
from hbench.metrics.names import factor_of
from hbench.records.queries import metric_columns
from hbench.tree import LabelTree
from hbench.tree import files as tree_files
from hbench.tree.statistics import items_of_level, means_of_nodes

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

HEIGHT = 3.6  # inches of the columns
LETTER = 5.5  # points of a name
HEAD = 8.0  # the smallest width of a column in ems, for its head
MOST_BRANCHES = 8  # the number of branches with their own colours
MAX_OUTLINED = (
    2000  # a level with more nodes is drawn as pixels, since outlines would take megabytes
)
UNKNOWN = "#dddddd"
VALUES = "hbench evaluate … --by-query FILE.parquet writes them"
Floats = NDArray[np.float64]


def means_of_metric(manifest: Manifest, by_query: pa.Table, metric: str) -> list[Floats]:
    """Average a metric over the queries of each node, for every level, coarse to fine; NaN for
    nodes without queries.

    Raises UnknownName for a metric without values, SubmissionError for values of other queries.
    """
    named = metric_columns(by_query)
    if metric not in named:
        raise UnknownName("metric of these values", metric, named)
    # item -> its row in the manifest
    row = {item: number for number, item in enumerate(manifest.items.tolist())}
    queries = by_query["query"].to_pylist()
    if foreign := [query for query in queries if query not in row]:
        raise SubmissionError(
            f"{len(foreign)} queries are not in this test",
            found=str(foreign[0]),
            fix="name the dataset of the values, and --test if it has several",
        )
    values = np.asarray(by_query[metric].to_numpy(), np.float64)
    labels = manifest.labels[[row[query] for query in queries]]  # (Q, L): nodes of the queries
    return means_of_nodes(manifest.tree, labels, values)


def draw_tree(
    tree: LabelTree,
    items: NDArray[np.int64],
    about: str,
    *,
    means: Sequence[Floats] | None = None,
    metric: str = "",
) -> Drawing:
    """Draw a tree by the number of items (C,) of each fine class, with names where they fit.

    `means` holds, for every level, the mean of a metric in each node. It determines the colours,
    and a bar below the tree explains them. `about` is the small print.
    """
    # the items of every node, level by level
    sizes = [items_of_level(tree, items, depth) for depth in range(1, tree.depth + 1)]
    # The colour of every node, level by level: by branch or, with `means`, by value. The branches
    # with the most items, by `sizes[0]`, get colours of their own.
    fills = _fills_of_branches(tree, sizes[0])
    scale = None
    if means is not None:
        # one colour scale for all levels; a node without a value is NaN
        known = np.concatenate(means)
        scale = (float(np.nanmin(known)), float(np.nanmax(known)))
        fills = [_fills_of_means(level, *scale) for level in means]

    def paint(figure: Figure) -> None:
        """Draw all levels side by side, coarse to fine from left to right. The boxes of a level are
        stacked downwards, so the vertical axis counts items from the top."""
        panel = figure.subplots()
        borders = _borders(tree, sizes)  # (L + 1,): level l is between borders l and l + 1
        for level, (own, colors) in enumerate(zip(sizes, fills, strict=True)):
            _paint_level(panel, tree.names[level], own, colors, borders[level : level + 2])
        panel.set_xlim(0, borders[-1])
        panel.set_ylim(int(items.sum()), 0)
        panel.set_yticks([])
        middles = (borders[:-1] + borders[1:]) / 2
        panel.set_xticks(middles, _heads(tree), fontsize=6.5)
        panel.xaxis.tick_top()
        panel.tick_params(length=0)
        panel.spines[:].set_visible(False)
        if scale is not None:
            _explain(figure, panel, scale, metric)

    # in inches: the boxes, the heads above them, and the colour bar
    return draw_figure(paint, height=HEIGHT + 0.5 + 0.4 * (scale is not None), about=about)


def _heads(tree: LabelTree) -> list[str]:
    """The heads of the columns: the name of each level above its number of nodes."""
    levels = zip(tree.levels, tree.names, strict=True)
    return [f"{short(level, 12)}\n{len(nodes):,}" for level, nodes in levels]


def _fills_of_means(means: Floats, low: float, high: float) -> list[str]:
    """Choose the colour of each node of a level by its mean, on a scale from `low` to `high`; nodes
    with NaN are grey."""
    shares = ((means - low) / ((high - low) or 1)).tolist()  # or 1: all means may be equal
    return [UNKNOWN if np.isnan(share) else color_at(share) for share in shares]


def _fills_of_branches(tree: LabelTree, sizes: NDArray[np.int64]) -> list[list[str]]:
    """Choose a colour for each coarsest branch. The colour gets paler from level to level, and
    neighbours alternate in shade. Returns the colours by level and node.

    `sizes` (n,) are the items of each coarsest branch; the largest branches get their own colours.
    """
    largest = np.sort(np.argsort(-sizes, kind="stable")[:MOST_BRANCHES]).tolist()
    hues = {branch: group_color(number, len(largest)) for number, branch in enumerate(largest)}
    fills = []
    for level in range(tree.depth):
        nodes = np.arange(len(tree.names[level]))
        # node numbers ascend along the sorted paths, so the first path of each node gives its
        # branch
        branches = tree.paths[np.searchsorted(tree.paths[:, level], nodes), 0].tolist()
        # paler from level to level; of two neighbours, the one with the even number is slightly
        # darker
        pale = 0.62 * level / max(tree.depth - 1, 1)
        fills.append(
            [
                mixed_with_white(hues.get(branch, OTHER), pale + 0.1 * (node % 2))
                for node, branch in enumerate(branches)
            ]
        )
    return fills


def _borders(tree: LabelTree, sizes: Sequence[NDArray[np.int64]]) -> Floats:
    """Return the borders of the L columns (L + 1,) as shares of the width. A column is wide enough
    for 90 percent of the names that fit into their boxes by height, and for its head. `sizes`
    holds, for every level, the items (n,) of its nodes."""
    wishes = []  # the wished width of each column, in ems
    for names, items in zip(tree.names, sizes, strict=True):
        # a name fits into a box that is 1 point higher than its letters
        readable = np.flatnonzero(_heights(items) >= LETTER + 1).tolist()
        widths = [text_width(short(names[node], 18)) for node in readable]
        # a level with hardly any readable name needs only the width of its head
        seen = items[readable].sum() >= 0.1 * items.sum()
        wish = float(np.quantile(widths, 0.9)) + 1.5 if seen else HEAD  # 1.5 ems beside the name
        wishes.append(max(HEAD, wish))
    ends: Floats = np.concatenate([[0.0], np.cumsum(wishes)]) / sum(wishes)
    return ends


def _heights(sizes: NDArray[np.int64]) -> Floats:
    """Compute the heights of the nodes of a level, in points."""
    points: Floats = HEIGHT * 72 * sizes / sizes.sum()
    return points


def _paint_level(
    panel: Axes, names: Sequence[str], sizes: NDArray[np.int64], fills: Sequence[str], x: Floats
) -> None:
    """Draw one level of the tree as a column of boxes whose heights are proportional to their
    items, with the names that fit.

    `names`, `sizes` (n,) in items, and `fills` (colours) belong to the level's nodes. `x` (2,) are
    the borders of the column as shares of the width.
    """
    from matplotlib.collections import PolyCollection

    # the borders of the boxes, in items from the top: box i is from ends[i] to ends[i + 1]
    ends = np.concatenate([[0], np.cumsum(sizes)]).astype(float)
    boxes = [
        [(x[0], top), (x[0], low), (x[1], low), (x[1], top)]
        for top, low in itertools.pairwise(ends)
    ]
    tall = _heights(sizes)  # (n,) points
    lines = np.clip(tall / 8, 0, 0.4)  # otherwise a thin box would consist of its outline only
    panel.add_collection(
        PolyCollection(
            boxes,
            facecolors=fills,
            edgecolors="white",
            linewidths=lines,
            rasterized=len(names) > MAX_OUTLINED,  # as pixels, since many outlines make large files
        )
    )
    # the width of the boxes' text in points: their share of the picture's COLUMN inches, at 72
    # points per inch, minus the margins of the picture (0.15 inches) and of the box (3 points)
    space = (COLUMN - 0.15) * 72 * (x[1] - x[0]) - 3
    # not strict: `ends` has one more place than boxes
    for name, top, low, height, fill in zip(names, ends, ends[1:], tall, fills, strict=False):
        if height >= LETTER + 1:  # otherwise the box is too low for a name
            # the space in ems, since LETTER is the size of the font in points
            fitting = _shortened_to(name, space / LETTER)
            panel.text(
                x[0] + 0.008,
                (top + low) / 2,
                fitting,
                fontsize=LETTER,
                va="center_baseline",
                color=text_color_on(fill),
            )


def _shortened_to(name: str, ems: float) -> str:
    """Shorten a name to this many ems; "" if fewer than two of its letters fit."""
    if text_width(name) <= ems:
        return name
    shown = next(
        (length for length in range(len(name), 0, -1) if text_width(name[:length] + "…") <= ems), 0
    )
    return name[:shown] + "…" if shown > 1 else ""


def _explain(figure: Figure, panel: Axes, scale: tuple[float, float], metric: str) -> None:
    """Draw the colour bar, which gives the value that a colour stands for. `scale` is the lowest
    and the highest mean of any node, as fractions."""
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import LinearSegmentedColormap, Normalize

    shades = LinearSegmentedColormap.from_list(
        "values", [color_at(share) for share in np.linspace(0, 1, 6)]
    )
    factor = factor_of(metric)
    mappable = ScalarMappable(Normalize(factor * scale[0], factor * scale[1]), shades)
    bar = figure.colorbar(mappable, ax=panel, location="bottom", aspect=40, pad=0.02)
    unit = " (%)" if factor == 100 else ""
    bar.set_label(f"{metric}, mean over the queries of a node{unit}")
    bar.outline.set_visible(False)


@kind(
    "tree",
    about="a label tree as an icicle by items; with --metric and --by-query coloured by the values "
    "of its queries",
    files="a dataset, a table of it, or a tree (.graphml, .json, .nwk)",
    options="test metrics by_query",
)
def _draw(request: PlotRequest) -> Drawing:
    """Draw a tree from a file or a dataset. Where values of queries are given, their means
    determine the colours."""
    if len(request.files) != 1:
        raise UsageError("plot tree takes one tree", found=", ".join(request.files))
    if bool(request.metrics) != bool(request.by_query) or len(request.metrics) > 1:
        reason = "a metric colours a tree by the values of its queries"
        raise UsageError(reason, expected="one --metric with --by-query FILE", fix=VALUES)
    (source,) = request.files
    # a file with a tree has no items, so each leaf that it lists counts as one; a dataset has items
    if Path(source).suffix in tree_files.GRAPH_READERS:
        if request.by_query:
            raise UsageError("a tree without items has no queries", fix="name the dataset")
        tree, items = tree_files.read(Path(source)).tree()
        return draw_tree(tree, items, f"{Path(source).name} · {len(tree.paths):,} classes")
    return _draw_test(load(source), request)


def _draw_test(data: Dataset, request: PlotRequest) -> Drawing:
    """Draw the tree of a test, by the number of its items."""
    test = test_of(data, request.test)
    manifest = data.tests[test]
    items = manifest.tree.counts(manifest.labels)[-1]  # (C,): the items of each fine class
    about = f"{data.name}@{data.version}|{test}"
    if request.by_query is None:
        return draw_tree(manifest.tree, items, f"{about} · {len(manifest):,} items")

    try:
        values = parquet_table(request.by_query)
    except (OSError, ValueError, pa.ArrowException) as error:
        raise SubmissionError(
            f"{request.by_query} cannot be read",
            expected="the values of every query, in parquet",
            found=first_line(error),
            fix=VALUES,
        ) from None

    if "test" in values.column_names:
        values = values.filter(pa.compute.equal(values["test"], test))
    # evaluate writes its signature into the file; another file may have none
    signature = (values.schema.metadata or {}).get(b"hbench.signature", about.encode()).decode()
    (metric,) = request.metrics  # exactly one metric is given with a file of values
    means = means_of_metric(manifest, values, metric)
    return draw_tree(manifest.tree, items, signature, means=means, metric=metric)
