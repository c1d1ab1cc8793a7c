"""Draws retrieval strips: a query, then its first results, each framed in the colour of its level.

A query has one row per model, one below the other. Strips are written as PNG, SVG or PDF by
matplotlib, or as one HTML file that contains its pictures.
"""

from __future__ import annotations

import base64
import io
import math
from collections.abc import Callable, Sequence
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from hbench.core.errors import DataError, UsageError
from hbench.core.files import replacing, write_text
from hbench.datasets.manifest import Manifest
from hbench.look.figures import (
    COLUMN,
    LETTERS,
    SMALL_PRINT,
    bytes_of,
    legend_columns,
    refuse_suffix,
    short,
    small_print,
)
from hbench.look.palette import color_of, mark_of
from hbench.look.strips.retrievals import Hit, all_paths_of, class_name, legend_of, level_name
from hbench.records.shown import shown

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from PIL import Image

THUMBNAIL = 128  # pixels of the longer side, at most
CELL = 0.95  # inches of a result
CAPTION = 6.5  # points
SUFFIXES = (".png", ".svg", ".pdf", ".html")
Picture = Callable[[str], "Image.Image"]


class StripRow(NamedTuple):
    """The results of one model for a query.

    Attributes:
        name: the name of the model.
        hits: the first results, best first.
        number: the number of the model, from 0.
        value: the query's value of a metric, NaN if it is not known.
        right: the first result of the query's finest class, if it is known and comes after `hits`.
    """

    name: str
    hits: tuple[Hit, ...]
    number: int = 0
    value: float = math.nan
    right: Hit | None = None

    @property
    def shown(self) -> tuple[Hit, ...]:
        """The results that are shown: the first ones, and then the first right one if it comes
        later."""
        return self.hits if self.right is None else (*self.hits, self.right)


class Strip(NamedTuple):
    """A query with the results of every model.

    Attributes:
        query: the item's id, or the path of a name.
        position: the position in the manifest; below 0 for a name, which has no picture.
        about: the path of an item, or the level and value of a name, with a remark if there is one.
        rows: the results, a row for each model.
        name: the finest class.
    """

    query: str
    position: int
    about: str
    rows: Sequence[StripRow]
    name: str = ""


class StripSheet(NamedTuple):
    """Strips to draw together.

    Attributes:
        strips: the strips, one for each query.
        levels: the names of the levels, coarse to fine.
        caption: the small print.
        picture: opens the picture of an item by its id; None if pictures are not on this disk.
        by: the metric whose values the rows have; "" if none was measured.
    """

    strips: Sequence[Strip]
    levels: Sequence[str]
    caption: str
    picture: Picture | None
    by: str = ""

    def heading(self, row: StripRow) -> str:
        """Return the name of a model, with its value of the metric if one was measured."""
        return f"{row.name} · {self.by} {shown(self.by, row.value, 1)}" if self.by else row.name


def strip_of(manifest: Manifest, query: int, rows: Sequence[StripRow]) -> Strip:
    """Make the strip of a query from its results, with a row for each model. `query` is its
    position among the test's queries."""
    position = int(np.flatnonzero(manifest.query)[query])
    return Strip(
        query=str(manifest.items[position]),
        position=position,
        about=all_paths_of(manifest, position),
        rows=rows,
        name=class_name(manifest, position),
    )


def write_strips(sheet: StripSheet, path: Path) -> None:
    """Write a sheet in the format of the path's suffix. Either the whole file is written, or
    nothing. Raises UsageError for another suffix, and for a picture of no query."""
    refuse_suffix(path, SUFFIXES)
    if path.suffix.lower() == ".html":
        write_text(path, page_of(sheet))
        return
    if not any(strip.rows for strip in sheet.strips):
        raise UsageError(
            f"there is no query to draw in {path}",
            expected="queries with results",
            fix="choose queries by id or at random, or write a page: .html",
        )
    from matplotlib import rc_context

    undated: dict[str, dict[str, Any]] = {
        "svg": {"Date": None},
        "pdf": {"CreationDate": None},
    }  # without the date, the same sheet gives the same bytes
    kind = path.suffix.lower()[1:]
    # a fixed salt, since matplotlib's ids in an SVG are random otherwise; names are not formulas,
    # though they may contain $
    with (
        rc_context({"svg.hashsalt": "hbench", "text.parse_math": False}),
        replacing(path) as temporary,
    ):
        temporary.write_bytes(bytes_of(_draw_sheet(sheet), kind, undated.get(kind, {}), dpi=200))


def thumbnail(picture: Picture | None, item: str) -> Image.Image | None:
    """Return a small RGB picture of an item; None if it has no readable picture."""
    if picture is None:
        return None
    try:
        image = picture(item).convert("RGB")
    except DataError:
        return None
    image.thumbnail((THUMBNAIL, THUMBNAIL))
    return image


def _draw_query(cell: Axes, sheet: StripSheet, strip: Strip, row: StripRow) -> None:
    """Draw the query of a strip, with a heading above the whole row. A name, whose position is
    below 0, has no picture."""
    is_name = strip.position < 0
    image = None if is_name else thumbnail(sheet.picture, strip.query)
    _draw_item(cell, image, strip.name if is_name else strip.query)
    cell.set_title("query", fontsize=6.5, fontweight="bold")
    heading = f"{strip.query} · {strip.about}" if is_name else strip.about
    if len(strip.rows) > 1:
        heading += f"   [{sheet.heading(row)}]"
    cell.annotate(
        heading,
        (0, 1.2),  # in cell sizes: at the left edge, above the title
        xycoords="axes fraction",
        fontsize=7.5,
        annotation_clip=False,
        va="bottom",
    ).set_in_layout(False)  # the heading runs on above the results; its cell must not get wider


def _draw_hit(cell: Axes, sheet: StripSheet, hit: Hit, *, is_right: bool) -> None:
    """Draw a result framed in the colour of its level, with its rank above and its class below.
    `is_right` tells that the hit is the first right result, which comes after the first results."""
    depth = len(sheet.levels)
    _draw_item(cell, thumbnail(sheet.picture, hit.item), hit.item)
    for spine in cell.spines.values():
        spine.set(visible=True, edgecolor=color_of(hit.level, depth), linewidth=4)

    title = f"{hit.rank:,}"
    if is_right:
        title = f"right one: {title}"
    if hit.copy:  # its vector equals the query's
        title += ", a copy"
    cell.set_title(title, fontsize=6.5)

    level = short(level_name(hit.level, sheet.levels), 14, keep_end=True)
    marked_level = f"{mark_of(hit.level, depth)} {level}"
    cell.set_xlabel(f"{short(hit.name, 20)}\n{marked_level}", fontsize=5.5)


def _draw_sheet(sheet: StripSheet) -> Figure:
    """Draw all strips as one figure: a line for each row, with the query and then its results, and
    a legend of the levels."""
    rows = [(strip, row) for strip in sheet.strips for row in strip.rows]
    # one column for the query, and one for each result of the longest row
    columns = 1 + max((len(row.shown) for _, row in rows), default=0)
    figure = _empty_figure(sheet, len(rows), columns)
    axes = figure.subplots(len(rows), columns, squeeze=False)
    for line, (strip, row) in zip(axes, rows, strict=True):
        _draw_query(line[0], sheet, strip, row)
        # a row with fewer results leaves cells empty
        for cell in line[1 + len(row.shown) :]:
            cell.set_axis_off()
        for cell, hit in zip(line[1:], row.shown, strict=False):
            # `row.right`, if there is one, is the last of `row.shown`; it alone is marked as right
            _draw_hit(cell, sheet, hit, is_right=hit is row.right)
    return figure


def _empty_figure(sheet: StripSheet, rows: int, columns: int) -> Figure:
    """Make the figure of a sheet for so many rows and columns of pictures, with the caption above
    and the legend of the levels below, each in as many lines as the width needs."""
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch

    depth = len(sheet.levels)
    legend = legend_of(sheet.levels)
    labels = [f"{mark} {name}" for _, mark, name in legend]
    width = max(CELL * columns + 0.2, COLUMN)  # inches, as all sizes
    # LETTERS of SMALL_PRINT fit into COLUMN inches, so fewer of this larger size do
    caption = small_print(sheet.caption, int(LETTERS * width / COLUMN * SMALL_PRINT / CAPTION))
    legend_width = legend_columns(labels, CAPTION, 5, width=width)
    # the headings are above each row; further lines must not take the height of the pictures
    more_lines = caption.count("\n") + (len(labels) - 1) // legend_width
    height = (CELL + 0.7) * rows + 0.55 + more_lines * 1.5 * CAPTION / 72
    figure = Figure(figsize=(width, height), layout="constrained")
    figure.suptitle(caption, fontsize=CAPTION)
    figure.legend(
        handles=[Patch(color=color_of(level, depth)) for level, _, _ in legend],
        labels=labels,
        loc="outside lower center",
        ncols=legend_width,
        columnspacing=1.2,
        fontsize=CAPTION,
        frameon=False,
    )
    return figure


def _draw_item(cell: Axes, image: Image.Image | None, item: str) -> None:
    """Draw a picture in its cell, or the item's id if there is no picture. Small pictures are not
    smoothed."""
    cell.set(xticks=[], yticks=[])
    if image is None:
        words = short(item, 14, keep_end=True)
        cell.text(
            0.5,
            0.5,
            words,
            ha="center",
            va="center",
            fontsize=5,
            wrap=True,
            transform=cell.transAxes,
        )
        cell.set_aspect("equal", adjustable="box")
    else:
        cell.imshow(
            np.asarray(image),
            interpolation="nearest" if max(image.size) < THUMBNAIL else "antialiased",
        )


def page_of(sheet: StripSheet) -> str:
    """Return a sheet as one HTML file that loads nothing else. Names from outside are escaped."""
    from hbench.look.pages.folder import SHARED, Pages, level_styles

    # the items whose pictures the page contains, by position; names as queries have no picture
    items = {strip.position: strip.query for strip in sheet.strips if strip.position >= 0}
    items |= {
        hit.position: hit.item for strip in sheet.strips for row in strip.rows for hit in row.shown
    }
    pictures = {}
    for position, item in items.items():
        if (image := thumbnail(sheet.picture, item)) is not None:
            file = io.BytesIO()
            image.save(file, format="PNG", optimize=True)
            pictures[position] = (
                "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()
            )
    depth = len(sheet.levels)
    style = resources.files(SHARED).joinpath("static/pages.css").read_text("utf-8") + level_styles(
        depth
    )
    # whether a strip has several models, whose names the page then shows
    several = any(len(strip.rows) > 1 for strip in sheet.strips)
    shared = {
        "legend": legend_of(sheet.levels),
        "depth": depth,
        "several": several,
        "by": "",  # with a metric, strips would link to the explorer of a report
        "heading_of": sheet.heading,
    }
    # each picture is embedded as a data address; there are no images in full size to link to
    shared |= {"place_of": pictures.get, "image_of": lambda _: ""}
    return Pages(SHARED, shared).text("strips", sheet=sheet, style=style)
