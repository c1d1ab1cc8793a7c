"""Summarises measurements as a report: means, intervals, doubts, remarks, and the conditions of the
scores.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from hbench.core.version import __version__
from hbench.engine.settings import Conditions
from hbench.evaluation.findings import doubts_of_values, few_units, first_levels, remarks
from hbench.evaluation.measurement import Measurement
from hbench.metrics.names import factor_of
from hbench.metrics.partial_lists import is_graded
from hbench.metrics.significance import UnitSums, mean_intervals
from hbench.records.document import Document, Score, SubmittedFile
from hbench.records.queries import units_of
from hbench.records.report import Report
from hbench.sheets.understood import Understood


@dataclass(frozen=True)
class Subject:
    """The submission and the dataset, for the report's head."""

    dataset: str
    version: str
    digest: str
    method: str | None = None
    source: SubmittedFile | None = None
    doubts: tuple[str, ...] = ()
    read: tuple[Understood, ...] = ()
    names: SubmittedFile | None = None


def report_of(
    measurements: Mapping[str, Measurement],
    queries: pa.Table,
    subject: Subject,
    conditions: Conditions,
    *,
    warnings: Sequence[str] = (),
    is_pooled: bool = False,
) -> Report:
    """Make the report of all tests. A score is the mean over the tests of the mean over the queries
    of a test.

    The values of a measurement have a row for each chosen metric, and further rows after these: the
    same metrics under a second protocol, if there is one, which become `official` in the
    report. Under partial labels, which have no second protocol, the further rows are the lower
    bounds, then the upper bounds, of the metrics of all levels.

    Args:
        measurements: {test: measurement}.
        queries: the table of the queries of all tests, in the order of `measurements`.
        subject: the submission and the dataset.
        conditions: the conditions of the scores.
        warnings: remarks to put before those on the values.
        is_pooled: take the mean over the queries of all tests together instead.
    """
    names = [str(name) for name in conditions.metrics]
    # (M, Q): the queries of all tests, one test after another
    values = np.concatenate([measured.values for measured in measurements.values()], axis=1)
    # for each test the positions of its queries in the order in which values are summed
    canonical = [measured.canonical for measured in measurements.values()]
    if is_pooled:
        canonical = [_one_order(canonical)]  # all tests together count as one
    units = units_of(queries, conditions.unit)  # (Q,): the number of each query's unit
    # under partial labels the further rows have the metrics of all levels (graded ones) twice:
    # lower bounds, with all unknown labels wrong, then upper bounds, with all of them right
    graded = []
    if conditions.words.partial:
        graded = [str(name) for name in conditions.metrics if is_graded(name)]
    # intervals of fractions are kept within 0 and 1; further rows are of `graded` twice, or of the
    # same metrics again
    are_fractions = [factor_of(name) == 100 for name in [*names, *(2 * graded or names)]]
    scores = summarise(values, canonical, units, are_fractions=are_fractions)
    # The scores of the further rows. `zip(names, …, strict=False)` below stops at the last name, so
    # it takes only the scores that belong to these names, from the front
    others = scores[len(names) :]
    document = Document(
        hbench_version=__version__,
        dataset=subject.dataset,
        dataset_version=subject.version,
        dataset_digest=subject.digest,
        tests=tuple(measurements),
        levels=tuple(conditions.levels),
        protocol=conditions.words.protocol,
        signature=str(conditions.signature(f"{subject.dataset}@{subject.version}", measurements)),
        method=subject.method,
        embedding=subject.source,
        names=subject.names,
        scores=dict(zip(names, scores, strict=False)),
        official={} if conditions.words.partial else dict(zip(names, others, strict=False)),
        unknown_wrong=dict(zip(graded, others, strict=False)),
        unknown_right=dict(zip(graded, others[len(graded) :], strict=False)),
        by_test=_means_by_test(measurements, names),
        mistakes=_mistakes(measurements, conditions),
        unit=conditions.unit,
        doubts=(*subject.doubts, *doubts_of_values(measurements, len(conditions.levels))),
        warnings=(*warnings, *remarks(measurements, conditions), *_few(values, units, conditions)),
        read=tuple(understood.document() for understood in subject.read),
        date=datetime.now(UTC).date().isoformat(),
    )

    return Report(document=document, values=dict(zip(names, values, strict=False)), table=queries)


def _few(
    values: NDArray[np.float64], units: NDArray[np.int64], conditions: Conditions
) -> list[str]:
    """Make a remark if the intervals are over too few units to be trusted.

    `values` (M, Q): NaN where undefined; queries without any defined value do not count. `units`
    (Q,): the number of each query's unit. With partial labels, where paths may end above the finest
    level, the remark says so.
    """
    is_scored = ~np.isnan(values).all(axis=0)
    return list(few_units(units[is_scored], conditions.unit, partial=conditions.words.partial))


def _mistakes(
    measurements: Mapping[str, Measurement], conditions: Conditions
) -> dict[str, dict[str, int]]:
    """Count the queries of each test by the level of their first result: {test: {level: count}}."""
    return {name: first_levels(each, conditions.levels) for name, each in measurements.items()}


def _one_order(canonical: Sequence[NDArray[np.int64]]) -> NDArray[np.int64]:
    """Join the canonical orders of all tests to the order (Q,) of one pooled test. `canonical`: for
    each test the positions of its queries, counted from 0 within the test; in the result they are
    positions among the queries of all tests."""
    starts = np.cumsum([0, *map(len, canonical)])[:-1]
    return np.concatenate([start + own for start, own in zip(starts, canonical, strict=True)])


def rows_of_values(conditions: Conditions) -> int:
    """Return the number of values that each query has under one protocol: one for each metric and,
    under partial labels, two bounds for each metric of all levels."""
    both = 2 * sum(map(is_graded, conditions.metrics)) if conditions.words.partial else 0
    return len(conditions.metrics) + both


def _means_by_test(
    measurements: Mapping[str, Measurement], names: Sequence[str]
) -> dict[str, dict[str, float | None]]:
    """Compute {test: {metric: mean}}. Empty for a single test, whose means are the scores.

    `names`: of the metrics in the first rows of values; further rows are not used. Values are
    summed in the canonical order, so that the last bits do not depend on the order of items in a
    file.
    """
    if len(measurements) < 2:
        return {}
    return {
        name: _means(each.values[:, each.canonical], names) for name, each in measurements.items()
    }


def _means(values: NDArray[np.float64], names: Sequence[str]) -> dict[str, float | None]:
    """Compute {metric: mean over the queries for which it is defined}, None if there are none.
    `values` (M, Q): the first rows belong to `names`, further rows are not used.
    """
    defined = {name: row[~np.isnan(row)] for name, row in zip(names, values, strict=False)}
    return {name: float(row.mean()) if len(row) else None for name, row in defined.items()}


def summarise(
    values: NDArray[np.float64],
    canonical: Sequence[NDArray[np.int64]],
    units: NDArray[np.int64],
    *,
    are_fractions: Sequence[bool] = (),
) -> list[Score]:
    """Compute the scores of M metrics: means, intervals and numbers of queries.

    Args:
        values: (M, Q), the queries of one test after those of another.
        canonical: for each test, the positions of its queries in the order in which they are
            summed.
        units: (Q,), the units over which intervals are taken.
        are_fractions: for each of the first metrics, whether its values are in [0, 1]. Metrics
            beyond the end of this sequence are fractions.
    """
    sizes = list(map(len, canonical))
    starts = np.cumsum([0, *sizes])[:-1]
    # the positions of each test's queries among all, in the order of its sums
    of_tests = [start + own for start, own in zip(starts, canonical, strict=True)]
    order = np.concatenate(of_tests)
    # the last argument (Q,): the number of each query's test
    sums = UnitSums.of(values[:, order], units[order], np.repeat(np.arange(len(sizes)), sizes))

    scores = []
    for row, interval in enumerate(mean_intervals(sums).tolist()):  # (M, 2): low, high
        by_test = [values[row, queries] for queries in of_tests]
        is_fraction = row >= len(are_fractions) or are_fractions[row]
        if not is_fraction and len({*values[row][~np.isnan(values[row])].tolist()}) == 1:
            # equal values that are no fractions, such as ranks that are all 1, do not show how they
            # would vary. (Fractions that are all 1 do: they are bounded.)
            interval = [np.nan, np.nan]
        scores.append(_score(by_test, interval, int(sums.units[row])))

    return scores


def _score(by_test: Sequence[NDArray[np.float64]], interval: Sequence[float], units: int) -> Score:
    """Make the score of one metric: the mean over the tests of their means. Its value is None if a
    test has no defined value.

    `by_test`: the values of the queries of each test. `interval`: low and high, NaN for none.
    `units`: the number of units over which the interval is taken.
    """
    defined = [part[~np.isnan(part)] for part in by_test]
    queries = sum(map(len, defined))
    score = Score(
        value=None,
        low=None,
        high=None,
        queries=queries,
        skipped=sum(map(len, by_test)) - queries,
        units=units,
    )
    if not all(map(len, defined)):
        return score

    value = float(np.mean([part.mean() for part in defined]))
    low, high = interval
    if np.isnan(low):
        return score.model_copy(update={"value": value})
    return score.model_copy(update={"value": value, "low": low, "high": high})
