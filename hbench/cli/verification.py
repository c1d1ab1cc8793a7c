"""Implements `hbench leaderboard verify`: scores the files of rows again, and prints verdicts."""

from __future__ import annotations

import signal
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, NamedTuple

from hbench.cli.terminal import progress, say, show, show_json, show_table
from hbench.core.errors import ConfigError, UnknownName, UsageError

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from hbench.boards import Leaderboard, Row
    from hbench.boards.proof.fetched import RowVerdict
    from hbench.boards.proof.verification import Check
    from hbench.datasets import Dataset
    from hbench.datasets.download import Requester
    from hbench.evaluation.submission import Submission


def dataset_of(given: Dataset | None, name: str) -> Dataset:
    """Return the dataset of --dataset (`given`) or, if that is None, load the one of this name,
    which a leaderboard or a report states. Raises UsageError if it does not exist."""
    from hbench.datasets import load

    if given is not None:
        return given
    try:
        return load(name)
    except UnknownName:
        raise UsageError(
            f"no dataset is called {name}", fix="name your table or folder: --dataset FILE"
        ) from None


def verify_file(
    name: str,
    method: str,
    given: Submission,
    dataset: Dataset | None,
    *,
    nodes: Path | None,
    as_json: bool,
) -> None:
    """Score a file again, and compare it with the rows of its method on a leaderboard.

    Rows with items as queries and rows with names as queries are kept apart: only rows of the
    file's kind can be rows of the file. `given`: the content of the file. `nodes`: the file of the
    vectors of names, if names are the queries.
    """
    from hbench.boards import read_board
    from hbench.boards.proof.verification import identity_of, refuse_differences, rescored, verify

    board = read_board(name)
    data = dataset_of(dataset, board.dataset)
    # a row's `queries` is None if its queries are items
    alike = [row for row in board.rows if (row.setup.queries is not None) == (nodes is not None)]
    # If the method has no row of this kind, all rows are kept. The error of `rescored` then says
    # that its queries are items, or names.
    if any(row.method == method for row in alike):
        board = board.model_copy(update={"rows": tuple(alike)})
    # `identity_of`: the checksums of the file and its content. `rescored` scores the file under the
    # conditions of a row; `verify` compares the results
    checks = verify(
        board, method, identity_of(given), lambda row: rescored(row, board, given, data, nodes)
    )
    _show_checks(checks, f"{method} on {board.dataset}, percent", as_json=as_json)
    refuse_differences(checks)


def _show_checks(checks: Sequence[Check], title: str, *, as_json: bool) -> None:
    """Print a line for each field of a row, such as a score: the row's source, the name of the
    field, its recorded value, its value when scored again, and whether these are equal. `checks`:
    named tuples that begin with the first four."""
    header = ("source", "metric", "recorded", "scored again", "verdict")
    lines = [(*map(str, check[:4]), "differs" if check.differs else "equal") for check in checks]
    if as_json:
        show_json([dict(zip(header, line, strict=True)) for line in lines])
    else:
        show_table(title, header, lines, left=("metric", "verdict"))


def rerun_rows(name: str, method: str, out: Path | None, *, as_json: bool) -> None:
    """Make the files of a method's rows again, and print how their scores compare. They are made in
    the folder `out`, or in a temporary one; if there are several rows each has a numbered
    subfolder. Raises ComparisonError if a row is not confirmed."""
    from tempfile import TemporaryDirectory

    from hbench.boards import read_board
    from hbench.boards.proof.verification import rows_of
    from hbench.core.errors import ComparisonError

    board = read_board(name)
    of_runs = [row for row in rows_of(board, method) if row.run is not None]
    # Take the rows that can be made again: those that state the command (`made`). If none does,
    # take all, so that making the first raises the error that says what the row lacks.
    rows = [row for row in of_runs if row.run and row.run.made] or of_runs
    if len(rows) < len(of_runs):
        say(f"{len(rows)} of {len(of_runs)} rows of {method} say how they were made")
    if not rows:
        raise UsageError(
            f"{method} is a published row", fix="its paper says how it was made; own rows say it"
        )
    if out is None:
        say("what it makes is removed afterwards; --out DIR keeps it")

    said = []
    # also if the process is told to stop, the temporary folder is removed
    with _ended_in_order(), TemporaryDirectory(prefix="hbench-rerun-") as temporary:
        # a path that does not exist yet, as the commands that make the files require
        folder = out or Path(temporary) / "again"
        for number, row in enumerate(rows):
            if len(rows) > 1:
                folder = (out or Path(temporary)) / str(number)
            said.append(_make_again_and_compare(board, row, folder, as_json=as_json))
    failed = [words for words, stands in said if not stands]
    if failed:
        raise ComparisonError(f"{len(failed)} of {len(said)} rows are not repeated: {failed[0]}")


@contextmanager
def _ended_in_order() -> Iterator[None]:
    """During the block, make SIGTERM end the process by `sys.exit`, so that temporary folders are
    removed."""

    def end(number: int, _frame: FrameType | None) -> None:
        sys.exit(128 + number)  # the code that a shell gives a process ended by a signal

    former = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, former)


def _make_again_and_compare(
    board: Leaderboard, row: Row, out: Path, *, as_json: bool
) -> tuple[str, bool]:
    """Make the file of a row again in the folder `out`, score it, and print its scores beside the
    recorded ones. Return the outcome in words, and whether the row is confirmed."""
    from hbench.boards.proof.reruns import make, outcome
    from hbench.boards.proof.verification import identity_of, rescored, verify
    from hbench.datasets import load
    from hbench.evaluation import submission

    out.mkdir(parents=True, exist_ok=True)
    if row.run is not None and row.run.made is not None:
        say(f"runs: {row.run.made}")
    given = submission.read(make(row, out))
    data = load(board.dataset)
    # `verify` compares all rows of a method; other rows than this one have files of their own
    alone = board.model_copy(update={"rows": (row,)})
    checks = verify(
        alone, row.method, identity_of(given), lambda each: rescored(each, board, given, data)
    )
    words, stands = outcome(row, checks)
    _show_checks(checks, f"{row.method} on {board.dataset}, made again", as_json=as_json)
    say(f"{words}: the row stands" if stands else words)
    return words, stands


def verify_kept(name: str | None, method: str | None, folder: Path, *, as_json: bool) -> None:
    """Verify the rows of runs by the files in a folder. `name`: of the leaderboard; None: all.
    `method`: verify only its rows; None: all."""
    from hbench.boards import read_board_file
    from hbench.boards.proof import fetched

    # {digest: file}: files are found by their content, so that their names do not matter
    kept = fetched.contents_in(folder)
    verdicts = []
    found: set[str] = set()
    for path in _board_files(name):
        board = read_board_file(path)
        found |= {row.method for row in board.rows}
        asked = _asked(range(len(board.rows)), board, method)  # indices of rows
        verdicts += [fetched.verdict_among(board.rows[n], board, kept) for n in asked]
    if method is not None and method not in found:
        raise UnknownName("method", method, sorted(found))
    _show_verdicts(verdicts, as_json=as_json)


def verify_fetched(
    name: str | None, method: str | None, revision: str | None, *, mark: bool, as_json: bool
) -> None:
    """Verify the rows of runs by the files whose addresses they have. A file that cannot be read
    becomes a verdict, so that the verdicts on other files are not lost.

    `name`: of the leaderboard; None: all. `method`: verify only its rows. `revision`: verify only
    what was changed since this git revision. `mark`: write to the leaderboard's file which rows
    were verified.
    """
    from hbench import boards as leaderboard
    from hbench.boards.proof import fetched
    from hbench.boards.proof.addresses import strangers_requester

    verdicts: list[RowVerdict] = []
    # With a revision and no name, only the leaderboards of this checkout are verified, since only
    # they have revisions of git. With a name, only its rows are, so deleted files do not matter.
    if name is None and revision:
        paths = sorted(Path(leaderboard.FOLDER).glob("*.toml"))
        # a removed row is a change, too, and gets a verdict
        verdicts += _verdicts_on_deleted(revision)
    else:
        paths = _board_files(name)

    found: set[str] = set()  # methods
    with progress() as bars:
        task = bars.add_task("fetching and scoring", total=None)
        verify = partial(_verify_row, strangers_requester(), bars, task)
        for path in paths:
            try:
                board = leaderboard.read_board_file(path)
                # `rows`: the indices of the rows to verify; `verdicts`: those that need no file
                asked = _rows_to_verify(path, board, revision, method)
            except ConfigError as error:
                why = fetched.one_line(error)
                verdicts.append(fetched.RowVerdict(path.stem, "(all)", fetched.DIFFERS, why))
                continue
            found |= {row.method for row in board.rows}
            of_rows = {number: verify(board, number) for number in asked.rows}
            verdicts += asked.verdicts
            # `with_place` adds to the verdict which row the row replaces, if it replaces one
            verdicts += [asked.with_place(number, of_rows[number]) for number in asked.rows]
            if mark and of_rows:
                _mark(path, board, of_rows)
    # if there are verdicts, such as on a file that cannot be read, do not hide them by this error
    if method is not None and method not in found and not verdicts:
        raise UnknownName("method", method, sorted(found))
    _show_verdicts(verdicts, as_json=as_json)


def _verdicts_on_deleted(revision: str) -> list[RowVerdict]:
    """Return a verdict for every leaderboard whose file was deleted since a revision."""
    from hbench.boards.proof import fetched
    from hbench.boards.proof.changes import deleted_since

    return [
        fetched.RowVerdict(name, "(all)", fetched.DIFFERS, "its file is gone")
        for name in deleted_since(revision)
    ]


class RowsToVerify(NamedTuple):
    """The work for a leaderboard's file. `rows`: the indices of the rows to score again.
    `verdicts`: on other changes since a revision, which need no scoring. `replaced`: {index of a
    row: in words, which row it replaces}."""

    rows: list[int]
    verdicts: list[RowVerdict]
    replaced: dict[int, str]

    def with_place(self, number: int, verdict: RowVerdict) -> RowVerdict:
        """Add to the verdict on a row which row it replaces."""
        if number not in self.replaced:
            return verdict
        return verdict._replace(detail=f"{verdict.detail}; {self.replaced[number]}")


def _mark(path: Path, board: Leaderboard, verdicts: Mapping[int, RowVerdict]) -> None:
    """Mark the rows in a leaderboard's file that were scored again, as verified or not. `verdicts`:
    {index of a row: verdict}."""
    from hbench.boards.proof import fetched

    verified = [
        (board.rows[number], each.verdict == fetched.VERIFIED) for number, each in verdicts.items()
    ]
    say(f"marked {fetched.mark(path, verified)} rows of {path}")


def _asked(rows: Iterable[int], board: Leaderboard, method: str | None) -> list[int]:
    """Select, from the indices `rows`, the rows that are of runs and of the `method`, if one is
    named. Rows of papers have no files to verify."""
    return [
        number
        for number in rows
        if board.rows[number].run is not None and method in (None, board.rows[number].method)
    ]


def _verify_row(
    requester: Requester, bars: Progress, task: TaskID, board: Leaderboard, number: int
) -> RowVerdict:
    """Fetch the file of the row with the index `number`, and score it again. The progress bar
    `task` counts the bytes."""
    from hbench.boards.proof import fetched

    bars.update(task, description=f"{board.dataset}, row {number + 1}")
    return fetched.verdict_on(
        board.rows[number],
        board,
        requester,
        on_progress=lambda new: bars.advance(task, new),
    )


def _board_files(name: str | None) -> list[Path]:
    """Return the files of one leaderboard (the shipped one and the user's own), or of all."""
    from hbench import boards as leaderboard

    names = [name] if name else leaderboard.board_names()
    return [file for each in names for file in leaderboard.board_files(each)]


def _rows_to_verify(
    path: Path, board: Leaderboard, revision: str | None, method: str | None
) -> RowsToVerify:
    """Determine the rows of runs to verify: all or, with a `revision`, those that are new or were
    changed since then; with a `method` only the rows of the method.

    Other changes since the revision get a verdict each, whatever the method: a different head of
    the file, removed rows, and rows of papers, which a person has to check.
    """
    from hbench.boards.proof.changes import changes_since, in_place_of
    from hbench.boards.proof.fetched import ABSENT, DIFFERS, RowVerdict

    if revision is None:
        return RowsToVerify(
            rows=_asked(range(len(board.rows)), board, method), verdicts=[], replaced={}
        )
    # `_asked` selects the rows of runs, and of the method, from indices of rows.
    # `head`: changed keys of the head; `gone`: the methods of removed rows; `rows`: the indices of
    # new and changed rows; `replaced`: {index of a new row: the old row}
    changes = changes_since(revision, path)
    verdicts = []
    if changes.head:
        changed_head = f"changed: {', '.join(changes.head)}"
        verdicts.append(
            RowVerdict(
                leaderboard=board.dataset, method="(head)", verdict=DIFFERS, detail=changed_head
            )
        )
    verdicts += [
        RowVerdict(
            leaderboard=board.dataset, method=method, verdict=DIFFERS, detail="the row is gone"
        )
        for method in changes.gone
    ]
    changed = [board.rows[number] for number in changes.rows]
    papers = [row for row in changed if row.paper]
    by_hand = "a published row: a person compares it with its table"
    verdicts += [
        RowVerdict(
            leaderboard=board.dataset,
            method=row.method,
            verdict=ABSENT,
            detail=f"{by_hand}, {row.source}",
        )
        for row in papers
    ]
    # {index of a row: in words, which row it replaces, and how its scores change}
    replaced = {n: in_place_of(board.rows[n], old) for n, old in changes.replaced.items()}
    return RowsToVerify(_asked(changes.rows, board, method), verdicts, replaced)


def _show_verdicts(verdicts: list[RowVerdict], *, as_json: bool) -> None:
    """Print the verdicts. Raises ComparisonError if a row differs from what its file gives, or else
    SourceError if a file cannot be fetched: programs tell the two apart by the exit code."""
    from hbench.boards.proof import fetched
    from hbench.boards.proof.summary import as_markdown, escaped
    from hbench.core.errors import ComparisonError, SourceError

    verified = sum(verdict.verdict == fetched.VERIFIED for verdict in verdicts)
    outcome = f"{verified} of {len(verdicts)} rows are verified"
    if not verdicts:
        outcome = "nothing to verify: no row is of a run"
    if as_json:
        show_json([verdict._asdict() for verdict in verdicts])
        say(outcome)
    else:
        show("\n".join([*as_markdown(verdicts), "", outcome]))
    differing = [verdict for verdict in verdicts if verdict.verdict == fetched.DIFFERS]
    if differing:
        raise ComparisonError(
            f"{len(differing)} of {len(verdicts)} rows are not what their files give",
            found="; ".join(
                escaped(f"{verdict.method}: {verdict.detail}") for verdict in differing[:3]
            ),
        )
    # the others could not be fetched: count the reasons, since many rows share a server
    if verified < len(verdicts):
        reasons = Counter(
            verdict.detail for verdict in verdicts if verdict.verdict == fetched.ABSENT
        )
        found = "; ".join(f"{count} × {escaped(why)}" for why, count in reasons.most_common(3))
        raise SourceError(outcome, found=found)
