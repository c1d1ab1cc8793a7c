"""Rare Species: 400 species of the IUCN Red List, with up to 30 images of each. It is a test
without a training set.
"""

from pathlib import Path

from hbench.datasets.raw_files import cells_of
from hbench.datasets.spec import RANKS, Protocol, Publication, RemoteFile, Spec, Splits, mended

TABLE = "metadata.csv"


def build(raw: Path) -> Splits:
    """Read the file and the seven ranks of each image from metadata.csv in the folder `raw`. All
    images are for testing, as there is no training set.

    The column "species" has only the second word of a name, which species of several genera share,
    so "sciName" is read in its place.
    """
    rows = cells_of(raw / TABLE, "file_name", *RANKS[:-1], "sciName")
    labelled = [(file, tuple(names)) for file, *names in rows]
    # many images have the same names, so different rows of names are mended, once each:
    # {names: mended names}. By the policy "by-path", a name under several parents becomes a class
    # under each of them, such as "Iris (Plantae)".
    final = mended({names: names for _, names in labelled}, RANKS, "by-path")
    return {"test": [(file, final[names]) for file, names in labelled]}


FILES = (
    RemoteFile(
        file="metadata.csv",
        urls=("https://huggingface.co/datasets/imageomics/rare-species/resolve/main/metadata.csv",),
        part="metadata",
    ),
)
PAPER = Publication(
    key="stevens2024bioclip",
    kind="inproceedings",
    title="BioCLIP: A Vision Foundation Model for the Tree of Life",
    authors=(
        "Stevens, Samuel",
        "Wu, Jiaman",
        "Thompson, Matthew J.",
        "Campolongo, Elizabeth G.",
        "Song, Chan Hee",
        "Carlyn, David Edward",
        "Dong, Li",
        "Dahdul, Wasila M.",
        "Stewart, Charles",
        "Berger-Wolf, Tanya",
        "Chao, Wei-Lun",
        "Su, Yu",
    ),
    venue="IEEE/CVF Conference on Computer Vision and Pattern Recognition (CVPR)",
    year=2024,
    arxiv="2311.18803",
    cited=("BioCLIP: a vision foundation model",),
)
SPEC = Spec(
    name="rare-species",
    title="Rare Species",
    levels=RANKS,
    build=build,
    markers=(TABLE,),
    protocol=Protocol(recalls=(1, 5, 10)),
    licence="compilation CC0; images CC0 to CC BY-NC-SA, each as metadata/licenses.csv says",
    files=FILES,
    papers=(PAPER,),
    citation="Stevens et al., BioCLIP: a vision foundation model for the tree of life, CVPR 2024",
    homepage="https://huggingface.co/datasets/imageomics/rare-species",
    counts={"test": {"species": 400, "phylum": 5, "kingdom": 1}},
    defects=(
        "a test without a training set: its authors trained on TreeOfLife-10M, which lacks these "
        "species",
        "five of the species have fewer than 30 different images, so the number of images is not "
        "checked",
    ),
    manual=(
        "page:   https://huggingface.co/datasets/imageomics/rare-species\n"
        "files:  all: hf download imageomics/rare-species --repo-type dataset --local-dir DIR\n"
        "layout: metadata.csv next to dataset/"
    ),
    layout="""\
metadata.csv                                   file_name, kingdom … genus, species, …
dataset/
  KINGDOM-PHYLUM-CLASS-ORDER-FAMILY-GENUS-SPECIES/
    CONTENT_PAGE_eol_full-size-copy.jpg
metadata/
  rarespecies-catalog.csv
  licenses.csv""",
)
