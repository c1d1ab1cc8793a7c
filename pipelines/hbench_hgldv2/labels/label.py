"""Defines a label: a class of landmarks (a value of Wikidata's "instance of"), with its English
name and its number of landmarks.

>>> (
...     normalised("Synagogue (1630s–1970s)"),
...     head_noun("church of Finland"),
...     normalised("castle (High Middle Ages"),
... )
('synagogue', 'church', 'castle')
"""

import hashlib
import re
import unicodedata
from collections.abc import Iterable, Mapping
from typing import Literal, NamedTuple, get_args

Split = Literal["train", "index"]
SPLITS: tuple[str, ...] = get_args(Split)
# the prefix of the id of a class that is known only by its text, such as one of a released file
PREFIX = "label:"
GROUP = "group:"  # the prefix of the ids of group names among the embeddings


class Label(NamedTuple):
    """A class with its id (a QID, "label:…", or the id from a curator's own table), English label,
    number of landmarks per split, and the categories of three of its landmarks. For an own table,
    `n_train` holds the count of the table."""

    class_id: str
    label: str
    n_train: int
    n_index: int
    n_ambiguous: int
    examples: tuple[str, ...]

    @property
    def landmarks(self) -> int:
        """The number of landmarks that have this class alone."""
        return self.n_train + self.n_index


def normalised(label: str) -> str:
    """Normalise a raw label: remove a "(…)" at its end, even an unclosed one, collapse spaces, fold
    case, and compose characters (NFC)."""
    text = unicodedata.normalize("NFC", label)
    return " ".join(re.sub(r"\s*\([^)]*\)?\s*$", "", text).split()).casefold()


def head_noun(label: str) -> str:
    """Return the last word of a label before "of", "in", "for" and similar words. In English this
    word names the kind of place."""
    phrase = re.split(r"\s+(?:of|in|for|at|on|from|by|with)\s+|,", normalised(label))[0]
    words = re.findall(r"[\w'’-]+", phrase)
    return words[-1] if words else normalised(label)


def digest(class_ids: Iterable[str]) -> str:
    """Return the sha256 of a set of classes, computed from their sorted ids, one per line."""
    return hashlib.sha256("\n".join(sorted(class_ids)).encode()).hexdigest()


def partition_digest(clusters: Mapping[str, int]) -> str:
    """Return the sha256 of a partition of the classes. It does not depend on the numbers and the
    order of the clusters."""
    return digest(digest(members) for members in members_of(clusters).values())


def members_of(clusters: Mapping[str, int]) -> dict[int, list[str]]:
    """Return the sorted classes of each cluster."""
    result: dict[int, list[str]] = {}
    for class_id in sorted(clusters):
        result.setdefault(clusters[class_id], []).append(class_id)
    return result
