"""A report as a table: one line per metric, percent, with its interval and the number of queries behind it.

>>> percent(0.53124)
'53.12'
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable
from typing import NamedTuple

from hbench.leaderboard import Leaderboard, place
from hbench.leaderboard_export import Table, latex, markdown
from hbench.report import Document, Score

NONE = "–"


class Placing(NamedTuple):
    """Where a report stands on a leaderboard: the metric, whose protocol, and a sentence."""

    metric: str
    sentence: str


def percent(value: float | None, digits: int = 2) -> str:
    """A fraction in percent, as published tables print it; an en dash for none."""
    return NONE if value is None else f"{100 * value:.{digits}f}"


def table(document: Document) -> Table:
    """metric, score, 95 % interval, the official value where the report has one that differs, queries."""
    official = {name for name, score in document.official.items() if score.value != document.scores[name].value}
    header = ["metric", f"score ({document.protocol})", "95 % interval", "queries"]
    cells = []
    for name, score in document.scores.items():
        line = [name, percent(score.value), interval(score), f"{score.queries:,}"]
        if official:
            line.insert(3, percent(document.official[name].value) if name in official else "same")
        cells.append(tuple(line))
    if official:
        header.insert(3, "official")
    return Table(tuple(header), cells, list(document.warnings))


def interval(score: Score) -> str:
    return NONE if score.low is None else f"{percent(score.low)} … {percent(score.high)}"


def as_csv(document: Document) -> str:
    """metric, value, low, high, official, queries, skipped; fractions in full precision."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["metric", "value", "low", "high", "official", "queries", "skipped"])
    for name, score in document.scores.items():
        official = document.official[name].value if name in document.official else None
        writer.writerow([name, score.value, score.low, score.high, official, score.queries, score.skipped])
    return text.getvalue()


def title(document: Document) -> str:
    """Method, dataset and signature in one line."""
    subject = document.method or (document.embedding.file if document.embedding else "arrays")
    return f"{subject} on {document.dataset}"


FORMATS: dict[str, Callable[[Document], str]] = {
    "json": lambda document: document.model_dump_json(indent=1) + "\n",
    "csv": as_csv,
    "markdown": lambda document: markdown(table(document), title=f"{title(document)}, percent: {document.signature}"),
    "latex": lambda document: latex(table(document), title=f"{title(document)}, percent: {document.signature}"),
}


def placing(document: Document, board: Leaderboard) -> Placing | None:
    """The report's place by the leaderboard's own metric, under the leaderboard's protocol; None without that score."""
    own = document.scores if board.protocol == document.protocol else document.official
    score = own.get(board.metric)
    if score is None or score.value is None:
        return None
    found = place(board, board.metric, score.value)
    above = f", below {found.better.rows[0].method} ({found.better.score})" if found.better else ""
    below = f", above {found.worse.rows[0].method} ({found.worse.score})" if found.worse else ""
    return Placing(
        board.metric,
        f"{board.metric} {percent(score.value)} ({board.protocol} protocol) would be place {found.place} "
        f"of {found.of + 1} on the {board.dataset} leaderboard{above}{below}",
    )
