"""What the training loop costs over the bare net, and whether decoding keeps up; ratios within one
run.

    python benchmarks/train.py [--steps 38]

Loop: a step of `hbench train glyphs-happier` (batches, losses, optimisers, log, finite check) over
forward, loss, backward and optimiser step of the same net on a batch that is there already, in
seconds of processor time of one thread, so that a busy machine does not disturb it. What varies the
images is measured apart. Files: images/s of `own-nsm` at 224 pixels from JPEG files, with 0 and 2
workers, over a loop as anyone writes it with the same net, loss, optimiser and torchvision's
transforms in a DataLoader; rounds of both in turn, in seconds. Images: JPEG files of 500 × 375
decoded and cut to 224, per second and process.
"""

from __future__ import annotations

import argparse
import dataclasses
import io
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch.utils.data import DataLoader
from torchvision.transforms import v2

from hbench.datasets import load
from hbench.datasets.own.data import folder_table, own_dataset
from hbench.train import loop
from hbench.train.fitting.sizes import fitted_to
from hbench.train.images.batches import Batches, images_of, keys_of
from hbench.train.images.sampler import plan
from hbench.train.images.transforms import augmentations
from hbench.train.recipes.files import resolve
from hbench.train.recipes.recipe import Images
from hbench.train.records.log import Log
from hbench.train.steps.run import begin


def bare(run, pixels: torch.Tensor, labels: torch.Tensor) -> None:
    """A step of net, losses and optimisers alone; `run`: what `begin` returns; pixels (B, 3, H, W),
    labels (B, L)."""
    for optimizer in run.optimizers:
        optimizer.zero_grad(set_to_none=True)
    total, _ = run.objective(run.model(pixels), labels)
    total.backward()
    for optimizer in run.optimizers:
        optimizer.step()


def loop_overhead(number: int) -> None:
    """Print how much longer a step of the training loop takes than the bare net, in so many pairs
    of steps on the same batches, and how many images are varied a second."""
    torch.set_num_threads(1)
    data = load("glyphs")
    recipe = resolve("glyphs-happier", ["log_every=1", "images.augment=none"])
    run = begin(recipe, data)
    images = images_of("glyphs", data.train, recipe.images, vary=True)
    labels = torch.from_numpy(data.train.labels.astype(np.int64))
    ahead = plan(data.train.labels, recipe.sampler, seed=0, epoch=0, steps=number)
    batches = [
        (pixels.to(memory_format=run.layout), labels[rows])
        for pixels, rows in Batches(images, workers=0).of(keys_of(ahead))
    ]
    whole, alone = [], []
    with tempfile.TemporaryDirectory() as folder:
        log = Log(Path(folder), step=0)
        steps = loop.steps(run, recipe, data, Path(folder))
        for batch in batches:
            start = time.process_time()
            log.step(next(steps))
            middle = time.process_time()
            bare(run, *batch)
            whole.append(middle - start)
            alone.append(time.process_time() - middle)
    ratios = [
        one / other for one, other in zip(whole[1:], alone[1:], strict=True)
    ]  # the first step warms up
    rate = recipe.sampler.batch / statistics.median(whole)
    print(
        f"loop / bare step          median {statistics.median(ratios):.3f}   ({len(ratios)} pairs "
        "of steps on the same batch)"
    )
    print(f"images/s trained          {rate:,.0f}")
    varied = images_of("glyphs", data.train, resolve("glyphs-happier").images, vary=True)
    start = time.process_time()
    for _ in Batches(varied, workers=0).of(keys_of(ahead)):
        pass
    loading = number * recipe.sampler.batch / (time.process_time() - start)
    print(
        f"images/s varied in memory {loading:,.0f}   ({loading / rate:.0f} times what is trained)"
    )


def picture() -> bytes:
    """A smooth JPEG of 500 × 375."""
    rng = np.random.default_rng(0)
    noise = Image.fromarray(rng.integers(0, 255, (12, 16, 3), dtype=np.uint8))
    stored = io.BytesIO()
    noise.resize((500, 375), Image.Resampling.BICUBIC).save(stored, "JPEG", quality=90)
    return stored.getvalue()


class PlainFiles(torch.utils.data.Dataset):
    """A dataset as anyone would write it: an image and its label at a time, as floats."""

    def __init__(self, files: list[Path], labels: np.ndarray, settings: Images) -> None:
        cut = v2.RandomResizedCrop(settings.size, scale=settings.scale, antialias=True)
        floats = [
            v2.ToImage(),
            v2.ToDtype(torch.float32, scale=True),
            v2.Normalize(settings.mean, settings.std),
        ]
        self.files, self.labels = files, labels
        self.prepare = v2.Compose([cut, v2.RandomHorizontalFlip(), *floats])

    def __len__(self) -> int:
        """The number of images."""
        return len(self.files)

    def __getitem__(self, row: int) -> tuple[torch.Tensor, torch.Tensor]:
        """The pixels (3, H, W) and the labels (L,) of an image."""
        with Image.open(self.files[row]) as image:
            return self.prepare(image.convert("RGB")).as_subclass(torch.Tensor), torch.from_numpy(
                self.labels[row]
            )


def from_files(rounds: int, workers: int, folder: Path) -> None:
    """Print how many images a second are trained from JPEG files, which are written into the
    folder, and the ratio to a plain loop; `workers`: processes that decode."""
    for number in range(64):
        (folder / f"{number // 4:02}").mkdir(exist_ok=True)
        (folder / f"{number // 4:02}" / f"{number}.jpg").write_bytes(picture())
    data = own_dataset(
        "jpegs", folder_table(folder), folder, levels=["level1"], item="item", split=None
    )
    data = dataclasses.replace(data, train=data.tests["test"])
    changes = [
        "model.backbone=torchvision:resnet18",
        "model.weights=random",
        "images.size=224",
        "sampler.batch=16",
    ]
    recipe = resolve(
        "own-nsm",
        [
            "dataset=jpegs",
            *changes,
            "epochs=1000",
            "schedule.warm_up=0",
            f"images.workers={workers}",
        ],
    )
    recipe = fitted_to(recipe, data.train)
    run, bare_run = begin(recipe, data), begin(recipe, data)
    steps = loop.steps(run, recipe, data, folder)
    plain = PlainFiles(
        [folder / item for item in data.train.items],
        data.train.labels.astype(np.int64),
        recipe.images,
    )
    batches = endless(
        DataLoader(
            plain,
            16,
            shuffle=True,
            drop_last=True,
            num_workers=workers,
            persistent_workers=workers > 0,
        )
    )
    ratios, rates = [], []
    for number in range(rounds + 1):
        began = time.perf_counter()
        for _ in range(4):
            next(steps)
        middle = time.perf_counter()
        for _ in range(4):
            bare(bare_run, *next(batches))
        if number:  # the first warms up
            ratios.append((time.perf_counter() - middle) / (middle - began))
            rates.append(64 / (middle - began))
    print(
        f"images/s from files       {statistics.median(rates):,.1f}   "
        f"{statistics.median(ratios):.3f} × a bare loop's, "
        f"{workers} workers ({rounds} rounds of both)"
    )


def endless(loader: DataLoader) -> Iterator[list[torch.Tensor]]:
    """Yield the batches of a loader, and begin again when they end."""
    while True:
        yield from loader


def decoding(number: int) -> None:
    """Print how many JPEG images a second one process decodes and cuts, by the way of cutting."""
    stored = io.BytesIO(picture())
    for name in ("resized_crop", "crop", "none"):
        prepare = augmentations[name](Images())
        start = time.process_time()
        for _ in range(number):
            stored.seek(0)
            prepare(Image.open(stored))
        print(
            f"images/s decoded, {name:<12}{number / (time.process_time() - start):>8,.0f}   (one "
            "process)"
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=38)
    parser.add_argument("--rounds", type=int, default=9)
    chosen = parser.parse_args()
    loop_overhead(chosen.steps)
    for workers in (0, 2):
        with tempfile.TemporaryDirectory() as temporary:
            from_files(chosen.rounds, workers, Path(temporary))
    decoding(200)
