"""Writes many models as a table of models and metrics: formatted for people and papers, or in full
precision for programs.
"""

from collections.abc import Sequence
from typing import Any

from hbench.core.tables import without_formula
from hbench.core.text import NONE, csv_text
from hbench.evaluation.many import ModelStanding
from hbench.metrics.names import goodness
from hbench.records.report_tables import over_note
from hbench.records.shown import (
    margin,
    percent_note,
    shown,
    shown_difference,
    shown_difference_range,
    values_of,
    worth_showing,
)
from hbench.records.tables import PrintedTable, latex, markdown

PAIRED = ("to the best", "95 % interval", "p (Holm)")
# the columns of the paired difference in a CSV
FIELDS = ("difference", "low", "high", "p", "corrected", "queries", "units")


def metrics_shown(
    standings: Sequence[ModelStanding], metric: str, asked: Sequence[str]
) -> list[str]:
    """Return the metric that ranks, then the other requested metrics, without the R@k at which all
    models reach 100 at a smaller k already."""
    found = [metric, *(name for name in asked if name != metric)]
    return worth_showing(found, [values_of(standing.document.scores) for standing in standings])


def table(standings: Sequence[ModelStanding], metric: str, asked: Sequence[str]) -> PrintedTable:
    """Make the table for people: a line for each model, best first, with its score by the metric
    that ranks, the paired difference from the best, the other requested metrics (the best in bold),
    and the number of doubts, if there are any.

    `standings`: the models with their reports, best first. `metric`: ranks them. `asked`: the
    requested metrics.
    """
    names = metrics_shown(standings, metric, asked)
    doubted = any(standing.document.doubts for standing in standings)
    # PAIRED: the headers of the difference, its interval and its p-value. names[0] is `metric`
    header = ["model", metric, *PAIRED, *names[1:]]
    if doubted:
        header.append("doubts")

    lines = []
    for standing in standings:
        # `margin`: the score with ± half its interval
        line = [name_of(standing), margin(metric, standing.score), *_behind(metric, standing)]
        scores = standing.document.scores
        line += [shown(name, scores[name].value) if name in scores else NONE for name in names[1:]]
        if doubted:
            line.append(str(len(standing.document.doubts) or ""))
        lines.append(tuple(line))

    bold = _best_in_bold(standings, metric, names[1:])
    document = standings[0].document
    # the first note says what the intervals are over, and if some R@k were left out
    notes = [over_note(document, left_out=len(names) < len({metric, *asked})), document.signature]

    return PrintedTable(header=tuple(header), cells=lines, notes=notes, bold=bold)


def _best_in_bold(
    standings: Sequence[ModelStanding], metric: str, others: Sequence[str]
) -> list[list[int]]:
    """Return, for the line of each model, the indices of the columns in which the model is best.
    The metric that ranks is column 1, after the model's name. Then come the columns PAIRED of the
    difference from the best, and after them the metrics `others`."""
    first_of_others = 2 + len(PAIRED)
    columns = {metric: 1}
    columns |= {name: column for column, name in enumerate(others, start=first_of_others)}

    bold: list[list[int]] = [[] for _ in standings]
    for name, column in columns.items():
        for model in _best(standings, name):
            bold[model].append(column)
    return bold


def name_of(standing: ModelStanding) -> str:
    """Return a model's name; "" if its report has none."""
    return standing.document.method or ""


def _behind(metric: str, standing: ModelStanding) -> tuple[str, str, str]:
    """Return the cells of the columns PAIRED: the difference from the best, its interval, and p."""
    gap = standing.behind
    if gap is None:
        return "best", "", ""
    difference = shown_difference(metric, gap.difference)
    ends = shown_difference_range(metric, gap.low, gap.high)
    return difference, ends, gap.corrected_in_words


def _best(standings: Sequence[ModelStanding], name: str) -> set[int]:
    """Return the indices of the models with the best value of the metric `name`. Values are
    compared as they are printed, rounded, so there may be several. Empty if all models have the
    best value: bold would tell nothing."""
    values = [
        standing.document.scores[name].value if name in standing.document.scores else None
        for standing in standings
    ]
    known = [value for value in values if value is not None]
    if not known:
        return set()
    best = shown(name, max(known, key=lambda value: goodness(name, value)))
    found = {at for at, value in enumerate(values) if shown(name, value) == best}
    return set() if len(found) == len(standings) else found


def as_csv(standings: Sequence[ModelStanding], metric: str, asked: Sequence[str]) -> str:
    """Make the table for programs, as CSV: a line for each model, best first, with its name and
    file, all requested metrics in full precision, and the paired difference from the best by the
    metric that ranks. Missing values are empty.

    `standings`: the models with their reports, best first. `metric`: ranks them. `asked`: the
    requested metrics.
    """
    names = [metric, *(name for name in asked if name != metric)]
    rows: list[list[Any]] = []
    for standing in standings:
        document = standing.document
        gap = standing.behind
        values = [
            document.scores[name].value if name in document.scores else None for name in names
        ]
        # the fields of the difference from the best; all None for the best itself
        paired = [gap and gap.record()[field] for field in FIELDS]
        # texts from outside; `without_formula` keeps spreadsheets from executing them as formulas
        about = [name_of(standing), document.embedding and document.embedding.file]
        rows.append(
            [
                *map(without_formula, about),
                *values,
                metric,
                *paired,
                len(document.doubts),
                document.signature,
            ]
        )

    return csv_text(["model", "file", *names, "ranked_by", *FIELDS, "doubts", "signature"], rows)


def models_as_text(
    standings: Sequence[ModelStanding], metric: str, asked: Sequence[str], *, form: str
) -> str:
    """Write the models as a text. `form`: "csv", "markdown" or "latex". `metric`: ranks the models.
    `asked`: the metrics that are shown."""
    if form == "csv":
        return as_csv(standings, metric, asked)
    content = table(standings, metric, asked)
    document = standings[0].document
    title = (
        f"{document.dataset}, {document.protocol} protocol, {percent_note([metric, *asked])}, "
        f"ranked by {metric}"
    )
    if form == "latex":
        return latex(content, title=title)
    return markdown(content, title=title)
