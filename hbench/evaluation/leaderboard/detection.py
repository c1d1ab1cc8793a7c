"""Makes leaderboard rows of object detection, which hbench trains and scores but does not rank: reports of `hbench detect`."""

from decimal import Decimal
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError

from hbench.core import schema
from hbench.core.errors import SubmissionError
from hbench.core.schema import Strict
from hbench.core.text import first_line
from hbench.core.untrusted import read_json
from hbench.evaluation.leaderboard import Leaderboard, Row

FORMAT: Literal["hbench.detection/1"] = "hbench.detection/1"


class DetectionFile(Strict):
    """The file of all detections, by which a score can be computed again."""

    file: str
    sha256: str = Field(pattern="^[0-9a-f]{64}$")


class DetectionReport(Strict):
    """The report that `hbench detect` writes; scores in 0 … 1. `dataset_digest`: of the test images' names and objects."""

    format: Literal["hbench.detection/1"] = FORMAT
    dataset: str
    method: str
    backbone: str
    loss: str
    pretraining: str
    batch_size: int
    trained_on: tuple[str, ...]
    tested_on: tuple[str, ...]
    scores: dict[str, float | None]
    per_class: dict[str, float | None]
    images: int = Field(gt=0)
    detections: DetectionFile
    dataset_digest: str
    date: str
    hbench: str

    @property
    def signature(self) -> str:
        """The conditions of the scores, in a line."""
        lists = "+".join(self.tested_on)
        return f"{self.dataset}|test:{lists}|AP50:11-point|AP50:95:101-point|difficult:ignored|hbench:{self.hbench}"


def is_detection(path: Path) -> bool:
    """Whether a file is a report of `hbench detect`."""
    try:
        content = read_json(path)
    except (OSError, ValueError):
        return False
    return isinstance(content, dict) and content.get("format") == FORMAT


def row_of(path: Path, board: Leaderboard, *, method: str | None = None, **details: Any) -> Row:
    """The row of a report at `path`, in percent; raises SubmissionError for one of another dataset, or damaged."""
    try:
        report = DetectionReport.model_validate(read_json(path))
    except (ValueError, ValidationError) as error:
        raise SubmissionError(f"{path} is not a report of hbench detect", found=first_line(error)) from None
    if report.dataset != (expected := f"{board.dataset}@{board.version}"):
        raise SubmissionError("the report is of another dataset", expected=expected, found=report.dataset)
    setup = {
        "family": "detection",
        "loss": report.loss,
        "pretraining": report.pretraining,
        "batch_size": report.batch_size,
        "trained_on": "VOC " + " + ".join(report.trained_on),
    }
    run = {
        "sha256": report.detections.sha256,
        "file": report.detections.file,
        "signature": report.signature,
        "hbench": report.hbench,
        "dataset_digest": report.dataset_digest,
        "date": report.date,
        "queries": report.images,
        "note": "queries are the test images",
    }
    known = {"method": method or report.method, "year": int(report.date[:4]), "backbone": report.backbone}
    percent = {metric: round(Decimal(100 * value), 2) for metric, value in report.scores.items() if value is not None}
    fields = known | {key: value for key, value in details.items() if value}
    return schema.build(Row, {**fields, "setup": setup, "scores": percent, "run": run}, source="the report's row")
