"""What the training tests share: a small part of glyphs, and recipes for it."""

from __future__ import annotations

import numpy as np

from hbench import datasets
from hbench.datasets import Dataset
from hbench.datasets import manifest as manifests
from hbench.train.recipes.files import resolve

TINY = ["sampler.batch=16", "epochs=2", "steps_per_epoch=3", "log_every=1", "checkpoint_every=0", "model.dim=8"]


def part_of(manifest, *, classes):
    """The items of the first fine classes, in the manifest's order."""
    rows = np.flatnonzero(manifest.labels[:, -1] < classes)
    names = [
        [names[i] for names, i in zip(manifest.tree.names, labels, strict=True)] for labels in manifest.labels[rows]
    ]
    return manifests.from_names(manifest.items[rows].tolist(), names, levels=manifest.levels)


def small_glyphs(train=24, test=12):
    """glyphs with so many classes; its images are drawn as for the whole."""
    whole = datasets.load("glyphs")
    splits = {"train": part_of(whole.train, classes=train), "test": part_of(whole.tests["test"], classes=test)}
    return Dataset("glyphs", "1", whole.protocol, splits["train"], {"test": splits["test"]})


def tiny(name="glyphs-happier", *changes):
    return resolve(name, [*TINY, *changes])
