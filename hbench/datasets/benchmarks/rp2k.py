"""RP2K: retail products, cut out of photographs of shelves, in a folder per product."""

from pathlib import Path

from hbench.datasets.raw_files import images_in
from hbench.datasets.spec import Protocol, Publication, RemoteFile, Spec, Splits


def build(raw: Path) -> Splits:
    """Read the splits and the products from the paths of the images in the folder `raw`,
    SPLIT/PRODUCT/IMAGE.jpg. The product is the only level."""
    splits = {}
    for split in ("train", "test"):
        splits[split] = [(item, (item.split("/")[1],)) for item in images_in(raw, split)]
    return splits


FILES = (
    RemoteFile(
        file="rp2k_dataset.zip",
        urls=(
            "https://blob-nips2020-rp2k-dataset.obs.cn-east-3.myhuaweicloud.com/rp2k_dataset.zip",
        ),
        size=6330687649,
        sha256="4c32449993e720285865405c3b46d2958cb36f33a9d7db6c3d70bde49d580205",
        unpack=".",
    ),
)
PAPER = Publication(
    key="peng2020rp2k",
    kind="misc",
    title="RP2K: A Large-Scale Retail Product Dataset for Fine-Grained Image Classification",
    authors=("Peng, Jingtian", "Xiao, Chang", "Wei, Xun", "Li, Yifan"),
    year=2020,
    arxiv="2006.12634",
    cited=("RP2K: a large-scale retail product dataset",),
)
SPEC = Spec(
    name="rp2k",
    title="RP2K",
    levels=("product",),
    build=build,
    markers=("train",),
    protocol=Protocol(metrics=("AP", "mAP@100"), recalls=(1, 10, 100)),
    licence="not found",
    files=FILES,
    papers=(PAPER,),
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
