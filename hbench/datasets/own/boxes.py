"""Makes items of boxes in pictures. An item has the picture's path and the box that is cut out of
it, `photo.jpg#xywh=10,20,110,200` (W3C media fragments), so that no other data are needed.

Boxes are read from columns of a table, or from a file in COCO's format.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from hbench.core.errors import DataError, UsageError, examples
from hbench.core.tables import texts
from hbench.core.untrusted import MAX_LIST_BYTES, read_json
from hbench.datasets.pictures import box_name
from hbench.sheets.sheet import Sheet, is_table

SIZES = ({"w", "h"}, {"width", "height"})  # names of columns that are sides, not a second corner
COCO = ("images", "annotations", "categories")
CORNERS = "corners x1, y1, x2, y2"
SIDES = "left, top, width, height"
COLUMNS = (  # names of columns that always hold boxes
    ("bbox",),
    ("x1", "y1", "x2", "y2"),
    ("xmin", "ymin", "xmax", "ymax"),
    ("x", "y", "width", "height"),
    ("x", "y", "w", "h"),
)


def box_columns_among(names: Sequence[str]) -> tuple[str, ...]:
    """Find the columns that hold boxes, by their names (COLUMNS) in any case of letters; empty if
    there are none. The result has one name, or four in the order of a box.

    >>> box_columns_among(["image", "XMin", "YMin", "XMax", "YMax", "label"])
    ('XMin', 'YMin', 'XMax', 'YMax')
    """
    as_written = {name.lower(): name for name in names}
    for columns in COLUMNS:
        if all(name in as_written for name in columns):
            return tuple(as_written[name] for name in columns)
    return ()


def with_boxes(table: pa.Table, item: str, columns: Sequence[str]) -> tuple[pa.Table, str]:
    """Replace the paths of pictures in the column `item` by items that are boxes. Return the table
    without the columns of boxes, and a sentence that says how these were read.

    `columns`: four columns, or one whose cells hold four numbers, as COCO's bbox. A row whose cells
    are all empty is the whole picture. Raises UsageError for other columns, DataError for numbers
    that are not a box, or for a box with only some empty cells.
    """
    if missing := [name for name in columns if name not in table.column_names]:
        raise UsageError(
            f"the table has no column {examples(missing)}",
            expected="the columns of the boxes",
            found=", ".join(table.column_names),
        )
    if len(columns) not in (1, 4):
        raise UsageError(
            "a box has four numbers",
            expected="--box-columns x1,y1,x2,y2 or x,y,width,height, or one column of four numbers",
            found=", ".join(columns),
        )

    numbers = (
        _numbers_of_one_column(table, columns[0])
        if len(columns) == 1
        else _numbers_of_four_columns(table, columns)
    )
    # the last two numbers are sides in a single column, as in COCO; with four columns, the names of
    # the last two say whether they are sides (SIZES: w and h, width and height) or a corner
    is_sides = len(columns) == 1 or set(map(str.lower, columns[2:])) in SIZES
    boxes = numbers if is_sides else _from_corners(numbers)
    is_box = np.asarray(~np.isnan(numbers).all(axis=1))  # (N,): empty cells are NaN
    bad = is_box & ~_are_boxes(boxes)
    if bad.any():
        raise DataError(
            f"{int(bad.sum())} boxes are none",
            expected=SIDES if is_sides else CORNERS,
            found=examples(
                f"row {row + 1}: {numbers[row].tolist()}" for row in np.flatnonzero(bad)[:3]
            ),
            fix="say what the columns are by their names: x1,y1,x2,y2, or x,y,width,height",
        )

    paths = texts(table, item)
    items = [
        box_name(path, box) if has_box else path
        for path, box, has_box in zip(paths, boxes.tolist(), is_box.tolist(), strict=True)
    ]
    table = table.set_column(table.column_names.index(item), item, pa.array(items))
    said = f"boxes by {', '.join(columns)}, as {SIDES if is_sides else CORNERS}"
    if not is_box.all():
        said += f"; {int((~is_box).sum()):,} rows without one are whole pictures"
    # the column `item` has the new items, so it stays even if it is one of `columns`
    return table.drop_columns([name for name in columns if name != item]), said


def _are_boxes(boxes: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Whether each row of `boxes` (N, 4), as left, top, width and height, is a box: finite, with an
    area, and not beginning left of or above the picture."""
    begins_inside = (boxes[:, :2] >= 0).all(axis=1)
    has_area = (boxes[:, 2:] > 0).all(axis=1)
    return np.asarray(np.isfinite(boxes).all(axis=1) & begins_inside & has_area)


def _from_corners(corners: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return left, top, width and height (N, 4) of boxes, given their two corners (N, 4). A side is
    NaN if it would be the difference of infinite numbers."""
    with np.errstate(invalid="ignore"):
        return np.concatenate([corners[:, :2], corners[:, 2:] - corners[:, :2]], axis=1)


def _numbers_of_four_columns(table: pa.Table, columns: Sequence[str]) -> NDArray[np.float64]:
    """Read the numbers (N, 4) in four columns of a table, NaN for empty cells. Raises DataError for
    a cell that is not a number."""
    read = []
    for name in columns:
        cells = [cell.strip() or "nan" for cell in texts(table, name)]
        try:
            read.append(np.array(cells, np.float64))
        except ValueError as error:
            raise DataError(
                f"the column {name} holds no numbers", found=str(error), expected="pixels"
            ) from None
    return np.stack(read, axis=1)


def _numbers_of_one_column(table: pa.Table, column: str) -> NDArray[np.float64]:
    """Read the numbers (N, 4) in one column of a table, whose cells are lists or texts such as
    "[1, 2, 3, 4]". An empty cell gives NaN. Raises DataError for a cell without four numbers."""
    rows = []
    for number, cell in enumerate(table[column].to_pylist()):
        text = "" if cell is None else str(cell).strip(" []()")
        try:
            # an empty cell becomes four NaN: no box
            row = [float(part) for part in text.replace(",", " ").split()] or [np.nan] * 4
        except ValueError:
            row = []  # no four numbers: refused below
        if len(row) != 4:
            raise DataError(
                f"the column {column} holds no boxes",
                expected="four numbers in each cell",
                found=f"row {number + 1}: {str(cell)!r:.80}",
            )
        rows.append(row)
    return np.array(rows, np.float64).reshape(-1, 4)


def is_coco(path: Path) -> bool:
    """Whether a file is read as COCO's annotations: a JSON file that is not a table."""
    return path.suffix.lower() == ".json" and not is_table(path)


class CocoBoxes(NamedTuple):
    """The boxes of annotations. `rows`: a row per box; `left_out`: how many were left out, by the
    reason; `over`: how many of the rows reach over the border of their picture."""

    rows: list[dict[str, str]]
    left_out: Counter[str]
    over: int


def coco_table(path: Path) -> Sheet:
    """Read COCO's annotations as a table with a row per box: its item, its supercategory if the
    file has useful ones (`_schema`), and its category.

    Boxes without an area, which COCO itself has, crowds and repeated boxes are left out, and the
    Sheet says so. Raises DataError for a file that is not in this format.
    """
    try:
        content = read_json(path, most=MAX_LIST_BYTES)
        images = {image["id"]: image for image in content["images"]}
        kinds = {kind["id"]: kind for kind in content["categories"]}
        boxes = _boxes_of(content["annotations"], images, kinds)
    except FileNotFoundError:
        raise DataError(f"{path} does not exist", expected="annotations of COCO") from None
    except (ValueError, OSError, KeyError, TypeError) as error:
        raise DataError(
            f"{path} cannot be read as annotations of COCO",
            expected=f"lists of {', '.join(COCO)}, each annotation with a bbox; or a table, .csv "
            "or .parquet, or a list of records in JSON",
            found=f"{type(error).__name__}: {error}",
        ) from None
    if not boxes.rows:
        raise DataError(
            f"{path} has no annotations with a box",
            expected="annotations of COCO",
            found=_in_words(boxes.left_out) or "none",
        )

    table = pa.Table.from_pylist(boxes.rows, schema=_schema(boxes.rows))
    # an item is a picture and a box: of repeated boxes, the first row is kept
    table = table.take(_first_of_each(table["item"]))
    boxes.left_out["there twice"] += len(boxes.rows) - len(table)
    facts = [f"annotations of COCO: {len(table):,} boxes of {len(images):,} pictures"]
    if left_out := _in_words(boxes.left_out):
        facts.append(f"left out: {left_out}")
    if boxes.over:
        facts.append(f"{boxes.over:,} boxes reach over the border of their picture: cut there")
    return Sheet(path.name, table, "; ".join(facts))


def _in_words(left_out: Counter[str]) -> str:
    """Say how many boxes were left out for which reason; "" for none."""
    return ", ".join(f"{count:,} boxes {why}" for why, count in left_out.items() if count)


def _boxes_of(
    annotations: Sequence[Mapping[str, Any]],
    images: Mapping[Any, Mapping[str, Any]],
    kinds: Mapping[Any, Mapping[str, Any]],
) -> CocoBoxes:
    """Read the boxes of all annotations of a COCO document. `images`, `kinds`: its pictures and its
    categories, by their ids.

    Returns a row for each box that is kept, the number left out for each reason, and how many of
    the rows reach over the border of their picture. Raises ValueError if the category or the
    picture of an annotation is not listed, or if its box is not four numbers.
    """
    rows: list[dict[str, str]] = []
    left_out: Counter[str] = Counter()
    over = 0
    for annotation in annotations:
        image = images.get(annotation["image_id"])
        kind = kinds.get(annotation["category_id"])
        if image is None or kind is None:
            what = "category" if kind is None else "image"
            raise ValueError(
                f"the annotation {annotation.get('id')} is of {what} "
                f"{annotation[f'{what}_id']}, which is not listed"
            )
        if reason := _reason_against(annotation):
            left_out[reason] += 1
            continue
        box = [float(number) for number in annotation["bbox"]]
        over += _reaches_over(box, image)
        rows.append(
            {
                # annotation programs on Windows write backslashes
                "item": box_name(str(image["file_name"]).replace("\\", "/"), box),
                "supercategory": str(kind.get("supercategory") or ""),
                "category": str(kind["name"]),
            }
        )
    return CocoBoxes(rows, left_out, over)


def _reason_against(annotation: Mapping[str, Any]) -> str:
    """Say why the box of a COCO annotation is left out; "" if it is kept. Raises ValueError if the
    box is not four numbers (left, top, width, height)."""
    box = annotation.get("bbox")
    if not box:
        return "without a bbox"
    if annotation.get("iscrowd") == 1:
        return "around a crowd (iscrowd)"
    numbers = [float(number) for number in box]
    if len(numbers) != 4 or not all(map(math.isfinite, numbers)):
        raise ValueError(f"the bbox {json.dumps(box)} of the annotation {annotation.get('id')}")
    return "without width or height" if min(numbers[2:]) <= 0 else ""


def _reaches_over(box: Sequence[float], image: Mapping[str, Any]) -> bool:
    """Whether a box (left, top, width, height), in pixels, reaches over the border of its picture.
    `image`: the record of the picture; without a width or height it has no limit on that side."""
    left, top, width, height = box
    sides = (image.get("width") or math.inf, image.get("height") or math.inf)
    return bool(left < 0 or top < 0 or left + width > sides[0] or top + height > sides[1])


def _schema(rows: Sequence[Mapping[str, str]]) -> pa.Schema:
    """Choose the columns of a table of boxes: item, supercategory and category. The supercategory
    is left out if some categories have none, or if all have the same name as their category."""
    has_super = all(row["supercategory"] for row in rows)
    has_super &= any(row["supercategory"] != row["category"] for row in rows)
    levels = ["supercategory", "category"] if has_super else ["category"]
    return pa.schema([(name, pa.string()) for name in ("item", *levels)])


def _first_of_each(items: pa.ChunkedArray) -> NDArray[np.int64]:
    """Return the row of the first occurrence of each item, (n,), ascending."""
    codes = pc.dictionary_encode(items.combine_chunks()).indices.to_numpy()
    return np.sort(np.unique(codes, return_index=True)[1])
