"""Reads the inputs of pictures: reports with their values by query, and embedding files that are
ranked on a test of a dataset."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from hbench.core.errors import ComparisonError, UnknownName, UsageError
from hbench.core.text import counted
from hbench.datasets import Dataset, load
from hbench.datasets.manifest import Manifest
from hbench.engine.job import Job
from hbench.engine.settings import Settings
from hbench.evaluation.examination import Examined, examine
from hbench.evaluation.measurement import measure
from hbench.evaluation.submission import read
from hbench.evaluation.submission.embedding import EmbeddingSubmission
from hbench.metrics.level_sequence import LevelSequence
from hbench.metrics.readings import known
from hbench.records import document as reports
from hbench.records.comparison import refuse_other_conditions
from hbench.records.document import BY_QUERY, Document
from hbench.records.other_files import refuse_for_embeddings
from hbench.submissions import embeddings

Trace = Callable[[LevelSequence], NDArray[np.float64]]


class Run(NamedTuple):
    """A report with the name that a picture shows. `by_query` holds the values of every query, if
    they exist."""

    name: str
    document: Document
    by_query: pa.Table | None


class RankedTest(NamedTuple):
    """An embedding file on one test of a dataset, with the name under which a picture shows it."""

    name: str
    examined: Examined
    test: str

    @property
    def manifest(self) -> Manifest:
        return self.examined.data.tests[self.test]

    @property
    def signature(self) -> str:
        return self.examined.signature([self.test])

    @property
    def job(self) -> Job:
        """The ranking of this test. Raises UsageError for a test with a list of positive pairs."""
        return self.examined.job(self.test)


class TwoFiles(NamedTuple):
    """A file with the embeddings of the queries, and one with those of the gallery."""

    query: Path
    gallery: Path

    @property
    def name(self) -> str:
        """The two file names, joined."""
        return f"{self.query.name} + {self.gallery.name}"


EmbeddingFile = Path | TwoFiles


def read_embeddings(file: EmbeddingFile, purpose: str) -> EmbeddingSubmission:
    """Read embeddings from one file, or from two.

    `purpose` names what needs vectors, such as "the class map", for the error about a file that has
    a ranking. Raises SubmissionError for a file that cannot be read, for a report, and for a folder
    that is not a table (a parquet table may be a folder).
    """
    if isinstance(file, TwoFiles):
        for path in file:
            refuse_for_embeddings(path)
        return EmbeddingSubmission(embeddings.read(file.query), embeddings.read(file.gallery))
    refuse_for_embeddings(file)
    return read(file).embeddings(purpose)


def runs_of(files: Sequence[str], names: Sequence[str] = ()) -> list[Run]:
    """Read reports that share a signature and a dataset, with the values by query from the files
    next to them (FILE.by-query.parquet).

    The runs are called by `names` or, without names, by the methods in the reports. A run has None
    for its values by query where it has no such file. Raises SubmissionError for a file that is not
    a report, and ComparisonError for reports with different conditions or whose intervals are over
    different units (queries, or the classes of a level).
    """
    paths = [Path(file) for file in files]
    documents = [reports.read(path) for path in paths]
    for other in documents[1:]:
        refuse_other_conditions(documents[0], other)
        if other.unit != documents[0].unit:
            raise ComparisonError(
                "the intervals of these reports are over other units",
                expected=documents[0].over,
                found=other.over,
                fix="evaluate both with the same --unit",
            )

    beside = [path.with_name(path.stem + BY_QUERY) for path in paths]
    pairs = zip(beside, documents, strict=True)
    tables = [
        reports.read_by_query(path, document) if path.is_file() else None
        for path, document in pairs
    ]
    # the names of the runs where none are given
    own = [document.method or path.stem for document, path in zip(documents, paths, strict=True)]
    shown = shown_names(names, own, paths)
    return [
        Run(name, document, table)
        for name, document, table in zip(shown, documents, tables, strict=True)
    ]


def shown_names(given: Sequence[str], own: Sequence[str], paths: Sequence[Path]) -> list[str]:
    """Return the given names, one per file. Without given names, return the files' own names; equal
    ones are told apart by the folders of their files.

    >>> shown_names([], ["a", "a", "b"], [Path("1/a.json"), Path("2/a.json"), Path("b.json")])
    ['1/a', '2/a', 'b']
    """
    if given and len(given) != len(paths):
        raise UsageError(
            "every file has one name",
            expected=f"--name for each of {counted(len(paths), 'file')}",
            found=counted(len(given), "name"),
        )
    pairs = zip(own, paths, strict=True)
    by_place = [
        f"{path.parent.name}/{path.stem}" if own.count(name) > 1 else name for name, path in pairs
    ]
    return list(given or by_place)


def dataset_of(name: str | Dataset | None, kind: str) -> Dataset:
    """Load the dataset that --dataset names. Raises UsageError without a name."""
    if name is None:
        raise UsageError(f"{kind} of an embedding file needs its dataset", fix="add --dataset NAME")
    return name if isinstance(name, Dataset) else load(name)


def test_of(data: Dataset, name: str | None) -> str:
    """Return the name of a test, by default of the first one. Raises UnknownName for an unknown
    test."""
    if name is not None and name not in data.tests:
        raise UnknownName("test", name, data.tests)
    return name or next(iter(data.tests))


def examined_embeddings(
    file: EmbeddingFile,
    data: Dataset,
    metric: str = "H-AP",
    *,
    similarity: str | None = None,
    ties: str = "pessimistic",
) -> Examined:
    """Read embeddings and check them against a dataset.

    `metric` is the only metric that will be computed. `similarity` is None for the dataset's own.
    `ties` says which of several items with equal scores come first. Raises SubmissionError, and
    UsageError for a file that has a ranking instead of vectors.
    """
    settings = Settings([metric], similarity=similarity, ties=ties)
    given = read_embeddings(file, "a picture")  # the error says what needs vectors
    # remarks about the vectors are left to reports: a picture has no space for them
    return examine(given, data, settings, doubted=False)


def ranked_tests(
    files: Sequence[str], data: Dataset, test: str | None, names: Sequence[str] = ()
) -> list[RankedTest]:
    """Read embedding files for one test: `test`, or the dataset's first one if it is None. The
    picture calls the files by `names` or, without names, by their file names."""
    chosen = test_of(data, test)
    paths = [Path(file) for file in files]
    shown = shown_names(names, [path.stem for path in paths], paths)
    return [
        RankedTest(name=name, examined=one, test=chosen)
        for name, one in zip(shown, examined_files(paths, data), strict=True)
    ]


def examined_files(
    paths: Sequence[EmbeddingFile],
    data: Dataset,
    metric: str = "H-AP",
    *,
    similarity: str | None = None,
    ties: str = "pessimistic",
) -> list[Examined]:
    """Read embedding files and check them against a dataset and against each other.

    `metric` is the only metric that will be computed. `similarity` is None for the dataset's own.
    `ties` says which of several items with equal scores come first.

    Raises SubmissionError for a file that does not fit the dataset, and UsageError for a ranking.
    Raises ComparisonError if the files list different items that could not be embedded: these items
    are left out, so that the queries and galleries of the files differ.
    """
    examined = [
        examined_embeddings(path, data, metric, similarity=similarity, ties=ties) for path in paths
    ]
    for other in examined[1:]:
        # `left_out` is the number and a digest of the items left out
        if other.conditions.words.left_out != examined[0].conditions.words.left_out:
            raise ComparisonError(
                "these files leave out other items",
                expected=examined[0].signature(),
                found=other.signature(),
                fix="embed the same pictures with every model",
            )
    return examined


def ranked_test(files: Sequence[str], data: Dataset, test: str | None) -> RankedTest:
    """Read a single embedding file for one test. Raises UsageError for several files."""
    if len(files) != 1:
        raise UsageError("this kind of plot takes one embedding file", found=f"{len(files)} files")
    (ranked,) = ranked_tests(files, data, test)
    return ranked


def trace_queries(job: Job, trace: Trace, width: int) -> NDArray[np.float64]:
    """Apply `trace` to the level sequence of every query, in one pass over the exact ranking of a
    test (`job`). `trace` returns `width` numbers; the result is (Q, width), a row for each query in
    input order.

    If labels are partial, the level of a query and an item may be unknown; such items are left out
    of the level sequence.
    """
    rows = np.full((len(job.ranker.queries), width), np.nan)
    # what leaves items of unknown level out of a sequence; None if all labels are complete
    reading = None if job.ranker.known is None else known(job.ranker.depth)

    def keep(query: int, sequence: LevelSequence) -> float:
        """Write the result of `trace` for a query to the query's row. `query` is its input
        position."""
        # no lock is needed: threads write to separate rows
        rows[query] = trace(sequence if reading is None else reading.of(sequence))
        return 0.0  # a scorer must return a number; this one is not used

    # `conditions` is part of the key under which blocks of values are cached, and this pass caches
    # nothing; `by_name` is for metrics that compare names, and this pass computes none
    measure(replace(job, scorers=[keep], conditions="", by_name=None))
    return rows
