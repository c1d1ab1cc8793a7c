"""Draws small pictures of items, 36 to a sheet, so that pictures that are seen together are one
file.
"""

import itertools
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from hbench.datasets.manifest import Manifest
from hbench.look.strips import thumbnail

CELL = 96  # pixels of a picture's longer side
SIDE = 6  # pictures in a row of a sheet, and rows
PER_SHEET = SIDE * SIDE
QUALITY = 82


def sprite_of(place: int) -> dict[str, int] | None:
    """Find the sheet, and the left upper corner on it in pixels, of a picture by its number among
    all; None for -1, an item without a picture. A sheet has 6 rows of 6 pictures.

    >>> sprite_of(37)
    {'sheet': 1, 'x': 96, 'y': 0}
    """
    row, column = divmod(place % PER_SHEET, SIDE)
    return None if place < 0 else {"sheet": place // PER_SHEET, "x": CELL * column, "y": CELL * row}


def write_sprites(folder: Path, manifest: Manifest, items: NDArray[np.int64]) -> NDArray[np.int32]:
    """Draw the pictures of the items at these positions in the manifest onto sheets NUMBER.webp of
    36 pictures, related items next to each other.

    Returns the number of the picture of every item of the manifest (N,), -1 for those without one.
    """
    places = np.full(len(manifest), -1, np.int32)
    if manifest.picture is None:
        return places
    # by path, coarsest level first, so that a page of one class loads few sheets; lexsort sorts by
    # its last key first, hence [::-1]
    kin = items[np.lexsort(manifest.labels[items].T[::-1])].tolist()
    images = ((item, thumbnail(manifest.picture, manifest.items[item])) for item in kin)
    drawn = ((item, image) for item, image in images if image is not None)
    # both are generators: only the pictures of one sheet are in memory at once
    sheet = 0
    while shown := list(itertools.islice(drawn, PER_SHEET)):
        places[[item for item, _ in shown]] = PER_SHEET * sheet + np.arange(len(shown))
        _write_sheet(folder / f"{sheet}.webp", [image for _, image in shown])
        sheet += 1
    return places


def _write_sheet(path: Path, images: Sequence[Image.Image]) -> None:
    """Write pictures side by side, in rows of SIDE, each scaled to its cell with its aspect kept
    and in the middle of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # as many rows as needed, rounded up
    sheet = Image.new("RGB", (CELL * SIDE, CELL * -(-len(images) // SIDE)), "white")
    for number, image in enumerate(images):
        row, column = divmod(number, SIDE)
        scale = CELL / max(image.size)
        width, height = (max(1, round(side * scale)) for side in image.size)
        # enlarged pictures show their pixels: smoothed, 32 × 32 would look like nothing
        fitted = image.resize(
            (width, height), Image.Resampling.LANCZOS if scale < 1 else Image.Resampling.NEAREST
        )
        sheet.paste(
            fitted, (CELL * column + (CELL - width) // 2, CELL * row + (CELL - height) // 2)
        )
    sheet.save(path, format="WEBP", quality=QUALITY, method=2)
