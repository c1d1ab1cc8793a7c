"""What the training loop costs over the bare net, and whether decoding keeps up; ratios within one run.

    python benchmarks/train.py [--steps 38]

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
from hbench.train.images.batches import images_of, training_batches
from hbench.train.images.sampler import plan
from hbench.train.images.transforms import augmentations
from hbench.train.recipes.files import resolve
from hbench.train.recipes.recipe import Images
from hbench.train.records.log import Log
from hbench.train.run import begin


def bare(run, pixels: torch.Tensor, labels: torch.Tensor) -> None:
    """A step of net, losses and optimisers alone."""
    for optimizer in run.optimizers:
        optimizer.zero_grad(set_to_none=True)
    total, _ = run.objective(run.model(pixels), labels)
    total.backward()
    for optimizer in run.optimizers:
        optimizer.step()


def loop_overhead(number: int) -> None:
    torch.set_num_threads(1)
    data = load("glyphs")
    recipe = resolve("glyphs-happier", ["log_every=1", "images.augment=none"])
    run = begin(recipe, data)
    images = images_of("glyphs", data.train, recipe.images, vary=True)
    labels = torch.from_numpy(data.train.labels.astype(np.int64))
    ahead = plan(data.train.labels, recipe.sampler, seed=0, epoch=0, steps=number)
    batches = [
        (pixels.to(memory_format=run.layout), labels[rows])
        for pixels, rows in training_batches(images, ahead, workers=0)
    ]
    whole, alone = [], []
    with tempfile.TemporaryDirectory() as folder:
        log = Log(Path(folder), step=0)
        moments = loop.steps(run, recipe, data, Path(folder))
        for batch in batches:
            start = time.process_time()
            log.moment(next(moments))
            middle = time.process_time()
            bare(run, *batch)
            whole.append(middle - start)
            alone.append(time.process_time() - middle)
    ratios = [one / other for one, other in zip(whole[1:], alone[1:], strict=True)]  # the first step warms up
    rate = recipe.sampler.batch / statistics.median(whole)
    print(
        f"loop / bare step          median {statistics.median(ratios):.3f}   ({len(ratios)} pairs of steps on the same batch)"
    )
    print(f"images/s trained          {rate:,.0f}")
    varied = images_of("glyphs", data.train, resolve("glyphs-happier").images, vary=True)
    start = time.process_time()
    for _ in training_batches(varied, ahead, workers=0):
        pass
    loading = number * recipe.sampler.batch / (time.process_time() - start)
    print(f"images/s varied in memory {loading:,.0f}   ({loading / rate:.0f} times what is trained)")


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
    parser.add_argument("--steps", type=int, default=38)
    chosen = parser.parse_args()
    loop_overhead(chosen.steps)
    decoding(200)
