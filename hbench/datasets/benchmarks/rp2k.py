"""RP2K: retail products, cut out of photographs of shelves, in a folder per product."""

from pathlib import Path

from hbench.datasets.spec import Protocol, Spec, Splits, images_in


def build(raw: Path) -> Splits:
    """Read the splits and the products from the folders: SPLIT/PRODUCT/IMAGE.jpg."""
    splits = {}
    for split in ("train", "test"):
        splits[split] = [(item, (item.split("/")[1],)) for item in images_in(raw, split)]
    return splits


SPEC = Spec(
    name="rp2k",
    title="RP2K",
    levels=("product",),
    build=build,
    markers=("train",),
    protocol=Protocol(metrics=("AP", "mAP@100"), recalls=(1, 10, 100)),
    licence="not found",
    citation="Peng et al., RP2K: a large-scale retail product dataset for fine-grained image "
    "classification, 2020",
    homepage="https://www.pinlandata.com/rp2k_dataset/",
    size="6.3 GB",
    defects=(
        "a closed set of one level: products of the test are those of the training",
        "the versions of the paper state different numbers of images, so none is checked",
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
