"""hbench compare: test the difference of two reports."""

from pathlib import Path

import click

from hbench.cli.names import FILE, METRICS
from hbench.cli.terminal import format_of, say, show, show_json, show_table


@click.command("compare")
@click.argument("first", type=FILE)
@click.argument("second", type=FILE)
@click.option(
    "--by-query",
    type=FILE,
    nargs=2,
    help="The two per-query files.  [default: .by-query.parquet instead of .json]",
)
@click.option("--metrics", type=METRICS, help="Only these metrics, separated by commas.")
@click.option(
    "--unit",
    metavar="LEVEL|query",
    help="What the interval and test go by.  [default: that of FIRST]",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
@click.option(
    "--csv", "as_csv", is_flag=True, help="As CSV on stdout: fractions in full precision."
)
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
    """Compare the reports FIRST and SECOND (JSON), whose per-query files lie beside them, metric by
    metric.

    Shown are the mean difference, its 95 % interval and the p-value of a paired sign-flip test,
    both by --unit, or else by the units of FIRST: the finest classes of the queries, unless FIRST
    was evaluated by others. "corrected" is p by Holm's method for all metrics of --metrics, or that
    both reports have. Reports of other conditions are refused (exit code 7).

    Example: hbench compare mine.json baseline.json
    """
    from hbench.records import comparison, shown
    from hbench.records.differences import HEADER

    form = format_of("table", as_json=as_json, as_csv=as_csv)
    result = comparison.compare(first, second, metrics, unit=unit, by_query=by_query)
    if form == "json":
        differences = [difference.record() for difference in result]
        show_json({"signature": result.signature, "unit": result.unit, "differences": differences})
        return
    if form == "csv":
        show(result.csv().rstrip("\n"))
        return
    # "", or a sentence: the images of the two reports were embedded at different sizes
    sizes = f"; {result.sizes}" if result.sizes else ""
    equal = len(result) - len(result.shown)
    left_out = f"; {equal} of them, 100 in both reports, not shown" if equal else ""
    show_table(
        f"{result.methods[0]} − {result.methods[1]}, "
        f"{shown.percent_note(each.metric for each in result.shown)}",
        ("metric", *result.methods, *HEADER),
        # without the R@k that are 100 in both reports, except the one with the smallest k
        [difference.cells for difference in result.shown],
        f"over {result.over}{sizes}; p: two-sided paired sign-flip test; corrected: by Holm's "
        f"method for all {len(result)} metrics{left_out}",
    )
    if result.doubt:
        say(f"note: {result.doubt}")
