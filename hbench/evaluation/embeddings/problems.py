"""A problem: one kind of fault in a submitted file, with its count, first examples and the fix; all are told at once.

>>> print(SubmissionProblem("missing ids", 12, ("a.png", "b.png"), "embed these items as well"))
12 missing ids (a.png, b.png, …)
    next: embed these items as well
>>> likely_cause(["cat/1.png", "dog/2.png"], ["cat/1", "dog/2"])
"ids lack the ending '.png': 'cat/1' should be 'cat/1.png'"
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice

from hbench.core.errors import SubmissionError, examples

SHOWN = 5
SAMPLE = 1000

Spelling = Callable[[str], str]


@dataclass(frozen=True)
class SubmissionProblem:
    """`count` faults of one kind, the first five by name, and `fix`, the next step.

    A remark (not fatal) refuses nothing; its `fix` says what is made of it.
    """

    kind: str
    count: int
    examples: tuple[str, ...] = ()
    fix: str | None = None
    fatal: bool = True

    def __str__(self) -> str:
        more = ", …" if self.count > len(self.examples) else ""
        named = f" ({', '.join(self.examples)}{more})" if self.examples else ""
        told = f"{self.count:,} {self.kind}{named}"
        if not self.fix:
            return told
        return f"{told}\n    next: {self.fix}" if self.fatal else f"{told}: {self.fix}"


def found(
    kind: str, names: Iterable[object], count: int, fix: str | None = None, *, fatal: bool = True
) -> list[SubmissionProblem]:
    """One problem with the first five of `names`, or none when `count` is 0."""
    shown = tuple(shorten(str(name)) for name in islice(names, SHOWN))
    return [SubmissionProblem(kind, count, shown, fix, fatal)] if count else []


def refuse(source: str, problems: Iterable[SubmissionProblem]) -> None:
    """Raise one SubmissionError that lists every fatal problem; return when there is none."""
    fatal = [problem for problem in problems if problem.fatal]
    if fatal:
        lines = "".join(f"\n  {problem}" for problem in fatal)
        raise SubmissionError(f"{source} cannot be scored{lines}")


def shorten(name: str, most: int = 120) -> str:
    """A name that fits a line: control characters escaped, the middle of a very long one left out."""
    plain = name if name.isprintable() and name else repr(name)
    return plain if len(plain) <= most else f"{plain[: most // 2]}…{plain[-most // 2 :]}"


def likely_cause(wanted: Sequence[str], unknown: Sequence[str]) -> str | None:
    """Why unknown ids stand for wanted ones: the first spelling in which half of them or more meet, else None.

    The first 1,000 of the shorter list are looked for in the whole of the longer one.
    """
    if not wanted or not unknown:
        return None
    for difference, of_wanted, of_unknown in SPELLINGS:
        pairs = _meeting(wanted, unknown, of_wanted, of_unknown)
        if pairs:
            return _told(pairs, difference)
    if all(name.isdecimal() for name in unknown[:SAMPLE]):
        return f"ids look like row numbers: give the items' names, such as {examples(map(repr, wanted), most=2)}"
    return None


def _meeting(
    wanted: Sequence[str], unknown: Sequence[str], of_wanted: Spelling, of_unknown: Spelling
) -> list[tuple[str, str]]:
    """(unknown, wanted) ids that become equal; empty unless half of the sample has a partner."""
    if len(unknown) < len(wanted):
        return [(mine, other) for other, mine in _meeting(unknown, wanted, of_unknown, of_wanted)]
    sample = {of_wanted(name): name for name in wanted[:SAMPLE]}
    enough = (min(len(wanted), SAMPLE) + 1) // 2
    partners: dict[str, str] = {}
    for name in unknown:
        common = of_unknown(name)
        if common in sample:
            partners.setdefault(common, name)
            if len(partners) == enough:
                return [(partners[common], sample[common]) for common in partners]
    return []


def _told(pairs: list[tuple[str, str]], difference: str) -> str:
    """The difference in words, by its very letters when all pairs (unknown, wanted) share them."""
    unknown, wanted = pairs[0]
    same = {how: {part(*pair) for pair in pairs} for how, part in AFFIXES}
    told = [f"{how} {min(parts)!r}" for how, parts in same.items() if len(parts) == 1 and parts != {""}]
    how = told[0] if told else f"differ by {difference}"
    return f"ids {how}: {shorten(repr(unknown))} should be {shorten(repr(wanted))}"


def _without_suffix(name: str) -> str:
    folder, slash, last = name.rpartition("/")
    return folder + slash + (last.rpartition(".")[0] or last)


def _last(name: str) -> str:
    return name.rpartition("/")[2]


def _with_slashes(name: str) -> str:
    return name.replace("\\", "/")


def _as_is(name: str) -> str:
    return name


def _composed(name: str) -> str:
    return unicodedata.normalize("NFC", name)


def _file_name(name: str) -> str:
    return _last(_with_slashes(name))


def _stem(name: str) -> str:
    return _without_suffix(_file_name(name))


SPELLINGS: tuple[tuple[str, Spelling, Spelling], ...] = (
    ("blanks", str.strip, str.strip),
    ("backslashes", _with_slashes, _with_slashes),
    ("letter case", str.casefold, str.casefold),
    ("the Unicode normal form", _composed, _composed),
    ("the suffix", _without_suffix, _as_is),
    ("the suffix", _as_is, _without_suffix),
    ("the suffix", _without_suffix, _without_suffix),
    ("the leading folder", _last, _last),
    ("the leading folder", _file_name, _file_name),
    ("the leading folder and the suffix", _stem, _stem),
)

AFFIXES: tuple[tuple[str, Callable[[str, str], str]], ...] = (
    ("lack the ending", lambda unknown, wanted: wanted[len(unknown) :] if wanted.startswith(unknown) else ""),
    ("have an extra ending", lambda unknown, wanted: unknown[len(wanted) :] if unknown.startswith(wanted) else ""),
    ("lack the beginning", lambda unknown, wanted: wanted.removesuffix(unknown) if wanted.endswith(unknown) else ""),
    (
        "have an extra beginning",
        lambda unknown, wanted: unknown.removesuffix(wanted) if unknown.endswith(wanted) else "",
    ),
)
