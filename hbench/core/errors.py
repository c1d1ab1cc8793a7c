"""Defines the one exception family: every refusal says what is wrong, what was expected, what was
found, what to do next.

>>> raise UnknownName("metric", "MAP@R", ["mAP@R", "AP"])
Traceback (most recent call last):
    ...
hbench.core.errors.UnknownName: unknown metric 'MAP@R'
  expected: one of mAP@R, AP
  next:     did you mean 'mAP@R'?
"""

import difflib
import re
from collections.abc import Iterable
from itertools import islice

SHOWN_CHOICES = 30
# What steers a terminal or turns the order of its letters: control characters, marks of direction,
# half pairs.
STEERING = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)


LONG_WORD = re.compile(r"\S{1000,}")
SHOWN_OF_WORD = 200  # letters of a long word
SHOWN_OF_PART = 10_000  # letters of a part of a message


def visible(text: str) -> str:
    """A text from outside as it may be shown: what would steer a terminal is written out; lines and
    tabs stay.

    >>> visible("a\\x1b]0;owned\\x07")
    'a\\\\x1b]0;owned\\\\x07'
    """
    return STEERING.sub(lambda found: ascii(found[0])[1:-1], text)


def readable(text: str) -> str:
    """A text of a length that can be read: the middle of every very long word is left out, such as
    of a name of 100,000 letters, and then the middle of the text, if it is still very long.

    >>> len(readable("a b " + 100_000 * "x"))
    205
    """
    return shorten(
        LONG_WORD.sub(lambda found: shorten(found[0], SHOWN_OF_WORD), text), SHOWN_OF_PART
    )


class HBenchError(Exception):
    """Base of everything hbench refuses; `exit_code` is what the command line ends with.

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
        """Keep the parts, and make the message of them: the problem, and below it a line for each
        part that is given; without what could steer the terminal. `expected`, `found`: what should
        be there, and what is; `fix`: what to do next."""
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
    """A name that no metric, level, dataset, loss, recipe … has; the closest known ones are
    suggested.

    Args:
        kind: what it should name, such as "metric".
        name: as it was given.
        choices: the known names.
        meant: what was meant, where that is known; suggested instead of the closest.
        searched: the folder that was looked in.
        otherwise: what to do next where no known name is close.
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
        """Make the sentences of the refusal; of many known names the first SHOWN_CHOICES are
        listed. What was `meant`, where a caller knows it, goes before names that are near."""
        known = list(choices)
        close = [repr(choice) for choice in closest(name, known)] if meant is None else [meant]
        # a name with a comma in it would read as two
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
    """A server that did not give what was asked for."""

    exit_code = 6


class ComparisonError(HBenchError):
    """A comparison that failed or cannot be made: other signatures, a score that differs, a
    threshold missed.
    """

    exit_code = 7


def closest(name: str, known: Iterable[str], most: int = 3) -> list[str]:
    """The known names nearest to `name`, ignoring case, best first, `most` at most; empty when none
    is near (.65 of difflib's measure of likeness)."""
    # backwards, so that the first of several names that differ in case alone is kept
    by_fold = {candidate.casefold(): candidate for candidate in reversed([*known])}
    return [
        by_fold[fold]
        for fold in difflib.get_close_matches(name.casefold(), by_fold, n=most, cutoff=0.65)
    ]


def examples(values: Iterable[object], most: int = 5) -> str:
    """The first `most` values as text, long ones cut, with an ellipsis when there are more.

    >>> examples(range(8), most=3)
    '0, 1, 2, …'
    """
    # one more than is shown tells whether there are more; the values may be without end
    listed = [shorten(str(value)) for value in islice(values, most + 1)]
    return ", ".join(listed[:most]) + (", …" if len(listed) > most else "")


def shorten(text: str, most: int = 80) -> str:
    """A text that fits a line: the middle of a very long one is left out.

    >>> shorten("a" * 50 + "b" * 50, most=10)
    'aaaaa…bbbbb'
    """
    return text if len(text) <= most else f"{text[: most // 2]}…{text[-most // 2 :]}"


def one_line(text: str) -> str:
    """A text without line breaks, so that it stays in its comment, heading or cell, and without
    what steers a terminal.

    >>> one_line("mine\\n\\\\input{x}")
    'mine \\\\input{x}'
    """
    return visible(" ".join(text.split()))
