"""A label: a class of landmarks, what "instance of" says they are, with its English name and how often it occurs.

>>> normalised("Synagogue (1630s–1970s)"), head_noun("church of Finland"), normalised("castle (High Middle Ages")
('synagogue', 'church', 'castle')
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Iterable, Mapping
from typing import Literal, NamedTuple, get_args

Split = Literal["train", "index"]
SPLITS: tuple[str, ...] = get_args(Split)
PREFIX = "label:"  # the id of a class known by its text only, as in the released files


class Label(NamedTuple):
    """One class: its id (a QID, or "label:…"), English label, landmarks per split, and categories of three of them."""

    class_id: str
    label: str
    n_train: int
    n_index: int
    n_ambiguous: int
    examples: tuple[str, ...]

    @property
    def landmarks(self) -> int:
        """How many landmarks have this class alone."""
        return self.n_train + self.n_index


def normalised(label: str) -> str:
    """A raw label without qualifiers: "(…)" at the end cut even if unclosed, spaces collapsed, case folded, NFC."""
    text = unicodedata.normalize("NFC", label)
    return " ".join(re.sub(r"\s*\([^)]*\)?\s*$", "", text).split()).casefold()


def head_noun(label: str) -> str:
    """The last word of a label before "of", "in", "for" …: what kind of thing English says it is."""
    phrase = re.split(r"\s+(?:of|in|for|at|on|from|by|with)\s+|,", normalised(label))[0]
    words = re.findall(r"[\w'’-]+", phrase)
    return words[-1] if words else normalised(label)


def digest(class_ids: Iterable[str]) -> str:
    """The sha256 of a set of classes, whatever their order: their sorted ids, a line each."""
    return hashlib.sha256("\n".join(sorted(class_ids)).encode()).hexdigest()


def partition_digest(clusters: Mapping[str, int]) -> str:
    """The sha256 of a partition of classes, whatever the clusters' numbers and order."""
    return digest(digest(members) for members in members_of(clusters).values())


def members_of(clusters: Mapping[str, int]) -> dict[int, list[str]]:
    """Cluster -> its classes, sorted."""
    result: dict[int, list[str]] = {}
    for class_id in sorted(clusters):
        result.setdefault(clusters[class_id], []).append(class_id)
    return result
