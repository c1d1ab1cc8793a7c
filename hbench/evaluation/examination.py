"""Reads and checks a submission, a dataset and settings before any work, and collects remarks on
them."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from hbench.core.errors import DataError, UsageError, examples
from hbench.datasets import Dataset, load, specs
from hbench.datasets.manifest import name_table_of
from hbench.engine.job import Job
from hbench.engine.settings import USUAL, Conditions, Settings, refuse_other_relevance
from hbench.evaluation.measurement import several_in_words
from hbench.evaluation.submission import Submission, as_submission
from hbench.evaluation.summary import Subject
from hbench.metrics.names import MetricName, default_metrics, parse_metrics
from hbench.submissions.embeddings import Embeddings
from hbench.submissions.problems import refuse
from hbench.submissions.rankings.files import Ranking
from hbench.tree.names import remarks_on
from hbench.tree.partial import known_levels


@dataclass(frozen=True)
class Examined:
    """A submission that was found fit to be scored, with the dataset, the conditions of the scores,
    and the remarks on them (`warnings`).

    `also`: the name of a second protocol, whose values are computed in the same ranking pass.
    `subject`: the description of submission and dataset for the report's head.
    """

    submission: Submission
    data: Dataset
    conditions: Conditions
    also: str | None
    subject: Subject
    warnings: tuple[str, ...]

    def signature(self, tests: Sequence[str] | None = None) -> str:
        """The signature of the scores on these tests; None: on all."""
        return str(
            self.conditions.signature(
                f"{self.data.name}@{self.data.version}", tests or self.data.tests
            )
        )

    def jobs(self, *, memory: int | None = None) -> dict[str, Job]:
        """Make the jobs of the tests that the engine ranks: {test: job}. Empty for a submitted
        ranking. `memory`: the most bytes held beyond the embeddings."""
        return self.submission.jobs(self.data, self.conditions, self.also, memory)

    def job(self, test: str, *, fix: str | None = None) -> Job:
        """Make the job of one test whose positives are given by labels. Raises UsageError, with
        `fix` as its advice, for a submitted ranking, which the engine does not rank, and for a test
        that lists its positives pair by pair."""
        jobs = self.jobs()
        if test not in jobs:
            raise UsageError(
                f"the lists of {test} are a submitted ranking", expected="embeddings", fix=fix
            )
        if test in self.data.lists:
            raise UsageError(
                f"{test} lists its positives pair by pair",
                expected="a test with a label tree",
                fix=fix,
            )
        return jobs[test]


def examine(
    submission: str | Path | Embeddings | tuple[Embeddings, Embeddings] | Ranking | Submission,
    dataset: str | Path | Dataset,
    settings: Settings = USUAL,
    *,
    also_official: bool = False,
    method: str | None = None,
    doubted: bool = True,
) -> Examined:
    """Read a submission and a dataset, check that they fit together, and decide what is measured.
    Raises the errors that `evaluate` lists.

    Args:
        submission: a file, or what was read from one.
        dataset: a name, a folder, a table, or a Dataset.
        settings: the user's options.
        also_official: also measure as the released evaluator does.
        method: the model's name, for the report.
        doubted: look for suspicious vectors, such as identical rows. Reports show these doubts;
            pictures do not need them.
    """
    whole = dataset if isinstance(dataset, Dataset) else load(dataset)
    given = as_submission(submission)
    # an embedding file may list items that could not be embedded (`left_out`, their ids): remove
    # them from the dataset
    data, left_out = without_items(whole, given.source.left_out)
    _refuse_empty(data)

    # remarks on labels that end above the finest level; empty if all are complete
    partial = partial_labels_of(data)
    if partial:
        given.refuse_partial(data)  # raises for rankings, and if positives are listed by pair
    # uint8 vectors may be numbers or packed bits. A similarity that the user chose tells which. So
    # does the dataset's if it is "hamming", which compares bits. Else doubtful bytes are refused
    if settings.similarity is None and data.protocol.similarity != "hamming":
        given.refuse_bits()
    also = _official_protocol(data, settings, partial=bool(partial)) if also_official else None
    conditions = _conditions(settings, data, partial=bool(partial), left_out=left_out)
    # `several`: the most paths that an item has
    if conditions.words.several > 1 and also is not None:
        raise UsageError(
            "the released evaluators know one path of an item", fix="leave the official values out"
        )

    problems = given.problems(data, cosine=conditions.words.similarity == "cosine")
    # before the metrics are checked, since a misspelt id makes a list look too short for them
    refuse(given.source.file, problems)
    # the metrics that can be computed, and remarks on the others: a truncated list, for example,
    # has no AP
    possible, impossible = given.metrics(
        conditions.metrics, data, chosen=settings.metrics is not None
    )
    conditions = replace(conditions, metrics=possible)

    remarks = [*partial, *_remarks_on_paths(data), *impossible]
    remarks += [*_remarks_on_data(data, whole, left_out), *map(str, problems)]
    # `_refuse_broken_text` returns the name itself, if a report can hold it
    subject = _subject(
        given, whole, _refuse_broken_text(method), given.doubts(data) if doubted else ()
    )
    return Examined(
        submission=given,
        data=data,
        conditions=conditions,
        also=also,
        subject=subject,
        warnings=tuple(remarks),
    )


def _conditions(
    settings: Settings, data: Dataset, *, partial: bool, left_out: Sequence[str]
) -> Conditions:
    """Resolve the user's settings to conditions. Metrics and similarity that are None become those
    of the dataset's papers; without metrics, hbench's default metrics are added.

    `partial`: whether some labels end above the finest level. `left_out`: the ids of the items that
    were removed from `data` because they could not be embedded.
    """
    # the default metrics of a tree with these levels (names), then those that the papers report
    default: list[str | MetricName] = [*default_metrics(data.levels), *data.protocol.all_metrics]
    names = parse_metrics(default if settings.metrics is None else settings.metrics, data.levels)
    similarity = settings.similarity
    if similarity is None:
        similarity = data.protocol.similarity
    protocol = protocol_name(settings.protocol, data)
    # the signature tells which items are left out, by their number and a digest of their ids:
    # scores on different items are not comparable
    without = f"{len(left_out)}({_short_digest(left_out)})" if left_out else ""
    chosen = replace(settings, similarity=similarity, protocol=protocol)
    # the most paths that an item has; the signature states it if it is above 1
    several = max(test.paths.most for test in data.tests.values())
    return chosen.resolve(
        data.levels, metrics=names, partial=partial, left_out=without, several=several
    )


def _subject(
    given: Submission, whole: Dataset, method: str | None, doubts: tuple[str, ...]
) -> Subject:
    """Describe what is scored for the report's head: the submitted file and the dataset.

    `whole`: the dataset before items were left out. `method`: the submission's name. `doubts`:
    sentences on suspicious vectors.
    """
    source = None
    if given.source.sha256:  # empty for arrays, which have no file
        # `content`: the sha256 of vectors and ids, or of lists, in whatever format they are stored
        source = given.source.model_copy(update={"content": given.content})
    # how hbench understood a user's own table and the submitted file, in sentences
    read_as = (*([whole.read] if whole.read else []), *given.understood)
    return Subject(
        dataset=whole.name,
        version=whole.version,
        digest=digest_of(whole),
        method=method,
        source=source,
        doubts=doubts,
        read=read_as,
    )


def _remarks_on_paths(data: Dataset) -> list[str]:
    """Say how many items of each test have several paths."""
    remarks = []
    for name, test in data.tests.items():
        if test.more is not None:
            remarks.append(f"{name}: {several_in_words(test.more.owners, test.paths.most)}")
    return remarks


def _remarks_on_data(data: Dataset, whole: Dataset, left_out: Sequence[str]) -> list[str]:
    """Make the remarks on the dataset: which items were left out, and, for a user's own dataset,
    oddities in the names of its classes, such as two spellings of one name.

    `data`: the dataset without the items that were left out. `whole`: the dataset with them.
    `left_out`: the ids of these items.
    """
    remarks = []
    if left_out:
        number = f"{len(left_out):,} items that could not be embedded, or whose vectors are zero,"
        by_class = _classes_of(whole, left_out)
        remarks.append(
            f"{number} are neither queries nor in the gallery: {examples(left_out)}; {by_class}"
        )
    # `specs`: the published datasets, whose class names are as their authors want them
    if data.name not in specs:
        remarks += remarks_on(name_table_of(list(data.tests.values())))
    return remarks


def without_items(data: Dataset, items: Sequence[str]) -> tuple[Dataset, list[str]]:
    """Remove items from the tests of a dataset. `items`: the ids of items that could not be
    embedded. Return the dataset and the sorted ids that were removed. Nothing is removed from a
    dataset with a test that lists its positives pair by pair (`lists`), since no listed item may be
    missing."""
    listed = set(items)
    left_out = sorted(
        {item for test in data.tests.values() for item in test.items if item in listed}
    )
    if not left_out or data.lists:
        return data, []
    tests = {}
    for name, test in data.tests.items():
        kept = np.array([item not in listed for item in test.items])
        tests[name] = test.of(np.flatnonzero(kept))
    return replace(data, tests=tests), left_out


def _classes_of(data: Dataset, items: Sequence[str]) -> str:
    """Say how many of the items (ids) belong to each finest class, the largest number first. An
    item with several paths counts for the class of its first path."""
    listed = set(items)
    counts = Counter[str]()
    for test in data.tests.values():
        classes = test.tree.names[-1]
        counts.update(
            classes[label]
            for item, label in zip(test.items, test.labels[:, -1], strict=True)
            if item in listed
        )
    return "by class: " + examples(f"{name} {count:,}" for name, count in counts.most_common())


def _short_digest(items: Sequence[str]) -> str:
    """The first eight hex digits of the sha256 of ids, since a signature should be short."""
    return hashlib.sha256("\n".join(items).encode()).hexdigest()[:8]


def _refuse_empty(data: Dataset) -> None:
    """Raise DataError for a test of the dataset without queries, or without a gallery."""
    for name, test in data.tests.items():
        for side, mask in (("queries", test.query), ("gallery items", test.gallery)):
            if not mask.any():
                raise DataError(
                    f"the test {name!r} of {data.name} has no {side}",
                    expected="at least one query and one gallery item",
                    found=f"{len(test):,} items",
                    fix="look at the columns query and gallery of its manifest",
                )


def _refuse_broken_text(method: str | None) -> str | None:
    """Return a method's name. Raises UsageError if it has a lone surrogate, which cannot be written
    to a report; a terminal with another encoding passes such names."""
    try:
        (method or "").encode()
    except UnicodeEncodeError as error:
        raise UsageError(
            "the method's name is not text", expected="UTF-8", found=ascii(method)
        ) from error
    return method


def partial_labels_of(data: Dataset) -> list[str]:
    """Make a remark for each test in which some labels end above the finest level: to which levels
    its queries are known."""
    remarks = []
    for name, test in data.tests.items():
        # all paths of all items, (E, L), and the item of each, (E,)
        labels, items = test.paths.all_labels()
        # (E,): how many levels of each path are known, looked up by the path's finest label
        known = known_levels(test.tree)[labels[:, -1]]
        if not (known < test.tree.depth).any():
            continue

        # for each of the N items: the most levels that are known of one of its paths (N,), and
        # whether a path of it ends above the finest level (N,)
        best = np.zeros(len(test), np.uint8)
        ends_early = np.zeros(len(test), bool)
        np.maximum.at(best, items, known)
        ends_early[items[known < test.tree.depth]] = True
        # how many queries are known exactly down to level 1, 2, …, L. [1:] leaves out the count for
        # level 0, which is 0 since level 1 of every path is known
        counts = np.bincount(best[test.query], minlength=test.tree.depth + 1)[1:].tolist()
        parts = [
            f"{count:,} to {level}"
            for level, count in zip(test.levels, counts, strict=True)
            if count
        ]
        remarks.append(
            f"{name}: partial labels: queries are known {', '.join(parts)}; "
            f"{int(ends_early[test.gallery].sum()):,} gallery "
            "items end early and are left out where their level is unknown"
        )

    return remarks


def _official_protocol(data: Dataset, settings: Settings, *, partial: bool) -> str:
    """Return the name of the protocol that a dataset's released evaluator follows. Raises
    UsageError for partial labels or another relevance, which it does not support.
    """
    if partial:
        raise UsageError(
            "protocol `official` does not support partial labels",
            fix="leave the official values out",
        )
    refuse_other_relevance(settings.relevance)
    return protocol_name("official", data)


def protocol_name(name: str, data: Dataset) -> str:
    """Replace the protocol "official" by the variant of the dataset's released evaluator, such as
    "official-landmark"; return any other name unchanged."""
    return data.protocol.official if name == "official" else name


def digest_of(data: Dataset) -> str:
    """Return the sha256, as hex digits, of the names and digests of the tests. Two reports with
    equal digests are on the same items and labels."""
    lines = [f"{name} {manifest.digest}\n" for name, manifest in sorted(data.tests.items())]
    return hashlib.sha256("".join(lines).encode()).hexdigest()
