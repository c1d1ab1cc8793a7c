"""Summarises queries by class: mean values, and the confusion of coarse classes."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from hbench.datasets.manifest import Manifest
from hbench.engine.top_k import NO_ITEM
from hbench.look.plots.confusion import confusion
from hbench.look.report.runs import Floats, Reported
from hbench.look.strips.retrievals import TopLists
from hbench.metrics.names import factor_of, goodness
from hbench.tree.partial import shown_along
from hbench.tree.statistics import means_of_nodes

# up to ALL classes of a level are all listed; of more, the worst and the best
ALL = 60
WORST = 30
BEST = 8
MATRIX = 24  # most classes in a readable confusion matrix
PAIRS = 12
SHADES = (0.005, 0.05, 0.2, 0.5)  # shares from which a cell is darker


class ClassMean(NamedTuple):
    """A node of the tree: its number in its level, its path of names, its queries with a value, and
    the mean of each run.
    """

    node: int
    path: tuple[str, ...]
    queries: int
    means: tuple[float, ...]


class ClassTable(NamedTuple):
    """The classes of a level, worst first; of many, only the `worst` and the `best`. `longest`: the
    value of a full bar.
    """

    level: str
    depth: int
    number: int
    worst: list[ClassMean]
    best: list[ClassMean]
    longest: float


class ConfusionView(NamedTuple):
    """The confusion of a run, by its number. `right`: the share on the diagonal; `matrix`:
    (queries, share, shade 0 … 4) of every cell, by row, empty for too many classes; `pairs`:
    (class, class of the first result, queries, share) of frequent mistakes, the classes by number.
    """

    run: int
    name: str
    right: float
    names: tuple[str, ...]
    matrix: list[list[tuple[int, float, int]]]
    pairs: list[tuple[int, int, int, float]]


def class_means(
    manifest: Manifest, values: list[Floats], level: int, *, metric: str
) -> list[ClassMean]:
    """Average a metric's values (Q,) over the queries of every class of a level, 0 the coarsest;
    the first run's worst first.

    Classes without queries are left out.
    """
    tree = manifest.tree
    labels = manifest.labels[manifest.query]
    # queries for which every run has a value, so that the means compare
    defined = ~np.isnan(np.stack(values)).any(axis=0)
    counts = np.bincount(labels[defined, level], minlength=len(tree.names[level]))
    # (runs, nodes of the level)
    means = np.stack(
        [means_of_nodes(tree, labels[defined], of_run[defined])[level] for of_run in values]
    )
    order = np.argsort(goodness(metric, means[0]), kind="stable")
    # a path that leads through each node, by which its names are known
    first = np.unique(tree.paths[:, level], return_index=True)[1]
    # of every node, from the coarsest level
    paths = [shown_along(tree, path) for path in tree.paths[first, : level + 1].tolist()]
    some = [node for node in order.tolist() if counts[node]]

    return [
        ClassMean(node, paths[node], int(counts[node]), tuple(means[:, node].tolist()))
        for node in some
    ]


def class_tables(reported: Reported) -> list[ClassTable]:
    """Make a table per level, finest first, of the runs with values by query; none without such
    runs.
    """
    values = [run.values[reported.by] for run in reported.runs if reported.by in run.values]
    manifest = reported.manifest
    if manifest is None or not values:
        return []

    tables = []
    for level in reversed(range(manifest.tree.depth)):
        means = class_means(manifest, values, level, metric=reported.by)
        if not means:  # no query of it has a value by all runs
            continue
        # of a long table only both ends are shown
        cut = WORST if len(means) > ALL else len(means)
        best = means[-BEST:] if cut < len(means) else []
        # the widest bar of the table, by which the others are drawn
        longest = _longest_bar(reported.by, means)
        tables.append(
            ClassTable(manifest.levels[level], level, len(means), means[:cut], best, longest)
        )

    return tables


def _longest_bar(metric: str, means: Sequence[ClassMean]) -> float:
    """The value of a full bar: 1 for fractions, else the largest mean."""
    if factor_of(metric) == 100:
        return 1.0
    return max([1e-9, *(mean for each in means for mean in each.means)])


def confusions(reported: Reported) -> list[ConfusionView]:
    """Make the confusion of the coarsest level for every run with results."""
    manifest = reported.manifest
    if manifest is None:
        return []
    runs = enumerate(reported.runs)
    return [
        _confusion_view(manifest, number, run.name, run.top)
        for number, run in runs
        if run.top is not None
    ]


def _confusion_view(manifest: Manifest, run: int, name: str, top: TopLists) -> ConfusionView:
    """Which groups of the coarsest level the results at rank 1 come from: all pairs as a square if
    they fit, and the pairs that are mistaken most often. `run`, `name`: the run's number and name;
    `top`: its first results."""
    names = manifest.tree.names[0]
    counts = confusion(manifest, top)  # (C, C): queries of group i, answered by one of group j
    # a group without queries has shares of 0
    totals = np.maximum(counts.sum(axis=1), 1)
    shares = counts / totals[:, None]
    # which shade of the page a share has
    shades = np.searchsorted(SHADES, shares, side="right")
    rows = zip(counts.tolist(), shares.tolist(), shades.tolist(), strict=True)
    matrix = [list(zip(*row, strict=True)) for row in rows] if len(names) <= MATRIX else []
    wrong = np.where(np.eye(len(names), dtype=bool), 0, counts)
    # cells (row, column) of the largest counts beside the diagonal
    worst = [
        divmod(place, len(names))
        for place in np.argsort(-wrong, axis=None, kind="stable")[:PAIRS].tolist()
    ]
    pairs = [(*cell, int(wrong[cell]), float(shares[cell])) for cell in worst if wrong[cell]]

    return ConfusionView(
        run, name, float(np.trace(counts) / max(1, counts.sum())), names, matrix, pairs
    )


def levels_within(top: TopLists, depth: int, k: int) -> list[float]:
    """Compute the share of each level, 0 … L, among the first k results of all queries."""
    listed = top.items[:, :k] != NO_ITEM
    counts = np.bincount(top.levels[:, :k][listed], minlength=depth + 1)
    shares: list[float] = (counts / max(1, counts.sum())).tolist()
    return shares
