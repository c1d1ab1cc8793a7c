"""A submission of embeddings: its source, its problems on a dataset, and its tests as jobs of the
engine."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hbench.core.errors import SubmissionError, UsageError
from hbench.datasets import Dataset
from hbench.datasets.manifest import Manifest
from hbench.engine.job import Job
from hbench.engine.lists.pairs import QueryLists
from hbench.engine.settings import Conditions
from hbench.engine.sides import Side
from hbench.engine.similarity import SelectedRows
from hbench.evaluation.measurement import (
    Retrieval,
    job_of,
)
from hbench.metrics.names import MetricName
from hbench.metrics.protocols import protocols
from hbench.records.document import SubmittedFile
from hbench.sheets.understood import Understood
from hbench.submissions import content, pair_labels
from hbench.submissions import embeddings as embedding_files
from hbench.submissions.embeddings import Embeddings
from hbench.submissions.embeddings.doubts import doubts_of
from hbench.submissions.problems import SubmissionProblem
from hbench.tree import Labels
from hbench.tree.partial import is_partial, known_levels

HIGHEST_BIT = 128  # of a byte


class EmbeddingSubmission:
    """Embeddings of the queries and of the gallery, from one file or from a file each.

    `queries`, `gallery`: the same object where one file has all; `parts`: that one, or both.
    `movable`: evaluation may reorder and scale an array in memory in place, since nobody uses it
    afterwards.
    """

    understood: tuple[Understood, ...] = ()  # a file of vectors is what its suffix says

    def __init__(
        self, queries: Embeddings, gallery: Embeddings | None = None, *, movable: bool = False
    ) -> None:
        """`gallery`: None where one file has both sides; `parts`: the files, one or two; `movable`:
        whether their vectors may be put into another order in memory."""
        self.movable = movable
        self.queries = queries
        self.gallery = queries if gallery is None else gallery
        self.parts = (queries,) if gallery is None else (queries, gallery)

    @property
    def source(self) -> SubmittedFile:
        """The file or files, for the report's head; of two files, the digest of their digests.
        What cannot differ, such as the dimension, is that of the queries' file."""
        joined = hashlib.sha256("".join(part.sha256 for part in self.parts).encode()).hexdigest()
        return SubmittedFile(
            file=" + ".join(part.source for part in self.parts),
            sha256=self.queries.sha256 if len(self.parts) == 1 else joined,
            items=sum(map(len, self.parts)),
            dim=self.queries.dim,
            dtype=self.queries.dtype,
            left_out=tuple(sorted({item for part in self.parts for item in part.left_out})),
            image_size=self.queries.image_size,
            # of two files, no one command makes both
            made=self.queries.made if len(self.parts) == 1 else None,
        )

    @property
    def content(self) -> str:
        """The sha256 of the submission's ids and vectors, the same for any format of file and order
        of its rows."""
        return content.of_parts([part.content for part in self.parts])

    def problems(self, data: Dataset, *, cosine: bool) -> list[SubmissionProblem]:
        """Everything that is wrong with the submission for a dataset, in one pass; mere remarks
        have `fatal` False. `cosine`: whether it is ranked by cosine, which zero vectors have not.

        Raises SubmissionError where the files of queries and gallery are swapped.
        """
        tests = data.tests.values()
        known = data.known_items  # of all splits: an item of another one is no unknown id
        # the ids of all tests' queries and of all their galleries
        asked = np.concatenate([manifest.items[manifest.query] for manifest in tests])
        ranked = np.concatenate([manifest.items[manifest.gallery] for manifest in tests])
        if len(self.parts) == 1:
            # each id once, in order: most datasets ask for what they rank
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

        # problems that only two files can have, such as vectors of different dimensions
        return [*problems, *embedding_files.problems_between(self.queries, self.gallery)]

    def without_zeros(self) -> EmbeddingSubmission:
        """The submission without its zero vectors, whose items count as left out."""
        return EmbeddingSubmission(
            *(part.without_zeros() for part in self.parts), movable=self.movable
        )

    def _are_swapped(self, asked: set[str], ranked: set[str]) -> bool:
        """Whether the items that a dataset asks for are all in the file of the gallery, and those
        that are ranked in the file of the queries, while they do not fit as they were given."""
        of_queries = set(self.queries.ids)
        of_gallery = set(self.gallery.ids)
        fit = asked <= of_queries and ranked <= of_gallery
        return not fit and asked <= of_gallery and ranked <= of_queries

    def doubts(self, data: Dataset) -> tuple[str, ...]:
        """The doubts that vectors raise before they are scored, such as identical rows, one
        sentence each."""
        return doubts_of(self.queries, self.gallery, data)

    def metrics(
        self, names: Sequence[MetricName], data: Dataset, *, chosen: bool
    ) -> tuple[tuple[MetricName, ...], list[str]]:
        """Which of the metrics `names` the submission can give, and remarks on the others: vectors
        give all. (A ranking that is cut cannot, and raises for impossible ones that were `chosen`:
        both kinds of submissions are asked in the same way.)"""
        return tuple(names), []

    def refuse_partial(self, data: Dataset) -> None:
        """Raise SubmissionError where partial labels cannot score the submission: positives that
        are listed pair by pair have a level of their own, which no label leaves open."""
        if data.lists:
            raise SubmissionError(
                "partial labels are scored by embeddings alone",
                expected="positives by label",
                found="listed positives",
            )

    def refuse_bits(self) -> None:
        """Raise UsageError for bytes that may be packed bits: nothing but the user knows."""
        for part in self.parts:
            # packed bits set the highest bit of some bytes; counts seldom are so large
            if part.dtype == "uint8" and float(part.vectors.max(initial=0)) >= HIGHEST_BIT:
                raise UsageError(
                    f"the bytes (uint8) in {part.source} may be packed bits or numbers",
                    found=f"{part.dim} bytes an item, up to {int(part.vectors.max())}",
                    fix="--similarity hamming, if they are packed bits; --similarity cosine, if "
                    "they are numbers",
                )

    def embeddings(self, purpose: str) -> EmbeddingSubmission:
        """Return the submission itself: it holds vectors. (A ranking raises SubmissionError, which
        names the purpose.)
        """
        return self

    def jobs(
        self, data: Dataset, conditions: Conditions, also: str | None, memory: int | None
    ) -> dict[str, Job]:
        """The jobs of the dataset's tests, by name, each with how a worker of a cluster makes it
        again from the files. `also`: the name of a second protocol; `memory`: bytes to hold."""
        # the job of a test may move the vectors, which several tests share
        movable = self.movable and len(data.tests) == 1
        of_all = partial(build_job, conditions=conditions, also=also, memory=memory)
        jobs = {}
        for name, test in data.tests.items():
            # positives that are listed pair by pair, as in revisited Oxford, in place of labels
            if name in data.lists:
                lists = pair_labels.lists_of(
                    data.lists[name], test.items[test.query], test.items[test.gallery]
                )
                build = partial(of_all, test=test, names=None, lists=lists)
            else:
                build = partial(of_all, test=test, names=data.labels_by_name(test))
            # a worker calls `build` with the files that it read; `movable` stays False there, since
            # jobs of one worker share them
            jobs[name] = replace(build(self.parts, movable=movable), rebuild=build)
        return jobs


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
    """The job of one test from embeddings: the `parts` are those of all items, or of the queries
    and of the gallery. A cluster's workers make the same job from the files that they read.

    `also`: the name of a second protocol; `memory`: bytes that ranking may hold, None for the
    usual; `names` (N, L): the labels by name, where they form no tree; `lists`: what each query's
    positives are, where no label says so; `movable`: whether the vectors may be reordered in place.
    """
    retrieval = retrieval_of(test, *parts, movable=movable)
    if lists is not None:
        # `all_pairs`: the evaluators of judged lists keep the item that is ranked last. Means are
        # summed in the order of the ids, as those of a ranking are
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
    # the rows of the manifest that ask, and those that are ranked
    asked = np.flatnonzero(manifest.query)
    ranked = np.flatnonzero(manifest.gallery)
    side = _side(manifest, queries, asked, movable)
    # from one file, and all items ask: ranked among themselves, each without itself
    if gallery is None and np.array_equal(asked, ranked):
        return Retrieval(side, gallery=None, self_rows=None, ids=manifest.items[asked])
    # from an item of the manifest to its row in the gallery, −1 for what is not there
    position = np.full(len(manifest), -1)
    position[ranked] = np.arange(len(ranked))
    return Retrieval(
        side,
        gallery=_side(manifest, gallery or queries, ranked, movable),
        self_rows=position[asked],
        ids=manifest.items[asked],
    )


def _side(manifest: Manifest, source: Embeddings, items: NDArray[np.int64], movable: bool) -> Side:
    """The queries or the gallery: these items (n,), positions in a manifest, with their vectors out
    of a file, found by id. `movable`: whether the vectors may be reordered in place."""
    rows = embedding_files.align(source, manifest.items[items])  # (n,): of the file's vectors
    selected: Any = SelectedRows(source.vectors, rows, movable=movable, whole=source.scan)
    ignore = None if manifest.ignore is None else manifest.ignore[items]
    more = None if manifest.more is None else manifest.more.of(items)
    known: NDArray[np.uint8] | None = None
    # some paths end early: how many levels of each class are known, and so of each item, by its
    # class at the finest level
    if is_partial(manifest.tree):
        of_class = known_levels(manifest.tree)
        known = of_class[manifest.labels[items, -1]]
        more = None if more is None else more._replace(known=of_class[more.labels[:, -1]])
    return Side(selected, manifest.labels[items], ignore, known, more)
