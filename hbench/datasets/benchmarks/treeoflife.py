"""TreeOfLife-10M: the authors' parts train_small and val, with the full taxonomy."""

from pathlib import Path

import pyarrow.compute as pc

from hbench.core.tables import text_rows
from hbench.datasets.spec import PARTIAL, RANKS, Protocol, RemoteFile, Spec, Splits, mended
from hbench.sheets.sheet import read_table

TABLE = "metadata/catalog.csv"
PARTS = {"train": "train_small", "test": "val"}


def build(raw: Path) -> Splits:
    """Read the part and the seven ranks of each image from the catalogue in the folder `raw`. A
    label that ends above the species is partial; images without any name are left out.

    The names of the two parts are mended together, so that a class has the same name in each.
    """
    table = read_table(raw / TABLE, columns=("split", "treeoflife_id", *RANKS))
    rows: dict[tuple[str, str], tuple[str, ...]] = {}  # {(split, item): names, coarse to fine}
    for split, part in PARTS.items():  # {split: the part's name in the catalogue}
        of_part = table.filter(pc.equal(table["split"], part))
        for image, *above, genus, epithet in text_rows(of_part, ("treeoflife_id", *RANKS)):
            names = (*above, genus, full(genus, epithet))
            if any(names):
                rows[split, f"images/{image}.jpg"] = names
    # by the policies PARTIAL a gap in a path is filled, an early end marked as unknown, and a name
    # under several parents told apart
    final = mended(rows, RANKS, *PARTIAL).items()
    splits = {}
    for split in PARTS:
        splits[split] = [(item, row) for (of_split, item), row in final if of_split == split]
    return splits


def full(genus: str, epithet: str) -> str:
    """Return the full name of a species, given the cells of genus and species in the catalogue; ""
    if the species is not known.

    The cell of the species mostly holds only the epithet, the second word of the name, which
    species of several genera share. The cell is returned unchanged if it has the full name already
    (with a space), or if the genus is not known.

    >>> full("Iris", "germanica"), full("Iris", "")
    ('Iris germanica', '')
    """
    return f"{genus} {epithet}" if genus and epithet and " " not in epithet else epithet


FILES = (
    RemoteFile(
        file="metadata/catalog.csv",
        urls=(
            "https://huggingface.co/datasets/imageomics/TreeOfLife-10M/resolve/main/metadata/catalog.csv",
        ),
        part="metadata",
    ),
)
SPEC = Spec(
    name="treeoflife-10m-small",
    title="TreeOfLife-10M, the parts train_small and val",
    levels=RANKS,
    build=build,
    markers=(TABLE,),
    protocol=Protocol(recalls=(1, 5, 10)),
    licence="compilation CC0; each image as metadata/licenses.csv says",
    files=FILES,
    citation="Stevens et al., BioCLIP: a vision foundation model for the tree of life, CVPR 2024",
    homepage="https://huggingface.co/datasets/imageomics/TreeOfLife-10M",
    defects=(
        "many images have partial labels, which end above the species; images without any name are "
        "left out",
        "the catalogue has been corrected since the paper, so counts are not checked",
    ),
    manual=(
        "page:   https://huggingface.co/datasets/imageomics/TreeOfLife-10M\n"
        "files:  metadata/catalog.csv (2 GB); dataset/*/image_set_NN.tar.gz (63 of about 32 GB) "
        "for the images\n"
        "layout: the members ID.jpg of the archives, unpacked into images/; for scoring "
        "embeddings, none are needed"
    ),
    layout="""\
metadata/
  catalog.csv               split, treeoflife_id, kingdom … genus, species (the epithet), common, …
  licenses.csv
images/
  TREEOFLIFE_ID.jpg         from dataset/EOL/image_set_01.tar.gz …""",
)
