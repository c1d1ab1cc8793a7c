"""What `hbench leaderboard verify` does: scores the files of rows again, and shows the verdicts."""

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
    """The dataset that --dataset gives, or, where that is None, the one of this name, which a
    leaderboard or a report says. Raises UsageError where there is none."""
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
    """Score a file again and compare it with the rows of its method on a leaderboard. Rows of items
    and rows of names are apart: only those that are asked alike can be this file's. `given`: the
    vectors of the file; `nodes`: those of names, where these are the queries; None otherwise."""
    from hbench.boards import read_board
    from hbench.boards.proof.verification import identity_of, refuse_differences, rescored, verify

    board = read_board(name)
    data = dataset_of(dataset, board.dataset)
    alike = [row for row in board.rows if (row.setup.queries is not None) == (nodes is not None)]
    # without one of the method all rows stay: the refusal then says that names are asked, or items
    if any(row.method == method for row in alike):
        board = board.model_copy(update={"rows": tuple(alike)})
    checks = verify(
        board, method, identity_of(given), lambda row: rescored(row, board, given, data, nodes)
    )
    _show_checks(checks, f"{method} on {board.dataset}, percent", as_json=as_json)
    refuse_differences(checks)


def _show_checks(checks: Sequence[Check], title: str, *, as_json: bool) -> None:
    """Print a line for each value of a row: what is recorded, what came of scoring again, and
    whether the two are equal."""
    header = ("source", "metric", "recorded", "scored again", "verdict")
    lines = [(*map(str, check[:4]), "differs" if check.differs else "equal") for check in checks]
    if as_json:
        show_json([dict(zip(header, line, strict=True)) for line in lines])
    else:
        show_table(title, header, lines, left=("metric", "verdict"))


def rerun_rows(name: str, method: str, out: Path | None, *, as_json: bool) -> None:
    """Make the files of a method's rows again, in the folder `out` or one that is removed at the
    end, and show how their scores compare. Of several rows each has a folder in it, by number.
    Raises ComparisonError where a row does not stand."""
    from tempfile import TemporaryDirectory

    from hbench.boards import read_board
    from hbench.boards.proof.verification import rows_of
    from hbench.core.errors import ComparisonError

    board = read_board(name)
    of_runs = [row for row in rows_of(board, method) if row.run is not None]
    # of several rows those that can be; if none can, the first is refused by what it lacks
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
    with _ended_in_order(), TemporaryDirectory(prefix="hbench-rerun-") as temporary:
        # a folder that is not there yet, as what makes the files expects
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
    """Within the block, let SIGTERM end this process as `sys.exit` does, so that temporary folders
    are removed."""

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
    """Make the file of a row again in the folder `out`, score it, and show its scores beside the
    recorded ones. Return the outcome in words, and whether the row stands."""
    from hbench.boards.proof.reruns import make, outcome
    from hbench.boards.proof.verification import identity_of, rescored, verify
    from hbench.datasets import load
    from hbench.evaluation import submission

    out.mkdir(parents=True, exist_ok=True)
    if row.run is not None and row.run.made is not None:
        say(f"runs: {row.run.made}")
    given = submission.read(make(row, out))
    data = load(board.dataset)
    alone = board.model_copy(update={"rows": (row,)})  # other rows of the method are other files
    checks = verify(
        alone, row.method, identity_of(given), lambda row: rescored(row, board, given, data)
    )
    words, stands = outcome(row, checks)
    _show_checks(checks, f"{row.method} on {board.dataset}, made again", as_json=as_json)
    say(f"{words}: the row stands" if stands else words)
    return words, stands


def verify_kept(name: str | None, method: str | None, folder: Path, *, as_json: bool) -> None:
    """Verify the rows of runs of one leaderboard, or, without a `name`, of all, by the files in a
    folder; those of one `method`, or of all."""
    from hbench.boards import read_board_file
    from hbench.boards.proof import fetched

    # the files of the folder by what they hold, so that names do not count
    kept = fetched.contents_in(folder)
    verdicts = []
    found: set[str] = set()
    for path in _board_files(name):
        board = read_board_file(path)
        found |= {row.method for row in board.rows}
        asked = _asked(range(len(board.rows)), board, method)
        verdicts += [fetched.verdict_among(board.rows[n], board, kept) for n in asked]
    if method is not None and method not in found:
        raise UnknownName("method", method, sorted(found))
    _show_verdicts(verdicts, as_json=as_json)


def verify_fetched(
    name: str | None, method: str | None, revision: str | None, *, mark: bool, as_json: bool
) -> None:
    """Verify the rows of runs of one leaderboard, or, without a `name`, of all, by the files that
    they name.

    `method`: only its rows; `revision`: only what was changed since that git revision; `mark`:
    write into the leaderboard's file which rows were verified. A file that cannot be read is a
    verdict, too, so that those of the others are not lost.
    """
    from hbench import boards as leaderboard
    from hbench.boards.proof import fetched
    from hbench.boards.proof.addresses import strangers_requester

    verdicts: list[RowVerdict] = []
    if name is None and revision:  # what is not in this folder has no revisions
        paths = sorted(Path(leaderboard.FOLDER).glob("*.toml"))
        # a row that was taken out is a change to be seen
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
                # numbers of the rows to verify, and verdicts on those that need no file
                asked = _rows_to_verify(path, board, revision, method)
            except ConfigError as error:
                why = fetched.one_line(error)
                verdicts.append(fetched.RowVerdict(path.stem, "(all)", fetched.DIFFERS, why))
                continue
            found |= {row.method for row in board.rows}
            of_rows = {number: verify(board, number) for number in asked.rows}
            verdicts += asked.verdicts
            verdicts += [asked.with_place(number, of_rows[number]) for number in asked.rows]
            if mark and of_rows:
                _mark(path, board, of_rows)
    if method is not None and method not in found and not verdicts:
        raise UnknownName("method", method, sorted(found))
    _show_verdicts(verdicts, as_json=as_json)


def _verdicts_on_deleted(revision: str) -> list[RowVerdict]:
    """A verdict for every leaderboard whose file is gone since a revision."""
    from hbench.boards.proof import fetched
    from hbench.boards.proof.changes import deleted_since

    return [
        fetched.RowVerdict(name, "(all)", fetched.DIFFERS, "its file is gone")
        for name in deleted_since(revision)
    ]


class RowsToVerify(NamedTuple):
    """What is to be done for the rows of a leaderboard's file.

    `rows`: the numbers of the rows to score again; `verdicts`: on what else was changed since a
    revision, which needs no scoring; `replaced`: of rows that take the place of others, which.
    """

    rows: list[int]
    verdicts: list[RowVerdict]
    replaced: dict[int, str]

    def with_place(self, number: int, verdict: RowVerdict) -> RowVerdict:
        """The verdict on a row, saying also what the row takes the place of."""
        if number not in self.replaced:
            return verdict
        return verdict._replace(detail=f"{verdict.detail}; {self.replaced[number]}")


def _mark(path: Path, board: Leaderboard, verdicts: Mapping[int, RowVerdict]) -> None:
    """Mark the rows of a leaderboard's file that were scored again, as verified or not; `verdicts`:
    by the number of the row, from 0."""
    from hbench.boards.proof import fetched

    verified = [
        (board.rows[number], each.verdict == fetched.VERIFIED) for number, each in verdicts.items()
    ]
    say(f"marked {fetched.mark(path, verified)} rows of {path}")


def _asked(rows: Iterable[int], board: Leaderboard, method: str | None) -> list[int]:
    """Choose, of some rows by their numbers from 0, those that are of runs, and of the method, if
    one is named; rows of papers have no files to verify by."""
    return [
        number
        for number in rows
        if board.rows[number].run is not None and method in (None, board.rows[number].method)
    ]


def _verify_row(
    requester: Requester, bars: Progress, task: TaskID, board: Leaderboard, number: int
) -> RowVerdict:
    """Fetch the file that the row with this number, from 0, names, and score it again; the bar of
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
    """The files of one leaderboard, the shipped one and your own, or of all."""
    from hbench import boards as leaderboard

    names = [name] if name else leaderboard.board_names()
    return [file for each in names for file in leaderboard.board_files(each)]


def _rows_to_verify(
    path: Path, board: Leaderboard, revision: str | None, method: str | None
) -> RowsToVerify:
    """The rows of runs to verify, of a method if one is named: all, or those that were changed
    since a revision. What changed beside them is a verdict each, whatever the method: the head of
    the file and rows that are gone differ, and rows of papers are left to a person."""
    from hbench.boards.proof.changes import changes_since, in_place_of
    from hbench.boards.proof.fetched import ABSENT, DIFFERS, RowVerdict

    if revision is None:
        return RowsToVerify(_asked(range(len(board.rows)), board, method), [], {})
    changes = changes_since(revision, path)
    verdicts = []
    if changes.head:
        changed_head = f"changed: {', '.join(changes.head)}"
        verdicts.append(RowVerdict(board.dataset, "(head)", DIFFERS, changed_head))
    verdicts += [
        RowVerdict(board.dataset, method, DIFFERS, "the row is gone") for method in changes.gone
    ]
    changed = [board.rows[number] for number in changes.rows]
    papers = [row for row in changed if row.paper]
    by_hand = "a published row: a person compares it with its table"
    verdicts += [
        RowVerdict(board.dataset, row.method, ABSENT, f"{by_hand}, {row.source}") for row in papers
    ]
    # {number of a row: in words, which one it replaces, and how its scores change}
    replaced = {n: in_place_of(board.rows[n], old) for n, old in changes.replaced.items()}
    return RowsToVerify(_asked(changes.rows, board, method), verdicts, replaced)


def _show_verdicts(verdicts: list[RowVerdict], *, as_json: bool) -> None:
    """Print the verdicts; raises ComparisonError where a row is not what its file gives, and only
    then SourceError where a file cannot be had: a program tells the two by the exit code.
    """
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
    # the rest could not be had: reasons are counted, since many rows share a server
    if verified < len(verdicts):
        reasons = Counter(
            verdict.detail for verdict in verdicts if verdict.verdict == fetched.ABSENT
        )
        found = "; ".join(f"{count} × {escaped(why)}" for why, count in reasons.most_common(3))
        raise SourceError(outcome, found=found)
