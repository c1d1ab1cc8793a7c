"""Measures a checked submission, whole or in shards, and makes its report.

Each test of the dataset becomes a job of the engine: who asks, who is ranked, and with which scorers. A submitted ranking, and
a benchmark that lists each query's positives pair by pair, are measured here, by level sequences.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from hbench.core.errors import UsageError
from hbench.datasets import Dataset
from hbench.datasets.manifest import Manifest
from hbench.engine.executors.threads import on_threads
from hbench.engine.job import Conditions, Execute, Job
from hbench.engine.measure import Measurement, OnBlock, measure
from hbench.engine.ranker import Ranker, Side
from hbench.engine.similarity import SelectedRows
from hbench.engine.top_k import TopResults
from hbench.evaluation import embeddings as embedding_files
from hbench.evaluation import pair_labels, shards
from hbench.evaluation.embeddings import Embeddings
from hbench.evaluation.embeddings.ids import Ids
from hbench.evaluation.rankings import level_sequences as run_levels
from hbench.evaluation.rankings.files import Ranking
from hbench.evaluation.reports import results
from hbench.evaluation.reports.queries import queries_of
from hbench.evaluation.reports.report import Report, Subject, report_of
from hbench.evaluation.shards import Part
from hbench.metrics.level_sequence import LevelSequence
from hbench.metrics.name_columns import NameColumns, NamedSequences
from hbench.metrics.partial_lists import partial_scorers
from hbench.metrics.protocols import Protocol, ScoreQuery, Setting, protocols, scorers_by_name
from hbench.tree import Labels, affected
from hbench.tree.partial import is_partial, known_levels


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


def scorers_of(
    chosen: Conditions,
    labels: Labels,
    *,
    all_pairs: bool,
    also: Protocol | None = None,
    names: Labels | None = None,
) -> list[ScoreQuery]:
    """The functions of one query that give a report its values: every metric under the protocol, then under `also`; of
    partial labels with all unknown wrong and right."""
    setting = Setting(chosen.levels, chosen.relevance, chosen.exponent, labels, all_pairs, names)
    if chosen.partial:
        return list(partial_scorers(chosen.metrics, setting))
    protocols = [chosen.protocol] if also is None else [chosen.protocol, also]
    return [protocol(metric, setting) for protocol in protocols for metric in chosen.metrics]


def job_of(test: Retrieval, chosen: Conditions, *, also: Protocol | None = None, memory: int | None = None) -> Job:
    """One test as a job: every metric of every query, under the protocol and `also` in the same pass.

    `memory` bounds what the evaluation holds beyond the embeddings, in bytes.
    """
    names = None if test.names is None else test.names[0]
    scorers = scorers_of(chosen, test.queries.labels, all_pairs=test.gallery is None, also=also, names=names)
    results = 8 * len(scorers) * len(test.queries.labels)
    queries, gallery = test.queries, test.gallery
    if chosen.partial and queries.known is None:  # another test of the dataset has the partial labels
        queries, gallery = _fully_known(queries), gallery and _fully_known(gallery)
    ranker = Ranker(
        queries, gallery, self_rows=test.self_rows, similarity=chosen.similarity, tie_key=chosen.ties,
        memory=None if memory is None else memory - results,
    )  # fmt: skip
    metrics = ",".join(map(str, chosen.metrics))
    by_name = _by_name(test, ranker, chosen) if scorers_by_name(scorers) else None
    return Job(ranker, scorers, f"{chosen.signature('', ())} {metrics} {also and also.__name__}", by_name=by_name)


def _fully_known(side: Side) -> Side:
    return replace(side, known=np.full(len(side.labels), side.labels.shape[1], np.uint8))


def _by_name(test: Retrieval, ranker: Ranker, chosen: Conditions) -> NameColumns | None:
    """The labels by name in the order of the ranker; None where no query is affected."""
    assert test.names is not None
    gallery = test.queries if test.gallery is None else test.gallery
    nodes = np.concatenate([test.queries.labels, gallery.labels])
    asked = affected(np.concatenate(test.names), nodes)[: len(test.queries.labels)]
    queries, items = test.names[0][ranker.queries], test.names[1][ranker.columns]
    return NameColumns(queries, items, asked[ranker.queries], chosen.ties) if asked.any() else None


Submission = Embeddings | tuple[Embeddings, Embeddings] | Ranking


@dataclass(frozen=True)
class Examined:
    """A submission that can be scored: what was read, on what, under which conditions; and the remarks on it.

    `also`: a second protocol whose values are computed in the same ranking pass.
    """

    given: Submission
    data: Dataset
    chosen: Conditions
    also: str | None
    subject: Subject
    warnings: tuple[str, ...]


def jobs_of(examined: Examined, *, memory: int | None = None) -> dict[str, tuple[Job, Ids]]:
    """Of every test that is ranked by its embeddings, the job and the ids of the queries."""
    if isinstance(examined.given, Ranking):
        return {}
    given: Sequence[Embeddings] = examined.given if isinstance(examined.given, tuple) else (examined.given,)
    if len(examined.data.tests) > 1:  # which share the vectors
        given = [replace(each, movable=False) for each in given]
    tests = {name: test for name, test in examined.data.tests.items() if name not in examined.data.lists}
    recipes = {
        name: JobBuilder(test, examined.chosen, examined.also, memory, examined.data.labels_by_name(test))
        for name, test in tests.items()
    }
    return {name: (recipe(given), tests[name].items[tests[name].query]) for name, recipe in recipes.items()}


@dataclass(frozen=True)
class JobBuilder:
    """How the job of one test is made from embeddings: of all items, or of the queries and of the gallery.

    `names` (N, L): the labels by name, where they form no tree.
    """

    test: Manifest
    chosen: Conditions
    also: str | None
    memory: int | None
    names: Labels | None = None

    def __call__(self, given: Sequence[Embeddings]) -> Job:
        also = protocols[self.also] if self.also else None
        test = retrieval_of(self.test, *given)
        if self.names is not None:
            test = replace(test, names=(self.names[self.test.query], self.names[self.test.gallery]))
        job = job_of(test, self.chosen, also=also, memory=self.memory)
        return replace(job, rebuild=self)


def retrieval_of(manifest: Manifest, queries: Embeddings, gallery: Embeddings | None = None) -> Retrieval:
    """A manifest's test as arrays; nothing is copied, rows are read when their block is ranked.

    Where the queries are the whole gallery they are ranked among themselves; a query is never in its own list.
    """
    asked, ranked = np.flatnonzero(manifest.query), np.flatnonzero(manifest.gallery)
    own = _side(manifest, queries, asked)
    if gallery is None and np.array_equal(asked, ranked):
        return Retrieval(own, None, None, manifest.items[asked])
    position = np.full(len(manifest), -1)
    position[ranked] = np.arange(len(ranked))
    return Retrieval(own, _side(manifest, gallery or queries, ranked), position[asked], manifest.items[asked])


def _side(manifest: Manifest, source: Embeddings, items: NDArray[np.int64]) -> Side:
    rows = embedding_files.align(source, manifest.items[items])
    selected: Any = SelectedRows(source.vectors, rows, movable=source.movable)
    ignore = None if manifest.ignore is None else manifest.ignore[items]
    known = known_levels(manifest.tree)[manifest.labels[items, -1]] if is_partial(manifest.tree) else None
    return Side(selected, manifest.labels[items], ignore, known)


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
    report = report_of_jobs(examined, jobs, execute=execute, on_test=on_test)
    if not top_k:
        return report
    kept = {name: _results(examined, name, jobs[name][0]) for name in jobs}
    return replace(report, results=pa.concat_tables(kept.values()))


def report_of_jobs(
    examined: Examined, jobs: Mapping[str, tuple[Job, Ids]], *, execute: Execute, on_test: OnTest | None
) -> Report:
    """Measure every test, by its job where it has one, and report."""
    measurements = {
        name: measure(jobs[name][0], execute=execute, on_block=on_test(name) if on_test else None)
        if name in jobs
        else _measured_elsewhere(examined, name)
        for name in examined.data.tests
    }
    queries = pa.concat_tables(queries_of(name, manifest) for name, manifest in examined.data.tests.items())
    return report_of(measurements, queries, examined.subject, examined.chosen, warnings=examined.warnings)


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
    tests = {name: (job, queries_of(name, examined.data.tests[name])) for name, (job, _) in jobs.items()}
    shards.write(path, evaluation, tests, part, execute=execute, on_test=on_test)


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
