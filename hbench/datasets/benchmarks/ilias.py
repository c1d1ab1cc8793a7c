"""ILIAS: photographs of 1,000 objects, in a taxonomy of three levels, among up to 100 million
distractors.
"""

import dataclasses
from functools import partial
from pathlib import Path

from hbench.core.errors import DataError, examples
from hbench.datasets.raw_files import json_of, lines_of
from hbench.datasets.spec import (
    Protocol,
    Publication,
    RemoteFile,
    Spec,
    Splits,
    mended,
    queries_against,
)
from hbench.sheets.rows import Row

TAXONOMY = "taxonomy.json"
QUERIES, POSITIVES, DISTRACTORS = (
    f"image_ids/{name}_ids.txt" for name in ("image_query", "positive", "distractor")
)
NOTHING = ("distractor",) * 4


def images(path: Path, folder: str) -> list[str]:
    """Read the paths of the images in `folder` from the list of ids at `path`.

    A line is such as "teapot/pos/P000_00,scale,clutter". Scale and clutter, which only positives
    have, are ignored. An id may end in .jpg or not.
    """
    ids = [line.split(",")[0].strip() for line in lines_of(path)]
    return [f"{folder}/{image.removesuffix('.jpg')}.jpg" for image in ids]


def object_of(image: str) -> str:
    """Return the object that an image of ilias_core/ shows: the name of its folder there.

    >>> object_of("ilias_core/teapot/pos/P000_00.jpg")
    'teapot'
    """
    return image.split("/")[1]


def taxonomy(path: Path) -> dict[str, Row]:
    """Read {object: (domain, category, kind, object)} from the taxonomy at `path`, with the names
    unchanged."""
    form = "{domain: {category: {kind: [object]}}}"
    with json_of(path, "the taxonomy of ILIAS", expected=form) as nested:
        return {
            thing: (domain, category, kind, thing)
            for domain, categories in nested.items()
            for category, kinds in categories.items()
            for kind, things in kinds.items()
            for thing in things
        }


def build(raw: Path, *, distractors: bool) -> Splits:
    """Label each query and positive by the object in its path. The gallery is the positives and, if
    `distractors` is true, images that show none of the objects. These all have the path NOTHING, a
    class "distractor" at each level.

    Many categories have a kind "other"; the policy "by-path" makes it a different node in each
    category. `raw`: the folder of the downloaded files. Only the lists are read, not the images.
    """
    paths = mended(taxonomy(raw / TAXONOMY), SPEC.levels, "by-path")
    # `images` lists the paths of the images in the folder ilias_core
    queries, positives = (images(raw / file, "ilias_core") for file in (QUERIES, POSITIVES))
    if lost := sorted({object_of(item) for item in (*queries, *positives)} - set(paths)):
        raise DataError(
            f"objects of {QUERIES} or {POSITIVES} in {raw} are not in {TAXONOMY}",
            found=examples(lost),
        )

    core = [(item, paths[object_of(item)]) for item in queries]
    gallery: list[tuple[str, Row]] = [(item, paths[object_of(item)]) for item in positives]
    if distractors:
        gallery += [(item, NOTHING) for item in images(raw / DISTRACTORS, "yfcc100m")]
    return {"test": queries_against(core, gallery, SPEC.levels)}


FILES = (
    RemoteFile(
        file="taxonomy.json",
        urls=(
            "https://raw.githubusercontent.com/ilias-vrg/ilias/67a343947cd7e216f3a4b05707015fc355adaa95/misc/taxonomy.json",
        ),
        part="metadata",
    ),
    RemoteFile(
        file="image_ids/image_query_ids.txt",
        urls=("https://vrg.fel.cvut.cz/ilias_data/image_ids/image_query_ids.txt",),
        part="metadata",
    ),
    RemoteFile(
        file="image_ids/positive_ids.txt",
        urls=("https://vrg.fel.cvut.cz/ilias_data/image_ids/positive_ids.txt",),
        part="metadata",
    ),
    RemoteFile(
        file="ilias_core.tar",
        urls=("https://vrg.fel.cvut.cz/ilias_data/ilias_core.tar",),
        unpack=".",
    ),
)
PAPER = Publication(
    key="kordopatis2025ilias",
    kind="inproceedings",
    title="ILIAS: Instance-Level Image retrieval At Scale",
    authors=(
        "Kordopatis-Zilos, Giorgos",
        "Stojnić, Vladan",
        "Manko, Anna",
        "Šuma, Pavel",
        "Ypsilantis, Nikolaos-Antonios",
        "Efthymiadis, Nikos",
        "Laskar, Zakaria",
        "Matas, Jiří",
        "Chum, Ondřej",
        "Tolias, Giorgos",
    ),
    venue="IEEE/CVF Conference on Computer Vision and Pattern Recognition (CVPR)",
    year=2025,
    arxiv="2502.11748",
    cited=("ILIAS: instance-level image retrieval",),
)
SPEC = Spec(
    name="ilias",
    title="ILIAS, with distractors",
    levels=("domain", "category", "kind", "object"),
    build=partial(build, distractors=True),
    raw_name="ilias",
    markers=(QUERIES,),
    on_disk=False,
    protocol=Protocol(metrics=("mAP@1000", "H-AP"), recalls=(1, 10, 100, 1000)),
    licence="images of its authors CC BY 4.0, others as their pages say; YFCC100M has its own "
    "terms",
    files=FILES,
    papers=(PAPER,),
    citation="Kordopatis-Zilos et al., ILIAS: instance-level image retrieval at scale, CVPR 2025",
    homepage="https://vrg.fel.cvut.cz/ilias/",
    size="6.3 TB with all distractors",
    counts={"test": {"queries": 1_232}},
    defects=(
        "the taxonomy calls many kinds 'other': each is the other of its own category",
        "text queries (1,000) are left out",
        "a build takes about 0.4 GB of memory for every million distractors: put the first lines "
        "of distractor_ids.txt alone "
        "there for a part; the digest says which list it was",
    ),
    manual=(
        "page:   https://vrg.fel.cvut.cz/ilias_data/\n"
        "files:  image_ids/distractor_ids.txt.gz (unpack it), and the shards of yfcc100m/ that you "
        "need\n"
        "layout: image_ids/distractor_ids.txt next to the other lists"
    ),
    layout="""\
taxonomy.json                    {domain: {category: {kind: [object]}}}
image_ids/
  image_query_ids.txt            OBJECT/query/Q000_00
  positive_ids.txt               OBJECT/pos/P000_00,scale,clutter
  distractor_ids.txt             one id in a line
ilias_core/
  OBJECT/
    query/
      Q000_00.jpg
      Q000_00_bbox.txt
    pos/
      P000_00.jpg
      P000_00_bbox.txt
yfcc100m/                        shards of 100,000 images""",
)
CORE = dataclasses.replace(
    SPEC,
    name="ilias-core",
    title="ILIAS, without distractors",
    build=partial(build, distractors=False),
    on_disk=True,
    size="",
    counts={"test": {"queries": 1_232, "gallery": 4_715, "object": 1_000}},
    defects=SPEC.defects[:2],
    manual="",
)
