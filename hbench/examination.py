"""An examined submission: what was read and found sound, as jobs to be measured, whole or in parts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from hbench import embeddings as embedding_files
from hbench import listed, shards
from hbench.conditions import Conditions
from hbench.datasets import Dataset
from hbench.embeddings import Embeddings
from hbench.embeddings.id_files import Ids
from hbench.errors import UsageError
from hbench.evaluation import Retrieval, Subject, job_of, measured_sequences, report_of, scorers_of
from hbench.job import Execute, Job
from hbench.manifest import Manifest
from hbench.measure import Measurement, OnBlock, measure
from hbench.protocol import protocols
from hbench.ranking import LevelSequence, Ranker, Side
from hbench.report import Report
from hbench.runs import levels as run_levels
from hbench.runs.files import Ranking
from hbench.shards import Part
from hbench.threads import on_threads
from hbench.tree import Labels
from hbench.vectors import Selected

OnTest = Callable[[str], OnBlock]
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


def report_on(
    examined: Examined, *, memory: int | None = None, execute: Execute = on_threads, on_test: OnTest | None = None
) -> Report:
    """Measure every test and report."""
    jobs = jobs_of(examined, memory=memory)
    measurements = {
        name: measure(jobs[name][0], execute=execute, on_block=on_test(name) if on_test else None)
        if name in jobs
        else _measured_elsewhere(examined, name)
        for name in examined.data.tests
    }
    ids = {name: manifest.items[manifest.query] for name, manifest in examined.data.tests.items()}
    return report_of(measurements, ids, examined.subject, examined.chosen, warnings=examined.warnings)


def shard_on(
    path: Path,
    examined: Examined,
    part: Part,
    *,
    memory: int | None = None,
    execute: Execute = on_threads,
    on_test: OnTest | None = None,
) -> None:
    """Compute one part of every test and write it; `hbench.shards.merge` joins the parts into the report.

    Raises UsageError for a submission or dataset that is not ranked by its embeddings.
    """
    jobs = jobs_of(examined, memory=memory)
    if set(jobs) != set(examined.data.tests):
        raise UsageError(
            "this evaluation has no parts: it takes seconds", expected="embeddings, and positives by label"
        )
    evaluation = shards.Evaluation(examined.subject, examined.chosen, examined.also, examined.warnings)
    shards.write(path, evaluation, jobs, part, execute=execute, on_test=on_test)


def jobs_of(examined: Examined, *, memory: int | None = None) -> dict[str, tuple[Job, Ids]]:
    """Of every test that is ranked by its embeddings, the job and the ids of the queries."""
    if isinstance(examined.given, Ranking):
        return {}
    given: Sequence[Embeddings] = examined.given if isinstance(examined.given, tuple) else (examined.given,)
    if len(examined.data.tests) > 1:  # which share the vectors
        given = [replace(each, movable=False) for each in given]
    tests = {name: test for name, test in examined.data.tests.items() if name not in examined.data.lists}
    recipes = {
        name: Recipe(test, examined.chosen, examined.also, memory, examined.data.labels_by_name(test))
        for name, test in tests.items()
    }
    return {name: (recipe(given), tests[name].items[tests[name].query]) for name, recipe in recipes.items()}


@dataclass(frozen=True)
class Recipe:
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
        return replace(job, again=self)


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
    selected: Any = Selected(source.vectors, rows, movable=source.movable)
    return Side(selected, manifest.labels[items], None if manifest.ignore is None else manifest.ignore[items])


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
    lists = listed.judged(table, manifest.items[manifest.query], manifest.items[manifest.gallery])
    if isinstance(given, Ranking):
        return listed.sequences_of_ranking(given, manifest, lists, chosen.ties(manifest.tree.depth))
    queries, gallery = given if isinstance(given, tuple) else (given, None)
    test = retrieval_of(manifest, replace(queries, movable=False), gallery)  # other tests may share the vectors
    ranker = Ranker(test.queries, test.gallery, similarity=chosen.similarity, tie_key=chosen.ties)
    return listed.sequences_of_ranker(ranker, lists)
