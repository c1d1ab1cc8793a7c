"""CUB-200-2011: birds by species, family and order; the first hundred species train, the others test."""

from __future__ import annotations

import csv
from collections import Counter
from importlib import resources
from pathlib import Path

from hbench.datasets import manifest as manifests
from hbench.datasets.dataset import Protocol
from hbench.datasets.raw_files import rows_of
from hbench.datasets.spec import Spec, Splits, specs

TRAINING_CLASSES = 100
MERGED = dict.fromkeys(("Emberizidae", "Passerellidae"), "Emberizidae and Passerellidae")


def tree() -> dict[int, tuple[str, str, str]]:
    """Order, family and species of each class: the tree of "Your Flamingo is My Bird" (MIT), its errors kept.

    By its label ids Emberizidae and Passerellidae are one family, and Laridae is two, in two orders; a family that
    occurs in two orders is named with its order.
    """
    text = resources.files("hbench.datasets.benchmarks").joinpath("cub200_tree.csv").read_text(encoding="utf-8")
    rows = list(csv.DictReader(text.splitlines()))
    names = [(row["order"], MERGED.get(row["family"], row["family"]), row["species"].replace("_", " ")) for row in rows]
    orders = Counter(family for _, family in {(order, family) for order, family, _ in names})
    return {
        int(row["class_id"]): (order, family if orders[family] == 1 else f"{family} ({order})", species)
        for row, (order, family, species) in zip(rows, names, strict=True)
    }


def build(raw: Path) -> Splits:
    """images.txt lists the images; the number of a class is the beginning of its folder."""
    of_class = tree()
    rows = [(path, int(path.split(".")[0])) for _, path in rows_of(raw / "images.txt", columns=2)]
    splits = {}
    for split in ("train", "test"):
        own = [(path, number) for path, number in rows if (number <= TRAINING_CLASSES) == (split == "train")]
        names = [of_class[number] for _, number in own]
        splits[split] = manifests.from_names([path for path, _ in own], names, levels=SPEC.levels)
    return splits


SPEC = Spec(
    name="cub200",
    title="Caltech-UCSD Birds-200-2011",
    levels=("order", "family", "species"),
    build=build,
    markers=("images.txt",),
    images=("images",),
    protocol=Protocol(recalls=(1, 2, 4, 8)),
    licence="research only, not redistributable; tree: MIT",
    citation="Wah et al., The Caltech-UCSD Birds-200-2011 dataset, 2011; tree: Chang et al., CVPR 2021",
    homepage="https://www.vision.caltech.edu/datasets/cub_200_2011/",
    size="1.1 GB",
    counts={
        "train": {"images": 5_864, "species": 100, "family": 30, "order": 13},
        "test": {"images": 5_924, "species": 100, "family": 20, "order": 6},
    },
    defects=(
        "the tree puts class 84, Red-legged Kittiwake, into Coraciiformes, with a family Laridae of its own there",
        "Emberizidae and Passerellidae are one family by the label ids of the tree",
    ),
    layout="""\
CUB_200_2011/
  images.txt                   NUMBER PATH
  images/
    001.Black_footed_Albatross/
      IMAGE.jpg""",
)
specs.register(SPEC.name)(SPEC)
