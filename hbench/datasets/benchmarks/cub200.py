"""CUB-200-2011: birds by species, family and order; the first hundred species train, the others
test.
"""

from pathlib import Path

from hbench.datasets.raw_files import rows_of, shipped_rows
from hbench.datasets.spec import Protocol, Publication, RemoteFile, Spec, Splits, mended, split_by

TRAINING_CLASSES = 100  # of 200, which are numbered from 1
MERGED = dict.fromkeys(("Emberizidae", "Passerellidae"), "Emberizidae and Passerellidae")


def tree() -> dict[int, tuple[str, ...]]:
    """Read {class number: (order, family, species)} from the table that hbench ships. It is the
    tree of "Your Flamingo is My Bird" (MIT), with its errors, so that scores can be compared with
    those of that paper.

    In the label ids of that tree, Emberizidae and Passerellidae are one family, so MERGED gives
    them one name. Laridae is in two orders, and is a family of its own in each: the policy
    "by-path" adds the order to the name of a family that occurs in two orders.
    """
    rows = {
        int(row["class_id"]): (
            row["order"],
            MERGED.get(row["family"], row["family"]),
            row["species"].replace("_", " "),
        )
        for row in shipped_rows("cub200_tree.csv")
    }
    return mended(rows, SPEC.levels, "by-path")


def build(raw: Path) -> Splits:
    """Read the images from images.txt in the folder `raw`, and split them by class: the numbers up
    to TRAINING_CLASSES are for training, as in papers on metric learning.

    A line is such as "1 001.Black_footed_Albatross/IMAGE.jpg"; the number before the dot is that of
    the class.
    """
    names = tree()
    training = {names[number] for number in names if number <= TRAINING_CLASSES}
    labelled = [
        (path, names[int(path.split(".")[0])]) for _, path in rows_of(raw / "images.txt", columns=2)
    ]
    return split_by(labelled, trains=lambda row: row in training)


FILES = (
    RemoteFile(
        file="CUB_200_2011.tgz",
        urls=(
            "https://data.caltech.edu/records/65de6-vp158/files/CUB_200_2011.tgz",
            "http://www.vision.caltech.edu/visipedia-data/CUB-200-2011/CUB_200_2011.tgz",
            "gdrive:1hbzc_P1FuxMkcabkgn9ZKinBwW683j45",
        ),
        size=1150585339,
        md5="97eceeb196236b17998738112f37df78",
        sha256="0c685df5597a8b24909f6a7c9db6d11e008733779a671760afef78feb49bf081",
        unpack=".",
    ),
)
PAPER = Publication(
    key="wah2011cub",
    kind="techreport",
    title="The Caltech-UCSD Birds-200-2011 Dataset",
    authors=(
        "Wah, Catherine",
        "Branson, Steve",
        "Welinder, Peter",
        "Perona, Pietro",
        "Belongie, Serge",
    ),
    venue="California Institute of Technology",
    number="CNS-TR-2011-001",
    year=2011,
    cited=("Wah et al.",),
)
TREE_PAPER = Publication(
    key="chang2021flamingo",
    kind="inproceedings",
    title='Your "Flamingo" is My "Bird": Fine-Grained, or Not',
    authors=(
        "Chang, Dongliang",
        "Pang, Kaiyue",
        "Zheng, Yixiao",
        "Ma, Zhanyu",
        "Song, Yi-Zhe",
        "Guo, Jun",
    ),
    venue="IEEE/CVF Conference on Computer Vision and Pattern Recognition (CVPR)",
    year=2021,
    arxiv="2011.09040",
    cited=("Chang et al., CVPR 2021",),
)
SPEC = Spec(
    name="cub200",
    title="Caltech-UCSD Birds-200-2011",
    levels=("order", "family", "species"),
    build=build,
    markers=("images.txt",),
    images=("images",),
    protocol=Protocol(recalls=(1, 2, 4, 8)),
    licence="research only, not redistributable; tree: MIT",
    files=FILES,
    papers=(PAPER, TREE_PAPER),
    citation="Wah et al., The Caltech-UCSD Birds-200-2011 dataset, 2011; tree: Chang et al., CVPR "
    "2021",
    homepage="https://www.vision.caltech.edu/datasets/cub_200_2011/",
    size="1.1 GB",
    counts={
        "train": {"images": 5_864, "species": 100, "family": 30, "order": 13},
        "test": {"images": 5_924, "species": 100, "family": 20, "order": 6},
    },
    defects=(
        "the tree puts class 84, Red-legged Kittiwake, into Coraciiformes, with a family Laridae "
        "of its own there",
        "Emberizidae and Passerellidae are one family by the label ids of the tree",
    ),
    layout="""\
CUB_200_2011/
  images.txt                   NUMBER PATH
  images/
    001.Black_footed_Albatross/
      IMAGE.jpg""",
)
