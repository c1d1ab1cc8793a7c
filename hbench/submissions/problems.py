"""Problems of a submission. Each kind of fault has its count, examples and a fix, and one error
message lists all of them.

>>> print(SubmissionProblem("missing ids", 12, ("a.png", "b.png"), "embed these items as well"))
12 missing ids (a.png, b.png, …)
    next: embed these items as well
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from hbench.core.errors import SubmissionError, examples, shorten

SHOWN_EXAMPLES = 5
MEND_ROWS = "mend these rows, or leave them out"  # the advice of an error that names rows
# most characters in the list of problems: with the name of the source and the punctuation, a
# message then has at most 2,000
MESSAGE = 1600


@dataclass(frozen=True)
class SubmissionProblem:
    """`count` faults of one kind, with the names of the first five, and the next step to take.

    A problem that is not `fatal` is a remark: the submission is scored all the same, and `fix` says
    how the fault is handled.
    """

    kind: str
    count: int
    examples: tuple[str, ...] = ()
    fix: str | None = None
    fatal: bool = True

    def __str__(self) -> str:
        """The problem as text: how many faults of which kind, the first names, and the fix. A fatal
        problem has its fix on a second line, a remark after a colon."""
        more = ", …" if self.count > len(self.examples) else ""
        named = f" ({', '.join(self.examples)}{more})" if self.examples else ""
        problem = f"{self.count:,} {self.kind}{named}"
        if not self.fix:
            return problem
        return f"{problem}\n    next: {self.fix}" if self.fatal else f"{problem}: {self.fix}"


def found(
    kind: str, names: Iterable[object], count: int, fix: str | None = None, *, fatal: bool = True
) -> list[SubmissionProblem]:
    """One problem with the first five of `names`, or none when `count` is 0."""
    shown = tuple(in_a_line(str(name)) for name in islice(names, SHOWN_EXAMPLES))
    return [SubmissionProblem(kind, count, shown, fix, fatal)] if count else []


def in_a_line(name: str) -> str:
    """A name that fits a line, quoted if it has invisible characters or nothing but blanks.

    >>> in_a_line("a"), in_a_line(" "), in_a_line("")
    ('a', "' '", '(empty)')
    """
    if not name:
        return "(empty)"
    return shorten(name if name.isprintable() and not name.isspace() else repr(name))


def listed(names: Iterable[object], most: int = SHOWN_EXAMPLES) -> str:
    """The first names, each so that it fits a line."""
    return examples((in_a_line(str(name)) for name in names), most)


def rows_in_words(rows: Sequence[int], ids: Sequence[str] = (), *, first: int = 0) -> str:
    """The first few of some rows of a file, counted from 1, in words. `rows` count from 0; `ids`
    are those of all rows, if they are known, and `first` is the number of rows that come before.

    >>> rows_in_words([1], ["a", "b"]), rows_in_words([0, 1], first=1024)
    ('row 2 (b)', 'rows 1,025, 1,026')
    """
    shown = [
        f"{first + row + 1:,}" + (f" ({in_a_line(ids[row])})" if len(ids) else "")
        for row in islice(rows, SHOWN_EXAMPLES + 1)
    ]
    return f"{'row' if len(rows) == 1 else 'rows'} {examples(shown, SHOWN_EXAMPLES)}"


def refuse(source: str, problems: Iterable[SubmissionProblem]) -> None:
    """Raise one SubmissionError that lists every fatal problem; return when there is none."""
    fatal = [problem for problem in problems if problem.fatal]
    if fatal:
        raise SubmissionError(f"{shorten(source, 300)} cannot be scored{_lines_of(fatal)}")


def _lines_of(problems: Sequence[SubmissionProblem]) -> str:
    """The problems as text, each on a new line, in at most MESSAGE characters. If the text is too
    long, the example names are shortened more and more, and finally the text itself is cut."""
    for width in (81, 30, 12):
        lines = "".join(f"\n  {_shortened(problem, width)}" for problem in problems)
        if len(lines) <= MESSAGE:
            return lines
    return f"{lines[:MESSAGE]}…"


def _shortened(problem: SubmissionProblem, width: int) -> SubmissionProblem:
    """A problem with each of its examples cut to `width` characters."""
    return replace(problem, examples=tuple(shorten(name, width) for name in problem.examples))
