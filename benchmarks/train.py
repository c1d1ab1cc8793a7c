"""What the training loop costs over the bare net, and whether decoding keeps up; ratios within one run.

    python benchmarks/train.py [--steps 20] [--rounds 5]

Loop: a step of `hbench train glyphs-happier` (batches, losses, optimisers, log, finite check) over forward, loss, backward
and optimiser step of the same net on a batch that is there already, in seconds of processor time of one thread, so that a
busy machine does not disturb it. What varies the images is measured apart.
Images: JPEG files of 500 × 375 decoded, cut and normalised to 224, per second and process.
"""

from __future__ import annotations

import argparse
import io
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from hbench.datasets import load
from hbench.train import loop
from hbench.train.data import images_of, training_batches
from hbench.train.log import Log
from hbench.train.recipe import Images
from hbench.train.recipe_files import resolve
from hbench.train.run import begin
from hbench.train.sampler import plan
from hbench.train.transforms import augmentations


def bare(run, pixels: torch.Tensor, labels: torch.Tensor, number: int) -> float:
    """Seconds of so many steps of net, losses and optimisers alone."""
    start = time.process_time()
    for _ in range(number):
        for optimizer in run.optimizers:
            optimizer.zero_grad(set_to_none=True)
        total, _ = run.objective(run.model(pixels), labels)
        total.backward()
        for optimizer in run.optimizers:
            optimizer.step()
    return time.process_time() - start


def ours(run, recipe, data, folder: Path, number: int) -> float:
    """Seconds of so many steps of the loop, log included."""
    log = Log(folder, step=run.step)
    moments = loop.steps(run, recipe, data, folder)
    next(moments)  # what is done once per epoch is not a step's
    start = time.process_time()
    for _ in range(number):
        log.moment(next(moments))
    seconds = time.process_time() - start
    run.step = 0
    return seconds


def loop_overhead(number: int, rounds: int) -> None:
    data = load("glyphs")
    recipe = resolve("glyphs-happier", ["log_every=1", "images.augment=none"])
    run = begin(recipe, data)
    images = images_of("glyphs", data.train, recipe.images, vary=True)
    batches = plan(data.train.labels, recipe.sampler, seed=0, epoch=0, steps=1)
    pixels, rows = next(training_batches(images, batches, workers=0))
    pixels = pixels.to(memory_format=run.layout)
    labels = torch.from_numpy(data.train.labels.astype(np.int64))[rows]
    torch.set_num_threads(1)
    ratios, rates = [], []
    with tempfile.TemporaryDirectory() as folder:
        bare(run, pixels, labels, 2)
        for _ in range(rounds):
            alone, whole = bare(run, pixels, labels, number), ours(run, recipe, data, Path(folder), number)
            ratios.append(whole / alone)
            rates.append(number * recipe.sampler.batch / whole)
    best, middle = min(ratios), statistics.median(ratios)
    print(f"loop / bare step          median {middle:.3f}, least {best:.3f}   ({rounds} rounds of {number} steps)")
    start = time.process_time()
    varied = images_of("glyphs", data.train, resolve("glyphs-happier").images, vary=True)
    held = plan(data.train.labels, recipe.sampler, seed=0, epoch=1, steps=number)
    for _ in training_batches(varied, held, workers=0):
        pass
    loading = number * recipe.sampler.batch / (time.process_time() - start)
    print(f"images/s trained          {statistics.median(rates):,.0f}")
    print(
        f"images/s varied in memory {loading:,.0f}   ({loading / statistics.median(rates):.0f} times what is trained)"
    )


def decoding(number: int) -> None:
    rng = np.random.default_rng(0)
    smooth = Image.fromarray(rng.integers(0, 255, (12, 16, 3), dtype=np.uint8)).resize(
        (500, 375), Image.Resampling.BICUBIC
    )
    stored = io.BytesIO()
    smooth.save(stored, "JPEG", quality=90)
    for name in ("resized_crop", "crop", "none"):
        prepare = augmentations[name](Images())
        start = time.process_time()
        for _ in range(number):
            stored.seek(0)
            prepare(Image.open(stored))
        print(f"images/s decoded, {name:<12}{number / (time.process_time() - start):>8,.0f}   (one process)")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=5)
    chosen = parser.parse_args()
    loop_overhead(chosen.steps, chosen.rounds)
    decoding(200)
