"""Prepares tables of names as queries: how well each node of the tree retrieves its items, worst
first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from hbench.look.report.classes import ALL, BEST, WORST
from hbench.look.report.runs import ReportedRun
from hbench.metrics.names import goodness
from hbench.records.queries import metric_columns
from hbench.sheets.paths import JOINED

SHOWN_METRICS = ("H-AP", "AP", "mAP@R", "P@1", "P@10", "R@10", "consistency")


class NameColumn(NamedTuple):
    """A column of values: the heading, and the metric whose values it shows."""

    head: str
    metric: str


class NameRow(NamedTuple):
    """A node: its path, coarse to fine, and a value for each column, NaN where undefined."""

    path: tuple[str, ...]
    values: tuple[float, ...]


class DepthTable(NamedTuple):
    """The nodes of one depth, worst first. A long table has only the first nodes in `worst` and the
    last ones in `best`; in a short table, `best` is empty. `number` counts all nodes."""

    level: str
    number: int
    columns: tuple[NameColumn, ...]
    worst: list[NameRow]
    best: list[NameRow]


def name_tables(runs: Sequence[ReportedRun], by: str) -> list[DepthTable]:
    """Make a table for each depth of the tree, with the first run's worst names first.

    The queries of `runs` are names. Only runs with values by query are in the tables; without such
    runs there are no tables.

    The columns are several metrics if there is one such run, else the metric `by` of each run.
    """
    valued = [run for run in runs if run.by_query is not None]
    if not valued:
        return []
    first = valued[0].by_query
    assert first is not None
    names = metric_columns(first)
    if len(valued) > 1:
        columns = [NameColumn(run.name, by) for run in valued]
    else:
        columns = [NameColumn(name, name) for name in (by, *SHOWN_METRICS) if name in names]
        columns = list(dict.fromkeys(columns))  # `by` may be among the shown ones

    # if names are the queries, a report has a test for each depth of the tree
    return [
        _table_of_depth(test, valued, tuple(columns), by) for test in valued[0].document.by_test
    ]


def _table_of_depth(
    test: str, runs: Sequence[ReportedRun], columns: tuple[NameColumn, ...], by: str
) -> DepthTable:
    """Make the table of the nodes of one depth, with the first run's worst nodes by the metric `by`
    first. A long table shows only its two ends.

    Args:
        test: the depth's name, since each depth is a test in the reports.
        runs: the runs that have a value for each node, in `by_query`, since nodes are the queries.
        columns: one for each run, or, with a single run, one for each metric.
        by: the metric to sort by.
    """
    # for each run, the values of the depth's nodes: a row per node, a column per metric
    own = []
    for run in runs:
        assert run.by_query is not None
        frame = run.by_query.to_pandas()
        own.append(frame[frame["test"] == test].set_index("query"))
    # the nodes' joined paths, by which all runs' values are put in the same order
    ids = own[0].index.tolist()
    # the table that each column is taken from: that of its run, or that of the only run
    sources = own if len(own) > 1 else own * len(columns)
    values = [
        table.loc[ids, column.metric].to_numpy(np.float64)
        for table, column in zip(sources, columns, strict=True)
    ]

    good = goodness(by, own[0][by].to_numpy(np.float64))
    rows = [
        NameRow(tuple(ids[at].split(JOINED)), tuple(float(each[at]) for each in values))
        for at in np.argsort(good, kind="stable").tolist()
    ]
    # a table of more than ALL nodes shows only its two ends, the WORST and the BEST
    cut = WORST if len(rows) > ALL else len(rows)
    best = rows[-BEST:] if cut < len(rows) else []
    return DepthTable(level=test, number=len(rows), columns=columns, worst=rows[:cut], best=best)
