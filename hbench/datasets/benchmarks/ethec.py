"""ETHEC: butterflies of the entomological collection of ETH Zürich, by family, subfamily, genus and species."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hbench.core.errors import DataError
from hbench.datasets import manifest as manifests
from hbench.datasets.dataset import Protocol
from hbench.datasets.raw_files import json_of
from hbench.datasets.spec import Spec, Splits, specs

IMAGES = "IMAGO_build_test_resized"
PARTS = ("train", "test")  # val.json is for choosing a model


def specimens(path: Path) -> dict[str, tuple[str, ...]]:
    """{image: its names}; an image that is listed several times counts once."""
    entries: Any = json_of(path)
    try:
        return {
            f"{IMAGES}/{each['image_path']}/{each['image_name']}": (
                each["family"],
                each["subfamily"],
                each["genus"],
                f"{each['genus']} {each['specific_epithet']}",
            )
            for each in entries.values()
        }
    except (KeyError, TypeError, AttributeError) as error:
        raise DataError(
            f"{path} is not a list of specimens", expected="image_path, image_name, family …", found=str(error)
        ) from None


def build(raw: Path) -> Splits:
    """splits/train.json and splits/test.json list the specimens; an image of both belongs to the training."""
    found = {part: specimens(raw / "splits" / f"{part}.json") for part in PARTS}
    own = {"train": found["train"]} | {"test": {k: v for k, v in found["test"].items() if k not in found["train"]}}
    return {
        part: manifests.from_names(list(images), list(images.values()), levels=SPEC.levels)
        for part, images in own.items()
    }


SPEC = Spec(
    name="ethec",
    title="ETHEC",
    levels=("family", "subfamily", "genus", "species"),
    build=build,
    markers=("splits/train.json",),
    protocol=Protocol(recalls=(1, 10, 100)),
    licence="not found; see its page",
    citation="Dhall et al., Hierarchical image classification using entailment cone embeddings, CVPR workshops 2020",
    homepage="https://www.research-collection.ethz.ch/handle/20.500.11850/365379",
    counts={
        "train": {"family": 6, "subfamily": 21, "genus": 135, "species": 561},
        "test": {"family": 6, "subfamily": 21},
    },
    defects=(
        "a closed set: the species of the test are those of the training",
        "its lists name some images several times, and some in two lists: each counts once, in the first",
        "counts of classes are those of the lists of version 0.1; the archive is version 0.2",
    ),
    layout="""\
ETHEC_dataset/
  splits/
    train.json                     {TOKEN: {image_path, image_name, family, subfamily, genus, specific_epithet, …}}
    val.json
    test.json
  IMAGO_build_test_resized/
    IMAGE_PATH/
      IMAGE_NAME.JPG""",
)
specs.register(SPEC.name)(SPEC)
