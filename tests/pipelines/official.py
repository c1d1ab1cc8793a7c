"""The real labels of the release, as the tests use them."""

import csv
import gzip
from pathlib import Path

from hbench_hgldv2.labels.label import PREFIX, Label
from hbench_hgldv2.labels.released import Released

GOLDEN = Path(__file__).parents[1] / "golden" / "hgldv2"


def rows_of(name: str) -> list[dict[str, str]]:
    with (GOLDEN / name).open(encoding="utf-8", newline="") as lines:
        return list(csv.DictReader(lines))


def _official():
    return [row for row in rows_of("landmark_classes.csv") if row["source"] == "official"]


def official() -> tuple[list[Label], dict[str, str]]:
    """The 162 official labels that are words, and the group of each."""
    rows = [row for row in _official() if row["label"] != row["qid"]]
    labels = [Label(PREFIX + row["label"], row["label"], 1, 0, 0, ()) for row in rows]
    return labels, {PREFIX + row["label"]: row["supercategory"] for row in rows}


def official_rows() -> list[Released]:
    """All 163 official labels as rows of the training file, a landmark each."""
    columns = ("label", "supercategory", "natural_or_human_made")
    return [Released(n, "", *(row[name] for name in columns)) for n, row in enumerate(_official())]


def index_rows() -> list[dict[str, str]]:
    """The 55,529 labelled landmarks of the index."""
    with gzip.open(
        GOLDEN / "index_label_to_hierarchical.3col.csv.gz", "rt", encoding="utf-8", newline=""
    ) as lines:
        return list(csv.DictReader(lines))
