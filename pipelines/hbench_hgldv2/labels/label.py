"""Defines a label: a class of landmarks, as "instance of" states it, with its English name and its
number of landmarks.

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
# begins the id of a class that is known by its text only, such as in the released files
PREFIX = "label:"
GROUP = "group:"  # begins the ids of group names among the embeddings


class Label(NamedTuple):
    """A class: its id (a QID, "label:…", or that of an own table), English label, landmarks per
    split, and three landmarks' categories. The count of an own table stands in `n_train`.
    """

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
    """Normalise a raw label: cut "(…)" at its end, even if unclosed, collapse spaces, fold case;
    NFC.
    """
    text = unicodedata.normalize("NFC", label)
    return " ".join(re.sub(r"\s*\([^)]*\)?\s*$", "", text).split()).casefold()


def head_noun(label: str) -> str:
    """Return the last word of a label before "of", "in", "for" …, which in English names the kind
    of thing.
    """
    phrase = re.split(r"\s+(?:of|in|for|at|on|from|by|with)\s+|,", normalised(label))[0]
    words = re.findall(r"[\w'’-]+", phrase)
    return words[-1] if words else normalised(label)


def digest(class_ids: Iterable[str]) -> str:
    """Return the sha256 of a set of classes: of their sorted ids, in a line each."""
    return hashlib.sha256("\n".join(sorted(class_ids)).encode()).hexdigest()


def partition_digest(clusters: Mapping[str, int]) -> str:
    """Return the sha256 of a partition of classes, independent of the numbers and order of the
    clusters.
    """
    return digest(digest(members) for members in members_of(clusters).values())


def members_of(clusters: Mapping[str, int]) -> dict[int, list[str]]:
    """Return cluster -> classes, sorted."""
    result: dict[int, list[str]] = {}
    for class_id in sorted(clusters):
        result.setdefault(clusters[class_id], []).append(class_id)
    return result
