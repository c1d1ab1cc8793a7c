"""Draws small pictures of items, 36 to a sheet, so that the browser loads pictures that are seen
together as one file."""

import itertools
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from hbench.datasets.manifest import Manifest
from hbench.look.strips import thumbnail

CELL = 96  # pixels of a picture's longer side
SIDE = 6  # pictures in a row of a sheet, and rows of a sheet
PER_SHEET = SIDE * SIDE
QUALITY = 82


def sprite_of(place: int) -> dict[str, int] | None:
    """Return the sheet of a picture and the picture's top left corner in pixels. `place` is the
    picture's place on all sheets; −1, for an item without a picture, gives None.

    >>> sprite_of(37)
    {'sheet': 1, 'x': 96, 'y': 0}
    """
    if place < 0:
        return None
    row, column = divmod(place % PER_SHEET, SIDE)
    return {"sheet": place // PER_SHEET, "x": CELL * column, "y": CELL * row}


def write_sprites(folder: Path, manifest: Manifest, items: NDArray[np.int64]) -> NDArray[np.int32]:
    """Draw the pictures of the items at these positions onto sheets NUMBER.webp, items of one class
    next to each other.

    Returns (N,) the place of the picture of each item of the manifest, counted over all sheets; −1
    for an item without a picture.
    """
    places = np.full(len(manifest), -1, np.int32)
    if manifest.picture is None:  # the dataset has no pictures
        return places
    # sort by path, so that a page of one class loads few sheets; lexsort sorts by its last key
    # first, hence the reversed levels
    kin = items[np.lexsort(manifest.labels[items].T[::-1])].tolist()
    # generators, so that only one sheet's pictures are in memory; a picture that cannot be read is
    # None and takes no place
    images = ((item, thumbnail(manifest.picture, manifest.items[item])) for item in kin)
    drawn = ((item, image) for item, image in images if image is not None)
    sheet = 0
    while shown := list(itertools.islice(drawn, PER_SHEET)):
        places[[item for item, _ in shown]] = PER_SHEET * sheet + np.arange(len(shown))
        _write_sheet(folder / f"{sheet}.webp", [image for _, image in shown])
        sheet += 1
    return places


def _write_sheet(path: Path, images: Sequence[Image.Image]) -> None:
    """Write pictures side by side to one sheet. Each is scaled to its cell and keeps its aspect
    ratio."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # SIDE cells in a row, CELL pixels each; -(-a // b) is a / b rounded up, as the last row may be
    # short
    sheet = Image.new("RGB", (CELL * SIDE, CELL * -(-len(images) // SIDE)), "white")
    for number, image in enumerate(images):
        row, column = divmod(number, SIDE)
        scale = CELL / max(image.size)
        width, height = (max(1, round(side * scale)) for side in image.size)
        # without smoothing, an enlarged small picture keeps its pixels
        fitted = image.resize(
            (width, height), Image.Resampling.LANCZOS if scale < 1 else Image.Resampling.NEAREST
        )
        sheet.paste(
            fitted, (CELL * column + (CELL - width) // 2, CELL * row + (CELL - height) // 2)
        )
    sheet.save(path, format="WEBP", quality=QUALITY, method=2)
