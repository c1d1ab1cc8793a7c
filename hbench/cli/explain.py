"""hbench explain: which conventions give somebody's number."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hbench.cli import reporting
from hbench.cli.names import FILE, TESTED
from hbench.cli.table_options import TABLE
from hbench.cli.terminal import bars, say, show, show_json, show_table

if TYPE_CHECKING:
    from hbench.cli.reporting import MachineOptions
    from hbench.cli.table_options import TableOptions
    from hbench.evaluation.examination import Examined
    from hbench.evaluation.variants.conventions import Convention, Explained, PrintedValue
    from hbench.records.report import Report


@click.command("explain", short_help="find the conventions that give somebody's number")
@click.argument("file", type=FILE)
@TESTED
@TABLE
@click.option("--metric", "-m", required=True, help="The metric, as somebody calls it: R@1, AP.")
@click.option("--value", required=True, help="The number as it is printed: 69.0, or .690.")
@click.option("--ids", type=FILE, help="The ids of a .npy or .safetensors file.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
@reporting.MACHINE
def command(
    file: Path,
    dataset: str,
    *,
    table: TableOptions,
    metric: str,
    value: str,
    ids: Path | None,
    as_json: bool,
    machine: MachineOptions,
) -> None:
    """Evaluate FILE by every convention that people mean by one name of a metric, and say which
    give a printed value to its last digit.

    Tried are similarities, ties, the released evaluators, means over classes, the other levels,
    metrics of one name (AP, mAP@R, …), the query in its own list, and vectors from their mean.

    Example: hbench explain mine.parquet -d sop --metric R@1 --value 78.4
    """
    from hbench.evaluation.variants import conventions
    from hbench.metrics.names import MetricName

    printed = conventions.PrintedValue.parse(value)
    data = table.load(dataset)
    # `at` checks the level in the metric's name
    name = MetricName.parse(metric).at(data.levels)
    reporting.refuse_missing([file, ids])
    # None: the gallery has no file of its own. `embeddings` raises for a ranking, with a message
    # that an explanation needs vectors
    given = reporting.submitted(file, ids, None).embeddings("an explanation")
    execution = machine.execution
    with execution.open([(file, ids)], announce=say) as execute, bars("ranking") as on_test:

        def report(examined: Examined) -> Report:
            """Measure an examined submission under one convention."""
            return execution.report(examined, execute, on_test)

        found = list(conventions.tried(given, data, name, report))
    # the conventions that print the value, and the nearest others
    explained = conventions.explained(printed, found, str(name))
    if as_json:
        show_json(_document(explained, len(found), printed))
        return
    what = f"{name} = {value}, of {len(found)} conventions"
    _show(explained, str(name), what, f"hbench evaluate {file} -d {dataset}")


def _document(explained: Explained, tried: int, printed: PrintedValue) -> dict[str, Any]:
    """Make the document for --json. `tried`: the number of conventions that were computed."""
    return {
        "value": printed.value,
        "tried": tried,
        "fitting": [each.record() for each in explained.fitting],
        "cut_instead_of_rounded": explained.is_cut,
        "nearest": [each.record() for each in explained.nearest],
    }


def _show(explained: Explained, name: str, what: str, command: str) -> None:
    """Print the conventions that give the value, or the nearest ones if none does, each with its
    command.

    `what`: the beginning of the title. `command`: is completed by the options of each convention.
    """
    header = ["convention", f"{name}, as printed", "command"]
    if explained.fitting:
        how = "if further digits are cut off" if explained.is_cut else "to the last digit"
        title = f"{what} these {len(explained.fitting)} give it {how}"
        show_table(title, header, _rows(explained.fitting, name, command))
        show("Others may give it, too: that a convention fits does not say that it was used.")
        return
    show_table(
        f"{what} none gives it; the nearest", header, _rows(explained.nearest, name, command)
    )


def _rows(conventions: list[Convention], name: str, command: str) -> list[list[str]]:
    """Return the rows of conventions: words, value with four digits, and command. A convention that
    no option of `hbench evaluate` gives has no command."""
    from hbench.records.shown import shown

    rows = []
    for each in conventions:
        said = f"{command} {each.options}" if each.options else "–"
        rows.append([each.words, shown(name, each.value, 4), said])
    return rows
