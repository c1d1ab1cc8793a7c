"""FGVC-Aircraft: aircraft by variant, family and manufacturer; the first half of the variants
trains, the rest tests.
"""

from operator import itemgetter
from pathlib import Path

from hbench.core.errors import DataError
from hbench.datasets.raw_files import lines_of, rows_of
from hbench.datasets.spec import Protocol, Publication, RemoteFile, Spec, Splits, split_by


def build(raw: Path) -> Splits:
    """Read the names of each image from the files images_LEVEL_PART.txt in the folder `raw`, and
    split the images by variant: the first half of variants.txt is for training, the rest for
    testing.

    The authors' parts trainval and test have the same variants (a closed set), so all of their
    images are put together before the split.
    """
    of_image: dict[str, dict[str, str]] = {}  # {image id: {level: name}}
    for level in SPEC.levels:
        for part in ("trainval", "test"):
            for image, name in rows_of(raw / f"images_{level}_{part}.txt", columns=2):
                of_image.setdefault(image, {})[level] = name

    if short := [image for image, names in of_image.items() if len(names) != len(SPEC.levels)]:
        raise DataError(
            f"{raw} has images without a name at some level", found=", ".join(short[:5])
        )

    variants = lines_of(raw / "variants.txt")
    # papers on metric learning train on the first half of the classes
    training = {name.strip() for name in variants[: len(variants) // 2]}
    in_order = itemgetter(*SPEC.levels)  # from {level: name} to the names, coarse to fine
    labelled = [(f"images/{image}.jpg", in_order(names)) for image, names in of_image.items()]

    # the last name of a row is that of the finest level, the variant
    return split_by(labelled, trains=lambda names: names[-1] in training)


FILES = (
    RemoteFile(
        file="fgvc-aircraft-2013b.tar.gz",
        urls=(
            "https://www.robots.ox.ac.uk/~vgg/data/fgvc-aircraft/archives/fgvc-aircraft-2013b.tar.gz",
        ),
        size=2770575360,
        unpack=".",
    ),
)
PAPER = Publication(
    key="maji2013aircraft",
    kind="misc",
    title="Fine-Grained Visual Classification of Aircraft",
    authors=(
        "Maji, Subhransu",
        "Rahtu, Esa",
        "Kannala, Juho",
        "Blaschko, Matthew",
        "Vedaldi, Andrea",
    ),
    year=2013,
    arxiv="1306.5151",
    cited=("Maji et al.",),
)
SPEC = Spec(
    name="fgvc-aircraft",
    title="FGVC-Aircraft",
    levels=("manufacturer", "family", "variant"),
    build=build,
    markers=("images_variant_trainval.txt",),
    protocol=Protocol(recalls=(1, 2, 4, 8)),
    licence="non-commercial research",
    files=FILES,
    papers=(PAPER,),
    citation="Maji et al., Fine-grained visual classification of aircraft, 2013",
    homepage="https://www.robots.ox.ac.uk/~vgg/data/fgvc-aircraft/",
    size="2.6 GB",
    counts={
        "train": {"variant": 50, "family": 27, "manufacturer": 10},
        "test": {"variant": 50, "family": 43, "manufacturer": 25},
    },
    layout="""\
fgvc-aircraft-2013b/data/
  variants.txt                            one in a line; the first half trains
  images_manufacturer_trainval.txt        IMAGE NAME
  images_manufacturer_test.txt
  images_family_trainval.txt              the other levels alike
  images_variant_trainval.txt
  images/
    IMAGE.jpg""",
)
