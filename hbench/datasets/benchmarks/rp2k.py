"""RP2K: retail products, cut out of photographs of shelves; a folder for each product."""

from __future__ import annotations

from pathlib import Path

from hbench.core.errors import DataError
from hbench.datasets import manifest as manifests
from hbench.datasets.dataset import Protocol
from hbench.datasets.own_data import images_below
from hbench.datasets.spec import Spec, Splits, specs


def build(raw: Path) -> Splits:
    """The folder of an image is its product; train and test are folders too."""
    splits = {}
    for split in ("train", "test"):
        items = [f"{split}/{item}" for item in sorted(images_below(raw / split))]
        if not items:
            raise DataError(f"{raw / split} holds no images", expected=f"{split}/PRODUCT/IMAGE.jpg")
        products = [item.split("/")[1] for item in items]
        splits[split] = manifests.from_columns(items, [products], levels=SPEC.levels)
    return splits


SPEC = Spec(
    name="rp2k",
    title="RP2K",
    levels=("product",),
    build=build,
    markers=("train",),
    protocol=Protocol(metrics=("AP", "mAP@100"), recalls=(1, 10, 100)),
    licence="not found",
    citation="Peng et al., RP2K: a large-scale retail product dataset for fine-grained image classification, 2020",
    homepage="https://www.pinlandata.com/rp2k_dataset/",
    size="6.3 GB",
    defects=(
        "a closed set of one level: products of the test are those of the training",
        "the number of images that the paper gives differs from one version to the next, so none is checked",
    ),
    layout="""\
all/
  train/
    PRODUCT/             about 2,000, named in Chinese
      IMAGE.jpg
  test/
    PRODUCT/
      IMAGE.jpg""",
)
specs.register(SPEC.name)(SPEC)
