"""iNaturalist 2018 in the retrieval split of Brown et al. Species are grouped by supercategory
(base) or by the full taxonomy (full).
"""

import dataclasses
from functools import partial
from operator import itemgetter
from pathlib import Path

from hbench.core.errors import DataError, examples
from hbench.datasets.raw_files import json_of, lines_of
from hbench.datasets.spec import (
    RANKS,
    Names,
    Protocol,
    Publication,
    RemoteFile,
    Spec,
    Splits,
    mended,
)

BASE = ("supercategory", "species")
SPLITS = "Inat_dataset_splits/Inaturalist_{split}_set1.txt"
POLICIES = (
    "fill-from-parent",
    "by-path",
)  # "NA" becomes the name of its parent; a genus that occurs in two families gets its family's name


def categories(raw: Path, levels: tuple[str, ...]) -> dict[int, tuple[str, ...]]:
    """Read {category id: its name at each of the `levels`} from categories.json in the folder
    `raw`. The key of the species in that file is "name"."""
    keys = ["name" if level == "species" else level for level in levels]
    names_in = itemgetter(*keys)  # from an entry to its names, coarse to fine
    with json_of(raw / "categories.json", "a list of categories") as entries:
        return {int(entry["id"]): names_in(entry) for entry in entries}


def official_names(raw: Path) -> Names:
    """Return {level: {name in the tree: name in categories.json}} for the names that differ.

    The authors' released evaluator tells classes apart by their names in the file: all "NA" of a
    level are one class there, and the plant Iris and the mantis Iris are one genus. The tree keeps
    them apart, so their original names are needed to reproduce the evaluator's scores.
    """
    plain = categories(raw, RANKS)  # {category id: its names as in the file, coarse to fine}
    final = mended(plain, RANKS, *POLICIES)
    renamed: Names = {level: {} for level in RANKS}
    for number, row in plain.items():
        for level, official, name in zip(RANKS, row, final[number], strict=True):
            if name != official:
                renamed[level][name] = official
    return {level: names for level, names in renamed.items() if names}


def build(raw: Path, *, levels: tuple[str, ...]) -> Splits:
    """Read the images from the split files in the folder `raw`, and label them by category at each
    of the `levels`. The names are mended by POLICIES.

    A line ends in SUPERCATEGORY/CATEGORY_ID/IMAGE.jpg. What stands before these three parts is
    replaced by the folder into which the archive of the images unpacks.
    """
    # {category id: its names, coarse to fine}
    of_category = mended(categories(raw, levels), levels, *POLICIES)
    labelled = {}
    for split in ("train", "test"):
        path = raw / SPLITS.format(split=split)
        parts = [line.strip().split("/")[-3:] for line in lines_of(path)]
        # `parts`: supercategory, category id and image of each line
        if bad := [
            part
            for part in parts
            if len(part) != 3 or not part[1].isdigit() or int(part[1]) not in of_category
        ]:
            raise DataError(
                f"{path} cannot be understood",
                expected="SUPERCATEGORY/CATEGORY_ID/IMAGE.jpg",
                found=examples(bad),
            )
        labelled[split] = [
            ("/".join(("train_val2018", *part)), of_category[int(part[1])]) for part in parts
        ]

    return labelled


FILES = (
    RemoteFile(
        file="train2018.json.tar.gz",
        urls=("https://ml-inat-competition-datasets.s3.amazonaws.com/2018/train2018.json.tar.gz",),
        size=20951917,
        md5="bfa29d89d629cbf04d826a720c0a68b0",
        sha256="be550dd4e2692458e508dd03e3a8d79f087453e2ad570a438a4ff198a7abc68f",
        part="metadata",
        unpack=".",
    ),
    RemoteFile(
        file="val2018.json.tar.gz",
        urls=("https://ml-inat-competition-datasets.s3.amazonaws.com/2018/val2018.json.tar.gz",),
        size=1276686,
        md5="f2ed8bfe3e9901cdefceb4e53cd3775d",
        sha256="e23c47d61d3aa2a9095090dbc49de861445d9a8144884a78222873f11f7ef43e",
        part="metadata",
        unpack=".",
    ),
    RemoteFile(
        file="categories.json.tar.gz",
        urls=("https://ml-inat-competition-datasets.s3.amazonaws.com/2018/categories.json.tar.gz",),
        size=139473,
        sha256="2287211e8da582419dc2ca66736005fdb079e0a89eaf38936a441d8277a8162e",
        part="metadata",
        unpack=".",
    ),
    RemoteFile(
        file="Inat_dataset_splits.zip",
        urls=("gdrive:1sXfkBTFDrRU3__-NUs1qBP3sf_0uMB98",),
        part="metadata",
        unpack=".",
    ),
    RemoteFile(
        file="train_val2018.tar.gz",
        urls=("https://ml-inat-competition-datasets.s3.amazonaws.com/2018/train_val2018.tar.gz",),
        size=127945569561,
        md5="b1c6952ce38f31868cc50ea72d066cc3",
        sha256="276522b02b65d98ee5168a17415b2b1ec971b035bd62959e37b80b1092130495",
        unpack=".",
    ),
)
PAPER = Publication(
    key="vanhorn2018inaturalist",
    kind="inproceedings",
    title="The iNaturalist Species Classification and Detection Dataset",
    authors=(
        "Van Horn, Grant",
        "Mac Aodha, Oisin",
        "Song, Yang",
        "Cui, Yin",
        "Sun, Chen",
        "Shepard, Alex",
        "Adam, Hartwig",
        "Perona, Pietro",
        "Belongie, Serge",
    ),
    venue="IEEE Conference on Computer Vision and Pattern Recognition (CVPR)",
    year=2018,
    pages="8769--8778",
    arxiv="1707.06642",
    cited=("Van Horn et al., The iNaturalist",),
)
SPEC = Spec(
    name="inat18-base",
    title="iNaturalist 2018, two levels",
    levels=BASE,
    build=partial(build, levels=BASE),
    raw_name="inat18",
    markers=(SPLITS.format(split="train"),),
    protocol=Protocol(recalls=(1, 4, 16, 32)),
    licence="non-commercial research; images may not be redistributed",
    files=FILES,
    papers=(PAPER,),
    citation="Van Horn et al., The iNaturalist dataset, CVPR 2018; split: Brown et al., Smooth-AP, "
    "ECCV 2020",
    homepage="https://github.com/visipedia/inat_comp/tree/master/2018",
    size="119 GB",
    counts={
        "train": {"images": 325_846, "species": 5_690, "supercategory": 13},
        "test": {"images": 136_093, "species": 2_452},
    },
    defects=("the split follows no rule, so that its files are needed (Inat_dataset_splits)",),
    layout="""\
categories.json                    id, name, supercategory, kingdom … genus
Inat_dataset_splits/
  Inaturalist_train_set1.txt       train_val2018/Aves/CATEGORY/IMAGE.jpg
  Inaturalist_test_set1.txt
train_val2018/
  SUPERCATEGORY/
    CATEGORY/                      its id in categories.json
      IMAGE.jpg""",
)
FULL_SPEC = dataclasses.replace(
    SPEC,
    name="inat18-full",
    title="iNaturalist 2018, seven levels",
    levels=RANKS,
    build=partial(build, levels=RANKS),
    official_names=official_names,
    counts={
        "train": {
            "images": 325_846,
            **dict(zip(RANKS, (5, 23, 54, 249, 961, 3_438, 5_690), strict=True)),
        },
        "test": {"images": 136_093, "species": 2_452},
    },
    defects=(
        *SPEC.defects,
        "11 genera occur in two families each; the released evaluators count them as one (protocol "
        "official)",
        "34 species have NA for an order or family; here each such NA is a class of its own within "
        "its parent",
    ),
)
