"""Evaluation: the tests of a dataset, as arrays, become a report.

`hbench.scoring` makes the arrays from a user's own, `hbench.submission` from a dataset and an embedding or ranking
file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np
from numpy.typing import NDArray

from hbench.by_name import ByName, NamedSequences, affected
from hbench.conditions import Conditions
from hbench.job import Job
from hbench.measure import Measurement
from hbench.protocol import Protocol, ScoreQuery, Setting, scorers_by_name
from hbench.ranking import LevelSequence, Ranker, Side
from hbench.relevance import inverted
from hbench.report import Document, Report, Score, Source
from hbench.significance import mean_of_tests_interval
from hbench.tree import Labels
from hbench.version import __version__

UNRELATED = "unrelated"


@dataclass(frozen=True)
class Retrieval:
    """One test of a dataset as arrays: who asks, who is ranked (None: the queries themselves), which gallery row a
    query is (-1: none).

    `names`: the labels of the queries and of the gallery by name, where the released evaluators see them otherwise than
    the tree.
    """

    queries: Side
    gallery: Side | None
    self_rows: NDArray[np.int64] | None
    ids: NDArray[np.object_]
    names: tuple[Labels, Labels] | None = None


@dataclass(frozen=True)
class Subject:
    """What is scored on what, for the report's head."""

    dataset: str
    version: str
    digest: str
    method: str | None = None
    source: Source | None = None


def scorers_of(
    chosen: Conditions,
    labels: Labels,
    *,
    all_pairs: bool,
    also: Protocol | None = None,
    names: Labels | None = None,
) -> list[ScoreQuery]:
    """The functions of one query that give a report its values: every metric under the protocol, then under `also`."""
    setting = Setting(chosen.levels, chosen.relevance, chosen.exponent, labels, all_pairs, names)
    protocols = [chosen.protocol] if also is None else [chosen.protocol, also]
    return [protocol(metric, setting) for protocol in protocols for metric in chosen.metrics]


def job_of(test: Retrieval, chosen: Conditions, *, also: Protocol | None = None, memory: int | None = None) -> Job:
    """One test as a job: every metric of every query, under the protocol and `also` in the same pass.

    `memory` bounds what the evaluation holds beyond the embeddings, in bytes.
    """
    names = None if test.names is None else test.names[0]
    scorers = scorers_of(chosen, test.queries.labels, all_pairs=test.gallery is None, also=also, names=names)
    results = 8 * len(scorers) * len(test.queries.labels)
    ranker = Ranker(
        test.queries, test.gallery, self_rows=test.self_rows, similarity=chosen.similarity, tie_key=chosen.ties,
        memory=None if memory is None else memory - results,
    )  # fmt: skip
    metrics = ",".join(map(str, chosen.metrics))
    by_name = _by_name(test, ranker, chosen) if scorers_by_name(scorers) else None
    return Job(ranker, scorers, f"{chosen.signature('', ())} {metrics} {also and also.__name__}", by_name=by_name)


def _by_name(test: Retrieval, ranker: Ranker, chosen: Conditions) -> ByName | None:
    """The labels by name in the order of the ranker; None where no query is affected."""
    assert test.names is not None
    gallery = test.queries if test.gallery is None else test.gallery
    nodes = np.concatenate([test.queries.labels, gallery.labels])
    asked = affected(np.concatenate(test.names), nodes)[: len(test.queries.labels)]
    queries, items = test.names[0][ranker.queries], test.names[1][ranker.columns]
    return ByName(queries, items, asked[ranker.queries], chosen.ties) if asked.any() else None


def measured_sequences(
    sequences: Sequence[LevelSequence],
    scorers: Sequence[ScoreQuery],
    *,
    canonical: NDArray[np.int64],
    named: Mapping[int, NamedSequences] | None = None,
) -> Measurement:
    """The measurement of level sequences that somebody else ranked, one per query; `canonical` orders the sums.

    `named`: by query, the sequences of those that are affected by names.
    """
    values = [[scorer(query, sequence) for query, sequence in enumerate(sequences)] for scorer in scorers]
    for row, scorer in scorers_by_name(scorers).items():
        for query, own in (named or {}).items():
            values[row][query] = scorer(query, own)
    first = [int(each.levels[0]) if len(each.ranks) and each.ranks[0] == 1 else 0 for each in sequences]
    return Measurement(
        np.array(values, dtype=np.float64),
        np.array(first, dtype=np.uint8),
        np.stack([sequence.counts for sequence in sequences]),
        np.array([sequence.tied for sequence in sequences]),
        canonical,
    )


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


def remarks(measurements: Mapping[str, Measurement], chosen: Conditions) -> list[str]:
    """What a reader of the scores must know: ties, relevance inversions, queries without positives."""
    found = []
    for name, each in measurements.items():
        asked = len(each.tied)
        tied, alone = int(each.tied.sum()), int((each.counts[:, 1:].sum(axis=1) == 0).sum())
        inversions = int(inverted(chosen.relevance(each.counts), each.counts).sum())
        facts = {
            f"have items of equal score and other level, in {chosen.ties_name} order (the other bound: --ties)": tied,
            "have no positive at any level and are left out of the means": alone,
            "have a relevance inversion: a coarser level worth more than a finer one": inversions,
        }
        found += [f"{name}: {count:,} of {asked:,} queries {fact}" for fact, count in facts.items() if count]
    return found
