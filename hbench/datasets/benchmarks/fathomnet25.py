"""FathomNet 2025: animals of the deep sea, cut out of their pictures, and named as exactly as
experts could.
"""

from pathlib import Path

from hbench.core.errors import DataError, examples
from hbench.datasets.raw_files import cells_of, json_of
from hbench.datasets.spec import (
    PARTIAL,
    RANKS,
    Protocol,
    Publication,
    Spec,
    Splits,
    held_out,
    mended,
    split_by,
)

ANNOTATIONS = "dataset_train.json"
TAXONOMY = "taxonomy.csv"


def build(raw: Path) -> Splits:
    """Split the official training file in the folder `raw`, since the classes of the official test
    are not published. Half of the categories, chosen by a hash of their names, are for testing, the
    others for training.

    taxonomy.csv, which the user makes, has the ranks of each category. If a category is named at a
    higher rank than species, its path is unknown below that rank (policies PARTIAL).
    """
    with json_of(raw / ANNOTATIONS, "in COCO's form") as annotated:
        names = {category["id"]: category["name"] for category in annotated["categories"]}
        # the competition's download.py cuts each box out and stores it as IMAGE_BOX.png
        animals = [
            (f"{box['image_id']}_{box['id']}.png", names[box["category_id"]])
            for box in annotated["annotations"]
        ]

    rows = {name: tuple(ranks) for name, *ranks in cells_of(raw / TAXONOMY, "name", *RANKS)}
    if lost := sorted(set(names.values()) - set(rows)):
        raise DataError(
            f"categories of {raw / ANNOTATIONS} are not in {TAXONOMY}", found=examples(lost)
        )

    # {category: path}
    path_of = mended({name: rows[name] for name in names.values()}, RANKS, *PARTIAL)
    test = {path_of[name] for name in held_out(names.values(), fraction=0.5, seed=0)}
    labelled = [(item, path_of[name]) for item, name in animals]
    return split_by(labelled, trains=lambda path: path not in test)


PAPER = Publication(
    key="katija2022fathomnet",
    kind="article",
    title="FathomNet: A Global Image Database for Enabling Artificial Intelligence in the Ocean",
    authors=(
        "Katija, Kakani",
        "Orenstein, Eric",
        "Schlining, Brian",
        "Lundsten, Lonny",
        "Barnard, Kevin",
        "Sainz, Giovanna",
        "Boulais, Oceane",
        "Cromwell, Megan",
        "Butler, Erin",
        "Woodward, Benjamin",
        "Bell, Katherine L. C.",
    ),
    venue="Scientific Reports",
    year=2022,
    volume="12",
    pages="15914",
    cited=("Katija et al.",),
)
SPEC = Spec(
    name="fathomnet-2025",
    title="FathomNet 2025 (FGVC12)",
    levels=RANKS,
    build=build,
    markers=(ANNOTATIONS,),
    images=("rois", "train/rois"),
    protocol=Protocol(recalls=(1, 5, 10)),
    licence="annotations CC BY-ND 4.0; images CC BY-NC-ND 4.0, training and development of models "
    "allowed",
    papers=(PAPER,),
    citation="Katija et al., FathomNet: a global image database for enabling artificial "
    "intelligence in the ocean, "
    "Scientific Reports 2022",
    homepage="https://github.com/fathomnet/fgvc-comp-2025",
    counts={"train": {"images": 39 * 300}, "test": {"images": 40 * 300}},
    defects=(
        "the classes of the competition's own test are not published: half of the 79 categories, "
        "by a hash of their "
        "names, are the test here",
        "categories are of any rank, and a category may lie below another: what ends early has "
        "partial labels",
    ),
    manual=(
        "page:   https://www.kaggle.com/competitions/fathomnet-2025 (a login), images by its "
        "download.py\n"
        "files:  dataset_train.json; rois/, which download.py cuts out; taxonomy.csv, which you "
        "make: the columns name, "
        "kingdom, phylum, class, order, family, genus, species, a row for each of the 79 "
        "categories, the ranks below its "
        "own empty (fathomnet.api.worms.get_ancestors(name) of the package fathomnet gives them)\n"
        "layout: the three side by side"
    ),
    layout="""\
dataset_train.json             COCO: images, annotations (300 of each category), 79 categories
taxonomy.csv                   name, kingdom, phylum, class, order, family, genus, species
rois/
  IMAGE_ANNOTATION.png         the animals, cut out
images/
  IMAGE.png                    whole pictures, not needed""",
)
