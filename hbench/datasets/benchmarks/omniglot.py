"""Omniglot: handwritten characters by alphabet. The background alphabets are for training, the
evaluation alphabets for testing.
"""

import dataclasses
from functools import partial
from pathlib import Path

from hbench.datasets.raw_files import images_in
from hbench.datasets.spec import Publication, RemoteFile, Spec, Splits
from hbench.sheets.rows import Row

FOLDERS = {"train": "images_background", "test": "images_evaluation"}
SMALL = {"train": "images_background_small1", "test": "images_background_small2"}


def build(raw: Path, *, folders: dict[str, str]) -> Splits:
    """Read the images of each split and their labels. `folders`: {split: its folder in `raw`}."""
    return {split: _labelled(raw, folder) for split, folder in folders.items()}


def build_open(raw: Path) -> Splits:
    """Read the two small sets. Alphabets of the first set, which is for training, are left out of
    the second: Greek and Latin are in each."""
    train = _labelled(raw, SMALL["train"])
    test = _labelled(raw, SMALL["test"])
    trained = {alphabet for _, (alphabet, _) in train}
    unseen = [(item, names) for item, names in test if names[0] not in trained]
    return {"train": train, "test": unseen}


def _labelled(raw: Path, folder: str) -> list[tuple[str, Row]]:
    """Read the alphabet and the character of each image from its path,
    FOLDER/ALPHABET/characterNN/IMAGE.png.
    """
    labelled: list[tuple[str, Row]] = []
    for item in images_in(raw, folder):
        _, alphabet, character, _ = item.split("/")
        # names are unique in a level, but each alphabet has a character01: the alphabet is added
        labelled.append((item, (alphabet, f"{alphabet} {character}")))
    return labelled


LAYOUT = """\
{train}/                         trains
  Greek/
    character01/
      0394_01.png
{test}/                          tests, alike"""
FILES = (
    RemoteFile(
        file="images_background.zip",
        urls=(
            "https://raw.githubusercontent.com/brendenlake/omniglot/master/python/images_background.zip",
        ),
        size=9464212,
        md5="68d2efa1b9178cc56df9314c21c6e718",
        unpack=".",
    ),
    RemoteFile(
        file="images_evaluation.zip",
        urls=(
            "https://raw.githubusercontent.com/brendenlake/omniglot/master/python/images_evaluation.zip",
        ),
        size=6462886,
        md5="6b91aef0f799c5bb55b94e3f2daec811",
        unpack=".",
    ),
)
SMALL_FILES = (
    RemoteFile(
        file="images_background_small1.zip",
        urls=(
            "https://raw.githubusercontent.com/brendenlake/omniglot/master/python/images_background_small1.zip",
        ),
        size=1319022,
        md5="e704a628b5459e08445c13499850abc4",
        sha256="f38eb80f801274ac2b4dff5b24289016bfaba4a7d5bb50deebf27104ad6cb8a4",
        unpack=".",
    ),
    RemoteFile(
        file="images_background_small2.zip",
        urls=(
            "https://raw.githubusercontent.com/brendenlake/omniglot/master/python/images_background_small2.zip",
        ),
        size=1580917,
        md5="b75a71a51d3b13f821f212756fe481fd",
        sha256="3ccaa407515a8778e5d0861875af38b17e418f301ad5bb3b5a6b65d901a41c7f",
        unpack=".",
    ),
)
PAPER = Publication(
    key="lake2015omniglot",
    kind="article",
    title="Human-Level Concept Learning Through Probabilistic Program Induction",
    authors=("Lake, Brenden M.", "Salakhutdinov, Ruslan", "Tenenbaum, Joshua B."),
    venue="Science",
    year=2015,
    volume="350",
    number="6266",
    pages="1332--1338",
    cited=("Lake et al.",),
)
SPEC = Spec(
    name="omniglot",
    title="Omniglot",
    levels=("alphabet", "character"),
    build=partial(build, folders=FOLDERS),
    markers=(FOLDERS["train"],),
    licence="MIT",
    files=FILES,
    papers=(PAPER,),
    citation="Lake et al., Human-level concept learning through probabilistic program induction, "
    "Science 2015",
    homepage="https://github.com/brendenlake/omniglot",
    size="15 MB",
    counts={
        "train": {"images": 19_280, "character": 964, "alphabet": 30},
        "test": {"images": 13_180, "character": 659, "alphabet": 20},
    },
    layout=LAYOUT.format(**FOLDERS),
)
SMALL_SPEC = dataclasses.replace(
    SPEC,
    files=SMALL_FILES,
    name="omniglot-small",
    title="Omniglot, the two small background sets",
    build=partial(build, folders=SMALL),
    markers=(SMALL["train"],),
    size="2.8 MB",
    counts={
        "train": {"images": 2_720, "character": 136, "alphabet": 5},
        "test": {"images": 3_120, "character": 156, "alphabet": 5},
    },
    defects=("not quite an open set: the characters of Greek and Latin are in both splits",),
    layout=LAYOUT.format(**SMALL),
)
OPEN_SPEC = dataclasses.replace(
    SMALL_SPEC,
    name="omniglot-small-open",
    title="Omniglot, the two small background sets, tested on new alphabets",
    build=build_open,
    raw_name="omniglot-small",
    counts={
        "train": {"images": 2_720, "character": 136, "alphabet": 5},
        "test": {"images": 2_120, "character": 106, "alphabet": 3},
    },
    defects=(
        "hbench's own split: the second set without Greek and Latin, which are in the first, too",
    ),
)
