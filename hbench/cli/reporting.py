"""Common parts of the verbs that make or show a report: options for scoring and for the machine,
writing reports, and printing them.
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

from hbench.cli.names import METRICS, OUT_FILE, PROTOCOL, SIMILARITY, TIES
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
MOST_DIGITS = 18  # of a number of bytes, which is then below an exabyte
BY_QUERY = ".by-query.parquet"


def size(context: click.Context, option: click.Parameter, value: str | None) -> int | None:
    """Parse a number of bytes such as 500M, 2G, 2GB or 2 GiB; a callback of a click option. None if
    the option was not given. A number with too many digits is refused, since as a float it could be
    infinite."""
    if value is None:
        return None
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMG]?)(?:i?B)?", value.strip(), re.IGNORECASE)
    if match is None or len(match[1]) > MOST_DIGITS:
        raise click.BadParameter(f"{shorten(value)!r} is not a size; write it as 500M or 2G")
    return int(float(match[1]) * UNITS[match[2].upper()])


@dataclass(frozen=True)
class ScoringOptions:
    """The options of how to score, as the user typed them; None for those not given."""

    metrics: str | None
    protocol: str
    ties: str
    similarity: str | None
    unit: str | None

    @property
    def settings(self) -> Settings:
        """The options as settings of an evaluation."""
        from hbench.engine.settings import Settings

        return Settings(self.metrics, self.protocol, self.ties, self.similarity, unit=self.unit)


@dataclass(frozen=True)
class ReportFiles:
    """The files to write: the report, its values by query, and its row of a leaderboard."""

    output: Path | None
    by_query: Path | None = None
    row: Path | None = None

    @property
    def beside_the_report(self) -> dict[str, object]:
        """The options of the files other than the report, {option: path or None}."""
        return {"--by-query": self.by_query, "--row": self.row}

    @property
    def given(self) -> dict[str, object]:
        """The options of all files, {option: path or None}."""
        return {"--out": self.output, **self.beside_the_report}

    def refuse_unwritable(self) -> None:
        """Raise UsageError, before any work, for a file that could not be written."""
        from hbench.core import files as atomic

        for path in (self.output, self.by_query, self.row):
            if path is not None:
                atomic.refuse_unwritable(path)


@dataclass(frozen=True)
class MachineOptions:
    """The options of who computes, and with how much memory; None for those not given."""

    threads: int | None
    max_memory: int | None
    workers: int | None
    device: str | None
    scheduler: str | None

    @property
    def execution(self) -> Execution:
        """The options as an Execution."""
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
            "--out", "-o", "output", type=OUT_FILE, help="Write the report (JSON) to this file."
        ),
        click.option(
            "--by-query",
            type=OUT_FILE,
            help="Write every query's values to this file.  [default: beside --out]",
        ),
        click.option("--row", type=OUT_FILE, help="Write the leaderboard row (TOML) to this file."),
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
    """Read the submission in a file, or in a file of queries and one of the gallery.

    `ids`: a file of ids, for vectors without ids. It is read for each of the two files, so both
    must then have vectors of the same items in the same order. None: the ids are in the files, or
    in a file beside each. `gallery`: None if `file` has both. `movable`: whether the evaluation may
    reorder the vectors of a single file in place, because the caller does not use them afterwards.
    """
    from hbench.evaluation import submission
    from hbench.evaluation.submission.embedding import EmbeddingSubmission
    from hbench.submissions import embeddings

    if gallery is None:
        return submission.read(file, ids=ids, movable=movable)
    return EmbeddingSubmission(embeddings.read(file, ids=ids), embeddings.read(gallery, ids=ids))


def without_zeros(given: Submission, leave_out: str | None) -> Submission:
    """Remove the vectors that the user wants to leave out: "zero" means vectors that are all zero,
    None means nothing."""
    from hbench.evaluation.evaluate import without

    return without(leave_out, given)


def examined(
    given: Submission, data: Dataset, settings: Settings, method: str | None = None
) -> Examined:
    """Examine a submission before it is scored.

    The values of the released evaluator ("official") are computed as well if the dataset's
    leaderboard compares them, so that the report's place there can be shown. `method`: the name of
    the model that made the submission.
    """
    from hbench.evaluation.examination import examine

    board = board_of(data.name)
    is_placed_by_released = board is not None and board.protocol == "official"
    # under protocol `official` these values are computed anyway, and no other relevance than
    # `alpha` is known to the released evaluator
    can_be_added = settings.protocol == "paper" and settings.relevance == "alpha"
    also_official = is_placed_by_released and can_be_added
    return examine(given, data, settings, also_official=also_official, method=method)


def board_of(dataset: str) -> Leaderboard | None:
    """Read the leaderboard of a dataset; None if it has none."""
    from hbench import boards as leaderboard

    return leaderboard.read_board(dataset) if dataset in leaderboard.board_names() else None


def write_report(report: Report, files: ReportFiles) -> None:
    """Write each file whose option was given.

    This is called before anything is printed, in case stdout is closed. The values by query are
    written beside the report by default.
    """
    from hbench.core.files import locked

    if files.output is not None:
        with locked(files.output):  # the files of a report must be of the same evaluation
            _write_with_values(report, files.output, files.by_query)
    elif files.by_query is not None:
        report.write_by_query(files.by_query)
    if files.row is not None:
        write_rows([report.document], files.row)


def _write_with_values(report: Report, output: Path, by_query: Path | None) -> None:
    """Write the report, its values by query and its first results. The latter two are written
    beside the report, with its name, unless `by_query` names a file for the values."""
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
    """Print the score tables under one heading, followed by the unit of the intervals and the
    signatures: that of the report and those of other trees it was scored under."""
    from hbench.records import report_tables

    for place, content in enumerate(report_tables.tables(document)):
        show_table(
            None if place else report_tables.heading(document), content.header, content.cells
        )
    signatures = [document.signature, *(tree.signature for tree in document.trees.values())]
    show("\n".join([report_tables.unit_note(document), *signatures]))


def refuse_missing(files: Iterable[Path | None]) -> None:
    """Raise SubmissionError that names all missing files, before any file is read."""
    missing = [str(file) for file in files if file is not None and not file.exists()]
    if missing:
        raise SubmissionError(
            f"{' and '.join(missing)} {'does' if len(missing) == 1 else 'do'} not exist",
            expected="files of embeddings, or of rankings",
        )


@contextmanager
def read_if_refused(data: Dataset) -> Iterator[None]:
    """If the block raises an error, print how the dataset's table was understood: a wrong guess may
    be the cause.
    """
    try:
        yield
    except HBenchError:
        if data.read is not None:
            say(f"read: {data.read}")
        raise


def show_read(read: Iterable[dict[str, Any]]) -> None:
    """Print how tables, trees and rankings were understood. `read`: documents of a report."""
    from hbench.sheets.understood import Understood

    for document in read:
        say(f"read: {Understood.of(document)}")


MOST_REMARKS = 3  # lines below the scores: among a dozen the important one would not be read


def remarks_of(document: Document, *, every: bool) -> list[str]:
    """Return a report's doubts, its notes, and how its tables were understood, a line each, in the
    order of their importance. If there are more than MOST_REMARKS, and not `every` one is wanted,
    the last line counts those that were left out.
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
    """Print the scores on stdout in the format `format_`. On stderr print the remarks and the place
    on the dataset's leaderboard, if it has one. `every_remark`: print all, not only the first."""
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
    # `placing` returns None if the report lacks the score by which the leaderboard ranks
    if board and (placed := placing(document, board)):
        say(placed)


def show_results(results: Results, out: Path | None, *, as_json: bool, as_csv: bool) -> None:
    """Write the first results of some queries to the file `out`, if one was named, as strips: a
    query, and beside it a row of results for each model. Print them in the requested format, or as
    text if neither a file nor a format was requested."""
    if out is not None:
        results.write(out)
        say(f"wrote {out}")
    if as_json:
        show_json(results.records())
    elif as_csv:
        show(results.csv().rstrip("\n"))
    elif out is None:
        show(results.text())
