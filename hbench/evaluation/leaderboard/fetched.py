"""Verifies own rows of leaderboards by anybody: fetches the embedding file that a row names, checks it, scores it again.

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
from hbench.core.errors import DataError, HBenchError, SourceError, SubmissionError, UsageError
from hbench.core.files import write_text
from hbench.core.paths import cache_home
from hbench.core.version import __version__
from hbench.datasets import Dataset, load
from hbench.datasets.download import Requester, checksums, fetch, session
from hbench.datasets.download.sources import RemoteFile
from hbench.evaluation import submission
from hbench.evaluation.embeddings.files import READERS
from hbench.evaluation.evaluate import examine, report_on
from hbench.evaluation.leaderboard import Leaderboard, Row, RunProvenance, read_file
from hbench.evaluation.leaderboard.runs import block, recorded, refuse_differences, verify
from hbench.evaluation.reports.report import Document
from hbench.evaluation.submission import Submission

LARGEST = 8 << 30  # bytes of one embedding file: a million vectors of 2,048 float32
VERIFIED, DIFFERS, ABSENT = "verified", "differs", "cannot be had"


class RowVerdict(NamedTuple):
    """What became of one row: `verdict` is "verified", "differs" or "cannot be had", `detail` says why."""

    leaderboard: str
    method: str
    verdict: str
    detail: str


def rescored(row: Row, board: Leaderboard, given: Submission, data: Dataset) -> Document:
    """The report of a row's file, under the conditions and by the metrics of the row."""
    metrics = [metric for metric in row.scores if metric not in board.foreign_metrics]
    settings = replace(recorded(row, board), metrics=metrics)
    return report_on(examine(given, data, settings)).document


def verdict_on(
    row: Row, board: Leaderboard, *, requester: Requester | None = None, on_progress: Callable[[int], None]
) -> RowVerdict:
    """Fetch the file of a row of a run, and verify the row by it.

    The file is kept in hbench's cache by its checksum, and an interrupted download is resumed. `on_progress` is called with
    each number of new bytes.
    """
    assert row.run is not None
    try:
        path = _file_of(row.run, requester or Requester(session()), on_progress)
        data = load(board.dataset)
        _verify(row, board, path, data)
    except (SourceError, DataError) as error:
        return RowVerdict(board.dataset, row.method, ABSENT, _one_line(error))
    except HBenchError as error:
        return RowVerdict(board.dataset, row.method, DIFFERS, _one_line(error))
    detail = f"{len(row.scores)} scores" + (f"; the row says: {row.run.doubt}" if row.run.doubt else "")
    return RowVerdict(board.dataset, row.method, VERIFIED, detail)


def _file_of(run: RunProvenance, requester: Requester, on_progress: Callable[[int], None]) -> Path:
    """The embedding file of a row, fetched unless it is in the cache. Raises SourceError where it cannot be had, IntegrityError
    for another file."""
    suffix = Path(run.file).suffix.lower()
    if run.url is None:
        raise SourceError("the row does not say where its file is", expected="url in the row's run")
    if suffix not in READERS:
        raise SourceError(
            f"{run.file} is not one file of vectors and ids", expected=", ".join(READERS), fix="write one .parquet file"
        )
    path = cache_home() / "rows" / f"{run.sha256}{suffix}"
    if path.is_file() and checksums(path)["sha256"] == run.sha256:
        return path
    received = 0

    def count(new: int) -> None:
        nonlocal received
        received += new
        if received > LARGEST:
            raise SourceError(f"{run.url} sends too much", expected=f"at most {LARGEST:,} bytes", found="more")
        on_progress(new)

    fetch(RemoteFile(run.file, (run.url,), sha256=run.sha256), path, requester, on_progress=count)
    return path


def _verify(row: Row, board: Leaderboard, path: Path, data: Dataset) -> None:
    """Score a row's file again. Raises ComparisonError where a score differs, SubmissionError where the file cannot be scored or
    something speaks against it that the row does not say."""
    assert row.run is not None
    documents: list[Document] = []

    def rescore(row: Row) -> Document:
        documents.append(rescored(row, board, submission.read(path), data))
        return documents[-1]

    alone = board.model_copy(update={"rows": (row,)})
    refuse_differences(verify(alone, row.method, row.run.sha256, rescore))
    hidden = [doubt for document in documents for doubt in document.doubts if doubt not in (row.run.doubt or "")]
    if hidden:
        raise SubmissionError("the row does not say what speaks against its file", found="; ".join(hidden))


def changed_since(revision: str, path: Path) -> list[Row]:
    """The rows of a leaderboard's file that it did not have at a git revision. Raises UsageError for an unknown revision."""
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
    """Write into the file that these of its rows were verified, when and by which version; how many it found. The rest of the text
    stays as it is."""
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
    """The lines of a Markdown table of verdicts, as the summary of a pull request shows them."""
    yield "| leaderboard | method | verdict | |"
    yield "|---|---|---|---|"
    for verdict in verdicts:
        yield "| " + " | ".join(cell.replace("|", "\\|") for cell in verdict) + " |"


def _one_line(error: HBenchError) -> str:
    parts = [
        error.problem,
        f"expected {error.expected}" if error.expected else "",
        f"found {error.found}" if error.found else "",
    ]
    return " ".join("; ".join(filter(None, parts)).split())
