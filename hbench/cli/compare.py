"""hbench compare: test the difference of two reports."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from hbench.cli.names import METRICS
from hbench.cli.terminal import show_csv, show_json, show_table

if TYPE_CHECKING:
    from hbench.evaluation.reports.comparison import Difference

FILE = click.Path(path_type=Path)


@click.command("compare")
@click.argument("first", type=FILE)
@click.argument("second", type=FILE)
@click.option(
    "--by-query",
    "by_query",
    type=FILE,
    nargs=2,
    help="The two per-query files.  [default: .by-query.parquet instead of .json]",
)
@click.option("--metrics", type=METRICS, help="Only these metrics, separated by commas.")
@click.option("--unit", metavar="LEVEL|query", help="What the interval and test go by.  [default: that of FIRST]")
@click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
@click.option("--csv", "as_csv", is_flag=True, help="As CSV on stdout.")
def command(
    first: Path,
    second: Path,
    *,
    by_query: tuple[Path, Path] | None,
    metrics: str | None,
    unit: str | None,
    as_json: bool,
    as_csv: bool,
) -> None:
    """Compare the reports FIRST and SECOND (JSON), whose per-query files lie beside them, metric by metric.

    Shown are the mean difference, its 95 % interval and the p-value of a paired sign-flip test, both by the finest
    classes of the queries unless --unit says otherwise; "corrected" is p by Holm's method for all metrics shown.
    Reports of other conditions are refused (exit code 7).

    Example: hbench compare mine.json baseline.json
    """
    from hbench.evaluation.reports import comparison, report
    from hbench.evaluation.reports.queries import units_in_words
    from hbench.metrics.names import parse_metrics

    documents = report.read(first), report.read(second)
    comparison.refuse_other_conditions(*documents)
    files = by_query or tuple(path.with_suffix(".by-query.parquet") for path in (first, second))
    tables = [report.read_by_query(file, document) for file, document in zip(files, documents, strict=True)]
    if metrics:
        names = [str(name) for name in parse_metrics(metrics, documents[0].levels)]
        tables[0] = comparison.only(tables[0], tables[1], names)
    unit = unit or documents[0].unit
    differences = comparison.compare(*tables, unit=unit)
    if as_json:
        show_json(
            {"signature": documents[0].signature, "unit": unit, "differences": [each.record() for each in differences]}
        )
        return
    methods = [each.method or path.stem for each, path in zip(documents, (first, second), strict=True)]
    header = ("metric", *methods, "difference", "95 % interval", "p", "corrected", "queries", "units")
    rows = [_cells(each) for each in differences]
    if as_csv:
        show_csv(header, rows)
        return
    show_table(
        f"{methods[0]} − {methods[1]}, percent",
        header,
        rows,
        f"over {units_in_words(unit, max(each.units for each in differences))}; p: two-sided paired sign-flip test; "
        "corrected: by Holm's method for all these metrics",
    )


def _cells(each: Difference) -> tuple[str, ...]:
    from hbench.core.text import percent, points, points_range

    return (
        each.metric,
        percent(each.first),
        percent(each.second),
        points(each.difference),
        points_range(each.low, each.high),
        each.p_in_words,
        each.corrected_in_words,
        f"{each.queries:,}",
        f"{each.units:,}",
    )
