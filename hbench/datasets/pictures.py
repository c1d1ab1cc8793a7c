"""Finds the image files of a folder, and opens them: as papers do, or as a person sees them."""

from __future__ import annotations

import math
import os
import re
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps

from hbench.core.errors import DataError, HBenchError
from hbench.core.untrusted import load_picture
from hbench.sheets.words import PICTURES

OpenPicture = Callable[[Path, str], Image.Image]  # called with a folder and an item in it
# the end of an item that is a box of a picture: left, top, width, height
BOX = re.compile(r"#xywh=" + ",".join([r"(-?\d+(?:\.\d+)?(?:e[+-]?\d+)?)"] * 4) + "$")


def box_name(path: str, box: Sequence[float]) -> str:
    """Return the item that is a box (left, top, width, height), in pixels, of the picture `path`.

    >>> box_name("owl.jpg", (10, 20, 110.5, 200))
    'owl.jpg#xywh=10,20,110.5,200'
    """
    return f"{path}#xywh={','.join(f'{number:.10g}' for number in box)}"


def file_of(item: str) -> str:
    """Return the path of an item's picture: the item itself, without its box if it has one."""
    return BOX.sub("", item)


def open_picture(root: Path, item: str) -> Image.Image:
    """Decode the image file of an item below the folder `root`. If the item is a box, cut it out.

    16 bits of grey become 8. Raises DataError if the file is missing, damaged, not an image, or a
    decompression bomb, if its numbers have no agreed range (floats, 32 bits), or if the box is
    outside of the picture.
    """
    try:
        image = load_picture(root / file_of(item))
        # Pillow's modes of 32-bit integers (I) and floats (F); a PNG in mode I has 16 bits
        if image.mode in {"I", "F"} and image.format != "PNG":
            raise OSError(
                f"its numbers (mode {image.mode}) do not say what is white: save it with 8 or 16 "
                "bits"
            )
        if image.mode[0] == "I":  # 16 bits of grey, of which the upper 8 are kept
            image = Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
        return _cut(image, item)
    except OSError as error:
        raise _unreadable(item, error) from None


def _cut(image: Image.Image, item: str) -> Image.Image:
    """Cut the box of an item out of its picture, as far as it is inside; without a box, return the
    picture unchanged. Raises OSError for a box that is wholly outside."""
    box = BOX.search(item)
    if box is None:
        return image
    left, top, width, height = map(float, box.groups())
    # a box may end between pixels: it gets every pixel that it touches
    corners = (
        max(0, math.floor(left)),
        max(0, math.floor(top)),
        min(image.width, math.ceil(left + width)),
        min(image.height, math.ceil(top + height)),
    )
    if corners[0] >= corners[2] or corners[1] >= corners[3]:
        raise OSError(
            f"its box lies outside of the {image.width} × {image.height} pixels of the picture"
        )
    cut = image.crop(corners)
    # Pillow's crop drops the file's metadata, such as the EXIF orientation
    cut.info = image.info
    return cut


def _unreadable(item: str, error: Exception) -> DataError:
    """Make the DataError for an item whose picture cannot be read, with the reason in `error`."""
    return DataError(
        f"the image of {item} cannot be read",
        found=str(error),
        fix="replace the file (for a published set: hbench download NAME --repair), or leave it "
        "out of the table or folder, and build again with --force (hbench embed --skip-unreadable "
        "embeds without it)",
    )


def opened(open_in: OpenPicture, root: Path, item: str) -> Image.Image:
    """Open the image of an item below the folder `root` by the function `open_in`, which may be
    that of another package. Raises DataError if the function returns no image or fails.

    Errors of hbench and OSError pass unchanged: they say that a file cannot be read.
    """
    try:
        image = open_in(root, item)
    except (HBenchError, OSError):
        raise
    except Exception as error:
        # the first call of the traceback is in this function, the second in `open_in`: the message
        # names that line, not one of a library that `open_in` uses
        _here, *called = traceback.extract_tb(error.__traceback__)
        place = f", in {called[0].filename}, line {called[0].lineno}" if called else ""
        raise DataError(
            f"what opens the image of {item} fails",
            found=f"{type(error).__name__}: {error}{place}",
            fix="mend the `picture` of the dataset's SPEC: docs/plugins.md",
        ) from error
    if not isinstance(image, Image.Image):
        raise DataError(
            f"what opens the image of {item} returns none",
            expected="an image of Pillow",
            found=type(image).__name__,
            fix="mend the `picture` of the dataset's SPEC: docs/plugins.md",
        )
    return image


def open_upright(root: Path, item: str, *, background: str = "white") -> Image.Image:
    """Open the image of an item below the folder `root` as a person sees it: rotated as its EXIF
    says, with transparent parts composited on `background`.

    Pillow's conversion to RGB would show the colours hidden under the transparency. With the
    background "none" the image is only decoded, as by `open_picture`.
    """
    image = open_picture(root, item)
    if background == "none":
        return image

    # damaged EXIF is ignored; Pillow may raise any error for it
    with suppress(Exception):
        image = ImageOps.exif_transpose(image)

    try:
        if not image.has_transparency_data:
            return image
        transparent = image.convert("RGBA")
        return Image.alpha_composite(
            Image.new("RGBA", image.size, background), transparent
        ).convert("RGB")
    # Pillow decodes some bytes only here, and may raise any error if they are damaged
    except Exception as error:
        raise _unreadable(item, error) from None


def images_below(folder: Path, *, suffixes: tuple[str, ...] = PICTURES) -> Iterator[str]:
    """Yield the image files below a folder, as POSIX paths relative to it, in no fixed order.

    Hidden files and folders, folders that operating systems leave behind, and broken links are left
    out. A linked folder is followed, unless it leads back to a folder above it.
    """
    for directory, folders, files in os.walk(folder, followlinks=True):
        here = os.path.realpath(directory)
        # changed in place, since os.walk goes on with the folders that are left in this list
        folders[:] = sorted(name for name in folders if _is_followed(directory, name, here))
        below = Path(directory).relative_to(folder)
        for name in files:
            is_picture = name.lower().endswith(suffixes) and not name.startswith(".")
            if is_picture and not leads_nowhere(os.path.join(directory, name)):  # noqa: PTH118
                yield (below / name).as_posix()


def leads_nowhere(path: str) -> bool:
    """Whether a path is a link to something that does not exist."""
    return os.path.islink(path) and not os.path.exists(path)  # noqa: PTH110, PTH114


def broken_links(folder: Path) -> list[str]:
    """List the links below a folder that lead nowhere, as POSIX paths relative to it."""
    found = []
    for directory, folders, files in os.walk(folder, followlinks=True):
        here = os.path.realpath(directory)
        # changed in place, since os.walk goes on with the folders that are left in this list
        folders[:] = sorted(name for name in folders if _is_followed(directory, name, here))
        for name in files:
            if leads_nowhere(os.path.join(directory, name)):  # noqa: PTH118
                found.append((Path(directory).relative_to(folder) / name).as_posix())
    return sorted(found)


LEFT_BEHIND = ("__MACOSX", "@eaDir")  # folders that operating systems make, and that are not hidden


def _is_followed(directory: str, name: str, here: str) -> bool:
    """Whether a search goes on into the folder `name` of a directory. `here`: the real path of the
    directory.

    It does not if the folder is hidden or left behind by a system, or if it is a link to a folder
    around it, since the search would never end.
    """
    if name.startswith(".") or name in LEFT_BEHIND:
        return False
    path = os.path.join(directory, name)  # noqa: PTH118 - millions of files
    if not os.path.islink(path):  # noqa: PTH114
        return True
    target = os.path.realpath(path)
    # both paths begin with the whole of `target` if `here` is the same folder, or inside of it
    return os.path.commonpath([target, here]) != target
