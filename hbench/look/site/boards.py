"""Prepares the page of a leaderboard: its rows with their sources and doubts, its metrics by level,
and its standings.

The page does not rank rows itself. It contains the standings by each metric, from hbench.boards.
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
    """A metric of a leaderboard, as its page shows it.

    Attributes:
        key: the metric's key in rows, such as R@1/genus.
        family: the name without the level.
        level: the level, "" for a metric without one.
        definition: says what the metric is if hbench does not compute it; else "".
        chance: a difference of two rows, in points, that may be chance; None if it is not known.
    """

    key: str
    family: str
    level: str
    definition: str
    lower_is_better: bool
    chance: float | None


class BoardRow(NamedTuple):
    """A result as its page shows it.

    Attributes:
        number: the line on the page, from 0.
        row: the result, merged from all rows that print it.
        sources: papers, each with the number of its citation, and runs, each with None.
        cells: for each metric of the leaderboard, the score's text and whether the row is ranked by
            this score; None without the score.
        facts: pairs (name, text) that the rows state.
        doubts: doubts about the scores.
        filters: by the name of a filter, the values that the rows state.
    """

    number: int
    row: Row
    sources: list[tuple[str, int | None]]
    cells: list[tuple[str, bool] | None]
    facts: list[tuple[str, str]]
    doubts: list[str]
    filters: dict[str, list[str]]


class BoardView(NamedTuple):
    """A leaderboard as its page shows it. `choices` maps the name of each filter to pairs (value,
    number of rows that have the value)."""

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
    """Prepare the page of a leaderboard, with the rows ranked by the leaderboard's metric.

    Raises UsageError if the leaderboard has no rows.
    """
    if not board.rows:
        raise UsageError(
            f"the leaderboard of {board.dataset} has no rows",
            fix=f"hbench leaderboard add {board.dataset}",
        )
    # results, best first; a result may have several rows, of papers that print the same one
    standings = rank(board, board.metric)
    # pairs (key, citation)
    citations = [*cited_by(standings, board.citations).items()]
    # number the citations in the order of the page
    number_of = {key: number for number, (key, _) in enumerate(citations, start=1)}
    metrics = [_metric_of_board(board, key) for key in board.metrics]
    rows = [
        _row_of_board(board, line, standing.rows, number_of)
        for line, standing in enumerate(standings)  # its line on the page, from 0
    ]
    # the last argument: {filter: its values, each with the number of rows that have it}
    return BoardView(board, metrics, rows, citations, _choices(rows))


def script_of(view: BoardView) -> dict[str, Any]:
    """Collect the data that the page's scripts read: the metrics, the two metrics that are plotted
    first (`axes`), the values that each row is filtered by, and the standings by every metric. The
    page has a row, or line, for each result; a result may have several rows of the leaderboard.
    """
    keys = [metric.key for metric in view.metrics]
    # The page shows the results ranked by the leaderboard's metric, and the data name a result by
    # its line there, from 0. `rank` joins the same row objects into a result whatever the metric,
    # so the identity of a result's first row identifies the result.
    line_of = {
        id(standing.rows[0]): line
        for line, standing in enumerate(rank(view.board, view.board.metric))
    }

    def standings_by(key: str) -> list[tuple[int | None, int]]:
        """Return the place of every result by a metric, and the line on the page; best first. The
        place is None for a result that is not ranked by the metric."""
        return [(each.place, line_of[id(each.rows[0])]) for each in rank(view.board, key)]

    return {
        "metrics": [metric._asdict() for metric in view.metrics],
        "axes": _first_axes(keys),
        "filters": [row.filters for row in view.rows],
        "standings": {key: standings_by(key) for key in keys},
    }


def _first_axes(keys: Sequence[str]) -> list[str]:
    """Return the two metrics that the page plots first: AP and H-AP if the leaderboard has both,
    else the first two metrics."""
    if set(PARETO) <= set(keys):
        return list(PARETO)
    return [keys[1] if len(keys) > 1 else keys[0], keys[0]]


def _metric_of_board(board: Leaderboard, key: str) -> BoardMetric:
    """Describe the metric of a leaderboard with this key. For example, R@1/genus belongs to the
    family R@1 and to the level genus. R@1 alone is of the finest level."""
    family = key
    level = ""
    # a metric that hbench does not compute cannot be parsed; it has no level
    with suppress(UnknownName):
        parsed = MetricName.parse(key)
        if "level" in parsed.definition.takes and board.levels:
            family = str(replace(parsed, level=None))
            level = parsed.level or board.levels[-1]
    # `foreign_metrics` explains the metrics that hbench does not compute
    definition = board.foreign_metrics.get(key, "")
    if board.lacks(key):  # a run has scores by the metric, but hbench does not know the metric
        definition = "a metric of a package that is not installed here"
    return BoardMetric(
        key=key,
        family=family,
        level=level,
        definition=definition,
        lower_is_better=lower_is_better(key),
        chance=resolution(board, key),
    )


def _row_of_board(
    board: Leaderboard, number: int, result: tuple[Row, ...], number_of: dict[str, int]
) -> BoardRow:
    """Prepare a result for the page. Several rows of one result are merged into one, which keeps
    the facts and doubts of all of them.

    Args:
        number: the line on the page, from 0.
        result: the rows that print the result.
        number_of: by the key of a citation, its number on the page.
    """
    row = as_one(result)
    # the metrics by which the row is ranked; none under other conditions than the leaderboard's.
    # `unranked` has the scores that the row itself calls not comparable
    ranked = set(row.scores) - set(row.unranked) if board.compares(row) else set()
    # for each metric of the leaderboard: the score's text, and whether the row is ranked by it;
    # None without the score
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
        number=number,
        row=row,
        sources=_sources(result, number_of),
        cells=cells,
        facts=facts,
        doubts=doubts,
        filters=_filters(result),
    )


def _sources(result: tuple[Row, ...], number_of: dict[str, int]) -> list[tuple[str, int | None]]:
    """List the sources of a result as pairs (text, number of the citation): first its papers, then
    its runs, which have None as number. The text of a paper is its author and its tables.

    `result`: the rows that print the result. `number_of`: {key of a citation: its number}; a key is
    "AUTHOR, VENUE YEAR", of which only the author is shown.
    """
    # by the key of a citation, the tables of that paper
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
    """Return, by the name of each filter, the distinct values that the rows of a result state.
    `result`: the rows that print the same result, which are one standing."""
    # for each row: {name of a filter: the value, None where the row does not state one}
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
        """Return the distinct values that the rows state for a filter, in the rows' order."""
        values = [str(row[name]) for row in of_rows if row[name] is not None]
        return list(dict.fromkeys(values))

    return {name: stated(name) for name in of_rows[0]}


def _facts(row: Row) -> list[tuple[str, str]]:
    """List what a row states in addition to its scores: the setup, the source, and, for a run, what
    is needed to score it again."""
    # a setup iterates over (field, value); fields that nobody stated are empty
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
    """Return what the filters of a page offer: by the name of a filter, its values in natural
    order, each with the number of rows that have it."""
    choices = {}
    for name in rows[0].filters:  # all rows have the same filters
        values = [value for row in rows for value in row.filters[name]]
        choices[name] = [
            (value, values.count(value)) for value in sorted(set(values), key=_natural)
        ]
    return choices


def _natural(text: str) -> list[tuple[int, int, str]]:
    """Return a sort key that compares the numbers within a text as numbers, and all else without
    regard to case. A number sorts after other text.

    >>> sorted(["ResNet-101", "ResNet-50"], key=_natural)
    ['ResNet-50', 'ResNet-101']
    """
    # each part is (1, number, "") or (0, 0, text), so that parts of any two texts can be compared
    return [
        (1, int(part), "") if part.isdigit() else (0, 0, part.lower())
        for part in re.split(r"(\d+)", text)
        if part
    ]
