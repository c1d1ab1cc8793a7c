"""iNaturalist 2021, the small training set: 50 images of each of 10,000 species, by the full taxonomy."""

from __future__ import annotations

from pathlib import Path

from hbench.core.errors import DataError, examples
from hbench.datasets import manifest as manifests
from hbench.datasets.dataset import Protocol
from hbench.datasets.own_data import images_below
from hbench.datasets.spec import Spec, Splits, specs

LEVELS = ("kingdom", "phylum", "class", "order", "family", "genus", "species")
FOLDERS = {"train": "train_mini", "test": "val"}


def build(raw: Path) -> Splits:
    """The folders are the labels: NNNNN_Kingdom_Phylum_Class_Order_Family_Genus_epithet."""
    from hbench.tree.names import NameTable
    from hbench.tree.policies import mend

    items = {
        split: [f"{folder}/{item}" for item in sorted(images_below(raw / folder))] for split, folder in FOLDERS.items()
    }
    folders = {item.split("/")[1] for split in items.values() for item in split}
    parts = {folder: folder.split("_", maxsplit=7)[1:] for folder in folders}
    if bad := [folder for folder, names in parts.items() if len(names) != 7]:
        raise DataError(
            f"folders of {raw} are not a taxonomy", expected="NNNNN_Kingdom_…_Genus_epithet", found=examples(bad)
        )
    rows = {folder: (*names[:6], f"{names[5]} {names[6]}") for folder, names in parts.items()}
    final = mend(NameTable.of(LEVELS, list(rows.values())), ["by-path"]).final
    return {
        split: manifests.from_names(own, [final[rows[item.split("/")[1]]] or () for item in own], levels=LEVELS)
        for split, own in items.items()
    }


SPEC = Spec(
    name="inat21-mini",
    title="iNaturalist 2021, mini training set",
    levels=LEVELS,
    build=build,
    markers=(FOLDERS["train"],),
    protocol=Protocol(recalls=(1, 4, 16, 32)),
    licence="non-commercial research; images may not be redistributed",
    citation="Van Horn et al., Benchmarking representation learning for natural world image collections, CVPR 2021",
    homepage="https://github.com/visipedia/inat_comp/tree/master/2021",
    size="50 GB",
    counts={
        "train": {"images": 500_000, "species": 10_000},
        "test": {"images": 100_000, "species": 10_000},
    },
    defects=("a closed set: the species of the test (the official validation set) are those of the training",),
)
specs.register(SPEC.name)(SPEC)
