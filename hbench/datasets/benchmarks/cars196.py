"""Cars196: car models by body type; the first 98 models train, the others test."""

from __future__ import annotations

from pathlib import Path

from hbench.core.errors import DataError
from hbench.datasets.raw_files import shipped_rows
from hbench.datasets.spec import Protocol, Spec, Splits, split_by

TRAINING_CLASSES = 98


def build(raw: Path) -> Splits:
    """cars_annos.mat lists the images and their classes; its own flag `test` is of another, closed split.

    Body types and models are those of "Your Flamingo is My Bird" (MIT).
    """
    from scipy.io import loadmat
    from scipy.io.matlab import MatReadError

    path = raw / "cars_annos.mat"
    try:
        annotations = loadmat(path, squeeze_me=True)["annotations"]
        classes = [
            (str(item), int(number))
            for item, number in zip(annotations["relative_im_path"], annotations["class"], strict=True)
        ]
    except (MatReadError, ValueError, KeyError, TypeError) as error:
        raise DataError(
            f"{path} cannot be read", expected="annotations with relative_im_path and class", found=str(error)
        ) from None
    names = {int(row["class_id"]): (row["type"], row["class_name"]) for row in shipped_rows("cars196_types.csv")}
    training = {names[number] for number in names if number <= TRAINING_CLASSES}
    return split_by([(item, names[number]) for item, number in classes], trains=training.__contains__)


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
