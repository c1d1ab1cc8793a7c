"""Verifies rows of runs without their authors: fetches the embedding file that a row names, checks it, and scores it again.

A row of a run may say where its file is (`url`). The file must have the row's checksum, be scored on the row's dataset, give every
score to the printed digits, and what speaks against it must stand in the row. Only annotations are needed, no pictures.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from hbench.core import schema
from hbench.core.errors import HBenchError, IntegrityError, SourceError, SubmissionError, UsageError
from hbench.core.files import write_text
from hbench.core.paths import cache_home
from hbench.core.version import __version__
from hbench.datasets import Dataset, load
from hbench.datasets.download import Requester, fetch
from hbench.datasets.download.sources import RemoteFile
from hbench.evaluation import submission
from hbench.evaluation.embeddings import digest
from hbench.evaluation.evaluate import examine, report_on
from hbench.evaluation.leaderboard import Leaderboard, Row, RunProvenance, read_file
from hbench.evaluation.leaderboard.runs import Check, block, recorded, refuse_differences, refuse_several_files, verify
from hbench.evaluation.reports.report import Document
from hbench.evaluation.submission import Submission

LARGEST = 8 << 30  # bytes of one embedding file: a million vectors of 2,048 float32
VERIFIED, DIFFERS, ABSENT = "verified", "differs", "cannot be had"


class RowVerdict(NamedTuple):
    """The outcome for one row: `verdict` is "verified", "differs" or "cannot be had", `detail` gives the reason."""

    leaderboard: str
    method: str
    verdict: str
    detail: str


def rescored(row: Row, board: Leaderboard, given: Submission, data: Dataset) -> Document:
    """Score a row's file again, under the conditions and by the metrics of the row, and return the report."""
    metrics = [metric for metric in row.scores if metric not in board.foreign_metrics]
    settings = replace(recorded(row, board), metrics=metrics)
    return report_on(examine(given, data, settings)).document


def checked(row: Row, board: Leaderboard, given: Submission, data: Dataset) -> list[Check]:
    """Compare a row of a run with its file, scored again.

    Raises ComparisonError where the file or a score differs, SubmissionError where the file cannot be scored, or something
    speaks against it that the row does not say.
    """
    assert row.run is not None
    documents: list[Document] = []

    def rescore(row: Row) -> Document:
        documents.append(rescored(row, board, given, data))
        return documents[-1]

    alone = board.model_copy(update={"rows": (row,)})
    checks = verify(alone, row.method, given.source.sha256, rescore)
    refuse_differences(checks)
    hidden = [doubt for document in documents for doubt in document.doubts if doubt not in (row.run.doubt or "")]
    if hidden:
        raise SubmissionError("the row does not say what speaks against its file", found="; ".join(hidden))
    return checks


def verdict_on(row: Row, board: Leaderboard, requester: Requester, *, on_progress: Callable[[int], None]) -> RowVerdict:
    """Fetch the file of a row of a run, and verify the row by it.

    The file is kept in hbench's cache by its checksum, and an interrupted download is resumed. `on_progress` is called with
    each number of new bytes.
    """
    assert row.run is not None
    try:
        data = load(board.dataset)
        path = _file_of(row.run, requester, on_progress)
    except IntegrityError as error:
        return RowVerdict(board.dataset, row.method, DIFFERS, _one_line(error))
    except HBenchError as error:
        return RowVerdict(board.dataset, row.method, ABSENT, _one_line(error))
    try:
        checked(row, board, submission.read(path), data)
    except HBenchError as error:
        return RowVerdict(board.dataset, row.method, DIFFERS, _one_line(error))
    detail = f"{len(row.scores)} scores" + (f"; the row says: {row.run.doubt}" if row.run.doubt else "")
    return RowVerdict(board.dataset, row.method, VERIFIED, detail)


def _file_of(run: RunProvenance, requester: Requester, on_progress: Callable[[int], None]) -> Path:
    """Return the embedding file of a row, fetched unless it is in the cache. Raises SourceError where it cannot be had,
    IntegrityError for another file."""
    if run.url is None:
        raise SourceError("the row does not say where its file is", expected="url in the row's run")
    refuse_several_files(run.file)
    path = cache_home() / "rows" / f"{run.sha256}{Path(run.file).suffix.lower()}"
    if not path.is_file() or digest([path]) != run.sha256:
        source = RemoteFile(run.file, (run.url,), sha256=run.sha256, most=LARGEST)
        fetch(source, path, requester, on_progress=on_progress)
    return path


def changed_since(revision: str, path: Path) -> list[Row]:
    """Return the rows that a leaderboard's file did not have at a git revision. Raises UsageError for an unknown revision."""
    folder = path.resolve().parent
    _git(folder, "rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}")
    shown = subprocess.run(["git", "show", f"{revision}:./{path.name}"], cwd=folder, capture_output=True, check=False)
    rows = read_file(path).rows
    if shown.returncode:  # the file is new
        return list(rows)
    before = schema.parse(Leaderboard, shown.stdout.decode(), source=f"{path} at {revision}")
    return [row for row in rows if row not in before.rows]


def _git(folder: Path, *arguments: str) -> None:
    try:
        done = subprocess.run(["git", *arguments], cwd=folder, capture_output=True, check=False).returncode
    except FileNotFoundError:
        raise UsageError("--changed-since needs git", fix="install git, or verify all rows") from None
    if done:
        raise UsageError(f"{folder} has no such revision", found=arguments[-1].removesuffix("^{commit}"))


def mark(path: Path, rows: Iterable[Row]) -> int:
    """Write into a leaderboard's file when, and by which version, these of its rows were verified, and return how many were found.

    The rest of the text stays as it is; a row whose text was not written by hbench is not found.
    """
    text, marked = path.read_text(encoding="utf-8"), 0
    stamp = f"{datetime.now(UTC).date()}, hbench {__version__}"
    for row in rows:
        assert row.run is not None
        old = block(row)
        if text.count(old) == 1:
            new = row.model_copy(update={"run": row.run.model_copy(update={"verified": stamp})})
            text, marked = text.replace(old, block(new)), marked + 1
    if marked:
        write_text(path, text)
    return marked


def as_markdown(verdicts: Iterable[RowVerdict]) -> Iterator[str]:
    """Yield the lines of a Markdown table of verdicts, for the summary of a pull request."""
    yield "| leaderboard | method | verdict | |"
    yield "|---|---|---|---|"
    for verdict in verdicts:
        yield "| " + " | ".join(cell.replace("|", "\\|") for cell in verdict) + " |"


def _one_line(error: HBenchError) -> str:
    parts = [error.problem]
    parts += [f"{word} {text}" for word, text in (("expected", error.expected), ("found", error.found)) if text]
    return " ".join("; ".join(parts).split())
