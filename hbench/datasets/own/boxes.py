"""Makes items of the boxes of pictures: an item is a picture's path and the box that is cut from
it, `photo.jpg#xywh=10,20,110,200` (W3C media fragments), so that nothing else has to be kept.

Boxes stand in columns of a table, or in a file of COCO's format.
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

SIZES = ({"w", "h"}, {"width", "height"})  # names of columns that are no corner
COCO = ("images", "annotations", "categories")
CORNERS = "corners x1, y1, x2, y2"
SIDES = "left, top, width, height"
COLUMNS = (  # that hold boxes wherever a table has them
    ("bbox",),
    ("x1", "y1", "x2", "y2"),
    ("xmin", "ymin", "xmax", "ymax"),
    ("x", "y", "width", "height"),
    ("x", "y", "w", "h"),
)


def box_columns_among(names: Sequence[str]) -> tuple[str, ...]:
    """The columns of a table whose names say that they hold boxes; none where there are none.

    >>> box_columns_among(["image", "XMin", "YMin", "XMax", "YMax", "label"])
    ('XMin', 'YMin', 'XMax', 'YMax')
    """
    as_written = {name.lower(): name for name in names}
    for columns in COLUMNS:
        if all(name in as_written for name in columns):
            return tuple(as_written[name] for name in columns)
    return ()


def with_boxes(table: pa.Table, item: str, columns: Sequence[str]) -> tuple[pa.Table, str]:
    """Replace the paths in a column by those of the boxes in other columns, which are left out, and
    say what the columns were taken for.

    `columns`: four, or one whose cells hold four numbers, as COCO's bbox. A row without a box is
    the whole picture. Raises UsageError for other columns, DataError for boxes that are none, such
    as one with a cell that is empty.
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
    # one column is in COCO's form, with sides; of four the names of the last two say it
    is_sides = len(columns) == 1 or set(map(str.lower, columns[2:])) in SIZES
    boxes = numbers if is_sides else _from_corners(numbers)
    is_box = np.asarray(~np.isnan(numbers).all(axis=1))  # empty cells are NaN
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
    # an item that is a box is named by the path and the box
    items = [
        box_name(path, box) if has_box else path
        for path, box, has_box in zip(paths, boxes.tolist(), is_box.tolist(), strict=True)
    ]
    table = table.set_column(table.column_names.index(item), item, pa.array(items))
    said = f"boxes by {', '.join(columns)}, as {SIDES if is_sides else CORNERS}"
    if not is_box.all():
        said += f"; {int((~is_box).sum()):,} rows without one are whole pictures"
    return table.drop_columns([name for name in columns if name != item]), said


def _are_boxes(boxes: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Whether each row (N, 4) is the left, top, width and height of a box: finite, not left of or
    above the picture, with an area."""
    begins_inside = (boxes[:, :2] >= 0).all(axis=1)
    has_area = (boxes[:, 2:] > 0).all(axis=1)
    return np.asarray(np.isfinite(boxes).all(axis=1) & begins_inside & has_area)


def _from_corners(corners: NDArray[np.float64]) -> NDArray[np.float64]:
    """Left, top, width and height of boxes (N, 4) given by two corners; the sides are NaN where
    both corners are infinite."""
    with np.errstate(invalid="ignore"):
        return np.concatenate([corners[:, :2], corners[:, 2:] - corners[:, :2]], axis=1)


def _numbers_of_four_columns(table: pa.Table, columns: Sequence[str]) -> NDArray[np.float64]:
    """The numbers (N, 4) in four columns of a table, NaN for empty cells. Raises DataError for a
    cell that is no number."""
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
    """The numbers (N, 4) in the lists, or the texts "[1, 2, 3, 4]", of one column of a table, NaN
    for empty cells. Raises DataError for a cell without four numbers."""
    rows = []
    for number, cell in enumerate(table[column].to_pylist()):
        text = "" if cell is None else str(cell).strip(" []()")
        try:
            # an empty cell is no box: four NaN
            row = [float(part) for part in text.replace(",", " ").split()] or [np.nan] * 4
        except ValueError:
            row = []
        if len(row) != 4:
            raise DataError(
                f"the column {column} holds no boxes",
                expected="four numbers in each cell",
                found=f"row {number + 1}: {str(cell)!r:.80}",
            )
        rows.append(row)
    return np.array(rows, np.float64).reshape(-1, 4)


def is_coco(path: Path) -> bool:
    """Whether a file is to be read as COCO's annotations: a JSON file that is no table."""
    return path.suffix.lower() == ".json" and not is_table(path)


class CocoBoxes(NamedTuple):
    """The boxes that annotations hold, a row each, and how many were left out, by the reason;
    `over`: how many reach over the border of their picture."""

    rows: list[dict[str, str]]
    left_out: Counter[str]
    over: int


def coco_table(path: Path) -> Sheet:
    """Read COCO's annotations as a table with a row per box: its item, its supercategory where the
    file has them, and its category; and say what was read.

    Boxes without an area, as COCO itself has some, and crowds are left out. Raises DataError for a
    file that is not in this format.
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
    table = table.take(_first_of_each(table["item"]))
    boxes.left_out["there twice"] += len(boxes.rows) - len(table)
    facts = [f"annotations of COCO: {len(table):,} boxes of {len(images):,} pictures"]
    if left_out := _in_words(boxes.left_out):
        facts.append(f"left out: {left_out}")
    if boxes.over:
        facts.append(f"{boxes.over:,} boxes reach over the border of their picture: cut there")
    return Sheet(path.name, table, "; ".join(facts))


def _in_words(left_out: Counter[str]) -> str:
    """How many boxes were left out for which reason, in words; "" for none."""
    return ", ".join(f"{count:,} boxes {why}" for why, count in left_out.items() if count)


def _boxes_of(
    annotations: Sequence[Mapping[str, Any]],
    images: Mapping[Any, Mapping[str, Any]],
    kinds: Mapping[Any, Mapping[str, Any]],
) -> CocoBoxes:
    """The boxes of all annotations of a COCO document; `images`, `kinds`: its pictures and its
    categories, by their ids. Raises ValueError for an annotation whose category or picture is not
    listed, or whose box is no four numbers.
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
        # how many boxes end outside of their picture
        over += _reaches_over(box, image)
        rows.append(
            {
                # Windows' annotators write backslashes
                "item": box_name(str(image["file_name"]).replace("\\", "/"), box),
                "supercategory": str(kind.get("supercategory") or ""),
                "category": str(kind["name"]),
            }
        )
    return CocoBoxes(rows, left_out, over)


def _reason_against(annotation: Mapping[str, Any]) -> str:
    """Why the box of a COCO annotation is left out; "" for one that is not. Raises ValueError for
    one that is not four numbers (left, top, width, height).
    """
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
    """Whether a box, (left, top, width, height) in pixels, is not inside of its picture; `image`:
    the picture's record, which may lack its width and height: then nothing is too large."""
    left, top, width, height = box
    sides = (image.get("width") or math.inf, image.get("height") or math.inf)
    return bool(left < 0 or top < 0 or left + width > sides[0] or top + height > sides[1])


def _schema(rows: Sequence[Mapping[str, str]]) -> pa.Schema:
    """The columns of a table of boxes: item and category, and between them the supercategory, where
    all categories have one, and some are called otherwise."""
    has_super = all(row["supercategory"] for row in rows)
    has_super &= any(row["supercategory"] != row["category"] for row in rows)
    levels = ["supercategory", "category"] if has_super else ["category"]
    return pa.schema([(name, pa.string()) for name in ("item", *levels)])


def _first_of_each(items: pa.ChunkedArray) -> NDArray[np.int64]:
    """The rows (n,), ascending, of the first of equal items each."""
    codes = pc.dictionary_encode(items.combine_chunks()).indices.to_numpy()
    return np.sort(np.unique(codes, return_index=True)[1])
