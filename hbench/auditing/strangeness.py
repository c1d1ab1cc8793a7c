"""Measures how strange an item would be in a class: how far it is from its neighbours, compared
with the items of that class.

A wrong label does not change a picture: an item that belongs to the proposed class is as far from
its neighbours as the items of that class are from theirs. An outlier, which is far from all items,
has neighbours of some other class by chance. To distinguish the two, the mean logarithm of an
item's distances 1 − cos to its neighbours is expressed in standard deviations of the proposed class
above the mean of that class. Small classes borrow from their parent, and parents from all items.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hbench.auditing.evidence import Indices, Votes

Floats = NDArray[np.float64]
BORROWED = 5  # how many items with the parent's mean and deviation are added to a class
SMALLEST = 1e-12  # smaller distances are rounding
MOST = 6.0  # standard deviations; strangeness is clipped to LEAST … MOST
LEAST = -1.0


class Strangeness(NamedTuple):
    """The distances of items to their neighbours, and the usual distances in each class."""

    distances: Floats  # the mean logarithm of each item's distances, (N,)
    means: Floats  # of the distances in each class, (C,)
    deviations: Floats  # the standard deviation in each class, (C,)

    @classmethod
    def of(cls, votes: Votes, distances: Floats) -> Strangeness:
        """Compute the strangeness from the distances 1 − cos of every item to its neighbours,
        (N, k), and the classes of the items in `votes`."""
        # copies may be at distance 0, which has no logarithm
        logs = np.log(np.maximum(distances, SMALLEST)).mean(axis=1)
        of_parents = votes.parents  # (C,): the parent of each class
        number = int(of_parents.max()) + 1  # of parents
        # A group of few items borrows some from a larger group, so that its mean is not extreme.
        # First the parents: each borrows from all items.
        mean, spread = _means_with_borrowed_items(
            logs,
            of_parents[votes.classes],
            np.full(number, logs.mean()),
            np.full(number, logs.std()),
        )
        # then the classes: each borrows from its parent
        means, deviations = _means_with_borrowed_items(
            logs, votes.classes, mean[of_parents], spread[of_parents]
        )
        return cls(logs, means, np.maximum(deviations, SMALLEST))

    def in_class(self, items: Indices, classes: Indices) -> Floats:
        """How strange items (m,) would be in classes (m,), in standard deviations, (m,)."""
        strange = (self.distances[items] - self.means[classes]) / self.deviations[classes]
        return np.clip(strange, LEAST, MOST)


def _means_with_borrowed_items(
    values: Floats, groups: Indices, mean: Floats, spread: Floats
) -> tuple[Floats, Floats]:
    """The mean and standard deviation, (G,) each, of the values in each group.

    BORROWED items are added to each group, so that a group of few items gets no extreme result.
    They draw the mean towards `mean` and the deviation towards `spread`. The distance between the
    group's mean and `mean` is not part of the deviation.

    Args:
        values: (N,).
        groups: the group of each value, (N,).
        mean: the mean of the items that each group borrows, (G,).
        spread: the standard deviation of these items, (G,).
    """
    number = len(mean)
    sizes = np.bincount(groups, minlength=number) + BORROWED
    means = (np.bincount(groups, values, number) + BORROWED * mean) / sizes
    squares = np.bincount(groups, (values - means[groups]) ** 2, number)
    return means, np.sqrt((squares + BORROWED * spread**2) / sizes)
