"""Summarises measurements as a report: means, intervals, what speaks against them, and the
conditions they hold under.
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
    """The report of all tests ({name: measurement}), whose `queries` follow each other in one
    table: a score is the mean over the tests of its mean over the queries, or, if `is_pooled`, its
    mean over all queries. `warnings` join the remarks on the values.

    Values beyond the chosen metrics are those of a second protocol and become the report's
    `official`; of partial labels, those with all unknown wrong, then with all unknown right.
    """
    names = [str(name) for name in conditions.metrics]
    # (M, Q): the queries of all tests side by side; first come the values of the chosen metrics
    values = np.concatenate([measured.values for measured in measurements.values()], axis=1)
    # of each test the canonical order of its queries, in which their values are summed
    canonical = [measured.canonical for measured in measurements.values()]
    if is_pooled:
        canonical = [_one_order(canonical)]
    units = units_of(queries, conditions.unit)
    # intervals of fractions stay within 0 and 1
    are_fractions = [factor_of(name) == 100 for name in names]
    scores = summarise(values, canonical, units, are_fractions=are_fractions)
    # the scores beyond the chosen metrics. Below, `zip` that is not strict takes from the front as
    # many scores as there are names
    others = scores[len(names) :]
    # under partial labels `others` are the metrics of all levels, twice
    graded = []
    if conditions.words.partial:
        graded = [str(name) for name in conditions.metrics if is_graded(name)]
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

    return Report(document, dict(zip(names, values, strict=False)), queries)


def _few(
    values: NDArray[np.float64], units: NDArray[np.int64], conditions: Conditions
) -> list[str]:
    """Say where intervals are taken over too few units to be trusted.

    `values` (M, Q), `units` (Q,): of each query; only queries with some value count. Under partial
    labels (the flag `words.partial`) ends of paths above the level are units, too, and are named.
    """
    is_scored = ~np.isnan(values).all(axis=0)
    return list(few_units(units[is_scored], conditions.unit, partial=conditions.words.partial))


def _mistakes(
    measurements: Mapping[str, Measurement], conditions: Conditions
) -> dict[str, dict[str, int]]:
    """{test: {level: how many queries have a first result of that level}}, of the tests'
    measurements."""
    return {name: first_levels(each, conditions.levels) for name, each in measurements.items()}


def _one_order(canonical: Sequence[NDArray[np.int64]]) -> NDArray[np.int64]:
    """The order (Q,) in which the values of all tests are summed as one test: test after test, each
    in its own order. `canonical`: for each test the positions of its queries, counted from 0; in
    the result they are counted on from those of the tests before."""
    starts = np.cumsum([0, *map(len, canonical)])[:-1]
    return np.concatenate([start + own for start, own in zip(starts, canonical, strict=True)])


def rows_of_values(conditions: Conditions) -> int:
    """Count the values that every query has under one protocol: the metrics; of partial labels,
    also those with all unknown wrong and right."""
    both = 2 * sum(map(is_graded, conditions.metrics)) if conditions.words.partial else 0
    return len(conditions.metrics) + both


def _means_by_test(
    measurements: Mapping[str, Measurement], names: Sequence[str]
) -> dict[str, dict[str, float | None]]:
    """{test: {metric: its mean}} of the tests' measurements, where there are several; of one test
    they are the scores themselves. `names`: of the metrics whose values come first.

    Values (M, Q) are summed in an order that no file's order of items moves (`canonical`, (Q,)), so
    that the last bits do not depend on it.
    """
    if len(measurements) < 2:
        return {}
    return {
        name: _means(each.values[:, each.canonical], names) for name, each in measurements.items()
    }


def _means(values: NDArray[np.float64], names: Sequence[str]) -> dict[str, float | None]:
    """The mean of every metric, given their names, over the queries it is defined for: values
    (M, Q), of which those beyond the names are not used; None where it is defined for none.
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
    """The scores of M metrics by the values of every query (M, Q), test after test: means,
    intervals over the `units` (Q,), and numbers of queries.

    `canonical`: for each test, the positions of its queries in the order in which they are summed;
    `are_fractions`: for the first metrics, whether their values lie in [0, 1]; those of the metrics
    beyond do."""
    sizes = list(map(len, canonical))
    starts = np.cumsum([0, *sizes])[:-1]
    # the positions of each test's queries among all, in the order of its sums
    of_tests = [start + own for start, own in zip(starts, canonical, strict=True)]
    order = np.concatenate(of_tests)
    sums = UnitSums.of(values[:, order], units[order], np.repeat(np.arange(len(sizes)), sizes))

    scores = []
    for row, interval in enumerate(mean_intervals(sums).tolist()):
        by_test = [values[row, queries] for queries in of_tests]
        is_fraction = row >= len(are_fractions) or are_fractions[row]
        if not is_fraction and len({*values[row][~np.isnan(values[row])].tolist()}) == 1:
            # equal values that are no shares, such as ranks that are all 1, do not say how they
            # would vary; for shares that are all 1 an interval can be given
            interval = [np.nan, np.nan]
        scores.append(_score(by_test, interval, int(sums.units[row])))

    return scores


def _score(by_test: Sequence[NDArray[np.float64]], interval: Sequence[float], units: int) -> Score:
    """The score of one metric: the mean over the tests of their means; undefined where a test has
    none. `by_test`: the values of each test's queries; `interval`: low and high, NaN where none;
    `units`: over how many the interval is taken."""
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
