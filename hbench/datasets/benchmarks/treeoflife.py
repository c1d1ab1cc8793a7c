"""TreeOfLife-10M: the part that its authors call train_small, and their validation part, by the full taxonomy."""

from __future__ import annotations

from pathlib import Path

import pyarrow.compute as pc

from hbench.core.tables import read_sheet, texts
from hbench.datasets import manifest as manifests
from hbench.datasets.dataset import Protocol
from hbench.datasets.spec import Spec, Splits, specs

LEVELS = ("kingdom", "phylum", "class", "order", "family", "genus", "species")
TABLE = "metadata/catalog.csv"
PARTS = {"train": "train_small", "test": "val"}


def build(raw: Path) -> Splits:
    """The catalogue gives the part and the seven ranks of every image; what is not named to the species has partial labels."""
    from hbench.tree.names import NameTable, stripped
    from hbench.tree.policies import mend

    table = read_sheet(raw / TABLE, columns=("split", "treeoflife_id", *LEVELS))
    found = {}
    for split, part in PARTS.items():
        own = table.filter(pc.equal(table["split"], part))
        *above, genera, epithets = (texts(own, level) for level in LEVELS)
        species = [full(genus, epithet) for genus, epithet in zip(genera, epithets, strict=True)]
        rows = zip(*above, genera, species, strict=True)
        items = (f"images/{each}.jpg" for each in texts(own, "treeoflife_id"))
        found[split] = {item: row for item, row in zip(items, map(stripped, rows), strict=True) if row}
    table = NameTable.of(LEVELS, (row for own in found.values() for row in own.values()))
    final = mend(table, ["fill-from-parent", "unknown", "by-path"]).final
    return {
        split: manifests.from_names(list(own), [final[row] or () for row in own.values()], levels=LEVELS)
        for split, own in found.items()
    }


def full(genus: str, epithet: str) -> str:
    """The name of a species, which the catalogue gives by its epithet.

    >>> full("Iris", "germanica"), full("Iris", "")
    ('Iris germanica', '')
    """
    return f"{genus} {epithet}" if genus and epithet and " " not in epithet else epithet


SPEC = Spec(
    name="treeoflife-10m-small",
    title="TreeOfLife-10M, the parts train_small and val",
    levels=LEVELS,
    build=build,
    markers=(TABLE,),
    protocol=Protocol(recalls=(1, 5, 10)),
    licence="compilation CC0; each image as metadata/licenses.csv says",
    citation="Stevens et al., BioCLIP: a vision foundation model for the tree of life, CVPR 2024",
    homepage="https://huggingface.co/datasets/imageomics/TreeOfLife-10M",
    defects=(
        "many images are not named down to the species: they have partial labels; those without any name are left out",
        "the catalogue has been corrected since the paper, so counts are not checked",
    ),
    manual=(
        "page:   https://huggingface.co/datasets/imageomics/TreeOfLife-10M\n"
        "files:  metadata/catalog.csv (2 GB); dataset/*/image_set_NN.tar.gz (63 of about 32 GB) for the images\n"
        "layout: the members ID.jpg of the archives, unpacked into images/; for scoring embeddings, none are needed"
    ),
    layout="""\
metadata/
  catalog.csv               split, treeoflife_id, kingdom … genus, species (the epithet), common, …
  licenses.csv
images/
  TREEOFLIFE_ID.jpg         from dataset/EOL/image_set_01.tar.gz …""",
)
specs.register(SPEC.name)(SPEC)
