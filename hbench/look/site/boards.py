"""Prepares the page of a leaderboard: its rows with their sources and doubts, its metrics by level, and all rankings.

The page does not rank: it gets the standings by each metric from hbench.evaluation.leaderboard.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any, NamedTuple

from hbench.core.errors import HBenchError, UsageError
from hbench.evaluation.leaderboard import Citation, Leaderboard, Row, leader, rank
from hbench.evaluation.leaderboard.export import remarks, short_source
from hbench.look.plots.boards import PARETO
from hbench.metrics.names import MetricName, lower_is_better


class BoardMetric(NamedTuple):
    """A metric of a leaderboard: its key in rows, its name without the level, its level ("" for none), and its definition, if
    hbench does not compute it."""

    key: str
    family: str
    level: str
    definition: str
    lower_is_better: bool = False


class BoardRow(NamedTuple):
    """A row as its page shows it. `cite`: the number of its citation, None for a run; `cells`: every printed score, and whether
    it is compared with others; `facts`: (name, text) of the row; `doubts`: doubts about its scores."""

    number: int
    row: Row
    source: str
    cite: int | None
    cells: list[tuple[str, bool] | None]
    facts: list[tuple[str, str]]
    doubts: list[str]


class BoardView(NamedTuple):
    """A leaderboard as its page shows it. `choices`: the filters of rows, name → (value, number of rows)."""

    board: Leaderboard
    metrics: list[BoardMetric]
    rows: list[BoardRow]
    citations: list[tuple[str, Citation]]
    choices: dict[str, list[tuple[str, int]]]

    @property
    def leader(self) -> tuple[str, str]:
        """The best method by the metric of the leaderboard, and its score."""
        return leader(self.board)


def view_of(board: Leaderboard) -> BoardView:
    """Prepare a leaderboard with its rows in the order of its metric; raises UsageError without rows."""
    if not board.rows:
        raise UsageError(
            f"the leaderboard of {board.dataset} has no rows", fix=f"hbench leaderboard add {board.dataset}"
        )
    used = {row.paper.citation for row in board.rows if row.paper}
    citations = [(key, board.citations[key]) for key in sorted(used)]
    number_of = {key: number for number, (key, _) in enumerate(citations, start=1)}
    ordered = [row for standing in rank(board, board.metric) for row in standing.rows]
    metrics = [_metric(board, key) for key in board.metrics]
    rows = [_row(board, number, row, number_of) for number, row in enumerate(ordered)]
    return BoardView(board, metrics, rows, citations, _choices(rows))


def script_of(view: BoardView) -> dict[str, Any]:
    """Collect the data of the page's scripts: metrics by level, the first axes, and the standings by every metric.

    Standings are best first: a place (none for the last) and the numbers of the rows that share it.
    """
    keys = [metric.key for metric in view.metrics]
    axes = list(PARETO) if set(PARETO) <= set(keys) else [keys[-1 if len(keys) < 2 else 1], keys[0]]
    number = {id(each.row): each.number for each in view.rows}
    standings = {
        key: [(standing.place, [number[id(row)] for row in standing.rows]) for standing in rank(view.board, key)]
        for key in keys
    }
    return {"metrics": [metric._asdict() for metric in view.metrics], "standings": standings, "axes": axes}


def _metric(board: Leaderboard, key: str) -> BoardMetric:
    definition = board.foreign_metrics.get(key, "")
    try:
        parsed = MetricName.parse(key)
    except HBenchError:
        return BoardMetric(key, key, "", definition)
    if "level" not in parsed.definition.takes or not board.levels:
        return BoardMetric(key, key, "", definition, lower_is_better(key))
    return BoardMetric(
        key, str(replace(parsed, level=None)), parsed.level or board.levels[-1], definition, lower_is_better(key)
    )


def _row(board: Leaderboard, number: int, row: Row, number_of: dict[str, int]) -> BoardRow:
    cells = [(str(row.scores[key]), key not in row.unranked) if key in row.scores else None for key in board.metrics]
    cite = number_of[row.paper.citation] if row.paper else None
    return BoardRow(number, row, short_source(row), cite, cells, _facts(row), remarks(row))


def _facts(row: Row) -> list[tuple[str, str]]:
    """List what the source of a row states in addition to scores, and what is needed to score a run again."""
    facts = [(name.replace("_", " "), str(value)) for name, value in row.setup if value is not None]
    if row.paper:
        facts.append(("source", row.source))
    if row.run:
        names = ("file", "sha256", "signature", "dataset_digest", "hbench", "date", "queries")
        facts += [(name.replace("_", " "), str(getattr(row.run, name))) for name in names]
        facts += [("embeddings", row.run.url)] if row.run.url else []
        facts += [("verified", row.run.verified)] if row.run.verified else []
    source: Any = row.paper or row.run
    return [*facts, ("note", source.note)] if source.note else facts


def _choices(rows: list[BoardRow]) -> dict[str, list[tuple[str, int]]]:
    columns: dict[str, list[Any]] = {
        "backbone": [row.row.backbone for row in rows],
        "year": [row.row.year for row in rows],
        "family": [row.row.setup.family for row in rows],
        "source": [row.row.paper.citation if row.row.paper else None for row in rows],
    }
    choices = {}
    for name, values in columns.items():
        known = [str(value) for value in values if value is not None]
        choices[name] = [(value, known.count(value)) for value in sorted(set(known), key=_natural)]
    return choices


def _natural(text: str) -> list[tuple[int, int, str]]:
    """Return a sort key that compares the numbers in names as numbers.

    >>> sorted(["ResNet-101", "ResNet-50"], key=_natural)
    ['ResNet-50', 'ResNet-101']
    """
    return [(1, int(part), "") if part.isdigit() else (0, 0, part.lower()) for part in re.split(r"(\d+)", text) if part]
