"""CIFAR-100: small pictures of a hundred classes in twenty superclasses. Train and test have the
same classes.
"""

from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from hbench.core.errors import DataError
from hbench.datasets.raw_files import lines_of
from hbench.datasets.spec import Publication, RemoteFile, Spec, Splits

SIDE = 32  # pixels of a picture's side
LABELS = 2  # bytes before the pixels: the coarse and the fine label
RECORD = LABELS + 3 * SIDE * SIDE  # bytes: the labels, then the red, green and blue plane


@cache
def records(path: Path) -> NDArray[np.uint8]:
    """Map the N records of a binary file into memory, uint8 (N, 3074). A row is a coarse label, a
    fine label, and the planes of red, green and blue, 32 × 32 each.

    The pickled version of CIFAR is never read, since loading a pickle may run code in it. The
    result is cached per path, because `picture` needs it for each image.
    """
    size = path.stat().st_size if path.exists() else 0
    if size == 0 or size % RECORD:
        raise DataError(
            f"{path} is not a CIFAR-100 file",
            expected=f"a multiple of {RECORD} bytes",
            found=f"{size} bytes",
        )
    return np.memmap(path, np.uint8, mode="r").reshape(-1, RECORD)


def build(raw: Path) -> Splits:
    """Read the labels from train.bin and test.bin in the folder `raw`, which also hold the pixels.

    An item, such as "train/00042.png", has the number of its record. There is no file of that name:
    `picture` reads the pixels from the record.
    """
    coarse, fine = (lines_of(raw / f"{kind}_label_names.txt") for kind in ("coarse", "fine"))
    splits = {}
    for split in ("train", "test"):
        labels = records(raw / f"{split}.bin")[:, :LABELS]  # (N, 2): coarse, fine
        splits[split] = [
            (f"{split}/{number:05d}.png", (coarse[above], fine[below]))
            for number, (above, below) in enumerate(labels)
        ]
    return splits


def picture(root: Path, item: str) -> Image.Image:
    """Return the 32×32 colour image of an item such as "train/00042.png": the pixels of record 42
    of train.bin in the folder `root`.
    """
    split, file = item.split("/")
    number = int(file.removesuffix(".png"))
    pixels = records(root / f"{split}.bin")[number, LABELS:]
    planes = pixels.reshape(3, SIDE, SIDE)  # colour, row, column
    # Pillow expects the three colours of a pixel side by side: (row, column, colour)
    return Image.fromarray(np.ascontiguousarray(planes.transpose(1, 2, 0)))


FILES = (
    RemoteFile(
        file="cifar-100-binary.tar.gz",
        urls=("https://www.cs.toronto.edu/~kriz/cifar-100-binary.tar.gz",),
        size=168513733,
        md5="03b5dce01913d631647c71ecec9e9cb8",
        sha256="58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec",
        unpack=".",
    ),
)
PAPER = Publication(
    key="krizhevsky2009learning",
    kind="techreport",
    title="Learning Multiple Layers of Features from Tiny Images",
    authors=("Krizhevsky, Alex",),
    venue="University of Toronto",
    year=2009,
    cited=("Krizhevsky, Learning multiple layers",),
)
SPEC = Spec(
    name="cifar100",
    title="CIFAR-100",
    levels=("superclass", "class"),
    build=build,
    picture=picture,
    on_disk=False,
    markers=("train.bin",),
    files=FILES,
    papers=(PAPER,),
    citation="Krizhevsky, Learning multiple layers of features from tiny images, 2009",
    homepage="https://www.cs.toronto.edu/~kriz/cifar.html",
    size="161 MB",
    counts={
        "train": {"images": 50_000, "class": 100, "superclass": 20},
        "test": {"images": 10_000, "class": 100, "superclass": 20},
    },
    defects=("a closed set: the classes of the test are those of the training",),
    layout="""\
cifar-100-binary/
  train.bin                    coarse label, fine label, 3,072 pixels; the images are in here
  test.bin
  coarse_label_names.txt
  fine_label_names.txt""",
)
