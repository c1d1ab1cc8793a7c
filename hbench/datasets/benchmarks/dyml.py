"""DyML: vehicles, animals and products, trained on three levels and tested on one level at a time."""

import dataclasses
from collections.abc import Callable
from pathlib import Path

from hbench.datasets.copies import same_content
from hbench.datasets.manifest import Manifest
from hbench.datasets.spec import Protocol, Spec, Splits, cells_of, manifest_of, queries_against, rows_of

LEVELS = ("coarse", "middle", "fine")
TEST_LEVELS = ("class",)  # of a test of any granularity
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


def class_namer(raw: Path) -> Callable[[str, str], str]:
    """Return a function that names a class by level and number: "fine 12", with its name in names.csv, if that exists."""
    path = raw / NAMES
    rows = cells_of(path, "level", "id", "name") if path.exists() else []
    known = {(level, number): name for level, number, name in rows}
    return lambda level, number: " ".join(filter(None, (level, number, known.get((level, number)))))


def labelled(raw: Path, folder: str) -> list[tuple[str, tuple[str, ...]]]:
    """Read the images of a folder with their names at three levels from its label.csv."""
    name = class_namer(raw)
    return [
        (f"{folder}/imgs/{file}", tuple(map(name, LEVELS, labels)))
        for file, *labels in rows_of(raw / folder / "label.csv", header=TRAIN_HEADER, separator=",")
    ]


def benchmark(raw: Path, level: str) -> Manifest:
    """Make the test at one level; its gallery holds copies of the queries, which are left out of those queries' lists."""
    name = class_namer(raw)
    queries, gallery = (
        [
            (f"bmk_{level}/{part}/{file}", (name(level, label),))
            for file, label in rows_of(raw / f"bmk_{level}" / f"{part}.csv", header=TEST_HEADER, separator=",")
        ]
        for part in ("query", "gallery")
    )
    manifest = queries_against(queries, gallery, TEST_LEVELS)
    return dataclasses.replace(manifest, ignore=same_content(raw, manifest.items.tolist(), {}))


def build_benchmarks(raw: Path) -> Splits:
    """Read Vehicle or Animal: train/label.csv, and a query and a gallery folder per level."""
    return {"train": labelled(raw, "train"), **{level: benchmark(raw, level) for level in reversed(LEVELS)}}


def build_product(raw: Path) -> Splits:
    """Read Product: train/label.csv, and a test set with three labels per image, of which each makes a test."""
    images = labelled(raw, PRODUCT)
    tests = {
        level: manifest_of([(item, (names[LEVELS.index(level)],)) for item, names in images], TEST_LEVELS)
        for level in reversed(LEVELS)
    }
    return {"train": labelled(raw, "train"), **tests}


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
        "classes have numbers, not names; if you know the names, list them in names.csv (level, id, name)",
        "the header of every csv has no line end: other loaders lose its first image",
        "papers and released settings disagree on the number of classes (Vehicle, Product), so they are not checked",
    ),
    manual=(
        "page:   OneDrive https://1drv.ms/u/s!AsLhhAJIX-_0asLHa5h-56ZZL94?e=KFLdmt, or Baidu "
        "1WJdELF8GdZqS7PkzsL9aRA, password d6nm\n"
        "files:  the folder of this dataset\n"
        "layout: train/{label.csv,imgs/}, bmk_{fine,middle,coarse}/{query.csv,gallery.csv,query/,gallery/}"
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
)
PRODUCTS = dataclasses.replace(
    VEHICLE,
    name="dyml-product",
    title="DyML-Product",
    build=build_product,
    markers=(PRODUCT,),
    manual=VEHICLE.manual.split("bmk_")[0] + f"{PRODUCT}/{{label.csv,imgs/}}",
    layout=LAYOUT
    + f"""\
{PRODUCT}/
  label.csv                          fname, coarse_id, middle_id, fine_id
  imgs/
    0.jpg""",
)
