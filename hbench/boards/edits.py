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
    """Cut the rows with these indices, from 0, out of the text of a leaderboard's file. HEAD finds
    the lines `[[row]]`, each of which begins a row."""
    starts = [found.start() for found in HEAD.finditer(text)]
    # the last row first, so that the positions of earlier rows stay valid
    for number in sorted(numbers, reverse=True):
        start = starts[number]
        end = starts[number + 1] if number + 1 < len(starts) else len(text)
        if other := OTHER_TABLE.search(text, start, end):  # such as [citations] after the rows
            end = other.start()
        # a comment at the end belongs to the next row and is kept
        kept = REST.search(text[start:end])
        rest = kept[0].lstrip("\n") if kept else ""
        text = text[:start] + rest + text[end:]
    return text


def without_rows(path: Path, text: str, numbers: Collection[int]) -> str:
    """Cut the rows with these indices, from 0, out of a file's text. The result is parsed and
    compared with the expected rows. Raises ConfigError, which names the `path`, if hbench cannot
    tell the rows apart in the text."""
    before = parse_board(text, str(path)).rows
    shorter = text
    # HEAD finds `[[row]]`. If rows are written in another form, such as a list, nothing is cut, and
    # an error follows.
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

    Raises UnknownName for an unknown method, UsageError if several rows fit, or the row is one of a
    paper.
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
    """Find the index of the only row of a run with this method, whose digest begins with `run` if
    that is given. Raises UnknownName for an unknown method; UsageError if no row or several fit, or
    the row is one of a paper. `path` is the file, for errors."""
    named = [number for number, row in enumerate(rows) if row.method == method]
    if not named:
        raise UnknownName(
            f"method of {path}", method, dict.fromkeys(row.method for row in rows if row.run)
        )

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
