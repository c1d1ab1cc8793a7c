"""Stanford Online Products: photographs of articles for sale; fine classes are products, coarse
ones twelve kinds.
"""

from pathlib import Path

from hbench.datasets.spec import Protocol, Spec, Splits, rows_of
from hbench.tree.names import Row


def build(raw: Path) -> Splits:
    """Read the images from Ebay_train.txt and Ebay_test.txt; their kind is the folder without
    `_final`.
    """
    return {split: products(raw / f"Ebay_{split}.txt") for split in ("train", "test")}


def products(path: Path) -> list[tuple[str, Row]]:
    """Read the kind and the product of each image from a list."""
    found: list[tuple[str, Row]] = []
    for _, product, _, image in rows_of(path, header="image_id class_id super_class_id path"):
        kind = image.split("/")[0].removesuffix("_final")
        found.append((image, (kind, f"{kind} {product}")))
    return found


SPEC = Spec(
    name="sop",
    title="Stanford Online Products",
    levels=("super_class", "class"),
    build=build,
    markers=("Ebay_train.txt",),
    protocol=Protocol(recalls=(1, 10, 100, 1000)),
    licence="research only, not redistributable",
    citation="Oh Song et al., Deep metric learning via lifted structured feature embedding, CVPR "
    "2016",
    homepage="https://cvgl.stanford.edu/projects/lifted_struct/",
    size="2.9 GB",
    counts={
        "train": {"images": 59_551, "class": 11_318, "super_class": 12},
        "test": {"images": 60_502, "class": 11_316, "super_class": 12},
    },
    layout="""\
Stanford_Online_Products/
  Ebay_train.txt           image_id class_id super_class_id path
  Ebay_test.txt
  bicycle_final/           the other eleven kinds alike
    IMAGE.JPG""",
)
