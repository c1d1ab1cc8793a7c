"""Turns checked submissions and datasets into jobs for the engine: who asks, who is ranked, and with which scorers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hbench.datasets import Dataset
from hbench.datasets.manifest import Manifest
from hbench.engine.conditions import Conditions
from hbench.engine.job import Job
from hbench.engine.ranker import Ranker, Side
from hbench.engine.similarity import SelectedRows
from hbench.evaluation import embeddings as embedding_files
from hbench.evaluation.embeddings import Embeddings
from hbench.evaluation.embeddings.id_files import Ids
from hbench.evaluation.rankings.files import Ranking
from hbench.evaluation.summary import Subject
from hbench.metrics.name_columns import NameColumns
from hbench.metrics.protocols import Protocol, ScoreQuery, Setting, protocols, scorers_by_name
from hbench.tree import Labels, affected


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
    selected: Any = SelectedRows(source.vectors, rows, movable=source.movable)
    return Side(selected, manifest.labels[items], None if manifest.ignore is None else manifest.ignore[items])
