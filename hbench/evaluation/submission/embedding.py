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

HIGHEST_BIT = 128  # the value of the highest bit in a byte


class EmbeddingSubmission:
    """Embeddings of the queries and of the gallery, from one file or from two.

    `queries`, `gallery`: the same object if one file has both. `parts`: the objects, one or two.
    `movable`: whether the evaluation may reorder and scale arrays in place, because nobody uses
    them afterwards.
    """

    understood: tuple[Understood, ...] = ()  # nothing to report: the suffix determines the format

    def __init__(
        self, queries: Embeddings, gallery: Embeddings | None = None, *, movable: bool = False
    ) -> None:
        """Keep the embeddings. `gallery`: None if `queries` also has the items of the gallery.
        `movable`: whether arrays in memory may be reordered and scaled in place, because nobody
        uses them afterwards."""
        self.movable = movable
        self.queries = queries
        self.gallery = queries if gallery is None else gallery
        self.parts = (queries,) if gallery is None else (queries, gallery)

    @property
    def source(self) -> SubmittedFile:
        """Describe the file or files for the report's head. Two files get the digest of their
        digests; values that cannot differ, such as the dimension, are those of the first file."""
        joined = hashlib.sha256("".join(part.sha256 for part in self.parts).encode()).hexdigest()
        return SubmittedFile(
            file=" + ".join(part.source for part in self.parts),
            sha256=self.queries.sha256 if len(self.parts) == 1 else joined,
            items=sum(map(len, self.parts)),
            dim=self.queries.dim,
            dtype=self.queries.dtype,
            left_out=tuple(sorted({item for part in self.parts for item in part.left_out})),
            image_size=self.queries.image_size,
            # the command that made the embeddings; there is none that makes two files
            made=self.queries.made if len(self.parts) == 1 else None,
        )

    @property
    def content(self) -> str:
        """The sha256 of the submission's ids and vectors, the same for any format of file and order
        of its rows."""
        return content.of_parts([part.content for part in self.parts])

    def problems(self, data: Dataset, *, cosine: bool) -> list[SubmissionProblem]:
        """Everything that is wrong with the submission for a dataset, in one pass; mere remarks
        have `fatal` False. `cosine`: whether the similarity is the cosine, which is undefined for
        zero vectors.

        Raises SubmissionError where the files of queries and gallery are swapped.
        """
        tests = data.tests.values()
        # the ids of all splits: a file may also hold items of the training split, for example
        known = data.known_items
        # the ids of all tests' queries, and of the items of all their galleries
        asked = np.concatenate([manifest.items[manifest.query] for manifest in tests])
        ranked = np.concatenate([manifest.items[manifest.gallery] for manifest in tests])
        if len(self.parts) == 1:
            # each id once, in order: in most datasets the queries are gallery items, too
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
        """Return the submission without its zero vectors, whose items count as left out."""
        return EmbeddingSubmission(
            *(part.without_zeros() for part in self.parts), movable=self.movable
        )

    def _are_swapped(self, asked: set[str], ranked: set[str]) -> bool:
        """Whether the two files were most likely swapped: the file of the gallery has all queries,
        the file of the queries has all gallery items, and the files do not fit as given. `asked`,
        `ranked`: the ids of the dataset's queries and gallery items."""
        of_queries = set(self.queries.ids)
        of_gallery = set(self.gallery.ids)
        fit = asked <= of_queries and ranked <= of_gallery
        return not fit and asked <= of_gallery and ranked <= of_queries

    def doubts(self, data: Dataset) -> tuple[str, ...]:
        """Return the doubts about the vectors, such as identical rows, one sentence each."""
        return doubts_of(self.queries, self.gallery, data)

    def metrics(
        self, names: Sequence[MetricName], data: Dataset, *, chosen: bool
    ) -> tuple[tuple[MetricName, ...], list[str]]:
        """Return the metrics that can be computed, and remarks on the others. Vectors give all
        metrics; the method has the signature of the one for rankings, which may not."""
        return tuple(names), []

    def refuse_partial(self, data: Dataset) -> None:
        """Raise SubmissionError if the dataset lists positives pair by pair. Called for partial
        labels, which end above the finest level. They tell which items have an unknown level and
        are left out of a query's list. This needs levels that come from labels, not from listed
        pairs. (The message names embeddings, too: partial labels need both.)
        """
        if data.lists:
            raise SubmissionError(
                "partial labels are scored by embeddings alone",
                expected="positives by label",
                found="listed positives",
            )

    def refuse_bits(self) -> None:
        """Raise UsageError for vectors of bytes (uint8) that may be packed bits or numbers, which
        only the user knows. Called if the user named no similarity, which would tell, and the
        dataset's similarity is not "hamming"."""
        for part in self.parts:
            # packed bits set the highest bit of some bytes; numbers are seldom as large as that bit
            # (HIGHEST_BIT)
            if part.dtype == "uint8" and float(part.vectors.max(initial=0)) >= HIGHEST_BIT:
                raise UsageError(
                    f"the bytes (uint8) in {part.source} may be packed bits or numbers",
                    found=f"{part.dim} bytes an item, up to {int(part.vectors.max())}",
                    fix="--similarity hamming, if they are packed bits; --similarity cosine, if "
                    "they are numbers",
                )

    def embeddings(self, purpose: str) -> EmbeddingSubmission:
        """Return the submission itself, since it has vectors. (A ranking raises SubmissionError,
        which names the `purpose`.)
        """
        return self

    def jobs(
        self, data: Dataset, conditions: Conditions, also: str | None, memory: int | None
    ) -> dict[str, Job]:
        """Make the jobs of the dataset's tests: {test: job}. Each job has a function `rebuild`, by
        which a cluster's worker makes it again from the files. `also`: the name of a second
        protocol. `memory`: the most bytes held beyond the embeddings."""
        # whether the job may reorder the vectors in place, which would spoil them for the dataset's
        # other tests
        movable = self.movable and len(data.tests) == 1
        of_all = partial(build_job, conditions=conditions, also=also, memory=memory)
        jobs = {}
        for name, test in data.tests.items():
            # the test lists its positives pair by pair, without labels, as revisited Oxford does
            if name in data.lists:
                lists = pair_labels.lists_of(
                    data.lists[name], test.items[test.query], test.items[test.gallery]
                )
                build = partial(of_all, test=test, names=None, lists=lists)
            else:
                # for the protocol of a released evaluator: the labels (N, L), numbered by the names
                # that it uses; None if these names tell the same classes apart as the tree
                build = partial(of_all, test=test, names=data.labels_by_name(test))
            # a worker calls `build` with the embeddings that it has read, and without `movable`,
            # since its jobs share them
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
    """Make the job of one test from embeddings. A cluster's workers make the same job from the
    files that they have read.

    Args:
        parts: the embeddings of all items, or those of the queries and those of the gallery.
        test: the manifest.
        conditions: the conditions of the scores.
        also: the name of a second protocol; None: there is none.
        memory: the most bytes held beyond the embeddings; None: the default.
        names: (N, L), the labels by name of all items of the test, which released evaluators
            compare; None if names form a tree.
        lists: the positives of each query; None if labels tell them.
        movable: whether the vectors may be reordered in place.
    """
    retrieval = retrieval_of(test, *parts, movable=movable)
    if lists is not None:
        # Where the gallery is separate, released evaluators drop the item ranked last, but those
        # for listed positives do not (`keeps_last`). Means are summed in the order of the ids, as
        # for a ranking. `by_id` (Q,): the positions of the queries in this order
        by_id = np.argsort(test.items[test.query].astype(str))
        job = job_of(
            retrieval,
            conditions,
            also=protocols[also] if also else None,
            memory=memory,
            keeps_last=True,
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
    """Make the arrays of a manifest's test. Vectors are not copied: their rows are read when their
    block is ranked.

    If queries and gallery are the same items, the queries rank each other. A query is never in its
    own list. `queries`, `gallery`: the embeddings; `gallery` is None if `queries` has the vectors
    of both. `movable`: whether vectors may be reordered in place.
    """
    # the rows of the manifest that are queries, and those in the gallery
    asked = np.flatnonzero(manifest.query)
    ranked = np.flatnonzero(manifest.gallery)
    side = _side(manifest, queries, asked, movable)
    # one file, and every gallery item is a query: the queries rank each other
    if gallery is None and np.array_equal(asked, ranked):
        # None: without a gallery, query q is row q
        return Retrieval(side, gallery=None, self_rows=None, ids=manifest.items[asked])
    # maps a row of the manifest to its row in the gallery, −1 if it is not there
    position = np.full(len(manifest), -1)
    position[ranked] = np.arange(len(ranked))
    return Retrieval(
        side,
        gallery=_side(manifest, gallery or queries, ranked, movable),
        self_rows=position[asked],
        ids=manifest.items[asked],
    )


def _side(manifest: Manifest, source: Embeddings, items: NDArray[np.int64], movable: bool) -> Side:
    """Make one side of a test, the queries or the gallery, from rows of the manifest, `items` (n,),
    and their vectors in `source`, which are found by id. `movable`: whether the vectors may be
    reordered in place."""
    rows = embedding_files.align(source, manifest.items[items])  # (n,): rows of the vectors
    # `whole`: the keys and squared lengths that were computed when all vectors were checked, so
    # that the vectors are not read again
    selected: Any = SelectedRows(source.vectors, rows, movable=movable, whole=source.scan)
    ignore = None if manifest.ignore is None else manifest.ignore[items]
    # the further paths of items with several; None if every item has one
    more = None if manifest.more is None else manifest.more.of(items)
    known: NDArray[np.uint8] | None = None
    # if some paths end early: the number of known levels of each item, found by its finest class
    if is_partial(manifest.tree):
        of_class = known_levels(manifest.tree)
        known = of_class[manifest.labels[items, -1]]
        more = None if more is None else more._replace(known=of_class[more.labels[:, -1]])
    return Side(
        vectors=selected, labels=manifest.labels[items], ignore=ignore, known=known, more=more
    )
