"""hbench merge: join the shards of one evaluation."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from hbench.cli.names import FILE
from hbench.cli.reporting import FORMATS, refuse_unwritable, show_report, write_report


@click.command("merge")
@click.argument("parts", nargs=-1, required=True, type=FILE)
@click.option("--format", "format_", type=FORMATS, default="table")
@click.option("--json", "as_json", is_flag=True, help="The report as JSON on stdout; the same as --format json.")
@click.option("--method", help="The method's name, where the parts name none.")
@click.option("--out", "-o", "output", type=FILE, help="Write the report (JSON) to this file.")
@click.option("--by-query", type=FILE, help="Write every query's values to this parquet file.")
@click.option("--row", type=FILE, help="Write the leaderboard row (TOML) to this file.")
def command(parts: tuple[Path, ...], format_: str, as_json: bool, method: str | None, **files: Any) -> None:
    """Join the PARTS that `hbench evaluate --shard i/n` wrote into the report of the whole evaluation.

    A part that is missing, given twice or of another evaluation is refused.

    Example: hbench merge part-*.npz -o mine.json
    """
    from hbench.evaluation import shards

    refuse_unwritable(files)
    report = shards.merge(parts)
    if method:
        report = replace(report, document=report.document.model_copy(update={"method": method}))
    write_report(report, files)
    show_report(report.document, "json" if as_json else format_)
