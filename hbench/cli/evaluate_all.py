"""hbench evaluate-all: score every embedding file of a folder, and compare each with the best."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from hbench.cli import reporting
from hbench.cli.names import FOLDER, OUT_FILE, TESTED
from hbench.cli.table_options import TABLE
from hbench.cli.terminal import bars, format_of, say, show, show_json, show_table

if TYPE_CHECKING:
    from hbench.cli.reporting import MachineOptions, ScoringOptions
    from hbench.cli.table_options import TableOptions
    from hbench.core.errors import HBenchError
    from hbench.datasets import Dataset
    from hbench.engine.settings import Settings
    from hbench.evaluation.many import ModelStanding
    from hbench.records.document import Document

FORMATS = click.Choice(["table", "json", "csv", "markdown", "latex"])


class ScoredFile(NamedTuple):
    """The report of an embedding file, and the requested metrics; the report may have more."""

    document: Document
    metrics: list[str]


@click.command("evaluate-all")
@click.argument("folder", type=FOLDER)
@TESTED
@reporting.SCORING
@TABLE
@click.option(
    "--out", "-o", "output", type=FOLDER, required=True, help="The folder of the reports."
)
@click.option(
    "--by", metavar="METRIC", help="Sort by this metric.  [default: the leaderboard's, or H-AP]"
)
@click.option("--format", "form", type=FORMATS, default="table", show_default=True)
@click.option("--json", "as_json", is_flag=True, help="The same as --format json.")
@click.option(
    "--csv", "as_csv", is_flag=True, help="The same as --format csv: fractions in full precision."
)
@click.option("--row", type=OUT_FILE, help="Write the leaderboard rows (TOML) to this file.")
@reporting.MACHINE
def command(
    folder: Path,
    dataset: str,
    output: Path,
    *,
    scoring: ScoringOptions,
    table: TableOptions,
    by: str | None,
    form: str,
    as_json: bool,
    as_csv: bool,
    row: Path | None,
    machine: MachineOptions,
) -> None:
    """Score every embedding file of FOLDER that has no report yet, then show all by all metrics,
    best first, each compared with the best.

    A file that is refused does not stop the others. A report is used again if it is of this file
    and these settings and has the metrics; one that lacks some is made again with those it has,
    too. LaTeX and Markdown print the best in bold.

    Example: hbench evaluate-all embeddings/ --dataset sop --metrics H-AP,R@1 --by R@1 --out
    reports/
    """
    from hbench.core.errors import HBenchError, SubmissionError, examples
    from hbench.evaluation import many
    from hbench.metrics.names import MetricName

    data = table.load(dataset)
    if by is not None:
        by = str(MetricName.parse(by).at(data.levels))  # checked, and as reports spell it
        if scoring.metrics:  # else all metrics are computed, among them `by`
            scoring = replace(scoring, metrics=f"{scoring.metrics},{by}")
    documents: dict[Path, Document] = {}  # by the file of the report
    asked: dict[str, None] = {}  # metrics, in the order in which they are asked for
    refused: dict[str, HBenchError] = {}  # by the name of the embedding file
    found = many.files_in(folder)
    if others := many.passed_over(folder, found):
        say(
            f"note: {len(others):,} files are not scored ({examples(others)}): score a CSV or "
            "ranking by hbench evaluate"
        )
    files = {output / f"{file.stem}.json": file for file in found}
    for report, file in files.items():
        try:
            scored = report_of(file, report, data, settings=scoring.settings, machine=machine)
            documents[report] = scored.document
            # the metrics that are shown; a report that was there may have more
            asked |= dict.fromkeys(scored.metrics)
        except HBenchError as error:
            refused[file.name] = error
            say(f"{file.name}: refused\n{error}")
    if documents:
        board = reporting.board_of(data.name)
        metric = _ranked_by(
            by, documents.values(), [*([board.metric] if board else []), "H-AP"], asked
        )
        # reports that lack the metric, or were made under other conditions than most
        for report, reason in many.not_comparable(documents, metric).items():
            del documents[report]
            refused[files[report].name] = reason
            say(str(reason))
        if row is not None:
            reporting.write_rows([*documents.values()], row)
        form = format_of(form, as_json=as_json, as_csv=as_csv)
        _show(
            many.standings(documents, metric), metric, list(asked), refused=list(refused), form=form
        )
    if refused:
        count = len(documents) + len(refused)
        raise SubmissionError(
            f"{len(refused)} of {count} files are refused, or not comparable",
            found=", ".join(refused),
        )


def _ranked_by(
    by: str | None, documents: Collection[Document], usual: list[str], asked: Collection[str]
) -> str:
    """Choose the metric that ranks: `by`, if a report has it (else UnknownName). Without --by, the
    first that more than half of the reports have: of the `usual` ones (the leaderboard's, H-AP)
    that were requested, or, if none was, of all requested ones (`asked`). If there is none, the
    metric that most reports have."""
    from hbench.core.errors import UnknownName
    from hbench.evaluation import many

    if by is None:
        return many.main_metric(documents, [name for name in usual if name in asked] or list(asked))
    known = dict.fromkeys(name for document in documents for name in document.scores)
    if by not in known:
        raise UnknownName("metric of these reports", by, known)
    return by


def report_of(
    file: Path, report: Path, data: Dataset, *, settings: Settings, machine: MachineOptions
) -> ScoredFile:
    """Return the report of an embedding file: the existing one at `report` if it is on this file
    and these settings, or a new one, which is written there. If the existing one lacks metrics, a
    new one is made that also has the old one's metrics (`widened`). The method is named after
    the file. Raises HBenchError for a file that is refused."""
    from hbench.evaluation import many
    from hbench.evaluation.submission import read

    # movable: the vectors may be reordered in place, since nobody else uses them
    checked = reporting.examined(read(file, movable=True), data, settings, file.stem)
    names = list(map(str, checked.conditions.metrics))
    if document := many.finished(report, checked):
        say(f"{file.name}: {report} is of this file and these settings")
        return ScoredFile(document, names)
    checked = many.widened(report, checked)
    execution = machine.execution
    # None: the file has no separate file of ids
    with execution.open([(file, None)], announce=say) as execute, bars("ranking") as on_test:
        made = execution.report(checked, execute, on_test)
    made.write_by_query(report.with_suffix(reporting.BY_QUERY))
    made.write(report)  # last: a report without values by query is made again
    return ScoredFile(made.document, names)


def _show(
    standings: list[ModelStanding], metric: str, asked: list[str], *, refused: list[str], form: str
) -> None:
    """Print the table of all models, best first by `metric`, with the requested metrics (`asked`).
    `refused`: the names of files that were refused, for JSON. `form`: the output format."""
    from hbench.evaluation.many import tables

    best = standings[0].document
    if form == "json":
        models = [standing.record() for standing in standings]
        shown = [metric, *(name for name in asked if name != metric)]
        about = {"signature": best.signature, "metric": metric, "metrics": shown}
        show_json({**about, "models": models, "refused": refused})
    elif form == "table":
        content = tables.table(standings, metric, asked)
        title = f"{best.dataset}, {best.protocol} protocol, percent"
        show_table(title, content.header, content.cells, "\n".join(content.notes))
    else:
        show(tables.models_as_text(standings, metric, asked, form=form).rstrip("\n"))
