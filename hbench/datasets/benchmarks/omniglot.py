"""Omniglot: handwritten characters by alphabet; the background alphabets train, the evaluation
alphabets test.
"""

import dataclasses
from functools import partial
from pathlib import Path

from hbench.datasets.spec import Spec, Splits, images_in
from hbench.tree.names import Row

FOLDERS = {"train": "images_background", "test": "images_evaluation"}
SMALL = {"train": "images_background_small1", "test": "images_background_small2"}


def build(raw: Path, *, folders: dict[str, str]) -> Splits:
    """Read the labels of every split from its folder."""
    return {split: _labelled(raw, folder) for split, folder in folders.items()}


def build_open(raw: Path) -> Splits:
    """Read the small sets as `build`, and test only on alphabets that do not train: small2 repeats
    Greek and Latin of small1.
    """
    train = _labelled(raw, SMALL["train"])
    test = _labelled(raw, SMALL["test"])
    trained = {alphabet for _, (alphabet, _) in train}
    unseen = [(item, names) for item, names in test if names[0] not in trained]
    return {"train": train, "test": unseen}


def _labelled(raw: Path, folder: str) -> list[tuple[str, Row]]:
    """Read alphabet and character of every image from its path,
    FOLDER/ALPHABET/characterNN/IMAGE.png.
    """
    return [
        (item, (alphabet, f"{alphabet} {character}"))
        for item in images_in(raw, folder)
        for _, alphabet, character, _ in [item.split("/")]
    ]


LAYOUT = """\
{train}/                         trains
  Greek/
    character01/
      0394_01.png
{test}/                          tests, alike"""
SPEC = Spec(
    name="omniglot",
    title="Omniglot",
    levels=("alphabet", "character"),
    build=partial(build, folders=FOLDERS),
    markers=(FOLDERS["train"],),
    licence="MIT",
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
    files="omniglot-small",
    counts={
        "train": {"images": 2_720, "character": 136, "alphabet": 5},
        "test": {"images": 2_120, "character": 106, "alphabet": 3},
    },
    defects=(
        "hbench's own split: the second set without Greek and Latin, which are in the first, too",
    ),
)
