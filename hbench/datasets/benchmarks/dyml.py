"""DyML: vehicles, animals and products, trained on three levels and tested on one level at a
time."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from hbench.datasets.copies import same_content
from hbench.datasets.manifest import Manifest
from hbench.datasets.raw_files import cells_of, rows_of
from hbench.datasets.spec import Protocol, Spec, Splits, manifest_of, queries_against

LEVELS = ("coarse", "middle", "fine")
TEST_LEVELS = ("class",)  # a test has one level, called so at each granularity
# The released files lack the line end after these headers, before the first image.
TRAIN_HEADER = "fname, coarse_id, middle_id, fine_id"
TEST_HEADER = "fname, labels"
PRODUCT = "mini-bmk_all_in_one"
NAMES = "names.csv"  # not part of the release: level, id, name
LAYOUT = """\
names.csv                            only if you have it: level, id, name; the release has none
train/
  label.csv                          fname, coarse_id, middle_id, fine_id
  imgs/
    0.jpg
"""


def images_with_names(
    raw: Path, table: str, folder: str, levels: Sequence[str] = LEVELS
) -> list[tuple[str, tuple[str, ...]]]:
    """Read the images of a folder from a table. Return the path and the classes at `levels` of
    each.

    The release has only numbers, so a class is called by level and number, such as "fine 12". If
    the user added names.csv, the name follows: "fine 12 sedan".

    Args:
        raw: the raw folder, in which `table` and `folder` are.
        table: a file with a row per image: its name, and the number of its class at each level.
        folder: the folder of the images.
        levels: all three levels, or the only level of a test, whose table has another header.
    """
    names = cells_of(raw / NAMES, "level", "id", "name") if (raw / NAMES).exists() else []
    # {(level, number): name of the class}; rows of names.csv without a name are level and number
    named = {
        (level, number): " ".join(filter(None, (level, number, name)))
        for level, number, name in names
    }
    header = TRAIN_HEADER if levels == LEVELS else TEST_HEADER
    images = []
    for file, *numbers in rows_of(raw / table, header=header, separator=","):
        numbered = zip(levels, numbers, strict=True)
        classes = tuple(
            named.get((level, number), f"{level} {number}") for level, number in numbered
        )
        images.append((f"{folder}/{file}", classes))
    return images


def benchmark(raw: Path, level: str) -> Manifest:
    """Make the test at one of the levels, which is called "class" in its manifest. The queries and
    the gallery each have a folder and a table in the folder `raw`.

    The gallery has copies of the queries, found by equal bytes. A query and its copy form an ignore
    group, since the query would otherwise find itself.
    """
    queries, gallery = (
        images_with_names(raw, f"{part}.csv", part, (level,))
        for part in (f"bmk_{level}/query", f"bmk_{level}/gallery")
    )
    manifest = queries_against(queries, gallery, TEST_LEVELS)
    # the number of each item's group of copies, -1 without a copy; None if there are no copies.
    # `images` would hold pictures that are not files, but all items are
    copies = same_content(raw, manifest.items.tolist(), images={})
    return dataclasses.replace(manifest, ignore=copies)


def build_benchmarks(raw: Path) -> Splits:
    """Read Vehicle or Animal from the folder `raw`: the training set, and a test per level. The
    tests have the names of the levels, fine to coarse as in the papers."""
    train = images_with_names(raw, "train/label.csv", "train/imgs")
    return {"train": train, **{level: benchmark(raw, level) for level in reversed(LEVELS)}}


def build_product(raw: Path) -> Splits:
    """Read Product from the folder `raw`: the training set, and one test set whose images have a
    label at each of the three levels. Each level makes a test, fine to coarse as in the papers.
    """
    images = images_with_names(raw, f"{PRODUCT}/label.csv", f"{PRODUCT}/imgs")
    tests = {}
    for number, level in reversed([*enumerate(LEVELS)]):
        # a path is the class at this level alone; the level is called "class" in each test
        at_level = [(item, (names[number],)) for item, names in images]
        tests[level] = manifest_of(at_level, TEST_LEVELS)
    # a split is a list of images with their names, or, where labels have other levels than those of
    # the dataset, a manifest
    return {"train": images_with_names(raw, "train/label.csv", "train/imgs"), **tests}


VEHICLE = Spec(
    name="dyml-vehicle",
    title="DyML-Vehicle",
    levels=LEVELS,
    build=build_benchmarks,
    markers=("bmk_fine",),
    protocol=Protocol(metrics=("AP", "ASI"), recalls=(1, 10, 20), averaged=True),
    citation="Sun et al., Dynamic metric learning, CVPR 2021",
    homepage="https://github.com/SupetZYK/DynamicMetricLearning",
    defects=(
        "classes have numbers, not names; if you know the names, list them in names.csv (level, "
        "id, name)",
        "the header of every csv has no line end: other loaders lose its first image",
        "papers and released settings disagree on the number of classes (Vehicle, Product): a "
        "build has to have those of one",
        "the images of the tests are counted in no file at hand, so that scores get no place among "
        "the papers'",
    ),
    # from the configurations that HAPPIER released, and from Table 1 of the paper
    disputed={
        "train": (
            {"fine": 39491, "middle": 93, "coarse": 5},
            {"fine": 36301, "middle": 89, "coarse": 5},
        )
    },
    manual=(
        "page:   OneDrive https://1drv.ms/u/s!AsLhhAJIX-_0asLHa5h-56ZZL94?e=KFLdmt, or Baidu "
        "1WJdELF8GdZqS7PkzsL9aRA, password d6nm\n"
        "files:  the folder of this dataset\n"
        "layout: train/{label.csv,imgs/}, "
        "bmk_{fine,middle,coarse}/{query.csv,gallery.csv,query/,gallery/}"
    ),
    layout=LAYOUT
    + """\
bmk_fine/                            bmk_middle/ and bmk_coarse/ alike
  query.csv                          fname, labels
  gallery.csv
  query/
    0.jpg
  gallery/
    0.jpg""",
)
ANIMAL = dataclasses.replace(
    VEHICLE,
    name="dyml-animal",
    title="DyML-Animal",
    counts={"train": {"fine": 495, "middle": 28, "coarse": 5}},
    disputed={},
)
PRODUCTS = dataclasses.replace(
    VEHICLE,
    name="dyml-product",
    title="DyML-Product",
    build=build_product,
    disputed={
        "train": (
            {"fine": 1639, "middle": 171, "coarse": 36},
            {"fine": 1609, "middle": 169, "coarse": 36},
        )
    },
    markers=(PRODUCT,),
    manual=VEHICLE.manual.split("bmk_")[0] + f"{PRODUCT}/{{label.csv,imgs/}}",
    layout=LAYOUT
    + f"""\
{PRODUCT}/
  label.csv                          fname, coarse_id, middle_id, fine_id
  imgs/
    0.jpg""",
)
