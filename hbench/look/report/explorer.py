"""Writes what the explorer shows: an index and the queries at once, results and items in scripts that load when needed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hbench.datasets.manifest import Manifest
from hbench.engine.top_k import NO_ITEM
from hbench.look.pages.scripts import write_chunks, write_script
from hbench.look.pages.tree_data import rounded
from hbench.look.report.runs import Reported, TopLists
from hbench.metrics.names import lower_is_better

QUERIES, ITEMS = 256, 2048  # in one script: some 50 and 100 KB
DIGITS = 4


def write_data(folder: Path, reported: Reported, places: NDArray[np.int32]) -> None:
    """Write the scripts of the explorer; `places` (N,): where the pictures of all items are."""
    manifest = reported.manifest
    assert manifest is not None
    folder.mkdir()
    write_script(folder, "index", _index(reported, manifest))
    write_script(folder, "queries", _queries(reported, manifest))
    write_chunks(folder, "items", _items(manifest, places), ITEMS)
    for number, run in enumerate(reported.runs):
        if run.top is not None:
            write_chunks(folder, f"run{number}", _results(run.top), QUERIES)


def _index(reported: Reported, manifest: Manifest) -> dict[str, Any]:
    tree = manifest.tree
    return {
        "levels": list(tree.levels),
        "names": [list(names) for names in tree.names],
        "paths": tree.paths.tolist(),
        "by": reported.by,
        "lower_is_better": lower_is_better(reported.by),
        "runs": [{"name": run.name, "kept": run.top is not None} for run in reported.runs],
        "items": len(manifest),
        "item_chunk": ITEMS,
        "query_chunk": QUERIES,
    }


def _queries(reported: Reported, manifest: Manifest) -> dict[str, Any]:
    """By column: the queries' items and fine classes, and of every run the values and the levels of the first results."""
    values = [rounded(run.values[reported.by]) if reported.by in run.values else None for run in reported.runs]
    first = [None if run.top is None else run.top.levels[:, 0].tolist() for run in reported.runs]
    asked = np.flatnonzero(manifest.query)
    return {"item": asked.tolist(), "cls": manifest.labels[asked, -1].tolist(), "value": values, "first": first}


def _items(manifest: Manifest, places: NDArray[np.int32]) -> list[tuple[str, int, int]]:
    """Id, fine class, and place among the pictures of every item."""
    return list(zip(map(str, manifest.items), manifest.labels[:, -1].tolist(), places.tolist(), strict=True))


def _results(top: TopLists) -> list[tuple[list[int], list[float], list[int]]]:
    """The items, similarities and levels of every query's results."""
    lengths = (top.items != NO_ITEM).sum(axis=1).tolist()
    columns = top.items.tolist(), np.nan_to_num(top.scores).round(DIGITS).tolist(), top.levels.tolist()
    return [(items[:n], scores[:n], levels[:n]) for items, scores, levels, n in zip(*columns, lengths, strict=True)]
