"""BIOSCAN-5M: insects under the microscope, by taxonomy. One test has the species of the training
set, the other has new species.
"""

import dataclasses
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from hbench.core.errors import DataError
from hbench.core.tables import text_rows
from hbench.datasets.spec import (
    PARTIAL,
    Protocol,
    Publication,
    RemoteFile,
    Spec,
    Splits,
    mended,
    queries_against,
)
from hbench.sheets.sheet import read_table

LEVELS = ("class", "order", "family", "genus", "species")
TABLE = "metadata/csv/BIOSCAN_5M_Insect_Dataset_metadata.csv"
TESTS = {
    "seen": ("test", "train"),
    "unseen": ("test_unseen", "key_unseen"),
}  # {test: (partition of the queries, partition of the gallery)}


def build(raw: Path, *, training: Sequence[str]) -> Splits:
    """Read the partition (the authors' split) and the taxonomy of each image from the metadata
    table in the folder `raw`. `training`: the partitions that make the training set. The other
    partitions that are used are those of TESTS, one for the queries and one for the gallery of each
    test.

    The policies PARTIAL mend the names: a path that ends early is unknown below its end, and a gap
    inside a path becomes a class. The names of all partitions are mended together, so that a class
    has the same name in all of them.
    """
    table = read_table(raw / TABLE, columns=("processid", "chunk", "split", *LEVELS))
    # without repetitions, in order: a test and the training set may share a partition
    used = dict.fromkeys([*training, *(part for pair in TESTS.values() for part in pair)])
    table = table.filter(pc.is_in(table["split"], value_set=pa.array(used)))
    keys = text_rows(table, ("split", "chunk", "processid"))  # of the images, a tuple of texts each
    names_of_image = dict(zip(keys, text_rows(table, LEVELS), strict=True))
    # {partition: {item: names, coarse to fine}}; an item is the path of its picture
    of_part: dict[str, dict[str, tuple[str, ...]]] = {part: {} for part in used}
    for (part, chunk, image), names in mended(names_of_image, LEVELS, *PARTIAL).items():
        # PARTITION/CHUNK/PROCESSID.jpg; images of small partitions have no chunk (an empty cell)
        folders = [part, chunk] if chunk else [part]
        of_part[part]["/".join([*folders, f"{image}.jpg"])] = names
    if lost := [part for part in used if not of_part[part]]:
        raise DataError(f"partitions are missing in {raw / TABLE}", found=", ".join(lost))

    tests = {
        test: queries_against(of_part[queries].items(), of_part[gallery].items(), LEVELS)
        for test, (queries, gallery) in TESTS.items()
    }
    return {"train": [pair for part in training for pair in of_part[part].items()], **tests}


SUBFAMILY = (
    "the rank subfamily, often empty, is left out; another rank that is empty above a name is a "
    "class of its own within its "
    "parent"
)
FILES = (
    RemoteFile(
        file="BIOSCAN_5M_Insect_Dataset_metadata_MultiTypes.zip",
        urls=(
            "https://zenodo.org/records/11973457/files/BIOSCAN_5M_Insect_Dataset_metadata_MultiTypes.zip",
            "https://huggingface.co/datasets/bioscan-ml/BIOSCAN-5M/resolve/eeefb30/BIOSCAN_5M_Insect_Dataset_metadata_MultiTypes.zip",
        ),
        md5="ac381b69fafdbaedc2f9cfb89e3571f7",
        part="metadata",
        unpack=".",
    ),
    RemoteFile(
        file="BIOSCAN_5M_cropped_256_train.zip",
        urls=("https://zenodo.org/records/11973457/files/BIOSCAN_5M_cropped_256_train.zip",),
        md5="3f170db5d95610644883dafc73389049",
        unpack=".",
    ),
    RemoteFile(
        file="BIOSCAN_5M_cropped_256_eval.zip",
        urls=("https://zenodo.org/records/11973457/files/BIOSCAN_5M_cropped_256_eval.zip",),
        md5="16a997f72a8cd08cbcf7becafe2dda50",
        unpack=".",
    ),
)
PAPER = Publication(
    key="gharaee2024bioscan",
    kind="inproceedings",
    title="BIOSCAN-5M: A Multimodal Dataset for Insect Biodiversity",
    authors=(
        "Gharaee, Zahra",
        "Lowe, Scott C.",
        "Gong, ZeMing",
        "Millan Arias, Pablo",
        "Pellegrino, Nicholas",
        "Wang, Austin T.",
        "Haurum, Joakim Bruslund",
        "Zarubiieva, Iuliia",
        "Kari, Lila",
        "Steinke, Dirk",
        "Taylor, Graham W.",
        "Fieguth, Paul",
        "Chang, Angel X.",
    ),
    venue="Advances in Neural Information Processing Systems (NeurIPS)",
    year=2024,
    volume="37",
    pages="36285--36313",
    arxiv="2406.12723",
    cited=("BIOSCAN-5M: a multimodal dataset",),
)
SPEC = Spec(
    name="bioscan-5m",
    title="BIOSCAN-5M",
    levels=LEVELS,
    build=partial(build, training=("train",)),
    markers=(TABLE,),
    images=("images/cropped_256",),
    protocol=Protocol(recalls=(1, 5, 10)),
    licence="CC BY 3.0",
    files=FILES,
    papers=(PAPER,),
    citation="Gharaee et al., BIOSCAN-5M: a multimodal dataset for insect biodiversity, NeurIPS "
    "2024",
    homepage="https://biodiversitygenomics.net/5M-insects/",
    size="2 GB, and images (a part of 39 GB)",
    counts={
        "train": {"images": 289_203, "species": 11_846},
        "test-seen": {"queries": 39_373, "gallery": 289_203},
        "test-unseen": {"queries": 7_887, "gallery": 36_465},
    },
    defects=(
        "of 5.15 million images, 4.7 million (the partition pretrain) have no species and are left "
        "out, as are val, "
        "val_unseen and other_heldout",
        SUBFAMILY,
    ),
    layout="""\
bioscan5m/
  metadata/csv/BIOSCAN_5M_Insect_Dataset_metadata.csv    processid, chunk, split, phylum …
  images/cropped_256/
    train/                                               the other partitions alike
      CHUNK/                                             none in the small partitions
        PROCESSID.jpg""",
)
PARTIAL_SPEC = dataclasses.replace(
    SPEC,
    name="bioscan-5m-partial",
    title="BIOSCAN-5M, all that may be trained on",
    build=partial(build, training=("pretrain", "train")),
    raw_name="bioscan-5m",
    size="2 GB, and 39 GB of images (those of pretrain by hand)",
    counts={**SPEC.counts, "train": {"images": 4_677_756 + 289_203}},
    defects=(
        "partial labels: of the 4,966,959 images that train, those of the partition pretrain have "
        "no species, and often no "
        "genus; the tests are those of bioscan-5m",
        SUBFAMILY,
    ),
    manual=(
        "page:   https://zenodo.org/records/11973457\n"
        "files:  BIOSCAN_5M_cropped_256_pretrain.01.zip (md5 0e1cfa86dc7fa4d9c10036990992a2dd), "
        "BIOSCAN_5M_cropped_256_pretrain.02.zip (md5 ca3191d307957732e8108121b20a2059)\n"
        "layout: both unpacked into bioscan5m/images/cropped_256/pretrain/"
    ),
)
