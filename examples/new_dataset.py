"""A published dataset as a module to copy: `build` reads the raw files, SPEC says the rest; with a
tiny folder to build it from.

In hbench it is a file of hbench/datasets/benchmarks/; in a package of yours, SPEC is an entry point
of the group `hbench.datasets`.

Then: hbench build birds-mini --root raw    # as here, by hbench.build
"""

import tempfile
from functools import partial
from pathlib import Path

from PIL import Image

import hbench
from hbench.datasets import specs
from hbench.datasets.pictures import open_upright
from hbench.datasets.raw_files import cells_of, refuse_unless
from hbench.datasets.spec import Publication, RemoteFile, Spec, Splits


def build(raw: Path) -> Splits:
    """Read the items of each split with their names, coarse to fine, from labels.csv: file, family,
    species, split.
    """
    splits: dict[str, list[tuple[str, tuple[str, str]]]] = {"train": [], "test": []}
    path = raw / "labels.csv"
    # a file that is cut, or has other columns, is refused by its name
    with refuse_unless(path, "a table of birds", expected="the splits train and test"):
        for file, family, species, split in cells_of(path, "file", "family", "species", "split"):
            splits[split].append((file, (family, species)))
    return splits


FILES = (
    RemoteFile("labels.csv", ("https://example.org/birds/labels.csv",), part="metadata"),
    RemoteFile("images.zip", ("https://example.org/birds/images.zip",), unpack="."),
)
PAPER = Publication(
    key="me2026birds",
    kind="misc",
    title="Four Birds",
    authors=("Me, Myself",),
    year=2026,
    cited=("Me, Four birds",),
)
SPEC = Spec(
    name="birds-mini",
    title="Four birds",
    levels=("family", "species"),
    build=build,
    markers=("labels.csv",),  # what tells the raw folder from others
    images=("images",),  # where the items lie
    counts={
        "train": {"images": 4, "species": 2},
        "test": {"images": 4, "species": 2},
    },  # as published; a build checks them
    files=FILES,  # what hbench download fetches
    licence="CC BY 4.0",
    citation="Me, Four birds, 2026",
    papers=(PAPER,),  # what hbench cite writes as BibTeX
    homepage="https://example.org/birds",
    defects=("an image of the galah shows two birds",),
    layout="labels.csv\nimages/\n  SPECIES-NUMBER.png",
    picture=partial(open_upright, background="white"),  # what is seen under transparent pixels
)


def write_raw(folder: Path) -> None:
    """Write the files that the dataset's homepage would give."""
    families = {"barn-owl": "owls", "bay-owl": "owls", "galah": "parrots", "corella": "parrots"}
    lines = ["file,family,species,split"]
    (folder / "images").mkdir(parents=True)
    for place, (species, family) in enumerate(families.items()):
        for number in range(2):
            Image.new("RGBA", (8, 8), (60 * place, 90, 160, 200)).save(
                folder / "images" / f"{species}-{number}.png"
            )
            lines.append(
                f"{species}-{number}.png,{family},{species},{('train', 'test')[place % 2]}"
            )
    (folder / "labels.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    specs.register(SPEC.name)(SPEC)  # in hbench, and as an entry point, this is done for you
    raw = Path(tempfile.mkdtemp()) / "raw"
    write_raw(raw)
    data = hbench.build("birds-mini", root=raw, out=raw.parent / "built")
    print(data, data.tests["test"].picture(data.tests["test"].items[0]).mode)
