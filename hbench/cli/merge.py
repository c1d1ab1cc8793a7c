"""hbench merge: join the shards of one evaluation."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from hbench.cli.names import FILE
from hbench.cli.reporting import FILES, refuse_unwritable, show_report, with_options, write_report


@click.command("merge")
@click.argument("parts", nargs=-1, required=True, type=FILE)
@click.option("--method", help="The method's name.  [default: that in the parts]")
@with_options(FILES)
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
