"""Keeps a small recorded scrape, with which `hbench hgldv2 scrape --demo` runs without a network.

The recording is of an invented Wikimedia: its places and their items do not exist, its classes are
those of Wikidata. Its answers have the shapes of those of the real APIs, and every outcome of a
title occurs. tests/pipelines/record_scrape.py makes the two tables.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from hbench.core.errors import UsageError
from hbench.core.files import write_text
from hbench_hgldv2.artefact import csv_text, read_rows
from hbench_hgldv2.labels.label import SPLITS
from hbench_hgldv2.labels.landmarks import Landmark
from hbench_hgldv2.wikimedia.client import Answer, Cache

LANDMARKS = Path(__file__).with_name("demo_landmarks.csv")
ANSWERS = Path(__file__).with_name("demo_answers.csv")
FOLDER = "scrape-demo"  # in the work folder


class RecordedAnswer(NamedTuple):
    """An answer of a server: the canonical request, HTTP status, body, and when it was fetched."""

    request: str
    status: int
    body: str
    fetched: str


def refuse_others(options: Mapping[str, object]) -> None:
    """Raise UsageError for options next to --demo that say what to scrape, and where."""
    if given := [name for name, value in options.items() if value is not None]:
        raise UsageError(
            "--demo brings its own landmarks and answers",
            expected="--demo alone",
            found=f"--demo with {', '.join(given)}",
        )


def write_landmarks(raw: Path) -> None:
    """Write the demo's landmarks as GLDv2's metadata have them, a file for each split."""
    landmarks = read_rows(LANDMARKS, Landmark)
    for split in SPLITS:
        rows = [(str(row.landmark_id), row.category) for row in landmarks if row.split == split]
        text = csv_text([("landmark_id", "category"), *rows])
        write_text(raw / f"{split}_label_to_category.csv", text)


def fill(cache: Cache) -> None:
    """Put the recorded answers into a cache, as if they had been fetched."""
    for row in read_rows(ANSWERS, RecordedAnswer):
        cache.put(row.request, Answer(row.status, {}, row.body.encode(), row.fetched))
