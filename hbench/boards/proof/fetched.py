"""Verifies rows of runs without their authors: fetches the embedding file that a row names, checks
it, and scores it again.

A row of a run may say where its file is (`url`). The file must have the row's content, be scored
on the row's dataset, and give the row in every field (hbench.boards.proof.verification).
Only annotations are needed, no pictures.
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
    """The outcome for one row: `verdict` is "verified", "differs" or "cannot be had", `detail`
    gives the reason.
    """

    leaderboard: str
    method: str
    verdict: str
    detail: str


def verdict_on(
    row: Row, board: Leaderboard, requester: Requester, *, on_progress: Callable[[int], None]
) -> RowVerdict:
    """Fetch the file of a row of a run, and verify the row by it.

    The file is kept in hbench's cache by its digest, and an interrupted download is resumed.
    `on_progress` is called with each number of new bytes. A row that says it was verified differs
    where its file cannot be had. Another file at the address differs at once, and any other error
    of fetching leaves the row unproven.
    """
    assert row.run is not None
    if row.setup.queries is not None:
        return _unproven(row, row.run, board, BY_HAND)
    try:
        data = _dataset(board.dataset)
        path = _file_of(row.run, requester, on_progress)
    except IntegrityError as error:
        return RowVerdict(board.dataset, row.method, DIFFERS, one_line(error))
    except HBenchError as error:
        return _unproven(row, row.run, board, one_line(error))
    return verdict_by(row, board, partial(_read, path, row.run), data)


def _unproven(row: Row, run: RunProvenance, board: Leaderboard, why: str) -> RowVerdict:
    """The verdict on a row that nothing proves, for a reason `why`: its file cannot be had; but a
    row that says it was verified differs, since its word is not to be trusted."""
    if run.verified:
        said = f"the row says that it was verified: {why}"
        return RowVerdict(board.dataset, row.method, DIFFERS, said)
    return RowVerdict(board.dataset, row.method, ABSENT, why)


def verdict_by(
    row: Row, board: Leaderboard, read: Callable[[], Submission], data: Dataset
) -> RowVerdict:
    """Verify a row of a run by its file on a dataset. `read`: reads the file, so that an error of
    reading is an outcome, too: the row differs. One file cannot show the spread over seeds, and a
    doubt is the author's own: both are said with the verdict, and change nothing of it."""
    assert row.run is not None
    try:
        checked(row, board, read(), data)
    except HBenchError as error:
        return RowVerdict(board.dataset, row.method, DIFFERS, one_line(error))
    detail = f"{len(row.scores)} scores"
    if row.run.seeds is not None:
        detail += f"; one file says nothing of the spread over {row.run.seeds:,} seeds"
    if row.run.doubt:
        detail += f"; the row says: {row.run.doubt}"
    return RowVerdict(board.dataset, row.method, VERIFIED, detail)


def contents_in(folder: Path) -> dict[str, Path]:
    """Find the files of vectors below a folder: the path of each, by the sha256 of its content and
    by that of its bytes, since rows of former versions have the latter. Of equal files the last
    path counts, in the order of names."""
    found: dict[str, Path] = {}
    for path in sorted(folder.rglob("*")):
        if path.suffix.lower() not in SINGLE_FILE or not path.is_file():  # none that a row may name
            continue
        try:
            given = identity_of(submission.read(path))
        except HBenchError:
            continue  # values by query, and other tables
        found |= {given.content: path, given.sha256: path}
    return found


def verdict_among(row: Row, board: Leaderboard, kept: Mapping[str, Path]) -> RowVerdict:
    """Verify a row of a run by that of some files, `kept`, which it is of; their paths by what
    tells them apart (`contents_in`). Where that cannot be done, as without the file, without the
    dataset, or for queries that are names, the row is not proven, which is not that it differs."""
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
    """Load the dataset of this name, a published one or one built here. A path is refused: a branch
    could bring the labels of its rows itself then.
    """
    if "/" in name or Path(name).suffix or name not in {*specs, *own_names()}:
        raise SourceError(f"no dataset is called {name}", fix="hbench list shows their names")
    return load(name)


def _read(path: Path, run: RunProvenance) -> Submission:
    """Read a run's file from the cache. Where it is not the run's, it is removed, so that the next
    call fetches it again; the verdict on this one says so.
    """
    given = submission.read(path)
    if not run.is_of(*identity_of(given)):
        path.unlink(missing_ok=True)
    return given


def _file_of(run: RunProvenance, requester: Requester, on_progress: Callable[[int], None]) -> Path:
    """Return the embedding file of a row, fetched unless it is in the cache; its reader checks that
    it is the row's, as of rows with a content alone no checksum of the bytes is known.

    Raises SourceError where it cannot be had, IntegrityError for another file.
    """
    if run.url is None:
        raise SourceError("the row does not say where its file is", expected="url in the row's run")
    refuse_several_files(run.file)
    # by its digest, so that rows of one file share it, and no row gets the file of another
    path = cache_home() / "rows" / f"{run.digest}{Path(run.file).suffix.lower()}"
    if not path.is_file():
        source = RemoteFile(path.name, (run.url,), sha256=run.sha256, most=LARGEST)
        fetch(source, path, requester, on_progress=on_progress)
    return path


def mark(path: Path, verified: Sequence[tuple[Row, bool]]) -> int:
    """Write into a leaderboard's file when, and by which version, rows were verified, and return
    how many were marked: those that are verified, and still there as they were.

    `verified`: rows as they were verified, and whether they are; the mark of one that is not is
    taken away.
    """
    stamp = f"{datetime.now(UTC).date()}, hbench {__version__}"
    marks = {True: stamp, False: None}
    found = with_runs(
        path, [(row, {"verified": marks[is_verified]}) for row, is_verified in verified]
    )
    return sum(
        is_verified for (_, is_verified), there in zip(verified, found, strict=True) if there
    )


def with_runs(path: Path, changes: Sequence[tuple[Row, Mapping[str, object]]]) -> list[bool]:
    """Change fields of the runs of rows in a leaderboard's file, and say of each row whether it was
    found. `changes`: each row as it was read, with the new values by the names of fields.

    A row that another process has changed since then is not found, wherever it stands. The rest of
    the text stays as it is; a row whose text was not written by hbench is not found.
    """
    found = []
    with locked(path):
        rows = read_board_file(path).rows
        text = path.read_text(encoding="utf-8")
        for row, fields in changes:
            old = block(row)
            # written once: else it is not known which of two is meant
            found.append(row in rows and text.count(old) == 1)
            if found[-1]:
                assert row.run is not None
                run = row.run.model_copy(update=dict(fields))
                text = text.replace(old, block(row.model_copy(update={"run": run})))
        write_text(path, text)

    return found


def one_line(error: HBenchError) -> str:
    """Write what an error says in one line: the problem, what was expected and what was found. The
    fix is left out: it is for who runs a command, and this stands in a table of verdicts."""
    parts = [error.problem]
    parts += [
        f"{word} {text}"
        for word, text in (("expected", error.expected), ("found", error.found))
        if text
    ]
    return " ".join("; ".join(parts).split())
