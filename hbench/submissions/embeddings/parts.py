"""Finds the part of a file that holds the vectors, and the part that holds the ids: by their usual
names, else by shape and type.

If no part has a usual name, the only table of floats is taken for the vectors, and the only list of
different texts (or integers) of the same length for the ids. The user is told so.

>>> parts = [ArrayPart("feats", (2, 3), "f"), ArrayPart("paths", (2,), "U", ("a.png", "b.png"))]
>>> name = vectors_among(parts, "emb.npz", "array of vectors")
>>> name, ids_among(parts, 2, "emb.npz", "array of ids"), as_words(name, "paths")
('feats', 'paths', 'vectors, of feats, with the ids of paths')
"""

import re
from collections import defaultdict
from collections.abc import Callable, Collection, Container, Sequence
from typing import Any, NamedTuple

from hbench.core.errors import SubmissionError, examples, shorten
from hbench.sheets import words
from hbench.submissions.embeddings.ids import the_only_one

KINDS = {str: "U", int: "i"}  # NumPy's letters for the types of ids
NUMBERED = re.compile(r"(.*?)(\d+)")  # f12: a family of names, and a number


class ArrayPart(NamedTuple):
    """One array or list of a file, described so that vectors and ids can be found."""

    name: str
    shape: tuple[int, ...]
    kind: str  # as in NumPy's `dtype.kind`: "f" floats, "U" texts, "O" objects; "?" others
    # the values of a list, or a function that reads them
    values: Sequence[str] | Callable[[], Sequence[str]] = ()

    def are_unique(self) -> bool:
        """Whether all values of a list differ, as those of ids do. They are read now if `values` is
        a function."""
        values = self.values() if callable(self.values) else self.values
        return len(set(values)) == self.shape[0]

    def __str__(self) -> str:
        """The name and shape of the part, for errors."""
        return f"{shorten(self.name, 40) or '(empty)'} {self.shape}"


def list_part(name: str, values: Sequence[Any]) -> ArrayPart:
    """Describe a list as a part. A list that has neither only texts nor only integers gets the kind
    "?", which fits neither ids nor vectors.

    >>> list_part("ids", ["a", "b"]).kind, list_part("mixed", ["a", 1]).kind
    ('U', '?')
    """
    types = {type(value) for value in values}
    kind = KINDS.get(types.pop(), "?") if len(types) == 1 else "?"
    return ArrayPart(name, (len(values),), kind, values)


def named(parts: Sequence[ArrayPart], known: Container[str]) -> list[str]:
    """The names of those parts whose name is `known`; upper and lower case do not matter."""
    return [part.name for part in parts if words.folded(part.name) in known]


def vectors_among(parts: Sequence[ArrayPart], source: object, what: str) -> str:
    """The name of the part that holds the vectors. A usual name decides, else it is the only table
    of floats (n, D) with D ≠ 1; tables with a less usual name for vectors take precedence.

    Raises SubmissionError, which lists the parts, if none or several fit. `source` is the file, and
    `what` the term for the part in this format, both for errors.
    """
    usual = named(parts, words.VECTORS)
    if usual:
        return the_only_one(usual, what, source)
    fitting = [
        part for part in parts if len(part.shape) == 2 and part.kind == "f" and part.shape[1] != 1
    ]
    fitting = [part for part in fitting if named([part], words.OTHER_VECTORS)] or fitting
    if len(fitting) != 1:
        raise SubmissionError(
            f"{source} has {'more than one' if fitting else 'no'} {what}",
            expected="exactly one named embedding or embeddings",
            found=examples(fitting or parts) or "nothing",
        )
    return fitting[0].name


def ids_among(
    parts: Sequence[ArrayPart], count: int, source: object, what: str, *, given: bool = False
) -> str | None:
    """The name of the part that holds the ids of the vectors; None if it is not clear which one.

    Raises SubmissionError if several parts have a usual name.

    Args:
        count: the number of vectors.
        source: the file, for errors.
        what: the term for the part in this format, for errors.
        given: whether the user gave a file of ids. Then only a part with a usual name is returned.
    """
    usual = named(parts, words.SURE_IDS)
    if usual:
        # the only part with a usual name; raises if there are several
        return the_only_one(usual, what, source)
    if given:
        return None
    lists = [part for part in parts if part.shape == (count,)]
    texts = [part for part in lists if part.kind in "US" and part.are_unique()]
    numbers = [part for part in lists if part.kind in "iu" and part.are_unique()]
    with_id_name = [part for part in texts if named([part], words.OTHER_IDS)]
    for fitting in (texts, with_id_name):
        if len(fitting) == 1:
            return fitting[0].name
    # integers may be labels, so they are only taken for ids if no texts can be the ids
    if not texts and len(numbers) == 1:
        return numbers[0].name
    return None


def as_words(vectors: str, ids: str | None) -> str:
    """Which names were taken for vectors and for ids, in words; "" if both are usual names. `ids`
    is None if they come from another file."""
    has_usual_ids = ids is None or words.folded(ids) in words.SURE_IDS
    if words.folded(vectors) in words.VECTORS and has_usual_ids:
        return ""
    of_ids = "" if ids is None else f", with the ids of {shorten(ids, 60)}"
    return f"vectors, of {shorten(vectors, 60)}{of_ids}"


def are_all_vectors(parts: Sequence[ArrayPart]) -> bool:
    """Whether every part is one vector, whose id is the name of the part: floats of shape (D,) or
    (1, D), with the same D > 1 for all parts.
    """
    if not parts or not all(part.kind == "f" for part in parts):
        return False
    # a model that embeds one image returns a batch of one, (1, D)
    are_rows = all(
        len(part.shape) == 1 or (len(part.shape) == 2 and part.shape[0] == 1) for part in parts
    )
    lengths = {part.shape[-1] for part in parts if part.shape}
    return are_rows and len(lengths) == 1 and lengths.pop() > 1


def dimension_columns(names: Sequence[str]) -> tuple[str, ...]:
    """The names that number the dimensions of vectors from 0 or 1 (f0, f1 …), in order of their
    numbers. Empty if there are no such names, or several families of them.

    >>> dimension_columns(["id", "f1", "f0", "f2", "label"])
    ('f0', 'f1', 'f2')
    """
    # from the text before the number to a dictionary from the number to the name
    families: dict[str, dict[int, str]] = defaultdict(dict)
    for name in names:
        # a longer number is no dimension, but, say, a date
        if (match := NUMBERED.fullmatch(name)) and len(match[2]) < 10:
            families[match[1]][int(match[2])] = name
    counted = [family for family in families.values() if len(family) > 1 and _is_count(family)]
    if len(counted) != 1:
        return ()
    (family,) = counted
    return tuple(family[number] for number in sorted(family))


def _is_count(numbers: Collection[int]) -> bool:
    """Whether the numbers, in any order, are 0, 1, 2 … or 1, 2, 3 … without a gap."""
    first = min(numbers)
    return first in (0, 1) and sorted(numbers) == list(range(first, first + len(numbers)))
