"""Metrics under partial labels: how a list that holds items of unknown level is read, and by which scorers.

The level of a pair may be known only to lie between l and L (hbench.tree.partial). A list says so by codes in place of levels:
0 a distractor, 2l − 1 an item known to be at level l, 2l one at level l … L. A *reading* makes levels of them: it leaves
some items out, as if they were not in the gallery, and takes each other one for some level.

>>> coded = LevelSequence(np.array([1, 2, 4]), np.array([3, 2, 1], np.uint8), np.array([3, 1, 1, 1]))  # of two levels
>>> [known(2).of(coded).levels.tolist(), wrong(2).of(coded).levels.tolist(), right(2).of(coded).levels.tolist()]
[[2, 1], [2, 1, 1], [2, 2, 1]]
>>> known(2).of(coded).ranks.tolist(), at_level(2, 1).of(coded).ranks.tolist(), at_level(2, 2).of(coded).ranks.tolist()
([1, 3], [1, 2, 4], [1])
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hbench.metrics.level_sequence import LevelSequence
from hbench.metrics.names import MetricName
from hbench.metrics.protocols import Scorer, Setting, paper


class Reading(NamedTuple):
    """The meaning of every code, two arrays (2L,): whether an item `stays` in the list, and the `level` it then counts as."""

    name: str
    stays: NDArray[np.bool_]
    level: NDArray[np.uint8]

    def of(self, sequence: LevelSequence) -> LevelSequence:
        """The level sequence of a sequence of codes."""
        stays = self.stays[sequence.levels]
        listed = stays & (self.level[sequence.levels] > 0)
        ranks = sequence.ranks - np.cumsum(~stays)
        levels = self.level[sequence.levels[listed]]
        return LevelSequence(ranks[listed], levels, self.counts(sequence.counts), sequence.tied)

    def counts(self, by_code: NDArray[np.int64]) -> NDArray[np.int64]:
        """Count the items of every level from those of every code: (…, 2L) -> (…, highest level + 1)."""
        of_level = (self.level[:, None] == np.arange(self.level.max() + 1)) & self.stays[:, None]
        counts: NDArray[np.int64] = by_code @ of_level.astype(np.int64)
        return counts


def known(depth: int) -> Reading:
    """Items of unknown level are left out."""
    lowest, is_known = _codes(depth)
    return Reading("known", is_known, lowest)


def wrong(depth: int) -> Reading:
    """All unknown are wrong: an item is at the lowest level that it may be at."""
    lowest, is_known = _codes(depth)
    return Reading("wrong", np.ones_like(is_known), lowest)


def right(depth: int) -> Reading:
    """All unknown are right: an item is at the highest level that it may be at, the finest."""
    lowest, is_known = _codes(depth)
    return Reading("right", np.ones_like(is_known), np.where(is_known, lowest, np.uint8(depth)))


def at_level(depth: int, level: int) -> Reading:
    """Return the reading of one level: positives are the items known to be at `level` or a finer one, also those that may be finer
    still; items that may or may not be positives are left out."""
    lowest, is_known = _codes(depth)
    positive = lowest >= level
    return Reading(f"level {level}", is_known | positive, positive.astype(np.uint8))


def _codes(depth: int) -> tuple[NDArray[np.uint8], NDArray[np.bool_]]:
    """The lowest level of every code, and whether it is known; two (2L,)."""
    codes = np.arange(2 * depth)
    return ((codes + 1) // 2).astype(np.uint8), (codes % 2 == 1) | (codes == 0)


def is_graded(name: MetricName) -> bool:
    """Whether a metric goes by all levels, so that it has three values under partial labels; others are of one level."""
    return "level" not in name.definition.takes


def partial_scorers(names: Sequence[MetricName], setting: Setting) -> list[Scorer]:
    """The functions of one query and its codes: every metric of what is known, then the graded ones with all unknown
    wrong, then with all unknown right."""
    depth, graded = len(setting.levels), [name for name in names if is_graded(name)]
    exact = [_graded(name, setting, known(depth)) if is_graded(name) else _of_level(name, setting) for name in names]
    bounds = [_graded(name, setting, reading(depth)) for reading in (wrong, right) for name in graded]
    return [*exact, *bounds]


def _graded(name: MetricName, setting: Setting, reading: Reading) -> Scorer:
    return _read(_by_paper(name, setting), reading)


def _of_level(name: MetricName, setting: Setting) -> Scorer:
    """Asked of the queries that are known to the level. AP of a level alone takes the items that are known to be exactly
    there; any other metric sees a list of one level."""
    depth, scorer = len(setting.levels), _by_paper(name, setting)
    level = scorer.arguments["level"]
    if name.base == "AP#":
        return replace(_read(scorer, known(depth)), asked=level)
    arguments = {**scorer.arguments, "level": 1}
    function: Callable[..., float] = name.definition.function
    one = replace(scorer, arguments=arguments, function=lambda query, sequence: function(sequence, **arguments))
    return replace(_read(one, at_level(depth, level)), asked=level)


def _by_paper(name: MetricName, setting: Setting) -> Scorer:
    scorer = paper(name, setting)
    assert isinstance(scorer, Scorer)
    return scorer


def _read(scorer: Scorer, reading: Reading) -> Scorer:
    formula = scorer.function
    return replace(scorer, function=lambda query, coded: formula(query, reading.of(coded)), reading=reading)
