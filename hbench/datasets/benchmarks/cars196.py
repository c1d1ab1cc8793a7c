"""Cars196: car models by body type; the first 98 models train, the others test."""

from __future__ import annotations

import csv
from importlib import resources
from pathlib import Path

from hbench.core.errors import DataError
from hbench.datasets import manifest as manifests
from hbench.datasets.dataset import Protocol
from hbench.datasets.spec import Spec, Splits, specs

TRAINING_CLASSES = 98


def types() -> dict[int, tuple[str, str]]:
    """Body type and model of each class, after "Your Flamingo is My Bird" (MIT)."""
    text = resources.files("hbench.datasets.benchmarks").joinpath("cars196_types.csv").read_text(encoding="utf-8")
    return {int(row["class_id"]): (row["type"], row["class_name"]) for row in csv.DictReader(text.splitlines())}


def build(raw: Path) -> Splits:
    """cars_annos.mat lists the images and their classes; its own flag `test` is of another, closed split."""
    from scipy.io import loadmat
    from scipy.io.matlab import MatReadError

    path = raw / "cars_annos.mat"
    try:
        annotations = loadmat(path, squeeze_me=True)["annotations"]
        rows = [
            (str(item), int(number))
            for item, number in zip(annotations["relative_im_path"], annotations["class"], strict=True)
        ]
    except (MatReadError, ValueError, KeyError, TypeError) as error:
        raise DataError(
            f"{path} cannot be read", expected="annotations with relative_im_path and class", found=str(error)
        ) from None
    of_class = types()
    splits = {}
    for split in ("train", "test"):
        own = [(item, number) for item, number in rows if (number <= TRAINING_CLASSES) == (split == "train")]
        names = [of_class[number] for _, number in own]
        splits[split] = manifests.from_names([item for item, _ in own], names, levels=SPEC.levels)
    return splits


SPEC = Spec(
    name="cars196",
    title="Stanford Cars (Cars196)",
    levels=("body_type", "model"),
    build=build,
    markers=("cars_annos.mat",),
    protocol=Protocol(recalls=(1, 2, 4, 8)),
    licence="research only, not redistributable; body types: MIT",
    citation="Krause et al., 3D object representations for fine-grained categorization, 3dRR 2013",
    homepage="http://ai.stanford.edu/~jkrause/cars/car_dataset.html",
    size="1.9 GB",
    counts={
        "train": {"images": 8_054, "model": 98, "body_type": 9},
        "test": {"images": 8_131, "model": 98, "body_type": 9},
    },
    defects=("the original host is gone: take car_ims.tgz and cars_annos.mat from a mirror, then --mirror or --adopt",),
    layout="""\
cars_annos.mat         annotations: relative_im_path, class, …; class_names
car_ims/
  000001.jpg""",
)
specs.register(SPEC.name)(SPEC)
