"""Tells which part of a file holds the vectors and which the ids: by their usual names, else by
what fits.

Where no part has a usual name, the only table of numbers and the only list of different texts (or
whole numbers) of its length are taken, and said.

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
from hbench.submissions.embeddings.ids import the_one_named

KINDS = {str: "U", int: "i"}
NUMBERED = re.compile(r"(.*?)(\d+)")


class ArrayPart(NamedTuple):
    """One array of a file: its name, shape, and the kind of its type as NumPy has it ("f" for
    floats, "U" for texts, "O" for pickled objects). `values` are those of a list, as texts, or a
    function that reads them."""

    name: str
    shape: tuple[int, ...]
    kind: str
    values: Sequence[str] | Callable[[], Sequence[str]] = ()

    def are_unique(self) -> bool:
        """Whether all values of a list differ, as ids do; they are read here, if not before."""
        values = self.values() if callable(self.values) else self.values
        return len(set(values)) == self.shape[0]

    def __str__(self) -> str:
        """The part as an error lists it: its name and shape."""
        return f"{shorten(self.name, 40) or '(empty)'} {self.shape}"


def list_part(name: str, values: Sequence[Any]) -> ArrayPart:
    """A list of texts or of whole numbers as a part; one of anything else has a kind that is
    neither ids nor vectors.

    >>> list_part("ids", ["a", "b"]).kind, list_part("mixed", ["a", 1]).kind
    ('U', '?')
    """
    types = {type(value) for value in values}
    kind = KINDS.get(types.pop(), "?") if len(types) == 1 else "?"
    return ArrayPart(name, (len(values),), kind, values)


def named(parts: Sequence[ArrayPart], known: Container[str]) -> list[str]:
    """The names of the parts that are known ones, in any case of their letters."""
    return [part.name for part in parts if words.folded(part.name) in known]


def vectors_among(parts: Sequence[ArrayPart], source: object, what: str) -> str:
    """The name of the part of a file that holds the vectors: by a usual name, else the only table
    of floats, (n, D) with D > 1, with other words for vectors going first. Raises SubmissionError,
    which lists the parts, where none or several may; `source`, `what`: the file, and what is looked
    for, in its words.
    """
    usual = named(parts, words.VECTORS)
    if usual:
        return the_one_named(usual, usual, what, source)  # raises for several
    fitting = [
        part for part in parts if len(part.shape) == 2 and part.kind == "f" and part.shape[1] != 1
    ]
    fitting = [part for part in fitting if named([part], words.OTHER_VECTORS)] or fitting
    if len(fitting) != 1:
        raise SubmissionError(
            f"{source} has {'several' if fitting else 'no'} {what}",
            expected="exactly one named embedding or embeddings",
            found=examples(fitting or parts) or "nothing",
        )
    return fitting[0].name


def ids_among(
    parts: Sequence[ArrayPart], count: int, source: object, what: str, *, given: bool = False
) -> str | None:
    """The name of the part that holds the ids of `count` vectors; None where it is not sure, or
    none has a usual name and ids are `given` elsewhere. Raises SubmissionError where several have a
    usual name; `source`, `what`: the file, and what is looked for, in its words."""
    usual = named(parts, words.SURE_IDS)
    # the_one_named raises for several
    if usual or given:
        return the_one_named(usual, usual, what, source) if usual else None
    lists = [part for part in parts if part.shape == (count,)]
    texts = [part for part in lists if part.kind in "US" and part.are_unique()]
    numbers = [part for part in lists if part.kind in "iu" and part.are_unique()]
    called_so = [part for part in texts if named([part], words.OTHER_IDS)]
    for fitting in (texts, called_so):
        if len(fitting) == 1:
            return fitting[0].name
    # numbers may be labels, which are taken for ids only where nothing else can be
    if not texts and len(numbers) == 1:
        return numbers[0].name
    return None


def as_words(vectors: str, ids: str | None) -> str:
    """Which names were taken for vectors and for ids, in words, where one of them is not a usual
    name; "" where both are. `ids` None: they came from elsewhere."""
    of_usual_ids = ids is None or words.folded(ids) in words.SURE_IDS
    if words.folded(vectors) in words.VECTORS and of_usual_ids:
        return ""
    of_ids = "" if ids is None else f", with the ids of {shorten(ids, 60)}"
    return f"vectors, of {shorten(vectors, 60)}{of_ids}"


def are_all_vectors(parts: Sequence[ArrayPart]) -> bool:
    """Whether every part is the vector of the id that it is named by: floats, all of one length
    greater than 1, of shape (D,) or (1, D).
    """
    if not parts or not all(part.kind == "f" for part in parts):
        return False
    # a model's output for one image is a batch of one, (1, D)
    are_rows = all(
        len(part.shape) == 1 or (len(part.shape) == 2 and part.shape[0] == 1) for part in parts
    )
    lengths = {part.shape[-1] for part in parts if part.shape}
    return are_rows and len(lengths) == 1 and lengths.pop() > 1


def dimension_columns(names: Sequence[str]) -> tuple[str, ...]:
    """The names that count the dimensions of vectors, from 0 or 1 (f0, f1 …), in this order; empty
    where no names do, or several families of them.

    >>> dimension_columns(["id", "f1", "f0", "f2", "label"])
    ('f0', 'f1', 'f2')
    """
    # the text before the number -> number -> name
    families: dict[str, dict[int, str]] = defaultdict(dict)
    for name in names:
        # longer numbers are no dimensions, but, say, dates
        if (match := NUMBERED.fullmatch(name)) and len(match[2]) < 10:
            families[match[1]][int(match[2])] = name
    counted = [family for family in families.values() if len(family) > 1 and _is_count(family)]
    if len(counted) != 1:
        return ()
    (family,) = counted
    return tuple(family[number] for number in sorted(family))


def _is_count(numbers: Collection[int]) -> bool:
    """Whether numbers are 0, 1, 2 …, or 1, 2, 3 …, without a gap."""
    first = min(numbers)
    return first in (0, 1) and sorted(numbers) == list(range(first, first + len(numbers)))
