"""Finds the image files of a folder, and opens them as papers did or as a person sees them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image, ImageOps

from hbench.core.errors import DataError
from hbench.core.untrusted import load_picture

if TYPE_CHECKING:
    pass


SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".ppm")


def open_picture(root: Path, item: str) -> Image.Image:
    """Decode the image file of an item; 16 bits of grey become 8. Raises DataError where it is
    missing, damaged, not an image, a bomb, or holds numbers of no agreed range (floats, 32 bits).
    """
    try:
        image = load_picture(root / item)
        if image.mode in {"I", "F"} and image.format != "PNG":
            raise OSError(
                f"its numbers (mode {image.mode}) do not say what is white: save it with 8 or 16 "
                "bits"
            )
        return (
            Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
            if image.mode[0] == "I"
            else image
        )
    except OSError as error:
        raise _unreadable(item, error) from None


def _unreadable(item: str, error: Exception) -> DataError:
    return DataError(
        f"the image of {item} cannot be read",
        found=str(error),
        fix="replace the file (for a published set: hbench download NAME --repair), "
        "or leave it out of the dataset (hbench embed --skip-unreadable embeds without it)",
    )


def open_upright(root: Path, item: str, *, background: str = "white") -> Image.Image:
    """Open an image as a person sees it: rotated as its EXIF says, transparent parts composited on
    `background`.

    Pillow's conversion to RGB would show the colours hidden under the transparency. The background
    "none" leaves all of this to `open_picture`.
    """
    image = open_picture(root, item)
    if background == "none":
        return image

    # damaged EXIF turns no picture; Pillow raises whatever it meets in it
    with suppress(Exception):
        image = ImageOps.exif_transpose(image)

    try:
        if not image.has_transparency_data:
            return image
        transparent = image.convert("RGBA")
        return Image.alpha_composite(
            Image.new("RGBA", image.size, background), transparent
        ).convert("RGB")
    except (
        Exception
    ) as error:  # Pillow reads some bytes only here, and raises whatever it meets in damaged ones
        raise _unreadable(item, error) from None


def images_below(folder: Path, *, suffixes: tuple[str, ...] = SUFFIXES) -> Iterator[str]:
    """Yield the image files below a folder, as POSIX paths relative to it; hidden ones, and what
    systems and programs leave behind, are left out. A linked folder is followed, unless it leads
    back to one on the way to it."""
    for directory, folders, files in os.walk(folder, followlinks=True):
        here = os.path.realpath(directory)
        folders[:] = sorted(name for name in folders if _is_followed(directory, name, here))
        below = Path(directory).relative_to(folder)
        for name in files:
            if name.lower().endswith(suffixes) and not name.startswith("."):
                yield (below / name).as_posix()


LEFT_BEHIND = ("__MACOSX", "@eaDir")  # folders of systems, beside the hidden ones


def _is_followed(directory: str, name: str, here: str) -> bool:
    if name.startswith(".") or name in LEFT_BEHIND:
        return False
    path = os.path.join(directory, name)  # noqa: PTH118 - millions of files
    if not os.path.islink(path):  # noqa: PTH114
        return True
    target = os.path.realpath(path)
    return os.path.commonpath([target, here]) != target
