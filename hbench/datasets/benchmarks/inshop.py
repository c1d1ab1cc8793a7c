"""In-shop Clothes Retrieval (DeepFashion): single pieces of clothing by category. Queries and
gallery are separate.
"""

from pathlib import Path

import numpy as np

from hbench.core.errors import DataError
from hbench.datasets.raw_files import lines_of
from hbench.datasets.spec import Protocol, Publication, Spec, Splits, manifest_of

FILE = "list_eval_partition.txt"
HEADER = ["image_name", "item_id", "evaluation_status"]


def build(raw: Path) -> Splits:
    """Read image, product and partition (train, query or gallery) of each image from the list in
    the folder `raw`. The list starts with the number of images and a header line.

    A category is the gender and kind in the path of an image, such as MEN/Denim in
    img/MEN/Denim/id_00000080/01_1_front.jpg.
    """
    # the list may be in one of several places; without any, reading raw/FILE raises the error
    path = next((raw / marker for marker in SPEC.markers if (raw / marker).exists()), raw / FILE)
    lines = lines_of(path)
    # CelebA has a file of the same name, with another header; [1:2] is empty if there is no line 2
    if len(lines) < 2 or lines[1].split() != HEADER:
        raise DataError(
            f"{path} is not an In-shop list", expected=" ".join(HEADER), found=" ".join(lines[1:2])
        )

    rows = [line.split() for line in lines[2:]]
    if len(rows) != int(lines[0]):
        raise DataError(
            f"{path} is cut short", expected=f"{lines[0].strip()} images", found=f"{len(rows)}"
        )

    splits = {}
    for split, parts in (("train", {"train"}), ("test", {"query", "gallery"})):
        chosen = [row for row in rows if row[2] in parts]
        labelled = [
            (image, ("/".join(image.split("/")[1:3]), product)) for image, product, _ in chosen
        ]
        part_of = np.array([part for _, _, part in chosen])
        # by inequality, so that a training image, which is neither, is a query and in the gallery
        splits[split] = manifest_of(
            labelled, SPEC.levels, query=part_of != "gallery", gallery=part_of != "query"
        )

    return splits


PAPER = Publication(
    key="liu2016deepfashion",
    kind="inproceedings",
    title="DeepFashion: Powering Robust Clothes Recognition and Retrieval with Rich Annotations",
    authors=("Liu, Ziwei", "Luo, Ping", "Qiu, Shi", "Wang, Xiaogang", "Tang, Xiaoou"),
    venue="IEEE Conference on Computer Vision and Pattern Recognition (CVPR)",
    year=2016,
    cited=("Liu et al., DeepFashion",),
)
SPEC = Spec(
    name="inshop",
    title="DeepFashion In-shop Clothes Retrieval",
    levels=("category", "product"),
    build=build,
    markers=(FILE, f"Eval/{FILE}", f"Anno/{FILE}"),
    images=(".", "Img"),
    protocol=Protocol(recalls=(1, 10, 20, 30, 40, 50)),
    licence="non-commercial research, not redistributable",
    papers=(PAPER,),
    citation="Liu et al., DeepFashion: powering robust clothes recognition and retrieval, CVPR "
    "2016",
    homepage="http://mmlab.ie.cuhk.edu.hk/projects/DeepFashion.html",
    size="about 8 GB (256-pixel images)",
    counts={
        "train": {"images": 25_882, "product": 3_997},
        "test": {"queries": 14_218, "gallery": 12_612, "product": 3_985},
    },
    defects=(
        "papers disagree on the categories: with gender (23, here), or without, which is not a "
        "tree",
    ),
    manual=(
        "page:   http://mmlab.ie.cuhk.edu.hk/projects/DeepFashion.html, In-shop Clothes Retrieval "
        "Benchmark\n"
        "files:  Eval/list_eval_partition.txt; Img/img.zip (256 pixels) or img_highres.zip, whose "
        "password comes with a "
        "signed form\n"
        "layout: list_eval_partition.txt, img/WOMEN/…, img/MEN/…, the archive unpacked"
    ),
    layout="""\
Eval/list_eval_partition.txt      image_name item_id evaluation_status
Img/img/
  WOMEN/
    Dresses/
      id_00000002/
        02_1_front.jpg
  MEN/
    …""",
)
