"""Reads the landmarks to scrape: the Commons category of each, from GLDv2's metadata or from a
released hierarchy.
"""

import csv
from collections import Counter
from pathlib import Path
from typing import NamedTuple

from hbench.core.errors import DataError, examples
from hbench_hgldv2.artefact import open_table

NAMES = ("metadata/{}_label_to_category.csv", "metadata/{}_label_to_hierarchical.csv")


class Landmark(NamedTuple):
    """A landmark of one split. Train and index number their landmarks independently, so the split
    is part of a landmark's key."""

    split: str
    landmark_id: int
    category: str


def landmark_file(raw: Path, split: str) -> Path:
    """Find the file that lists a split's landmarks, in the folder `raw` or its folder metadata.

    Preferred is GLDv2's own list of the landmarks' Commons categories. The released H-GLDv2
    hierarchy is accepted too, since it also names the categories.
    """
    for name in NAMES:  # paths below `raw`, with {} for the split
        for path in (raw / name.format(split), raw / Path(name.format(split)).name):
            if path.exists():
                return path
    raise DataError(
        f"{raw} has no landmarks of {split}",
        expected=NAMES[0].format(split),
        fix="hbench download hgldv2 fetches it",
    )


def read_landmarks(path: Path, split: str) -> list[Landmark]:
    """Read the landmarks of {train,index}_label_to_category.csv (columns landmark_id and category).
    Raises DataError for a file that cannot be read so: `open_table` raises it in place of the
    ValueError for a landmark_id that is no number."""
    with open_table(path) as lines:
        reader = csv.DictReader(lines)
        columns = reader.fieldnames or ()
        if not {"landmark_id", "category"} <= set(columns):
            raise DataError(
                f"{path} lacks columns", expected="landmark_id, category", found=", ".join(columns)
            )
        rows = [
            Landmark(split=split, landmark_id=int(row["landmark_id"]), category=row["category"])
            for row in reader
        ]
    times = Counter(row.landmark_id for row in rows)
    twice = [i for i, count in times.items() if count > 1]
    if twice:
        raise DataError(
            f"{path} has landmarks twice", expected="each landmark_id once", found=examples(twice)
        )
    return rows
