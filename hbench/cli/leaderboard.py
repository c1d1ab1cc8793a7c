"""hbench leaderboard: list leaderboards; show, export, extend and verify one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hbench.cli.board_tables import Selection, terminal_table, written
from hbench.cli.names import BOARD, DATASET, FILE, FOLDER
from hbench.cli.option_blocks import block
from hbench.cli.reporting import submitted
from hbench.cli.table_options import TABLE, TableOptions
from hbench.cli.terminal import format_of, say, show, show_json, show_table
from hbench.cli.verification import dataset_of, verify_fetched, verify_file, verify_kept
from hbench.core.errors import ConfigError, UnknownName, UsageError

if TYPE_CHECKING:
    from hbench.boards import Leaderboard, Row
    from hbench.boards.runs import RowDetails
    from hbench.records.document import Document

FORMATS = ("json", "csv", "markdown", "latex", "bibtex")
BY_SUFFIX = {".json": "json", ".csv": "csv", ".tex": "latex", ".bib": "bibtex"}


@click.group("leaderboard", short_help="show, add to, verify or export published and own rows")
def command() -> None:
    """Rows of published methods and of your own runs, one leaderboard per dataset.

    NAME is a dataset (`hbench leaderboard list`) or the path of a TOML file.

    Example: hbench leaderboard show sop --metric R@1 --paper HAPPIER
    """


SELECTION = block("selection", Selection, [
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
        "--all", "everything", is_flag=True, help="Also rows without a comparable score, unranked."
    ),
    click.option(
        "--by-name", is_flag=True, help="Rank the rows whose queries are names (evaluate --nodes)."
    ),
    click.option("--top", type=click.IntRange(min=1), help="Show this many results at most."),
])  # fmt: skip


def setup_of(
    _context: click.Context, _option: click.Parameter, pairs: Sequence[str]
) -> dict[str, str | int]:
    """The setup of a row from its KEY=VALUE pairs; raises UsageError for other texts, UnknownName
    for a key that rows lack.
    """
    from hbench.boards import Setup

    setup: dict[str, str | int] = {}
    for key, _, value in (pair.partition("=") for pair in pairs):
        if key not in Setup.model_fields:
            raise UnknownName("key of a row's setup", key, Setup.model_fields)
        if not value:
            raise UsageError(
                f"the setup's {key} has no value",
                expected="KEY=VALUE",
                fix=f"--setup {key}=…, or leave it out",
            )
        is_number = Setup.model_fields[key].annotation == int | None and value.isdecimal()
        setup[key] = int(value) if is_number else value
    return setup


@dataclass(frozen=True)
class SaidOfRow:
    """What is said of a row beside its scores."""

    method: str | None
    backbone: str | None
    year: int | None
    setup: dict[str, str | int]
    made: str | None
    url: str | None

    def details(self, dim: int | None = None) -> RowDetails:
        """The same for the row itself."""
        from hbench.boards.runs import RowDetails

        return RowDetails(dim=dim, **asdict(self))


DETAILS = block("said", SaidOfRow, [
    click.option("--method", help="Name of the row.  [default: the report's]"),
    click.option("--backbone", help="For example ResNet-50."),
    click.option("--year", type=int, help="[default: the year of the report]"),
    click.option(
        "--setup", multiple=True, metavar="KEY=VALUE", callback=setup_of,
        help="How the model was made, such as pretraining=ImageNet-1k or parameters=86000000; "
             "repeatable.",
    ),
    click.option("--made", metavar="COMMAND", help="What made the file: hbench train … or embed …; "
                                                   "`leaderboard rerun` runs it again."),
    click.option("--url", help="Where the embedding file is published; others then verify the row "
                               "by it."),
])  # fmt: skip


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
        best, score = leader(board)
        lines.append((name, len(board.rows), board.metric, score, best, runs, board.protocol))
    if as_json:
        show_json([dict(zip(header, line, strict=True)) for line in lines])
        return
    texts = [list(map(str, line)) for line in lines]
    left = ("metric", "protocol", "best")
    if as_csv:  # a dash is for people
        for line in texts:
            line[:] = ["" if cell == NONE else cell for cell in line]
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
        show(written(board, standings, metrics, form=form).rstrip("\n"))
        return
    terminal_table(board, standings, metrics, fixed=bool(selection.columns))


def _show_row(name: str, method: str) -> None:
    """Print the rows of a method as TOML, and the commands that make them again."""
    import shlex

    from hbench.boards import read_board
    from hbench.boards.proof.verification import rows_of
    from hbench.boards.runs import block

    rows = rows_of(read_board(name), method)
    show("\n".join(map(block, rows)).rstrip("\n"))
    for row in rows:
        if row.run and row.run.made:
            say(f"made by: {row.run.made}")
            say(f"again:   hbench leaderboard rerun {shlex.join([name, method])}")


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
@click.option("--out", "-o", "output", type=FILE, help="Write this file instead of stdout.")
def export(selection: Selection, *, form: str | None, output: Path | None) -> None:
    """Export a leaderboard as Markdown, LaTeX, CSV (one line per row), JSON (everything), or its
    sources as BibTeX. LaTeX prints the best of a column in bold and underlines the second, Markdown
    has the best in bold.

    Example: hbench leaderboard export sop --columns H-AP,ASI,NDCG --top 10 -o sop.tex
    """
    from hbench.core.files import write_text

    ending = output.suffix.lower() if output else ""
    text = written(*selection.standings(), form=form or BY_SUFFIX.get(ending, "markdown"))
    if output is None:
        show(text.rstrip("\n"))
    else:
        write_text(output, text)
        say(f"wrote {output}")


@command.command("add", short_help="Add a row from a report of hbench evaluate.")
@click.argument("name", type=BOARD)
@click.argument("report", type=FILE)
@DETAILS
@click.option(
    "--dim", type=click.IntRange(min=1), help="Embedding dimension.  [default: the report's]"
)
@click.option("--to", type=FILE, help="Append to this file.  [default: ./leaderboards or own]")
@click.option("--replace", is_flag=True, help="Replace your rows of this method, or of this run.")
def add(
    name: str,
    report: Path,
    *,
    said: SaidOfRow,
    dim: int | None,
    to: Path | None,
    replace: bool,
) -> None:
    """Add a row from the JSON report of `hbench evaluate` or `hbench detect`, with all that is
    needed to score it again.

    Example: hbench leaderboard add sop report.json --method mine --backbone ResNet-50
    """
    from hbench import boards as leaderboard
    from hbench.boards import runs as leaderboard_runs

    details = said.details(dim)
    carried = leaderboard_runs.carried_row(report, name, details)
    board, row = carried or _row_of(report, name, details)[1:]
    path = to or leaderboard_runs.target(name)
    gone = leaderboard_runs.add(row, board, path, replace=replace)
    # the file may be one that the name does not stand for
    beside = [each for each in leaderboard.read_board(str(path)).rows if each != row]
    known = [each for each in board.rows if each not in (*gone, *beside)]
    board = board.model_copy(update={"rows": (*known, *beside)})
    say(
        f"replaced {', '.join(each.method for each in gone)} in {path}"
        if gone
        else f"added {row.method} to {path}"
    )
    if board.metric in row.scores:
        score = float(row.scores[board.metric]) / 100
        by_name = row.setup.queries is not None
        stands = leaderboard.place(board, board.metric, score, by_name=by_name)
        say(f"place {stands.place} of {stands.of + 1} by {board.metric}, {board.protocol} protocol")


@command.command("remove", short_help="Remove a row of a run of yours.")
@click.argument("name", type=BOARD)
@click.argument("method")
@click.option(
    "--run",
    metavar="DIGEST",
    help="Where several rows have this name: how the digest of its content begins.",
)
@click.option(
    "--from", "path", type=FILE, help="Remove from this file.  [default: ./leaderboards or own]"
)
def remove(name: str, method: str, run: str | None, path: Path | None) -> None:
    """Remove the row of METHOD from your own file of a leaderboard; rows of papers stay.

    Example: hbench leaderboard remove sop mine
    """
    from hbench.boards import edits, runs

    path = path or runs.target(name)
    row = edits.remove(path, method, run)
    say(f"removed {row.method} ({row.source}) from {path}")


@dataclass(frozen=True)
class RowFiles:
    """The files that a row is of."""

    embeddings: Path | None
    ids: Path | None
    gallery: Path | None
    nodes: Path | None

    @property
    def said(self) -> list[str]:
        """The options that were given."""
        return [f"--{name}" for name, path in asdict(self).items() if path]


ROW_FILES = block(
    "row_files",
    RowFiles,
    [
        click.option("--embeddings", type=FILE, help="The embedding or ranking file."),
        click.option("--ids", type=FILE, help="The ids of a .npy or .safetensors file."),
        click.option(
            "--gallery", type=FILE, help="The gallery's embeddings, if in a file of their own."
        ),
        click.option(
            "--nodes", type=FILE, help="The vectors of the names, where these are the queries."
        ),
    ],
)


@command.command("verify", short_help="Score a row's embeddings again and compare.")
@click.argument("name", type=BOARD, required=False)
@click.argument("method", required=False)
@ROW_FILES
@click.option(
    "--dataset",
    "-d",
    type=DATASET,
    help="Where the dataset is.  [default: the leaderboard's, by name]",
)
@TABLE
@click.option(
    "--fetch",
    is_flag=True,
    help="Fetch the files that rows of runs name by their url, and verify all of them.",
)
@click.option(
    "--files",
    type=FOLDER,
    help="Verify rows of runs by the files in this folder, whatever their names.",
)
@click.option(
    "--changed-since",
    metavar="REV",
    help="With --fetch: only rows that the git revision REV does not have.",
)
@click.option(
    "--mark",
    is_flag=True,
    help="With --fetch: write into the leaderboard's file which rows were verified.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
def verify(
    name: str | None,
    method: str | None,
    *,
    row_files: RowFiles,
    dataset: str | None,
    table: TableOptions,
    fetch: bool,
    files: Path | None,
    changed_since: str | None,
    mark: bool,
    as_json: bool,
) -> None:
    """Score METHOD's embeddings again and compare with its row: equal, or by how much each score
    differs (exit code 7).

    An own row is checked against the content it was made from, in whatever container; other vectors
    are scored all the same. A published one is checked against the digits it is printed with. With
    --fetch the files come from the addresses that the rows name, and a Markdown table of all
    verdicts is printed; exit code 6 where some cannot be had.

    Example: hbench leaderboard verify sop mine --embeddings emb.parquet
    """
    of_a_file = [*row_files.said, *(["--dataset"] if dataset else [])]
    if (fetch or files) and (of_a_file or (fetch and files)):
        raise click.UsageError(
            "--fetch verifies by the files that rows name, --files by those of a folder: leave "
            f"{' '.join(of_a_file) or 'one of the two'} out."
        )
    if not fetch and (changed_since or mark):
        raise click.UsageError("--changed-since and --mark go with --fetch.")

    if files:
        verify_kept(name, method, files, as_json=as_json)
    elif fetch:
        verify_fetched(name, method, changed_since, mark=mark, as_json=as_json)
    elif name is None or method is None or row_files.embeddings is None:
        raise click.UsageError(
            "Give NAME, METHOD and --embeddings FILE, or --files FOLDER, or --fetch."
        )
    else:
        given = submitted(row_files.embeddings, row_files.ids, row_files.gallery)
        data = table.load_if_named(dataset)
        verify_file(name, method, given, data, nodes=row_files.nodes, as_json=as_json)


@command.command("submit", short_help="Check a report and its embeddings, and print the row.")
@click.argument("report", type=FILE)
@click.option("--embeddings", type=FILE, required=True, help="The file that the report is of.")
@DETAILS
@click.option(
    "--dataset", "-d", type=DATASET, help="Where the dataset is.  [default: the report's, by name]"
)
@TABLE
def submit(
    report: Path, *, embeddings: Path, said: SaidOfRow, dataset: str | None, table: TableOptions
) -> None:
    """Check everything that a leaderboard's row is checked for, and print the row and what to do
    with it.

    Example: hbench leaderboard submit report.json --embeddings emb.parquet --url
    https://example.org/emb.parquet
    """
    from hbench.boards import runs as leaderboard_runs
    from hbench.boards.proof.verification import checked

    data = table.load_if_named(dataset)
    document, board, row = _row_of(report, None, said.details())
    checks = checked(
        row, board, submitted(embeddings, None, None), dataset_of(data, document.dataset)
    )
    for doubt in document.doubts:
        say(f"doubt: {doubt}")
    say(f"{len(checks)} scores are equal when scored again")
    show(leaderboard_runs.block(row).rstrip("\n"))
    steps = [
        "publish the file, and give its address with --url: then anybody can verify the row",
        f"append the lines above to leaderboards/{document.dataset}.toml of a clone of hbench",
        "open a pull request",
    ]
    for number, step in enumerate(steps[1:] if said.url else steps, start=1):
        say(f"{number}. {step}")


def _row_of(
    report: Path, name: str | None, details: RowDetails
) -> tuple[Document, Leaderboard, Row]:
    """Read a report; return it, the leaderboard of this name, by default its dataset's, even if
    empty, and its row there.
    """
    from hbench import boards as leaderboard
    from hbench.boards import runs as leaderboard_runs
    from hbench.records import document as reports

    document = reports.read(report)
    name = document.dataset if name is None else name
    listed = leaderboard.board_names()
    if name not in {*listed, document.dataset} and not name.endswith(".toml"):
        raise UnknownName("leaderboard", name, dict.fromkeys([*listed, document.dataset]))
    known = name in listed or (name.endswith(".toml") and Path(name).is_file())
    board = leaderboard.read_board(name) if known else leaderboard_runs.empty_board(document)
    return document, board, leaderboard_runs.row_of(document, board, details)
