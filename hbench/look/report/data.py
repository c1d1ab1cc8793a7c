"""Writes the data of a report's explorer, tree and map as scripts, so that pages can load large
data on demand.

Results and items are split into scripts of many rows. The means of a metric for the nodes of the
tree are in a script of their own, which is loaded when the tree is coloured by that metric.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hbench.datasets.manifest import Manifest
from hbench.engine.top_k import NO_ITEM
from hbench.look.pages.folder import write_script
from hbench.look.pages.tree_data import rounded, tree_data
from hbench.look.plots.class_map import ClassPlaces
from hbench.look.report.runs import Reported
from hbench.look.strips.retrievals import TopLists
from hbench.metrics.names import factor_of, lower_is_better
from hbench.tree.partial import shown_names
from hbench.tree.statistics import means_of_nodes

# rows per script; a script of queries has about 50 KB, one of items about 100 KB
QUERIES = 256
ITEMS = 2048
DIGITS = 3  # as the page shows similarities, so that they are rounded once
SAMPLES = 3  # pictures of a class on the map


def metrics_of(reported: Reported) -> list[str]:
    """List the metrics that all runs with values have, with the one that ranks first."""
    kept = [run.values for run in reported.runs if run.values]
    if not kept:
        return []
    shared = set(kept[0]).intersection(*kept)
    common = [name for name in kept[0] if name in shared]
    return sorted(common, key=lambda name: name != reported.by)


def valued_runs(reported: Reported) -> list[tuple[int, str]]:
    """List the numbers and names of the runs with values by query."""
    return [(number, run.name) for number, run in enumerate(reported.runs) if run.values]


def mapped_runs(reported: Reported) -> list[tuple[int, str, ClassPlaces]]:
    """List the numbers, names and maps of the runs with vectors."""
    return [
        (number, run.name, run.places)
        for number, run in enumerate(reported.runs)
        if run.places is not None
    ]


def write_data(folder: Path, reported: Reported, places: NDArray[np.int32], images: str) -> None:
    """Write the scripts that the pages of explorer, tree and map load: `index`, the table of
    queries, the items, the tree, and the results and map of each run that has them.

    Args:
        folder: the folder of the scripts, which is made.
        reported: the runs, with their dataset.
        places: (N,) the place of each item's picture on the sheets, −1 without one.
        images: the address of the folder with the images in full size, or "" if the pages cannot
            reach them.
    """
    manifest = reported.manifest
    assert manifest is not None  # without a dataset these pages are left out
    folder.mkdir()
    write_script(folder, "index", _index_data(reported, manifest) | {"images": images})
    write_script(folder, "queries", _columns_of_queries(reported, manifest))
    fine = manifest.labels[:, -1]  # (N,): the finest class of each item
    _write_chunks(folder, "items", _rows_of_items(manifest, places), ITEMS)
    # (C,): the number of items of each finest class
    items = np.bincount(fine, minlength=len(manifest.tree.paths))
    _write_tree(folder, reported, manifest, items)

    for number, run in enumerate(reported.runs):
        if run.top is not None:
            _write_chunks(folder, f"run{number}", _rows_of_results(run.top), QUERIES)
        if run.places is not None:  # of classes on the map; `places` are of pictures on the sheets
            values = run.values.get(reported.by)
            labels = manifest.labels[manifest.query]
            # the mean of the metric for each class of the finest level
            means = None if values is None else means_of_nodes(manifest.tree, labels, values)[-1]
            drawn = _map_data(run.places, items, means)
            has_picture = places >= 0
            # for each class on the map, the places of its first SAMPLES pictures
            of_class = [
                places[np.flatnonzero((fine == node) & has_picture)[:SAMPLES]].tolist()
                for node in drawn["classes"]
            ]
            write_script(folder, f"map-{number}", drawn | {"pictures": of_class})


def _rows_of_items(manifest: Manifest, places: NDArray[np.int32]) -> list[list[Any]]:
    """List a row for every item: its id, the number of its finest class, and its picture's place on
    the sheets (N,), −1 without one. An item with several paths has a fourth entry, the list of the
    finest classes of its further paths."""
    columns = zip(
        map(str, manifest.items), manifest.labels[:, -1].tolist(), places.tolist(), strict=True
    )
    rows: list[list[Any]] = list(map(list, columns))
    if manifest.more is None:  # every item has one path
        return rows

    classes_of_item: dict[int, list[int]] = {}
    more = zip(manifest.more.items.tolist(), manifest.more.labels[:, -1].tolist(), strict=True)
    for item, cls in more:
        classes_of_item.setdefault(item, []).append(cls)
    for item, classes in classes_of_item.items():
        rows[item].append(classes)
    return rows


def _write_chunks(folder: Path, name: str, rows: Sequence[Any], size: int) -> None:
    """Write rows in scripts of `size` rows each: NAME-0.js, NAME-1.js, …"""
    for number, start in enumerate(range(0, len(rows), size)):
        write_script(folder, f"{name}-{number}", rows[start : start + size])


def _index_data(reported: Reported, manifest: Manifest) -> dict[str, Any]:
    """Collect what the explorer loads first: names, paths, runs, and how the items and queries are
    split into scripts."""
    tree = manifest.tree
    return {
        "levels": list(tree.levels),
        "names": shown_names(tree),
        "paths": tree.paths.tolist(),
        "by": reported.by,
        "lower_is_better": lower_is_better(reported.by),
        "factor": factor_of(reported.by),  # values are printed times this: 100 for percent
        # kept: whether the run's results were kept, without which no strip can be shown
        "runs": [{"name": run.name, "kept": run.top is not None} for run in reported.runs],
        "items": len(manifest),
        # how many items, and how many queries, are in one script
        "item_chunk": ITEMS,
        "query_chunk": QUERIES,
    }


def _columns_of_queries(reported: Reported, manifest: Manifest) -> dict[str, Any]:
    """Collect the columns of the queries' table, each a list of Q entries.

    `item` is each query's position in the manifest, `cls` the number of its finest class. The other
    three are lists with a column for every run, None for a run without values or results: `value`
    of the metric, `first` the level of the first result, `taken` the first result's coarsest class.
    """
    values = [
        rounded(run.values[reported.by]) if reported.by in run.values else None
        for run in reported.runs
    ]
    first = [None if run.top is None else run.top.levels[:, 0].tolist() for run in reported.runs]
    coarse = manifest.labels[:, 0]
    # the coarsest class of each first result, −1 for a query without any result; there NO_ITEM is
    # −1 and reads the last item's class, which `where` replaces
    taken = [
        None
        if run.top is None
        else np.where(run.top.items[:, 0] == NO_ITEM, -1, coarse[run.top.items[:, 0]]).tolist()
        for run in reported.runs
    ]
    queries = np.flatnonzero(manifest.query)
    classes = manifest.labels[queries, -1].tolist()

    return {
        "item": queries.tolist(),
        "cls": classes,
        "value": values,
        "first": first,
        "taken": taken,
    }


def _rows_of_results(top: TopLists) -> list[list[Any]]:
    """List a row for each query, which the page's script reads by position.

    A row has the items of the results, their similarities and their levels; how many results are
    copies of the query (they come first); and rank, item and similarity of the first right result.
    This rank is 0 if the first right result is not known, or is among the listed results.
    """
    lengths = (top.items != NO_ITEM).sum(axis=1)
    scores = np.nan_to_num(top.scores).round(DIGITS)  # NaN is not valid JSON
    copies = top.copies.sum(axis=1)
    right = _right_beyond(top, lengths)  # (rank, item, similarity) of each query

    rows = []
    for query, length in enumerate(lengths.tolist()):
        results = [part[query, :length].tolist() for part in (top.items, scores, top.levels)]
        rows.append([*results, int(copies[query]), *right[query]])
    return rows


def _right_beyond(top: TopLists, lengths: NDArray[np.int64]) -> list[tuple[int, int, float]]:
    """Return rank, item and similarity of every query's first result of its finest class.

    The rank is 0 if this result is not known, or is among the first `lengths` (Q,) results, which
    are listed anyway.
    """
    if top.right is None:
        return [(0, 0, 0.0)] * len(lengths)
    ranks = np.where(top.right.ranks > lengths, top.right.ranks, 0)
    # NaN, of a query without a right result, is not valid JSON
    scores = np.nan_to_num(top.right.scores).round(DIGITS)
    columns = (ranks.tolist(), top.right.items.tolist(), scores.tolist())
    return list(zip(*columns, strict=True))


def _write_tree(
    folder: Path, reported: Reported, manifest: Manifest, items: NDArray[np.int64]
) -> None:
    """Write tree.js, and for every run and metric tree-RUN-METRIC.js with the mean of each node.
    RUN and METRIC are their numbers. `items` (C,) are the numbers of items of the finest classes.
    """
    drawn = tree_data(manifest.tree, items)
    metrics = metrics_of(reported)
    write_script(
        folder,
        "tree",
        drawn | {"metrics": metrics, "factors": [factor_of(metric) for metric in metrics]},
    )
    labels = manifest.labels[manifest.query]

    for number, _ in valued_runs(reported):
        for column, metric in enumerate(metrics):
            # an array (nodes of the level,) for each level
            means = means_of_nodes(manifest.tree, labels, reported.runs[number].values[metric])
            # `drawn["nodes"]` has the nodes of each level in the order in which the page draws them
            ordered = [
                rounded(values[order]) for values, order in zip(means, drawn["nodes"], strict=True)
            ]
            write_script(folder, f"tree-{number}-{column}", ordered)


def _map_data(
    places: ClassPlaces, items: NDArray[np.int64], means: NDArray[np.float64] | None
) -> dict[str, Any]:
    """Collect the classes of a map, with their places scaled to 0 … 1000, their numbers of items
    and their mean values. `items` and `means` (C,) cover all classes, also those not on the map."""
    low = places.places.min(axis=0)
    high = places.places.max(axis=0)
    # scale both axes by the longer one, so that distances stay comparable; 1e-12 avoids a division
    # by 0 if all classes are at one place
    scaled = (1000 * (places.places - low) / max(float((high - low).max()), 1e-12)).round(1)
    return {
        "classes": places.nodes.tolist(),
        "x": scaled[:, 0].tolist(),
        "y": scaled[:, 1].tolist(),
        "value": None if means is None else rounded(means[places.nodes]),
        "items": items[places.nodes].tolist(),
    }
