"""Makes, reads and writes reports: the scores of one file on one dataset, with the conditions they cannot be quoted without.

Measurements become means with intervals, the level of the first mistakes, and remarks for the reader. `Document` is
what is written as JSON; `Report` adds the values of every query, which `--by-query` writes beside it as parquet.
"""

from __future__ import annotations

import hashlib
import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from pydantic import Field, NonNegativeInt, ValidationError, model_validator

from hbench.core.errors import SubmissionError, UsageError
from hbench.core.files import replacing, write_text
from hbench.core.schema import Strict
from hbench.core.tables.understood import Understood
from hbench.core.text import first_line, first_problem
from hbench.core.untrusted import LIST, parquet_table, read_json
from hbench.core.version import __version__
from hbench.engine.settings import QUERY, Conditions
from hbench.evaluation.measurement import Measurement
from hbench.evaluation.reports.findings import doubts_of_values, few_units, first_levels, remarks
from hbench.evaluation.reports.other_files import refuse_for_report
from hbench.evaluation.reports.queries import KEYS, MetricValues, metric_columns, units_in_words, units_of
from hbench.metrics.names import factor_of
from hbench.metrics.partial_lists import is_graded
from hbench.metrics.significance import UnitSums, mean_intervals

SCHEMA = 1
BY_QUERY = ".by-query.parquet"  # the values of every query lie next to their report

if TYPE_CHECKING:
    import pandas as pd


Number = Annotated[float, Field(strict=True, allow_inf_nan=False)]  # neither a text nor true
ROUNDED = 1e-9  # by which a mean and the ends of its interval may differ where all values are equal


class Score(Strict):
    """A metric's mean over the queries it is defined for, as a fraction, inside its interval; None when it is defined for none.

    `units`: of how many units (classes, or queries) these queries are, by which the interval is taken.
    """

    value: Number | None
    low: Number | None
    high: Number | None
    queries: NonNegativeInt
    skipped: NonNegativeInt
    units: NonNegativeInt = 0

    @model_validator(mode="after")
    def _is_inside(self) -> Score:
        value, low, high = self.value, self.low, self.high
        if value is not None and low is not None and high is not None and not low - ROUNDED <= value <= high + ROUNDED:
            raise ValueError(f"{value} lies outside of its interval from {low} to {high}")
        return self


class SubmittedFile(Strict):
    """The file that was scored. `left_out`: the items that it says could not be embedded."""

    file: str
    sha256: str
    items: int
    dim: int | None = None
    dtype: str | None = None
    left_out: tuple[str, ...] = ()


class UnderTree(Strict):
    """The scores under another tree over the same fine classes, and of every metric the paired difference from the dataset's
    own tree (hbench.evaluation.reports.comparison.Difference)."""

    levels: tuple[str, ...]
    signature: str
    scores: dict[str, Score]
    differences: dict[str, dict[str, str | float | int | None]]


class Document(Strict):
    """A report as it is written: see docs for the JSON schema (`Document.model_json_schema()`).

    `by_test`: where a score is the mean over several tests, its value on each. `doubts`: what speaks against the
    submission (hbench.evaluation.embeddings.doubts). `unknown_wrong`, `unknown_right`: under partial labels, the metrics that
    go by all levels with every unknown level at its lowest, and at its highest (docs/partial-labels.md); `scores` use known levels.
    `trees`: the scores under other trees, by their names. `unit`: the level whose classes intervals are taken over, or "query".
    `read`: what tables, trees and rankings were taken for.
    """

    schema_version: int = SCHEMA
    hbench_version: str
    dataset: str
    dataset_version: str
    dataset_digest: str
    tests: tuple[str, ...]
    levels: tuple[str, ...]
    protocol: str
    signature: str
    method: str | None = None
    embedding: SubmittedFile | None = None
    scores: dict[str, Score] = Field(min_length=1)
    official: dict[str, Score] = Field(default_factory=dict)
    unknown_wrong: dict[str, Score] = Field(default_factory=dict)
    unknown_right: dict[str, Score] = Field(default_factory=dict)
    by_test: dict[str, dict[str, float | None]] = Field(default_factory=dict)
    mistakes: dict[str, dict[str, int]] = Field(default_factory=dict)
    trees: dict[str, UnderTree] = Field(default_factory=dict)
    unit: str = QUERY
    doubts: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    read: tuple[dict[str, Any], ...] = ()
    date: str = Field(pattern=r"^\d{4}-\d\d-\d\d")

    @property
    def over(self) -> str:
        """The units that the intervals are taken over, in words."""
        return units_in_words(self.unit, max((score.units for score in self.scores.values()), default=0))

    def marks(self) -> dict[str, str]:
        """Return the metadata of this report's tables, so that none is taken for that of another evaluation: the signature, the
        checksum of the embeddings, and a digest of the dataset and the means that the values belong to."""
        means = {name: score.value for name, score in self.scores.items()}
        about = json.dumps([self.dataset_digest, self.tests, means]).encode()
        return {
            "hbench.signature": self.signature,
            "hbench.embedding": self.embedding.sha256 if self.embedding else "",
            "hbench.report": hashlib.sha256(about).hexdigest(),
        }


@dataclass(frozen=True, repr=False)
class Report:
    """A document with its per-query values: for every metric float64 (Q,), NaN where undefined, in the order of
    `table`, the ids, tests and classes of the queries (hbench.evaluation.reports.queries); `results`: the first results of
    every query, where they were kept (hbench.evaluation.reports.results)."""

    document: Document
    values: Mapping[str, NDArray[np.float64]]
    table: pa.Table
    results: pa.Table | None = None

    @classmethod
    def read(cls, path: str | Path) -> Report:
        """Read a report from its file (JSON), with the values of every query and the first results that lie beside it.

        `path`: what `hbench evaluate --out` or `Report.write` wrote. Without a file of values, `values` and `table` are empty.
        Raises SubmissionError for a file that is no report, or a table that is another report's.
        """
        from hbench.evaluation.reports import results  # which imports this module

        document, table = read(Path(path)), pa.table({name: pa.array([], pa.string()) for name in KEYS})
        beside, first = Path(path).with_suffix(BY_QUERY), Path(path).with_suffix(results.SUFFIX)
        if beside.is_file():
            table = read_by_query(beside, document)
        metrics = metric_columns(table)
        values = {name: np.asarray(table[name].to_numpy(), np.float64) for name in metrics}
        kept = results.read(first, document) if first.is_file() else None
        return cls(document, values, table.drop_columns(metrics), kept)

    @property
    def queries(self) -> NDArray[np.object_]:
        """The ids of the queries, (Q,)."""
        return np.array(self.table["query"].to_pylist(), dtype=object)

    @property
    def scores(self) -> MetricValues[float]:
        """The mean of every metric, as a fraction; NaN when no query defines it."""
        means = {name: np.nan if s.value is None else s.value for name, s in self.document.scores.items()}
        return MetricValues(means, self.document.levels)

    @property
    def per_query(self) -> MetricValues[NDArray[np.float64]]:
        """The values of every metric, float64 (Q,), in input order."""
        return MetricValues(self.values, self.document.levels)

    @property
    def signature(self) -> str:
        return self.document.signature

    @property
    def remarks(self) -> tuple[str, ...]:
        """What speaks against the submission or the scores, a sentence each."""
        return (*self.document.doubts, *self.document.warnings)

    def __repr__(self) -> str:
        first = ", ".join(f"{name} {factor_of(name) * value:.2f}" for name, value in list(self.scores.items())[:4])
        head = f"{self.document.method or 'a submission'}: {first}, …; {self._asked:,} queries; {self.signature}"
        return f"<Report of {head}{f'; see .remarks ({len(self.remarks)})' if self.remarks else ''}>"

    @property
    def _asked(self) -> int:
        """The number of queries, also where their values are not here."""
        return len(self.table) or max(score.queries + score.skipped for score in self.document.scores.values())

    def _repr_html_(self) -> str:
        """A table for notebooks: every metric with its interval and its number of queries."""
        from hbench.evaluation.reports.shown import (  # which imports this module
            interval,
            percent_note,
            shown,
            values_of,
            worth_showing,
        )

        scores = self.document.scores
        rows = [
            f"<tr><td>{escape(name)}</td><td>{shown(name, scores[name].value)}</td><td>{interval(name, scores[name])}</td>"
            f"<td>{scores[name].queries:,}</td></tr>"
            for name in worth_showing(list(scores), [values_of(scores)])
        ]
        head = f"<tr><th>metric</th><th>{escape(percent_note(scores))}</th><th>95 % interval</th><th>queries</th></tr>"
        remarks = "".join(f"<li>{escape(remark)}</li>" for remark in self.remarks)
        return f"<table><caption>{escape(self.signature)}</caption>{head}{''.join(rows)}</table><ul>{remarks}</ul>"

    def to_pandas(self) -> pd.DataFrame:
        """The scores as a table: a row per metric, with value, low, high, queries and skipped."""
        import pandas as pd

        return pd.DataFrame({name: score.model_dump() for name, score in self.document.scores.items()}).T

    def plot(self, kind: str = "levels", metrics: str | Sequence[str] = ()) -> Any:
        """Draw the report as `hbench.plot` does: `kind` "levels", of these `metrics`, or "mistakes".

        Raises UnknownName for the kind, UsageError for one that needs more than a report.
        """
        from hbench import plot  # by the package's own front door, which loads pictures when they are asked for

        return plot(self, kind, metrics)

    def write(self, path: str | Path) -> None:
        """Write the document as JSON to `path`, whole or not at all."""
        write_text(Path(path), self.document.model_dump_json(indent=1) + "\n")

    def write_by_query(self, path: str | Path) -> None:
        """Write the per-query values as parquet to `path`: `query`, `test`, `class:LEVEL` …, one float64 column per metric; the
        metadata says which report they belong to (`Document.marks`)."""
        table = self.table
        for name, values in self.values.items():
            table = table.append_column(name, pa.array(values))
        with replacing(Path(path)) as temporary:
            pq.write_table(table.replace_schema_metadata(self.document.marks()), temporary, compression="zstd")


def document_of(report: Report | str | Path) -> Document:
    """The document of a report, which is given as it is or as its file; raises SubmissionError for another file, UsageError for
    what is neither."""
    if isinstance(report, str | Path):
        return read(Path(report))
    if isinstance(report, Report):
        return report.document
    raise UsageError(
        "this is not a report", expected="a report, or the path of its file", found=type(report).__name__,
        fix="hbench.score(vectors, labels) and hbench.evaluate(file, dataset) make one",
    )  # fmt: skip


def read(path: Path) -> Document:
    """The document in a JSON file; SubmissionError when it is none."""
    refuse_for_report(Path(path))
    try:
        return Document.model_validate(read_json(Path(path), most=LIST))
    except FileNotFoundError:
        raise SubmissionError(f"{path} does not exist", fix="hbench evaluate … --json writes one") from None
    except ValidationError as error:
        raise SubmissionError(
            f"{path} is not a report", expected="the JSON of hbench evaluate --out", found=first_problem(error)
        ) from None
    except (ValueError, OSError) as error:
        raise SubmissionError(f"{path} is not JSON", found=str(error), expected="a report of hbench evaluate") from None


def read_by_query(path: Path, document: Document) -> pa.Table:
    """The per-query table beside a report; SubmissionError when it is missing, foreign, or another report's."""
    table = table_beside(path, document, KEYS, what="per-query values", option=f"--by-query {path}")
    metrics = metric_columns(table)
    wrong = [f for f in table.schema if not (pa.types.is_floating if f.name in metrics else pa.types.is_string)(f.type)]
    if wrong:
        raise SubmissionError(
            f"{path} holds no per-query values", expected="query and test as texts, every metric as numbers",
            found=f"{wrong[0].name} as {wrong[0].type}", fix="hbench evaluate … --by-query FILE.parquet writes them",
        )  # fmt: skip
    nameless = [name for name in table.column_names if name not in metrics and table[name].null_count]
    if nameless:
        raise SubmissionError(
            f"{path} lacks names of its queries",
            found=f"{table[nameless[0]].null_count} rows without {nameless[0]}",
            fix="hbench evaluate … --by-query FILE.parquet writes them",
        )
    return table


def table_beside(path: Path, document: Document, columns: Sequence[str], *, what: str, option: str) -> pa.Table:
    """Read a parquet table of a report; `what` it holds, and the `option` that writes it.

    Raises SubmissionError for a table that cannot be read, has other columns, or is that of another evaluation.
    """
    try:
        table = parquet_table(path)
    except (OSError, ValueError, pa.ArrowException) as error:
        raise SubmissionError(
            f"{path} cannot be read",
            expected=f"{what} in parquet",
            found=first_line(error),
            fix=f"hbench evaluate … {option} writes them",
        ) from None
    metadata = table.schema.metadata or {}
    marks = {key: metadata.get(key.encode(), b"none").decode() for key in document.marks()}
    differing = [key for key, mark in document.marks().items() if marks[key] != mark]
    if differing or not set(columns) <= set(table.column_names):
        key = differing[0] if differing else "columns"
        named = shlex.join([document.embedding.file if document.embedding else "FILE", "-d", document.dataset])
        raise SubmissionError(
            f"{path} does not hold this report's {what}",
            expected=f"{key} {document.marks().get(key, ', '.join(columns))}",
            found=f"{key} {marks.get(key, ', '.join(table.column_names[:5]))}",
            fix=f"make both anew: hbench evaluate {named} -o REPORT.json {option}",
        )
    return table


@dataclass(frozen=True)
class Subject:
    """The submission and the dataset, for the report's head."""

    dataset: str
    version: str
    digest: str
    method: str | None = None
    source: SubmittedFile | None = None
    doubts: tuple[str, ...] = ()
    read: tuple[Understood, ...] = ()


def report_of(
    measurements: Mapping[str, Measurement],
    queries: pa.Table,
    subject: Subject,
    conditions: Conditions,
    *,
    warnings: Sequence[str] = (),
) -> Report:
    """The report of all tests, whose `queries` follow each other: a score is the mean over the tests of its mean over the queries.

    Values beyond the chosen metrics are those of a second protocol and become the report's `official`; of partial labels, those
    with all unknown wrong, then with all unknown right.
    """
    names = [str(name) for name in conditions.metrics]
    values = np.concatenate([measured.values for measured in measurements.values()], axis=1)
    canonical = [measured.canonical for measured in measurements.values()]
    units = units_of(queries, conditions.unit)
    scores = summarise(values, canonical, units)
    is_scored = ~np.isnan(values).all(axis=0)
    others = scores[len(names) :]
    graded = [str(name) for name in conditions.metrics if is_graded(name)] if conditions.partial else []
    document = Document(
        hbench_version=__version__,
        dataset=subject.dataset,
        dataset_version=subject.version,
        dataset_digest=subject.digest,
        tests=tuple(measurements),
        levels=tuple(conditions.levels),
        protocol=conditions.protocol_name,
        signature=str(conditions.signature(f"{subject.dataset}@{subject.version}", measurements)),
        method=subject.method,
        embedding=subject.source,
        scores=dict(zip(names, scores, strict=False)),
        official={} if conditions.partial else dict(zip(names, others, strict=False)),
        unknown_wrong=dict(zip(graded, others, strict=False)),
        unknown_right=dict(zip(graded, others[len(graded) :], strict=False)),
        by_test=_means_by_test(measurements, names),
        mistakes={name: first_levels(each, conditions.levels) for name, each in measurements.items()},
        unit=conditions.unit,
        doubts=(*subject.doubts, *doubts_of_values(measurements, len(conditions.levels))),
        warnings=(*warnings, *remarks(measurements, conditions), *few_units(units[is_scored], conditions.unit)),
        read=tuple(understood.document() for understood in subject.read),
        date=datetime.now(UTC).date().isoformat(),
    )
    return Report(document, dict(zip(names, values, strict=False)), queries)


def rows_of_values(conditions: Conditions) -> int:
    """Count the values that every query has under one protocol: the metrics; of partial labels, also those with all unknown wrong
    and right."""
    return len(conditions.metrics) + 2 * sum(map(is_graded, conditions.metrics)) * conditions.partial


def _means_by_test(
    measurements: Mapping[str, Measurement], names: Sequence[str]
) -> dict[str, dict[str, float | None]]:
    """The means of every test, where there are several."""
    if len(measurements) < 2:
        return {}
    return {name: _means(each.values[:, each.canonical], names) for name, each in measurements.items()}


def _means(values: NDArray[np.float64], names: Sequence[str]) -> dict[str, float | None]:
    """The mean of every metric over the queries it is defined for: values (M, Q); None where it is defined for none."""
    defined = {name: row[~np.isnan(row)] for name, row in zip(names, values, strict=False)}
    return {name: float(row.mean()) if len(row) else None for name, row in defined.items()}


def summarise(
    values: NDArray[np.float64], canonical: Sequence[NDArray[np.int64]], units: NDArray[np.int64]
) -> list[Score]:
    """Scores of per-query values (M, Q), the queries of one test behind those of another: means, intervals over the units (Q,),
    numbers of queries. `canonical`: for each test, the positions of its queries in the order in which they are summed."""
    starts = np.cumsum([0, *map(len, canonical)])[:-1]
    order = np.concatenate([start + own for start, own in zip(starts, canonical, strict=True)])
    tests = np.repeat(np.arange(len(canonical)), [*map(len, canonical)])
    sums = UnitSums.of(values[:, order], units[order], tests)
    scores = []
    for row, (low, high) in enumerate(mean_intervals(sums).tolist()):
        by_test = [values[row, start + own] for start, own in zip(starts, canonical, strict=True)]
        defined = [part[~np.isnan(part)] for part in by_test]
        queries = sum(map(len, defined))
        value = float(np.mean([part.mean() for part in defined])) if all(map(len, defined)) else None
        known = value is not None and not np.isnan(low)
        scores.append(
            Score(
                value=value, low=low if known else None, high=high if known else None, queries=queries,
                skipped=values.shape[1] - queries, units=int(sums.units[row]),
            )
        )  # fmt: skip
    return scores
