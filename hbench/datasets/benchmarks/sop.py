"""Stanford Online Products: photographs of articles for sale. The fine classes are products, the
coarse classes twelve kinds of products.
"""

from pathlib import Path

from hbench.datasets.raw_files import rows_of
from hbench.datasets.spec import Protocol, Publication, RemoteFile, Spec, Splits
from hbench.sheets.rows import Row


def build(raw: Path) -> Splits:
    """Read the official splits from Ebay_train.txt and Ebay_test.txt in the folder `raw`."""
    return {split: products(raw / f"Ebay_{split}.txt") for split in ("train", "test")}


def products(path: Path) -> list[tuple[str, Row]]:
    """Read each image with its kind and its product, (kind, "kind NUMBER"), from the list at
    `path`.

    The kind is read from the folder of the image, such as bicycle_final/, since the list has only a
    number for it.
    """
    found: list[tuple[str, Row]] = []
    for _, product, _, image in rows_of(path, header="image_id class_id super_class_id path"):
        kind = image.split("/")[0].removesuffix("_final")
        found.append((image, (kind, f"{kind} {product}")))
    return found


FILES = (
    RemoteFile(
        file="Stanford_Online_Products.zip",
        urls=(
            "http://ftp.cs.stanford.edu/cs/cvgl/Stanford_Online_Products.zip",
            "gdrive:1TclrpQOF_ullUP99wk_gjGN8pKvtErG8",
            "gdrive:1AtTQv-5ATXYHbVO-dVuQqoUqbVZT1auV",
        ),
        size=3083860082,
        md5="7f73d41a2f44250d4779881525aea32e",
        sha256="b04fa78210e69fab050ce73939550e1cd0f96890bdd98ec9fee732c3b756ef48",
        unpack=".",
    ),
)
PAPER = Publication(
    key="ohsong2016lifted",
    kind="inproceedings",
    title="Deep Metric Learning via Lifted Structured Feature Embedding",
    authors=("Oh Song, Hyun", "Xiang, Yu", "Jegelka, Stefanie", "Savarese, Silvio"),
    venue="IEEE Conference on Computer Vision and Pattern Recognition (CVPR)",
    year=2016,
    arxiv="1511.06452",
    cited=("Oh Song et al.",),
)
SPEC = Spec(
    name="sop",
    title="Stanford Online Products",
    levels=("super_class", "class"),
    build=build,
    markers=("Ebay_train.txt",),
    protocol=Protocol(recalls=(1, 10, 100, 1000)),
    licence="research only, not redistributable",
    files=FILES,
    papers=(PAPER,),
    citation="Oh Song et al., Deep metric learning via lifted structured feature embedding, CVPR "
    "2016",
    homepage="https://cvgl.stanford.edu/projects/lifted_struct/",
    size="2.9 GB",
    counts={
        "train": {"images": 59_551, "class": 11_318, "super_class": 12},
        "test": {"images": 60_502, "class": 11_316, "super_class": 12},
    },
    layout="""\
Stanford_Online_Products/
  Ebay_train.txt           image_id class_id super_class_id path
  Ebay_test.txt
  bicycle_final/           the other eleven kinds alike
    IMAGE.JPG""",
)
