"""Evaluation: vectors and labels, or a dataset and an embedding file, become a report.

>>> report = score([[1.0, 0.1], [1.0, 0.0], [0.0, 1.0]], [[0, 0], [0, 0], [1, 1]], metrics=["H-AP", "R@1"])
>>> report.scores["H-AP"], report.document.scores["H-AP"].queries
(1.0, 2)
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hbench.conditions import Conditions, conditions
from hbench.errors import SubmissionError
from hbench.measure import Measurement, OnBlock, measure
from hbench.protocol import Protocol, Setting
from hbench.ranking import Ranker, Side
from hbench.relevance import inverted
from hbench.report import Document, Report, Score, Source
from hbench.significance import mean_of_tests_interval
from hbench.tree import LabelTree
from hbench.vectors import as_vectors
from hbench.version import __version__

UNRELATED = "unrelated"


@dataclass(frozen=True)
class Retrieval:
    """One test of a dataset as arrays: who asks, who is ranked (None: the queries themselves), which gallery row a
    query is (-1: none)."""

    queries: Side
    gallery: Side | None
    self_rows: NDArray[np.int64] | None
    ids: NDArray[np.object_]


@dataclass(frozen=True)
class Subject:
    """What is scored on what, for the report's head."""

    dataset: str
    version: str
    digest: str
    levels: tuple[str, ...]
    method: str | None = None
    source: Source | None = None


def score(
    vectors: ArrayLike,
    labels: ArrayLike,
    *,
    gallery: ArrayLike | None = None,
    gallery_labels: ArrayLike | None = None,
    level_names: Sequence[str] | None = None,
    metrics: Sequence[str] | None = None,
    relevance: str = "alpha",
    alpha: float = 1.0,
    protocol: str = "paper",
    ties: str = "pessimistic",
    similarity: str = "cosine",
    threads: int | None = None,
) -> Report:
    """Score vectors (N, D) with labels (N, L), coarse to fine, against themselves (a query is not in its own list) or a
    gallery.

    Vectors may be numpy arrays or torch tensors of any float type. Levels are named level1 (coarse) … levelL (fine) by
    default. Raises SubmissionError for vectors that cannot be ranked, TreeError for labels that are no tree,
    UnknownName for names.
    """
    test, tree = _retrieval_of_arrays(vectors, labels, gallery, gallery_labels, level_names, similarity)
    chosen = conditions(
        tree.levels,
        metrics=metrics,
        relevance=relevance,
        alpha=alpha,
        similarity=similarity,
        ties=ties,
        protocol=protocol,
    )
    digest = hashlib.sha256(np.ascontiguousarray(tree.paths).tobytes()).hexdigest()
    return report_of({"test": test}, Subject("arrays", "1", digest, tree.levels), chosen, threads=threads)


def report_of(
    tests: Mapping[str, Retrieval],
    subject: Subject,
    chosen: Conditions,
    *,
    also: Protocol | None = None,
    threads: int | None = None,
    on_block: Callable[[str], OnBlock] | None = None,
) -> Report:
    """Rank and measure every test; a score is the mean over the tests of its mean over the queries.

    `also`: a second protocol whose values are computed in the same ranking pass and kept in the report's `official`.
    """
    protocols = [chosen.protocol] if also is None else [chosen.protocol, also]
    measurements = {}
    for name, test in tests.items():
        setting = Setting(subject.levels, chosen.relevance, chosen.exponent, test.queries.labels, test.gallery is None)
        scorers = [protocol(metric, setting) for protocol in protocols for metric in chosen.metrics]
        ranker = Ranker(
            test.queries, test.gallery, self_rows=test.self_rows, similarity=chosen.similarity, tie_key=chosen.ties
        )
        measurements[name] = measure(ranker, scorers, threads=threads, on_block=on_block(name) if on_block else None)
    names = [str(name) for name in chosen.metrics]
    ordered = [measured.values[:, measured.canonical] for measured in measurements.values()]
    scores = summarise(ordered)
    document = Document(
        hbench_version=__version__,
        dataset=subject.dataset,
        dataset_version=subject.version,
        dataset_digest=subject.digest,
        tests=tuple(tests),
        levels=subject.levels,
        protocol=chosen.protocol_name,
        signature=chosen.signature(f"{subject.dataset}@{subject.version}", tests),
        method=subject.method,
        embedding=subject.source,
        scores=dict(zip(names, scores, strict=False)),
        official=dict(zip(names, scores[len(names) :], strict=False)),
        mistakes={name: first_levels(measured, subject.levels) for name, measured in measurements.items()},
        warnings=tuple(remarks(measurements, chosen)),
        date=datetime.now(UTC).date().isoformat(),
    )
    values = np.concatenate([measured.values for measured in measurements.values()], axis=1)
    return Report(
        document,
        dict(zip(names, values, strict=False)),
        np.concatenate([test.ids for test in tests.values()]),
        np.repeat(np.array(list(tests), dtype=object), [len(test.ids) for test in tests.values()]),
    )


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


def first_levels(measured: Measurement, levels: Sequence[str]) -> dict[str, int]:
    """How many queries have an item of each level at rank 1, finest first; the rest is `unrelated`."""
    counts = np.bincount(measured.first_level, minlength=len(levels) + 1).tolist()
    return dict(reversed(list(zip([UNRELATED, *levels], counts, strict=True))))


def remarks(measurements: Mapping[str, Measurement], chosen: Conditions) -> list[str]:
    """What a reader of the scores must know: ties, relevance inversions, queries without positives."""
    found = []
    for name, measured in measurements.items():
        asked = len(measured.tied)
        tied, alone = int(measured.tied.sum()), int((measured.counts[:, 1:].sum(axis=1) == 0).sum())
        inversions = int(inverted(chosen.relevance(measured.counts), measured.counts).sum())
        facts = {
            f"have equal scores across levels, ordered by the policy {chosen.ties_name}": tied,
            "have no positive at any level and are left out of the means": alone,
            "have a relevance inversion: a coarser level worth more than a finer one": inversions,
        }
        found += [f"{name}: {count} of {asked} queries {fact}" for fact, count in facts.items() if count]
    return found


def _retrieval_of_arrays(
    vectors: ArrayLike,
    labels: ArrayLike,
    gallery: ArrayLike | None,
    gallery_labels: ArrayLike | None,
    level_names: Sequence[str] | None,
    similarity: str,
) -> tuple[Retrieval, LabelTree]:
    asked = as_vectors(vectors)
    ids = np.array([str(i) for i in range(len(asked))], dtype=object)
    if (gallery is None) != (gallery_labels is None):
        raise SubmissionError("a gallery needs its labels", expected="gallery and gallery_labels together, or neither")
    ranked = asked[:0] if gallery is None else as_vectors(gallery, "gallery vectors")
    both = [np.asarray(labels)] if gallery_labels is None else [np.asarray(labels), np.asarray(gallery_labels)]
    both = [part[:, None] if part.ndim == 1 else part for part in both]
    for what, rows, part in zip(("vectors", "gallery vectors"), (asked, ranked), both, strict=False):
        if len(rows) != len(part):
            raise SubmissionError(
                f"{what} and labels differ in number", expected=f"{len(rows)} rows of labels", found=f"{len(part)}"
            )
    if gallery is not None and asked.shape[1] != ranked.shape[1]:
        raise SubmissionError(
            "queries and gallery differ in dimension", expected=f"{asked.shape[1]}", found=f"{ranked.shape[1]}"
        )
    if similarity == "cosine":
        for what, rows in (("vectors", asked), ("gallery vectors", ranked)):
            zero = np.flatnonzero(~rows.any(axis=1))
            if len(zero):
                raise SubmissionError(
                    f"{len(zero)} of the {what} are zero and have no cosine",
                    found=f"rows {zero[:5].tolist()}",
                    fix='use similarity="dot" or "l2", or look at the model',
                )
    tree, renumbered = LabelTree.from_labels(np.concatenate(both), levels=level_names)
    own = Side(asked, renumbered[: len(asked)])
    other = None if gallery is None else Side(ranked, renumbered[len(asked) :])
    return Retrieval(own, other, None, ids), tree
