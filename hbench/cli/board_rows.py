"""The subcommands of `hbench leaderboard` that change or check rows of runs: add, remove, verify
and submit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from hbench.cli.names import BOARD, DATASET, FILE, FOLDER
from hbench.cli.option_blocks import block
from hbench.cli.reporting import submitted
from hbench.cli.table_options import TABLE, TableOptions
from hbench.cli.terminal import say, show
from hbench.cli.verification import dataset_of, verify_fetched, verify_file, verify_kept
from hbench.core.errors import UnknownName, UsageError

if TYPE_CHECKING:
    from hbench.boards import Leaderboard, Row
    from hbench.boards.runs import RowDetails
    from hbench.records.document import Document


def setup_of(
    _context: click.Context, _option: click.Parameter, pairs: Sequence[str]
) -> dict[str, str | int]:
    """Parse the setup of a row from KEY=VALUE pairs; a callback of a click option. Raises
    UsageError for other texts, UnknownName for a key that rows do not have."""
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
        # convert to a number only where rows have one. A text that is no number is passed on, since
        # the row's own check has the better message
        is_number = Setup.model_fields[key].annotation == int | None and value.isdecimal()
        setup[key] = int(value) if is_number else value
    return setup


@dataclass(frozen=True)
class RowOptions:
    """The options that describe a row, besides its scores."""

    method: str | None
    backbone: str | None
    year: int | None
    setup: dict[str, str | int]
    made: str | None
    url: str | None

    def details(self, dim: int | None = None) -> RowDetails:
        """Convert the options to RowDetails, from which a row is made. `dim`: of the embeddings;
        None: the one in the report."""
        from hbench.boards.runs import RowDetails

        return RowDetails(dim=dim, **asdict(self))


DETAILS = block(
    "said",
    RowOptions,
    [
        click.option("--method", help="Name of the row.  [default: the report's]"),
        click.option("--backbone", help="For example ResNet-50."),
        click.option("--year", type=int, help="[default: the year of the report]"),
        click.option(
            "--setup",
            multiple=True,
            metavar="KEY=VALUE",
            callback=setup_of,
            help="How the model was made, such as pretraining=ImageNet-1k or parameters=86000000; "
            "repeatable.",
        ),
        click.option(
            "--made",
            metavar="COMMAND",
            help="What made the file: hbench train … or embed …; "
            "`leaderboard rerun` runs it again.",
        ),
        click.option(
            "--url", help="Where the embedding file is published; others then verify the row by it."
        ),
    ],
)


@click.command("add", short_help="Add a row from a report of hbench evaluate.")
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
    said: RowOptions,
    dim: int | None,
    to: Path | None,
    replace: bool,
) -> None:
    """Add a row from the JSON report of `hbench evaluate` or `hbench detect`, with all that is
    needed to score it again.

    Example: hbench leaderboard add sop report.json --method mine --backbone ResNet-50
    """
    from hbench.boards import read_board
    from hbench.boards import runs as leaderboard_runs

    details = said.details(dim)
    # the leaderboard, and the row that a report of `hbench detect` contains; None for a report of
    # `hbench evaluate`, from which `_row_of` makes the row
    carried = leaderboard_runs.carried_row(report, name, details)
    if carried is None:
        reported = _row_of(report, name, details)
        board, row = reported.board, reported.row
    else:
        board, row = carried
    path = to or leaderboard_runs.target(name)
    # A row of the same run must not be in the file, nor among the leaderboard's other rows. With
    # --to only the file is checked, since the leaderboard may have rows of that file, too.
    beside = board if to is None else board.model_copy(update={"rows": ()})
    # write the row; `gone`: the rows of the file that it replaces
    gone = leaderboard_runs.add(row, beside, path, replace=replace)
    if gone:
        say(f"replaced {', '.join(each.method for each in gone)} in {path}")
    else:
        say(f"added {row.method} to {path}")

    # the rows to rank it among: those of the file, read again, and those of the leaderboard, except
    # replaced ones and the same run. `board` does not have the file's rows if --to names another
    in_file = [each for each in read_board(str(path)).rows if each != row]
    others = [
        each
        for each in board.rows
        if each not in (*gone, *in_file) and each.identity != row.identity
    ]
    _say_place(row, board.model_copy(update={"rows": (*others, *in_file)}), to)
    if any(other.run and other.method == row.method for other in (*others, *in_file)):
        say(
            f"note: another row is called {row.method}, too, and `show`, `verify` and `rerun` take "
            "both: --replace with --method NAME gives this one a name of its own"
        )
    for other in (*others, *in_file):
        if other.scores == row.scores:
            say(
                f"note: {other.method} ({other.source}) has the same scores to the last digit, of "
                "another file: the same vectors in another space, perhaps"
            )


def _say_place(row: Row, board: Leaderboard, file: Path | None) -> None:
    """Print the place of a row among the other rows of a leaderboard, if the row has the metric
    that ranks. A row whose queries are names is compared only with rows of the same kind.

    `board`: the leaderboard without `row`. `file`: a file whose rows `board` has as well, to be
    named in the message; None for none.
    """
    from hbench.boards import place
    from hbench.metrics.names import factor_of

    if board.metric not in row.scores:
        return
    # convert to the unit of reports: rows have most metrics, but not all, in percent
    score = float(row.scores[board.metric]) / factor_of(board.metric)
    # `stands.place`: from 1; `stands.of`: the number of other results, ranked by the same metric
    stands = place(board, board.metric, score, by_name=row.setup.queries is not None)
    among = f" among the rows of {board.dataset} and of {file}" if file else ""
    say(
        f"place {stands.place} of {stands.of + 1}{among} by {board.metric}, {board.protocol} "
        "protocol"
    )


@click.command("remove", short_help="Remove a row of a run of yours.")
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
    """The options that name the files of a row."""

    embeddings: Path | None
    ids: Path | None
    gallery: Path | None
    nodes: Path | None

    @property
    def said(self) -> list[str]:
        """The names of the options that were given."""
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


@click.command("verify", short_help="Score a row's embeddings again and compare.")
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
    of_a_file = row_files.said  # the options given that name files of one row, as "--ids"
    if dataset:
        of_a_file.append("--dataset")
    # the files come from one source: --fetch, --files, or the options of one row
    sources = {"--fetch": fetch, "--files": files, " ".join(of_a_file): of_a_file}
    given_sources = [options for options, given in sources.items() if given]
    if len(given_sources) > 1:
        raise click.UsageError(
            "--fetch verifies by the files that rows name, --files by those of a folder, and "
            "--embeddings by one file: keep one of " + " or ".join(given_sources) + "."
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


@click.command("submit", short_help="Check a report and its embeddings, and print the row.")
@click.argument("report", type=FILE)
@click.option("--embeddings", type=FILE, required=True, help="The file that the report is of.")
@DETAILS
@click.option(
    "--dataset", "-d", type=DATASET, help="Where the dataset is.  [default: the report's, by name]"
)
@TABLE
def submit(
    report: Path, *, embeddings: Path, said: RowOptions, dataset: str | None, table: TableOptions
) -> None:
    """Check everything that a leaderboard's row is checked for, and print the row and what to do
    with it.

    Example: hbench leaderboard submit report.json --embeddings emb.parquet --url
    https://example.org/emb.parquet
    """
    from hbench.boards import runs as leaderboard_runs
    from hbench.boards.proof.verification import checked

    data = table.load_if_named(dataset)
    # None: the report's own leaderboard, that of its dataset
    reported = _row_of(report, None, said.details())
    dataset_name = reported.document.dataset
    # no file of ids and none of the gallery: `embeddings` has all
    given = submitted(embeddings, None, None)
    # raises if a score or another field differs
    checks = checked(reported.row, reported.board, given, dataset_of(data, dataset_name))
    for doubt in reported.document.doubts:
        say(f"doubt: {doubt}")
    say(f"{len(checks)} scores are equal when scored again")
    show(leaderboard_runs.block(reported.row).rstrip("\n"))
    steps = [
        "publish the file, and give its address with --url: then anybody can verify the row",
        f"append the lines above to leaderboards/{dataset_name}.toml of a clone of hbench",
        "open a pull request",
    ]
    if said.url:  # published already
        del steps[0]
    for number, step in enumerate(steps, start=1):
        say(f"{number}. {step}")


class ReportedRow(NamedTuple):
    """A report, its leaderboard, and its row there."""

    document: Document
    board: Leaderboard
    row: Row


def _row_of(report: Path, name: str | None, details: RowDetails) -> ReportedRow:
    """Read a report, and make its row on the leaderboard `name`, by default that of its dataset,
    even if that does not exist yet. `details`: what the command line says about the row."""
    from hbench import boards as leaderboard
    from hbench.boards import runs as leaderboard_runs
    from hbench.records import document as reports

    document = reports.read(report)
    name = document.dataset if name is None else name
    listed = leaderboard.board_names()
    # a first row may start a leaderboard, for the report's own dataset or in a named file
    if name not in {*listed, document.dataset} and not name.endswith(".toml"):
        raise UnknownName("leaderboard", name, dict.fromkeys([*listed, document.dataset]))
    is_there = name in listed or (name.endswith(".toml") and Path(name).is_file())
    board = leaderboard.read_board(name) if is_there else leaderboard_runs.empty_board(document)
    return ReportedRow(document, board, leaderboard_runs.row_of(document, board, details))
