"""Reads what the pages of a report show: the scores, and the values and first results of the
queries in the order of the test.

All but the scores may be missing. The pages then say what is missing, and which option makes it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from hbench.core.errors import ComparisonError, DataError, SubmissionError, UnknownName, examples
from hbench.core.tables import text_array
from hbench.datasets import Dataset, load
from hbench.datasets.manifest import Manifest
from hbench.engine.job import Job
from hbench.engine.settings import Conditions, Signature
from hbench.engine.top_k import NO_ITEM
from hbench.evaluation.examination import digest_of, examine, without_items
from hbench.evaluation.measurement import OnBlock, measure
from hbench.evaluation.submission.embedding import EmbeddingSubmission
from hbench.look.inputs import EmbeddingFile, Run, read_embeddings, runs_of, trace_queries
from hbench.look.plots.class_map import ClassPlaces, map_of
from hbench.look.plots.h_pr import BINS, Curve, mean_curve, precision_by_recall
from hbench.look.strips.retrievals import RightResults, TopLists, copies_of, lists_of, ranker_of
from hbench.metrics.names import MetricName
from hbench.records import results
from hbench.records.document import Document
from hbench.records.document import read as read_document
from hbench.records.queries import metric_columns, queries_of, units_of

Floats = NDArray[np.float64]
# most classes on a map; with twice as many, t-SNE takes a quarter of the ranking's time
MAP_CLASSES = 1_000
# most queries from which the precision-recall curve is computed; more make no visible difference
CURVE_QUERIES = 2_000


@dataclass(frozen=True)
class ReportedRun:
    """A report with what is known about its queries.

    Attributes:
        name: the run's name on the pages.
        document: the report.
        values: for each metric, the values of the test's queries (Q,), float64, NaN where
            undefined. Empty without a file of values or without the dataset.
        by_query: the table in the file of values, with all tests; None without the file.
        top: the first results; None if no file keeps them and no vectors are given.
        curve: the precision–recall curve; None without vectors.
        places: the map of classes; None without vectors.
    """

    name: str
    document: Document
    values: dict[str, Floats]
    by_query: pa.Table | None = None
    top: TopLists | None = None
    curve: Curve | None = None
    places: ClassPlaces | None = None


@dataclass(frozen=True)
class Reported:
    """The content of a report's pages: runs of one signature on one test.

    Attributes:
        runs: the runs whose queries are items; if there are none, the runs in `named`.
        data: the dataset; None if it is not on this disk or not needed.
        test: the name of the test.
        by: the metric that ranks queries and classes.
        named: the runs on the same dataset whose queries are names.
    """

    runs: tuple[ReportedRun, ...]
    data: Dataset | None
    test: str
    by: str
    named: tuple[ReportedRun, ...] = ()

    @property
    def is_by_name(self) -> bool:
        """Whether the queries of all runs are names."""
        return self.runs == self.named

    @property
    def document(self) -> Document:
        """The report of the first run; the conditions in it are those of all runs."""
        return self.runs[0].document

    @property
    def manifest(self) -> Manifest | None:
        return None if self.data is None else self.data.tests[self.test]

    def missing(self) -> list[str]:
        """List what the pages cannot show, each with the option that makes it."""
        if self.is_by_name:  # the page of names needs the reports alone
            return []
        if self.data is None:
            return [
                f"{self.document.dataset} is not on this disk: no classes and no queries "
                "(--dataset FOLDER)"
            ]

        found = []
        for run in self.runs:
            if not run.values:
                found.append(
                    f"{run.name}: the values of its queries are not kept (hbench evaluate "
                    "--by-query)"
                )
            if run.top is None:
                found.append(
                    f"{run.name}: its results are not kept (hbench evaluate --top-k 20, or "
                    "--embeddings here)"
                )
            if run.curve is None:
                words = (
                    "no precision-recall curve and no map without its vectors (--embeddings FILE)"
                )
                found.append(f"{run.name}: {words}")

        return found


def read_runs(
    files: Sequence[Path],
    *,
    dataset: str | Dataset | None = None,
    test: str | None = None,
    by: str | None = None,
) -> Reported:
    """Read reports, and the files of values and results next to them.

    Args:
        files: the reports.
        dataset: the dataset or its folder or table, if the dataset's name in the reports does not
            find it.
        test: the test to show. Default: the first.
        by: the metric that ranks queries and classes. Default: H-AP, or the first metric of a
            report without it.

    Raises the errors of `runs_of`; UnknownName for the test or the metric; ComparisonError if a
    report with names as queries is of another dataset than the others; and DataError if a given
    dataset is not on this disk, or is not the dataset of the reports.
    """
    # reports whose queries are names (nodes of the tree) instead of items
    on_names = [path for path in files if _has_names_as_queries(path)]
    named = _named_runs(on_names)
    # reports on names alone need no dataset; all their tests, one per depth, are shown as "names"
    if len(on_names) == len(files):
        return Reported(
            runs=named, data=None, test="names", by=_metric(named[0].document, by), named=named
        )

    files = [path for path in files if path not in on_names]
    runs = runs_of([str(path) for path in files])
    document = runs[0].document
    _refuse_other_dataset(document, named)
    if test is not None and test not in document.tests:
        raise UnknownName("test of this report", test, document.tests)

    chosen = test or document.tests[0]
    data = _dataset(document, dataset)
    manifest = None if data is None else data.tests[chosen]
    found = [
        _read_reported_run(run, path, chosen, manifest)
        for path, run in zip(files, runs, strict=True)
    ]
    return Reported(
        runs=tuple(found), data=data, test=chosen, by=_metric(document, by), named=named
    )


def _read_reported_run(run: Run, path: Path, test: str, manifest: Manifest | None) -> ReportedRun:
    """Read the first results of queries from the file next to a report, and the values of a test's
    queries from the table of values. Without a manifest, only the table is kept.

    `path` is the report's file.
    """
    # values and results are put in the order of the test's queries, which only the dataset knows
    if manifest is None:
        return ReportedRun(run.name, run.document, {}, run.by_query)

    # for each metric (Q,), in the order of the test
    values: dict[str, Floats] = {}
    if run.by_query is not None:
        rows = _rows_of(run.by_query, test, manifest, path)
        values = {
            name: np.asarray(rows[name].to_numpy(), np.float64) for name in metric_columns(rows)
        }

    top = None
    beside = path.with_suffix(results.SUFFIX)
    if beside.is_file():
        top = _top_lists(results.read(beside, run.document), test, manifest, beside)
        # whether a score shows equal vectors depends on the similarity: only a cosine does
        similarity = Signature.parse(run.document.signature).words.similarity
        top = top._replace(copies=copies_of(top.scores, similarity))
    return ReportedRun(run.name, run.document, values, run.by_query, top)


def _named_runs(files: Sequence[Path]) -> tuple[ReportedRun, ...]:
    """Read the reports whose queries are names. They need no dataset: the values of the nodes are
    in the tables next to the reports, under the nodes' names."""
    runs = runs_of([str(path) for path in files])
    return tuple(ReportedRun(run.name, run.document, {}, run.by_query) for run in runs)


def _has_names_as_queries(path: Path) -> bool:
    """Whether the queries of a report are names. Such a report's signature says how many names of
    which level were queries."""
    return "|queries:" in read_document(path).signature


def _refuse_other_dataset(document: Document, named: Sequence[ReportedRun]) -> None:
    """Raise ComparisonError if one of the runs in `named`, whose queries are names and not items,
    was evaluated on another dataset than the document's."""
    for run in named:
        if run.document.dataset_digest != document.dataset_digest:
            raise ComparisonError(
                f"{run.name} asked by name on another dataset",
                expected=f"{document.dataset}@{document.dataset_version}",
                found=f"{run.document.dataset}@{run.document.dataset_version}",
                fix="make pages of its own from it",
            )


def _loaded(document: Document, name: str | None) -> Dataset:
    """Load the dataset of a report from `name`, a folder, a table or another name; None stands for
    the dataset's name in the report. A table is read with the options in the report."""
    if name is None:
        return load(document.dataset)
    return load(name, **document.table_options())


def _dataset(document: Document, named: str | Dataset | None) -> Dataset | None:
    """Load the dataset of a report, without the items that the embeddings left out.

    Returns None if no dataset is `named` and the dataset of the report is not found on this disk.
    Raises DataError if a `named` dataset is not the one of the report.
    """
    try:
        data = named if isinstance(named, Dataset) else _loaded(document, named)
    except (DataError, UnknownName):
        if named is not None:
            raise
        return None

    if digest_of(data) == document.dataset_digest:
        # the first of (dataset, ids that were removed)
        return without_items(data, document.embedding.left_out if document.embedding else ())[0]
    # the data folder has another dataset of this name, or another version
    if named is None:
        return None

    name = named.name if isinstance(named, Dataset) else named
    expected = (
        f"digest {document.dataset_digest[:12]}…, {document.dataset}@{document.dataset_version}"
    )
    found = f"{digest_of(data)[:12]}…, {data.name}@{data.version}"
    raise DataError(f"{name} is not the dataset of this report", expected=expected, found=found)


def _metric(document: Document, name: str | None) -> str:
    """Return the metric by which the pages choose and sort, as the report spells it.

    This is the metric called `name`, without a level that is the finest; by default H-AP, or the
    first metric if the report has no H-AP. Raises UnknownName for a metric that the report lacks.
    """
    if name is None:
        return "H-AP" if "H-AP" in document.scores else next(iter(document.scores))
    spelled = str(MetricName.parse(name).at(document.levels))
    if spelled not in document.scores:
        raise UnknownName("metric of this report", name, document.scores)
    return spelled


def _rows_of(table: pa.Table, test: str, manifest: Manifest, path: Path) -> pa.Table:
    """Select the rows of a test's queries from a table of all tests, in the order of the test.
    `path` is the table's file, for error messages."""
    queries = text_array(manifest.items[manifest.query])
    rows = table.filter(pc.equal(table["test"], test))
    # (Q,): the row of each query, null if it is missing
    order = pc.index_in(queries, value_set=rows["query"].combine_chunks())
    if order.null_count:
        lone = queries.filter(pc.is_null(order)).to_pylist()
        raise SubmissionError(
            f"{path} lacks queries of {test}", found=f"{len(lone):,} missing: {examples(lone)}"
        )
    return rows.take(order)


def _top_lists(table: pa.Table, test: str, manifest: Manifest, path: Path) -> TopLists:
    """Read the first results of a test from a table, with items as positions in the manifest.

    `copies` of the result is False throughout: the caller fills it in, since copies depend on the
    similarity. `path` is the table's file, for error messages.
    """
    own = _rows_of(table, test, manifest, path)
    columns = [own[name].combine_chunks() for name in ("items", "scores", "levels")]
    # each column has a list for every query; flattened, their values follow each other
    # (Q,) for each column; a null instead of a list counts as an empty list
    lengths = [pc.list_value_length(column).fill_null(0).to_numpy() for column in columns]
    items, scores, levels = (column.flatten() for column in columns)
    # positions of the items in the manifest; null for an item that the test does not have
    places = pc.index_in(items, value_set=text_array(manifest.items))
    alike = all(np.array_equal(column, lengths[0]) for column in lengths)
    if not alike or places.null_count or scores.null_count or levels.null_count:
        raise SubmissionError(
            f"{path} is damaged", expected=f"items of {test}, a score and a level of each"
        )
    if len(levels) and pc.max(levels).as_py() > manifest.tree.depth:
        raise SubmissionError(f"{path} is damaged", expected=f"levels 0 … {manifest.tree.depth}")

    # (Q, k), padded after the end of each list; at least one column, since readers look at the
    # first result
    k = max(1, int(lengths[0].max(initial=0)))
    listed = np.arange(k) < lengths[0][:, None]
    lists = TopLists(
        items=np.full(listed.shape, NO_ITEM, np.int32),
        scores=np.full(listed.shape, np.nan),
        levels=np.zeros(listed.shape, np.uint8),
        copies=np.zeros(listed.shape, bool),
    )
    # a mask assigns row by row, which is also the order of the flattened columns
    lists.items[listed], lists.scores[listed], lists.levels[listed] = map(
        np.asarray, (places, scores, levels)
    )

    return lists


def with_embeddings(
    reported: Reported, files: Sequence[EmbeddingFile], k: int, on_block: OnBlock | None = None
) -> Reported:
    """Add what only vectors can show to every run with an embedding file: the precision–recall
    curve, the map of classes, the first right result of each query and, if they are missing, the
    first k results. Each file needs one ranking pass.

    Args:
        reported: the runs, with their dataset.
        files: embedding files; each belongs to the run that scored a file with this checksum.
        k: the number of first results.
        on_block: is called after each block of queries.

    Raises SubmissionError for a file that no run scored, and DataError without the dataset.
    """
    if reported.data is None:
        raise DataError(
            f"{reported.document.dataset} is not on this disk", fix="name its folder by --dataset"
        )

    # the runs, by the sha256 of the file that each run scored
    runs = {_checksum(run): run for run in reported.runs}
    ranked: dict[str, ReportedRun] = {}
    for path in files:
        # "a curve and a map" need vectors: so says the error about a file that has a ranking
        given = read_embeddings(path, "a curve and a map")
        sha256 = given.source.sha256
        if sha256 not in runs:
            scored = " or ".join(f"{digest[:12]}… of {run.name}" for digest, run in runs.items())
            raise SubmissionError(
                f"{path.name} is not the file that was scored",
                expected=scored,
                found=f"{sha256[:12]}…",
            )
        ranked[sha256] = _with_ranking(reported, runs[sha256], given, k, on_block)

    return replace(reported, runs=tuple(ranked.get(_checksum(run), run) for run in reported.runs))


def _checksum(run: ReportedRun) -> str:
    """Return the sha256 of the vectors that a run scored; "" if the report names no vectors."""
    return run.document.embedding.sha256 if run.document.embedding else ""


def _with_ranking(
    reported: Reported,
    run: ReportedRun,
    given: EmbeddingSubmission,
    k: int,
    on_block: OnBlock | None,
) -> ReportedRun:
    """Rank a run's vectors, and return the run with the first right result of every query, the mean
    precision–recall curve, the map of the classes and, if no file keeps them, the first results.

    Args:
        reported: the runs, with their dataset.
        run: the run.
        given: the run's vectors.
        k: the number of first results.
        on_block: is called after each block of queries.
    """
    data = reported.data
    assert data is not None
    # the conditions of the report, but only one metric, which is quick: its score is not used
    settings = replace(
        Signature.parse(run.document.signature).settings, metrics=["R@1"], unit=run.document.unit
    )
    # without a search for doubtful vectors, which the evaluation's report shows
    examined = examine(given, data, settings, doubted=False)
    job = examined.job(reported.test, fix="leave --embeddings out")
    manifest = data.tests[reported.test]
    similarity = examined.conditions.words.similarity
    # if a file keeps the results, only the first right one is missing
    results = RightResults(len(job.ranker.queries), k if run.top is None else 1)
    # R@1 needs only the finest level, so little is sorted; the ranking fills `results`. This job
    # needs neither `conditions`, the key under which blocks are cached, nor `by_name`, labels for
    # metrics by official names.
    measure(replace(job, conditions="", by_name=None, top=results), on_block=on_block)
    ranked = lists_of(manifest, job.ranker, results, similarity)
    top = ranked if run.top is None else run.top._replace(right=ranked.right)
    places = map_of(manifest, given, cosine=similarity == "cosine", most=MAP_CLASSES)
    return replace(
        run, curve=_curve(run.name, manifest, given, examined.conditions), places=places, top=top
    )


def _curve(
    name: str, manifest: Manifest, given: EmbeddingSubmission, conditions: Conditions
) -> Curve:
    """Compute the mean precision–recall curve of the queries. Of more than CURVE_QUERIES queries,
    only a random sample is ranked.

    Args:
        name: the name of the run.
        manifest: the items and labels of the test.
        given: the run's vectors.
        conditions: the conditions of the report.
    """
    queries = int(manifest.query.sum())
    # positions among the queries; the fixed seed chooses the same ones for every run
    sample = np.sort(
        np.random.default_rng(0).choice(queries, min(CURVE_QUERIES, queries), replace=False)
    )
    # no metrics, since only the level sequences are needed
    job = Job(ranker_of(manifest, given, sample, conditions), [])
    # (queries of the sample, BINS): precision in every bin of recall
    rows = trace_queries(
        job, lambda sequence: precision_by_recall(sequence, conditions.relevance), BINS
    )
    # the last argument: the unit of each query, such as its class, over which intervals are taken
    return mean_curve(
        name, rows, units_of(queries_of(name, manifest).take(sample), conditions.unit)
    )
