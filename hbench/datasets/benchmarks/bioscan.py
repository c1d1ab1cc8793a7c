"""BIOSCAN-5M: insects under the microscope, by taxonomy; queries of species that were trained on, and of species that
were not."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hbench.core.tables import read_sheet, texts
from hbench.datasets import manifest as manifests
from hbench.datasets.dataset import Protocol
from hbench.datasets.manifest import Manifest
from hbench.datasets.spec import Spec, Splits, specs

LEVELS = ("class", "order", "family", "genus", "species")
TABLE = "metadata/csv/BIOSCAN_5M_Insect_Dataset_metadata.csv"
TESTS = {"seen": ("test", "train"), "unseen": ("test_unseen", "key_unseen")}  # the partitions that ask, and that answer


def labelled(table: pa.Table) -> dict[str, dict[str, tuple[str, ...]]]:
    """{partition: {image: its names}}. A rank without a name is its own class within its parent."""
    from hbench.tree.names import NameTable, stripped
    from hbench.tree.policies import mend

    parts, chunks, numbers = (texts(table, name) for name in ("split", "chunk", "processid"))
    rows = list(zip(*(texts(table, level) for level in LEVELS), strict=True))
    final = mend(NameTable.of(LEVELS, rows), ["fill-from-parent", "repeat-leaf", "by-path"]).final
    found: dict[str, dict[str, tuple[str, ...]]] = {part: {} for pair in TESTS.values() for part in pair}
    for part, chunk, number, row in zip(parts, chunks, numbers, rows, strict=True):
        image = "/".join(filter(None, (part, chunk, f"{number}.jpg")))
        found[part][image] = final[stripped(row)] or ()
    return found


def build(raw: Path) -> Splits:
    """The metadata table gives the partition and the taxonomy of every image; four of the eight partitions are used."""
    table = read_sheet(raw / TABLE, columns=("processid", "chunk", "split", *LEVELS))
    used = pa.array([part for pair in TESTS.values() for part in pair])
    of_part = labelled(table.filter(pc.is_in(table["split"], value_set=used)))
    train = manifests.from_names(list(of_part["train"]), list(of_part["train"].values()), levels=LEVELS)
    return {"train": train} | {test: asked(of_part[own], of_part[keys]) for test, (own, keys) in TESTS.items()}


def asked(queries: dict[str, tuple[str, ...]], keys: dict[str, tuple[str, ...]]) -> Manifest:
    """The images of one partition against those of another."""
    both = queries | keys
    query = np.arange(len(both)) < len(queries)
    return manifests.from_names(list(both), list(both.values()), levels=LEVELS, query=query, gallery=~query)


SPEC = Spec(
    name="bioscan-5m",
    title="BIOSCAN-5M",
    levels=LEVELS,
    build=build,
    markers=(TABLE,),
    images=("images/cropped_256",),
    protocol=Protocol(recalls=(1, 5, 10)),
    licence="CC BY 3.0",
    citation="Gharaee et al., BIOSCAN-5M: a multimodal dataset for insect biodiversity, NeurIPS 2024",
    homepage="https://biodiversitygenomics.net/5M-insects/",
    size="2 GB, and images (a part of 39 GB)",
    counts={
        "train": {"images": 289_203, "species": 11_846},
        "test-seen": {"queries": 39_373, "gallery": 289_203},
        "test-unseen": {"queries": 7_887, "gallery": 36_465},
    },
    defects=(
        "of 5.15 million images, 4.7 million (the partition pretrain) have no species and are left out, as are val, "
        "val_unseen and other_heldout",
        "the rank subfamily, often empty, is left out; another rank without a name is a class of its own within its "
        "parent",
    ),
    layout="""\
bioscan5m/
  metadata/csv/BIOSCAN_5M_Insect_Dataset_metadata.csv    processid, chunk, split, phylum … species, …
  images/cropped_256/
    train/                                               the other partitions alike
      CHUNK/                                             none in the small partitions
        PROCESSID.jpg""",
)
specs.register(SPEC.name)(SPEC)
