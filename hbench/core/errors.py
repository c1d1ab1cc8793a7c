"""Defines the exceptions of hbench. Every message says what is wrong, what was expected, what was
found, and what to do next.

>>> raise UnknownName("metric", "MAP@R", ["mAP@R", "AP"])
Traceback (most recent call last):
    ...
hbench.core.errors.UnknownName: unknown metric 'MAP@R'
  expected: one of mAP@R, AP
  next:     did you mean 'mAP@R'?
"""

import difflib
import re
from collections.abc import Iterable, Iterator
from itertools import islice

SHOWN_CHOICES = 30
# characters that control a terminal or change the order of its letters: control characters, marks
# of direction, lone surrogates
STEERING = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)


LONG_WORD = re.compile(r"\S{1000,}")
SHOWN_OF_WORD = 200  # letters of a long word
SHOWN_OF_PART = 10_000  # letters of a part of a message


def visible(text: str) -> str:
    """Make a text from outside safe to print: characters that control a terminal are escaped; line
    breaks and tabs stay.

    >>> visible("a\\x1b]0;owned\\x07")
    'a\\\\x1b]0;owned\\\\x07'
    """
    return STEERING.sub(lambda found: ascii(found[0])[1:-1], text)


def readable(text: str) -> str:
    """Shorten a text to a readable length: the middle of each very long word is left out, and then
    the middle of the text if it is still very long.

    >>> len(readable("a b " + 100_000 * "x"))
    205
    """
    return shorten(
        LONG_WORD.sub(lambda found: shorten(found[0], SHOWN_OF_WORD), text), SHOWN_OF_PART
    )


class HBenchError(Exception):
    """Base class of hbench's errors. `exit_code`: the exit status of the command line.

    Args:
        problem: what was read and what is wrong with it.
        expected: what would be right.
        found: what was there instead.
        fix: what to do next.
    """

    exit_code = 1

    def __init__(
        self,
        problem: str,
        *,
        expected: str | None = None,
        found: str | None = None,
        fix: str | None = None,
    ) -> None:
        """Keep the parts and compose the message: the problem, and below it a line for each other
        part that is given. Very long words and parts are shortened (`readable`), and characters
        that control a terminal are escaped (`visible`)."""
        self.problem = problem
        self.expected = expected
        self.found = found
        self.fix = fix
        parts = [("expected", expected), ("found", found), ("next", fix)]
        lines = [f"  {name + ':':<10}{readable(text)}" for name, text in parts if text]
        super().__init__(visible("\n".join([readable(problem), *lines])))


class UsageError(HBenchError):
    """Options that do not go together, or a value outside its range."""

    exit_code = 2


class UnknownName(UsageError):
    """A name that no metric, level, dataset, loss, recipe … has. The message suggests the closest
    known names.

    Args:
        kind: what the name should be of, such as "metric".
        name: the unknown name.
        choices: the known names.
        meant: the suggestion, where the caller knows what was meant; replaces the closest names.
        searched: the folder that was searched.
        otherwise: what to do next if no known name is close.
    """

    def __init__(
        self,
        kind: str,
        name: str,
        choices: Iterable[str],
        *,
        meant: str | None = None,
        searched: object = None,
        otherwise: str | None = None,
    ) -> None:
        """Compose the message. At most SHOWN_CHOICES of the known names are listed.

        `kind`: what the name should be of, such as "metric". `meant`: the suggestion, if the caller
        knows what was meant; it replaces the close names. `searched`: the folder that was searched.
        `otherwise`: what to do next if no known name is close.
        """
        known = list(choices)
        close = [repr(choice) for choice in closest(name, known)] if meant is None else [meant]
        # a name with a comma is quoted: it would read as two names
        listed = [repr(each) if "," in each else each for each in known[:SHOWN_CHOICES]]
        shown = ", ".join(listed) + (" …" if len(known) > SHOWN_CHOICES else "")
        super().__init__(
            f"unknown {kind} {shorten(name)!r}",
            expected=f"one of {shown}" if known else f"no {kind} is known here",
            found=f"nothing of this name in {searched}" if searched else None,
            fix=f"did you mean {' or '.join(close)}?" if close else otherwise,
        )


class SubmissionError(HBenchError):
    """An embedding or ranking file, or a report, that cannot be scored as it is."""

    exit_code = 3


class TreeError(HBenchError):
    """Labels that do not form a tree."""

    exit_code = 3


class ConfigError(HBenchError):
    """A recipe, a leaderboard file or a setting that breaks its schema."""

    exit_code = 3


class DataError(HBenchError):
    """Dataset files that are missing or cannot be used."""

    exit_code = 4


class IntegrityError(HBenchError):
    """A file whose size, checksum, digest or counts are not the recorded ones."""

    exit_code = 5


class SourceError(HBenchError):
    """A server that did not return what was requested."""

    exit_code = 6


class ComparisonError(HBenchError):
    """A comparison that failed or cannot be made: other signatures, a score that differs, a
    threshold missed.
    """

    exit_code = 7


def lines_through(error: BaseException) -> Iterator[tuple[str, str]]:
    """Yield the lines that an error passed through, the outermost first: the name of the module,
    and "FILE, line N"."""
    at = error.__traceback__
    while at is not None:
        frame = at.tb_frame
        yield (
            frame.f_globals.get("__name__", ""),
            f"{frame.f_code.co_filename}, line {at.tb_lineno}",
        )
        at = at.tb_next


def closest(name: str, known: Iterable[str], most: int = 3) -> list[str]:
    """Return up to `most` known names that are similar to `name`, ignoring case, the most similar
    first. Similar means a ratio of at least .65 by difflib."""
    # in reverse, so that of several names that differ only in case the first is kept
    by_fold = {candidate.casefold(): candidate for candidate in reversed([*known])}
    return [
        by_fold[fold]
        for fold in difflib.get_close_matches(name.casefold(), by_fold, n=most, cutoff=0.65)
    ]


def examples(values: Iterable[object], most: int = 5) -> str:
    """List the first `most` values as text, with an ellipsis if there are more. Long ones are cut.

    >>> examples(range(8), most=3)
    '0, 1, 2, …'
    """
    # one value more than is shown tells whether there are more; `values` may be infinite
    listed = [shorten(str(value)) for value in islice(values, most + 1)]
    return ", ".join(listed[:most]) + (", …" if len(listed) > most else "")


def shorten(text: str, most: int = 80) -> str:
    """Leave out the middle of a text of more than `most` characters: `most` of them remain, around
    an ellipsis.

    >>> shorten("a" * 50 + "b" * 50, most=10)
    'aaaaa…bbbbb'
    """
    return text if len(text) <= most else f"{text[: most // 2]}…{text[-most // 2 :]}"


def one_line(text: str) -> str:
    """Remove line breaks from a text, so that it stays within its comment, heading or cell, and
    escape characters that control a terminal.

    >>> one_line("mine\\n\\\\input{x}")
    'mine \\\\input{x}'
    """
    return visible(" ".join(text.split()))
