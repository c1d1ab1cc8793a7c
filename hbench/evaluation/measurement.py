"""Measures an examined submission, whole or in shards, and makes its report."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from hbench.core.errors import UsageError
from hbench.datasets.manifest import Manifest
from hbench.engine.conditions import Conditions
from hbench.engine.executors.threads import on_threads
from hbench.engine.job import Execute, Job
from hbench.engine.measure import Measurement, OnBlock, measure
from hbench.engine.ranker import Ranker
from hbench.engine.top_k import TopResults
from hbench.evaluation import pair_labels, shards
from hbench.evaluation.jobs import Examined, Submission, jobs_of, retrieval_of, scorers_of
from hbench.evaluation.rankings import level_sequences as run_levels
from hbench.evaluation.rankings.files import Ranking
from hbench.evaluation.reports import results
from hbench.evaluation.reports.report import Report
from hbench.evaluation.shards import Part
from hbench.evaluation.summary import report_of
from hbench.metrics.level_sequence import LevelSequence
from hbench.metrics.name_columns import NamedSequences
from hbench.metrics.protocols import ScoreQuery, protocols, scorers_by_name


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


OnTest = Callable[[str], OnBlock]


def report_on(
    examined: Examined,
    *,
    memory: int | None = None,
    execute: Execute = on_threads,
    on_test: OnTest | None = None,
    top_k: int = 0,
) -> Report:
    """Measure every test and report; with the first `top_k` results of every query, kept in the same pass.

    Raises UsageError where results are to be kept and the submission is not ranked here, or not by threads.
    """
    jobs = jobs_of(examined, memory=memory)
    if top_k:
        if set(jobs) != set(examined.data.tests):
            raise UsageError("no results are kept of this evaluation", expected="embeddings, and positives by label")
        jobs = {name: (_keeping(job, top_k), ids) for name, (job, ids) in jobs.items()}
    measurements = {
        name: measure(jobs[name][0], execute=execute, on_block=on_test(name) if on_test else None)
        if name in jobs
        else _measured_elsewhere(examined, name)
        for name in examined.data.tests
    }
    ids = {name: manifest.items[manifest.query] for name, manifest in examined.data.tests.items()}
    report = report_of(measurements, ids, examined.subject, examined.chosen, warnings=examined.warnings)
    if not top_k:
        return report
    kept = {name: _results(examined, name, jobs[name][0]) for name in jobs}
    return replace(report, results=pa.concat_tables(kept.values()))


def _keeping(job: Job, top_k: int) -> Job:
    return replace(job, top=TopResults(len(job.ranker.queries), top_k))


def _results(examined: Examined, name: str, job: Job) -> pa.Table:
    """The results that were kept on one test, by id."""
    manifest = examined.data.tests[name]
    assert job.top is not None
    if not job.top.kept.all():
        raise UsageError("first results are kept by threads of this process alone", fix="leave the cluster or GPU out")
    return results.table_of(
        name,
        manifest.items[manifest.query],
        manifest.items[manifest.gallery],
        job.top,
        job.top.similarities(job.ranker, examined.chosen.similarity_name),
    )


def shard_on(
    path: Path,
    examined: Examined,
    part: Part,
    *,
    memory: int | None = None,
    execute: Execute = on_threads,
    on_test: OnTest | None = None,
) -> None:
    """Compute one part of every test and write it; `hbench.evaluation.shards.merge` joins the parts into the report.

    Raises UsageError for a submission or dataset that is not ranked by its embeddings.
    """
    jobs = jobs_of(examined, memory=memory)
    if set(jobs) != set(examined.data.tests):
        raise UsageError(
            "this evaluation has no parts: it takes seconds", expected="embeddings, and positives by label"
        )
    evaluation = shards.Evaluation(examined.subject, examined.chosen, examined.also, examined.warnings)
    shards.write(path, evaluation, jobs, part, execute=execute, on_test=on_test)


def _measured_elsewhere(examined: Examined, name: str) -> Measurement:
    """The measurement of a submitted ranking, or on a benchmark that lists each query's positives pair by pair."""
    given, data, chosen = examined.given, examined.data, examined.chosen
    manifest = data.tests[name]
    asked = manifest.items[manifest.query]
    if name in data.lists:
        sequences = _sequences_listed(given, manifest, data.lists[name], chosen)
    else:
        assert isinstance(given, Ranking)
        sequences = run_levels.levels_of(given, manifest, ties=chosen.ties)
    also = protocols[examined.also] if examined.also else None
    names = data.labels_by_name(manifest)
    scorers = scorers_of(
        chosen,
        manifest.labels[manifest.query],
        all_pairs=True,
        also=also,
        names=None if names is None else names[manifest.query],
    )
    named = None
    if names is not None and isinstance(given, Ranking):
        named = run_levels.named_levels_of(given, manifest, names, ties=chosen.ties)
    return measured_sequences(sequences, scorers, canonical=np.argsort(asked.astype(str)), named=named)


def _sequences_listed(
    given: Submission, manifest: Manifest, table: pa.Table, chosen: Conditions
) -> list[LevelSequence]:
    lists = pair_labels.judged(table, manifest.items[manifest.query], manifest.items[manifest.gallery])
    if isinstance(given, Ranking):
        return pair_labels.sequences_of_ranking(given, manifest, lists, chosen.ties(manifest.tree.depth))
    queries, gallery = given if isinstance(given, tuple) else (given, None)
    test = retrieval_of(manifest, replace(queries, movable=False), gallery)  # other tests may share the vectors
    ranker = Ranker(test.queries, test.gallery, similarity=chosen.similarity, tie_key=chosen.ties)
    return pair_labels.sequences_of_ranker(ranker, lists)
