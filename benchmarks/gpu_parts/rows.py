"""A line of the table, the sizes of what is checked, and how long something takes."""

from __future__ import annotations

import math
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch


class Sizes(NamedTuple):
    """Items and dimension of the evaluation, batch of the losses, images and side of the
    training."""

    items: int
    dim: int
    batch: int
    images: int
    side: int
    net: str


LARGE = Sizes(5_000, 512, 512, 128, 224, "torchvision:resnet50")
SMALL = Sizes(4_000, 128, 128, 16, 64, "torchvision:resnet18")
QUICK = Sizes(200, 16, 32, 8, 32, "torchvision:resnet18")


class Row(NamedTuple):
    """A line of the table: what was checked, the largest difference and what it may be, seconds,
    and those of the bare twin.
    """

    what: str
    difference: float
    allowed: float
    seconds: float = float("nan")
    bare: float = float("nan")
    note: str = ""

    @property
    def is_good(self) -> bool:
        return self.difference <= self.allowed


def seconds_of(work: Callable[[], object], device: torch.device, repeats: int = 3) -> float:
    """The best time of some runs, the device waited for; one before them warms up."""
    best = float("inf")
    for number in range(repeats + 1):
        finish(device)
        began = time.perf_counter()
        work()
        finish(device)
        if number:
            best = min(best, time.perf_counter() - began)
    return best


def finish(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def tree_of(items: int) -> np.ndarray:
    """Labels (items, 3): four items of a class, eight classes of a family, eight families of an
    order.
    """
    fine = np.arange(items) // 4
    return np.stack([fine // 64, fine // 8, fine], axis=1)


def failed(what: str, error: Exception) -> Row:
    """The line of a check that ended in an error."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    reason = (
        f"{type(error).__name__} at {Path(last.filename).name}:{last.lineno}: "
        f"{str(error).strip().splitlines()[:1]}"
    )
    return Row(what, math.inf, 0.0, note=reason[:400])
