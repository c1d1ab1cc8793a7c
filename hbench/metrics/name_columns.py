"""Labels compared by name, column by column, as the released evaluators do where the names do not
form a tree.

Where one name stands for several nodes of a level (homonym genera, "NA"), the released level of a
pair is the number of its equal columns, and a metric at one level looks at that column alone. A
query without such a name sees the levels that the tree gives; only the others have to be ranked by
name.

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
    """One query's ranking by name: `whole`, the level being the number of equal columns 1 … L, and
    of every column, coarse to fine, the sequence whose only level is being equal there."""

    whole: LevelSequence
    columns: tuple[LevelSequence, ...]


def equal_columns(labels: Labels, others: Labels) -> NDArray[np.uint8]:
    """Count the columns in which labels (N, L) equal others, one label (L,) or one for each (N, L):
    uint8 (N,), as there are fewer than 256 levels."""
    equal: NDArray[np.uint8] = (labels == others).sum(axis=1, dtype=np.uint8)
    return equal


def named_sequences(
    scores: NDArray[np.floating], equal: NDArray[np.bool_], gallery: NDArray[np.bool_], ties: Ties
) -> NamedSequences:
    """The level sequences of one query's list: of all columns of names, and of each alone.

    `scores` (n,): of the list's items; `equal` (n, L): the columns in which their names are the
    query's; `gallery` (G, L): the same of every item that could be in the list, for the counts.
    """

    def sequence(first: int, last: int) -> LevelSequence:
        """That of the columns from `first` to `last`: the level is the number of equal ones."""
        levels = equal[:, first:last].sum(axis=1, dtype=np.uint8)
        counts = np.bincount(gallery[:, first:last].sum(axis=1), minlength=last - first + 1)
        return level_sequence(scores, levels, counts, ties(last - first))

    depth = equal.shape[1]
    return NamedSequences(
        sequence(0, depth), tuple(sequence(column, column + 1) for column in range(depth))
    )


@dataclass(frozen=True)
class NameColumns:
    """Labels by name of the `queries` (Q, L) and of the `gallery` (G, L), numbered alike, in the
    canonical order of a ranker.

    `affected` (Q,): the queries whose levels are not those of the tree. `ties`: from a number of
    levels to the keys by which equal scores are ordered.
    """

    queries: Labels
    gallery: Labels
    affected: NDArray[np.bool_]
    ties: Ties

    def sequences(
        self, query: int, scores: NDArray[np.floating], left_out: NDArray[np.int64]
    ) -> NamedSequences:
        """The level sequences by name of one query, its number in canonical order, from its row of
        `scores` (G,); `left_out` (n,): the columns of items that are not in its list. `queries` (Q,
        L), `gallery` (G, L): their labels by name, numbered alike.
        """
        # after that all items are in the list, so they are also those that are counted
        equal = np.delete(self.gallery == self.queries[query], left_out, axis=0)
        return named_sequences(np.delete(scores, left_out), equal, equal, self.ties)

    @property
    def digest(self) -> str:
        """sha256, as hex digits, of the labels by name: values kept for other names are not these.
        What follows from the labels, such as `affected`, is left out."""
        digest = hashlib.sha256(np.ascontiguousarray(self.queries).data)
        digest.update(np.ascontiguousarray(self.gallery).data)
        return digest.hexdigest()
