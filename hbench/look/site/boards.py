"""Prepares the page of a leaderboard: its rows with their sources and doubts, its metrics by level,
and all rankings.

The page does not rank: it gets the standings by each metric from hbench.boards.
"""

import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, NamedTuple

from hbench.boards import Citation, Leaderboard, Row, as_one, leader, rank
from hbench.boards.export import cited_by, remarks
from hbench.boards.resolution import resolution
from hbench.core.errors import UnknownName, UsageError
from hbench.look.plots.boards import PARETO
from hbench.metrics.names import MetricName, lower_is_better


class BoardMetric(NamedTuple):
    """A metric of a leaderboard: its key in rows, its name without the level, its level ("" for
    none), its definition, if hbench does not compute it, and the difference of two rows that may be
    chance, in points, None if it is not known."""

    key: str
    family: str
    level: str
    definition: str
    lower_is_better: bool
    chance: float | None


class BoardRow(NamedTuple):
    """A result as its page shows it: its `row`, of all rows that print it. `sources`: each with the
    number of its citation, None for a run; `cells`: every printed score, and whether it is compared
    with others; `facts`: (name, text) of the rows; `doubts`: doubts about the scores; `filters`:
    the values that the page's filters choose by."""

    number: int
    row: Row
    sources: list[tuple[str, int | None]]
    cells: list[tuple[str, bool] | None]
    facts: list[tuple[str, str]]
    doubts: list[str]
    filters: dict[str, list[str]]


class BoardView(NamedTuple):
    """A leaderboard as its page shows it. `choices`: the filters of rows, name → (value, number of
    rows).
    """

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
    """Prepare a leaderboard with its rows in the order of its metric; raises UsageError without
    rows.
    """
    if not board.rows:
        raise UsageError(
            f"the leaderboard of {board.dataset} has no rows",
            fix=f"hbench leaderboard add {board.dataset}",
        )
    standings = rank(board, board.metric)
    citations = [*cited_by(standings, board.citations).items()]
    # citations are numbered in the order of the page
    number_of = {key: number for number, (key, _) in enumerate(citations, start=1)}
    metrics = [_metric_of_board(board, key) for key in board.metrics]
    rows = [
        _row_of_board(board, number, standing.rows, number_of)
        for number, standing in enumerate(standings)
    ]
    return BoardView(board, metrics, rows, citations, _choices(rows))


def script_of(view: BoardView) -> dict[str, Any]:
    """Collect the data of the page's scripts: metrics by level with the difference that may be
    chance, the first axes, what the rows are filtered by, and the standings by every metric, best
    first: the place, none for rows that are not ranked by it, and the number of the page's row."""
    keys = [metric.key for metric in view.metrics]
    # `rank` groups the same row objects by any metric, so a result is known by its first row; its
    # number is that of its line on the page
    number = {
        id(standing.rows[0]): at for at, standing in enumerate(rank(view.board, view.board.metric))
    }

    def standings_by(key: str) -> list[tuple[int | None, int]]:
        """The place and the number of every row by a metric, best first."""
        return [(each.place, number[id(each.rows[0])]) for each in rank(view.board, key)]

    return {
        "metrics": [metric._asdict() for metric in view.metrics],
        "axes": _first_axes(keys),
        "filters": [row.filters for row in view.rows],
        "standings": {key: standings_by(key) for key in keys},
    }


def _first_axes(keys: Sequence[str]) -> list[str]:
    """The two metrics that the page plots at first: AP and H-AP, or else the first two."""
    if set(PARETO) <= set(keys):
        return list(PARETO)
    return [keys[1] if len(keys) > 1 else keys[0], keys[0]]


def _metric_of_board(board: Leaderboard, key: str) -> BoardMetric:
    """A metric of a board by its key: R@1/genus is of the family R@1 at the level genus.
    `foreign_metrics`: what metrics are that hbench does not compute, in words."""
    family = key
    level = ""
    with suppress(UnknownName):  # a metric that hbench does not compute has no level
        parsed = MetricName.parse(key)
        if "level" in parsed.definition.takes and board.levels:
            family = str(replace(parsed, level=None))
            level = parsed.level or board.levels[-1]
    definition = board.foreign_metrics.get(key, "")
    if board.lacks(key):
        definition = "a metric of a package that is not installed here"
    return BoardMetric(key, family, level, definition, lower_is_better(key), resolution(board, key))


def _row_of_board(
    board: Leaderboard, number: int, result: tuple[Row, ...], number_of: dict[str, int]
) -> BoardRow:
    """A row as the site shows it. Several rows of one result are one here, and all of their facts
    and doubts stay. `number`: its place; `number_of`: the number of each citation, by its key."""
    row = as_one(result)
    ranked = set(row.scores) - set(row.unranked) if board.compares(row) else set()
    # the text, and whether the row is ranked by it; None without the score
    cells = [
        (str(row.scores[key]), key in ranked) if key in row.scores else None
        for key in board.metrics
    ]
    facts = list(dict.fromkeys(fact for each in result for fact in _facts(each)))
    doubts = list(
        dict.fromkeys(doubt for each in result for doubt in remarks(each, board.levels_of_one_test))
    )

    if row.setup.queries is not None:
        doubts.append(f"{row.source} is not ranked: its queries are names of the tree, not items")
    elif not board.compares(row):
        doubts.append(
            f"{row.source} is not ranked: it was made under other conditions than the other rows"
        )

    return BoardRow(
        number, row, _sources(result, number_of), cells, facts, doubts, _filters(result)
    )


def _sources(result: tuple[Row, ...], number_of: dict[str, int]) -> list[tuple[str, int | None]]:
    """List the papers of a result with their tables, each with the number of its citation, and its
    run, which has None. A key of a citation is "AUTHOR, VENUE YEAR": the author is shown.
    """
    tables: dict[str, list[str]] = {}
    for row in result:
        if row.paper:
            tables.setdefault(row.paper.citation, []).append(row.paper.table)
    papers = [
        (f"{key.partition(',')[0]} {' and '.join(of_paper)}", number_of[key])
        for key, of_paper in tables.items()
    ]
    return [*papers, *((row.source, None) for row in result if row.run)]


def _filters(result: tuple[Row, ...]) -> dict[str, list[str]]:
    """List what a result can be filtered by: the values that its rows state, each once."""
    # of each row: {name of a filter: its value, None where the row does not say}
    of_rows = [
        {
            "backbone": row.backbone,
            "year": row.year,
            "family": row.setup.family,
            "pretraining": row.setup.pretraining,
            "trained_on": row.setup.trained_on,
            "licence": row.setup.licence,
            "source": row.paper and row.paper.citation,
            "kind": "paper" if row.paper else "run",
        }
        for row in result
    ]

    def stated(name: str) -> list[str]:
        """The values that the rows state under a name."""
        values = [str(row[name]) for row in of_rows if row[name] is not None]
        return list(dict.fromkeys(values))

    return {name: stated(name) for name in of_rows[0]}


def _facts(row: Row) -> list[tuple[str, str]]:
    """List what the source of a row states in addition to scores, and what is needed to score a run
    again.
    """
    # a setup yields its fields with their values, of which those that nobody stated are empty
    stated = [
        (name, f"{value:,}" if name == "parameters" else str(value))
        for name, value in row.setup
        if value
    ]
    facts = [(name.replace("_", " "), text) for name, text in stated]
    if row.paper:
        facts.append(("source", row.source))
    if row.run:
        names = ["file", "content", "sha256", "signature", "dataset_digest"]
        names += ["hbench", "date", "queries"]
        stated = [(name, getattr(row.run, name)) for name in names]
        facts += [(name.replace("_", " "), str(value)) for name, value in stated if value]
        facts += [("embeddings", row.run.url)] if row.run.url else []
        facts += [("verified", row.run.verified)] if row.run.verified else []

    source: Any = row.paper or row.run  # a row has one of the two
    return [*facts, ("note", source.note)] if source.note else facts


def _choices(rows: list[BoardRow]) -> dict[str, list[tuple[str, int]]]:
    """What the filters of a page offer: by the name of a filter, its values in natural order, each
    with the number of rows that have it. All rows have the same filters."""
    choices = {}
    for name in rows[0].filters:
        values = [value for row in rows for value in row.filters[name]]
        choices[name] = [
            (value, values.count(value)) for value in sorted(set(values), key=_natural)
        ]
    return choices


def _natural(text: str) -> list[tuple[int, int, str]]:
    """Return a sort key that compares the numbers in names as numbers.

    >>> sorted(["ResNet-101", "ResNet-50"], key=_natural)
    ['ResNet-50', 'ResNet-101']
    """
    return [
        (1, int(part), "") if part.isdigit() else (0, 0, part.lower())
        for part in re.split(r"(\d+)", text)
        if part
    ]
