"""Revisited Oxford and Paris: 70 views of buildings as queries against a gallery. Lists say which
images are easy, hard or junk for a query.
"""

from collections.abc import Mapping, Set
from functools import cache, partial
from pathlib import Path
from typing import Any

import pyarrow as pa
from PIL import Image

from hbench.datasets.dataset import LEFT_OUT, list_of
from hbench.datasets.pictures import open_picture
from hbench.datasets.raw_files import plain_pickle
from hbench.datasets.spec import Protocol, Publication, RemoteFile, Spec, Splits, queries_against

# {test: the parts of a query's lists that are its positives}
POSITIVE = {"easy": {"easy"}, "medium": {"easy", "hard"}, "hard": {"hard"}}
PARTS = ("easy", "hard", "junk")
LAYOUT = """\
FILE      {imlist, qimlist, gnd}, read without running code in it
jpg/
  IMAGE.jpg"""


@cache
def ground_truth(path: Path) -> dict[str, Any]:
    """Read a pickled ground truth without running code in it. Raises DataError for any other
    content.

    The result has "imlist", the names of the gallery's images; "qimlist", those of the queries'
    images; and "gnd", a dictionary for each query. That has "easy", "hard" and "junk", positions in
    imlist, and "bbx", the box of the building (left, top, right, bottom). The result is cached per
    path, because `picture` needs it for each query.
    """
    # within this block, a ValueError becomes a DataError
    with plain_pickle(
        path, "a ground truth of the revisited benchmarks", keys=("imlist", "qimlist", "gnd")
    ) as truth:
        # an entry has the parts and at least one key more, the box
        if not all(set(PARTS) < set(entry) and len(entry["bbx"]) == 4 for entry in truth["gnd"]):
            raise ValueError("an entry of gnd has no box, or no list of easy, hard and junk images")
    return truth


def landmark_of(image: str) -> str:
    """Return the building that an image shows, by the image's name.

    >>> landmark_of("all_souls_000013")
    'all souls'
    """
    return image.rpartition("_")[0].replace("_", " ")


def build(raw: Path, *, file: str) -> Splits:
    """Make the three tests easy, medium and hard. They have the same items and differ only in their
    lists of positives, which `lists` reads. The label of an item is the building in its name.

    `raw`: the folder of the downloaded files; `file`: the name of the ground truth in it.
    """
    truth = ground_truth(raw / file)
    queries = [(f"query/{image}.jpg", (landmark_of(image),)) for image in truth["qimlist"]]
    gallery = [(f"jpg/{image}.jpg", (landmark_of(image),)) for image in truth["imlist"]]
    return dict.fromkeys(POSITIVE, queries_against(queries, gallery, ("landmark",)))


def lists(raw: Path, *, file: str) -> dict[str, pa.Table]:
    """Read {test: its list of pairs}. Easy images are positives in the tests easy and medium, hard
    images in hard and medium. Other listed images are left out of the ranking.

    `raw`: the folder of the downloaded files; `file`: the name of the ground truth in it.
    """
    truth = ground_truth(raw / file)
    return {test: _list_with(positive, truth) for test, positive in POSITIVE.items()}


def _list_with(positive: Set[str], truth: Mapping[str, Any]) -> pa.Table:
    """List the images in the three parts easy, hard and junk of each query. Those of the parts in
    `positive` have level 1, the others have LEFT_OUT: they are left out of the query's ranking. An
    image in no part has level 0 and is not listed.

    `truth`: the ground truth, as `ground_truth` returns it.
    """
    return list_of(
        (
            f"query/{query}.jpg",
            f"jpg/{truth['imlist'][int(image)]}.jpg",
            1 if part in positive else LEFT_OUT,
        )
        for query, entry in zip(truth["qimlist"], truth["gnd"], strict=True)
        for part in PARTS
        for image in entry[part]
    )


def picture(root: Path, item: str, *, file: str) -> Image.Image:
    """Open the image of an item below the folder `root`. A query "query/NAME.jpg" is not a file: it
    is jpg/NAME.jpg, cropped to the box of its building.

    `file`: the name of the ground truth in `root`, which has the boxes.
    """
    folder, name = item.split("/")
    image = open_picture(root, f"jpg/{name}")
    if folder != "query":
        return image
    truth = ground_truth(root / file)
    number_of_query = list(truth["qimlist"]).index(Path(name).stem)
    box = truth["gnd"][number_of_query]["bbx"]
    left, top, right, bottom = (round(float(edge)) for edge in box)
    return image.crop((left, top, right, bottom))


OXFORD_FILES = (
    RemoteFile(
        file="gnd_roxford5k.pkl",
        urls=("http://cmp.felk.cvut.cz/cnnimageretrieval/data/test/roxford5k/gnd_roxford5k.pkl",),
        part="metadata",
    ),
    RemoteFile(
        file="oxbuild_images-v1.tgz",
        urls=("https://www.robots.ox.ac.uk/~vgg/data/oxbuildings/oxbuild_images-v1.tgz",),
        unpack="jpg",
    ),
)
PARIS_FILES = (
    RemoteFile(
        file="gnd_rparis6k.pkl",
        urls=("http://cmp.felk.cvut.cz/cnnimageretrieval/data/test/rparis6k/gnd_rparis6k.pkl",),
        part="metadata",
    ),
    RemoteFile(
        file="paris_1-v1.tgz",
        urls=("https://www.robots.ox.ac.uk/~vgg/data/parisbuildings/paris_1-v1.tgz",),
        unpack="jpg",
    ),
    RemoteFile(
        file="paris_2-v1.tgz",
        urls=("https://www.robots.ox.ac.uk/~vgg/data/parisbuildings/paris_2-v1.tgz",),
        unpack="jpg",
    ),
)
PAPER = Publication(
    key="radenovic2018revisiting",
    kind="inproceedings",
    title="Revisiting Oxford and Paris: Large-Scale Image Retrieval Benchmarking",
    authors=(
        "Radenović, Filip",
        "Iscen, Ahmet",
        "Tolias, Giorgos",
        "Avrithis, Yannis",
        "Chum, Ondřej",
    ),
    venue="IEEE/CVF Conference on Computer Vision and Pattern Recognition (CVPR)",
    year=2018,
    arxiv="1803.11285",
    cited=("Radenovic et al., Revisiting Oxford",),
)


def _spec(
    name: str, title: str, *, gallery: int, size: str, file: str, files: tuple[RemoteFile, ...]
) -> Spec:
    """Describe ROxford or RParis, which differ only in these arguments.

    Args:
        name: as users type it.
        title: as the authors call it.
        gallery: number of images.
        size: of the download, in words.
        file: the name of the ground truth in the raw folder.
        files: what is downloaded.
    """
    return Spec(
        name=name,
        title=title,
        levels=("landmark",),
        build=partial(build, file=file),
        lists=partial(lists, file=file),
        picture=partial(picture, file=file),
        # a query is a box cut out of a picture (`picture`), and no file of its name
        on_disk=False,
        markers=(file,),  # the raw folder is the one with the ground truth
        protocol=Protocol(
            metrics=("AP", "P@1", "P@5", "P@10"), recalls=(1, 10), official="official-revisited"
        ),
        licence="not stated; images from Flickr",
        files=files,
        papers=(PAPER,),
        citation="Radenovic et al., Revisiting Oxford and Paris: large-scale image retrieval "
        "benchmarking, CVPR 2018",
        homepage="http://cmp.felk.cvut.cz/revisitop/",
        size=size,
        # the keys of POSITIVE are the names of the tests; their manifests are called "test-NAME"
        counts={f"test-{test}": {"queries": 70, "gallery": gallery} for test in POSITIVE},
        defects=("the images were released again with blurred faces in 2022",),
        layout=LAYOUT.replace("FILE", file),
    )


OXFORD = _spec(
    "roxford5k",
    "Revisited Oxford",
    gallery=4_993,
    size="1.9 GB",
    file="gnd_roxford5k.pkl",
    files=OXFORD_FILES,
)
PARIS = _spec(
    "rparis6k",
    "Revisited Paris",
    gallery=6_322,
    size="2.5 GB",
    file="gnd_rparis6k.pkl",
    files=PARIS_FILES,
)
