"""Google Landmarks v2, and its hierarchical version, which groups landmarks by super-category and
into natural and human-made ones.
"""

import dataclasses
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from urllib.parse import unquote

import pyarrow as pa

from hbench.core.tables import text_rows
from hbench.datasets.dataset import list_of
from hbench.datasets.own.reading import check_columns
from hbench.datasets.raw_files import cells_of
from hbench.datasets.spec import (
    Protocol,
    Publication,
    RemoteFile,
    Spec,
    Splits,
    manifest_of,
    queries_against,
)
from hbench.sheets.sheet import read_table

TRAIN = "metadata/train_clean.csv"
INDEX = "metadata/index_image_to_landmark.csv"
LISTS = {
    "train": (TRAIN, "images"),
    "index": (INDEX, "id"),
}  # {space: (file, its column of image ids: several in a cell of train, one in a cell of index)}
TRUTH = "ground_truth/retrieval_solution_v2.1.csv"
LABELS = "metadata/{}_label_to_hierarchical.csv"
HIERARCHY = ("landmark_id", "hierarchical_label", "natural_or_human_made")
NO_LIST = {"", "None"}  # the cells of images of queries that the benchmark ignores
FLAT: tuple[str, ...] = ("landmark",)
Paths = dict[str, tuple[str, ...]]


def metadata_file(raw: Path, file: str) -> Path:
    """Find a metadata file such as "metadata/train_clean.csv" in the folder `raw`: at that path, or
    directly in `raw`, where users who fetched it by hand may have put it."""
    return raw / file if (raw / file).exists() else raw / Path(file).name


def file_of(space: str, image: str) -> str:
    """Return the path of an image of the `space` "train", "index" or "test". The archives unpack
    into folders named by the first three letters of an image's id.

    >>> file_of("index", "00016575233bc956")
    'index/0/0/0/00016575233bc956.jpg'
    """
    return f"{space}/{image[0]}/{image[1]}/{image[2]}/{image}.jpg"


def landmark_name(space: str, landmark: str, category: str = "") -> str:
    """Name a landmark by its category and its number.

    The name includes `space`, "train" or "index", because the numbers of the two are independent.
    `category`: the address of a page on Wikimedia Commons; "" if it is not known.

    >>> landmark_name(
    ...     "train", "0", "http://commons.wikimedia.org/wiki/Category:Happy_Valley_Racecourse"
    ... )
    'Happy Valley Racecourse (train 0)'
    """
    title = unquote(category.rpartition("Category:")[2]).replace("_", " ").strip()
    return f"{title} ({space} {landmark})" if title else f"{space} {landmark}"


def hierarchy(raw: Path, space: str) -> Paths:
    """Read {landmark: (natural or human-made, super-category, name)} of the `space` "train" or
    "index" from the folder `raw`. Landmarks without a super-category are left out, since they have
    no place in the hierarchy.

    Names are stripped because the published label "ocean area " ends in a space.
    """
    table = read_table(metadata_file(raw, LABELS.format(space)))
    check_columns(table, list(HIERARCHY))
    columns = [*HIERARCHY]  # landmark, super-category, natural or human-made
    if "category" in table.column_names:  # optional: it only makes names readable
        columns.append("category")
    return {
        landmark: (kind.strip(), group.strip(), landmark_name(space, landmark, *category))
        for landmark, group, kind, *category in text_rows(table, columns)
        if group.strip()
    }


def truth(raw: Path) -> dict[str, list[str]]:
    """Read {id of a query: ids of its positives in the index} from the official ground truth.
    Queries that the benchmark ignores, which have no images there, are left out.
    """
    rows = cells_of(metadata_file(raw, TRUTH), "id", "images")
    return {query: images.split() for query, images in rows if images.strip() not in NO_LIST}


def images_with_paths(
    raw: Path, space: str, *, flat: bool
) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield the id of each image of the `space` "train" or "index" with the path of its landmark.
    Images of landmarks without a path are left out.

    A path is (kind, super-category, landmark), or only the landmark if `flat` is true.
    """
    file, column = LISTS[space]  # the table of the landmarks' images, and its column of image ids
    rows = cells_of(metadata_file(raw, file), "landmark_id", column)
    if flat:
        paths: Paths = {landmark: (landmark_name(space, landmark),) for landmark, _ in rows}
    else:
        paths = hierarchy(raw, space)
    for landmark, images in rows:  # a cell has several ids with spaces between them, or one id
        if landmark in paths:
            for image in images.split():
                yield image, paths[landmark]


def build(raw: Path, *, flat: bool = False) -> Splits:
    """Read the images of train_clean and of the index whose landmarks have a hierarchical label. If
    `flat` is true, read all images, with their landmark as the only level.

    Queries have no labels in the files. A query gets the path of the first image in its ground
    truth, the list of its positives, which is never empty; if that image is left out, the query is,
    too. `raw`: the folder of the downloaded files.
    """
    index = dict(images_with_paths(raw, "index", flat=flat))  # {image id: path}
    queries = [
        (file_of("test", query), index[images[0]])
        for query, images in truth(raw).items()
        if images[0] in index
    ]
    gallery = [(file_of("index", image), path) for image, path in index.items()]
    train = (
        (file_of("train", image), path)
        for image, path in images_with_paths(raw, "train", flat=flat)
    )
    levels = FLAT if flat else SPEC.levels
    return {"train": manifest_of(train, levels), "test": queries_against(queries, gallery, levels)}


def lists(raw: Path) -> dict[str, pa.Table]:
    """Read the official ground truth for mAP@100 as {"test": a table of (query, gallery item, level
    1)}. It lists the positives of each query by image, not by landmark.

    The file is read as {id of a query: ids of its positives}. Images that are listed twice count
    once. Images outside of the index are left out, since no ranking can contain them. `raw`: the
    folder of the downloaded files.
    """
    index = {image for (image,) in cells_of(metadata_file(raw, INDEX), "id")}
    return {
        "test": list_of(
            (file_of("test", query), file_of("index", image), 1)
            for query, images in truth(raw).items()
            for image in dict.fromkeys(images)  # without repetitions, in order
            if image in index
        )
    }


FILES = (
    RemoteFile(
        file="metadata/train_clean.csv",
        urls=("https://s3.amazonaws.com/google-landmark/metadata/train_clean.csv",),
        part="metadata",
    ),
    RemoteFile(
        file="metadata/index_image_to_landmark.csv",
        urls=("https://s3.amazonaws.com/google-landmark/metadata/index_image_to_landmark.csv",),
        part="metadata",
    ),
    RemoteFile(
        file="metadata/train_label_to_hierarchical.csv",
        urls=("https://s3.amazonaws.com/google-landmark/metadata/train_label_to_hierarchical.csv",),
        part="metadata",
    ),
    RemoteFile(
        file="metadata/index_label_to_hierarchical.csv",
        urls=("https://s3.amazonaws.com/google-landmark/metadata/index_label_to_hierarchical.csv",),
        part="metadata",
    ),
    RemoteFile(
        file="metadata/train_label_to_category.csv",
        urls=("https://s3.amazonaws.com/google-landmark/metadata/train_label_to_category.csv",),
        part="metadata",
    ),
    RemoteFile(
        file="metadata/index_label_to_category.csv",
        urls=("https://s3.amazonaws.com/google-landmark/metadata/index_label_to_category.csv",),
        part="metadata",
    ),
    RemoteFile(
        file="ground_truth/recognition_solution_v2.1.csv",
        urls=(
            "https://s3.amazonaws.com/google-landmark/ground_truth/recognition_solution_v2.1.csv",
        ),
        part="metadata",
    ),
    RemoteFile(
        file="ground_truth/retrieval_solution_v2.1.csv",
        urls=("https://s3.amazonaws.com/google-landmark/ground_truth/retrieval_solution_v2.1.csv",),
        part="metadata",
    ),
    RemoteFile(
        file="train/images_{i}.tar",
        urls=("https://s3.amazonaws.com/google-landmark/train/images_{i}.tar",),
        count=500,
        md5_url="https://s3.amazonaws.com/google-landmark/md5sum/train/md5.images_{i}.txt",
        unpack="train",
    ),
    RemoteFile(
        file="index/images_{i}.tar",
        urls=("https://s3.amazonaws.com/google-landmark/index/images_{i}.tar",),
        count=100,
        md5_url="https://s3.amazonaws.com/google-landmark/md5sum/index/md5.images_{i}.txt",
        unpack="index",
    ),
    RemoteFile(
        file="test/images_{i}.tar",
        urls=("https://s3.amazonaws.com/google-landmark/test/images_{i}.tar",),
        count=20,
        md5_url="https://s3.amazonaws.com/google-landmark/md5sum/test/md5.images_{i}.txt",
        unpack="test",
    ),
)
PAPER = Publication(
    key="weyand2020gldv2",
    kind="inproceedings",
    title="Google Landmarks Dataset v2 -- A Large-Scale Benchmark for Instance-Level Recognition "
    "and Retrieval",
    authors=("Weyand, Tobias", "Araujo, André", "Cao, Bingyi", "Sim, Jack"),
    venue="IEEE/CVF Conference on Computer Vision and Pattern Recognition (CVPR)",
    year=2020,
    arxiv="2004.01804",
    cited=("Weyand et al.",),
)
SPEC = Spec(
    name="hgldv2",
    title="Hierarchical Google Landmarks v2",
    levels=("kind", "super_category", "landmark"),
    build=build,
    raw_name="gldv2",
    markers=(TRAIN, Path(TRAIN).name),
    protocol=Protocol(
        metrics=("H-AP", "ASI", "NDCG", "mAP@100"), recalls=(1, 10), official="official-landmark"
    ),
    licence="annotations CC BY 4.0; images of train CC BY, of index and test CC0 or public domain",
    files=FILES,
    papers=(PAPER,),
    citation="Ramzi et al., Optimization of rank losses for image retrieval, TPAMI 2025; Weyand et "
    "al., CVPR 2020",
    homepage="https://github.com/cvdfoundation/google-landmark",
    size="595 GB",
    counts={
        "train": {"images": 970_981, "landmark": 46_593, "super_category": 78, "kind": 2},
        "test": {"super_category": 78, "kind": 2},
    },
    defects=(
        "landmarks of several categories were dropped upstream, so some famous ones are missing",
        "queries and index images of landmarks without a hierarchical label are left out",
        "the published label 'ocean area ' ends in a space, which is removed",
    ),
    layout="""\
metadata/
  train_clean.csv                        landmark_id, images (ids, a space between)
  train_label_to_hierarchical.csv        landmark_id, category, supercategory, …
  index_image_to_landmark.csv            id, landmark_id
  index_label_to_hierarchical.csv
ground_truth/
  retrieval_solution_v2.1.csv            id, images, Usage
train/                                   index/ and test/ alike
  0/1/2/                                 the first three letters of the id
    0123456789abcdef.jpg""",
)
FLAT_SPEC = dataclasses.replace(
    SPEC,
    name="gldv2",
    title="Google Landmarks v2 (train_clean)",
    levels=FLAT,
    build=partial(build, flat=True),
    lists=lists,
    protocol=Protocol(metrics=("mAP@100",), recalls=(1, 10)),
    citation="Weyand et al., Google Landmarks Dataset v2, CVPR 2020",
    counts={
        "train": {"images": 1_580_470, "landmark": 81_313},
        "test": {"queries": 1_129, "gallery": 761_757},
    },
    defects=("positives are listed by image; the label of a query is that of its first image",),
)
