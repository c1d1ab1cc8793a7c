"""Selects rows of a leaderboard, and shows them as a table that fits into the terminal, or in a
format.
"""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from hbench.cli.option_blocks import words_of
from hbench.cli.terminal import show, show_table, watched
from hbench.core.errors import UsageError

if TYPE_CHECKING:
    from hbench.boards import Leaderboard, Row, Standing
    from hbench.records.tables import PrintedTable

# characters to which columns of texts shrink before a metric is left out
NARROWEST = {"method": 22, "backbone": 14, "source": 18}
NO_TERMINAL = 10_000  # characters of a line in a pipe or a file: everything fits


class RankedBoard(NamedTuple):
    """A leaderboard, those of its standings that are shown, best first, and the metrics to show,
    the one it is ranked by first."""

    board: Leaderboard
    standings: list[Standing]
    metrics: list[str]


@dataclass(frozen=True)
class Selection:
    """Which rows of a leaderboard are shown, by which metric, with which columns."""

    name: str
    metric: str | None
    columns: str | None
    papers: tuple[str, ...]
    everything: bool
    by_name: bool
    top: int | None

    def standings(self) -> RankedBoard:
        """Read the leaderboard, and rank its rows as asked for: those of the chosen papers, by one
        metric. Rows without a score that can be compared have no place, and are shown with
        `everything` alone. Raises UsageError for a metric that no row has."""
        from hbench.boards import rank, read_board

        board = read_board(self.name)
        key = board.key(self.metric or board.metric)
        rows = self._rows(board)
        # the leaderboard's own metric may have no score yet; one that is asked for should
        if self.metric and not any(key in row.scores for row in rows):
            raise UsageError(f"no row has {key}", expected=f"one of {', '.join(board.metrics)}")

        ranked = rank(board, key, rows, by_name=self.by_name)
        shown = [each for each in ranked if self.everything or each.place][: self.top]
        columns = [board.key(word) for word in words_of(self.columns)]
        metrics = dict.fromkeys([key, *(columns or _most_common_metrics(shown))])
        return RankedBoard(board, shown, list(metrics))

    def _rows(self, board: Leaderboard) -> list[Row]:
        """Return the rows of the papers that were asked for, all if none were; raises UsageError
        that lists the papers where none is meant."""
        chosen = [row for row in board.rows if not self.papers or _is_of(row, self.papers)]
        if self.papers and not chosen:
            sources = dict.fromkeys(row.paper.citation for row in board.rows if row.paper)
            raise UsageError(
                "no row is of these papers",
                expected="a part of: " + "; ".join(sources),
                found=", ".join(self.papers),
            )
        return chosen


def _is_of(row: Row, papers: Sequence[str]) -> bool:
    """Whether a row's source has one of these texts in it."""
    return any(text.lower() in row.source.lower() for text in papers)


def _most_common_metrics(standings: Sequence[Standing]) -> list[str]:
    """The metrics of standings, those that most have first; of equal numbers as rows order them."""
    present: Counter[str] = Counter()
    for standing in standings:
        metrics = dict.fromkeys(metric for row in standing.rows for metric in row.scores)
        present.update(list(metrics))
    return [metric for metric, _ in present.most_common()]


def board_as_text(
    board: Leaderboard, standings: Sequence[Standing], metrics: Sequence[str], *, form: str
) -> str:
    """The standings in a format: markdown, latex, csv, bibtex or json. Tables have the columns of
    `metrics`; csv and json have all that is known, bibtex the sources alone."""
    import json

    from hbench.boards import export as exports
    from hbench.records import tables

    content = exports.table(standings, metrics, board.citations, board.levels_of_one_test)
    content = exports.with_best(content, board, standings)
    title = exports.title(board)
    writers: dict[str, Callable[[], str]] = {
        "markdown": lambda: tables.markdown(content, title=title),
        "latex": lambda: tables.latex(content, title=title),
        "csv": lambda: exports.as_csv(board, standings),
        "bibtex": lambda: exports.bibtex(exports.cited_by(standings, board.citations)),
        "json": lambda: json.dumps(
            exports.as_json(board, standings), indent=2, ensure_ascii=False, allow_nan=False
        ),
    }
    return writers[form]()


def terminal_table(
    board: Leaderboard, standings: Sequence[Standing], metrics: Sequence[str], *, fixed: bool
) -> None:
    """Show the table with as many of the metrics as fit into the terminal, the first ones, and
    below it the notes and what was left out; `fixed`: with all, as somebody chose them. Into a pipe
    or a file goes the whole.
    """
    from hbench.boards import export as exports
    from hbench.boards.resolution import resolution
    from hbench.records import tables

    width = NO_TERMINAL
    if watched(sys.stdout):  # by somebody at a terminal
        width = shutil.get_terminal_size((100, 24)).columns
    # `shown` stays 1 where not even the first metric fits
    # one metric fewer until it fits
    for shown in range(len(metrics), 0, -1):
        content = exports.table(
            standings, metrics[:shown], board.citations, board.levels_of_one_test
        )
        if fixed or needed_width(content) <= width:
            break
    show_table(exports.title(board), content.header, content.cells, left=tables.LEFT)
    ranked = sum(standing.place is not None for standing in standings)
    remarks = [
        f"{ranked} results ranked by {metrics[0]}, of {len(board.rows)} rows (--all shows every "
        "one)."
    ]
    if chance := resolution(board, metrics[0]):
        remarks.append(
            f"Differences of less than about {chance:.2g} points may be chance on a test of this "
            "many classes."
        )
    if metrics[shown:]:
        remarks.append(f"No room for {', '.join(metrics[shown:])}: --columns chooses.")
    for line in [*content.notes, " ".join(remarks)]:
        show(textwrap.fill(line, min(width, 120), subsequent_indent="    "))


def needed_width(content: PrintedTable) -> int:
    """Characters that a table takes when its columns of texts are as narrow as they may be: each
    column has a space on both sides and a line at its right, and the first one also at its left."""
    total = 1  # the line at the left
    for name, *cells in zip(content.header, *content.cells, strict=True):
        widest = max(map(len, [name, *cells]))
        total += 3 + min(widest, NARROWEST.get(name, widest))  # 2 spaces and a line
    return total
