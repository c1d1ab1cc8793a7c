"""Scores detections by average precision, with torchmetrics and COCO's own matching of boxes.

AP50 is that of VOC 2007: the mean over eleven recalls 0, 0.1 … 1 of the best precision at that
recall or a higher one, for boxes that overlap the truth by at least one half. RaMBO's Tab. 5 and
mmdetection print it for VOC 2007. AP50:95 is COCO's, the mean over 101 recalls and overlaps 0.5,
0.55 … 0.95. Both ignore difficult objects, however often they are detected. COCO matches a
detection with the best object that is still free, VOC's program with the best of all objects, so
AP50 may differ in the second decimal.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

# imported here, because torchmetrics' error for its absence does not name the extra
import pycocotools  # noqa: F401
import torch
from torch import Tensor
from torchmetrics.detection import MeanAveragePrecision

from hbench_detection.voc import Boxes

# pixels: beyond COCO's largest area, so that the matching ignores the object, by its ordinary
# overlap
OUTSIDE = 2e10
# COCO's, for those of the metric are float32: 0.6 is more than 6 of 10
RECALLS = tuple(number / 100 for number in range(101))
ELEVENTHS = slice(0, None, 10)  # of the recalls


class DetectionScores(NamedTuple):
    """AP50 of each class and their mean, and the mean AP50:95, as fractions in [0, 1]; NaN for a
    class without objects.
    """

    per_class: dict[str, float]
    ap50: float
    ap50_95: float


def scores_of(
    found: Sequence[dict[str, Tensor]], truth: Sequence[Boxes], classes: Sequence[str]
) -> DetectionScores:
    """Score the detections {boxes (n, 4), labels (n,), scores (n,)} of every image against its
    objects.
    """
    metric = MeanAveragePrecision(
        backend="pycocotools", extended_summary=True, rec_thresholds=list(RECALLS)
    )
    predicted = [moved(each, torch.device("cpu")) for each in found]
    metric.update(
        predicted,
        [_target(own, each["labels"]) for own, each in zip(truth, predicted, strict=True)],
    )
    result: dict[str, Any] = metric.compute()
    precision = result["precision"][
        0, ELEVENTHS, :, 0, -1
    ]  # overlap ½, all areas, 100 detections: (11, classes)
    of_number = dict(
        zip(result["classes"].reshape(-1).tolist(), precision.mean(dim=0).tolist(), strict=True)
    )
    objects = torch.cat([each.classes[~each.difficult] for each in truth]).unique().tolist()
    per_class = {
        name: of_number.get(n, 0.0) if n in objects else float("nan")
        for n, name in enumerate(classes, start=1)
    }
    known = [value for value in per_class.values() if not math.isnan(value)]
    mean = sum(known) / len(known) if known else float("nan")

    return DetectionScores(per_class, mean, float(result["map"]))


def moved(tensors: dict[str, Tensor], device: torch.device) -> dict[str, Tensor]:
    """Return the tensors of an image's objects on a device."""
    return {key: value.to(device) for key, value in tensors.items()}


def _target(boxes: Boxes, found: Tensor) -> dict[str, Tensor]:
    """Convert objects for COCO; difficult ones are repeated per detection of their class, since
    COCO matches an object once.
    """
    width, height = (boxes.corners[:, 2:] - boxes.corners[:, :2]).unbind(dim=1)
    area = torch.where(boxes.difficult, torch.full_like(width, OUTSIDE), width * height)
    hits = (boxes.classes[:, None] == found).sum(dim=1).clamp(min=1)
    times = torch.where(boxes.difficult, hits, 1)
    whole = {"boxes": boxes.corners, "labels": boxes.classes, "area": area}
    return {key: value.repeat_interleave(times, dim=0) for key, value in whole.items()}
