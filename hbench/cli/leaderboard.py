"""hbench leaderboard: list leaderboards; show, export, extend and verify one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from hbench.cli.board_rows import add, remove, submit, verify
from hbench.cli.board_tables import Selection, board_as_text, terminal_table
from hbench.cli.names import BOARD, FOLDER, OUT_FILE
from hbench.cli.option_blocks import block
from hbench.cli.terminal import format_of, say, show, show_json, show_table
from hbench.core.errors import ConfigError

FORMATS = ("json", "csv", "markdown", "latex", "bibtex")
BY_SUFFIX = {".json": "json", ".csv": "csv", ".tex": "latex", ".bib": "bibtex"}


@click.group("leaderboard", short_help="show, add to, verify or export published and own rows")
def command() -> None:
    """Rows of published methods and of your own runs, one leaderboard per dataset.

    NAME is a dataset (`hbench leaderboard list`) or the path of a TOML file.

    Example: hbench leaderboard show sop --metric R@1 --paper HAPPIER
    """


for verb in (add, remove, verify, submit):
    command.add_command(verb)

SELECTION = block(
    "selection",
    Selection,
    [
        click.argument("name", type=BOARD),
        click.option("--metric", help="Rank by this metric.  [default: the leaderboard's own]"),
        click.option(
            "--columns", help="Show these metrics, separated by commas.  [default: all that fit]"
        ),
        click.option(
            "--paper",
            "papers",
            multiple=True,
            help="Only rows whose source contains this text; repeatable.",
        ),
        click.option(
            "--all",
            "everything",
            is_flag=True,
            help="Also rows without a comparable score, unranked.",
        ),
        click.option(
            "--by-name",
            is_flag=True,
            help="Rank the rows whose queries are names (evaluate --nodes).",
        ),
        click.option("--top", type=click.IntRange(min=1), help="Show this many results at most."),
    ],
)


@command.command("list", short_help="List the leaderboards, their size and who leads.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
@click.option("--csv", "as_csv", is_flag=True, help="As CSV on stdout.")
def list_(as_json: bool, as_csv: bool) -> None:
    """List the leaderboards, their size and who leads.

    Example: hbench leaderboard list
    """
    from hbench.boards import board_names, leader, read_board
    from hbench.core.text import NONE

    header = ("dataset", "rows", "metric", "score", "best", "own", "protocol")
    lines: list[tuple[Any, ...]] = []
    broken: list[ConfigError] = []
    for name in board_names():
        try:
            board = read_board(name)
        except ConfigError as error:
            broken.append(error)
            continue
        runs = sum(row.run is not None for row in board.rows)
        # the method and its score; dashes if no row has the score
        best, score = leader(board)
        lines.append((name, len(board.rows), board.metric, score, best, runs, board.protocol))
    if as_json:
        # null where `leader` returned dashes
        records = []
        for line in lines:
            values = [None if cell == NONE else cell for cell in line]
            records.append(dict(zip(header, values, strict=True)))
        show_json(records)
    else:
        # in CSV the cells are empty where `leader` returned dashes
        empty = "" if as_csv else NONE
        texts = []
        for line in lines:
            texts.append([empty if cell == NONE else str(cell) for cell in line])
        left = ("metric", "protocol", "best")
        show_table(None, header, texts, left=left, caption="scores in percent", as_csv=as_csv)
    if broken:  # the others are listed all the same
        raise broken[0]


@command.command("show", short_help="Show a leaderboard ranked by one metric.")
@SELECTION
@click.argument("row", required=False)
@click.option(
    "--format", "form", type=click.Choice(["table", *FORMATS]), default="table", show_default=True
)
@click.option("--json", "as_json", is_flag=True, help="The same as --format json.")
@click.option(
    "--csv", "as_csv", is_flag=True, help="The same as --format csv: percent, as printed."
)
def show_(selection: Selection, row: str | None, *, form: str, as_json: bool, as_csv: bool) -> None:
    """Show a leaderboard ranked by one metric; methods with a mark have a note below the table.
    With ROW, a method, show all that is known of its rows, and how they are made again.

    \b
    Example: hbench leaderboard show inat18-base --metric AP/supercategory
             hbench leaderboard show glyphs "pixels → PCA (64)"
    """
    if row is not None:
        _show_row(selection.name, row)
        return
    board, standings, metrics = selection.standings()
    form = format_of(form, as_json=as_json, as_csv=as_csv)
    if form != "table":
        show(board_as_text(board, standings, metrics, form=form).rstrip("\n"))
        return
    # fixed: columns that the user chose are all printed, however narrow the terminal is
    terminal_table(board, standings, metrics, fixed=bool(selection.columns))


def _show_row(name: str, method: str) -> None:
    """Print the rows of a method as TOML, and the commands that reproduce them."""
    import shlex

    from hbench.boards import read_board
    from hbench.boards.proof.reruns import typed
    from hbench.boards.proof.verification import rows_of
    from hbench.boards.runs import block

    rows = rows_of(read_board(name), method)
    show("\n".join(map(block, rows)).rstrip("\n"))  # `block` writes a row as TOML
    for row in rows:
        if row.run and row.run.made:
            # `typed`: the command as a user types it
            say(f"made by: {typed(row.run)}, where the files that it names lie")
            if row.run.note:
                say(f"note:    {row.run.note}")
            again = f"hbench leaderboard rerun {shlex.join([name, method])}"
            say(f"again:   {again}, which compares; --out DIR keeps what it makes")


@command.command("rerun", short_help="Make a row's file again by its command, and compare.")
@click.argument("name", type=BOARD)
@click.argument("method")
@click.option(
    "--out", "-o", type=FOLDER, help="Keep what it makes in this folder.  [default: not kept]"
)
@click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
def rerun(name: str, method: str, *, out: Path | None, as_json: bool) -> None:
    """Run the command by which METHOD's row was made (`leaderboard show NAME METHOD`), score what
    it makes, and compare: the same content, or scores within what another seed or processor may
    move; else exit code 7. Files that the command names lie in this folder.

    Example: hbench leaderboard rerun glyphs "pixels → PCA (64)"
    """
    from hbench.cli.verification import rerun_rows

    rerun_rows(name, method, out, as_json=as_json)


@command.command("export", short_help="Write a leaderboard as Markdown, LaTeX, CSV, JSON, BibTeX.")
@SELECTION
@click.option(
    "--format",
    "form",
    type=click.Choice(FORMATS),
    help="[default: by the file's ending, or else markdown]",
)
@click.option("--out", "-o", "output", type=OUT_FILE, help="Write this file instead of stdout.")
def export(selection: Selection, *, form: str | None, output: Path | None) -> None:
    """Export a leaderboard as Markdown, LaTeX, CSV (one line per row), JSON (everything), or its
    sources as BibTeX. LaTeX prints the best of a column in bold and underlines the second, Markdown
    has the best in bold.

    Example: hbench leaderboard export sop --columns H-AP,ASI,NDCG --top 10 -o sop.tex
    """
    from hbench.core.files import write_text

    ending = output.suffix.lower() if output else ""
    # `standings` gives the leaderboard, its standings and the metrics to show
    text = board_as_text(*selection.standings(), form=form or BY_SUFFIX.get(ending, "markdown"))
    if output is None:
        show(text.rstrip("\n"))
    else:
        write_text(output, text)
        say(f"wrote {output}")
