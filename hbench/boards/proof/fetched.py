"""Verifies rows of runs without their authors: the embedding file that a row names is fetched,
checked, and scored again.

A row of a run may state the address of its file (`url`). The file must have the row's content, be
scored on the row's dataset, and reproduce the row in every field
(hbench.boards.proof.verification). This needs the dataset's annotations, but no pictures.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import NamedTuple

from hbench.boards import Leaderboard, Row, RunProvenance, read_board_file
from hbench.boards.proof.verification import checked, identity_of
from hbench.boards.runs import SINGLE_FILE, block, refuse_several_files
from hbench.core.errors import HBenchError, IntegrityError, SourceError
from hbench.core.files import locked, write_text
from hbench.core.paths import cache_home
from hbench.core.version import __version__
from hbench.datasets import Dataset, load, own_names, specs
from hbench.datasets.download import Requester, fetch
from hbench.datasets.spec import RemoteFile
from hbench.evaluation import submission
from hbench.evaluation.submission import Submission

LARGEST = 8 << 30  # bytes of one embedding file: a million vectors of 2,048 float32
VERIFIED = "verified"
DIFFERS = "differs"
ABSENT = "cannot be had"
BY_HAND = "its queries are names: verify it with --embeddings FILE --nodes NODES"


class RowVerdict(NamedTuple):
    """The outcome for one row. `verdict` is "verified", "differs" or "cannot be had"; `detail` is
    the reason."""

    leaderboard: str
    method: str
    verdict: str
    detail: str


def verdict_on(
    row: Row, board: Leaderboard, requester: Requester, *, on_progress: Callable[[int], None]
) -> RowVerdict:
    """Fetch the file of a row of a run, and verify the row with it.

    The file is stored in hbench's cache by its digest, and an interrupted download is resumed.
    `on_progress` is called with the number of new bytes.

    The verdict is "differs" if another file is at the address. If the queries are names, or the
    dataset or the file cannot be had, it is "cannot be had"; but it is "differs" for a row that
    claims to be verified, since this claim cannot be trusted. Else the new scores decide.
    """
    assert row.run is not None
    # the queries are names, whose vectors are in a second file without an address (BY_HAND says so)
    if row.setup.queries is not None:
        return _unproven(row, row.run, board, BY_HAND)
    try:
        data = _dataset(board.dataset)
        path = _file_of(row.run, requester, on_progress)
    except IntegrityError as error:
        return RowVerdict(
            leaderboard=board.dataset, method=row.method, verdict=DIFFERS, detail=one_line(error)
        )
    except HBenchError as error:
        return _unproven(row, row.run, board, one_line(error))
    return verdict_by(row, board, partial(_read, path, row.run), data)


def _unproven(row: Row, run: RunProvenance, board: Leaderboard, why: str) -> RowVerdict:
    """The verdict on a row whose file cannot be had, for the reason `why`. A row that claims to be
    verified gets "differs", since this claim cannot be trusted."""
    if run.verified:
        said = f"the row says that it was verified: {why}"
        return RowVerdict(
            leaderboard=board.dataset, method=row.method, verdict=DIFFERS, detail=said
        )
    return RowVerdict(leaderboard=board.dataset, method=row.method, verdict=ABSENT, detail=why)


def verdict_by(
    row: Row, board: Leaderboard, read: Callable[[], Submission], data: Dataset
) -> RowVerdict:
    """Verify a row of a run with its file, which `read` returns. The verdict is "differs" if the
    file cannot be read, or if its new scores or other fields are not those of the row.

    The deviation between seeds cannot be verified with one file, and a doubt is the author's own
    statement. Both are mentioned in the detail and do not change the verdict.
    """
    assert row.run is not None
    try:
        checked(row, board, read(), data)
    except HBenchError as error:
        return RowVerdict(
            leaderboard=board.dataset, method=row.method, verdict=DIFFERS, detail=one_line(error)
        )
    detail = f"{len(row.scores)} scores"
    if row.run.seeds is not None:
        detail += f"; one file says nothing of the spread over {row.run.seeds:,} seeds"
    if row.run.doubt:
        detail += f"; the row says: {row.run.doubt}"
    return RowVerdict(leaderboard=board.dataset, method=row.method, verdict=VERIFIED, detail=detail)


def contents_in(folder: Path) -> dict[str, Path]:
    """Find the embedding files below a folder. Return their paths by digest.

    Each file has two digests: the sha256 of its content (ids and vectors), and the sha256 of the
    file itself, which rows of old versions have. If several files have one digest, the result has
    the last path in order of names.
    """
    found: dict[str, Path] = {}
    for path in sorted(folder.rglob("*")):
        # rows only name files of these formats, single files with ids
        if path.suffix.lower() not in SINGLE_FILE or not path.is_file():
            continue
        try:
            given = identity_of(submission.read(path))
        except HBenchError:
            continue  # per-query values, and other tables that are no embeddings
        found |= {given.content: path, given.sha256: path}
    return found


def verdict_among(row: Row, board: Leaderboard, kept: Mapping[str, Path]) -> RowVerdict:
    """Verify a row of a run with its file, if it is among the files `kept` (from `contents_in`).

    The verdict is "cannot be had" if the file or the dataset is missing, or if the queries are
    names, whose vectors are in a second file. A row that claims to be verified gets "differs" then.
    """
    assert row.run is not None
    if row.run.digest not in kept:
        missing = f"no file there has its content, {row.run.digest[:12]}…"
        return _unproven(row, row.run, board, missing)
    if row.setup.queries is not None:
        return _unproven(row, row.run, board, BY_HAND)
    try:
        data = _dataset(board.dataset)
    except HBenchError as error:
        return _unproven(row, row.run, board, one_line(error))
    return verdict_by(row, board, partial(submission.read, kept[row.run.digest]), data)


def _dataset(name: str) -> Dataset:
    """Load a dataset by its name, one that hbench ships or one built on this machine. A path is
    refused, since a pull request could then bring its own labels.
    """
    if "/" in name or Path(name).suffix or name not in {*specs, *own_names()}:
        raise SourceError(f"no dataset is called {name}", fix="hbench list shows their names")
    return load(name)


def _read(path: Path, run: RunProvenance) -> Submission:
    """Read the file of a run from the cache."""
    given = submission.read(path)
    # another file is removed, so that the next call fetches it again; this call's verdict says so
    if not run.is_of(*identity_of(given)):
        path.unlink(missing_ok=True)
    return given


def _file_of(run: RunProvenance, requester: Requester, on_progress: Callable[[int], None]) -> Path:
    """Return the path of a row's embedding file, which is fetched unless it is in the cache.

    `on_progress` is called with the number of new bytes. Raises SubmissionError if the row's
    embeddings are several files, SourceError if the file cannot be fetched, and IntegrityError if
    its sha256 is not that of the row. Most rows have the `content` (the sha256 of ids and vectors)
    instead, which is checked when the file is read.
    """
    if run.url is None:
        raise SourceError("the row does not say where its file is", expected="url in the row's run")
    refuse_several_files(run.file)
    # stored by digest (the `content`, else the sha256), so that rows of one file share it, and no
    # row gets the file of another
    path = cache_home() / "rows" / f"{run.digest}{Path(run.file).suffix.lower()}"
    if not path.is_file():
        # at most LARGEST bytes are fetched, whatever the server sends
        source = RemoteFile(path.name, (run.url,), sha256=run.sha256, most=LARGEST)
        fetch(source, path, requester, on_progress=on_progress)
    return path


def mark(path: Path, verified: Sequence[tuple[Row, bool]]) -> int:
    """Mark rows in a leaderboard's file as verified, with the date and hbench's version. Return the
    number of marked rows.

    `verified` has each row as it was read, and whether the row is verified; if not, its mark is
    removed. A row that has changed in the file meanwhile stays as it is and is not counted.
    """
    stamp = f"{datetime.now(UTC).date()}, hbench {__version__}"
    marks = {True: stamp, False: None}
    found = with_runs(
        path, [(row, {"verified": marks[is_verified]}) for row, is_verified in verified]
    )
    return sum(
        is_verified and was_found
        for (_, is_verified), was_found in zip(verified, found, strict=True)
    )


def with_runs(path: Path, changes: Sequence[tuple[Row, Mapping[str, object]]]) -> list[bool]:
    """Change fields of runs in a leaderboard's file. Return, for each row, whether it was found.

    `changes` has each row as it was read, with the new values by field. A row is not found if
    another process has changed it meanwhile, or if its text was not written by hbench. The rest of
    the file stays unchanged.
    """
    found = []
    with locked(path):
        rows = read_board_file(path).rows
        text = path.read_text(encoding="utf-8")
        for row, fields in changes:
            old = block(row)  # the row as hbench writes it in TOML
            # the text must occur exactly once, or it is not clear which occurrence is the row
            found.append(row in rows and text.count(old) == 1)
            if found[-1]:
                assert row.run is not None
                run = row.run.model_copy(update=dict(fields))
                text = text.replace(old, block(row.model_copy(update={"run": run})))
        write_text(path, text)

    return found


def one_line(error: HBenchError) -> str:
    """An error in one line: the problem, what was expected and what was found. The fix is left out,
    since it addresses the user of a command, and this line is for a table of verdicts."""
    parts = [error.problem]
    parts += [
        f"{word} {text}"
        for word, text in (("expected", error.expected), ("found", error.found))
        if text
    ]
    return " ".join("; ".join(parts).split())
