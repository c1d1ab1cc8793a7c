"""How long label trees take at the size of iNaturalist 2018: 461,939 items, 8,142 classes, 7
levels.

Every time is also given as a multiple of `np.unique` of the same label columns, measured in the
same run.

    python benchmarks/trees.py
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from hbench.datasets import manifest
from hbench.look.plots.tree import draw_tree
from hbench.tree import LabelTree
from hbench.tree.names import NameTable, find_problems
from hbench.tree.policies import mend

NODES = (6, 25, 57, 273, 1120, 4412, 8142)
ITEMS = 461_939
LEVELS = ("kingdom", "phylum", "class", "order", "family", "genus", "species")


def main() -> None:
    """Make a tree of that size, and print the seconds of each thing that is done with one."""
    # of every species, its node at each level, coarse to fine
    path = [np.arange(NODES[-1])]
    for above, own in zip(NODES[-2::-1], NODES[:0:-1], strict=True):
        path.insert(0, path[0] * above // own)
    labels = np.stack(path, axis=1)[np.random.default_rng(0).integers(NODES[-1], size=ITEMS)]
    names = [
        [f"{level} {i}" for i in range(nodes)] for level, nodes in zip(LEVELS, NODES, strict=True)
    ]
    columns = [[own[i] for i in ids] for own, ids in zip(names, labels.T, strict=True)]
    rows = list(zip(*columns, strict=True))
    tree, ids = LabelTree.from_columns(columns, levels=LEVELS)
    everyone = np.ones(ITEMS, dtype=bool)
    items = np.array([f"train_val2018/{i:07d}.jpg" for i in range(ITEMS)], dtype=object)
    table = NameTable.of(LEVELS, rows)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "manifest.parquet"
        manifest.Manifest(items, ids, tree, everyone, everyone).write(file)
        unit = seconds(lambda: [np.unique(column, return_inverse=True) for column in labels.T])
        report("np.unique of the label columns", unit, unit)
        report("LabelTree.from_labels", seconds(lambda: LabelTree.from_labels(labels)), unit)
        report(
            "LabelTree.from_columns",
            seconds(lambda: LabelTree.from_columns(columns, levels=LEVELS)),
            unit,
        )
        report(
            "LabelTree.from_names", seconds(lambda: LabelTree.from_names(rows, levels=LEVELS)), unit
        )
        report("manifest.read", seconds(lambda: manifest.read(file)), unit)
    report("find_problems", seconds(lambda: find_problems(table)), unit)
    report("mend by-path", seconds(lambda: mend(table, ["by-path"])), unit)
    items = tree.counts(ids)[-1]
    report("draw", seconds(lambda: draw_tree(tree, items, "benchmark").as_bytes("svg")), unit)


def seconds(action: Callable[[], object], times: int = 3) -> float:
    """The least seconds of several runs of an action."""
    found = []
    for _ in range(times):
        start = time.perf_counter()
        action()
        found.append(time.perf_counter() - start)
    return min(found)


def report(what: str, took: float, unit: float) -> None:
    """Print seconds, also as a multiple of `unit`, the seconds of np.unique."""
    print(f"{what:<34}{took:8.3f} s {took / unit:8.2f} ×")


if __name__ == "__main__":
    main()
