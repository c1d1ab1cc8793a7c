"""hbench evaluate: score an embedding or ranking file."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from hbench.cli import reporting
from hbench.cli.names import FILE, FOLDER, TESTED
from hbench.cli.option_blocks import block, words_of
from hbench.cli.reporting import ReportFiles
from hbench.cli.smaller import SMALLER, SmallerOptions, score_sizes, show_sizes
from hbench.cli.table_options import TABLE
from hbench.cli.terminal import bars, format_of, say, show_json

if TYPE_CHECKING:
    from hbench.cli.reporting import MachineOptions, ScoringOptions
    from hbench.cli.table_options import TableOptions
    from hbench.evaluation.examination import Examined
    from hbench.evaluation.execution import Execution
    from hbench.evaluation.submission import Submission
    from hbench.records.report import Report

FORMATS = click.Choice(["table", "json", "csv", "markdown", "latex", "hub"])


@dataclass(frozen=True)
class SubmittedFiles:
    """The options that name files of vectors, in addition to FILE or in its place."""

    ids: Path | None
    query: Path | None
    gallery: Path | None
    nodes: Path | None
    leave_out: str | None

    @property
    def paths(self) -> list[Path | None]:
        """The files of all these options, None for an option that was not given."""
        return [self.query, self.gallery, self.ids, self.nodes]

    @property
    def of_names(self) -> dict[str, object]:
        """The option --nodes with its value (or None), for checking options that exclude it."""
        return {"--nodes": self.nodes}

    def scored(self, file: Path | None) -> list[tuple[Path, Path | None]]:
        """List the files whose vectors are ranked, each with the file of its ids or None."""
        return [(path, self.ids) for path in (file, self.query, self.gallery) if path]

    def read(self, file: Path | None) -> Submission:
        """Read FILE, or the files of --query and --gallery, without the vectors that --leave-out
        names. Raises click's UsageError unless either FILE alone or both options are given."""
        options = [self.query, self.gallery]
        asked = file or self.query
        fits = None not in options if file is None else options == [None, None]
        if asked is None or not fits:
            raise click.UsageError("Give either one FILE, or --query and --gallery together.")
        # movable: vectors may be reordered in memory, which saves space
        given = reporting.submitted(asked, self.ids, self.gallery, movable=True)
        return reporting.without_zeros(given, self.leave_out)


SUBMITTED = block(
    "submitted",
    SubmittedFiles,
    [
        click.option(
            "--ids",
            type=FILE,
            help="The ids of a .npy or .safetensors file: .txt, .csv or .json.",
        ),
        click.option(
            "--query",
            type=FILE,
            help="Embeddings of the queries, where they are in a file of their own.",
        ),
        click.option("--gallery", type=FILE, help="Embeddings of the gallery, likewise."),
        click.option(
            "--nodes",
            type=FILE,
            help="Vectors of nodes of the tree, by name or path: they are the queries.",
        ),
        click.option(
            "--leave-out",
            type=click.Choice(["zero"]),
            help="Leave out items whose vectors are all zero.",
        ),
    ],
)


@dataclass(frozen=True)
class Extent:
    """The options of what to compute besides the scores, and which part of the work this process
    does."""

    top_k: int
    trees: str | None
    edges: str | None
    resume: Path | None
    blocks: str | None

    def of(self, machine: MachineOptions) -> Execution:
        """Combine these options with those of the machine (threads, memory, device) to an
        Execution. Execution itself raises UsageError for options that exclude each other or need
        one another, such as --blocks I/N without --resume."""
        return replace(
            machine.execution,
            top_k=self.top_k,
            trees=self.trees,
            edges=tuple(words_of(self.edges)),
            resume=self.resume,
            blocks=self.blocks,
        )

    @property
    def given(self) -> dict[str, object]:
        """The options with their values, {option: value}; values of options not given are false."""
        return {
            "--trees": self.trees,
            "--top-k": self.top_k,
            "--blocks": self.blocks,
            "--resume": self.resume,
        }

    @property
    def of_items_alone(self) -> list[str]:
        """The given options that need items as queries, and cannot be used with --nodes: all but
        --resume."""
        return [option for option, value in self.given.items() if value and option != "--resume"]


EXTENT = block(
    "extent",
    Extent,
    [
        click.option(
            "--top-k",
            type=click.IntRange(0, 1000),
            default=0,
            metavar="K",
            help="Keep the first K results of every query next to --out, and its values, for "
            "`hbench report`.",
        ),
        click.option(
            "--trees",
            metavar="FILES",
            help="Score under other trees of the same classes too: "
            "wordnet.csv,wikidata.nwk,shuffled.",
        ),
        click.option(
            "--edges", metavar="PARENT,CHILD", help="The columns of a list of edges, for --trees."
        ),
        click.option(
            "--resume", type=FOLDER, help="Keep finished blocks in this folder; continue from them."
        ),
        click.option(
            "--blocks",
            metavar="I/N",
            help="Compute this share of the work only, into --resume DIR, which any number of "
            "processes may fill.",
        ),
    ],
)


@click.command("evaluate")
@click.argument("file", type=FILE, required=False)
@TESTED
@reporting.SCORING
@TABLE
@SUBMITTED
@click.option("--check", is_flag=True, help="Only validate the file; every problem is listed.")
@click.option(
    "--remarks",
    is_flag=True,
    help="Print every remark and doubt; unless given, three lines. The report has them all.",
)
@click.option("--method", help="The method's name, for the report and the leaderboard row.")
@click.option("--format", "format_", type=FORMATS, default="table")
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="The report as JSON on stdout; the same as --format json.",
)
@reporting.REPORT_FILES
@SMALLER
@EXTENT
@reporting.MACHINE
def command(
    file: Path | None,
    dataset: str,
    *,
    scoring: ScoringOptions,
    table: TableOptions,
    submitted: SubmittedFiles,
    check: bool,
    remarks: bool,
    method: str | None,
    format_: str,
    as_json: bool,
    files: ReportFiles,
    smaller: SmallerOptions,
    extent: Extent,
    machine: MachineOptions,
) -> None:
    """Score FILE, embeddings or rankings of a dataset's test items, joined by id.

    \b
    Embeddings: .parquet (file or folder), .npz, .npy + ids, .safetensors + ids, Arrow IPC.
    Rankings:   id,images CSV (Google Landmarks), TREC run, parquet with query,item,score.

    Example: hbench evaluate emb.parquet --dataset sop -o mine.json
    """
    execution = extent.of(machine)
    # {option: value} of options that make no sense for a table of several sizes of the vectors
    of_one_report = {"--check": check, "--remarks": remarks, "--method": method}
    shown_as = format_of(format_, as_json=as_json)
    smaller.refuse_beside(
        of_one_report | submitted.of_names | files.beside_the_report | extent.given, shown_as
    )
    # `extent`: --top-k, --trees, --resume and --blocks. The results that --top-k keeps lie beside
    # values by query, so a file of those is added if none was asked for. `nodes`: the file of
    # vectors of the tree's names, if these are the queries
    files = _refused_together(files, extent, check=check, method=method, nodes=submitted.nodes)
    # Before a dataset is loaded, refuse files that do not exist. FILE may be missing: then
    # `submitted.read` needs --query and --gallery.
    reporting.refuse_missing([file, *submitted.paths])
    data = table.load_silently(dataset)  # how it was understood is said with the report
    given = submitted.read(file)
    # `read_if_refused`: with an error, print how the dataset's table was understood
    if smaller.are_given:
        with reporting.read_if_refused(data):
            scored = score_sizes(given, data, smaller, scoring=scoring, execution=execution)
        show_sizes(scored, files.output, shown_as, page=smaller.page)
        return
    with reporting.read_if_refused(data):
        checked = reporting.examined(given, data, scoring.settings, method)
        execution.refuse_for_ranking(checked)
        if check:
            _refuse_unfit(checked, execution, submitted.nodes)
    if check:
        _show_checked(checked, as_json=shown_as == "json")
        return

    # `scored`: the files of vectors with those of their ids, which a cluster's workers read again
    report = _report(checked, execution, scoring, submitted.nodes, submitted.scored(file))
    if report is not None:  # None: a share of the blocks was computed, to be reported later
        reporting.write_report(report, files)
        reporting.show_report(report.document, shown_as, every_remark=remarks)


def _refused_together(
    files: ReportFiles, extent: Extent, *, check: bool, method: str | None, nodes: Path | None
) -> ReportFiles:
    """Return the files to write. Raises UsageError, before anything is scored, for options that
    exclude each other or lack another one, and for files that cannot be written.

    --top-k stores the first results in a file next to the report. With it, the values by query are
    written even without --by-query, to a second file next to the report.
    `extent`: what is computed besides the scores. `check`: whether the file is only validated;
    `method`: its name, for the row. `nodes`: the file of vectors of names, if these
    are the queries.
    """
    if check and (written := [option for option, path in files.given.items() if path]):
        raise click.UsageError(f"--check writes no file: leave {' and '.join(written)} out.")
    if files.row and not method:
        raise click.UsageError("--row needs --method, the name of the row.")
    # a process that computes only a share of the blocks has no scores to write
    if extent.blocks and (files.output or files.by_query or files.row):
        raise click.UsageError(
            "--out, --by-query and --row are written by the run that reports, without --blocks."
        )
    if nodes and (apart := extent.of_items_alone):
        raise click.UsageError(f"{apart[0]} is for items as queries: leave it or --nodes out.")
    if extent.top_k:
        if not files.output:
            raise click.UsageError("--top-k needs --out: the results are kept next to the report.")
        beside = files.output.with_suffix(reporting.BY_QUERY)
        files = replace(files, by_query=files.by_query or beside)
    files.refuse_unwritable()
    return files


def _refuse_unfit(checked: Examined, execution: Execution, nodes: Path | None) -> None:
    """Raise the errors of scoring that come before anything is ranked, so that --check finds them,
    too. `nodes`: the file of vectors of names, if these are the queries."""
    if nodes is None:
        execution.refuse_unfit(checked)
    else:
        from hbench.evaluation.by_name import nodes as names
        from hbench.evaluation.by_name.queries import asked_by_name

        asked_by_name(checked, names.read(nodes, checked.data.levels))


def _show_checked(checked: Examined, *, as_json: bool) -> None:
    """Print what --check found: how the file was understood, doubts (suspicious vectors, such as
    identical ones), and remarks (`warnings` of the examination)."""
    reporting.show_read(understood.document() for understood in checked.subject.read)
    for doubt in checked.subject.doubts:
        say(f"doubt: {doubt}")
    for warning in checked.warnings:
        say(f"remark: {warning}")
    say(f"{checked.submission.source.file} can be scored on {checked.data.name}")
    if as_json:
        doubts, remarks = map(list, (checked.subject.doubts, checked.warnings))
        show_json({"signature": checked.signature(), "doubts": doubts, "remarks": remarks})


def _report(
    checked: Examined,
    execution: Execution,
    scoring: ScoringOptions,
    nodes: Path | None,
    scored: list[tuple[Path, Path | None]],
) -> Report | None:
    """Measure a submission with a progress bar, and return the report; None if only a share of the
    blocks was computed. `nodes`: the file of vectors of names, if these are the queries. `scored`:
    the ranked files, each with the file of its ids or None."""
    # `execute` computes blocks: on a GPU, dask workers or threads, as the options choose
    with execution.open(scored, announce=say) as execute, bars("ranking") as on_test:
        if execution.blocks:
            # compute this process's share, and keep it in the folder `resume`
            number = execution.keep_blocks(checked, execute, on_test)
            say(
                f"share {execution.blocks}, {number} blocks, is in {execution.resume}; without "
                "--blocks this command reports"
            )
            return None
        if nodes is None:
            return execution.report(checked, execute, on_test)

        from hbench.evaluation.by_name import nodes as names
        from hbench.evaluation.by_name.queries import report_on_nodes

        return report_on_nodes(
            checked,
            names.read(nodes, checked.data.levels),
            metrics=scoring.metrics,
            memory=execution.memory,
            execute=execute,
            on_test=on_test,
        )
