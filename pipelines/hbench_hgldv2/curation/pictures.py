"""Draws the landmarks of each label small, three of each, on sheets in a folder beside the review page."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

from PIL import Image, ImageOps

from hbench.core.errors import DataError
from hbench.datasets.benchmarks import gldv2
from hbench.datasets.manifest import open_picture
from hbench.look.report.sprites import CELL, write_sheets
from hbench.look.strips import thumbnail
from hbench_hgldv2.labels.clean import CleanedLandmark

FOLDER = "review_pictures"
EACH = 3  # landmarks shown of a label


def chosen(selection: Iterable[CleanedLandmark], raw: Path) -> dict[str, list[str]]:
    """Class id -> up to three image files, relative to `raw`, each of another landmark, in the order of the selection.

    Raises DataError where `raw` has neither images of train with their list, nor of the index.
    """
    files = {split: listed for split in ("train", "index") if (listed := _files(raw, split))}
    if not files:
        raise DataError(
            f"{raw} has no images of landmarks",
            expected=f"{gldv2.TRAIN} and train/, or {gldv2.INDEX} and index/",
            fix="give the raw folder of gldv2",
        )
    found: dict[str, list[str]] = defaultdict(list)
    for row in selection:
        open_to = [i for i in row.classes if len(found[i]) < EACH] if row.status == "kept" else []
        first = next((f for f in files.get(row.split, {}).get(str(row.landmark_id), ()) if (raw / f).exists()), None)
        for class_id in open_to if first else ():
            found[class_id].append(str(first))
    return {class_id: names for class_id, names in found.items() if names}


def draw(folder: Path, classes: Sequence[str], files: Mapping[str, Sequence[str]], raw: Path) -> dict[str, list[int]]:
    """Draw the files of the classes, in this order, on sheets of `folder`; the places of each class's pictures there.

    What cannot be read is left out.
    """
    owners = [(class_id, file) for class_id in classes for file in files.get(class_id, ())]
    places = write_sheets(folder, _thumbnails(raw, [file for _, file in owners]))
    result: dict[str, list[int]] = defaultdict(list)
    for (class_id, _), place in zip(owners, places, strict=True):
        if place >= 0:
            result[class_id].append(place)
    return dict(result)


def _thumbnails(raw: Path, files: Sequence[str]) -> Iterator[Image.Image | None]:
    for file in files:
        image = thumbnail(partial(open_picture, raw), file)
        yield None if image is None else ImageOps.fit(image, (CELL, CELL))


def _files(raw: Path, split: str) -> dict[str, list[str]]:
    """Landmark -> its image files; nothing where the split's list or its image folder is missing."""
    table = gldv2.TRAIN if split == "train" else gldv2.INDEX
    if not (gldv2.found(raw, table).exists() and (raw / split).is_dir()):
        return {}
    result: dict[str, list[str]] = defaultdict(list)
    if split == "train":
        for landmark, images in zip(*gldv2.columns(raw, table, "landmark_id", "images"), strict=True):
            result[landmark] += [gldv2.file_of(split, image) for image in images.split()]
        return result
    for image, landmark in zip(*gldv2.columns(raw, table, "id", "landmark_id"), strict=True):
        result[landmark].append(gldv2.file_of(split, image))
    return result
