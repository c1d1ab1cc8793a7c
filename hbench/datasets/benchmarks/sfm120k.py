"""SfM-120k: photographs of landmarks, labelled by the 3-D model in which they were matched. Papers
on landmarks train on it.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hbench.datasets.raw_files import plain_pickle
from hbench.datasets.spec import Protocol, Publication, RemoteFile, Spec, Splits
from hbench.sheets.rows import Row

FILE = "retrieval-SfM-120k.pkl"
PARTS = {"train": "train", "test": "val"}


def file_of(cid: str) -> str:
    """Return the path of an image in the archive, given its id. The folders are named by the last
    three pairs of letters of the id, from the last pair.

    >>> file_of("e1b2f3c4d5")
    'ims/d5/c4/f3/e1b2f3c4d5'
    """
    return f"ims/{cid[-2:]}/{cid[-4:-2]}/{cid[-6:-4]}/{cid}"


def build(raw: Path) -> Splits:
    """Label each image by the number of its 3-D model, from the pickled list in the folder `raw`.

    The dataset has no test of its own, so the official validation part is the test. Its models are
    not in the training set.
    """
    expected = "{train, val}: {cids, cluster}"
    with plain_pickle(
        raw / FILE, "the list of SfM-120k", keys=tuple(PARTS.values()), expected=expected
    ) as content:
        # A part has the ids of its images (cids), and the number of the 3-D model of each
        # (cluster). `models_of` returns {item: names}, of which a split takes the pairs.
        return {split: models_of(content[part]).items() for split, part in PARTS.items()}


def models_of(part: Mapping[str, Any]) -> dict[str, Row]:
    """Read {item: ("model NUMBER",)}, names at the only level, from a part of the list. `part`:
    {"cids": the ids of the images, "cluster": the number of each image's model}."""
    return {
        file_of(str(cid)): (f"model {int(model)}",)
        for cid, model in zip(part["cids"], part["cluster"], strict=True)
    }


FILES = (
    RemoteFile(
        file="retrieval-SfM-120k.pkl",
        urls=("http://cmp.felk.cvut.cz/cnnimageretrieval/data/train/dbs/retrieval-SfM-120k.pkl",),
        part="metadata",
    ),
    RemoteFile(
        file="ims.tar.gz",
        urls=("http://cmp.felk.cvut.cz/cnnimageretrieval/data/train/ims/ims.tar.gz",),
        unpack="ims",
    ),
)
PAPER = Publication(
    key="radenovic2019finetuning",
    kind="article",
    title="Fine-tuning CNN Image Retrieval with No Human Annotation",
    authors=("Radenović, Filip", "Tolias, Giorgos", "Chum, Ondřej"),
    venue="IEEE Transactions on Pattern Analysis and Machine Intelligence",
    year=2019,
    arxiv="1711.02512",
    cited=("Fine-tuning CNN image retrieval",),
)
SPEC = Spec(
    name="sfm-120k",
    title="SfM-120k",
    levels=("model",),
    build=build,
    markers=(FILE,),
    protocol=Protocol(metrics=("AP", "mAP@100"), recalls=(1, 10, 100)),
    licence="not stated; images from Flickr",
    files=FILES,
    papers=(PAPER,),
    citation="Radenovic et al., Fine-tuning CNN image retrieval with no human annotation, TPAMI "
    "2019",
    homepage="http://cmp.felk.cvut.cz/cnnimageretrieval/",
    defects=(
        "a training set: papers test on roxford5k and rparis6k. Here the official validation "
        "models are the test",
        "one level; images of one model may show different sides of it",
        "no file states the numbers of images and models, so they are not checked",
    ),
    layout="""\
retrieval-SfM-120k.pkl      {train, val}: {cids, cluster, qidxs, pidxs, …}
ims/
  D5/C4/F3/CID              the last six letters of the id""",
)
