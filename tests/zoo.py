"""A dataset of a few thousand animals in three levels and an embedding file of it: several blocks,
ties and copies.
"""

from __future__ import annotations

import numpy as np

from hbench.datasets import manifest
from hbench.submissions import embeddings

DATASET, FILE = "zoo.parquet", "zoo.npy"


def make(folder, *, items=2_300, seed=0):
    """Write DATASET and FILE (with ids beside it) to the folder."""
    rng = np.random.default_rng(seed)
    species = rng.integers(40, size=items)
    rows = [(f"order{s // 20}", f"family{s // 5}", f"species{s}") for s in species]
    names = [f"{row[2]}/{i}.jpg" for i, row in enumerate(rows)]
    zoo = manifest.from_names(names, rows, levels=["order", "family", "species"])
    zoo.write(folder / DATASET)
    vectors = rng.normal(size=(40, 12))[species] + rng.normal(size=(items, 12))
    vectors[::9] = vectors[0]
    order = rng.permutation(items)
    embeddings.write(folder / FILE, [names[i] for i in order], vectors[order].astype(np.float16))


def make_models(folder, noises):
    """Write a dataset of 4 species in 2 families as DATASET, and to `models` an embedding file of
    each noise by its name.
    """
    rng = np.random.default_rng(0)
    items = [f"{i}.jpg" for i in range(80)]
    rows = [(f"family{i % 2}", f"species{i % 4}") for i in range(80)]
    manifest.from_names(items, rows, levels=["family", "species"]).write(folder / DATASET)
    centres = rng.normal(size=(4, 8))
    (folder / "models").mkdir()
    for name, noise in noises.items():
        vectors = centres[np.arange(80) % 4] + noise * rng.normal(size=(80, 8))
        embeddings.write(folder / "models" / name, items, vectors.astype(np.float32))
    return folder


def same(first, second):
    """Whether two reports are the same to the bit, per query and in every mean and interval."""
    return first.document == second.document and all(
        np.array_equal(values, second.values[name], equal_nan=True)
        for name, values in first.values.items()
    )
