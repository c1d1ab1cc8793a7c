"""Tables of names as queries: what each node of the tree retrieves, the worst first."""

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
    """A column of values: its head, and the metric."""

    head: str
    metric: str


class NameRow(NamedTuple):
    """A node: its path, coarse to fine, and a value for each column, NaN where undefined."""

    path: tuple[str, ...]
    values: tuple[float, ...]


class DepthTable(NamedTuple):
    """The nodes of a depth, worst first; of many, only the `worst` and the `best`."""

    level: str
    number: int
    columns: tuple[NameColumn, ...]
    worst: list[NameRow]
    best: list[NameRow]


def name_tables(runs: Sequence[ReportedRun], by: str) -> list[DepthTable]:
    """Make a table of every depth, of one run with its metrics, or of several with the values of
    `by`; the first run's worst names first. None without values by name.
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

    return [
        _table_of_depth(test, valued, tuple(columns), by) for test in valued[0].document.by_test
    ]


def _table_of_depth(
    test: str, runs: Sequence[ReportedRun], columns: tuple[NameColumn, ...], by: str
) -> DepthTable:
    """The table of the nodes of one depth, which are the `test` of this name in the reports; the
    first run's worst by the metric `by` come first, and of a long table only both ends are shown.
    """
    # the values of the depth's nodes by run, and the run that each column takes them from
    own = []
    for run in runs:
        assert run.by_query is not None
        frame = run.by_query.to_pandas()
        own.append(frame[frame["test"] == test].set_index("query"))
    ids = own[0].index.tolist()
    # several runs have a column each; all columns of a single run are its own
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
    cut = WORST if len(rows) > ALL else len(rows)
    best = rows[-BEST:] if cut < len(rows) else []
    return DepthTable(test, len(rows), columns, rows[:cut], best)
