"""Compares two reports of the same conditions, metric by metric, by their per-query values."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from hbench.core.arguments import checked
from hbench.core.errors import ComparisonError, UnknownName
from hbench.core.tables import without_formula
from hbench.core.text import csv_text
from hbench.metrics.names import parse_metrics
from hbench.metrics.significance import MIN_UNITS
from hbench.records import document as reports
from hbench.records.differences import HEADER, Difference, differences_of, with_metrics_alone
from hbench.records.document import BY_QUERY, Document
from hbench.records.queries import units_in_words
from hbench.records.report import Report, document_of
from hbench.records.shown import percent_note, worth_showing

if TYPE_CHECKING:
    import pandas as pd


def refuse_other_conditions(first: Document, second: Document) -> None:
    """Raise ComparisonError unless both reports have the same signature, which states the
    conditions of a score, and the same dataset digest."""
    for what, own, other in (
        ("signatures", first.signature, second.signature),
        ("dataset digests", first.dataset_digest, second.dataset_digest),
    ):
        if own != other:
            raise ComparisonError(
                f"these reports cannot be compared: their {what} differ",
                expected=own,
                found=other,
                fix="evaluate both files under the same conditions",
            )


@dataclass(frozen=True, repr=False)
class Comparison:
    """The differences between two reports, one for each metric. They can be iterated over, looked
    up by the metric's name, printed, and converted for pandas.

    Attributes:
        methods: the names of the two reports.
        unit: the unit of the intervals and the test: a level, whose classes are the units, or
            "query".
        signature: the signature, which is the same for both reports.
        differences: one per metric, in the order of the reports.
        sizes: a sentence if the embedded images differ in size; else "".
    """

    methods: tuple[str, str]
    unit: str
    signature: str
    differences: tuple[Difference, ...]
    sizes: str = ""

    def __iter__(self) -> Iterator[Difference]:
        return iter(self.differences)

    def __len__(self) -> int:
        return len(self.differences)

    def __getitem__(self, metric: str) -> Difference:
        """The difference of a metric, by its name in the reports. Raises UnknownName if there is
        none."""
        for difference in self.differences:
            if difference.metric == metric:
                return difference
        raise UnknownName(
            "metric of this comparison", str(metric), [one.metric for one in self.differences]
        )

    @property
    def over(self) -> str:
        """The number and kind of the units of the intervals and the test, in words."""
        return units_in_words(self.unit, max(difference.units for difference in self.differences))

    @property
    def doubt(self) -> str:
        """What speaks against the intervals: too few units. "" if there are enough."""
        if max(difference.units for difference in self.differences) >= MIN_UNITS:
            return ""
        return (
            f"the intervals are over {self.over}: with fewer than {MIN_UNITS} no interval can be "
            "trusted"
        )

    @property
    def shown(self) -> list[Difference]:
        """The differences that a printed table shows. If several R@k of one level are 100 % in both
        reports, only the one with the smallest k is shown.
        """
        # {metric: mean} of each report
        both = [
            {each.metric: each.first for each in self},
            {each.metric: each.second for each in self},
        ]
        return [self[name] for name in worth_showing(list(both[0]), both)]

    def __repr__(self) -> str:
        """The differences as an aligned table, for notebooks and terminals. Its title names the
        reports and the unit of the intervals."""
        rows = [
            ("metric", *self.methods, *HEADER),
            *(difference.cells for difference in self.shown),
        ]
        metrics = [difference.metric for difference in self.shown]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]

        def aligned(row: Sequence[str]) -> str:
            """A row whose cells end under those of the other rows."""
            return "  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True))

        title = f"{self.methods[0]} − {self.methods[1]}, {percent_note(metrics)}, over {self.over}"
        return "\n".join([title, *map(aligned, rows), *([self.doubt] if self.doubt else [])])

    def csv(self) -> str:
        """Return CSV with a line per metric. Its columns are the names of the two methods, the
        fields of `Difference`, the unit of the intervals and the test, and the signature. Fractions
        have full precision; a value that no query defines is an empty cell."""
        rows = [
            [
                # a name that begins with "=" or the like is marked as text for spreadsheets
                *map(without_formula, self.methods),
                *difference.record().values(),
                self.unit,
                self.signature,
            ]
            for difference in self.differences
        ]
        return csv_text(
            ["first_name", "second_name", *Difference._fields, "unit", "signature"], rows
        )

    def to_pandas(self) -> pd.DataFrame:
        """A row per metric: first, second, difference, low, high (fractions), p, corrected,
        queries, units.
        """
        import pandas as pd

        return pd.DataFrame([difference.record() for difference in self.differences]).set_index(
            "metric"
        )


@checked
def compare(
    first: Report | str | Path,
    second: Report | str | Path,
    metrics: str | Sequence[str] | None = None,
    *,
    unit: str | None = None,
    by_query: tuple[Path, Path] | None = None,
) -> Comparison:
    """The paired differences first − second of two reports, given as they are or as their files.

    Intervals hold 95 %; p is that of a two-sided paired sign-flip test, `corrected` by Holm's
    method for all these metrics.

    Args:
        first: a Report, or the path of its file (JSON).
        second: the other Report, or the path of its file.
        metrics: the metrics to compare, as a list or a text with commas. Default: all metrics that
            both reports have.
        unit: the unit of intervals and test: a level, whose classes are the units, or "query".
            Default: the unit of the first report.
        by_query: the files of the first and of the second report's values by query. Default:
            FILE.by-query.parquet next to each report.

    Returns:
        A Comparison with a difference for each metric.

    Raises:
        ComparisonError: reports of different conditions or queries.
        SubmissionError: files that cannot be read.
        UnknownName: a metric or a unit that does not exist.
    """
    one = document_of(first)  # what the report states, without the values by query
    other = document_of(second)
    refuse_other_conditions(one, other)
    one_file, other_file = by_query or (None, None)
    one_table = _values_by_query(first, one, one_file)
    other_table = _values_by_query(second, other, other_file)
    # only metrics in both tables are compared, so dropping them from one is enough
    if metrics is not None:
        names = [str(name) for name in parse_metrics(metrics, one.levels)]
        one_table = with_metrics_alone(one_table, other_table, names)
    unit = unit or one.unit
    return Comparison(
        methods=_names_of_both((one, first), (other, second)),
        unit=unit,
        signature=one.signature,
        differences=tuple(differences_of(one_table, other_table, unit=unit)),
        # a remark, "" for equal sizes of images: the signatures, which are equal, do not have them
        sizes=sizes_in_words(one, other),
    )


def sizes_in_words(one: Document, other: Document) -> str:
    """A sentence if the images were embedded at different sizes, which changes what a net computes;
    "" if the sizes are equal, or one is not known."""
    sizes = [each.embedding.image_size if each.embedding else None for each in (one, other)]
    if None in sizes or sizes[0] == sizes[1]:
        return ""
    return f"the images were embedded at {sizes[0]} and at {sizes[1]} pixels"


Reported = tuple[Document, Report | str | Path]


def _names_of_both(one: Reported, other: Reported) -> tuple[str, str]:
    """The names of two reports: the method, else the name of the file, else "first" or "second" for
    a report in memory. If both names are the same, the parts in which the paths of their files
    differ are appended in brackets, or "first" and "second" if a report is in memory.

    `one`, `other`: a report's document, and the report or the path of its file.
    """
    document, report = one
    other_document, other_report = other
    name = _name_of_report(document, report, "first")
    other_name = _name_of_report(other_document, other_report, "second")
    if name != other_name:
        return name, other_name
    place, other_place = _places(report, other_report)
    return f"{name} ({place})", f"{other_name} ({other_place})"


def _places(one: Report | str | Path, other: Report | str | Path) -> tuple[str, str]:
    """Two texts that tell two reports apart: the last parts of the paths of their files, as few as
    make the texts differ, without the suffix. "first" and "second" if a report is no file, or the
    paths differ in their suffix at most."""
    if isinstance(one, Report) or isinstance(other, Report):
        return "first", "second"
    files = Path(one).resolve(), Path(other).resolve()
    # the last part of each path alone, then the last two, and so on
    for parts in range(1, max(len(file.parts) for file in files) + 1):
        ends = ["/".join(file.with_suffix("").parts[-parts:]) for file in files]
        if ends[0] != ends[1]:
            return ends[0], ends[1]
    return "first", "second"


def _name_of_report(document: Document, report: Report | str | Path, place: str) -> str:
    """The name of a report: its method, else the name of its file, else its `place` ("first" or
    "second") if the report is in memory."""
    return document.method or (place if isinstance(report, Report) else Path(report).stem)


def _values_by_query(
    report: Report | str | Path, document: Document, file: Path | None
) -> pa.Table:
    """The per-query values of a report, a row per query and a column per metric. A report in memory
    has them; for the path of a report, they are read from `file`, by default the file of values
    next to the report. `document`: of the report."""
    if not isinstance(report, Report):
        return reports.read_by_query(file or Path(report).with_suffix(BY_QUERY), document)
    if not report.values:
        raise ComparisonError(
            "the values of the queries of this report are not here",
            expected="per-query values beside its file",
            fix="hbench evaluate … -o REPORT.json --by-query REPORT.by-query.parquet writes them",
        )
    return report.by_query
