"""Scores detections by average precision, with torchmetrics and COCO's own matching of boxes.

AP50 is the AP of VOC 2007, for boxes that overlap the true box by at least one half: the mean, over
the eleven recalls 0, 0.1 … 1, of the best precision at that or a higher recall. RaMBO's Tab. 5 and
mmdetection report it for VOC 2007. AP50:95 is COCO's AP, the mean over 101 recalls and the overlaps
0.5, 0.55 … 0.95. Both ignore difficult objects, however often they are detected.

COCO matches a detection with the best object that is still free. VOC's program matches it with the
best of all objects, so AP50 may differ in the second decimal.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

# imported first, because torchmetrics' own error about a missing package does not name the extra
import pycocotools  # noqa: F401
import torch
from torch import Tensor
from torchmetrics.detection import MeanAveragePrecision

from hbench_detection.voc import Boxes

# An area in square pixels for difficult objects. It is larger than the largest area that COCO
# counts, so COCO's matching ignores the object and the detections matched with it, although the box
# keeps its size.
OUTSIDE = 2e10
# COCO's own, in float64: as float32 the metric's 0.6 exceeds 6 of 10
RECALLS = tuple(number / 100 for number in range(101))
ELEVEN = slice(0, None, 10)  # every tenth of the 101 recalls: 0, 0.1 … 1


class DetectionScores(NamedTuple):
    """AP50 of each class, the mean AP50, and the mean AP50:95, as fractions in [0, 1]. The value of
    a class without objects is NaN."""

    per_class: dict[str, float]
    ap50: float
    ap50_95: float


def scores_of(
    found: Sequence[dict[str, Tensor]], truth: Sequence[Boxes], classes: Sequence[str]
) -> DetectionScores:
    """Score the detections {boxes (n, 4), labels (n,), scores (n,)} of every image against the
    image's objects.

    `found` and `truth` have the detections and the objects of each image. `classes` are the names
    of the labels 1, 2, …
    """
    # the extended summary has the precision at each of COCO's 101 recalls; the AP50 of VOC is
    # computed from eleven of them
    metric = MeanAveragePrecision(
        backend="pycocotools", extended_summary=True, rec_thresholds=list(RECALLS)
    )
    predicted = [moved(each, torch.device("cpu")) for each in found]
    # The metric also gets the difficult objects, marked as ignored: they need not be detected, and
    # a detection of one is not false. COCO matches an object only once, so `_target` repeats a
    # difficult object for every detection of its class, for which it needs their labels.
    metric.update(
        predicted,
        [_target(own, each["labels"]) for own, each in zip(truth, predicted, strict=True)],
    )
    result: dict[str, Any] = metric.compute()
    ap_of_number = _ap_of_numbers(result)
    # the AP of a class without objects is undefined
    with_objects = torch.cat([each.classes[~each.difficult] for each in truth]).unique().tolist()
    per_class = {}
    for number, name in enumerate(classes, start=1):  # 0 is the background
        is_known = number in with_objects
        # a class whose objects were never detected has an AP of 0
        per_class[name] = ap_of_number.get(number, 0.0) if is_known else float("nan")
    known = [value for value in per_class.values() if not math.isnan(value)]
    mean = sum(known) / len(known) if known else float("nan")

    # "map" is COCO's AP50:95
    return DetectionScores(per_class=per_class, ap50=mean, ap50_95=float(result["map"]))


def _ap_of_numbers(result: Mapping[str, Any]) -> dict[int, float]:
    """The AP50 of every class that occurs, by the class's number: the mean precision at eleven
    recalls."""
    # the axes are overlap, recall, class, area and number of detections; taken: overlap ½, eleven
    # recalls, every class, any area, at most 100 detections
    precision = result["precision"][0, ELEVEN, :, 0, -1]  # (11, classes)
    numbers = result["classes"].reshape(-1).tolist()
    return dict(zip(numbers, precision.mean(dim=0).tolist(), strict=True))


def moved(tensors: dict[str, Tensor], device: torch.device) -> dict[str, Tensor]:
    """Return an image's tensors on a device."""
    return {key: value.to(device) for key, value in tensors.items()}


def _target(boxes: Boxes, found: Tensor) -> dict[str, Tensor]:
    """Convert the n objects of an image for COCO. `found` (m,) are the classes of the detections.

    A difficult object is repeated once per detection of its class, but occurs at least once. COCO
    matches an object only once, and every detection that overlaps a difficult object must be
    ignored.
    """
    # COCO ignores objects whose area is out of range, as OUTSIDE is
    width, height = (boxes.corners[:, 2:] - boxes.corners[:, :2]).unbind(dim=1)
    area = torch.where(boxes.difficult, torch.full_like(width, OUTSIDE), width * height)
    of_its_class = (boxes.classes[:, None] == found).sum(dim=1)  # (n,): detections
    times = torch.where(boxes.difficult, of_its_class.clamp(min=1), 1)
    # each object once, before difficult ones are repeated
    once = {"boxes": boxes.corners, "labels": boxes.classes, "area": area}
    return {key: value.repeat_interleave(times, dim=0) for key, value in once.items()}
