"""Grocery Store: phone photographs of fruit, vegetables and cartons in shops, with a clean picture
and a description of each product.

The labels are read from the lists, since the folders below a split are two or three deep
(Fruit/Avocado/, Fruit/Apple/Pink-Lady/), and one class is at different depths in different splits.
"""

import dataclasses
from collections.abc import Callable
from pathlib import Path, PurePosixPath

from hbench.core.errors import DataError
from hbench.datasets.raw_files import rows_of
from hbench.datasets.spec import Publication, RemoteFile, Spec, Splits, queries_against, split_by
from hbench.sheets.rows import Row

LEVELS = ("group", "coarse", "fine")
CLASSES = "classes.csv"
HEADER = (
    "Class Name (str),Class ID (int),Coarse Class Name (str),Coarse Class ID (int),"
    "Iconic Image Path (str),Product Description Path (str)"
)
LISTS = ("train", "val", "test")
# columns of classes.csv, counted in HEADER from 0
ICONIC = 4  # the clean picture of a class
DESCRIPTION = 5  # its description
# The half of the coarse classes on which the open set tests: the result of
# held_out(classes, fraction=0.5, seed=0).
UNSEEN = frozenset({
    "Asparagus", "Aubergine", "Cucumber", "Garlic", "Juice", "Kiwi", "Leek", "Lime", "Mango",
    "Nectarine", "Oat-Milk", "Oatghurt", "Passion-Fruit", "Pepper", "Plum", "Pomegranate", "Potato",
    "Red-Beet", "Red-Grapefruit", "Sour-Milk", "Soyghurt", "Tomato",
})  # fmt: skip


def build(raw: Path) -> Splits:
    """Read the authors' training and test set from the folder `raw`. Their validation set, which
    has only 60 of the 81 classes, is not used."""
    names = _names(_classes(raw))
    return {split: _photographs(raw, split, names) for split in ("train", "test")}


def build_open(raw: Path) -> Splits:
    """Split the photographs of the authors' three lists by coarse class: the classes in UNSEEN are
    for testing, the others for training, so that the two share no class."""
    names = _names(_classes(raw))
    everything = [pair for split in LISTS for pair in _photographs(raw, split, names)]
    return split_by(everything, trains=lambda row: row[LEVELS.index("coarse")] not in UNSEEN)


def asked_by(column: int) -> Callable[[Path], Splits]:
    """Return a `build` function for a test whose gallery is the photographs of the authors' test.
    The queries are the files in a column of classes.csv, ICONIC or DESCRIPTION."""

    def build_across(raw: Path) -> Splits:
        """Read the authors' split from the folder `raw`. Its test goes across kinds of files: the
        queries are the files in `column` of classes.csv, one per class, the gallery photographs."""
        classes = _classes(raw)
        names = _names(classes)  # (group, coarse class, fine class) of each fine class
        queries = [
            # paths in classes.csv begin with "/", items are relative to the folder
            (row[column].removeprefix("/"), names[number])
            for number, row in enumerate(classes)  # row n is class n
        ]
        gallery = _photographs(raw, "test", names)
        return {
            "train": _photographs(raw, "train", names),
            "test": queries_against(queries, gallery, LEVELS),
        }

    return build_across


def _classes(raw: Path) -> list[list[str]]:
    """Read the rows of classes.csv in the folder `raw`, with the columns of HEADER. Raises
    DataError unless row n is class n: the lists of photographs give the number of a class."""
    path = raw / CLASSES
    rows = rows_of(path, header=HEADER, separator=",")
    for number, row in enumerate(rows):
        name, id_in_file = row[:2]
        if id_in_file != str(number):
            raise DataError(
                f"{path} does not number its classes in order",
                expected=f"class {number}",
                found=f"{name}, {id_in_file}",
            )
    return rows


def _names(classes: list[list[str]]) -> list[Row]:
    """Return (group, coarse class, fine class) for each row of classes.csv.

    The file has no column of groups. The group is the third part of the path of the clean picture,
    such as ("/", "iconic-images-and-descriptions", "Fruit", …)."""
    return [(PurePosixPath(row[ICONIC]).parts[2], row[2], row[0]) for row in classes]


def _photographs(raw: Path, split: str, names: list[Row]) -> list[tuple[str, Row]]:
    """Read the photographs in the list of a split ("train", "val" or "test"), each with its names.
    `names`: those of each fine class, by its number."""
    path = raw / f"{split}.txt"
    found = []
    # a row is an image, the number of its fine class, and that of its coarse class
    for item, fine, _ in rows_of(path, columns=3, separator=","):
        if not fine.isdecimal() or int(fine) >= len(names):
            raise DataError(
                f"{path} has an unknown class",
                expected=f"a number below {len(names)}, as in {CLASSES}",
                found=f"{item}, {fine}",
            )
        found.append((item, names[int(fine)]))
    return found


COMMIT = "fc80ba90f803d79d0383df52c5a4ac5de99ff6fc"
FILES = (
    RemoteFile(
        file="GroceryStoreDataset.zip",
        urls=(f"https://github.com/marcusklasson/GroceryStoreDataset/archive/{COMMIT}.zip",),
        unpack=".",
        most=200_000_000,
    ),
)
PAPER = Publication(
    key="klasson2019hierarchical",
    kind="inproceedings",
    title="A Hierarchical Grocery Store Image Dataset with Visual and Semantic Labels",
    authors=("Klasson, Marcus", "Zhang, Cheng", "Kjellström, Hedvig"),
    venue="IEEE Winter Conference on Applications of Computer Vision (WACV)",
    year=2019,
    arxiv="1901.00711",
    cited=("Klasson et al.", "A hierarchical grocery store image dataset"),
)
COUNTS = {"group": 3, "coarse": 43, "fine": 81}
# counts of the authors' training photographs: the training set of all datasets but the open one
TRAIN_COUNTS = {"images": 2_640, **COUNTS}
TRAIN_DIGEST = "91773d78bc72bb66f39b814c52de6e3c78d0513ec561145111529cde2eaa8801"
DEFECTS = (
    "classes.csv has 43 coarse classes, the README and the paper 42",
    "the README counts 5,125 photographs, from before the validation set, and 292 of 59 classes in "
    "that; the lists have 5,421, of which 296 of 60 classes",
    "its folders have two or three depths, and Brown-Cap-Mushroom lies at one in the training and "
    "at another in the test: labels are read from the lists",
    "GitHub makes the archive when it is asked for, so that its bytes have no published checksum, "
    "and an interrupted download may begin again; the labels are compared by their digest",
)
SPEC = Spec(
    name="grocery",
    title="Grocery Store",
    levels=LEVELS,
    build=build,
    markers=("iconic-images-and-descriptions",),
    licence="MIT",
    files=FILES,
    papers=(PAPER,),
    citation="Klasson et al., A hierarchical grocery store image dataset with visual and semantic "
    "labels, WACV 2019",
    homepage="https://github.com/marcusklasson/GroceryStoreDataset",
    size="123 MB",
    counts={"train": TRAIN_COUNTS, "test": {"images": 2_485, **COUNTS}},
    digests={
        "train": TRAIN_DIGEST,
        "test": "0a118dd6ee45f9e9d7e4f9ed62844577239058d39b7d6a49138a6244b5b8771b",
    },
    defects=("a closed set: the classes of the test are those of the training", *DEFECTS),
    layout="""\
GroceryStoreDataset-…/dataset/
  classes.csv                                      name, number, coarse name, coarse number, …
  train.txt                                        PATH, fine number, coarse number
  val.txt
  test.txt
  train/
    Fruit/
      Avocado/
        Avocado_001.jpg
      Apple/
        Pink-Lady/
          Pink-Lady_001.jpg
    Packages/
    Vegetables/
  val/                                             alike
  test/
  iconic-images-and-descriptions/
    Fruit/
      Avocado/
        Avocado_Iconic.jpg
        Avocado_Description.txt""",
)
OPEN_SPEC = dataclasses.replace(
    SPEC,
    name="grocery-open",
    title="Grocery Store, tested on coarse classes that do not train",
    build=build_open,
    raw_name="grocery",
    counts={
        "train": {"images": 3_193, "group": 3, "coarse": 21, "fine": 42},
        "test": {"images": 2_228, "group": 3, "coarse": 22, "fine": 39},
    },
    digests={
        "train": "f03775d16d4b2f254513b440eb9259832d136e7fc97c1b075e2b2e210ad2597c",
        "test": "2f7ead3379dc270d7829aff2db3c22d32aa5b44d468a159a8fdd2e2074ad5243",
    },
    defects=(
        "hbench's own split: half of the coarse classes test, with the photographs of all three "
        "lists",
        *DEFECTS,
    ),
)
ICONIC_SPEC = dataclasses.replace(
    SPEC,
    name="grocery-iconic",
    title="Grocery Store, clean product pictures as queries",
    build=asked_by(ICONIC),
    raw_name="grocery",
    counts={"train": TRAIN_COUNTS, "test": {"queries": 81, "gallery": 2_485, **COUNTS}},
    digests={
        "train": TRAIN_DIGEST,
        "test": "651040edc3a9ac7503ae640f9c3edfee45934f4d544670af9002cd4b4faa9375",
    },
    defects=(
        "hbench's own test: 81 clean pictures ask for the photographs of the authors' test",
        *DEFECTS,
    ),
)
DESCRIPTION_SPEC = dataclasses.replace(
    ICONIC_SPEC,
    name="grocery-description",
    title="Grocery Store, product descriptions as queries",
    build=asked_by(DESCRIPTION),
    on_disk=False,
    digests={
        "train": TRAIN_DIGEST,
        "test": "c535008cb8d00c2b5d59688bd3f56b5c32fa808aebcdb17e593a217600e32be4",
    },
    defects=(
        "hbench's own test: 81 descriptions ask for the photographs of the authors' test",
        "a query is a text file, which `hbench embed` does not open: embed it by a model of texts",
        *DEFECTS,
    ),
)
