"""Removes rows from the text of a leaderboard's file and leaves every other byte unchanged.

>>> text = 'metric = "AP"\\n\\n[[row]]\\nmethod = "a"\\n\\n# about b\\n[[row]]\\nmethod = "b"\\n'
>>> print(_without(text, [0]), end="")
metric = "AP"
<BLANKLINE>
# about b
[[row]]
method = "b"
"""

import re
from collections.abc import Collection, Sequence
from pathlib import Path

from hbench.boards import Row, parse_board, read_board_file
from hbench.core.errors import ConfigError, UnknownName, UsageError, examples
from hbench.core.files import locked, write_text

HEAD = re.compile(r"^[ \t]*\[\[[ \t]*row[ \t]*\]\]", re.MULTILINE)
OTHER_TABLE = re.compile(r"^[ \t]*\[(?![ \t]*\[?[ \t]*row[ \t]*[.\]])", re.MULTILINE)
# comments and blank lines at the end of a row, which belong to what follows it
REST = re.compile(r"(?:^[ \t]*(?:#.*)?\n)*\Z", re.MULTILINE)


def _without(text: str, numbers: Collection[int]) -> str:
    """Return the text of a leaderboard's file without the rows with these indices, from 0.

    HEAD finds the lines `[[row]]`: each begins a row, which ends at the next such line, at another
    table (OTHER_TABLE finds its head), or at the end of the text. The comments and blank lines at
    the end of a row (REST finds them) are kept, since they belong to what follows.
    """
    starts = [found.start() for found in HEAD.finditer(text)]
    # the last row first, so that the positions of earlier rows stay valid
    for number in sorted(numbers, reverse=True):
        start = starts[number]
        end = starts[number + 1] if number + 1 < len(starts) else len(text)
        if other := OTHER_TABLE.search(text, start, end):  # such as [citations] after the rows
            end = other.start()
        kept = REST.search(text[start:end])
        rest = kept[0].lstrip("\n") if kept else ""  # blank lines just after the row go with it
        text = text[:start] + rest + text[end:]
    return text


def without_rows(path: Path, text: str, numbers: Collection[int]) -> str:
    """Return the text of a leaderboard's file without the rows with these indices, from 0.

    `path` is the file, for errors. Raises ConfigError if the rows of the shorter text are not those
    that should be left, so that hbench cannot tell the rows apart in the text.
    """
    before = parse_board(text, str(path)).rows
    shorter = text
    # HEAD finds the lines `[[row]]`, one for each row that hbench writes. If rows are written in
    # another form, such as a list, nothing is cut, so that the comparison below fails.
    if len(HEAD.findall(text)) == len(before):
        shorter = _without(text, numbers)
    expected = tuple(row for number, row in enumerate(before) if number not in numbers)
    if parse_board(shorter, str(path)).rows != expected:
        named = examples(before[number].method for number in numbers)
        raise ConfigError(
            f"{path} is written in another form than hbench writes",
            found=named,
            fix="remove these rows by hand",
        )
    return shorter


def remove(path: Path, method: str, run: str | None = None) -> Row:
    """Remove the row of a run from a leaderboard's file, and return the row. If several rows have
    this method, `run` chooses one by the beginning of its digest.

    Raises UnknownName for an unknown method, and UsageError if there is no such file, if no row or
    several rows fit, or if the rows of this method are from papers.
    """
    if not path.is_file():
        raise UsageError(
            f"there are no rows of your own: {path} does not exist",
            fix="--from FILE names another file",
        )
    with locked(path):
        rows = read_board_file(path).rows
        number = _only(rows, method, run, path)
        write_text(path, without_rows(path, path.read_text(encoding="utf-8"), [number]))
    return rows[number]


def _only(rows: Sequence[Row], method: str, run: str | None, path: Path) -> int:
    """Return the index of the only row that is of a run and has this method, and whose digest
    begins with `run` if `run` is given.

    Raises UnknownName for an unknown method, and UsageError if no row or several rows fit, or if
    all rows of this method are from papers. `path` is the file, for errors.
    """
    named = [number for number, row in enumerate(rows) if row.method == method]
    if not named:
        # only the rows of runs can be removed, so only their methods are suggested
        methods = dict.fromkeys(row.method for row in rows if row.run)
        raise UnknownName(f"method of {path}", method, methods)

    of_runs = {number: made for number in named if (made := rows[number].run)}
    if not of_runs:
        raise UsageError(
            f"{method} is a published row",
            found=rows[named[0]].source,
            fix="only rows of runs are removed by hbench",
        )

    chosen = [number for number, made in of_runs.items() if made.digest.startswith(run or "")]
    if len(chosen) != 1:
        raise UsageError(
            f"{len(chosen)} rows of {path} are of {method}"
            + (f" and begin with {run}" if run else ""),
            expected="one row",
            found=examples(f"{made.digest[:12]}, {made.date}" for made in of_runs.values()),
            fix="--run DIGEST chooses one by the beginning of its digest",
        )

    return chosen[0]
