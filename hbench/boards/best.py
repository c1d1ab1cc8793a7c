"""Marks the best cells of a leaderboard's table, as papers print them: the best of a column in
bold, the second underlined (LaTeX) or bare (Markdown, which has no line below).

>>> two_best([Decimal("80.5"), Decimal("81.0"), None, Decimal("79.4")], "R@1")
({1}, {0})
"""

from collections.abc import Sequence
from decimal import Decimal

from hbench.boards import Leaderboard, Standing, as_one
from hbench.boards.export import BoardTable
from hbench.metrics.names import goodness

Places = set[int]


def with_best(content: BoardTable, board: Leaderboard, standings: Sequence[Standing]) -> BoardTable:
    """Return the table of standings with the best and second cells of every metric marked. Scores
    that are not comparable with the others, by their row or their conditions, are left aside.
    """
    bold: list[list[int]] = [[] for _ in standings]
    underlined: list[list[int]] = [[] for _ in standings]
    for column, metric in enumerate(content.header):
        if metric not in board.metrics:
            continue
        first, second = two_best(_comparable(board, standings, metric), metric)
        for line in first:
            bold[line].append(column)
        for line in second:
            underlined[line].append(column)
    return content._replace(bold=bold, underlined=underlined)


def two_best(scores: Sequence[Decimal | None], metric: str) -> tuple[Places, Places]:
    """Return where the best score stands, and where the second; equal ones share. None where all
    known scores are equal."""
    known = sorted(
        {score for score in scores if score is not None},
        key=lambda score: goodness(metric, score),
        reverse=True,
    )
    if len(known) < 2:
        return set(), set()
    first, second = known[:2]
    return _where(scores, first), _where(scores, second)


def _where(scores: Sequence[Decimal | None], score: Decimal) -> Places:
    return {place for place, each in enumerate(scores) if each == score}


def _comparable(
    board: Leaderboard, standings: Sequence[Standing], metric: str
) -> list[Decimal | None]:
    """The score of every standing, or None where it has none that is comparable."""
    rows = [as_one(standing.rows) for standing in standings]
    by_name = bool(rows) and rows[0].setup.queries is not None
    return [
        row.scores.get(metric)
        if metric not in row.unranked and board.compares(row, by_name=by_name)
        else None
        for row in rows
    ]
