"""A report: a document with the values of every query and, if they were kept, the first results.
It can be read, written and shown.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from hbench.core.arguments import checked
from hbench.core.errors import UsageError, one_line
from hbench.core.files import replacing, write_text
from hbench.metrics.names import factor_of
from hbench.records import results
from hbench.records.document import BY_QUERY, Document, read_by_query
from hbench.records.document import read as read_document
from hbench.records.queries import KEYS, MetricValues, metric_columns
from hbench.records.shown import interval, percent_note, shown, values_of, worth_showing

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, repr=False)
class Report:
    """A document with its per-query values.

    Attributes:
        document: the content of the JSON file: scores, intervals, conditions, remarks.
        values: for every metric float64 (Q,), NaN where undefined, in the order of `table`.
        table: the ids, tests and classes of the queries (`hbench.records.queries`).
        results: the first results of every query (`hbench.records.results`); None if they were not
            kept.
    """

    document: Document
    values: Mapping[str, NDArray[np.float64]]
    table: pa.Table
    results: pa.Table | None = None

    @classmethod
    @checked
    def read(cls, path: str | Path) -> Report:
        """Read a report from its JSON file, with the per-query values and the first results that
        are stored beside it.

        Args:
            path: a file that `hbench evaluate --out` or `Report.write` wrote.

        Returns:
            The report. If there is no file of per-query values, `values` and `table` are empty.

        Raises:
            SubmissionError: a file that is no report, or a table that belongs to another report.
        """
        document = read_document(Path(path))
        table = pa.table({name: pa.array([], pa.string()) for name in KEYS})
        beside = Path(path).with_suffix(BY_QUERY)
        first = Path(path).with_suffix(results.SUFFIX)
        if beside.is_file():
            table = read_by_query(beside, document)
        metrics = metric_columns(table)
        values = {name: np.asarray(table[name].to_numpy(), np.float64) for name in metrics}
        top = results.read(first, document) if first.is_file() else None
        return cls(document, values, table.drop_columns(metrics), top)

    @property
    def queries(self) -> NDArray[np.object_]:
        """The ids of the queries, (Q,)."""
        return np.array(self.table["query"].to_pylist(), dtype=object)

    @property
    def by_query(self) -> pa.Table:
        """The queries with a column of values for every metric."""
        table = self.table
        for name, values in self.values.items():
            table = table.append_column(name, pa.array(values))
        return table

    @property
    def scores(self) -> MetricValues[float]:
        """The mean of every metric, as a fraction; NaN if it is defined for no query."""
        means = {
            name: np.nan if s.value is None else s.value for name, s in self.document.scores.items()
        }
        return MetricValues(means, self.document.levels)

    @property
    def per_query(self) -> MetricValues[NDArray[np.float64]]:
        """The values of every metric, float64 (Q,), in the order of `queries`."""
        return MetricValues(self.values, self.document.levels)

    @property
    def signature(self) -> str:
        """The dataset, tests and conditions in one text, which must be quoted with the scores."""
        return self.document.signature

    @property
    def remarks(self) -> tuple[str, ...]:
        """Doubts about the submission and warnings about the scores, a sentence each."""
        return (*self.document.doubts, *self.document.warnings)

    def __repr__(self) -> str:
        """The report in one line for notebooks and terminals: its first four scores."""
        # `factor_of`: 100 for fractions, which are shown in percent
        first = [
            f"{name} {factor_of(name) * value:.2f}" for name, value in list(self.scores.items())[:4]
        ]
        if len(self.scores) > len(first):
            first.append("…")
        head = (
            f"{self.document.method or 'a submission'}: {', '.join(first)}; "
            f"{self._asked:,} queries; {self.signature}"
        )
        more = f"; see .remarks ({len(self.remarks)})" if self.remarks else ""
        # the file may come from a stranger, and its texts may hold newlines
        return one_line(f"<Report of {head}{more}>")

    @property
    def _asked(self) -> int:
        """The number of queries, which is known even if their values were not kept."""
        return len(self.table) or max(
            score.queries + score.skipped for score in self.document.scores.values()
        )

    def _repr_html_(self) -> str:
        """A table for notebooks: the metrics with their intervals and numbers of queries, without
        R@k that are 100 at a smaller k already (`worth_showing`, which compares models; here there
        is one)."""
        scores = self.document.scores
        rows = []
        for name in worth_showing(list(scores), [values_of(scores)]):
            score = scores[name]
            cells = [
                escape(name),
                shown(name, score.value),
                interval(name, score),
                f"{score.queries:,}",
            ]
            rows.append("<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>")

        head = (
            f"<tr><th>metric</th><th>{escape(percent_note(scores))}</th><th>95 % "
            "interval</th><th>queries</th></tr>"
        )
        remarks = "".join(f"<li>{escape(remark)}</li>" for remark in self.remarks)
        table = f"<caption>{escape(self.signature)}</caption>{head}{''.join(rows)}"
        return f"<table>{table}</table><ul>{remarks}</ul>"

    def to_pandas(self) -> pd.DataFrame:
        """The scores as a table: a row per metric, with value, low, high, queries and skipped."""
        import pandas as pd

        return pd.DataFrame(
            {name: score.model_dump() for name, score in self.document.scores.items()}
        ).T

    @checked
    def write(self, path: str | Path) -> None:
        """Write the document as JSON to `path`, completely or not at all."""
        write_text(Path(path), self.document.model_dump_json(indent=1) + "\n")

    @checked
    def write_by_query(self, path: str | Path) -> None:
        """Write the per-query values as parquet to `path`, with the columns `query`, `test`,
        `class:LEVEL` … and one float64 column per metric. The metadata tie the file to this report
        (`Document.marks`).
        """
        table = self.by_query.replace_schema_metadata(self.document.marks())
        with replacing(Path(path)) as temporary:
            pq.write_table(table, temporary, compression="zstd")


def document_of(report: Report | str | Path) -> Document:
    """The document of a report, given as a Report or as the path of its file. Raises
    SubmissionError for a file that is no report, UsageError for any other object."""
    if isinstance(report, str | Path):
        return read_document(Path(report))
    if isinstance(report, Report):
        return report.document
    raise UsageError(
        "this is not a report",
        expected="a report, or the path of its file",
        found=type(report).__name__,
        fix="hbench.score(vectors, labels) and hbench.evaluate(file, dataset) make one",
    )
