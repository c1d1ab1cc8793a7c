"""Summarises queries by class: mean values, and confusions between coarse classes."""

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

# a table lists up to ALL classes of a level; of more classes, the worst and the best
ALL = 60
WORST = 30
BEST = 8
MATRIX = 24  # most classes in a readable confusion matrix
PAIRS = 12
SHADES = (0.005, 0.05, 0.2, 0.5)  # a cell gets darker at each of these shares


class ClassMean(NamedTuple):
    """A class of a level, which is a node of the tree.

    Attributes:
        node: the class's number in its level.
        path: the names from the coarsest level down to the class.
        queries: the number of its queries for which every run has a value.
        means: the mean value of these queries, for each run.
    """

    node: int
    path: tuple[str, ...]
    queries: int
    means: tuple[float, ...]


class ClassTable(NamedTuple):
    """The table of the classes of a level, sorted from worst to best.

    Attributes:
        level: the name of the level.
        depth: the level, 0 for the coarsest.
        number: the number of classes with values.
        worst: all classes of a short table, else the first WORST.
        best: the last BEST classes of a long table, else empty.
        longest: the value of a full bar.
    """

    level: str
    depth: int
    number: int
    worst: list[ClassMean]
    best: list[ClassMean]
    longest: float


class ConfusionView(NamedTuple):
    """The confusions of a run between the classes of the coarsest level.

    Attributes:
        run: the run's number.
        name: the run's name.
        right: the share of queries on the diagonal: the first result has the query's coarsest
            class.
        names: the names of the classes.
        matrix: (queries, share, shade 0 … 4) of every cell, by row; empty for too many classes.
        pairs: frequent mistakes as (class of the query, class of the first result, queries, share);
            the classes are numbers.
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
    """Average the values of a metric over the queries of every class of a level.

    Only queries that have a value in every run count. A class without such queries is left out.

    Args:
        manifest: the items and labels of the test.
        values: an array (Q,) for each run, NaN where undefined.
        level: the level whose classes are listed, 0 for the coarsest.
        metric: the metric of the values, which tells whether higher is better.

    Returns the classes sorted by the first run's mean, worst first.
    """
    tree = manifest.tree
    labels = manifest.labels[manifest.query]
    # only queries for which every run has a value, so that the runs' means can be compared
    defined = ~np.isnan(np.stack(values)).any(axis=0)
    counts = np.bincount(labels[defined, level], minlength=len(tree.names[level]))
    # (runs, nodes of the level); means_of_nodes returns an array for each level
    means = np.stack(
        [means_of_nodes(tree, labels[defined], of_run[defined])[level] for of_run in values]
    )
    # goodness: the means, negated for a metric whose lower values are better
    order = np.argsort(goodness(metric, means[0]), kind="stable")
    # for each node (np.unique sorts them), the number of its first path, which names its ancestors
    first = np.unique(tree.paths[:, level], return_index=True)[1]
    # for each node, the names from the coarsest level down to it
    paths = [shown_along(tree, path) for path in tree.paths[first, : level + 1].tolist()]
    with_queries = [node for node in order.tolist() if counts[node]]

    return [
        ClassMean(
            node=node,
            path=paths[node],
            queries=int(counts[node]),
            means=tuple(means[:, node].tolist()),
        )
        for node in with_queries
    ]


def class_tables(reported: Reported) -> list[ClassTable]:
    """Make a table of the classes of each level, finest level first. Only runs with values by query
    are in it; without such runs there are no tables."""
    values = [run.values[reported.by] for run in reported.runs if reported.by in run.values]
    manifest = reported.manifest
    if manifest is None or not values:
        return []

    tables = []
    for level in reversed(range(manifest.tree.depth)):
        means = class_means(manifest, values, level, metric=reported.by)
        if not means:  # no query has a value by every run
            continue
        # a table of more than ALL classes shows only its two ends, the WORST and the BEST
        cut = WORST if len(means) > ALL else len(means)
        best = means[-BEST:] if cut < len(means) else []
        # the value of a full bar; the other bars are drawn in proportion
        longest = _longest_bar(reported.by, means)
        tables.append(
            ClassTable(
                level=manifest.levels[level],
                depth=level,
                number=len(means),
                worst=means[:cut],
                best=best,
                longest=longest,
            )
        )

    return tables


def _longest_bar(metric: str, means: Sequence[ClassMean]) -> float:
    """Return the value of a full bar: 1 for fractions, else the largest mean (above 0)."""
    if factor_of(metric) == 100:
        return 1.0
    return max([1e-9, *(mean for each in means for mean in each.means)])


def confusions(reported: Reported) -> list[ConfusionView]:
    """Make a view of the confusions at the coarsest level for every run whose first results were
    kept (`top`)."""
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
    """Count from which class of the coarsest level the result at rank 1 comes, for the queries of
    each class.

    The view has the pairs of classes that are confused most often and, if there are at most MATRIX
    classes, a matrix of all pairs.

    Args:
        manifest: the items and labels of the test.
        run: the number of the run.
        name: the name of the run.
        top: the run's first results.
    """
    names = manifest.tree.names[0]
    # (C, C): the number of queries of class i whose first result is of class j
    counts = confusion(manifest, top)
    # at least 1, so that a class without queries has shares of 0
    totals = np.maximum(counts.sum(axis=1), 1)
    shares = counts / totals[:, None]
    # the number of the shade in which the page draws each share
    shades = np.searchsorted(SHADES, shares, side="right")
    rows = zip(counts.tolist(), shares.tolist(), shades.tolist(), strict=True)
    # a cell of the matrix is (queries, share, shade)
    matrix = [list(zip(*row, strict=True)) for row in rows] if len(names) <= MATRIX else []
    wrong = np.where(np.eye(len(names), dtype=bool), 0, counts)
    # cells (row, column) with the largest counts off the diagonal; argsort counts the cells row by
    # row, and divmod turns such a number into row and column
    worst = [
        divmod(place, len(names))
        for place in np.argsort(-wrong, axis=None, kind="stable")[:PAIRS].tolist()
    ]
    # (class of the query, class of the result, queries, share)
    pairs = [(*cell, int(wrong[cell]), float(shares[cell])) for cell in worst if wrong[cell]]

    return ConfusionView(
        run, name, float(np.trace(counts) / max(1, counts.sum())), names, matrix, pairs
    )


def levels_within(top: TopLists, depth: int, k: int) -> list[float]:
    """Return the share of each level, 0 … L, among the first k results of all queries."""
    listed = top.items[:, :k] != NO_ITEM
    counts = np.bincount(top.levels[:, :k][listed], minlength=depth + 1)
    shares: list[float] = (counts / max(1, counts.sum())).tolist()
    return shares
