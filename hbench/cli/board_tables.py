"""Selects rows of a leaderboard, and prints them as a table that fits into the terminal, or in
another format."""

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
from hbench.core.text import counted

if TYPE_CHECKING:
    from hbench.boards import Leaderboard, Row, Standing
    from hbench.records.tables import PrintedTable

# the least width, in characters, of columns of texts before a metric is left out
NARROWEST = {"method": 22, "backbone": 14, "source": 18}
NO_TERMINAL = 10_000  # characters of a line in a pipe or a file: everything fits


class RankedBoard(NamedTuple):
    """A leaderboard, its `standings` to show, best first, and the `metrics` to show; the first
    metric is the one that ranks."""

    board: Leaderboard
    standings: list[Standing]
    metrics: list[str]


@dataclass(frozen=True)
class Selection:
    """The options that choose the rows of a leaderboard, the metric that ranks them, and the
    columns."""

    name: str
    metric: str | None
    columns: str | None
    papers: tuple[str, ...]
    everything: bool
    by_name: bool
    top: int | None

    def standings(self) -> RankedBoard:
        """Read the leaderboard and rank its rows, or those of the chosen papers, by one metric. A
        standing whose score cannot be compared has the place None, and is shown with `everything`
        only. Raises UsageError for a metric that no row has."""
        from hbench.boards import rank, read_board

        board = read_board(self.name)
        key = board.key(self.metric or board.metric)
        rows = self._rows(board)
        # the leaderboard's own metric may have no scores yet, but a requested one should
        if self.metric and not any(key in row.scores for row in rows):
            raise UsageError(f"no row has {key}", expected=f"one of {', '.join(board.metrics)}")

        # by_name: the rows whose queries are names of the tree, which are not compared with others
        ranked = rank(board, key, rows, by_name=self.by_name)
        shown = [each for each in ranked if self.everything or each.place][: self.top]
        # without --columns, the metrics that most of these standings have
        columns = [board.key(word) for word in words_of(self.columns)]
        metrics = dict.fromkeys([key, *(columns or _most_common_metrics(shown))])
        return RankedBoard(board=board, standings=shown, metrics=list(metrics))

    def _rows(self, board: Leaderboard) -> list[Row]:
        """Return the rows of the chosen papers; all rows if none were chosen. Raises UsageError,
        which lists the papers, if no row matches."""
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
    """Whether a row's source contains one of these texts."""
    return any(text.lower() in row.source.lower() for text in papers)


def _most_common_metrics(standings: Sequence[Standing]) -> list[str]:
    """Return the metrics of standings, the most frequent first; equally frequent ones in the order
    of the rows."""
    present: Counter[str] = Counter()
    for standing in standings:
        metrics = dict.fromkeys(metric for row in standing.rows for metric in row.scores)
        present.update(list(metrics))
    return [metric for metric, _ in present.most_common()]


def board_as_text(
    board: Leaderboard, standings: Sequence[Standing], metrics: Sequence[str], *, form: str
) -> str:
    """Write standings, best first, in the format `form`: markdown, latex, csv, bibtex or json.
    Tables (markdown, latex) have the columns of `metrics`; csv and json have everything that is
    known, bibtex only the sources."""
    import json

    from hbench.boards import export as exports
    from hbench.records import tables

    # The full sources are notes below the table. The last argument: the levels if all are scored on
    # one test; then a row whose scores contradict each other, such as R@1 at two levels, is marked.
    content = exports.table(standings, metrics, board.citations, board.levels_of_one_test)
    # mark the best and second-best cell of each metric
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
    """Print the table with as many of the first metrics as fit into the terminal, and below it the
    notes and what was left out. `fixed`: print all metrics, since the user chose them. Pipes and
    files get the whole table."""
    from hbench.boards import export as exports
    from hbench.boards.resolution import resolution
    from hbench.records import tables

    width = NO_TERMINAL  # everything fits
    if watched(sys.stdout):  # by somebody at a terminal
        width = shutil.get_terminal_size((100, 24)).columns
    # leave out the last metric until the table fits. `shown` is 1 where not even the first one fits
    for shown in range(len(metrics), 0, -1):
        # by `levels_of_one_test`, a row whose scores contradict each other is marked
        content = exports.table(
            standings, metrics[:shown], board.citations, board.levels_of_one_test
        )
        if fixed or needed_width(content) <= width:
            break
    show_table(exports.title(board), content.header, content.cells, left=tables.LEFT)
    ranked = sum(standing.place is not None for standing in standings)
    remarks = [
        f"{counted(ranked, 'result')} ranked by {metrics[0]}, of {len(board.rows)} rows (--all "
        "shows every one)."
    ]
    # the difference, in points, below which two methods cannot be told apart; None: not known
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
    """Return the width, in characters, of a table whose columns of texts, which can be wrapped, are
    as narrow as NARROWEST allows; other columns are as wide as their widest cell. Each column adds
    a space on both sides and a line at its right, the first one also a line at its left."""
    total = 1  # the line at the left
    # the header and the cells of each column; `content.cells` has a tuple for each row
    for name, *cells in zip(content.header, *content.cells, strict=True):
        widest = max(map(len, [name, *cells]))
        total += 3 + min(widest, NARROWEST.get(name, widest))  # 2 spaces and a line
    return total
