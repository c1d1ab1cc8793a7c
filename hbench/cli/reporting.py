"""Common parts of the verbs that make or show a report: options of settings and of the machine,
writing, and showing.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hbench.cli.names import FILE, METRICS, PROTOCOL, SIMILARITY, TIES
from hbench.cli.option_blocks import block
from hbench.cli.terminal import say, show, show_json, show_table
from hbench.core.errors import HBenchError, SubmissionError, shorten

if TYPE_CHECKING:
    from hbench.boards import Leaderboard
    from hbench.datasets import Dataset
    from hbench.engine.settings import Settings
    from hbench.evaluation.examination import Examined
    from hbench.evaluation.execution import Execution
    from hbench.evaluation.submission import Submission
    from hbench.look.strips.results import Results
    from hbench.records.document import Document
    from hbench.records.report import Report

UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30}  # bytes
MOST_DIGITS = 18  # of a number of bytes: an exabyte
BY_QUERY = ".by-query.parquet"


def size(context: click.Context, option: click.Parameter, value: str | None) -> int | None:
    """Read a number of bytes, such as 500M or 2G, also 2GB and 2 GiB, as click's callback of an
    option; None where it was not given. A number of more digits than any memory has is refused,
    since as a float it could be infinite."""
    if value is None:
        return None
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMG]?)(?:i?B)?", value.strip(), re.IGNORECASE)
    if match is None or len(match[1]) > MOST_DIGITS:
        raise click.BadParameter(f"{shorten(value)!r} is not a size; write it as 500M or 2G")
    return int(float(match[1]) * UNITS[match[2].upper()])


@dataclass(frozen=True)
class ScoringOptions:
    """The choices of a score, in words."""

    metrics: str | None
    protocol: str
    ties: str
    similarity: str | None
    unit: str | None

    @property
    def settings(self) -> Settings:
        """The settings that the options say."""
        from hbench.engine.settings import Settings

        return Settings(self.metrics, self.protocol, self.ties, self.similarity, unit=self.unit)


@dataclass(frozen=True)
class ReportFiles:
    """Where a report goes, its values by query, and its row of a leaderboard."""

    output: Path | None
    by_query: Path | None = None
    row: Path | None = None

    @property
    def beside_the_report(self) -> dict[str, object]:
        """The options of the other files, with what was given."""
        return {"--by-query": self.by_query, "--row": self.row}

    def refuse_unwritable(self) -> None:
        """Refuse, before any work, places that could not be written."""
        from hbench.core import files as atomic

        for path in (self.output, self.by_query, self.row):
            if path is not None:
                atomic.refuse_unwritable(path)


@dataclass(frozen=True)
class MachineOptions:
    """Who computes, and with how much memory."""

    threads: int | None
    max_memory: int | None
    workers: int | None
    device: str | None
    scheduler: str | None

    @property
    def execution(self) -> Execution:
        """The execution that the options say."""
        from hbench.evaluation.execution import Execution

        return Execution(
            threads=self.threads,
            memory=self.max_memory,
            device=self.device,
            workers=self.workers,
            scheduler=self.scheduler,
        )


SCORING = block(
    "scoring",
    ScoringOptions,
    [
        click.option(
            "--metrics",
            type=METRICS,
            help="Metrics separated by commas, such as H-AP,AP/genus,R@1.  [default: all]",
        ),
        click.option(
            "--protocol",
            type=PROTOCOL,
            default="paper",
            show_default=True,
            help="paper, or official: as the released evaluators.",
        ),
        click.option(
            "--ties",
            type=TIES,
            default="pessimistic",
            show_default=True,
            help="What comes first of equal scores.",
        ),
        click.option(
            "--similarity",
            type=SIMILARITY,
            help="cosine, dot, l2, poincare(curvature=0.1), lorentz, hamming.  [default: the "
            "dataset's]",
        ),
        click.option(
            "--unit",
            metavar="LEVEL|query",
            help="What intervals are taken over.  [default: the finest classes]",
        ),
    ],
)
REPORT_FILES = block(
    "files",
    ReportFiles,
    [
        click.option(
            "--out", "-o", "output", type=FILE, help="Write the report (JSON) to this file."
        ),
        click.option(
            "--by-query",
            type=FILE,
            help="Write every query's values to this file.  [default: beside --out]",
        ),
        click.option("--row", type=FILE, help="Write the leaderboard row (TOML) to this file."),
    ],
)
MACHINE = block(
    "machine",
    MachineOptions,
    [
        click.option(
            "--threads",
            type=click.IntRange(min=1),
            help="Threads that rank.  [default: all processors]",
        ),
        click.option(
            "--max-memory",
            metavar="SIZE",
            callback=size,
            help="Hold no more beyond the embeddings, such as 500M.  [default: 300M]",
        ),
        click.option(
            "--workers",
            type=click.IntRange(min=1),
            help="Rank in this many processes (needs the extra `cluster`).",
        ),
        click.option(
            "--device",
            help="Rank on a GPU, or on several: cuda, cuda:1, cuda:0,cuda:1.  "
            "[default: the processors]",
        ),
        click.option(
            "--scheduler",
            help="Rank on a dask cluster, tcp://HOST:PORT (needs the extra `cluster`).",
        ),
    ],
)


def submitted(
    file: Path, ids: Path | None, gallery: Path | None, *, movable: bool = False
) -> Submission:
    """Read the submission in a file, or that of queries and a gallery in a file each, whose ids, if
    they are apart, are all in the one file `ids`; `movable` as `read` takes it: whether the vectors
    may be put into another order in memory. Those of two files stay in theirs.
    """
    from hbench.evaluation import submission
    from hbench.evaluation.submission.embedding import EmbeddingSubmission
    from hbench.submissions import embeddings

    if gallery is None:
        return submission.read(file, ids=ids, movable=movable)
    return EmbeddingSubmission(embeddings.read(file, ids=ids), embeddings.read(gallery, ids=ids))


def without_zeros(given: Submission, leave_out: str | None) -> Submission:
    """Return the submission without what is to be left out: "zero", items whose vectors are all
    zero; None for nothing."""
    from hbench.evaluation.evaluate import without

    return without(leave_out, given)


def examined(
    given: Submission, data: Dataset, settings: Settings, method: str | None = None
) -> Examined:
    """Examine a submission, `given`: what it is scored on, by which settings, with which remarks.

    The values of the paper's released evaluator ("official") are computed, too, where the dataset's
    leaderboard places by them, so that a report says its place there; `method`: its name.
    """
    from hbench.evaluation.examination import examine

    board = board_of(data.name)
    is_placed_by_released = board is not None and board.protocol == "official"
    # a released evaluator knows no other relevance, and of its own protocol all is released
    is_usual = settings.protocol == "paper" and settings.relevance == "alpha"
    also_official = is_placed_by_released and is_usual
    return examine(given, data, settings, also_official=also_official, method=method)


def board_of(dataset: str) -> Leaderboard | None:
    """The leaderboard of a dataset, if it has one."""
    from hbench import boards as leaderboard

    return leaderboard.read_board(dataset) if dataset in leaderboard.board_names() else None


def write_report(report: Report, files: ReportFiles) -> None:
    """Write each output whose option was given.

    Called before anything is printed, in case stdout is closed. The values by query lie beside the
    report unless said otherwise; without a report they are a file of their own.
    """
    from hbench.core.files import locked

    if files.output is not None:
        with locked(files.output):  # the files of a report belong together
            _write_with_values(report, files.output, files.by_query)
    elif files.by_query is not None:
        report.write_by_query(files.by_query)
    if files.row is not None:
        write_rows([report.document], files.row)


def _write_with_values(report: Report, output: Path, by_query: Path | None) -> None:
    """Write the report, its values by query and its first results. Values and results lie beside
    the report, under its name, unless `by_query` names a file for the values."""
    from hbench.records import results

    report.write(output)
    report.write_by_query(by_query or output.with_suffix(BY_QUERY))
    if report.results is not None:
        results.write(output.with_suffix(results.SUFFIX), report.results, report.document)


def write_rows(documents: list[Document], path: Path) -> None:
    """Write the leaderboard rows of reports of one dataset to a file."""
    from hbench.boards import runs
    from hbench.core.files import write_text

    board = board_of(documents[0].dataset)
    rows = [runs.row_of(one, board or runs.empty_board(one)) for one in documents]
    write_text(path, "\n".join(map(runs.block, rows)))


def show_scores(document: Document) -> None:
    """Print the score tables, with one heading above all, and below them what intervals are taken
    over, and the signatures: the report's, and that of each other tree it was scored under."""
    from hbench.records import report_tables

    for place, content in enumerate(report_tables.tables(document)):
        show_table(
            None if place else report_tables.heading(document), content.header, content.cells
        )
    signatures = [document.signature, *(tree.signature for tree in document.trees.values())]
    show("\n".join([report_tables.unit_note(document), *signatures]))


def refuse_missing(files: Iterable[Path | None]) -> None:
    """Raise SubmissionError that names all files that are not there, before any is read."""
    missing = [str(file) for file in files if file is not None and not file.exists()]
    if missing:
        raise SubmissionError(
            f"{' and '.join(missing)} {'does' if len(missing) == 1 else 'do'} not exist",
            expected="files of embeddings, or of rankings",
        )


@contextmanager
def read_if_refused(data: Dataset) -> Iterator[None]:
    """Say what the dataset's table was taken for where its embeddings are refused: a wrong guess
    may be why.
    """
    try:
        yield
    except HBenchError:
        if data.read is not None:
            say(f"read: {data.read}")
        raise


def show_read(read: Iterable[dict[str, Any]]) -> None:
    """Say what tables, trees and rankings were taken for."""
    from hbench.sheets.understood import Understood

    for document in read:
        say(f"read: {Understood.of(document)}")


MOST_REMARKS = 3  # lines below the scores; of a dozen, nobody read the one that mattered


def remarks_of(document: Document, *, every: bool) -> list[str]:
    """A report's doubts, its notes, and what its tables were taken for, a line each; of more than
    three, unless `every` one is asked for, the first two and how many follow. What may be wrong
    comes first: what was read is mostly as meant.
    """
    from hbench.sheets.understood import Understood

    lines = [
        *(f"doubt: {doubt}" for doubt in document.doubts),
        *(f"note: {note}" for note in document.warnings),
        *(f"read: {Understood.of(each)}" for each in document.read),
    ]
    if every or len(lines) <= MOST_REMARKS:
        return lines

    shown, left = lines[: MOST_REMARKS - 1], lines[MOST_REMARKS - 1 :]
    kinds = Counter(line.partition(":")[0] for line in left)
    counts = ", ".join(f"{kind}s: {number}" for kind, number in kinds.items())
    return [*shown, f"… and {len(left)} more ({counts}): --remarks prints them"]


def show_report(document: Document, format_: str, *, every_remark: bool = True) -> None:
    """Show the scores in one of the formats on stdout; on stderr the remarks, `every_remark` or the
    first ones, and the place on the dataset's leaderboard, if it has one."""
    from hbench.boards.placing import placing
    from hbench.records.report_tables import FORMATS

    if format_ == "json":
        show_json(document.model_dump(mode="json"))
    elif format_ == "table":
        show_scores(document)
    else:
        show(FORMATS[format_](document).rstrip("\n"))
    for remark in remarks_of(document, every=every_remark):
        say(remark)
    board = board_of(document.dataset)
    # no sentence comes where the report lacks the score that the leaderboard ranks by
    if board and (placed := placing(document, board)):
        say(placed)


def show_results(results: Results, out: Path | None, *, as_json: bool, as_csv: bool) -> None:
    """Write strips of what was retrieved to the file `out`, if one was named, and print them as
    data, if that was asked for; as text where neither was."""
    if out is not None:
        results.write(out)
        say(f"wrote {out}")
    if as_json:
        show_json(results.records())
    elif as_csv:
        show(results.csv().rstrip("\n"))
    elif out is None:
        show(results.text())
