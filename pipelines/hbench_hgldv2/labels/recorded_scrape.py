"""Provides a small recorded scrape, with which `hbench hgldv2 scrape --demo` runs without a
network.

The recording is of an invented Wikimedia: its places and their items do not exist, but its classes
are real ones of Wikidata. Its answers have the structure of the real APIs' answers, and every
possible outcome of a title occurs. tests/pipelines/record_scrape.py makes the two tables.
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
    """A server's answer: the canonical request, HTTP status, body, and the time of the fetch."""

    request: str
    status: int
    body: str
    fetched: str


def refuse_others(options: Mapping[str, object]) -> None:
    """Raise UsageError for options that choose landmarks or servers, which --demo does not allow.
    `options` maps an option to its value, None if the user left it out."""
    if given := [name for name, value in options.items() if value is not None]:
        raise UsageError(
            "--demo brings its own landmarks and answers",
            expected="--demo alone",
            found=f"--demo with {', '.join(given)}",
        )


def write_landmarks(raw: Path) -> None:
    """Write the demo's landmarks in the format of GLDv2's metadata, one file per split."""
    landmarks = read_rows(LANDMARKS, Landmark)
    for split in SPLITS:
        rows = [(str(row.landmark_id), row.category) for row in landmarks if row.split == split]
        text = csv_text([("landmark_id", "category"), *rows])
        write_text(raw / f"{split}_label_to_category.csv", text)


def fill(cache: Cache) -> None:
    """Put the recorded answers into a cache, as if they had been fetched."""
    for row in read_rows(ANSWERS, RecordedAnswer):
        cache.put(
            row.request,
            Answer(status=row.status, headers={}, body=row.body.encode(), fetched=row.fetched),
        )
