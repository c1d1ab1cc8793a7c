"""ETHEC: butterflies of the entomological collection of ETH Zürich, by family, subfamily, genus and
species.
"""

from pathlib import Path

from hbench.datasets.raw_files import json_of
from hbench.datasets.spec import Protocol, Publication, RemoteFile, Spec, Splits


def specimens(path: Path) -> dict[str, tuple[str, ...]]:
    """Read {image: names, coarse to fine} from the list of specimens at `path`, a JSON file of
    {token: specimen}. If an image is listed several times, its last entry counts.
    """
    with json_of(
        path, "a list of specimens", expected="image_path, image_name, family …"
    ) as entries:
        found = {}
        for entry in entries.values():
            image = f"IMAGO_build_test_resized/{entry['image_path']}/{entry['image_name']}"
            # the file has only the second word of a species' name, the epithet: the name is made
            # of genus and epithet
            above = (entry[level] for level in SPEC.levels[:-1])
            found[image] = (*above, f"{entry['genus']} {entry['specific_epithet']}")
        return found


def build(raw: Path) -> Splits:
    """Read splits/train.json and splits/test.json in the folder `raw`. An image in both is left out
    of the test, since a model must not be tested on its training images.

    splits/val.json, which is meant for choosing a model, is not used.
    """
    train, test = (specimens(raw / "splits" / f"{part}.json") for part in ("train", "test"))
    return {
        "train": train.items(),
        "test": [(image, names) for image, names in test.items() if image not in train],
    }


FILES = (
    RemoteFile(
        file="ETHEC_dataset_v0.2.zip",
        urls=(
            "https://www.research-collection.ethz.ch/bitstream/handle/20.500.11850/365379/ETHEC_dataset_v0.2.zip?sequence=6&isAllowed=y",
        ),
        md5="d846bc07b0a356d5701bf19942c77b2d",
        unpack=".",
    ),
)
PAPER = Publication(
    key="dhall2020ethec",
    kind="inproceedings",
    title="Hierarchical Image Classification using Entailment Cone Embeddings",
    authors=(
        "Dhall, Ankit",
        "Makarova, Anastasia",
        "Ganea, Octavian",
        "Pavllo, Dario",
        "Greeff, Michael",
        "Krause, Andreas",
    ),
    venue="IEEE/CVF Conference on Computer Vision and Pattern Recognition (CVPR) Workshops",
    year=2020,
    arxiv="2004.03459",
    cited=("Entailment cone embeddings",),
)
SPEC = Spec(
    name="ethec",
    title="ETHEC",
    levels=("family", "subfamily", "genus", "species"),
    build=build,
    markers=("splits/train.json",),
    protocol=Protocol(recalls=(1, 10, 100)),
    licence="not found; see its page",
    files=FILES,
    papers=(PAPER,),
    citation="Dhall et al., Hierarchical image classification using entailment cone embeddings, "
    "CVPR workshops 2020",
    homepage="https://www.research-collection.ethz.ch/handle/20.500.11850/365379",
    counts={
        "train": {"family": 6, "subfamily": 21, "genus": 135, "species": 561},
        "test": {"family": 6, "subfamily": 21},
    },
    defects=(
        "a closed set: the species of the test are those of the training",
        "its lists name some images several times, and some in two lists: each counts once, in the "
        "first",
        "counts of classes are those of the lists of version 0.1; the archive is version 0.2",
    ),
    layout="""\
ETHEC_dataset/
  splits/
    train.json                     {TOKEN: {image_path, image_name, family, subfamily, genus, …}}
    val.json
    test.json
  IMAGO_build_test_resized/
    IMAGE_PATH/
      IMAGE_NAME.JPG""",
)
