"""Defines the JSON document of a report and reads it: the scores of one file on one dataset, with
the conditions that must be quoted with them.

A document holds means with intervals, the levels of first mistakes, and remarks. `Report` adds the
values of every query, which `--by-query` writes beside the document as parquet.
"""

from __future__ import annotations

import hashlib
import json
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import pyarrow as pa
from pydantic import Field, NonNegativeInt, ValidationError, field_validator, model_validator

from hbench.core.errors import SubmissionError
from hbench.core.schema import Strict
from hbench.core.text import first_line, first_problem
from hbench.core.untrusted import MAX_LIST_BYTES, parquet_table, read_json
from hbench.engine.settings import QUERY
from hbench.records.other_files import refuse_for_report
from hbench.records.queries import KEYS, metric_columns, units_in_words

SCHEMA = 1
BY_QUERY = ".by-query.parquet"  # suffix of the file of per-query values next to a report


Number = Annotated[float, Field(strict=True, allow_inf_nan=False)]  # refuses texts and booleans
# even if all values are equal, rounding makes the mean and the ends of its interval differ so much
ROUNDED = 1e-9


class Score(Strict):
    """A metric's mean over the queries for which it is defined, as a fraction, with its 95 %
    interval; None if it is defined for no query."""

    value: Number | None
    low: Number | None  # the ends of the interval
    high: Number | None
    queries: NonNegativeInt  # for which the metric is defined
    skipped: NonNegativeInt  # for which it is not
    units: NonNegativeInt = 0  # classes or queries over which the interval is taken

    @model_validator(mode="after")
    def _is_inside(self) -> Score:
        """Refuse a value outside of its interval, which only a damaged or forged file has."""
        value = self.value
        low = self.low
        high = self.high
        if (
            value is not None
            and low is not None
            and high is not None
            and not low - ROUNDED <= value <= high + ROUNDED  # outside by more than rounding
        ):
            raise ValueError(f"{value} lies outside of its interval from {low} to {high}")
        return self


class SubmittedFile(Strict):
    """The file that was scored. Its last fields are None if the file does not state them."""

    file: str
    sha256: str  # of the file
    items: int
    dim: int | None = None
    dtype: str | None = None
    left_out: tuple[str, ...] = ()  # items that could not be embedded, as the file states
    image_size: int | None = None  # side of the embedded images in pixels
    made: str | None = None  # the command that made the file
    content: str | None = None  # sha256 in any file format (hbench.submissions.content)

    @field_validator("file", mode="before")
    @classmethod
    def _printable(cls, file: object) -> object:
        """Replace bytes in a file name that are not UTF-8 by a mark, since reports are UTF-8."""
        if isinstance(file, str):
            return file.encode(errors="surrogateescape").decode(errors="replace")
        return file


class UnderTree(Strict):
    """The scores under another tree over the same fine classes. `differences` has, for each metric,
    the paired difference from the dataset's own tree (hbench.records.differences.Difference)."""

    levels: tuple[str, ...]
    signature: str
    scores: dict[str, Score]
    differences: dict[str, dict[str, str | float | int | None]]


class Document(Strict):
    """A report as it is written to a JSON file; its schema is `Document.model_json_schema()`.

    Attributes:
        names: the file with the vectors of names, if names are the queries.
        unknown_wrong: under partial labels, the metrics of all levels with every unknown level at
            its lowest (docs/labels.md). `scores` use known levels only.
        unknown_right: likewise, with every unknown level at its highest.
        by_test: the value on each test, if a score is the mean over several tests.
        trees: the scores under other trees, by the names of the trees.
        unit: the level over whose classes intervals are taken, or "query".
        doubts: signs against the submission (hbench.submissions.embeddings.doubts).
        read: how tables, trees and rankings were understood.
    """

    schema_version: int = SCHEMA
    hbench_version: str
    dataset: str
    dataset_version: str
    dataset_digest: str
    tests: tuple[str, ...]
    levels: tuple[str, ...] = Field(min_length=1)
    protocol: str
    signature: str
    method: str | None = None
    embedding: SubmittedFile | None = None
    names: SubmittedFile | None = None
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
        """The units over which the intervals are taken, in words: their level and number. The
        number is the largest among the metrics, since some are defined for fewer units."""
        number = max((score.units for score in self.scores.values()), default=0)
        return units_in_words(self.unit, number, partial=bool(self.unknown_wrong))

    def table_options(self) -> dict[str, Any]:
        """The options with which the user loaded the dataset's table, as arguments of
        `hbench.load`; empty for other datasets.
        """
        kept = (understood.get("options") for understood in self.read)
        return next(filter(None, kept), {})

    def marks(self) -> dict[str, str]:
        """Return the metadata that ties a table, such as the per-query values, to this report.

        They are the signature, the sha256 of the embeddings, and a digest of the dataset, the names
        of its tests and the scores.
        """
        means = {name: score.value for name, score in self.scores.items()}
        about = json.dumps([self.dataset_digest, self.tests, means]).encode()
        return {
            "hbench.signature": self.signature,
            "hbench.embedding": self.embedding.sha256 if self.embedding else "",
            "hbench.report": hashlib.sha256(about).hexdigest(),
        }


def read(path: Path) -> Document:
    """Read the document in a JSON file. Raises SubmissionError if it is no report."""
    refuse_for_report(Path(path))  # a folder, or a file whose name says that it is none
    try:
        return Document.model_validate(read_json(Path(path), most=MAX_LIST_BYTES))
    except FileNotFoundError:
        raise SubmissionError(
            f"{path} does not exist", fix="hbench evaluate … --out FILE.json writes one"
        ) from None
    except ValidationError as error:  # a ValueError, too, so it comes before the next handler
        raise SubmissionError(
            f"{path} is not a report",
            expected="the JSON of hbench evaluate --out",
            found=first_problem(error),
        ) from None
    except (ValueError, OSError) as error:
        raise SubmissionError(
            f"{path} is not JSON", found=str(error), expected="a report of hbench evaluate"
        ) from None


def read_by_query(path: Path, document: Document) -> pa.Table:
    """Read the per-query table beside a report: texts that identify each query, and a number for
    each metric. Raises SubmissionError if the table is missing, has columns of other types, or
    belongs to another report.
    """
    # KEYS: the columns `query` and `test`
    table = table_beside(path, document, KEYS, what="per-query values", option=f"--by-query {path}")
    metrics = metric_columns(table)
    wrong = []
    for field in table.schema:
        is_number = pa.types.is_floating(field.type)
        is_text = pa.types.is_string(field.type)
        if not (is_number if field.name in metrics else is_text):
            wrong.append(field)
    if wrong:
        raise SubmissionError(
            f"{path} holds no per-query values",
            expected="query and test as texts, every metric as numbers",
            found=f"{wrong[0].name} as {wrong[0].type}",
            fix="hbench evaluate … --by-query FILE.parquet writes them",
        )

    # a metric may be undefined for a query, but each query has a name, a test and classes
    nameless = [
        name for name in table.column_names if name not in metrics and table[name].null_count
    ]
    if nameless:
        raise SubmissionError(
            f"{path} lacks names of its queries",
            found=f"{table[nameless[0]].null_count} rows without {nameless[0]}",
            fix="hbench evaluate … --by-query FILE.parquet writes them",
        )

    return table


def table_beside(
    path: Path, document: Document, columns: Sequence[str], *, what: str, option: str
) -> pa.Table:
    """Read a parquet table that belongs to a report.

    Raises SubmissionError for a table that cannot be read, lacks a column, or belongs to another
    evaluation, since its metadata differ from `document.marks()`.

    Args:
        path: of the table.
        document: of the report.
        columns: the columns that the table must have; it may have more.
        what: the content of the table in words, for errors.
        option: the command-line option that writes such a table, for errors.
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
    # the marks of the report for which the table was written; "none" where the table has none
    marks = {key: metadata.get(key.encode(), b"none").decode() for key in document.marks()}
    differing = [key for key, mark in document.marks().items() if marks[key] != mark]
    if differing or not set(columns) <= set(table.column_names):
        key = differing[0] if differing else "columns"
        named = shlex.join(
            [document.embedding.file if document.embedding else "FILE", "-d", document.dataset]
        )
        raise SubmissionError(
            f"{path} does not hold this report's {what}",
            expected=f"{key} {document.marks().get(key, ', '.join(columns))}",
            found=f"{key} {marks.get(key, ', '.join(table.column_names[:5]))}",
            fix=f"make both anew: hbench evaluate {named} -o REPORT.json {option}",
        )

    return table
