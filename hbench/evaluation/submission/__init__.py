"""Submissions, embeddings or rankings: their source, their problems on a dataset, and how they
measure a test.

>>> ranking = RankingSubmission(
...     Ranking(
...         np.array(["a"], object),
...         np.array([str(n) for n in range(100)], object),
...         np.array([0, 100]),
...         np.arange(100),
...         None,
...         "",
...         "run.csv",
...     )
... )
>>> names, remarks = ranking.feasible(
...     [MetricName.parse(text) for text in ("R@10", "R@1000", "AP")], chosen=False
... )
>>> ", ".join(map(str, names)), remarks
('mAP@100, NDCG@100, R@10', ['a ranking of depth 100 cannot give R@1000, AP'])
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hbench.core.errors import SubmissionError, UsageError, examples
from hbench.datasets import Dataset
from hbench.datasets.manifest import Manifest
from hbench.engine.job import Job
from hbench.engine.lists.pairs import QueryLists
from hbench.engine.ranker import Side
from hbench.engine.settings import Conditions
from hbench.engine.similarity import SelectedRows
from hbench.evaluation.measurement import (
    Measurement,
    Retrieval,
    job_of,
    measured_sequences,
    scorers_of,
)
from hbench.metrics.level_sequence import LevelSequence
from hbench.metrics.name_columns import NamedSequences
from hbench.metrics.names import MetricName
from hbench.metrics.protocols import protocols
from hbench.records.document import SubmittedFile
from hbench.records.other_files import refuse_for_embeddings, refuse_predictions
from hbench.sheets.understood import Understood
from hbench.submissions import content, pair_labels
from hbench.submissions import embeddings as embedding_files
from hbench.submissions.embeddings import Embeddings
from hbench.submissions.embeddings.doubts import doubts_of, trained_on
from hbench.submissions.embeddings.files import VECTORS_ALONE
from hbench.submissions.problems import SubmissionProblem, in_a_line
from hbench.submissions.rankings import files as run_files
from hbench.submissions.rankings import level_sequences as run_levels
from hbench.submissions.rankings.files import Ranking
from hbench.tree import Labels
from hbench.tree.partial import is_partial, known_levels


def read(path: Path, *, ids: Path | None = None, movable: bool = False) -> Submission:
    """The embeddings or the ranking in a file, told apart by its content.

    `ids`: the file with the ids of one that has vectors alone; `movable`: the evaluation may put
    the vectors into another order in place, since nobody reads them afterwards.
    """
    if path.is_file():
        refuse_for_embeddings(path)
        refuse_predictions(path)
    if path.suffix.lower() not in VECTORS_ALONE and run_files.kind_of(path) == "ranking":
        return RankingSubmission(run_files.read(path))
    return EmbeddingSubmission(embedding_files.read(path, ids=ids), movable=movable)


def as_submission(
    given: str | Path | Embeddings | tuple[Embeddings, Embeddings] | Ranking | Submission,
) -> Submission:
    """The submission that a path, or what was read from files, stands for; a pair is queries and
    gallery.
    """
    if isinstance(given, str | Path):
        return read(Path(given))
    if isinstance(given, Embeddings):
        return EmbeddingSubmission(given)
    if isinstance(given, Ranking):
        return RankingSubmission(given)
    if isinstance(given, EmbeddingSubmission | RankingSubmission):
        return given
    if isinstance(given, tuple) and all(isinstance(part, Embeddings) for part in given):
        return EmbeddingSubmission(*given)

    raise UsageError(
        "this is not a submission",
        expected="a file, or vectors with ids=…",
        found=type(given).__name__,
        fix="give the ids of the vectors' rows: hbench.evaluate(vectors, dataset, ids=ids)",
    )


HIGHEST_BIT = 128  # of a byte


class EmbeddingSubmission:
    """Embeddings of the queries and of the gallery, from one file or from a file each. `movable`:
    evaluation may reorder and scale an array in memory in place, since nobody uses it afterwards.
    """

    understood: tuple[Understood, ...] = ()  # a file of vectors is what its suffix says

    def __init__(
        self, queries: Embeddings, gallery: Embeddings | None = None, *, movable: bool = False
    ) -> None:
        self.movable = movable
        self.queries = queries
        self.gallery = queries if gallery is None else gallery
        self.parts = (queries,) if gallery is None else (queries, gallery)

    @property
    def source(self) -> SubmittedFile:
        """The file or files, for the report's head."""
        joined = hashlib.sha256("".join(part.sha256 for part in self.parts).encode()).hexdigest()
        return SubmittedFile(
            file=_printable(" + ".join(part.source for part in self.parts)),
            sha256=self.queries.sha256 if len(self.parts) == 1 else joined,
            items=sum(map(len, self.parts)),
            dim=self.queries.dim,
            dtype=self.queries.dtype,
            left_out=tuple(sorted({item for part in self.parts for item in part.left_out})),
            image_size=self.queries.image_size,
        )

    @property
    def content(self) -> str:
        """The sha256 of its ids and vectors, whatever files they lie in."""
        return content.of_parts([part.content for part in self.parts])

    def problems(self, data: Dataset, *, cosine: bool) -> list[SubmissionProblem]:
        """Everything that is wrong with it for a dataset, in one pass; remarks have `fatal`
        False."""
        tests = data.tests.values()
        known = _items(data)
        asked = np.concatenate([manifest.items[manifest.query] for manifest in tests])
        ranked = np.concatenate([manifest.items[manifest.gallery] for manifest in tests])
        if len(self.parts) == 1:
            needed = np.array(list(dict.fromkeys([*asked, *ranked])), dtype=object)
            return embedding_files.problems(self.queries, wanted=needed, known=known, cosine=cosine)

        problems = [
            replace(problem, kind=f"{problem.kind} in {part.source}")
            for part, needed in zip(self.parts, (asked, ranked), strict=True)
            for problem in embedding_files.problems(part, wanted=needed, known=known, cosine=cosine)
        ]
        if any(problem.fatal for problem in problems) and self._are_swapped({*asked}, {*ranked}):
            raise SubmissionError(
                f"queries and gallery are swapped: {self.queries.source} holds the gallery's "
                "items, "
                f"{self.gallery.source} the queries'",
                fix="give each file to the other of --query and --gallery",
            )

        return [*problems, *embedding_files.problems_between(self.queries, self.gallery)]

    def without_zeros(self) -> EmbeddingSubmission:
        """The submission without its zero vectors, whose items count as left out."""
        return EmbeddingSubmission(
            *(part.without_zeros() for part in self.parts), movable=self.movable
        )

    def _are_swapped(self, asked: set[str], ranked: set[str]) -> bool:
        of_queries = set(self.queries.ids)
        of_gallery = set(self.gallery.ids)
        fit = asked <= of_queries and ranked <= of_gallery
        return not fit and asked <= of_gallery and ranked <= of_queries

    def doubts(self, data: Dataset) -> tuple[str, ...]:
        """The doubts that can be seen before it is scored, one sentence each."""
        return doubts_of(self.queries, self.gallery, data)

    def metrics(
        self, names: Sequence[MetricName], data: Dataset, *, chosen: bool
    ) -> tuple[tuple[MetricName, ...], list[str]]:
        """The metrics that it can give, and a remark on the others. Raises SubmissionError for
        impossible ones that were `chosen` by name."""
        return tuple(names), []

    def refuse_partial(self, data: Dataset) -> None:
        """Raise SubmissionError where it cannot be scored by partial labels."""
        if data.lists:
            raise SubmissionError(
                "partial labels are scored by embeddings alone",
                expected="positives by label",
                found="listed positives",
            )

    def refuse_bits(self) -> None:
        """Raise UsageError for bytes that may be packed bits: nothing but the user knows."""
        for part in self.parts:
            # bits set both the highest and the lowest place; counts seldom reach the former
            if part.dtype == "uint8" and float(part.vectors.max(initial=0)) >= HIGHEST_BIT:
                raise UsageError(
                    f"the bytes (uint8) in {part.source} may be packed bits or numbers",
                    found=f"{part.dim} bytes an item, up to {int(part.vectors.max())}",
                    fix="--similarity hamming, if they are packed bits; --similarity cosine, if "
                    "they are numbers",
                )

    def embeddings(self, purpose: str) -> EmbeddingSubmission:
        """Return itself if it holds vectors. Raises SubmissionError, which names the purpose, for
        rankings.
        """
        return self

    def jobs(
        self, data: Dataset, conditions: Conditions, also: str | None, memory: int | None
    ) -> dict[str, Job]:
        """The jobs of the tests that are ranked by the engine, by name."""
        movable = self.movable and len(data.tests) == 1  # several share the vectors
        of_all = partial(build_job, conditions=conditions, also=also, memory=memory)
        jobs = {}
        for name, test in data.tests.items():
            if name in data.lists:
                lists = pair_labels.lists_of(
                    data.lists[name], test.items[test.query], test.items[test.gallery]
                )
                build = partial(of_all, test=test, names=None, lists=lists)
            else:
                build = partial(of_all, test=test, names=data.labels_by_name(test))
            jobs[name] = replace(build(self.parts, movable=movable), rebuild=build)
        return jobs


class RankingSubmission:
    """The lists that a system returned."""

    def __init__(self, ranking: Ranking) -> None:
        self.ranking = ranking

    @property
    def understood(self) -> tuple[Understood, ...]:
        """What its file was taken for."""
        prefix = f"{self.ranking.source}: "
        return tuple(
            Understood(self.ranking.source, text.removeprefix(prefix))
            for text in self.ranking.understood
        )

    @property
    def source(self) -> SubmittedFile:
        return SubmittedFile(
            file=_printable(self.ranking.source),
            sha256=self.ranking.sha256,
            items=len(self.ranking),
        )

    @property
    def content(self) -> str:
        """The sha256 of its lists, whatever file they lie in."""
        return self.ranking.content

    def problems(self, data: Dataset, *, cosine: bool) -> list[SubmissionProblem]:
        known = _items(data)
        tests = data.tests.values()
        of_tests = (run_levels.problems(self.ranking, manifest, known=known) for manifest in tests)
        return list(dict.fromkeys(problem for problems in of_tests for problem in problems))

    def doubts(self, data: Dataset) -> tuple[str, ...]:
        return tuple(trained_on(data))

    def metrics(
        self, names: Sequence[MetricName], data: Dataset, *, chosen: bool
    ) -> tuple[tuple[MetricName, ...], list[str]]:
        tests = data.tests.values()
        if all(run_levels.is_full(self.ranking, test) for test in tests):
            return tuple(names), []
        missing = [
            query
            for test in tests
            for query in run_levels.without_list(self.ranking, test).tolist()
        ]
        return self.feasible(names, chosen=chosen, missing=missing)

    def feasible(
        self, names: Sequence[MetricName], *, chosen: bool, missing: Sequence[str] = ()
    ) -> tuple[tuple[MetricName, ...], list[str]]:
        """The metrics that lists of this depth can give, and a remark on the others; `missing`: the
        queries without a list.
        """
        depth = self.ranking.depth
        possible = [
            name for name in names if not name.needs_full_ranking and (name.cut or 0) <= depth
        ]
        left_out = ", ".join(str(name) for name in names if name not in possible)
        if not left_out:
            return tuple(possible), []
        if chosen or not possible:
            better = "a list for every query" if missing else "embeddings, or longer lists"
            if not missing and depth > 0:
                better += f"; or ask for what lists of {depth} can give: --metrics mAP@{depth}"
            raise SubmissionError(
                f"a ranking of depth {depth} cannot give {left_out}",
                expected=f"metrics cut at k ≤ {depth}, such as R@k, mAP@k, NDCG@k, P@k",
                found=f"{len(missing):,} queries without a list "
                f"({examples(map(in_a_line, missing))})"
                if missing
                else None,
                fix=f"submit {better}",
            )

        best = [MetricName("mAP", cut=depth), MetricName("NDCG@", cut=depth)]
        return tuple(dict.fromkeys([*best, *possible])), [
            f"a ranking of depth {depth} cannot give {left_out}"
        ]

    def refuse_partial(self, data: Dataset) -> None:
        raise SubmissionError(
            "partial labels are scored by embeddings alone",
            expected="an embedding file",
            found="a ranking",
        )

    def refuse_bits(self) -> None:
        """Do nothing: lists hold no bytes."""

    def embeddings(self, purpose: str) -> EmbeddingSubmission:
        raise SubmissionError(
            f"{purpose} needs vectors",
            expected="an embedding file",
            found=f"{self.source.file} holds rankings",
        )

    def jobs(
        self, data: Dataset, conditions: Conditions, also: str | None, memory: int | None
    ) -> dict[str, Job]:
        return {}

    def measured(
        self, data: Dataset, name: str, conditions: Conditions, also: str | None
    ) -> Measurement:
        """The levels of a ranking's lists, which are measured as those of vectors are. By judged
        pairs where the test has them, else by the labels."""
        manifest = data.tests[name]
        ranking = self.ranking
        named = None
        if name in data.lists:
            lists = _judged(data, name)
            tie_key = conditions.ties(manifest.tree.depth)
            sequences = pair_labels.sequences_of_ranking(ranking, manifest, lists, tie_key)
        else:
            sequences = run_levels.levels_of(ranking, manifest, ties=conditions.ties)

        names = data.labels_by_name(manifest)
        if names is not None:
            named = run_levels.named_levels_of(ranking, manifest, names, ties=conditions.ties)
        apart = name not in data.lists and not np.array_equal(manifest.query, manifest.gallery)
        return _measured(
            sequences, data, name, conditions, also=also, named=named, all_pairs=not apart
        )


Submission = EmbeddingSubmission | RankingSubmission


def _judged(data: Dataset, name: str) -> list[pair_labels.Judged]:
    manifest = data.tests[name]
    return pair_labels.judged(
        data.lists[name], manifest.items[manifest.query], manifest.items[manifest.gallery]
    )


def _measured(
    sequences: Sequence[LevelSequence],
    data: Dataset,
    name: str,
    conditions: Conditions,
    *,
    also: str | None,
    named: dict[int, NamedSequences] | None = None,
    all_pairs: bool = True,
) -> Measurement:
    """The measurement of a test's level sequences, one for each query; `all_pairs`: whether the
    queries are their own gallery.
    """
    manifest = data.tests[name]
    names = data.labels_by_name(manifest)
    scorers = scorers_of(
        conditions,
        manifest.labels[manifest.query],
        all_pairs=all_pairs,
        also=protocols[also] if also else None,
        names=None if names is None else names[manifest.query],
    )
    # means are summed in the order of the ids, whatever that of the lists
    by_id = np.argsort(manifest.items[manifest.query].astype(str))
    return measured_sequences(sequences, scorers, canonical=by_id, named=named)


def build_job(
    parts: Sequence[Embeddings],
    *,
    test: Manifest,
    conditions: Conditions,
    also: str | None,
    memory: int | None,
    names: Labels | None,
    lists: QueryLists | None = None,
    movable: bool = False,
) -> Job:
    """The job of one test from embeddings: of all items, or of the queries and of the gallery. A
    cluster's workers make the same job from the files that they read.

    `names` (N, L): the labels by name, where they form no tree. `lists`: what each query's
    positives are, where no label says so.
    """
    retrieval = retrieval_of(test, *parts, movable=movable)
    if lists is not None:
        # means are summed in the order of the ids, as those of a ranking are
        by_id = np.argsort(test.items[test.query].astype(str))
        job = job_of(
            retrieval,
            conditions,
            also=protocols[also] if also else None,
            memory=memory,
            all_pairs=True,
        )
        return replace(job, ranker=job.ranker.of_lists(lists), canonical=by_id)
    if names is not None:
        retrieval = replace(retrieval, names=(names[test.query], names[test.gallery]))
    return job_of(retrieval, conditions, also=protocols[also] if also else None, memory=memory)


def retrieval_of(
    manifest: Manifest,
    queries: Embeddings,
    gallery: Embeddings | None = None,
    *,
    movable: bool = False,
) -> Retrieval:
    """A manifest's test as arrays; nothing is copied, rows are read when their block is ranked,
    `movable` ones perhaps moved.

    Where the queries are the whole gallery they are ranked among themselves; a query is never in
    its own list.
    """
    asked = np.flatnonzero(manifest.query)
    ranked = np.flatnonzero(manifest.gallery)
    side = _side(manifest, queries, asked, movable)
    if gallery is None and np.array_equal(asked, ranked):
        return Retrieval(side, None, None, manifest.items[asked])
    position = np.full(len(manifest), -1)
    position[ranked] = np.arange(len(ranked))
    return Retrieval(
        side,
        _side(manifest, gallery or queries, ranked, movable),
        position[asked],
        manifest.items[asked],
    )


def _side(manifest: Manifest, source: Embeddings, items: NDArray[np.int64], movable: bool) -> Side:
    """The queries or the gallery: the items (n,) of a manifest, by their rows in the file."""
    rows = embedding_files.align(source, manifest.items[items])
    selected: Any = SelectedRows(source.vectors, rows, movable=movable, whole=source.scan)
    ignore = None if manifest.ignore is None else manifest.ignore[items]
    more = None if manifest.more is None else manifest.more.of(items)
    known: NDArray[np.uint8] | None = None
    if is_partial(manifest.tree):
        of_class = known_levels(manifest.tree)
        known = of_class[manifest.labels[items, -1]]
        more = None if more is None else more._replace(known=of_class[more.labels[:, -1]])
    return Side(selected, manifest.labels[items], ignore, known, more)


def _items(data: Dataset) -> set[str]:
    return {item for manifest in data.manifests.values() for item in manifest.items} | {
        *data.dropped
    }


def _printable(name: str) -> str:
    """A file's name with a mark for each byte that is not UTF-8, since reports are UTF-8."""
    return name.encode(errors="surrogateescape").decode(errors="replace")
