"""Computes the differences between two tables of per-query values, metric by metric, with intervals
and tests.

>>> first = pa.table({"query": ["a", "b"], "test": ["test"] * 2, "AP": [1.0, 0.5]})
>>> second = pa.table({"query": ["b", "a"], "test": ["test"] * 2, "AP": [0.25, 1.0]})
>>> differences_of(first, second)[0].difference
0.125
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from hbench.core.errors import ComparisonError, UnknownName, examples
from hbench.metrics.significance import FLIPS, UnitSums, difference_intervals, holm, sign_flip_p
from hbench.records.queries import metric_columns, units_of
from hbench.records.shown import (
    shown,
    shown_difference,
    shown_difference_range,
)

FLOOR = 1 / FLIPS  # the smallest p-value that the sign-flip test can return
HEADER = ("difference", "95 % interval", "p", "corrected", "queries", "units")


class Difference(NamedTuple):
    """The paired difference first − second of a metric, with its interval and test. Values are
    fractions, NaN if no query defines them."""

    metric: str
    first: float  # means over queries and tests
    second: float
    difference: float
    low: float  # the ends of the 95 % interval of the difference
    high: float
    p: float  # of a two-sided paired sign-flip test
    corrected: float  # p by Holm's method for all metrics that are compared
    queries: int  # with a value in both reports
    units: int  # by which the interval and the test are computed

    @property
    def p_in_words(self) -> str:
        """p with four digits; as a bound if it is the smallest p that random sign flips can give.

        >>> at_floor = Difference(
        ...     "AP",
        ...     0.5,
        ...     0.4,
        ...     0.1,
        ...     0.05,
        ...     0.15,
        ...     p=1 / 10_001,
        ...     corrected=3 / 10_001,
        ...     queries=90,
        ...     units=30,
        ... )
        >>> (
        ...     at_floor.p_in_words,
        ...     at_floor.corrected_in_words,
        ...     at_floor._replace(p=0.03125).p_in_words,
        ... )
        ('≤ 0.0001', '≤ 0.0003', '0.0312')
        """
        # FLOOR, 1/10,000: the random test cannot tell smaller p-values apart
        return _in_words(self.p, self.p <= FLOOR)

    @property
    def corrected_in_words(self) -> str:
        """The corrected p with four digits; as a bound if p is one."""
        return _in_words(self.corrected, self.p <= FLOOR)

    @property
    def cells(self) -> tuple[str, ...]:
        """The cells of a printed table: the metric, both scores, and the columns of HEADER."""
        return (
            self.metric,
            shown(self.metric, self.first),
            shown(self.metric, self.second),
            shown_difference(self.metric, self.difference),
            shown_difference_range(self.metric, self.low, self.high),
            self.p_in_words,
            self.corrected_in_words,
            f"{self.queries:,}",
            f"{self.units:,}",
        )

    def record(self) -> dict[str, str | float | int | None]:
        """The fields by name, with None (null in JSON) in place of NaN."""
        fields = self._asdict()
        # only NaN is not equal to itself; np.isnan would fail for the name of the metric
        undefined = [name for name, value in fields.items() if value != value]  # noqa: PLR0124
        return fields | dict.fromkeys(undefined)


def _in_words(p: float, least: bool) -> str:
    """A p-value with four digits. If it is the `least` one that random sign flips can give, it gets
    a "≤", since the true p may be smaller."""
    return f"≤ {p:.4f}" if least else f"{p:.4f}"


def corrected_together(families: Sequence[Sequence[Difference]]) -> list[list[Difference]]:
    """Correct the p-values of several families of differences, such as the metrics of each model,
    together by Holm's method. A difference whose p is NaN is returned unchanged.
    """
    p = [difference.p for family in families for difference in family if not np.isnan(difference.p)]
    corrected = iter(holm(p).tolist())  # in the order of p, in which the differences are visited

    def with_corrected(test: Difference) -> Difference:
        """A difference with the next corrected p-value, if it has a p-value."""
        return test if np.isnan(test.p) else test._replace(corrected=next(corrected))

    return [list(map(with_corrected, family)) for family in families]


def differences_of(
    first: pa.Table, second: pa.Table, *, unit: str | None = None
) -> list[Difference]:
    """The differences, first − second, of the metrics that both per-query tables have, joined by
    test and query.

    `unit` is the unit of intervals and tests: a level, whose classes are the units (by default the
    finest), or "query". Raises ComparisonError if the tables have different queries or no metric in
    common, UnknownName for an unknown unit.
    """
    # {(test, query): row} of each table
    rows_of_first = _row_by_query(first)
    rows_of_second = _row_by_query(second)
    if rows_of_first.keys() != rows_of_second.keys():
        lone = sorted(rows_of_first.keys() ^ rows_of_second.keys())  # in one table only
        raise ComparisonError(
            "these reports are of different queries",
            found=f"{len(lone)} in only one of them: {examples(' '.join(q) for q in lone)}",
        )

    names = [name for name in metric_columns(first) if name in second.column_names]
    if not names:
        raise ComparisonError(
            "these reports have no metric in common", fix="evaluate both with the same --metrics"
        )

    # both tables in the same sorted order, so that rounding does not depend on the files' order
    keys = sorted(rows_of_first)
    rows = [rows_of_first[key] for key in keys]
    others = [rows_of_second[key] for key in keys]
    # (Q,): the number of each query's test
    _, tests = np.unique([test for test, _ in keys], return_inverse=True)
    return _differences(
        names,
        _values(first, names)[:, rows],
        _values(second, names)[:, others],
        units=units_of(first, unit)[rows],
        tests=tests,
    )


def with_metrics_alone(first: pa.Table, second: pa.Table, metrics: Sequence[str]) -> pa.Table:
    """The first per-query table with only the columns of these `metrics`. Raises UnknownName for a
    metric that is not in both tables.
    """
    shared = [name for name in metric_columns(first) if name in second.column_names]
    for name in metrics:
        if name not in shared:
            raise UnknownName("metric of both reports", name, shared)
    return first.drop_columns([name for name in metric_columns(first) if name not in metrics])


def _row_by_query(table: pa.Table) -> dict[tuple[str, str], int]:
    """From each query of a per-query table, given by its test and id, to its row."""
    keys = zip(table["test"].to_pylist(), table["query"].to_pylist(), strict=True)
    return {key: row for row, key in enumerate(keys)}


def _values(table: pa.Table, names: Sequence[str]) -> NDArray[np.float64]:
    """The values of the metrics `names` in a per-query table, as an array (M, Q)."""
    return np.array([table[name].to_numpy() for name in names], dtype=np.float64)


def _differences(
    names: Sequence[str],
    first: NDArray[np.float64],
    second: NDArray[np.float64],
    *,
    units: NDArray[np.int64],
    tests: NDArray[np.int64],
) -> list[Difference]:
    """The paired differences, first − second, of all M metrics, over the queries that have a value
    in both reports. Each has its interval, its p-value `p`, and the p-value after the correction
    for the M metrics, `corrected`.

    Args:
        names: of the metrics.
        first: the values of the first report, (M, Q), NaN where undefined.
        second: the values of the second report, (M, Q), NaN where undefined.
        units: the number of each query's unit, (Q,): a class, or the query itself. Units, not
            queries, are independent; intervals and p-values go by them.
        tests: the number of each query's test, (Q,). A mean is that of the tests' means.
    """
    difference = first - second
    undefined = np.isnan(difference)  # at least one of the reports has no value
    sums = UnitSums.of(difference, units, tests)  # what each unit contributes to the means

    def means(values: NDArray[np.float64]) -> NDArray[np.float64]:
        """The mean of each metric over the queries for which both reports have a value, (M,)."""
        return UnitSums.of(np.where(undefined, np.nan, values), units, tests).means

    first_means = means(first)
    second_means = means(second)
    p = sign_flip_p(sums)
    queries = np.logical_not(undefined).sum(axis=1)
    low, high = difference_intervals(sums).T  # (M,) each

    found = [
        Difference(
            name,
            first=float(first_means[n]),
            second=float(second_means[n]),
            difference=float(sums.means[n]),
            low=float(low[n]),
            high=float(high[n]),
            p=float(p[n]),
            corrected=float(p[n]),  # replaced below, where all are corrected together
            queries=int(queries[n]),
            units=int(sums.units[n]),
        )
        for n, name in enumerate(names)
    ]
    (corrected,) = corrected_together([found])
    return corrected
