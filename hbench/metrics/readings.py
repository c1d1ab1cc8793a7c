"""Readings of partial labels: how a list that holds items of unknown level is read.

The level of a pair may be known only to lie between l and L (hbench.tree.partial). A list says so
by codes in place of levels: 0 a distractor, 2l − 1 an item known to be at level l, 2l one at level
l … L. A *reading* makes levels of them: it leaves some items out, as if they were not in the
gallery, and takes each other one for some level.

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
    """The meaning of every code, two arrays (2L,): whether an item `stays` in the list, and the
    `level` it then counts as.
    """

    name: str
    stays: NDArray[np.bool_]
    level: NDArray[np.uint8]

    def of(self, sequence: LevelSequence) -> LevelSequence:
        """The level sequence of a sequence of codes, as this reading has it: an item that does not
        stay gives its rank up to those behind it, one of level 0 is a distractor from then on.
        `stays` and `level`, by code: whether an item stays in the list, and which level it counts
        as."""
        stays = self.stays[sequence.levels]
        listed = stays & (self.level[sequence.levels] > 0)
        # each moves up by as many places as items before it do not stay
        ranks = sequence.ranks - np.cumsum(~stays)
        levels = self.level[sequence.levels[listed]]
        return LevelSequence(ranks[listed], levels, self.counts(sequence.counts), sequence.tied)

    def counts(self, by_code: NDArray[np.int64]) -> NDArray[np.int64]:
        """Count the items of every level, (…, highest level + 1), as this reading takes the codes,
        from the counts `by_code`, (…, 2L): a code says to which level an item is known to agree
        with the query, and whether it may agree further.
        """
        # (2L, levels): 1 where a code stays and counts as this level
        of_level = (self.level[:, None] == np.arange(self.level.max() + 1)) & self.stays[:, None]
        counts: NDArray[np.int64] = by_code @ of_level.astype(np.int64)
        return counts


def known(depth: int) -> Reading:
    """The reading of a tree's codes, `depth` levels deep, that leaves items of unknown level out of
    the list."""
    lowest, is_known = _codes(depth)
    return Reading("known", is_known, lowest)


def wrong(depth: int) -> Reading:
    """The reading, for a tree of `depth` levels, in which all unknown is wrong: an item is at the
    lowest level that it may be at. It gives a lower bound of a metric."""
    lowest, is_known = _codes(depth)
    return Reading("wrong", np.ones_like(is_known), lowest)


def right(depth: int) -> Reading:
    """The reading, for a tree of `depth` levels, in which all unknown is right: an item is at the
    highest level that it may be at, the finest. It gives an upper bound of a metric."""
    lowest, is_known = _codes(depth)
    return Reading("right", np.ones_like(is_known), np.where(is_known, lowest, np.uint8(depth)))


def at_level(depth: int, level: int) -> Reading:
    """Return the reading of one `level` of `depth` levels, that is what each code of an item counts
    as: positives are the items known to be at that level or a finer one, also those that may be
    finer still; items that may or may not be positives are left out."""
    lowest, is_known = _codes(depth)
    positive = lowest >= level
    return Reading(f"level {level}", is_known | positive, positive.astype(np.uint8))


def _codes(depth: int) -> tuple[NDArray[np.uint8], NDArray[np.bool_]]:
    """The lowest level of every code, and whether it is known; two (2L,), L the `depth`. Code 0 is
    a distractor, 2l − 1 an item known to be at level l, 2l one at level l or finer."""
    codes = np.arange(2 * depth)
    return ((codes + 1) // 2).astype(np.uint8), (codes % 2 == 1) | (codes == 0)
