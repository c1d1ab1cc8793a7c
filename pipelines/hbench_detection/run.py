"""Trains a detector by a recipe, detects the objects in the test images, and writes the scores.

The folder of a run gets recipe.json, log.jsonl, last.pt (weights, optimiser, epoch),
detections.json in COCO's format, and report.json, which `hbench leaderboard add voc07` accepts.
"""

import hashlib
import json
import math
import random
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch
from torch import Tensor, nn

from hbench.core.errors import ConfigError, DataError, UsageError
from hbench.core.files import full_disk_told, replacing, write_text
from hbench.core.text import first_line
from hbench.core.untrusted import MAX_LIST_BYTES, load_tensors, read_json, read_text
from hbench.core.version import __version__
from hbench.train.records.checkpoints import usable
from hbench_detection.detector import detector_of
from hbench_detection.recipe import CLASSES, DetectionRecipe
from hbench_detection.report import DetectionFile, DetectionReport
from hbench_detection.scores import DetectionScores, moved, scores_of
from hbench_detection.voc import VocPart, part_of

OnEpoch = Callable[[int, float], None]  # the epoch from 1, and its mean loss
VOC07_LISTS = ("2007/test",)  # the test of leaderboards/voc07.toml
VOC07_IMAGES = 4_952
LAST = "last.pt"
DETECTIONS = "detections.json"
REPORT = "report.json"


def run(
    recipe: DetectionRecipe,
    root: Path,
    out: Path,
    *,
    device: str = "cpu",
    resume: bool = False,
    on_epoch: OnEpoch = lambda epoch, loss: None,
) -> DetectionReport:
    """Train, detect and score. Raises DataError for missing files, ConfigError for a loss that is
    not finite.

    `root` is the folder of VOC, and `out` that of the run. `device` is a torch device. With
    `resume`, training continues after the last completed epoch, if there is one. `on_epoch` is
    called with the number of each epoch, from 1, and its mean loss.
    """
    # LAST is the file with the state after the last completed epoch
    if (out / LAST).exists() and not resume:
        raise DataError(
            f"{out} holds a run",
            expected="a new folder",
            fix="continue it with --resume, or name another --out",
        )

    training = part_of(root, recipe.train, recipe.classes)
    test = part_of(root, recipe.test, recipe.classes)
    out.mkdir(parents=True, exist_ok=True)
    if (out / LAST).exists():
        _refuse_other_recipe(recipe, out)
    write_text(out / "recipe.json", recipe.model_dump_json(indent=2) + "\n")
    torch.manual_seed(recipe.seed)
    model = detector_of(recipe).to(device)
    learn(model, training, recipe, out=out, on_epoch=on_epoch)
    found = detect(model, test)  # boxes, labels and scores of every image

    return write_report(recipe, test, found, scores_of(found, test.boxes, recipe.classes), out)


def _refuse_other_recipe(recipe: DetectionRecipe, out: Path) -> None:
    """Raise UsageError if the run in a folder was started with a recipe that differs in more than
    the number of epochs. A larger number of epochs is allowed and extends the run. Raises DataError
    where the stored recipe cannot be read."""
    try:
        begun = DetectionRecipe.model_validate_json(read_text(out / "recipe.json")).model_dump()
    except (OSError, ValueError) as error:
        raise DataError(
            f"{out / 'recipe.json'} cannot be read",
            found=first_line(error),
            fix="name another --out",
        ) from None
    if other := [
        key for key, value in recipe.model_dump().items() if key != "epochs" and value != begun[key]
    ]:
        raise UsageError(
            f"{out} holds a run of another recipe", found=", ".join(other), fix="name another --out"
        )


def learn(
    model: nn.Module,
    part: VocPart,
    recipe: DetectionRecipe,
    *,
    out: Path | None = None,
    on_epoch: OnEpoch = lambda epoch, loss: None,
) -> list[float]:
    """Train the model in place and return the loss of every step since this start.

    With `out`, the state is saved there after every epoch, and training continues from a saved
    state. `on_epoch` receives the number of each epoch, counted from 1, and its mean loss.
    """
    # frozen parameters have no gradient
    weights = [weight for weight in model.parameters() if weight.requires_grad]
    optimizer = torch.optim.SGD(
        weights, lr=recipe.lr, momentum=recipe.momentum, weight_decay=recipe.weight_decay
    )
    steps = math.ceil(len(part.files) / recipe.batch)  # of an epoch
    first = 0
    if out is not None and (out / LAST).exists():
        first = _resume_from(model, optimizer, out / LAST)

    losses: list[float] = []
    for epoch in range(first, recipe.epochs):
        model.train()
        # positions of images in the part; their order depends only on seed and epoch
        for step, places in enumerate(batches(len(part.files), recipe, epoch)):
            for group in optimizer.param_groups:
                # by the epoch, and by the number of the step since the beginning of the run
                group["lr"] = rate(recipe, epoch, epoch * steps + step)
            loss = _loss_on(model, [example(part, place, recipe, epoch) for place in places])
            if not loss.isfinite():
                raise ConfigError(
                    f"the loss is {float(loss)} at step {step} of epoch {epoch + 1}",
                    fix="try a smaller --set lr=…",
                )
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(float(loss.detach()))
        # the losses of this epoch only; `losses` has those of all epochs since this start
        mean = sum(losses[-steps:]) / steps
        if out is not None:
            _save_epoch(model, optimizer, epoch + 1, mean, out)
        on_epoch(epoch + 1, mean)

    return losses


def _loss_on(model: nn.Module, examples: Sequence[tuple[Tensor, dict[str, Tensor]]]) -> Tensor:
    """Return the sum of the detector's losses on images with their objects."""
    device = next(model.parameters()).device
    images, targets = zip(*examples, strict=True)
    # in training mode, the model returns its losses by name
    parts = model(
        [image.to(device) for image in images], [moved(target, device) for target in targets]
    )
    return sum(parts.values(), start=torch.zeros((), device=device))


def rate(recipe: DetectionRecipe, epoch: int, step: int) -> float:
    """Return the learning rate. It rises linearly in the first `warmup` steps and is divided by ten
    after each of the epochs `drops`."""
    rising = min(1.0, (step + 1) / recipe.warmup) if recipe.warmup else 1.0
    return recipe.lr * rising * 0.1 ** sum(epoch >= drop for drop in recipe.drops)


def batches(number: int, recipe: DetectionRecipe, epoch: int) -> Iterator[list[int]]:
    """Yield the positions 0 … number − 1 of all images once, in batches. The order depends only on
    seed and epoch, so a resumed run continues like an uninterrupted one."""
    order = random.Random(f"{recipe.seed} {epoch}").sample(range(number), number)
    yield from (order[at : at + recipe.batch] for at in range(0, number, recipe.batch))


def example(
    part: VocPart, place: int, recipe: DetectionRecipe, epoch: int
) -> tuple[Tensor, dict[str, Tensor]]:
    """Return an image (3, H, W) and its objects without the difficult ones: {boxes (n, 4), labels
    (n,)}. `place` is the position of the image in the part.

    In every epoch the image is mirrored with the recipe's probability. The random choice depends on
    seed, epoch and image, so a resumed run mirrors the same images as an uninterrupted one.
    """
    image = part.image(place)
    boxes = part.boxes[place]
    corners = boxes.corners[~boxes.difficult].clone()  # left, top, right, bottom
    if random.Random(f"{recipe.seed} {epoch} {place}").random() < recipe.flip:
        image = image.flip(-1)
        # the old right edge, mirrored, is the new left edge
        corners[:, [0, 2]] = image.shape[-1] - corners[:, [2, 0]]
    return image, {"boxes": corners, "labels": boxes.classes[~boxes.difficult]}


@torch.no_grad()
def detect(model: nn.Module, part: VocPart) -> list[dict[str, Tensor]]:
    """Detect the objects in every image: {boxes (n, 4) in pixels, labels (n,), scores (n,)}."""
    device = next(model.parameters()).device
    model.eval()
    # one image at a time, since they differ in size
    found = (model([part.image(place).to(device)])[0] for place in range(len(part.files)))
    return [moved(each, torch.device("cpu")) for each in found]


def write_report(
    recipe: DetectionRecipe,
    test: VocPart,
    found: list[dict[str, Tensor]],
    scores: DetectionScores,
    out: Path,
) -> DetectionReport:
    """Write detections.json and report.json, and return the report.

    `found` holds the detections of every image: boxes (n, 4), left, top, right and bottom in
    pixels, labels (n,) and scores (n,). The report belongs to voc07 only if the images and classes
    are those of the leaderboard.
    """
    text = json.dumps(list(coco_results(test, found))) + "\n"
    write_text(out / DETECTIONS, text)
    # results on other lists, other classes or a part of the images cannot be compared with the
    # leaderboard
    is_voc07 = (
        recipe.test == VOC07_LISTS and recipe.classes == CLASSES and len(test.files) == VOC07_IMAGES
    )
    report = DetectionReport(
        dataset="voc07@1" if is_voc07 else f"own@{test.digest[:12]}",
        method=recipe.method,
        backbone=recipe.backbone,
        loss=recipe.classification.loss,
        pretraining=recipe.weights,
        batch_size=recipe.batch,
        trained_on=recipe.train,
        tested_on=recipe.test,
        # `_known`: null for NaN, the AP of a class without objects
        scores=_known({"AP50": scores.ap50, "AP50:95": scores.ap50_95}),
        per_class=_known(scores.per_class),
        images=len(test.files),
        detections=DetectionFile(file=DETECTIONS, sha256=hashlib.sha256(text.encode()).hexdigest()),
        dataset_digest=test.digest,
        date=datetime.now(UTC).date().isoformat(),
        hbench=__version__,
    )
    write_text(out / REPORT, report.model_dump_json(indent=2) + "\n")

    return report


def scored_again(recipe: DetectionRecipe, root: Path, file: Path, out: Path) -> DetectionReport:
    """Score a detections.json and write the report to `out`. Raises DataError for any other
    file."""
    test = part_of(root, recipe.test, recipe.classes)
    # for every image, one row per detection: left, top, right, bottom, category, score
    rows: dict[str, list[list[float]]] = {image.stem: [] for image in test.files}

    where = ""  # the result or the image that is read, for the error
    try:
        results = read_json(file, most=MAX_LIST_BYTES)
        if not isinstance(results, list):
            raise ValueError(f"{type(results).__name__} in place of a list")
        for number, each in enumerate(results, start=1):
            where = f", in result {number}"
            # the four edges; COCO stores a corner and the side lengths of a box
            corners = _corners(each["bbox"])
            row = [*corners, float(each["category_id"]), float(each["score"])]
            rows[str(each["image_id"])].append(row)
        found = []
        for image, own in rows.items():
            where = f", of the image {image}"
            # an image without detections has no rows: reshape then gives (0, 6)
            boxes = torch.tensor(own, dtype=torch.float64).reshape(-1, 6)
            found.append(_detections(boxes, len(recipe.classes)))
    except (OSError, ValueError, KeyError, TypeError) as error:
        in_result = f"{type(error).__name__}: {error}{where}"
        raise DataError(
            f"{file} does not hold detections of these images",
            expected="COCO's results: image_id, category_id, bbox, score",
            found=in_result if where else str(error),
        ) from None

    out.mkdir(parents=True, exist_ok=True)
    return write_report(recipe, test, found, scores_of(found, test.boxes, recipe.classes), out)


def _corners(box: Sequence[float]) -> list[float]:
    """Return the edges left, top, right and bottom of a COCO box, which is given by corner and
    size."""
    x, y, width, height = box
    return [x, y, x + width, y + height]


def _detections(rows: Tensor, classes: int) -> dict[str, Tensor]:
    """Convert the detections of an image from rows (n, 6) of a file (left, top, right, bottom,
    category, score) to the format of `detect`. Raises ValueError for numbers that no detector can
    give."""
    labels = rows[:, 4].long()
    is_class = (labels >= 1) & (labels <= classes) & (labels == rows[:, 4])  # (n,)
    if not (rows.isfinite().all() and is_class.all()):
        raise ValueError(f"a category that is none of 1 … {classes}, or a number that is none")
    if (rows[:, 2:4] < rows[:, :2]).any():
        raise ValueError("a box of negative width or height")
    return {"boxes": rows[:, :4].float(), "labels": labels, "scores": rows[:, 5].float()}


def coco_results(part: VocPart, found: list[dict[str, Tensor]]) -> Iterator[dict[str, Any]]:
    """Yield each detection of `found` (the result of `detect`) in COCO's format, with the image's
    id and the box as corner, width and height."""
    for file, each in zip(part.files, found, strict=True):
        for box, label, score in zip(
            each["boxes"].tolist(), each["labels"].tolist(), each["scores"].tolist(), strict=True
        ):
            x, y, right, bottom = (round(edge, 2) for edge in box)
            size = [round(right - x, 2), round(bottom - y, 2)]
            yield {
                "image_id": file.stem,
                "category_id": label,
                "bbox": [x, y, *size],
                "score": score,
            }


def _known(values: dict[str, float]) -> dict[str, float | None]:
    """Return the values with None for NaN, because JSON has no NaN. The AP of a class without
    objects is NaN."""
    return {name: None if math.isnan(value) else value for name, value in values.items()}


def _save_epoch(
    model: nn.Module, optimizer: torch.optim.Optimizer, epoch: int, loss: float, out: Path
) -> None:
    """Save the state after `epoch` epochs, from which a run can continue. Then append the epoch's
    mean loss to the log."""
    state = {
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "epoch": epoch,
        "torch": torch.get_rng_state(),
    }
    # written whole or not at all, so that a run can continue after being killed here
    with replacing(out / LAST) as temporary:
        torch.save(state, temporary)
    # a full disk raises DataError
    with full_disk_told(out), (out / "log.jsonl").open("a", encoding="utf-8") as log:
        log.write(json.dumps({"epoch": epoch, "loss": loss}) + "\n")


def _resume_from(model: nn.Module, optimizer: torch.optim.Optimizer, path: Path) -> int:
    """Load the model, the optimiser and the random state from a file of `_save_epoch`. Return the
    number of completed epochs."""
    try:
        state = load_tensors(path)
    except (ValueError, UnpicklingError, OSError, EOFError) as error:
        raise DataError(
            f"{path} cannot be resumed", found=str(error), fix="start again in another --out"
        ) from None
    with usable(path):  # values that are missing or do not fit raise DataError
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        torch.set_rng_state(state["torch"])
        return int(state["epoch"])
