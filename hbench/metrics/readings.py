"""Readings of partial labels: how lists with items of unknown level become level sequences.

Under partial labels the level of a pair may be known only to be between l and L
(hbench.tree.partial). A list then has codes in place of levels: 0 for a distractor, 2l − 1 for an
item that is known to be at level l, 2l for an item at one of the levels l … L. A *reading* converts
codes to levels: it leaves some items out, as if they were not in the gallery, and assigns a level
to each other item.

>>> coded = LevelSequence(
...     np.array([1, 2, 4]), np.array([3, 2, 1], np.uint8), np.array([3, 1, 1, 1])
... )  # of two levels
>>> [
...     known(2).of(coded).levels.tolist(),
...     wrong(2).of(coded).levels.tolist(),
...     right(2).of(coded).levels.tolist(),
... ]
[[2, 1], [2, 1, 1], [2, 2, 1]]
>>> (
...     known(2).of(coded).ranks.tolist(),
...     at_level(2, 1).of(coded).ranks.tolist(),
...     at_level(2, 2).of(coded).ranks.tolist(),
... )
([1, 3], [1, 2, 4], [1])
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hbench.metrics.level_sequence import LevelSequence


class Reading(NamedTuple):
    """A conversion of the codes 0 … 2L − 1 to levels. `stays` (2L,): whether an item of this code
    stays in the list. `level` (2L,): the level that it then counts as.
    """

    name: str
    stays: NDArray[np.bool_]
    level: NDArray[np.uint8]

    def of(self, sequence: LevelSequence) -> LevelSequence:
        """Convert a sequence of codes to a level sequence. Items that do not stay are removed, and
        later items move up. Items that count as level 0 become distractors. `tied`, one truth value
        for the whole sequence, is kept.

        `self.stays`, `self.level` (2L,), by code: whether an item stays, and the level that it
        counts as.
        """
        stays = self.stays[sequence.levels]
        listed = stays & (self.level[sequence.levels] > 0)
        # an item moves up by the number of removed items before it
        ranks = sequence.ranks - np.cumsum(~stays)
        levels = self.level[sequence.levels[listed]]
        return LevelSequence(
            ranks=ranks[listed],
            levels=levels,
            counts=self.counts(sequence.counts),
            tied=sequence.tied,
        )

    def counts(self, by_code: NDArray[np.int64]) -> NDArray[np.int64]:
        """Convert counts of items by code, (…, 2L), to counts by level, (…, highest level + 1)."""
        # (2L, levels): 1 where items of a code stay and count as this level
        of_level = (self.level[:, None] == np.arange(self.level.max() + 1)) & self.stays[:, None]
        counts: NDArray[np.int64] = by_code @ of_level.astype(np.int64)
        return counts


def known(depth: int) -> Reading:
    """The reading that leaves items of unknown level out of the list. `depth`: the number of
    levels."""
    lowest, is_known = _codes(depth)
    return Reading(name="known", stays=is_known, level=lowest)


def wrong(depth: int) -> Reading:
    """The reading that gives a lower bound of a metric: an item counts as the lowest level that is
    possible for it, as if every unknown label were wrong. `depth`: the number of levels."""
    # (2L,) each, by code: the lowest level that is possible, and whether the level is known
    lowest, is_known = _codes(depth)
    # no item is left out of the list
    return Reading(name="wrong", stays=np.ones_like(is_known), level=lowest)


def right(depth: int) -> Reading:
    """The reading that gives an upper bound of a metric: an item of unknown level counts as the
    finest level, as if every unknown label were right. `depth`: the number of levels."""
    # for the codes 0 … 2L − 1: the lowest level that is possible, and whether the level is known
    lowest, is_known = _codes(depth)
    return Reading(
        name="right",
        stays=np.ones_like(is_known),  # no item is left out of the list
        level=np.where(is_known, lowest, np.uint8(depth)),
    )


def at_level(depth: int, level: int) -> Reading:
    """The reading for metrics of one `level` out of `depth`. The positives, as level 1, are the
    items that are known to be at that level or a finer one. Items that may or may not be positives
    are left out."""
    # (2L,) each, by code: the lowest level that it may stand for, and whether that is its level
    lowest, is_known = _codes(depth)
    positive = lowest >= level
    stays = is_known | positive  # the others may or may not be positives
    return Reading(name=f"level {level}", stays=stays, level=positive.astype(np.uint8))


def _codes(depth: int) -> tuple[NDArray[np.uint8], NDArray[np.bool_]]:
    """Return, for every code 0 … 2L − 1, the lowest possible level and whether the level is known:
    two arrays (2L,), L the `depth`. Code 0 is a distractor, 2l − 1 an item that is known to be at
    level l, 2l an item at level l or finer."""
    codes = np.arange(2 * depth)
    return ((codes + 1) // 2).astype(np.uint8), (codes % 2 == 1) | (codes == 0)
