"""Makes, reads and writes reports: the scores of one file on one dataset, with the conditions they
cannot be quoted without.

Measurements become means with intervals, the level of the first mistakes, and remarks for the
reader. `Document` is what is written as JSON; `Report` adds the values of every query, which
`--by-query` writes beside it as parquet.
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
BY_QUERY = ".by-query.parquet"  # the values of every query lie next to their report


Number = Annotated[float, Field(strict=True, allow_inf_nan=False)]  # neither a text nor true
ROUNDED = 1e-9  # by which a mean and the ends of its interval may differ where all values are equal


class Score(Strict):
    """A metric's mean over the queries it is defined for, as a fraction, inside its interval; None
    when it is defined for none.

    `units`: of how many units (classes, or queries) these queries are, by which the interval is
    taken.
    """

    value: Number | None
    low: Number | None
    high: Number | None
    queries: NonNegativeInt
    skipped: NonNegativeInt
    units: NonNegativeInt = 0

    @model_validator(mode="after")
    def _is_inside(self) -> Score:
        """Refuse a value outside of its interval, which only a damaged or forged file has. Each end
        may be off by what rounding does."""
        value = self.value
        low = self.low
        high = self.high
        if (
            value is not None
            and low is not None
            and high is not None
            and not low - ROUNDED <= value <= high + ROUNDED
        ):
            raise ValueError(f"{value} lies outside of its interval from {low} to {high}")
        return self


class SubmittedFile(Strict):
    """The file that was scored: `sha256` is that of the file, `content` that of its ids and
    vectors (hbench.submissions.content), which another container of the same has, too. `left_out`:
    the items that it says could not be embedded. `image_size`: the side, in pixels, of the images
    that were embedded, and `made`: the command that made it, where it says so."""

    file: str
    sha256: str
    items: int
    dim: int | None = None
    dtype: str | None = None
    left_out: tuple[str, ...] = ()
    image_size: int | None = None
    made: str | None = None
    content: str | None = None

    @field_validator("file", mode="before")
    @classmethod
    def _printable(cls, file: object) -> object:
        """A file's name with a mark for each byte that is not UTF-8, since reports are UTF-8."""
        if isinstance(file, str):
            return file.encode(errors="surrogateescape").decode(errors="replace")
        return file


class UnderTree(Strict):
    """The scores under another tree over the same fine classes, and of every metric the paired
    difference from the dataset's own tree (hbench.records.differences.Difference)."""

    levels: tuple[str, ...]
    signature: str
    scores: dict[str, Score]
    differences: dict[str, dict[str, str | float | int | None]]


class Document(Strict):
    """A report as it is written: see docs for the JSON schema (`Document.model_json_schema()`).

    `by_test`: where a score is the mean over several tests, its value on each. `doubts`: what
    speaks against the submission (hbench.submissions.embeddings.doubts). `unknown_wrong`,
    `unknown_right`: under partial labels, the metrics that go by all levels with every unknown
    level at its lowest, and at its highest (docs/labels.md); `scores` use known levels.
    `trees`: the scores under other trees, by their names. `unit`: the level whose classes intervals
    are taken over, or "query". `read`: what tables, trees and rankings were taken for. `names`: the
    file of the vectors of names, where these are the queries.
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
        """What the intervals are taken over, in words: how many classes of which level, or queries,
        of the metric that is defined for most of them."""
        number = max((score.units for score in self.scores.values()), default=0)
        return units_in_words(self.unit, number, partial=bool(self.unknown_wrong))

    def table_options(self) -> dict[str, Any]:
        """What was said about the dataset's table, as arguments of `hbench.load`; empty for other
        datasets.
        """
        kept = (understood.get("options") for understood in self.read)
        return next(filter(None, kept), {})

    def marks(self) -> dict[str, str]:
        """Return the metadata of this report's tables, so that none is taken for that of another
        evaluation: the signature, the checksum of the embeddings, and a digest of the dataset, the
        names of its tests and the means that the values belong to."""
        means = {name: score.value for name, score in self.scores.items()}
        about = json.dumps([self.dataset_digest, self.tests, means]).encode()
        return {
            "hbench.signature": self.signature,
            "hbench.embedding": self.embedding.sha256 if self.embedding else "",
            "hbench.report": hashlib.sha256(about).hexdigest(),
        }


def read(path: Path) -> Document:
    """The document in a JSON file; SubmissionError when it is none."""
    refuse_for_report(Path(path))  # a folder, or a file whose name says that it is none
    try:
        return Document.model_validate(read_json(Path(path), most=MAX_LIST_BYTES))
    except FileNotFoundError:
        raise SubmissionError(
            f"{path} does not exist", fix="hbench evaluate … --json writes one"
        ) from None
    except ValidationError as error:
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
    """The per-query table beside a report: texts that name the query, and the metrics as numbers.
    SubmissionError when it is missing, has other columns, or is another report's.
    """
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

    # a metric may be undefined for a query; its name, test and classes may not
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
    """Read a parquet table of a report, which has these `columns` and perhaps more; `what`: what it
    holds, and `option`: the one that writes it, both for errors.

    Raises SubmissionError for a table that cannot be read, lacks one of the columns, or does not
    bear the marks of the report, since it is of another evaluation.
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
    # the marks in the table, of the report that it belongs to: they must be those of this report
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
