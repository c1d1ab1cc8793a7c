"""Cars196: car models by body type; the first 98 models train, the others test."""

from pathlib import Path

from hbench.datasets.raw_files import refuse_unless, shipped_rows
from hbench.datasets.spec import Protocol, Publication, RemoteFile, Spec, Splits, split_by

TRAINING_CLASSES = 98  # of 196, which are numbered from 1


def build(raw: Path) -> Splits:
    """Read the images and their classes from cars_annos.mat in the folder `raw`, and split them by
    class: the numbers up to TRAINING_CLASSES are for training, as in papers on metric learning.

    The file's own flag `test` is not used, since it belongs to a closed split, where all classes
    are in the training set. The names of body types and models come from the table of "Your
    Flamingo is My Bird" (MIT), which hbench ships.
    """
    # slow to import, and only needed to build
    from scipy.io import loadmat
    from scipy.io.matlab import MatReadError

    # {number of a class: (body type, model)}
    names = {
        int(row["class_id"]): (row["type"], row["class_name"])
        for row in shipped_rows("cars196_types.csv")
    }
    path = raw / "cars_annos.mat"
    with refuse_unless(
        path, "a list of cars", expected="annotations with relative_im_path and class"
    ):
        try:
            # squeeze_me: plain values in place of MATLAB's arrays of shape (1, 1)
            annotations = loadmat(path, squeeze_me=True)["annotations"]
        except MatReadError as error:  # as a ValueError, which refuse_unless makes a DataError
            raise ValueError(str(error)) from None
        pairs = zip(annotations["relative_im_path"], annotations["class"], strict=True)
        labelled = [(str(item), names[int(number)]) for item, number in pairs]
    training = {names[number] for number in names if number <= TRAINING_CLASSES}
    return split_by(labelled, trains=lambda row: row in training)


FILES = (
    RemoteFile(
        file="cars_annos.mat",
        urls=(
            "http://ai.stanford.edu/~jkrause/car196/cars_annos.mat",
            "http://imagenet.stanford.edu/internal/car196/cars_annos.mat",
        ),
        md5="b407c6086d669747186bd1d764ff9dbc",
        part="metadata",
    ),
    RemoteFile(
        file="car_ims.tgz",
        urls=(
            "http://ai.stanford.edu/~jkrause/car196/car_ims.tgz",
            "http://imagenet.stanford.edu/internal/car196/car_ims.tgz",
        ),
        md5="d5c8f0aa497503f355e17dc7886c3f14",
        unpack=".",
    ),
)
PAPER = Publication(
    key="krause2013cars",
    kind="inproceedings",
    title="3D Object Representations for Fine-Grained Categorization",
    authors=("Krause, Jonathan", "Stark, Michael", "Deng, Jia", "Fei-Fei, Li"),
    venue="IEEE Workshop on 3D Representation and Recognition (3dRR)",
    year=2013,
    cited=("Krause et al.",),
)
SPEC = Spec(
    name="cars196",
    title="Stanford Cars (Cars196)",
    levels=("body_type", "model"),
    build=build,
    markers=("cars_annos.mat",),
    protocol=Protocol(recalls=(1, 2, 4, 8)),
    licence="research only, not redistributable; body types: MIT",
    files=FILES,
    papers=(PAPER,),
    citation="Krause et al., 3D object representations for fine-grained categorization, 3dRR 2013",
    homepage="http://ai.stanford.edu/~jkrause/cars/car_dataset.html",
    size="1.9 GB",
    counts={
        "train": {"images": 8_054, "model": 98, "body_type": 9},
        "test": {"images": 8_131, "model": 98, "body_type": 9},
    },
    defects=(
        "the original host is gone: take car_ims.tgz and cars_annos.mat from a mirror, then "
        "--mirror or --adopt",
    ),
    layout="""\
cars_annos.mat         annotations: relative_im_path, class, …; class_names
car_ims/
  000001.jpg""",
)
