"""iNaturalist 2021 mini: 50 training images of each of 10,000 species, with the full taxonomy; and
an open-set split of the same images.
"""

import dataclasses
from pathlib import Path

from hbench.core.errors import DataError, examples
from hbench.datasets.raw_files import images_in
from hbench.datasets.spec import (
    RANKS,
    Protocol,
    Publication,
    RemoteFile,
    Spec,
    Splits,
    held_out,
    mended,
    split_by,
)

FOLDERS = {"train": "train_mini", "test": "val"}


def build(raw: Path) -> dict[str, list[tuple[str, tuple[str, ...]]]]:
    """Read the official training and validation images in the folder `raw`. The folder of an image
    has the ranks of its species: NNNNN_Kingdom_Phylum_Class_Order_Family_Genus_epithet.

    The names of the two splits are mended together, so that a class has the same name in each.
    """
    # an item is FOLDER_OF_SPLIT/FOLDER_OF_SPECIES/IMAGE.jpg; FOLDERS: {split: its folder}
    items = {split: images_in(raw, folder) for split, folder in FOLDERS.items()}
    folders = dict.fromkeys(item.split("/")[1] for images in items.values() for item in images)
    # split at most 7 times, since an epithet may contain underscores; [1:] drops the number
    parts = {folder: folder.split("_", maxsplit=7)[1:] for folder in folders}
    if bad := [folder for folder, names in parts.items() if len(names) != len(RANKS)]:
        raise DataError(
            f"folders of {raw} are not a taxonomy",
            expected="NNNNN_Kingdom_…_Genus_epithet",
            found=examples(bad),
        )

    # a species is called by genus and epithet, since species of many genera share an epithet
    rows = {
        folder: (*above, genus, f"{genus} {epithet}")
        for folder, (*above, genus, epithet) in parts.items()
    }
    # by-path: the same name below different parents becomes different names
    final = mended(rows, RANKS, "by-path")
    splits = {}
    for split, images in items.items():
        splits[split] = [(item, final[item.split("/")[1]]) for item in images]
    return splits


def build_open(raw: Path) -> Splits:
    """Split the images of both official folders by species, so that training and test share no
    species. A hash of the names chooses three of ten species for the test, about as many as in the
    split of iNaturalist 2018.
    """
    images = [image for part in build(raw).values() for image in part]
    # the last name of a row is its species
    test = held_out((names[-1] for _, names in images), fraction=0.3, seed=0)
    return split_by(images, trains=lambda names: names[-1] not in test)


FILES = (
    RemoteFile(
        file="train_mini.tar.gz",
        urls=("https://ml-inat-competition-datasets.s3.amazonaws.com/2021/train_mini.tar.gz",),
        size=44636137542,
        md5="db6ed8330e634445efc8fec83ae81442",
        unpack=".",
    ),
    RemoteFile(
        file="val.tar.gz",
        urls=("https://ml-inat-competition-datasets.s3.amazonaws.com/2021/val.tar.gz",),
        size=8931661582,
        md5="f6f6e0e242e3d4c9569ba56400938afc",
        unpack=".",
    ),
)
PAPER = Publication(
    key="vanhorn2021benchmarking",
    kind="inproceedings",
    title="Benchmarking Representation Learning for Natural World Image Collections",
    authors=(
        "Van Horn, Grant",
        "Cole, Elijah",
        "Beery, Sara",
        "Wilber, Kimberly",
        "Belongie, Serge",
        "Mac Aodha, Oisin",
    ),
    venue="IEEE/CVF Conference on Computer Vision and Pattern Recognition (CVPR)",
    year=2021,
    arxiv="2103.16483",
    cited=("Van Horn et al., Benchmarking",),
)
SPEC = Spec(
    name="inat21-mini",
    title="iNaturalist 2021, mini training set",
    levels=RANKS,
    build=build,
    markers=(FOLDERS["train"],),
    protocol=Protocol(recalls=(1, 4, 16, 32)),
    licence="non-commercial research; images may not be redistributed",
    files=FILES,
    papers=(PAPER,),
    citation="Van Horn et al., Benchmarking representation learning for natural world image "
    "collections, CVPR 2021",
    homepage="https://github.com/visipedia/inat_comp/tree/master/2021",
    size="50 GB",
    counts={
        "train": {"images": 500_000, "species": 10_000},
        "test": {"images": 100_000, "species": 10_000},
    },
    defects=(
        "a closed set: the species of the test (the official validation set) are those of the "
        "training",
    ),
    layout="""\
train_mini/
  00000_Animalia_Annelida_…_Lumbricus_terrestris/
    IMAGE.jpg
val/
  00000_Animalia_Annelida_…_Lumbricus_terrestris/
    IMAGE.jpg""",
)
OPEN = dataclasses.replace(
    SPEC,
    name="inat21-mini-open",
    title="iNaturalist 2021, mini training and validation set, split by species",
    build=build_open,
    raw_name="inat21-mini",
    counts={
        "train": {"images": 7_000 * 60, "species": 7_000},
        "test": {"images": 3_000 * 60, "species": 3_000},
    },
    defects=(
        "hbench made this split, like that of iNaturalist 2018 (7 of 10 species train): compare "
        "results within it",
    ),
)
