"""Declares the report of a detector. It contains the row for a leaderboard."""

from typing import Any, Literal

from pydantic import Field, computed_field

from hbench.core.schema import Strict


class DetectionFile(Strict):
    """The file of all detections, from which the scores can be computed again."""

    file: str
    sha256: str = Field(pattern="^[0-9a-f]{64}$")


class DetectionReport(Strict):
    """The report that `hbench detect` writes. Scores are in [0, 1]. `dataset_digest` is a hash of
    the names and objects of the test images."""

    format: Literal["hbench.detection/2"] = "hbench.detection/2"
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

    @computed_field
    def row(self) -> dict[str, Any]:
        """The row, in percent, that `hbench leaderboard add` accepts (hbench.boards.Row)."""
        lists = "+".join(self.tested_on)
        setup = {
            "family": "detection",
            "loss": self.loss,
            "pretraining": self.pretraining,
            "batch_size": self.batch_size,
            "trained_on": "VOC " + " + ".join(self.trained_on),
        }
        # the detections, the program and the data that the scores come from
        run = {
            **self.detections.model_dump(),  # file and sha256 of all detections
            "signature": f"{self.dataset}|test:{lists}|AP50:11-point|AP50:95:101-point|"
            f"difficult:ignored|hbench:{self.hbench}",
            "hbench": self.hbench,
            "dataset_digest": self.dataset_digest,
            "date": self.date,
            "queries": self.images,
            "note": "queries are the test images",
        }
        percent = {
            metric: round(100 * value, 2)
            for metric, value in self.scores.items()
            if value is not None
        }
        about = {"method": self.method, "year": int(self.date[:4]), "backbone": self.backbone}

        return {**about, "setup": setup, "scores": percent, "run": run}
