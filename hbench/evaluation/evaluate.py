"""Evaluates a submission on a dataset: reads and checks everything, measures every test, and
reports.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from numpy.typing import ArrayLike

from hbench.core.arguments import checked
from hbench.core.errors import UnknownName, UsageError
from hbench.datasets import Dataset
from hbench.engine.executors.threads import on_threads
from hbench.engine.job import Execute, Job
from hbench.engine.settings import Settings
from hbench.engine.similarity import as_vectors
from hbench.engine.top_k import TopResults
from hbench.evaluation.by_name.nodes import read as read_nodes
from hbench.evaluation.by_name.queries import report_on_nodes
from hbench.evaluation.examination import Examined, examine
from hbench.evaluation.measurement import Measurement, OnTest, measure
from hbench.evaluation.submission import Submission, as_submission, read
from hbench.evaluation.submission.ranking import RankingSubmission
from hbench.evaluation.summary import report_of
from hbench.records import results
from hbench.records.queries import queries_of
from hbench.records.report import Report
from hbench.submissions.embeddings import Embeddings, joined
from hbench.submissions.embeddings.ids import as_ids
from hbench.submissions.rankings.files import Ranking


@checked
def evaluate(
    submission: str
    | Path
    | Embeddings
    | tuple[Embeddings, Embeddings]
    | Ranking
    | Submission
    | ArrayLike,
    dataset: str | Path | Dataset,
    *,
    ids: Sequence[str] | None = None,
    metrics: str | Sequence[str] | None = None,
    protocol: str = "paper",
    also_official: bool = False,
    ties: str = "pessimistic",
    similarity: str | None = None,
    relevance: str = "alpha",
    alpha: float = 1.0,
    unit: str | None = None,
    method: str | None = None,
    leave_out: str | None = None,
    nodes: str | Path | Embeddings | Mapping[str, ArrayLike] | None = None,
    memory: int | None = None,
    execute: Execute = on_threads,
    on_test: OnTest | None = None,
) -> Report:
    """Score an embedding file, or a ranking, on every test of a dataset, and return a report.

    Everything is read and checked before any work starts. Scores are fractions in [0, 1], but
    those of hops@k are numbers.

    Args:
        submission: the path of a file (docs/score.md lists the formats), what was read from one, a
            pair of queries and gallery, or, with `ids`, vectors (N, D) in memory, numpy or torch.
            The order of the rows never matters.
        dataset: a name, a folder, a table, or what `hbench.load` returns.
        ids: (N,), of vectors in memory.
        metrics: as in `hbench.score`. Default: those of the dataset's papers, and all usual ones.
        protocol: "paper" (default), the papers' equations, or "official", the evaluator released
            for the dataset.
        also_official: whether the values of the dataset's released evaluator are computed, too, in
            the same ranking pass. Default: no.
        ties: what comes first among equal scores: "pessimistic" (default), the lower level, or
            "optimistic".
        similarity: as in `hbench.score`, such as "cosine" or "dot". Default: the dataset's.
        relevance: of H-AP: "alpha" (default), "sum_wap" or "exponential".
        alpha: the exponent of the relevance "alpha". Default: 1.
        unit: what intervals are taken over: the classes of a level, or "query". Default: the
            finest level.
        method: the name that the report gives the submission.
        leave_out: "zero": items whose vectors are all zero are neither queries nor in the gallery;
            they are counted, also in the signature. Default: such a file is refused under cosine.
        nodes: vectors of nodes of the tree, a file whose ids are names or paths, or a dictionary:
            these are the queries then (docs/by-name.md), and `submission` holds the items.
        memory: the most bytes held beyond the embeddings.
        execute: computes the blocks (hbench.engine.executors). Default: threads of this process.
        on_test: is called with each test's name and returns a function for progress.

    Returns:
        A Report over all tests.

    Raises:
        SubmissionError: every problem of the file at once.
        UnknownName: a dataset, metric or other name that does not exist.
        DataError: a dataset that is not on this disk.
        UsageError: options that do not go together.

    Example:
        >>> import hbench
        >>> import numpy as np
        >>> glyphs = hbench.load("glyphs")
        >>> items = glyphs.tests["test"].items
        >>> vectors = np.random.default_rng(0).normal(size=(len(items), 8))
        >>> hbench.evaluate(vectors, glyphs, ids=items, metrics="R@1").scores["R@1"] < 0.1
        True
    """
    settings = Settings(metrics, protocol, ties, similarity, relevance, alpha, unit)
    given: Any = submission
    if isinstance(submission, str | Path) and ids is None:
        # `movable`: the evaluation may reorder the vectors in place, since nobody else uses them
        given = read(Path(submission), movable=True)
    if ids is not None:
        given = joined(as_ids(ids, "ids"), as_vectors(given, "vectors"))
    examined = examine(
        without(leave_out, as_submission(given)),
        dataset,
        settings,
        also_official=also_official,
        method=method,
    )
    if nodes is None:
        return report_on(examined, memory=memory, execute=execute, on_test=on_test)
    return report_on_nodes(
        examined,
        read_nodes(nodes, examined.data.levels),
        metrics=metrics,  # as given; those in `examined` are chosen for items as queries
        memory=memory,
        execute=execute,
        on_test=on_test,
    )


ZERO = "zero"


def without(leave_out: str | None, submission: Submission) -> Submission:
    """Remove the vectors that a user wants to leave out. `leave_out`: "zero" removes the vectors of
    length 0, None removes nothing. Raises UnknownName for another word, and UsageError for a
    submitted ranking, which has no vectors.
    """
    if leave_out is None:
        return submission
    if leave_out != ZERO:
        raise UnknownName("word for what to leave out", leave_out, [ZERO])
    if isinstance(submission, RankingSubmission):
        raise UsageError(
            f"{submission.source.file} has no vectors to leave out",
            expected="embeddings",
            found="rankings",
        )
    return submission.without_zeros()


def report_on(
    examined: Examined,
    *,
    memory: int | None = None,
    execute: Execute = on_threads,
    on_test: OnTest | None = None,
    top_k: int = 0,
) -> Report:
    """Measure every test of an examined submission, and return the report.

    Args:
        examined: the submission, with the dataset and the conditions.
        memory: the most bytes held beyond the embeddings.
        execute: computes the blocks.
        on_test: called with the name of each test; returns a function for progress.
        top_k: if not 0, the report also keeps this number of first results of every query.

    Raises:
        UsageError: `top_k` for a submission that this process does not rank: a ranking, a test that
            lists its positives, or blocks that a cluster computes.
    """
    jobs = examined.jobs(memory=memory)
    if top_k:
        # a submitted ranking has no jobs; listed positives have no labels to show results with
        if set(jobs) != set(examined.data.tests) or examined.data.lists:
            raise UsageError(
                "first results cannot be kept for this evaluation",
                expected="embeddings, and positives by label",
            )
        # `top` receives the first results of every query while its block is ranked
        jobs = {
            name: replace(job, top=TopResults(len(job.ranker.queries), top_k))
            for name, job in jobs.items()
        }

    measurements = measure_tests(examined, jobs, execute=execute, on_test=on_test)
    report = report_of_measurements(examined, measurements)
    if not top_k:
        return report

    tables = []
    for name, job in jobs.items():
        assert job.top is not None
        # a cluster's worker fills its own copy of `top`, which is not sent back
        if not job.top.kept.all():
            raise UsageError(
                "first results are not kept by the workers of a cluster",
                fix="leave --scheduler and --workers out",
            )
        test = examined.data.tests[name]
        similarities = job.top.similarities(job.ranker, examined.conditions.words.similarity)
        tables.append(
            results.table_of(
                name, test.items[test.query], test.items[test.gallery], job.top, similarities
            )
        )

    return replace(report, results=pa.concat_tables(tables))


def measure_tests(
    examined: Examined, jobs: Mapping[str, Job], *, execute: Execute, on_test: OnTest | None
) -> dict[str, Measurement]:
    """Measure every test of an examined submission: {test: measurement}.

    `jobs`: {test: job}; the engine ranks these. A test without a job belongs to a submitted
    ranking, whose lists are measured directly. `execute`: computes the blocks of the jobs.
    `on_test`: called with the name of each test; returns a function for progress. If `examined` has
    a second protocol (`also`), its values are measured, too; jobs were made with its scorers.
    """
    data = examined.data
    conditions = examined.conditions
    measurements = {}
    for name in data.tests:
        if name in jobs:
            measurements[name] = measure(
                jobs[name], execute=execute, on_block=on_test(name) if on_test else None
            )
        else:
            # embeddings have a job for every test
            assert isinstance(examined.submission, RankingSubmission)
            measurements[name] = examined.submission.measured(data, name, conditions, examined.also)
    return measurements


def report_of_measurements(examined: Examined, measurements: Mapping[str, Measurement]) -> Report:
    """Make the report from {test: measurement}. It also has a row for every query, with the classes
    of the query, which intervals and comparisons need."""
    queries = pa.concat_tables(
        queries_of(name, manifest) for name, manifest in examined.data.tests.items()
    )
    return report_of(
        measurements, queries, examined.subject, examined.conditions, warnings=examined.warnings
    )
