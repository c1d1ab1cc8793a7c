"""hbench evaluate-all: score every embedding file of a folder, and compare each with the best."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hbench.cli import reporting
from hbench.cli.names import FILE, FOLDER
from hbench.cli.terminal import bars, say, show_json, show_table

if TYPE_CHECKING:
    from hbench.core.errors import HBenchError
    from hbench.datasets import Dataset
    from hbench.evaluation.reports.many import ModelStanding
    from hbench.evaluation.reports.report import Document


@click.command("evaluate-all")
@click.argument("folder", type=FOLDER)
@reporting.with_options(reporting.SETTINGS)
@click.option("--out", "-o", "output", type=FOLDER, required=True, help="The folder of the reports.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
@click.option("--row", type=FILE, help="Write the leaderboard rows (TOML) to this file.")
@reporting.with_options(reporting.MACHINE)
def command(folder: Path, dataset: str, as_json: bool, **options: Any) -> None:
    """Score every embedding file of FOLDER that has no report yet, then show all, best first, each compared with the best.

    A file that is refused does not stop the others. A report is used again if it is of this file and these settings.

    Example: hbench evaluate-all embeddings/ --dataset sop --out reports/
    """
    from hbench import datasets
    from hbench.core.errors import HBenchError, SubmissionError
    from hbench.evaluation.reports import many

    data = datasets.load(dataset, options["policies"])
    documents: dict[Path, Document] = {}
    refused: dict[str, HBenchError] = {}
    files = {options["output"] / f"{file.stem}.json": file for file in many.files_in(folder)}
    for report, file in files.items():
        try:
            documents[report] = _report_of(file, report, data, options)
        except HBenchError as error:
            refused[file.name] = error
            say(f"{file.name}: refused\n{error}")
    if documents:
        board = reporting.board_of(data.name)
        metric = many.main_metric(documents.values(), [*([board.metric] if board else []), "H-AP"])
        for report, reason in many.not_comparable(documents, metric).items():
            del documents[report]
            refused[files[report].name] = reason
            say(str(reason))
        if options["row"]:
            reporting.write_rows([*documents.values()], options["row"])
        _show(many.standings(documents, metric), metric, list(refused), as_json=as_json)
    if refused:
        count = len(documents) + len(refused)
        raise SubmissionError(
            f"{len(refused)} of {count} files are refused, or not comparable", found=", ".join(refused)
        )


def _report_of(file: Path, report: Path, data: Dataset, options: dict[str, Any]) -> Document:
    from hbench.evaluation.reports import many
    from hbench.evaluation.submission import read

    checked = reporting.examined(read(file, movable=True), data, reporting.settings_of(options), file.stem)
    if document := many.finished(report, checked):
        say(f"{file.name}: {report} is of this file and these settings")
        return document
    execution = reporting.execution_of(options)
    with execution.open([(file, None)], announce=say) as execute, bars("ranking") as on_test:
        made = execution.report(checked, execute, on_test)
    made.write_by_query(report.with_suffix(reporting.BY_QUERY))
    made.write(report)  # last: a report without values by query is made again
    return made.document


def _show(standings: list[ModelStanding], metric: str, refused: list[str], *, as_json: bool) -> None:
    from hbench.core.text import points, points_range
    from hbench.evaluation.reports import formats

    best = standings[0].document
    if as_json:
        models = [standing.record() for standing in standings]
        show_json({"signature": best.signature, "metric": metric, "models": models, "refused": refused})
        return
    cells = []
    for standing in standings:
        behind = ("best", "", "")
        if gap := standing.behind:
            behind = (points(gap.difference), points_range(gap.low, gap.high), gap.corrected_in_words)
        doubts = str(len(standing.document.doubts)) if standing.document.doubts else ""
        cells.append((standing.document.method or "", formats.margin(standing.score), *behind, doubts))
    header = ("model", metric, "to the best", "95 % interval", "p (Holm)", "doubts")
    title = f"{best.dataset}, {best.protocol} protocol, percent"
    show_table(title, header, cells, f"{formats.unit_note(best)}\n{best.signature}")
