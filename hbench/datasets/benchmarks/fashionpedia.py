"""Fashionpedia: garments, cut out of photographs by their boxes; by kind, category and nickname."""

from collections.abc import Iterator
from pathlib import Path

from PIL import Image

from hbench.datasets.pictures import open_picture
from hbench.datasets.raw_files import json_of
from hbench.datasets.spec import Protocol, Publication, RemoteFile, Spec, Splits, mended

FILES = {
    "train": "instances_attributes_train2020.json",
    "test": "instances_attributes_val2020.json",
}
PARTS = {
    "garment parts",
    "closures",
    "decorations",
}  # super-categories of parts of a garment, which are left out


def garments(path: Path, folder: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield each garment as an item with its two or three names: kind, category and, if it has
    one, its first nickname.

    An item is an image and the box of the garment in it, in pixels:
    FOLDER/IMAGE.jpg@x,y,width,height.

    Args:
        path: an annotation file in COCO's format.
        folder: the folder of the images.
    """
    with json_of(path, "an annotation file of Fashionpedia") as content:
        files = {image["id"]: image["file_name"] for image in content["images"]}
        kinds = {
            entry["id"]: (entry["supercategory"], entry["name"]) for entry in content["categories"]
        }
        nicknames = {
            entry["id"]: entry["name"]
            for entry in content["attributes"]
            if entry["supercategory"] == "nickname"
        }

        for box in content["annotations"]:
            kind, category = kinds[box["category_id"]]
            if kind in PARTS:  # a sleeve or a zip is not a garment
                continue
            # sorted by number, so that the first nickname does not depend on the order in the file
            of_garment = [
                nicknames[number] for number in sorted(box["attribute_ids"]) if number in nicknames
            ]
            edges = ",".join(str(round(edge)) for edge in box["bbox"])  # x,y,width,height
            item = f"{folder}/{files[box['image_id']]}@{edges}"
            yield item, (kind, category, *of_garment[:1])


def build(raw: Path) -> Splits:
    """Make a tree of kinds, categories and nicknames from the annotations in the folder `raw`.

    A nickname that belongs to several categories becomes a node under each of them ("by-path"),
    since a node of a tree has one parent. A garment without a nickname repeats its category
    ("repeat-leaf"), since each path needs all three levels. The names of the two splits are mended
    together, so that a class has the same name in each.

    The folders of the images are called like the splits: the archive of validation and test images
    unpacks to test/.
    """
    rows: dict[str, tuple[str, ...]] = {}  # by item
    for split, file in FILES.items():
        # users have the annotation files in the folder annotations/, or directly in the raw folder
        below = raw / "annotations" / file
        rows |= dict(garments(below if below.exists() else raw / file, folder=split))
    final = mended(rows, SPEC.levels, "repeat-leaf", "by-path").items()  # (item, path)
    splits = {}
    for split in FILES:  # an item is below the folder that is called like its split
        folder = f"{split}/"
        splits[split] = [(item, row) for item, row in final if item.startswith(folder)]
    return splits


def picture(root: Path, item: str) -> Image.Image:
    """Cut a garment out of its photograph below the folder `root`. An item is the photograph and
    the box of the garment in pixels (x, y, width, height), such as "train/a.jpg@10,20,300,400".
    """
    file, _, box = item.rpartition("@")
    x, y, width, height = map(int, box.split(","))
    # a side of less than half a pixel was rounded to 0, but an image has at least one pixel
    return open_picture(root, file).crop((x, y, x + max(width, 1), y + max(height, 1)))


SOURCES = (
    RemoteFile(
        file="instances_attributes_train2020.json",
        urls=(
            "https://s3.amazonaws.com/ifashionist-dataset/annotations/instances_attributes_train2020.json",
        ),
        part="metadata",
    ),
    RemoteFile(
        file="instances_attributes_val2020.json",
        urls=(
            "https://s3.amazonaws.com/ifashionist-dataset/annotations/instances_attributes_val2020.json",
        ),
        part="metadata",
    ),
    RemoteFile(
        file="train2020.zip",
        urls=("https://s3.amazonaws.com/ifashionist-dataset/images/train2020.zip",),
        unpack=".",
    ),
    RemoteFile(
        file="val_test2020.zip",
        urls=("https://s3.amazonaws.com/ifashionist-dataset/images/val_test2020.zip",),
        unpack=".",
    ),
)
PAPER = Publication(
    key="jia2020fashionpedia",
    kind="inproceedings",
    title="Fashionpedia: Ontology, Segmentation, and an Attribute Localization Dataset",
    authors=(
        "Jia, Menglin",
        "Shi, Mengyun",
        "Sirotenko, Mikhail",
        "Cui, Yin",
        "Cardie, Claire",
        "Hariharan, Bharath",
        "Adam, Hartwig",
        "Belongie, Serge",
    ),
    venue="European Conference on Computer Vision (ECCV)",
    year=2020,
    arxiv="2004.12276",
    cited=("Fashionpedia",),
)
SPEC = Spec(
    name="fashionpedia",
    title="Fashionpedia",
    levels=("kind", "category", "nickname"),
    build=build,
    picture=picture,
    on_disk=False,
    markers=(FILES["train"], f"annotations/{FILES['train']}"),
    protocol=Protocol(recalls=(1, 10, 100)),
    licence="annotations CC BY 4.0; images as Flickr, Unsplash, Pexels … license them",
    files=SOURCES,
    papers=(PAPER,),
    citation="Jia et al., Fashionpedia: ontology, segmentation, and an attribute localization "
    "dataset, ECCV 2020",
    homepage="https://github.com/cvdfoundation/fashionpedia",
    counts={"train": {"category": 27}},
    defects=(
        "made for segmentation: the items here are the boxes of whole garments (27 categories), "
        "the parts of garments (19) "
        "are left out, the official validation set is the test, and its classes are those of the "
        "training",
        "its 294 attributes do not form a tree: of these, the first nickname of a garment is its "
        "class; a nickname under "
        "several categories is a class in each",
    ),
    layout="""\
instances_attributes_train2020.json      images, categories, attributes, annotations
instances_attributes_val2020.json
train/
  IMAGE.jpg
test/                                    validation and test images together
  IMAGE.jpg""",
)
