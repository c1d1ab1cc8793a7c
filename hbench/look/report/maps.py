"""Writes what the tree and the map of a report show: the values of every node of the tree, and the places of its classes.

The values of each metric are a script of their own, loaded when somebody colours the tree by it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from hbench.datasets.manifest import Manifest
from hbench.look.pages.scripts import write_script
from hbench.look.pages.tree_data import rounded, tree_data
from hbench.look.report.runs import ClassPlaces, Reported
from hbench.tree.statistics import means_of_nodes


def metrics_of(reported: Reported) -> list[str]:
    """The metrics that all runs with values have, the one that ranks first."""
    kept = [run.values for run in reported.runs if run.values]
    common = [name for name in (kept[0] if kept else ()) if all(name in values for values in kept)]
    return sorted(common, key=lambda name: name != reported.by)


def valued_runs(reported: Reported) -> list[tuple[int, str]]:
    """The numbers and names of the runs whose values by query are kept."""
    return [(number, run.name) for number, run in enumerate(reported.runs) if run.values]


def mapped_runs(reported: Reported) -> list[tuple[int, str, ClassPlaces]]:
    """The numbers, names and maps of the runs whose vectors were given."""
    return [(number, run.name, run.places) for number, run in enumerate(reported.runs) if run.places is not None]


def write_tree(folder: Path, reported: Reported) -> None:
    """Write tree.js, and tree-RUN-METRIC.js with the means of every node, by the metric's number."""
    manifest = reported.manifest
    assert manifest is not None
    tree, metrics = manifest.tree, metrics_of(reported)
    items = np.bincount(manifest.labels[:, -1], minlength=len(tree.paths))
    drawn = tree_data(tree, items)
    write_script(folder, "tree", drawn | {"metrics": metrics})
    labels = manifest.labels[manifest.query]
    for number, _ in valued_runs(reported):
        for place, metric in enumerate(metrics):
            means = means_of_nodes(tree, labels, reported.runs[number].values[metric])
            ordered = [rounded(own[order]) for own, order in zip(means, drawn["nodes"], strict=True)]
            write_script(folder, f"tree-{number}-{place}", ordered)


def write_map(folder: Path, reported: Reported) -> None:
    """Write map-RUN.js of every run that has a map: classes, places in 0 … 1000, and the classes' means."""
    manifest = reported.manifest
    assert manifest is not None
    for number, _, places in mapped_runs(reported):
        write_script(folder, f"map-{number}", _map_data(reported, manifest, number, places))


def _map_data(reported: Reported, manifest: Manifest, number: int, places: ClassPlaces) -> dict[str, Any]:
    low, high = places.places.min(axis=0), places.places.max(axis=0)
    scaled = (1000 * (places.places - low) / max(float((high - low).max()), 1e-12)).round(1)
    labels, values = manifest.labels[manifest.query], reported.runs[number].values.get(reported.by)
    means = None if values is None else means_of_nodes(manifest.tree, labels, values)[-1][places.nodes]
    return {
        "classes": places.nodes.tolist(),
        "x": scaled[:, 0].tolist(),
        "y": scaled[:, 1].tolist(),
        "value": None if means is None else rounded(means),
        "items": np.bincount(manifest.labels[:, -1], minlength=len(manifest.tree.paths))[places.nodes].tolist(),
    }
