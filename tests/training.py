"""Helpers of the training tests: a small part of glyphs, recipes for it, signals at a step, and a
folder of pictures.
"""

from __future__ import annotations

import os
import signal

import numpy as np
from PIL import Image

from hbench import datasets
from hbench.datasets import Dataset
from hbench.datasets import manifest as manifests
from hbench.train.recipes.files import resolve
from hbench.tree.names import class_rows
from tests.command_line import call

TINY = [
    "sampler.batch=16",
    "epochs=2",
    "steps_per_epoch=3",
    "log_every=1",
    "checkpoint_every=0",
    "model.dim=8",
]


def part_of(manifest, *, classes):
    """The items of the first fine classes, in the manifest's order."""
    rows = np.flatnonzero(manifest.labels[:, -1] < classes)
    names = class_rows(manifest.tree)
    named = [names[fine] for fine in manifest.labels[rows, -1]]
    return manifests.from_names(manifest.items[rows].tolist(), named, levels=manifest.levels)


def small_glyphs(train=24, test=12):
    """glyphs with this many classes; its images are drawn as for the whole."""
    whole = datasets.load("glyphs")
    splits = {
        "train": part_of(whole.train, classes=train),
        "test": part_of(whole.tests["test"], classes=test),
    }
    return Dataset("glyphs", "1", whole.protocol, splits["train"], {"test": splits["test"]})


def tiny(name="glyphs-happier", *changes):
    return resolve(name, [*TINY, *changes])


def signalled_at(step, number=signal.SIGINT):
    """A callback that sends this process a signal after a step."""

    def watch(moment):
        if moment.step == step:
            os.kill(os.getpid(), number)

    return watch


def build_pictures(folder):
    """Write 24 pictures of noise, two of each species, to `pictures`, and build a dataset of them
    in `data`.
    """
    for species in range(12):
        for shot in range(2):
            file = folder / "pictures" / f"g{species // 4}" / f"s{species}" / f"{shot}.png"
            file.parent.mkdir(parents=True, exist_ok=True)
            Image.effect_noise((16, 16), 20 + 10 * species).save(file)
    call(
        "build",
        "noise",
        "--from",
        folder / "pictures",
        "--levels",
        "genus,species",
        "--out",
        folder / "data",
    )
    return folder / "data"
