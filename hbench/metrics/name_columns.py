"""Compares labels by name, column by column, as the released evaluators do. This differs from the
tree if names do not form a tree.

If several nodes of a level have the same name (homonym genera, "NA"), the released evaluators take
the number of equal columns as the level of a pair, and a metric of one level compares that column
only. For a query without such a name both ways give the same levels, so only the other queries are
ranked by name.

>>> names = np.array([[0, 0], [1, 0], [2, 1]])  # two genera of one name
>>> equal_columns(names[0], names).tolist()
[2, 1, 0]
"""

import hashlib
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hbench.metrics.level_sequence import LevelSequence, Ties, level_sequence
from hbench.tree import Labels


class NamedSequences(NamedTuple):
    """One query's ranking by name. `whole`: the level of an item is the number of its equal
    columns. `columns`: a sequence for each column, coarse to fine, in which items with an equal
    name in that column have level 1."""

    whole: LevelSequence
    columns: tuple[LevelSequence, ...]


def equal_columns(labels: Labels, others: Labels) -> NDArray[np.uint8]:
    """Count the equal columns of labels and others, uint8 (N,). One of the two is (N, L), the other
    the same or a single label (L,). uint8 is enough: a tree has fewer than 256 levels."""
    equal: NDArray[np.uint8] = (labels == others).sum(axis=1, dtype=np.uint8)
    return equal


def named_sequences(
    scores: NDArray[np.floating], equal: NDArray[np.bool_], gallery: NDArray[np.bool_], ties: Ties
) -> NamedSequences:
    """Make the level sequences of one query's list, for all columns of names and for each alone. A
    column holds the names of one level; in a sequence an item's level is its number of names that
    equal the query's.

    `scores` (n,): of the listed items. `equal` (n, L): in which columns their names equal those of
    the query. `gallery` (G, L): the same for all items of the query's gallery, to count the items
    of each level. `ties`: maps a number of levels L to the keys (L + 1,) that order equal scores,
    one for each level 0 … L.
    """

    def sequence(first: int, last: int) -> LevelSequence:
        """The sequence in which an item's level is its number of equal columns among those from
        `first` up to, but not including, `last`."""
        levels = equal[:, first:last].sum(axis=1, dtype=np.uint8)
        counts = np.bincount(gallery[:, first:last].sum(axis=1), minlength=last - first + 1)
        return level_sequence(scores, levels, counts, ties(last - first))

    depth = equal.shape[1]
    return NamedSequences(
        sequence(0, depth), tuple(sequence(column, column + 1) for column in range(depth))
    )


@dataclass(frozen=True)
class NameColumns:
    """The labels by name of the `queries` (Q, L) and the `gallery` (G, L), in a ranker's canonical
    order. Equal names of a column have equal numbers.

    `affected` (Q,): whether the levels of a query differ from those of the tree. `ties`: returns
    the sort keys of equal scores for a number of levels.
    """

    queries: Labels
    gallery: Labels
    affected: NDArray[np.bool_]
    ties: Ties

    def sequences(
        self, query: int, scores: NDArray[np.floating], left_out: NDArray[np.int64]
    ) -> NamedSequences:
        """Make the level sequences by name of one query: one that counts the equal names of all
        columns, and one for each column alone, which metrics of one level read.

        `query`: its row in `self.queries` (Q, L), whose names are numbers by which they are equal
        to those of `self.gallery` (G, L). `scores` (G,): of the gallery for this query. `left_out`
        (n,): the indices of gallery items that are not in its list.
        """
        # `equal` is passed twice: for the listed items, and for the gallery in which the items of
        # each level are counted. Here both are all items that remain.
        equal = np.delete(self.gallery == self.queries[query], left_out, axis=0)
        return named_sequences(np.delete(scores, left_out), equal, equal, self.ties)

    @property
    def digest(self) -> str:
        """The sha256, as hex digits, of the labels by name, by which kept values of other names are
        told from these. `affected` follows from the labels and is not part of it."""
        digest = hashlib.sha256(np.ascontiguousarray(self.queries).data)
        digest.update(np.ascontiguousarray(self.gallery).data)
        return digest.hexdigest()
