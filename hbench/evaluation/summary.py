"""Summarises measurements as a report: means with bootstrap intervals, the first mistakes, and remarks for the reader."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np
from numpy.typing import NDArray

from hbench.core.version import __version__
from hbench.engine.conditions import Conditions
from hbench.engine.measure import Measurement
from hbench.evaluation.reports.report import Document, Report, Score, SubmittedFile
from hbench.metrics.relevance import inverted
from hbench.metrics.significance import mean_of_tests_interval

UNRELATED = "unrelated"
ENOUGH = 100  # queries, below which all may be right by chance
TIED = "have items of equal score and other level"  # these three begin the remarks on which pages give advice
ALONE = "have no positive at any level"
INVERTED = "have a relevance inversion"


@dataclass(frozen=True)
class Subject:
    """What is scored on what, for the report's head."""

    dataset: str
    version: str
    digest: str
    method: str | None = None
    source: SubmittedFile | None = None
    doubts: tuple[str, ...] = ()


def report_of(
    measurements: Mapping[str, Measurement],
    ids: Mapping[str, NDArray[np.object_]],
    subject: Subject,
    chosen: Conditions,
    *,
    warnings: Sequence[str] = (),
) -> Report:
    """The report of all tests: a score is the mean over the tests of its mean over the queries.

    Values beyond the chosen metrics are those of a second protocol and become the report's `official`.
    """
    names = [str(name) for name in chosen.metrics]
    scores = summarise([each.values[:, each.canonical] for each in measurements.values()])
    document = Document(
        hbench_version=__version__,
        dataset=subject.dataset,
        dataset_version=subject.version,
        dataset_digest=subject.digest,
        tests=tuple(measurements),
        levels=tuple(chosen.levels),
        protocol=chosen.protocol_name,
        signature=chosen.signature(f"{subject.dataset}@{subject.version}", measurements),
        method=subject.method,
        embedding=subject.source,
        scores=dict(zip(names, scores, strict=False)),
        official=dict(zip(names, scores[len(names) :], strict=False)),
        by_test={name: _means(each.values[:, each.canonical], names) for name, each in measurements.items()}
        if len(measurements) > 1
        else {},
        mistakes={name: first_levels(each, chosen.levels) for name, each in measurements.items()},
        doubts=(*subject.doubts, *doubts_of_values(measurements, len(chosen.levels))),
        warnings=(*warnings, *remarks(measurements, chosen)),
        date=datetime.now(UTC).date().isoformat(),
    )
    values = np.concatenate([each.values for each in measurements.values()], axis=1)
    tests = np.repeat(np.array(list(measurements), dtype=object), [len(ids[name]) for name in measurements])
    queries = np.concatenate([ids[name] for name in measurements])
    return Report(document, dict(zip(names, values, strict=False)), queries, tests)


def _means(values: NDArray[np.float64], names: Sequence[str]) -> dict[str, float | None]:
    """The mean of every metric over the queries it is defined for: values (M, Q); None where it is defined for none."""
    defined = {name: row[~np.isnan(row)] for name, row in zip(names, values, strict=False)}
    return {name: float(row.mean()) if len(row) else None for name, row in defined.items()}


def summarise(tests: Sequence[NDArray[np.float64]]) -> list[Score]:
    """Scores of per-query values (M, Q_t) per test, in canonical order: means, bootstrap intervals, numbers of
    queries."""
    intervals = mean_of_tests_interval(list(tests))
    scores = []
    for row, (low, high) in enumerate(intervals.tolist()):
        defined = [values[row][~np.isnan(values[row])] for values in tests]
        queries, asked = sum(map(len, defined)), sum(values.shape[1] for values in tests)
        value = float(np.mean([v.mean() for v in defined])) if all(map(len, defined)) else None
        scores.append(
            Score(
                value=value,
                low=None if value is None else low,
                high=None if value is None else high,
                queries=queries,
                skipped=asked - queries,
            )
        )
    return scores


def first_levels(measurement: Measurement, levels: Sequence[str]) -> dict[str, int]:
    """How many queries have an item of each level at rank 1, finest first; the rest is `unrelated`."""
    counts = np.bincount(measurement.first_level, minlength=len(levels) + 1).tolist()
    return dict(reversed(list(zip([UNRELATED, *levels], counts, strict=True))))


def doubts_of_values(measurements: Mapping[str, Measurement], levels: int) -> tuple[str, ...]:
    """What speaks against the values themselves: every query of a test is answered rightly at rank 1."""
    perfect = [
        name
        for name, each in measurements.items()
        if len(each.first_level) >= ENOUGH and bool((each.first_level == levels).all())
    ]
    return tuple(f"{name}: every query's first result is of its finest class (R@1 = 100)" for name in perfect)


def remarks(measurements: Mapping[str, Measurement], chosen: Conditions) -> list[str]:
    """What a reader of the scores must know: ties, relevance inversions, queries without positives."""
    found = []
    for name, each in measurements.items():
        asked = len(each.tied)
        tied, alone = int(each.tied.sum()), int((each.counts[:, 1:].sum(axis=1) == 0).sum())
        inversions = int(inverted(chosen.relevance(each.counts), each.counts).sum())
        facts = {
            f"{TIED}, in {chosen.ties_name} order (the other bound: --ties)": tied,
            f"{ALONE} and are left out of the means": alone,
            f"{INVERTED}: a coarser level worth more than a finer one": inversions,
        }
        found += [f"{name}: {count:,} of {asked:,} queries {fact}" for fact, count in facts.items() if count]
    return found
