"""Reads Pascal VOC: the images of a list, and the boxes in their XML files.

A year of VOC is a folder such as `VOC2007` with JPEGImages/ID.jpg, Annotations/ID.xml and
ImageSets/Main/PART.txt, which has one id per line.
"""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torchvision.transforms.functional import pil_to_tensor

from hbench.core.errors import DataError, examples
from hbench.core.untrusted import load_picture, parse_xml
from hbench.datasets.raw_files import lines_of, text_of
from hbench_detection.recipe import CLASSES

CORNERS = ("xmin", "ymin", "xmax", "ymax")


class Boxes(NamedTuple):
    """The objects of an image.

    Attributes:
        corners: float32 (n, 4), left, top, right, bottom in pixels from 0; right and bottom are
            exclusive.
        classes: int64 (n,), from 1, since 0 is the background.
        difficult: bool (n,); difficult objects are neither expected nor counted as false
            detections.
    """

    corners: Tensor
    classes: Tensor
    difficult: Tensor


class VocPart(NamedTuple):
    """The images of one or several lists, such as trainval of 2007 and of 2012, with their files
    and objects."""

    files: tuple[Path, ...]
    boxes: tuple[Boxes, ...]

    def image(self, place: int) -> Tensor:
        """Read an image as float32 (3, H, W) in [0, 1]. Raises DataError where the file is missing
        or damaged."""
        try:
            picture = load_picture(self.files[place]).convert("RGB")
        except OSError as error:
            raise DataError(
                f"the image {self.files[place]} cannot be read", found=str(error)
            ) from None
        pixels: Tensor = pil_to_tensor(picture).float() / 255
        return pixels

    @property
    def digest(self) -> str:
        """The sha256 of the names and objects. It does not depend on the path of the folder."""
        own = hashlib.sha256()
        for file, boxes in zip(self.files, self.boxes, strict=True):
            own.update(f"{file.parts[-3:]} {[part.tolist() for part in boxes]}".encode())
        return own.hexdigest()


def boxes_of(path: Path, classes: Sequence[str]) -> Boxes:
    """Read the objects in an annotation. The file states the first and last pixels of a box,
    counted from 1. The boxes that are returned end before `right` and `bottom`, counted from 0.

    Raises DataError for a file that is not an annotation, and for an object of a class not in
    `classes`.
    """
    try:
        root = parse_xml(text_of(path))
        # of each object: its class's name, its four edges, and whether it is difficult
        objects = [_object(each) for each in root.iterfind("object")]
    except ValueError as error:
        raise DataError(f"{path} is not an annotation of VOC", found=str(error)) from None

    if unknown := sorted({each.name for each in objects} - set(classes)):
        raise DataError(
            f"{path} has objects of other classes",
            expected=", ".join(classes),
            found=examples(unknown),
        )

    corners = torch.tensor([each.edges for each in objects], dtype=torch.float32).reshape(-1, 4)
    # From 0 on, the first pixel has a number that is one less. The edges after the last pixel keep
    # their number: pixel n, counted from 1, is pixel n − 1, counted from 0, and the box ends at n.
    corners[:, :2] -= 1
    # class numbers start at 1: 0 is the background
    numbers = torch.tensor([classes.index(each.name) + 1 for each in objects], dtype=torch.int64)
    difficult = torch.tensor([each.is_difficult for each in objects], dtype=torch.bool)
    return Boxes(corners, numbers, difficult)


class _AnnotatedObject(NamedTuple):
    """An object of an annotation: its class, its edges left, top, right and bottom, and whether it
    is difficult."""

    name: str
    edges: list[float]
    is_difficult: bool


def _object(element: Any) -> _AnnotatedObject:
    """Read an object element. Raises ValueError for edges that do not form a box."""
    edges = [float(element.findtext(f"bndbox/{corner}", "none")) for corner in CORNERS]
    # corners count pixels from 1; float refuses a text that is not a number
    if not (1 <= edges[0] <= edges[2] < float("inf") and 1 <= edges[1] <= edges[3] < float("inf")):
        raise ValueError(f"a box from {edges[:2]} to {edges[2:]}")
    is_difficult = element.findtext("difficult", "0").strip() == "1"
    return _AnnotatedObject(element.findtext("name", "").strip(), edges, is_difficult)


def part_of(root: Path, lists: Sequence[str], classes: Sequence[str] = CLASSES) -> VocPart:
    """Read the images of lists such as "2007/trainval". `root` contains VOC2007/ or
    VOCdevkit/VOC2007/. `classes` are the names that objects may have."""
    files: list[Path] = []
    for each in lists:
        year, _, part = each.partition("/")
        folder = _year(root, year)
        names = [
            line.split()[0] for line in lines_of(folder / "ImageSets" / "Main" / f"{part}.txt")
        ]
        # lists come from other people: a name in a list must not lead out of the folder
        if bad := [name for name in names if Path(name).name != name or name.startswith(".")]:
            raise DataError(
                f"the list {each} names no images",
                expected="ids such as 000012",
                found=examples(bad),
            )
        files += [folder / "JPEGImages" / f"{name}.jpg" for name in names]

    found = (
        # parents[1] is the folder of the year, which has JPEGImages/ and Annotations/
        boxes_of(file.parents[1] / "Annotations" / f"{file.stem}.xml", classes)
        for file in files
    )
    return VocPart(tuple(files), tuple(found))


def _year(root: Path, year: str) -> Path:
    """The folder of a year's pictures and annotations; raises DataError where there is none."""
    for folder in (root / f"VOC{year}", root / "VOCdevkit" / f"VOC{year}"):
        if folder.is_dir():
            return folder
    raise DataError(
        f"VOC {year} is not in {root}",
        expected=f"VOC{year}/ or VOCdevkit/VOC{year}/, with JPEGImages, Annotations and ImageSets",
        fix="unpack VOCtrainval_*.tar and VOCtest_06-Nov-2007.tar there "
        "(http://host.robots.ox.ac.uk/pascal/VOC/)",
    )
